/* The functions that bedform_mpi.h fills in, each with messages that go in many pieces. */
#define BF_MPI_PIECE 1000
#include <bedform_mpi.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 12345, PART = 64 };

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "line %d, rank %d: %s\n", __LINE__, rank, #condition);  \
      MPI_Abort(MPI_COMM_WORLD, 1);                                           \
    }                                                                         \
  } while (0)

static void fill(char *bytes, int length, int seed) {
  for (int i = 0; i < length; i++) bytes[i] = (char)(i * 7 + seed);
}

static int holds(const char *bytes, int length, int seed) {
  for (int i = 0; i < length; i++)
    if (bytes[i] != (char)(i * 7 + seed)) return 0;
  return 1;
}

static void test(bf_comm comm) {
  int rank = comm.rank, size = comm.size;
  static char bytes[LENGTH], from_left[LENGTH], part[PART], all[PART * 16];
  CHECK(comm.barrier(comm.context) == 0);
  for (int root = 0; root < size; root++) {
    fill(bytes, LENGTH, rank);
    CHECK(comm.broadcast(comm.context, bytes, LENGTH, root) == 0);
    CHECK(holds(bytes, LENGTH, root));
    fill(part, PART, rank);
    CHECK(comm.gather(comm.context, part, all, PART, root) == 0);
    for (int i = 0; rank == root && i < size; i++) CHECK(holds(all + i * PART, PART, i));
  }
  fill(bytes, LENGTH, rank);
  int left = (rank + size - 1) % size, right = (rank + 1) % size;
  bf_message sent = {right, bytes, LENGTH}, received = {left, from_left, LENGTH};
  CHECK(comm.exchange(comm.context, &sent, 1, &received, 1) == 0);
  CHECK(holds(from_left, LENGTH, left));
  CHECK(comm.exchange(comm.context, NULL, 0, NULL, 0) == 0);
}

int main(int count, char **arguments) {
  bf_comm comm, other;
  MPI_Comm reversed;
  int rank = -1;
  CHECK(bf_comm_from_mpi(MPI_COMM_NULL, &comm) != 0); /* MPI is not there yet */
  MPI_Init(&count, &arguments);
  CHECK(bf_comm_from_mpi(MPI_COMM_NULL, &comm) != 0);
  CHECK(bf_comm_from_mpi(MPI_COMM_WORLD, &comm) == 0);
  rank = comm.rank;
  test(comm);
  CHECK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed) == MPI_SUCCESS);
  CHECK(bf_comm_from_mpi(reversed, &other) == 0);
  CHECK(other.rank == other.size - 1 - rank);
  test(other);
  CHECK(bf_comm_free(&other) == BF_OK);
  CHECK(bf_comm_free(&other) == BF_INVALID_ARGUMENT);
  MPI_Comm_free(&reversed);
  CHECK(bf_comm_free(&comm) == BF_OK);
  MPI_Finalize();
  if (rank == 0) puts("ok");
  return 0;
}
