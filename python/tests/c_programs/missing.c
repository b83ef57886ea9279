/* A process does not come to a commit in time: the others say whom they miss, and give up.
 *
 * usage: missing PATH; PATH has the array t of float32 of shape (4, 8). The environment says when to give up. */
#include <bedform_mpi.h>
#include <stdio.h>
#include <string.h>

#define LATE_SECONDS 5

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
  struct timespec late = {comm.rank == last ? LATE_SECONDS : 0, 0};
  nanosleep(&late, NULL);
  status = bf_session_commit(session, NULL);
  printf("%d %s: %s\n", comm.rank, bf_status_name(status), bf_last_error());
  fflush(stdout);
  /* Until the last one is there, too. */
  late.tv_sec = comm.rank == last ? 0 : LATE_SECONDS;
  nanosleep(&late, NULL);
  bf_session_abort(session);
  bf_comm_free(&comm);
  bf_close(store);
  MPI_Finalize();
  return 0;
}
