/* Errors of one process while the others continue: these get an error, and no process hangs.
 *
 * usage: failures PATH; PATH has the array t of float32 of shape (4, 8), and nothing is committed. */
#include <bedform_mpi.h>
#include <stdio.h>
#include <string.h>

static int rank;

static void expect(int line, bf_status status, bf_status expected, const char *says) {
  if (status == expected && (says == NULL || strstr(bf_last_error(), says) != NULL)) return;
  fprintf(stderr, "line %d, rank %d: %s: %s\n", line, rank, bf_status_name(status), bf_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

#define EXPECT(call, expected, says) expect(__LINE__, call, expected, says)

static void write_cell(bf_session session, float value) {
  uint64_t start[2] = {0, (uint64_t)rank}, shape[2] = {1, 1};
  EXPECT(bf_session_write(session, "t", 2, start, shape, &value, sizeof value), BF_OK, NULL);
}

/* Reads the first cell through a handle of its own. */
static void expect_cell(const char *path, float expected) {
  bf_store store;
  bf_array t;
  uint64_t start[2] = {0, (uint64_t)rank}, shape[2] = {1, 1};
  float found = -1;
  EXPECT(bf_open(path, "r", NULL, &store), BF_OK, NULL);
  EXPECT(bf_open_array(store, "t", &t), BF_OK, NULL);
  EXPECT(bf_read(t, 2, start, shape, NULL, &found, sizeof found), BF_OK, NULL);
  EXPECT(bf_close_array(t), BF_OK, NULL);
  EXPECT(bf_close(store), BF_OK, NULL);
  if (found != expected) {
    fprintf(stderr, "rank %d: %f in place of %f\n", rank, found, expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int count, char **arguments) {
  MPI_Init(&count, &arguments);
  const char *path = arguments[1];
  bf_comm comm;
  bf_store store, none = {0};
  bf_session session;
  if (count != 2 || bf_comm_from_mpi(MPI_COMM_WORLD, &comm) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  rank = comm.rank;
  EXPECT(bf_open(path, "r+", NULL, &store), BF_OK, NULL);
  int wrong = comm.size - 1;

  /* One process cannot begin. */
  EXPECT(bf_session_begin(rank == wrong ? none : store, &comm, NULL, &session), BF_INVALID_ARGUMENT,
         rank == wrong ? "handle is null" : "rank ");
  EXPECT(bf_session_begin(store, &comm, rank == wrong ? "{\"settle\": 1}" : NULL, &session),
         BF_INVALID_ARGUMENT, rank == wrong ? "not a value of settle" : "not a value of settle");

  /* A wrong write is that process's own, and the commit goes on without it. */
  EXPECT(bf_session_begin(store, &comm, "{\"settle\": \"later\"}", &session), BF_OK, NULL);
  write_cell(session, 1);
  /* No process has begun to define: the first process reports that to all. */
  EXPECT(bf_session_define_end(session, rank == 0 ? store : none), BF_INVALID_ARGUMENT, "bf_define_begin");
  if (rank == wrong) {
    uint64_t start[2] = {9, 9}, shape[2] = {1, 1};
    float value = 9;
    EXPECT(bf_session_write(session, "t", 2, start, shape, &value, 4), BF_OUT_OF_BOUNDS, NULL);
  }
  EXPECT(bf_session_commit(session, NULL), BF_OK, NULL);
  expect_cell(path, 1);
  MPI_Barrier(MPI_COMM_WORLD);

  /* One process gives up before a commit: it fails on all, and so does what comes after. */
  write_cell(session, 2);
  if (rank == wrong) {
    EXPECT(bf_session_abort(session), BF_OK, NULL);
    EXPECT(bf_session_commit(session, NULL), BF_INVALID_ARGUMENT, "was closed");
  } else {
    EXPECT(bf_session_commit(session, NULL), BF_POISONED, "has ended the session");
    EXPECT(bf_session_commit(session, NULL), BF_POISONED, "has ended the session");
    EXPECT(bf_session_end(session), BF_POISONED, "has ended the session");
  }
  expect_cell(path, 1);
  MPI_Barrier(MPI_COMM_WORLD);

  /* Another session of the same processes is unaffected. */
  EXPECT(bf_session_begin(store, &comm, NULL, &session), BF_OK, NULL);
  write_cell(session, 3);
  EXPECT(bf_session_end(session), BF_OK, NULL);
  expect_cell(path, 3);
  MPI_Barrier(MPI_COMM_WORLD);

  /* Settling is the work of all, and its errors are those of all. */
  EXPECT(bf_session_begin(store, &comm, "{\"settle\": \"later\"}", &session), BF_OK, NULL);
  write_cell(session, 4);
  EXPECT(bf_session_end(session), BF_OK, NULL);
  EXPECT(bf_settle_together(rank == wrong ? none : store, &comm, NULL), BF_INVALID_ARGUMENT, "handle is null");
  EXPECT(bf_settle_together(store, &comm, "{\"memory_bytes\": 1000000}"), BF_OK, NULL);
  expect_cell(path, 4);
  MPI_Barrier(MPI_COMM_WORLD);

  /* One process makes another call: all get its name. Except for commits, the session continues. */
  bf_session other;
  uint64_t row[2] = {1, 8}, column[2] = {4, 1};
  static const float values[8] = {5, 5, 5, 5, 5, 5, 5, 5};
  const char *later = "{\"settle\": \"later\"}";
  EXPECT(bf_session_begin(store, &comm, later, &session), BF_OK, NULL);
  EXPECT(rank == wrong ? bf_session_append(session, "t", 1, 2, column, values, 16, NULL)
                       : bf_session_append(session, "t", 0, 2, row, values, 32, NULL),
         BF_INVALID_ARGUMENT, "rank 3 calls append(\"t\", axis 1)");
  write_cell(session, 5);
  EXPECT(bf_session_commit(session, NULL), BF_OK, NULL);
  expect_cell(path, 5);
  MPI_Barrier(MPI_COMM_WORLD);

  /* A commit of another session of the same processes: neither can continue, and no process hangs. */
  EXPECT(bf_session_begin(store, &comm, later, &other), BF_OK, NULL);
  write_cell(session, 6);
  EXPECT(bf_session_commit(rank == wrong ? other : session, NULL), BF_INVALID_ARGUMENT,
         "rank 3 calls commit() of session ");
  EXPECT(bf_session_commit(session, NULL), BF_POISONED, "was refused");
  EXPECT(bf_session_commit(other, NULL), BF_POISONED, "was refused");
  EXPECT(bf_session_end(session), BF_POISONED, NULL);
  EXPECT(bf_session_abort(other), BF_OK, NULL);
  expect_cell(path, 5);
  MPI_Barrier(MPI_COMM_WORLD);

  /* All may give up together. */
  EXPECT(bf_session_begin(store, &comm, NULL, &session), BF_OK, NULL);
  EXPECT(bf_session_abort(session), BF_OK, NULL);
  EXPECT(bf_comm_free(&comm), BF_OK, NULL);
  EXPECT(bf_close(store), BF_OK, NULL);
  MPI_Finalize();
  if (rank == 0) puts("ok");
  return 0;
}
