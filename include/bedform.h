/* Bedform: storage for scientific arrays, in C.
 *
 * docs/c-api.md is the guide; this header is the reference of each call. In all of them:
 *
 * - A call returns a status: BF_OK, or a code by the remedy of the error. bf_last_error() is the text of the
 *   error, one line. After an error nothing was given: handles are null, buffers unspecified.
 * - Handles (bf_store, bf_array, ...) are numbers, not pointers. They are copied freely, and closed once.
 *   One that is null, closed or of another kind gives BF_INVALID_ARGUMENT, never a crash.
 * - Every call may be made by any thread; calls on one session wait for each other.
 * - Elements are in memory in C order (the last axis varies fastest), in the machine's byte order. The size
 *   of a buffer is given in bytes, and must be that of the selection.
 * - Texts are UTF-8 and end with a NUL. Options and attributes are JSON objects; NULL stands for none.
 *   Options whose names end with _bytes are numbers, or texts such as "256 MiB" or "1.5 GB".
 * - Texts are given into a buffer of the caller's: `needed` gets the bytes with the NUL. With buffer NULL and
 *   capacity 0 a call only says that; a buffer that is too small is BF_LIMIT_EXCEEDED.
 *
 * Licence: Apache-2.0 or MIT, at your choice. */
#ifndef BEDFORM_H
#define BEDFORM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses ------------------------------------------------------------------------------------ */

typedef enum bf_status {
  BF_OK = 0,
  BF_NOT_FOUND = 1,         /* no such store, array or group: check the name */
  BF_EXISTS = 2,            /* it exists and was to be created: open it, or choose another name */
  BF_INVALID_ARGUMENT = 3,  /* the call is wrong: fix the argument */
  BF_OUT_OF_BOUNDS = 4,     /* a selection leaves the array: fix the selection */
  BF_UNSUPPORTED = 5,       /* the data need a feature that this version lacks */
  BF_CORRUPT = 6,           /* stored bytes are damaged: restore them from a copy */
  BF_CONFLICT = 7,          /* another writer was faster: read again and retry; of a session: in a new one */
  BF_SNAPSHOT_MOVED = 8,    /* the data moved on while they were read: read again */
  BF_LIMIT_EXCEEDED = 9,    /* more than a limit or a buffer allows: raise it, if the data are trusted */
  BF_READ_ONLY = 10,        /* the store is read-only or was opened so */
  BF_PERMISSION_DENIED = 11, /* the system refuses access */
  BF_NO_SPACE = 12,         /* no space left: free some and retry */
  BF_POISONED = 13,         /* an earlier write has an unknown outcome, or the session is over: open again */
  BF_INTERRUPTED = 14,      /* the caller stopped the work */
  BF_IO = 15,               /* the device or system failed, or processes lost each other */
  BF_INTERNAL = 100         /* a bug of Bedform: please report it */
} bf_status;

/* The name of a status: "NotFound". */
const char *bf_status_name(bf_status status);

/* The error text of the last call of this thread that failed. Valid until this thread's next call. */
const char *bf_last_error(void);

/* The version of the library: "0.1.0". */
const char *bf_version(void);

/* Lets the calls of this thread be stopped. While a call works or waits it asks `stop`, every 50 ms at most, on
 * the thread that made the call; anything but 0 ends it with BF_INTERRUPTED. `stop` returns normally (no longjmp)
 * and calls nothing of this library. NULL: calls are not stopped. */
typedef int (*bf_stop)(void *context);
bf_status bf_set_stop(bf_stop stop, void *context);

/* ---- Handles ------------------------------------------------------------------------------------- */

typedef struct bf_store { uint64_t id; } bf_store;
typedef struct bf_array { uint64_t id; } bf_array;
typedef struct bf_session { uint64_t id; } bf_session;
typedef struct bf_decomposition { uint64_t id; } bf_decomposition;

/* ---- Stores -------------------------------------------------------------------------------------- */

/* Creates an empty store: a plain Zarr v3 group in the directory `path`, which is missing or empty.
 * Durable on return. Options: cache_bytes (256 MiB without it), durability ("disk", as without it, or
 * "process"), threads (one for each core), direct_reads (true). */
bf_status bf_create(const char *path, const char *attributes, const char *options, bf_store *store);

/* Opens the store in the directory `path`; mode "r" to read, "r+" to write as well. Options: those of
 * bf_create, freshness (when to look for changes of others: "read", as without it on disks, "open", as without it
 * where `path` is a URL, or "never": a handle that does not look keeps the shape that it saw, and reads the fill
 * value for rows that others have removed since), gap_bytes, prefetch (the limit for reading ahead of reads that
 * follow a pattern: "auto", as without it, for reads of the main thread, false, or bytes, for reads of any thread).
 *
 * A NetCDF classic, NetCDF-4 or HDF5 file is opened in mode "r": its variables are arrays, its groups groups.
 * An HDF5 file that only its library understands is BF_UNSUPPORTED until `bedform info PATH` has asked that, once
 * for each state of the file and for the same user. So is bf_open_array of a variable that only the library of the
 * format reads. Calls that write are BF_READ_ONLY. */
bf_status bf_open(const char *path, const char *mode, const char *options, bf_store *store);

/* Opens the store as of now as another one, read-only: every array, group and attribute of one moment, whatever
 * is committed, settled, written and deleted meanwhile. A read gives what there was, or is BF_SNAPSHOT_MOVED once
 * that is gone: nothing is kept for a snapshot. bf_close closes it. */
bf_status bf_snapshot(bf_store store, bf_store *snapshot);

/* Closes the handle. Arrays and sessions of the store that are open stay so. */
bf_status bf_close(bf_store store);

/* Everything below the root, as JSON: {"t": "array", "forcing": "group"}. */
bf_status bf_list(bf_store store, char *buffer, uint64_t capacity, uint64_t *needed);

/* The kind of the object at a path. */
enum { BF_NOTHING = 0, BF_ARRAY = 1, BF_GROUP = 2 };
bf_status bf_kind(bf_store store, const char *path, int *kind);

/* Creates a group with its missing parents. Atomic, durable on return. */
bf_status bf_create_group(bf_store store, const char *path, const char *attributes);

/* Deletes an array or group with all below it. */
bf_status bf_delete(bf_store store, const char *path);

/* The attributes of an array or group ("" is the root), as JSON. */
bf_status bf_attributes(bf_store store, const char *path, char *buffer, uint64_t capacity, uint64_t *needed);

/* Replaces them. Atomic, durable on return. */
bf_status bf_set_attributes(bf_store store, const char *path, const char *attributes);

/* Turns all commits of sessions into shards. Readers and writers may go on meanwhile. It can be repeated. */
bf_status bf_settle(bf_store store);

/* ---- Arrays -------------------------------------------------------------------------------------- */

#define BF_RANK_MAX 32

/* Creates an array. Atomic, durable on return.
 *   dtype   as Zarr has it: bool, int8 ... uint64, float16, float32, float64, complex64, complex128
 *   shape   elements along each axis; 0 along an axis that will grow
 *   dims    names of the axes, "time,lat,lon"; NULL without
 *   chunks  elements of a chunk along each axis; NULL lets Bedform choose chunks that fit the reads
 *   shards  elements of a shard, a multiple of the chunk's; NULL for about 64 MiB
 *   options reads ({"lat,lon": 0.7, "time": 0.3}: the axes that a typical read spans), readers ("any" without:
 *           zarr-python must read it well, too; or "bedform"), append_length, order
 *           ("row-major", "column-major", "z", "hilbert"), codecs ("auto" without: the data
 *           written first decide; a list such as ["zstd"]; [] for none), codecs_beyond_zarr (true lets "auto" take
 *           pcodec), fill_value, attributes, checksum (false leaves the CRC-32C out), transpose
 *   array   gets a handle; may be NULL */
bf_status bf_create_array(bf_store store, const char *path, const char *dtype, uint32_t rank,
                          const uint64_t *shape, const char *dims, const uint64_t *chunks,
                          const uint64_t *shards, const char *options, bf_array *array);

/* Creates many arrays at once: those of bf_create_array between the two calls appear with the second, all or
 * none, and much faster than one by one. They have no handles before; `array` is left null. In a session
 * bf_session_define_end is the second call, and faster still. */
bf_status bf_define_begin(bf_store store);
bf_status bf_define_end(bf_store store);

bf_status bf_open_array(bf_store store, const char *path, bf_array *array);
bf_status bf_close_array(bf_array array);

typedef struct bf_array_facts {
  uint32_t rank;
  uint32_t reserved;
  uint64_t item_bytes;          /* of an element in memory; 0 for text */
  uint64_t shape[BF_RANK_MAX];  /* the first `rank` count */
  uint64_t chunks[BF_RANK_MAX];
  uint64_t shards[BF_RANK_MAX]; /* those of chunks for an array without shards */
  char dtype[64];               /* "float32" */
} bf_array_facts;

/* The facts of the array, as storage has it now; `bytes` is sizeof(bf_array_facts). */
bf_status bf_array_info(bf_array array, bf_array_facts *facts, uint64_t bytes);

/* The name of an axis; empty if it has none. */
bf_status bf_array_dimension_name(bf_array array, uint32_t axis, char *buffer, uint64_t capacity,
                                  uint64_t *needed);

/* All there is to say of the array, as JSON: codecs, order, fill value, attributes, ... */
bf_status bf_array_describe(bf_array array, char *buffer, uint64_t capacity, uint64_t *needed);

/* The plan of bf_read of the same elements, as JSON: objects, requests, bytes, chunks, seconds by the
 * profile. Opens objects and reads their indexes, and no elements. A call that asks for the length gets enough
 * for the next one, whose numbers may have more digits. */
bf_status bf_array_explain(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                           const int64_t *stride, char *buffer, uint64_t capacity, uint64_t *needed);

/* Reads `shape` elements from `start` on; with a stride (may be NULL) only every n-th along each axis. */
bf_status bf_read(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                  const int64_t *stride, void *buffer, uint64_t bytes);

/* Reads `count` boxes, each in C order, one after the other; their starts and shapes have `rank` numbers for
 * each box. */
bf_status bf_read_boxes(bf_array array, uint32_t rank, uint64_t count, const uint64_t *starts,
                        const uint64_t *shapes, void *buffer, uint64_t bytes);

/* Reads `count` single elements; `coordinates` has `rank` numbers for each. */
bf_status bf_read_points(bf_array array, uint32_t rank, uint64_t count, const uint64_t *coordinates,
                         void *buffer, uint64_t bytes);

/* Writes directly: atomic per shard, durable on return. Data that must appear as a whole, and data that many
 * processes write, go through a session. */
bf_status bf_write(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                   const int64_t *stride, const void *data, uint64_t bytes);

/* Changes the shape; new elements are the fill value. */
bf_status bf_resize(bf_array array, uint32_t rank, const uint64_t *shape);

/* Appends elements of `shape` behind the last ones along `axis`; readers see all of it or nothing. `start`
 * (may be NULL) gets where they begin. */
bf_status bf_append(bf_array array, uint32_t axis, uint32_t rank, const uint64_t *shape, const void *data,
                    uint64_t bytes, uint64_t *start);

/* ---- Conversion ---------------------------------------------------------------------------------- */

typedef struct bf_convert_watch {
  void *context;                                                 /* handed to the functions */
  void (*progress)(void *context, uint64_t done, uint64_t total); /* decoded bytes; may be NULL */
  void (*warning)(void *context, const char *line);               /* about the copy; may be NULL */
} bf_convert_watch;

/* Converts a store or a foreign file (as bf_open reads it) into a store laid out for reads. The target, a
 * directory that does not exist or the URL of a place without a store, appears when it is complete. A
 * conversion to a directory that was stopped goes on where it stopped when the same call is made again.
 * Options:
 *   reads        {"lat,lon": 0.7, "time": 0.3}: the axes that typical reads span, with weights
 *   layout       {"chunks": [..], "shards": [..], "order": ".."} of every array of its rank; else what costs
 *                least
 *   memory_bytes the limit for values, encoded shards and kept chunks; 512 MiB without it
 *   exclude      a list of arrays to leave out
 *   verify       true reads both sides again and compares every byte before the target appears
 *   restart      true throws away what an unfinished conversion to this target left
 *   profile      the document of a profile of the target's storage
 * `watch` (may be NULL) hears of it, on the calling thread. BF_CONFLICT: another conversion to the target is
 * running. BF_CORRUPT: with "verify", the copy differs. */
bf_status bf_convert(const char *source, const char *target, const char *options,
                     const bf_convert_watch *watch);

/* ---- Processes that write together --------------------------------------------------------------- */

/* How the processes of a session talk to each other. bf_comm_from_mpi of bedform_mpi.h fills it from an
 * MPI communicator. For your own implementation: all functions return 0 if they succeed. All but `exchange` are
 * collective. They wait without spinning, for there may be more processes than cores. */
typedef struct bf_message {
  int32_t peer;    /* the other process */
  void *bytes;     /* read where they are sent, written where they are received */
  uint64_t length; /* the same on both sides; perhaps more than an int holds */
} bf_message;

typedef struct bf_comm {
  void *context; /* handed to every function */
  int32_t rank;
  int32_t size;
  int (*barrier)(void *context);
  /* The bytes of `root` to all. */
  int (*broadcast)(void *context, void *bytes, uint64_t length, int32_t root);
  /* `length` bytes of each, at most 64 KiB, by rank into `all` of `root`. */
  int (*gather)(void *context, const void *bytes, void *all, uint64_t length, int32_t root);
  /* Reserved: NULL, and never called. */
  void (*reserved)(void);
  /* Messages between some processes: only those that send or receive call it. Messages between two arrive
   * in the order of the calls. */
  int (*exchange)(void *context, const bf_message *sent, uint64_t sent_count, const bf_message *received,
                  uint64_t received_count);
  /* Frees the context. Collective. */
  void (*free)(void *context);
} bf_comm;

/* Tells a function of a bf_comm how to go on with a wait that has lasted so many seconds, for the processes
 * `missing` (none: they are not known). To be asked about once a second, on the thread that called the function: 0
 * to wait on, 1 to give up and return an error; buffers of the messages stay valid then. Names the missing
 * processes and their call on stderr, once, after BEDFORM_COLLECTIVE_WARN seconds (60; 0 for never); gives up after
 * BEDFORM_COLLECTIVE_TIMEOUT seconds (never without it). */
int bf_comm_waits(double seconds, const int32_t *missing, uint64_t count);

/* Frees what bf_comm_from_mpi gave, after the sessions that use it have ended. Collective. */
bf_status bf_comm_free(bf_comm *comm);

/* As bf_settle, by all processes of `comm` (NULL: this one alone), each a share; collective. Options:
 * memory_bytes (the limit in each process for chunks and for sections read from the log; 512 MiB without it),
 * grace_seconds (data that readers may still need stay in the log so long; 0), arrays (only these: a list of
 * paths). */
bf_status bf_settle_together(bf_store store, const bf_comm *comm, const char *options);

/* ---- Sessions ------------------------------------------------------------------------------------ */

/* Collective calls are made by all processes of the session, in the same order. Where they differ - another call,
 * path, axis or array to create - all get BF_INVALID_ARGUMENT with one text that names the ranks and their calls,
 * and nothing of them is done. If one of them was bf_session_commit, _drain or _end, the session can only end. */

/* Begins a writing session of all processes of `comm`, which make this call together; `comm` NULL: of this
 * process alone. `comm` must live as long as the session. Options, the first value is the default:
 *   buffer_bytes    64 MiB: the limit for data that wait in memory to be written
 *   settle          "end": bf_session_end turns the commits into shards; "later": bf_settle does; "background":
 *                   the session does while it goes on, and the rest at its end
 *   settle_bytes, settle_commits
 *                   the limits for commits that wait in the background; without them those of bedform.toml, or
 *                   1 GiB and 10,000
 *   durability      "disk"; "node": commits return when they are durable in the burst tier
 *   burst           the directory of a burst tier; without it that of BEDFORM_BURST or bedform.toml; false for
 *                   none
 *   burst_capacity_bytes
 *                   the bytes that this process may have there */
bf_status bf_session_begin(bf_store store, const bf_comm *comm, const char *options, bf_session *session);

/* Takes a box of an array. Not collective, nothing is visible before the commit; the data are copied. Where
 * writes overlap the later counts, between processes in one commit that of the higher rank. */
bf_status bf_session_write(bf_session session, const char *path, uint32_t rank, const uint64_t *start,
                           const uint64_t *shape, const void *data, uint64_t bytes);

/* As bf_session_write, without a copy where that helps: the data must stay as they are until bf_session_wait
 * for the token, the next commit, or the session's end has returned. */
bf_status bf_session_write_borrowed(bf_session session, const char *path, uint32_t rank,
                                    const uint64_t *start, const uint64_t *shape, const void *data,
                                    uint64_t bytes, uint64_t *token);
bf_status bf_session_wait(bf_session session, uint64_t token);

/* Hands everything that was written so far to the system, described, so that it can be recovered if this
 * process dies. Not collective; durable and visible only with a commit. */
bf_status bf_session_flush(bf_session session);

/* Takes boxes, or points, of an array: arguments as in bf_read_boxes and bf_read_points. */
bf_status bf_session_write_boxes(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                 const uint64_t *starts, const uint64_t *shapes, const void *data,
                                 uint64_t bytes);
bf_status bf_session_write_points(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                  const uint64_t *coordinates, const void *data, uint64_t bytes);

/* Declares the boxes that this process has of many arrays, or of many time steps, once. */
bf_status bf_decomposition_declare(uint32_t rank, uint64_t count, const uint64_t *starts,
                                   const uint64_t *shapes, bf_decomposition *decomposition);
bf_status bf_decomposition_free(bf_decomposition decomposition);

/* Takes those boxes of an array of the decomposition's rank (record -1), or of place `record` along the
 * first axis of an array with one axis more. */
bf_status bf_session_write_decomposed(bf_session session, const char *path, int64_t record,
                                      bf_decomposition decomposition, const void *data, uint64_t bytes);

/* As bf_session_write_decomposed, without a copy: see bf_session_write_borrowed. */
bf_status bf_session_write_decomposed_borrowed(bf_session session, const char *path, int64_t record,
                                               bf_decomposition decomposition, const void *data,
                                               uint64_t bytes, uint64_t *token);

/* Creates the arrays that were defined since bf_define_begin(store) in the process with rank 0, whose `store`
 * counts; collective. All processes can write to them at once, while they are being created; they become
 * visible with the next commit, all or none; an array that cannot be created is an error of that commit. */
bf_status bf_session_define_end(bf_session session, bf_store store);

/* Makes an array larger, from the next commit on. Not collective: of several shapes the largest of each axis
 * counts. */
bf_status bf_session_resize(bf_session session, const char *path, uint32_t rank, const uint64_t *shape);

/* Appends elements of `shape` behind the end of an array along `axis`, those of the processes by rank;
 * collective. `start` (may be NULL) gets where those of this process begin. If another session appends before
 * the commit, that fails with BF_CONFLICT. */
bf_status bf_session_append(bf_session session, const char *path, uint32_t axis, uint32_t rank,
                            const uint64_t *shape, const void *data, uint64_t bytes, uint64_t *start);

/* Makes what all processes wrote visible, all at once, durably; collective. If one fails, all get its error
 * and nothing is visible. `number` (may be NULL) gets the number of the commit. */
bf_status bf_session_commit(bf_session session, uint64_t *number);

/* Begins a commit and returns: its data become durable while the program computes. Not collective, no messages are
 * sent. Until bf_session_commit_wait the session takes nothing else, and elements that were lent may not change. */
bf_status bf_session_commit_begin(bf_session session);

/* Ends the commit that has begun, as bf_session_commit, which some processes may call in its place; collective. */
bf_status bf_session_commit_wait(bf_session session, uint64_t *number);

/* Waits until every commit has left the burst tiers and is visible; collective. `number` (may be NULL) gets the
 * number of the last one. */
bf_status bf_session_drain(bf_session session, uint64_t *number);

/* Commits what is left, settles unless told "later", ends the session; collective. */
bf_status bf_session_end(bf_session session);

/* Ends the session without a commit. A process may do that alone when something fails: the next collective
 * call of the others then returns BF_POISONED, and nobody waits. */
bf_status bf_session_abort(bf_session session);

#ifdef __cplusplus
}
#endif

#endif
