/* Bedform: storage for scientific arrays, in C.
 *
 * docs/c-api.md is the guide; this header is the reference of each call. For all calls:
 *
 * - A call returns a status: BF_OK, or a code by the remedy of the error. bf_last_error() returns the text of
 *   the error, one line. After an error handles are null, and the contents of buffers are unspecified.
 * - Handles (bf_store, bf_array, ...) are numbers, not pointers. They may be copied, and are closed once.
 *   A null or closed handle, or one of another kind, results in BF_INVALID_ARGUMENT, never in a crash.
 * - Any thread may make any call. Calls on one session run one at a time.
 * - Elements in memory are in C order (the last axis varies fastest), in the machine's byte order. The size
 *   of a buffer is in bytes, and must be that of the selection.
 * - A call with data carries the type of the elements behind the pointer, in C11 and later and in C++: see
 *   bedform_types.h. Elements are converted to the type of the array, or from it, if that keeps every value
 *   of the type: int32 to int64 or float64, float32 to float64, uint8 to int16, bool to any number. Other
 *   types result in BF_INVALID_ARGUMENT. A pointer to void or char stands for bytes of the array's own type.
 * - Each call with data has a second form, with _as at the end of its name and with the type as one more
 *   argument: a name of Zarr ("bool", "int8" ... "uint64", "float16", "float32", "float64", "complex64",
 *   "complex128"), or "logical8" ... "logical64" for truth values of Fortran. NULL stands for bytes of the
 *   array's own type. C99 has this form alone; without it calls of C99 pass no type.
 * - True of a bool array is stored as 1, whatever number other than 0 represents it.
 * - Texts are UTF-8 and end with a NUL. Options and attributes are JSON objects; NULL stands for none.
 *   An option with a name in _bytes is a number, or a text such as "256 MiB" or "1.5 GB".
 * - A call that returns a text writes it to the caller's buffer, and its length in bytes, with the NUL, to
 *   `needed`. With buffer NULL and capacity 0 it only writes the length. A buffer that is too small results
 *   in BF_LIMIT_EXCEEDED.
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
  BF_EXISTS = 2,            /* the object to create exists: open it, or choose another name */
  BF_INVALID_ARGUMENT = 3,  /* the call is wrong: fix the argument */
  BF_OUT_OF_BOUNDS = 4,     /* a selection leaves the array: fix the selection */
  BF_UNSUPPORTED = 5,       /* the data need a feature that this version lacks */
  BF_CORRUPT = 6,           /* stored bytes are damaged: restore them from a copy */
  BF_CONFLICT = 7,          /* another writer was faster: read again, retry; for a session: in a new one */
  BF_SNAPSHOT_MOVED = 8,    /* the data moved on while they were read: read again */
  BF_LIMIT_EXCEEDED = 9,    /* a limit or a buffer is too small: raise it, if the data are trusted */
  BF_READ_ONLY = 10,        /* the store is read-only, or was opened for reading */
  BF_PERMISSION_DENIED = 11, /* the system refuses access */
  BF_NO_SPACE = 12,         /* no space left: free some and retry */
  BF_POISONED = 13,         /* an earlier write has an unknown outcome, or the session is over: open again */
  BF_INTERRUPTED = 14,      /* the caller stopped the work */
  BF_IO = 15,               /* the device or system failed, or processes lost each other */
  BF_INTERNAL = 100         /* a bug of Bedform: please report it */
} bf_status;

/* Returns the name of a status: "NotFound". */
const char *bf_status_name(bf_status status);

/* Returns the error text of this thread's last failed call. Valid until this thread's next call. */
const char *bf_last_error(void);

/* Returns the version of the library: "0.1.0". */
const char *bf_version(void);

/* Sets the callback that can stop the calls of this thread. A call that works or waits calls `stop` at most
 * every 50 ms, on its own thread. A result other than 0 ends the call with BF_INTERRUPTED. `stop` must return
 * normally (no longjmp) and call nothing of this library. NULL removes the callback. */
typedef int (*bf_stop)(void *context);
bf_status bf_set_stop(bf_stop stop, void *context);

/* ---- Handles ------------------------------------------------------------------------------------- */

typedef struct bf_store { uint64_t id; } bf_store;
typedef struct bf_array { uint64_t id; } bf_array;
typedef struct bf_session { uint64_t id; } bf_session;
typedef struct bf_decomposition { uint64_t id; } bf_decomposition;
typedef struct bf_query { uint64_t id; } bf_query;
typedef struct bf_points { uint64_t id; } bf_points;
typedef struct bf_batches { uint64_t id; } bf_batches;

/* ---- Stores -------------------------------------------------------------------------------------- */

/* Creates an empty store: a plain Zarr v3 group in the directory `path`, which must be missing or empty.
 * Durable on return. Options with their defaults: cache_bytes (256 MiB), durability ("disk"; or "process"),
 * threads (one per core), direct_reads (true). */
bf_status bf_create(const char *path, const char *attributes, const char *options, bf_store *store);

/* Opens the store in the directory `path`; mode "r" to read, "r+" to write as well. Options: those of
 * bf_create, and
 *   freshness  when to look for changes of other writers: "read" (the default on disks), "open" (the default
 *              for a URL) or "never". A handle that does not look keeps the shape that it saw, and reads the
 *              fill value for rows that another writer has removed since.
 *   gap_bytes  the largest gap between two byte ranges that one request reads
 *   prefetch   the limit for reading ahead along a pattern: "auto" (the default: for reads of the main
 *              thread), false, or bytes, for reads of any thread
 *
 * A NetCDF classic, NetCDF-4 or HDF5 file opens in mode "r": its variables are arrays, its groups groups.
 * An HDF5 file that only the HDF5 library understands is BF_UNSUPPORTED until the same user has run
 * `bedform info PATH`, once for each state of the file. The same holds for bf_open_array of a variable that
 * only the library of the format reads. Calls that write fail with BF_READ_ONLY. */
bf_status bf_open(const char *path, const char *mode, const char *options, bf_store *store);

/* Opens a read-only snapshot of the store: its arrays, groups and attributes at this moment. Later commits,
 * settling, writes and deletions do not change it. A read fails with BF_SNAPSHOT_MOVED once its data are
 * gone: no data are kept for a snapshot. bf_close closes it. */
bf_status bf_snapshot(bf_store store, bf_store *snapshot);

/* Closes the handle. Open arrays and sessions of the store stay open. */
bf_status bf_close(bf_store store);

/* Lists all arrays and groups below the root, as JSON: {"t": "array", "forcing": "group"}. */
bf_status bf_list(bf_store store, char *buffer, uint64_t capacity, uint64_t *needed);

/* Looks up the kind of the object at a path. */
enum { BF_NOTHING = 0, BF_ARRAY = 1, BF_GROUP = 2 };
bf_status bf_kind(bf_store store, const char *path, int *kind);

/* Creates a group with its missing parents. Atomic, durable on return. */
bf_status bf_create_group(bf_store store, const char *path, const char *attributes);

/* Deletes an array, or a group with all arrays and groups below it. */
bf_status bf_delete(bf_store store, const char *path);

/* Returns the attributes of an array or group ("" is the root), as JSON. */
bf_status bf_attributes(bf_store store, const char *path, char *buffer, uint64_t capacity, uint64_t *needed);

/* Replaces the attributes. Atomic, durable on return. */
bf_status bf_set_attributes(bf_store store, const char *path, const char *attributes);

/* Settles the log: turns all commits into shards. Readers and writers may continue. It can be repeated. */
bf_status bf_settle(bf_store store);

typedef struct bf_recovered {
  uint64_t drained_bytes;      /* copied from the burst tier */
  uint64_t completed;          /* promised commits that became visible */
  uint64_t live;               /* segments of writers that are alive; left alone */
  uint64_t uncommitted_writes; /* writes of dead writers that no commit has */
  uint64_t uncommitted_bytes;
  uint64_t committed;          /* commits made of such writes */
  uint64_t given_up;           /* promised commits that were given up */
  uint64_t damaged;            /* sessions with damaged promises: `bedform recover` names them */
  uint64_t tiers;              /* burst tiers of dead writers that were not looked at */
} bf_recovered;

/* Finds the remains of dead writers: makes the commits visible that a burst tier has promised, and counts
 * writes without a commit. Committed data need no recovery. Options:
 *   leftover  what becomes of writes without a commit: "keep" (the default), "commit" or "discard"; "discard"
 *             also gives up promises that cannot be kept
 *   burst     the directory of the burst tier; the configured one by default
 * `recovered` may be NULL; `bytes` is sizeof(bf_recovered). BF_NOT_FOUND: the store has no log, and nothing
 * to recover. */
bf_status bf_recover(bf_store store, const char *options, bf_recovered *recovered, uint64_t bytes);

/* ---- Arrays -------------------------------------------------------------------------------------- */

#define BF_RANK_MAX 32

/* Creates an array. Atomic, durable on return.
 *   dtype   as Zarr has it: bool, int8 ... uint64, float16, float32, float64, complex64, complex128
 *   shape   elements along each axis; 0 along an axis that will grow
 *   dims    names of the axes, "time,lat,lon"; NULL for none
 *   chunks  elements of a chunk along each axis; NULL lets Bedform choose chunks that fit the reads
 *   shards  elements of a shard, a multiple of the chunk's; NULL for about 64 MiB
 *   options reads ({"lat,lon": 0.7, "time": 0.3}: the axes that typical reads span, with weights), readers
 *           ("any", the default: zarr-python must read it well, too; or "bedform"), append_length, order
 *           ("row-major", "column-major", "z", "hilbert"), codecs ("auto", the default: the first data
 *           written decide; a list such as ["zstd"]; [] for none), codecs_beyond_zarr (true allows pcodec
 *           with "auto"), fill_value, attributes, checksum (false omits the CRC-32C), transpose
 *   array   receives the handle; may be NULL */
bf_status bf_create_array(bf_store store, const char *path, const char *dtype, uint32_t rank,
                          const uint64_t *shape, const char *dims, const uint64_t *chunks,
                          const uint64_t *shards, const char *options, bf_array *array);

/* Creates many arrays at once, much faster than one by one. The arrays of bf_create_array between the two
 * calls appear with the second, all or none. They have no handles before: `array` becomes null. In a session
 * bf_session_define_end is the second call, and still faster. */
bf_status bf_define_begin(bf_store store);
bf_status bf_define_end(bf_store store);

bf_status bf_open_array(bf_store store, const char *path, bf_array *array);
bf_status bf_close_array(bf_array array);

typedef struct bf_array_facts {
  uint32_t rank;
  uint32_t reserved;
  uint64_t item_bytes;          /* bytes of an element in memory; 0 for text */
  uint64_t shape[BF_RANK_MAX];  /* elements along each axis; the first `rank` entries are set */
  uint64_t chunks[BF_RANK_MAX]; /* elements of a chunk along each axis */
  uint64_t shards[BF_RANK_MAX]; /* elements of a shard; those of a chunk without shards */
  char dtype[64];               /* "float32" */
} bf_array_facts;

/* Returns the present facts of the array; `bytes` is sizeof(bf_array_facts). */
bf_status bf_array_info(bf_array array, bf_array_facts *facts, uint64_t bytes);

/* Returns the name of an axis; empty if it has none. */
bf_status bf_array_dimension_name(bf_array array, uint32_t axis, char *buffer, uint64_t capacity,
                                  uint64_t *needed);

/* Describes the array, as JSON: codecs, order, fill value, attributes, ... */
bf_status bf_array_describe(bf_array array, char *buffer, uint64_t capacity, uint64_t *needed);

/* Returns the plan of bf_read of the same elements, as JSON: objects, requests, bytes, chunks, predicted
 * seconds. Opens objects and reads their indexes, but no elements. The length includes a margin, because the
 * numbers of the next call may have more digits. */
bf_status bf_array_explain(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                           const int64_t *stride, char *buffer, uint64_t capacity, uint64_t *needed);

/* Reads a box of `shape` elements at `start`; with `stride` (may be NULL) every n-th element along each
 * axis. */
bf_status bf_read(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                  const int64_t *stride, void *buffer, uint64_t bytes);
bf_status bf_read_as(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                     const int64_t *stride, void *buffer, uint64_t bytes, const char *dtype);

/* Reads `count` boxes, each in C order, one after the other; `starts` and `shapes` have `rank` numbers per
 * box. */
bf_status bf_read_boxes(bf_array array, uint32_t rank, uint64_t count, const uint64_t *starts,
                        const uint64_t *shapes, void *buffer, uint64_t bytes);
bf_status bf_read_boxes_as(bf_array array, uint32_t rank, uint64_t count, const uint64_t *starts,
                           const uint64_t *shapes, void *buffer, uint64_t bytes, const char *dtype);

/* Reads `count` single elements; `coordinates` has `rank` numbers per element. */
bf_status bf_read_points(bf_array array, uint32_t rank, uint64_t count, const uint64_t *coordinates,
                         void *buffer, uint64_t bytes);
bf_status bf_read_points_as(bf_array array, uint32_t rank, uint64_t count, const uint64_t *coordinates,
                            void *buffer, uint64_t bytes, const char *dtype);

/* Writes directly to shards: atomic per shard, durable on return. Use a session for data that must appear as
 * a whole, and for data of many processes. */
bf_status bf_write(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                   const int64_t *stride, const void *data, uint64_t bytes);
bf_status bf_write_as(bf_array array, uint32_t rank, const uint64_t *start, const uint64_t *shape,
                      const int64_t *stride, const void *data, uint64_t bytes, const char *dtype);

/* Changes the shape; new elements have the fill value. */
bf_status bf_resize(bf_array array, uint32_t rank, const uint64_t *shape);

/* Appends elements of `shape` at the end of `axis`; readers see all of them or none. `start` (may be NULL)
 * receives the index of the first one along `axis`. */
bf_status bf_append(bf_array array, uint32_t axis, uint32_t rank, const uint64_t *shape, const void *data,
                    uint64_t bytes, uint64_t *start);
bf_status bf_append_as(bf_array array, uint32_t axis, uint32_t rank, const uint64_t *shape, const void *data,
                       uint64_t bytes, uint64_t *start, const char *dtype);

/* ---- Queries by value ---------------------------------------------------------------------------- */

/* Opens a query: the elements at which a condition on the values of arrays holds. Reads no elements.
 *   expression  "t2m > 310 and lat > 40", as docs/queries.md has it: names of arrays, coordinates too
 *   dims, start, shape
 *               the region: names of `rank` dimensions, "time,lat", and the first index and length of each.
 *               Other dimensions are taken whole, with rank 0 all of them
 * Options, with the default first:
 *   group         "": the path of the group whose arrays the expression names
 *   decode        true: values are compared as scale, offset and missing values decode them; false: as they
 *                 are stored
 *   memory_bytes  1 GiB: the memory limit for the result of a call
 *
 * Each call on the query reads all arrays as of one moment, commits that are not settled included. If data of
 * that moment are settled or replaced meanwhile, it begins again, 5 times at most; then it fails with
 * BF_SNAPSHOT_MOVED. A query of a snapshot stays at its moment. BF_NOT_FOUND lists names of the group, near
 * ones first; an expression that cannot be understood is BF_INVALID_ARGUMENT, with the column. */
bf_status bf_query_open(bf_store store, const char *expression, uint32_t rank, const char *dims,
                        const uint64_t *start, const uint64_t *shape, const char *options, bf_query *query);
bf_status bf_query_close(bf_query query);

/* Returns the number of dimensions that the arrays span together, and their names, "time,lat,lon". */
bf_status bf_query_rank(bf_query query, uint32_t *rank);
bf_status bf_query_dims(bf_query query, char *buffer, uint64_t capacity, uint64_t *needed);

/* Returns the region as of now: `rank` numbers each, in the order of the dimensions. */
bf_status bf_query_region(bf_query query, uint32_t rank, uint64_t *start, uint64_t *shape);

/* Counts the matching elements; looks whether there are any (1, else 0). */
bf_status bf_query_count(bf_query query, uint64_t *count);
bf_status bf_query_any(bf_query query, int *any);

/* Counts over the dimensions `over`, "lat,lon": one number for each position along the other dimensions of
 * the region, in C order. With NULL it counts over all dimensions: one number. */
bf_status bf_query_count_over(bf_query query, const char *over, uint64_t *counts, uint64_t bytes);

/* Fills a mask of the region, a byte for each element in C order: 1 where it matches, else 0. */
bf_status bf_query_mask(bf_query query, uint8_t *mask, uint64_t bytes);

typedef struct bf_value_statistics {
  uint64_t count; /* matching elements whose value is not missing */
  double sum;     /* 0 without values */
  double mean;    /* NaN without values, as are the next two */
  double minimum;
  double maximum;
} bf_value_statistics;

/* Returns statistics of the values of an array at the matching elements, missing ones left out. With `over`
 * as in bf_query_count_over; with NULL one of all. An array with further dimensions extends the query by
 * them. `bytes` is sizeof(bf_value_statistics) times their number. */
bf_status bf_query_statistics(bf_query query, const char *array, const char *over,
                              bf_value_statistics *statistics, uint64_t bytes);

/* Counts the matching values of an array in `bins` classes between neighbouring `edges`, bins + 1 ascending
 * numbers. A class has its lower edge, the last one both. `bytes` is 8 times `bins`. */
bf_status bf_query_histogram(bf_query query, const char *array, uint64_t bins, const double *edges,
                             uint64_t *counts, uint64_t bytes);

/* Returns the plan of the query, as JSON: blocks left out and by what, bytes and predicted seconds, beside
 * those of a scan. Reads coordinates, no other elements. The length includes a margin. */
bf_status bf_query_explain(bf_query query, char *buffer, uint64_t capacity, uint64_t *needed);

/* Finds the matching elements, the first `limit` of them in C order (BF_NO_LIMIT: all), and reads the values
 * of `arrays`, "sp,t2m" (NULL: none), at them: all as of one moment. They stay in memory until
 * bf_points_close. BF_LIMIT_EXCEEDED: they take more than memory_bytes, as many do: see bf_query_batches. */
#define BF_NO_LIMIT (~(uint64_t)0)
bf_status bf_query_points(bf_query query, const char *arrays, uint64_t limit, bf_points *points);
bf_status bf_points_close(bf_points points);

/* Finds the matching elements in batches, in C order, whose positions and values take `memory_bytes` at most
 * (0: 256 MiB), all as of the moment of bf_query_batches. bf_batches_next searches for the next batch: `found`
 * is 1, and `points` has an element at least and is closed as any; or `found` is 0 behind the last one. After
 * an error it searches for the same batch again; after BF_SNAPSHOT_MOVED, data of the moment were replaced:
 * begin anew. */
bf_status bf_query_batches(bf_query query, const char *arrays, uint64_t memory_bytes, bf_batches *batches);
bf_status bf_batches_next(bf_batches batches, bf_points *points, int *found);
bf_status bf_batches_close(bf_batches batches);

/* Returns the number of elements that were found. */
bf_status bf_points_count(bf_points points, uint64_t *count);

/* Returns the dimensions of their positions. They are those of the query unless a named array has further
 * ones, which extend it. */
bf_status bf_points_rank(bf_points points, uint32_t *rank);
bf_status bf_points_dims(bf_points points, char *buffer, uint64_t capacity, uint64_t *needed);

/* Returns the indexes of the elements in the arrays, `rank` numbers per element, as bf_read_points takes
 * them. */
bf_status bf_points_positions(bf_points points, uint32_t rank, uint64_t *coordinates, uint64_t bytes);

/* Returns the type of the values of an array: "float64". Decoded values may have another type than stored
 * ones. */
bf_status bf_points_dtype(bf_points points, const char *array, char *buffer, uint64_t capacity,
                          uint64_t *needed);

/* Returns the values of an array that bf_query_points named, in the order of the elements. */
bf_status bf_points_values(bf_points points, const char *array, void *buffer, uint64_t bytes);
bf_status bf_points_values_as(bf_points points, const char *array, void *buffer, uint64_t bytes,
                              const char *dtype);

/* ---- Conversion ---------------------------------------------------------------------------------- */

typedef struct bf_convert_watch {
  void *context;                                                 /* passed to the functions */
  void (*progress)(void *context, uint64_t done, uint64_t total); /* decoded bytes; may be NULL */
  void (*warning)(void *context, const char *line);               /* a remark; may be NULL */
} bf_convert_watch;

/* Converts a store or a foreign file (as bf_open reads it) into a store with a layout for the given reads.
 * The target, a directory that does not exist or a URL without a store, appears when it is complete. After an
 * interruption, the same call resumes a conversion to a directory. Options:
 *   reads        {"lat,lon": 0.7, "time": 0.3}: the axes that typical reads span, with weights
 *   layout       {"chunks": [..], "shards": [..], "order": ".."} for every array of this rank; the default is
 *                the layout with the least predicted cost
 *   memory_bytes the memory budget for values, encoded shards and kept chunks; 512 MiB by default
 *   exclude      a list of arrays to leave out
 *   verify       true reads both sides again and compares every byte before the target appears
 *   restart      true deletes the files of an unfinished conversion to this target
 *   profile      the document of a profile of the target's storage
 * The callbacks of `watch` (may be NULL) run on the calling thread. BF_CONFLICT: another conversion to the
 * target is running. BF_CORRUPT: with "verify", the copy differs. */
bf_status bf_convert(const char *source, const char *target, const char *options,
                     const bf_convert_watch *watch);

/* ---- Processes that write together --------------------------------------------------------------- */

/* The communicator of a session: its processes and their collective operations. bf_comm_from_mpi of
 * bedform_mpi.h fills it from an MPI communicator. For your own implementation: every function returns 0 on
 * success. All but `exchange` are collective. They must not spin: there may be more processes than cores. */
typedef struct bf_message {
  int32_t peer;    /* the other process */
  void *bytes;     /* the sender's data, or the receiver's buffer */
  uint64_t length; /* bytes, the same on both sides; may exceed an int */
} bf_message;

typedef struct bf_comm {
  void *context; /* passed to every function */
  int32_t rank;
  int32_t size;
  int (*barrier)(void *context);
  /* Sends the bytes of `root` to all processes. */
  int (*broadcast)(void *context, void *bytes, uint64_t length, int32_t root);
  /* Collects `length` bytes of each process, at most 64 KiB, by rank in `all` of `root`. */
  int (*gather)(void *context, const void *bytes, void *all, uint64_t length, int32_t root);
  /* Reserved: must be NULL. */
  void (*reserved)(void);
  /* Sends and receives messages; only the processes involved call it. Messages between two processes arrive
   * in the order of the calls. */
  int (*exchange)(void *context, const bf_message *sent, uint64_t sent_count, const bf_message *received,
                  uint64_t received_count);
  /* Frees the context. Collective. */
  void (*free)(void *context);
} bf_comm;

/* Decides whether a function of a bf_comm continues a wait that has lasted for `seconds`. `missing` are the
 * ranks of the processes that it waits for; with `count` 0 they are unknown. The function calls this about
 * once a second, on its own thread. The result 0 continues the wait; 1 ends it with an error, and the buffers
 * of the messages stay valid. After BEDFORM_COLLECTIVE_WARN seconds (default 60; 0 for never) it names the
 * missing processes and their call on stderr, once. After BEDFORM_COLLECTIVE_TIMEOUT seconds (default never)
 * it returns 1. */
int bf_comm_waits(double seconds, const int32_t *missing, uint64_t count);

/* Lets other processes have the core, in a function of a bf_comm that has looked for a message in vain.
 * `tries` counts the calls in this wait, from 0: the first 64 yield, later ones sleep for 0.02 to 1 ms.
 * Returns the seconds of a clock that only goes forward. */
double bf_comm_rest(uint32_t tries);

/* Frees a communicator of bf_comm_from_mpi, after the sessions that use it have ended. Collective. */
bf_status bf_comm_free(bf_comm *comm);

/* Settles the log, as bf_settle does, with the work shared by all processes of `comm` (NULL: this one alone);
 * collective. Options:
 *   memory_bytes   the memory budget of all processes of a node together, for chunks and sections of the log;
 *                  512 MiB by default
 *   grace_seconds  the time for which old data stay in the log for readers; 0 by default
 *   arrays         a list of paths: settles only these arrays */
bf_status bf_settle_together(bf_store store, const bf_comm *comm, const char *options);

/* ---- Sessions ------------------------------------------------------------------------------------ */

/* All processes of a session make its collective calls, in the same order. If they differ in the call, path,
 * axis or array to create, all processes get BF_INVALID_ARGUMENT, with one text that names the ranks and
 * their calls, and the calls have no effect. If one of them was bf_session_commit, _drain or _end, the
 * session can only end. */

/* Begins a writing session of all processes of `comm`, or of this process alone if `comm` is NULL;
 * collective. `comm` must live as long as the session. Options, with the default first:
 *   buffer_bytes    64 MiB: the memory budget for data that wait to be written
 *   settle          "end": bf_session_end settles the commits; "later": bf_settle does; "background": the
 *                   session settles while it runs, and the rest at its end
 *   settle_bytes, settle_commits
 *                   the limits for unsettled commits in the background; by default those of bedform.toml, or
 *                   1 GiB and 10,000
 *   settle_memory_bytes
 *                   512 MiB: the memory budget for settling at the end, of all processes of a node together
 *   durability      "disk"; "node": a commit returns once it is durable in the burst tier
 *   burst           the directory of a burst tier, by default that of BEDFORM_BURST or bedform.toml; false
 *                   for none
 *   burst_capacity_bytes
 *                   the limit for this process's bytes in the burst tier */
bf_status bf_session_begin(bf_store store, const bf_comm *comm, const char *options, bf_session *session);

/* Writes a box of an array into the session; it becomes visible with the commit. Copies the data. Not
 * collective. Of overlapping writes the later one counts; of different processes in one commit, that of the
 * higher rank. */
bf_status bf_session_write(bf_session session, const char *path, uint32_t rank, const uint64_t *start,
                           const uint64_t *shape, const void *data, uint64_t bytes);
bf_status bf_session_write_as(bf_session session, const char *path, uint32_t rank, const uint64_t *start,
                              const uint64_t *shape, const void *data, uint64_t bytes, const char *dtype);

/* Writes as bf_session_write does, but may avoid the copy: the data must stay unchanged until bf_session_wait
 * for the token, the next commit, or the end of the session has returned. */
bf_status bf_session_write_borrowed(bf_session session, const char *path, uint32_t rank,
                                    const uint64_t *start, const uint64_t *shape, const void *data,
                                    uint64_t bytes, uint64_t *token);
bf_status bf_session_write_borrowed_as(bf_session session, const char *path, uint32_t rank,
                                       const uint64_t *start, const uint64_t *shape, const void *data,
                                       uint64_t bytes, uint64_t *token, const char *dtype);
bf_status bf_session_wait(bf_session session, uint64_t token);

/* Passes all data written so far, with their description, to the operating system, so that they can be
 * recovered if this process dies. Not collective; only a commit makes them durable and visible. */
bf_status bf_session_flush(bf_session session);

/* Write boxes, or points, of an array; the arguments are as in bf_read_boxes and bf_read_points. */
bf_status bf_session_write_boxes(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                 const uint64_t *starts, const uint64_t *shapes, const void *data,
                                 uint64_t bytes);
bf_status bf_session_write_boxes_as(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                    const uint64_t *starts, const uint64_t *shapes, const void *data,
                                    uint64_t bytes, const char *dtype);
bf_status bf_session_write_points(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                  const uint64_t *coordinates, const void *data, uint64_t bytes);
bf_status bf_session_write_points_as(bf_session session, const char *path, uint32_t rank, uint64_t count,
                                     const uint64_t *coordinates, const void *data, uint64_t bytes,
                                     const char *dtype);

/* Declares, once, the boxes of this process for writes to many arrays or of many time steps. After
 * bf_decomposition_free a session keeps their memory until it writes another decomposition. */
bf_status bf_decomposition_declare(uint32_t rank, uint64_t count, const uint64_t *starts,
                                   const uint64_t *shapes, bf_decomposition *decomposition);
bf_status bf_decomposition_free(bf_decomposition decomposition);

/* Writes the declared boxes of an array of the decomposition's rank (`record` -1), or at index `record` along
 * the first axis of an array with one more axis. */
bf_status bf_session_write_decomposed(bf_session session, const char *path, int64_t record,
                                      bf_decomposition decomposition, const void *data, uint64_t bytes);
bf_status bf_session_write_decomposed_as(bf_session session, const char *path, int64_t record,
                                         bf_decomposition decomposition, const void *data, uint64_t bytes,
                                         const char *dtype);

/* Writes as bf_session_write_decomposed does, but may avoid the copy: see bf_session_write_borrowed. */
bf_status bf_session_write_decomposed_borrowed(bf_session session, const char *path, int64_t record,
                                               bf_decomposition decomposition, const void *data,
                                               uint64_t bytes, uint64_t *token);
bf_status bf_session_write_decomposed_borrowed_as(bf_session session, const char *path, int64_t record,
                                                  bf_decomposition decomposition, const void *data,
                                                  uint64_t bytes, uint64_t *token, const char *dtype);

/* Creates the arrays defined since bf_define_begin(store) in the process with rank 0; collective. Only the
 * `store` of that process counts. All processes can write to the arrays at once. They become visible with the
 * next commit, all or none; a failed creation is an error of that commit. */
bf_status bf_session_define_end(bf_session session, bf_store store);

/* Makes an array larger with the next commit. Not collective: of several shapes the largest length of each
 * axis counts. */
bf_status bf_session_resize(bf_session session, const char *path, uint32_t rank, const uint64_t *shape);

/* Appends elements of `shape` at the end of an array's `axis`, in the order of the ranks; collective. `start`
 * (may be NULL) receives the index of this process's first element. If another session appends before the
 * commit, the commit fails with BF_CONFLICT. */
bf_status bf_session_append(bf_session session, const char *path, uint32_t axis, uint32_t rank,
                            const uint64_t *shape, const void *data, uint64_t bytes, uint64_t *start);
bf_status bf_session_append_as(bf_session session, const char *path, uint32_t axis, uint32_t rank,
                               const uint64_t *shape, const void *data, uint64_t bytes, uint64_t *start,
                               const char *dtype);

/* Makes the writes of all processes visible, atomically and durably; collective. If one process fails, all
 * get its error, and nothing becomes visible. `number` (may be NULL) receives the number of the commit. */
bf_status bf_session_commit(bf_session session, uint64_t *number);

/* Begins a commit and returns: the data become durable while the program computes. Not collective; sends no
 * messages. Until bf_session_commit_wait the session accepts no other call, and borrowed data must not
 * change. */
bf_status bf_session_commit_begin(bf_session session);

/* Completes the commit begun with bf_session_commit_begin; collective. Some processes may call
 * bf_session_commit instead. */
bf_status bf_session_commit_wait(bf_session session, uint64_t *number);

/* Waits until every commit has left the burst tiers and is visible; collective. `number` (may be NULL)
 * receives the number of the last one. */
bf_status bf_session_drain(bf_session session, uint64_t *number);

/* Commits the remaining writes, settles unless the option settle is "later", and ends the session;
 * collective. */
bf_status bf_session_end(bf_session session);

/* Ends the session without a commit. One process may do this alone after a failure: the next collective call
 * of the others then returns BF_POISONED without waiting. */
bf_status bf_session_abort(bf_session session);

#ifdef __cplusplus
}
#endif

#include "bedform_types.h"

#endif
