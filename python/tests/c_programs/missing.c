/* A process misses a commit: the others name it, and give up.
 *
 * usage: missing PATH; PATH has the array t of float32 of shape (4, 8). */
#include <bedform_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Notes that a process has ended its commit; a file is seen without MPI, which spins. */
static void mark(const char *path, int rank) {
  char name[4096];
  snprintf(name, sizeof name, "%s-ended-%d", path, rank);
  FILE *file = fopen(name, "w");
  if (file == NULL || fclose(file) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Waits until so many processes have ended their commits; the test ends what hangs. */
static void wait_for(const char *path, int count) {
  char name[4096];
  for (int rank = 0; rank < count; rank++) {
    snprintf(name, sizeof name, "%s-ended-%d", path, rank);
    while (access(name, F_OK) != 0) usleep(20000);
  }
}

int main(int count, char **arguments) {
  bf_comm comm;
  bf_store store;
  bf_session session;
  bf_status status;
  const char *path = arguments[1];
  MPI_Init(&count, &arguments);
  if (count != 2 || bf_comm_from_mpi(MPI_COMM_WORLD, &comm) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  int last = comm.size - 1;
  uint64_t start[2] = {0, (uint64_t)comm.rank}, shape[2] = {1, 1};
  float value = 1;
  if (bf_open(path, "r+", NULL, &store) != BF_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  if (bf_session_begin(store, &comm, NULL, &session) != BF_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  bf_session_write(session, "t", 2, start, shape, &value, sizeof value);
  /* All are present: the next call waits for one process alone. */
  MPI_Barrier(MPI_COMM_WORLD);
  setenv("BEDFORM_COLLECTIVE_WARN", "3", 1);
  setenv("BEDFORM_COLLECTIVE_TIMEOUT", "6", 1);
  if (comm.rank == last) wait_for(path, last);
  status = bf_session_commit(session, NULL);
  printf("%d %s: %s\n", comm.rank, bf_status_name(status), bf_last_error());
  fflush(stdout);
  mark(path, (int)comm.rank);
  wait_for(path, comm.size);
  bf_session_abort(session);
  bf_comm_free(&comm);
  bf_close(store);
  MPI_Finalize();
  return 0;
}
