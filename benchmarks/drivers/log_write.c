/* Writes the data of the plans through a session of Bedform, and prints the time.
 *
 *   mpiexec -n P log_write STORE PLAN-PREFIX SETTLE
 *
 * Process r reads PLAN-PREFIX-r.plan. The time is from the creation of the store to the end of the
 * session: arrays, declarations, writes, one commit, all durable. With SETTLE "settle" the session settles,
 * which is timed apart. With "node" the commit is durable in the burst tier, of which BEDFORM_BURST has the
 * directory: arrays are made and looked up behind the tier, so the time is from there to the return of the
 * commit, and draining is timed apart. Prints one line of JSON; the longest of all processes
 * counts. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "bedform.h"
#include "bedform_mpi.h"
#include "plan.h"

enum { CREATE, BEGIN, DECLARE, WRITE, COMMIT, DRAIN, SETTLE, PHASES };

static void check(bf_status status, const char *what) {
  if (status == BF_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, bf_status_name(status), bf_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A shard holds a record, or the variable if it has none; a chunk half of that, and half again, along the
 * first axes, until it has at most so many bytes. */
#define CHUNK_BYTES (1 << 20)

static void lay_out(const variable *one, const uint64_t *shape, uint32_t axes, uint64_t *chunks,
                    uint64_t *shards) {
  uint64_t bytes = (uint64_t)plan_items[one->type];
  for (uint32_t axis = 0; axis < axes; axis++) {
    chunks[axis] = shards[axis] = axis == 0 && one->has_record ? 1 : shape[axis];
    bytes *= chunks[axis];
  }
  for (uint32_t axis = 0; axis < axes; axis++) {
    uint64_t parts = 1;
    while (bytes > CHUNK_BYTES && chunks[axis] > 1) {
      uint64_t half = (chunks[axis] + 1) / 2;
      bytes = bytes / chunks[axis] * half;
      chunks[axis] = half;
      parts *= 2;
    }
    shards[axis] = chunks[axis] * parts;
  }
}

/* Fills in the whole shape of a variable; returns the number of its axes. */
static uint32_t shape_of(const plan *all, const variable *one, uint64_t *shape) {
  uint32_t axes = 0;
  if (one->has_record) shape[axes++] = (uint64_t)all->records;
  for (int64_t axis = 0; axis < one->axes; axis++) shape[axes++] = (uint64_t)one->lengths[axis];
  return axes;
}

/* Defines the arrays. */
static void define_all(const plan *all, bf_store store) {
  check(bf_define_begin(store), "define");
  for (int64_t at = 0; at < all->variable_count; at++) {
    const variable *one = &all->variables[at];
    uint64_t shape[PLAN_AXES_MAX + 1];
    uint32_t axes = shape_of(all, one, shape);
    uint64_t chunks[PLAN_AXES_MAX + 1], shards[PLAN_AXES_MAX + 1];
    lay_out(one, shape, axes, chunks, shards);
    check(bf_create_array(store, one->name, plan_types[one->type], axes, shape, NULL, chunks, shards,
                          "{\"codecs\": []}", NULL),
          one->name);
  }
}

/* Makes the session look up the arrays once, before the writes, as programs open their files. */
static void look_up_all(const plan *all, bf_session session) {
  for (int64_t at = 0; at < all->variable_count; at++) {
    const variable *one = &all->variables[at];
    uint64_t shape[PLAN_AXES_MAX + 1];
    uint32_t axes = shape_of(all, one, shape);
    check(bf_session_resize(session, one->name, axes, shape), one->name);
  }
}

static bf_decomposition *declare_all(const plan *all) {
  bf_decomposition *made = calloc((size_t)all->part_count + 1, sizeof(bf_decomposition));
  for (int64_t at = 0; at < all->part_count; at++) {
    const part *one = &all->parts[at];
    if (one->boxes == 0) continue;
    check(bf_decomposition_declare((uint32_t)one->axes, (uint64_t)one->boxes, (const uint64_t *)one->corners,
                                   (const uint64_t *)one->shapes, &made[at]),
          "declare");
  }
  return made;
}

/* Writes one record of a variable, or the variable if it has none. The plan keeps the data until the end, so
 * that they can be lent, as the peers' nonblocking calls do. */
static void write_one(bf_session session, const bf_decomposition *made, const variable *one, int64_t record) {
  uint64_t bytes = (uint64_t)(one->elements * plan_items[one->type]), token;
  if (one->elements == 0) return;
  if (one->decomposition >= 0) {
    int64_t place = one->has_record ? record : -1;
    check(bf_session_write_decomposed_borrowed(session, one->name, place, made[one->decomposition], one->data,
                                               bytes, &token),
          one->name);
    return;
  }
  uint64_t start[PLAN_AXES_MAX + 1] = {0}, shape[PLAN_AXES_MAX + 1];
  uint32_t axes = 0;
  if (one->has_record) start[axes] = (uint64_t)record, shape[axes++] = 1;
  for (int64_t axis = 0; axis < one->axes; axis++) shape[axes++] = (uint64_t)one->lengths[axis];
  check(bf_session_write_borrowed(session, one->name, axes, start, shape, one->data, bytes, &token), one->name);
}

static void write_all(bf_session session, const plan *all, const bf_decomposition *made) {
  const variable *end = all->variables + all->variable_count;
  for (const variable *one = all->variables; one < end; one++)
    if (!one->has_record) write_one(session, made, one, 0);
  for (int64_t record = 0; record < all->records; record++)
    for (const variable *one = all->variables; one < end; one++)
      if (one->has_record) write_one(session, made, one, record);
}

int main(int count, char **words) {
  double times[PHASES + 1], spans[PHASES], longest[PHASES], total, longest_total;
  char path[4096];
  int rank;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (count != 4) plan_fail("usage: log_write STORE PLAN-PREFIX settle|later|node", words[0]);
  snprintf(path, sizeof path, "%s-%d.plan", words[2], rank);
  plan all = plan_read(path);
  int settles = strcmp(words[3], "settle") == 0, drains = strcmp(words[3], "node") == 0;
  const char *options = drains ? "{\"settle\": \"later\", \"durability\": \"node\"}" : "{\"settle\": \"later\"}";
  bf_comm comm;
  bf_store store;
  bf_session session;
  if (bf_comm_from_mpi(MPI_COMM_WORLD, &comm) != 0) plan_fail("MPI fails", path);
  MPI_Barrier(MPI_COMM_WORLD);
  times[CREATE] = MPI_Wtime();
  if (rank == 0) check(bf_create(words[1], NULL, NULL, &store), words[1]);
  if (rank == 0 && drains) {
    define_all(&all, store);
    check(bf_define_end(store), "define");
  }
  bf_mpi_barrier(comm.context); /* of those that do not spin */
  if (rank != 0) check(bf_open(words[1], "r+", NULL, &store), words[1]);
  times[BEGIN] = MPI_Wtime();
  check(bf_session_begin(store, &comm, options, &session), "begin");
  if (drains) {
    look_up_all(&all, session);
    bf_mpi_barrier(comm.context);
  } else {
    if (rank == 0) define_all(&all, store);
    check(bf_session_define_end(session, store), "define");
  }
  times[DECLARE] = MPI_Wtime();
  bf_decomposition *made = declare_all(&all);
  times[WRITE] = MPI_Wtime();
  write_all(session, &all, made);
  times[COMMIT] = MPI_Wtime();
  check(bf_session_commit(session, NULL), "commit");
  if (!drains) check(bf_session_end(session), "end");
  times[DRAIN] = MPI_Wtime();
  if (drains) {
    check(bf_session_drain(session, NULL), "drain");
    check(bf_session_end(session), "end");
  }
  times[SETTLE] = MPI_Wtime();
  if (settles && rank == 0) check(bf_settle(store), "settle");
  bf_mpi_barrier(comm.context);
  times[PHASES] = MPI_Wtime();
  for (int phase = 0; phase < PHASES; phase++) spans[phase] = times[phase + 1] - times[phase];
  total = times[drains ? DRAIN : SETTLE] - times[drains ? DECLARE : CREATE];
  MPI_Reduce(spans, longest, PHASES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&total, &longest_total, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("{\"seconds\": %.6f, \"create\": %.6f, \"begin\": %.6f, \"declare\": %.6f, \"write\": %.6f, "
           "\"commit\": %.6f, \"drain\": %.6f, \"settle\": %.6f}\n",
           longest_total, longest[CREATE] + longest[BEGIN], longest[BEGIN], longest[DECLARE], longest[WRITE], longest[COMMIT],
           longest[DRAIN], longest[SETTLE]);
  check(bf_close(store), "close");
  check(bf_comm_free(&comm), "free");
  MPI_Finalize();
  return 0;
}
