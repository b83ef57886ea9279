/* Declares other boxes in every step and frees them, as a code that regrids: prints by how much memory grows
 * after the first steps. */
#include <bedform_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 1000, WARM = 100, BOXES = 1000 };

static void check(bf_status status) {
  if (status == BF_OK) return;
  fprintf(stderr, "%s\n", bf_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

static long resident_kib(void) {
  long all, pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
  fclose(file);
  return pages * 4;
}

int main(int count, char **arguments) {
  static uint64_t starts[BOXES][2], shapes[BOXES][2];
  static float data[BOXES];
  bf_comm comm;
  bf_store store;
  bf_session session;
  long before = 0;
  int step, i;
  MPI_Init(&count, &arguments);
  if (bf_comm_from_mpi(MPI_COMM_WORLD, &comm) != 0) return 1;
  if (comm.rank == 0) {
    uint64_t shape[2] = {256, 0};
    shape[1] = (uint64_t)BOXES * (uint64_t)comm.size * 2;
    check(bf_create(arguments[1], NULL, NULL, &store));
    check(bf_create_array(store, "u", "float32", 2, shape, "y,x", NULL, NULL, NULL, NULL));
    check(bf_close(store));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  check(bf_open(arguments[1], "r+", "{\"durability\": \"process\"}", &store));
  check(bf_session_begin(store, &comm, "{\"settle\": \"later\"}", &session));
  for (step = 0; step < STEPS; step++) {
    bf_decomposition boxes;
    for (i = 0; i < BOXES; i++) {
      starts[i][0] = (uint64_t)((step + i) % 256);
      starts[i][1] = ((uint64_t)comm.rank * BOXES + (uint64_t)i) * 2 + (uint64_t)(step % 2);
      shapes[i][0] = shapes[i][1] = 1;
    }
    check(bf_decomposition_declare(2, BOXES, starts[0], shapes[0], &boxes));
    check(bf_session_write_decomposed(session, "u", -1, boxes, data, sizeof data));
    check(bf_decomposition_free(boxes));
    if (step % 10 == 9) check(bf_session_commit(session, NULL));
    if (step == WARM) before = resident_kib();
  }
  if (comm.rank == 0) printf("grown by %ld KiB\n", resident_kib() - before);
  check(bf_session_abort(session));
  check(bf_comm_free(&comm));
  MPI_Finalize();
  return 0;
}
