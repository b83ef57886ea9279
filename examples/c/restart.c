/* A run that goes on where an earlier one was stopped: by a kill, or a limit of time.
 *
 *   mpiexec -n 4 ./restart run.zarr 100        goes on to step 100
 *
 * The array grows by a step with each commit, so its length is the number of complete steps, whenever the run
 * is stopped. Writes after the last commit are gone, and are computed again. */
#include <bedform_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 10, COLUMNS = 20 };

static void check(bf_status status) {
  if (status == BF_OK) return;
  fprintf(stderr, "%s (%s)\n", bf_last_error(), bf_status_name(status));
  MPI_Abort(MPI_COMM_WORLD, (int)status);
  exit((int)status); /* MPI_Abort of some MPIs returns */
}

/* Opens the store, or creates it with an array of no step yet. */
static void prepare(const char *path, int size) {
  bf_store store;
  bf_status status = bf_open(path, "r+", NULL, &store);
  if (status == BF_NOT_FOUND) {
    uint64_t shape[3] = {0, 0, COLUMNS};
    shape[1] = ROWS * (uint64_t)size;
    check(bf_create(path, NULL, NULL, &store));
    check(bf_create_array(store, "u", "float64", 3, shape, "step,y,x", NULL, NULL, NULL, NULL));
  } else {
    check(status);
    /* Makes commits visible that a burst tier has promised; without a tier there are none. */
    check(bf_recover(store, NULL, NULL, 0));
  }
  check(bf_close(store));
}

/* Reads the last complete step of this process's rows; returns the number of complete steps. */
static uint64_t restore(bf_store store, uint64_t first_row, double *u) {
  bf_array array;
  bf_array_facts facts;
  check(bf_open_array(store, "u", &array));
  check(bf_array_info(array, &facts, sizeof facts));
  if (facts.shape[0] > 0) {
    uint64_t start[3] = {0, 0, 0}, shape[3] = {1, ROWS, COLUMNS};
    start[0] = facts.shape[0] - 1;
    start[1] = first_row;
    check(bf_read(array, 3, start, shape, NULL, u, ROWS * COLUMNS * sizeof *u));
  }
  check(bf_close_array(array));
  return facts.shape[0];
}

int main(int count, char **arguments) {
  static double u[ROWS * COLUMNS];
  bf_comm comm;
  bf_store store;
  bf_session session;
  bf_decomposition rows;
  uint64_t step, steps, start[2] = {0, 0}, shape[2] = {ROWS, COLUMNS}, grown[3] = {0, 0, COLUMNS};
  int i;
  MPI_Init(&count, &arguments);
  if (count != 3 || bf_comm_from_mpi(MPI_COMM_WORLD, &comm) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  steps = strtoull(arguments[2], NULL, 10);

  if (comm.rank == 0) prepare(arguments[1], comm.size);
  MPI_Barrier(MPI_COMM_WORLD);
  check(bf_open(arguments[1], "r+", NULL, &store));
  start[0] = ROWS * (uint64_t)comm.rank;
  grown[1] = ROWS * (uint64_t)comm.size;
  check(bf_decomposition_declare(2, 1, start, shape, &rows));

  step = restore(store, start[0], u);
  if (comm.rank == 0) printf("goes on at step %lu\n", (unsigned long)step);
  check(bf_session_begin(store, &comm, NULL, &session));
  for (; step < steps; step++) {
    for (i = 0; i < ROWS * COLUMNS; i++) u[i] += 1 + comm.rank; /* the computation */
    grown[0] = step + 1;
    /* Each process makes room for its rows. */
    check(bf_session_resize(session, "u", 3, grown));
    check(bf_session_write_decomposed(session, "u", (int64_t)step, rows, u, sizeof u));
    check(bf_session_commit(session, NULL));
  }
  check(bf_session_end(session));

  check(bf_decomposition_free(rows));
  check(bf_close(store));
  check(bf_comm_free(&comm));
  MPI_Finalize();
  return 0;
}
