/* The heat equation on a plane, cut into blocks among the processes of MPI; every step is a commit.
 *
 *   mpicc heat.c $(pkg-config --cflags --libs bedform) \
 *     -Wl,-rpath,$(pkg-config --variable=libdir bedform) -o heat
 *   mpiexec -n 4 ./heat heat.zarr
 *
 * Each process writes its block of a step into the array t(step, y, x), and a commit makes the step visible
 * as a whole. In the end process 0 reads the last plane and compares it with its own computation. */
#include <bedform.h>
#include <bedform_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 48, WIDTH = 64, STEPS = 6 };

/* Ends all processes. In some MPIs MPI_Abort returns, hence the exit. */
static void stop(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  exit(code);
}

/* On an error, prints one line and ends all processes. */
static void check(bf_status status) {
  if (status == BF_OK) return;
  fprintf(stderr, "heat: %s (%s)\n", bf_last_error(), bf_status_name(status));
  stop(status);
}

/* The value before the first step: a hot square, cold borders. */
static double initial(int y, int x) {
  return y > HEIGHT / 4 && y < HEIGHT / 2 && x > WIDTH / 4 && x < WIDTH / 2 ? 100.0 : 0.0;
}

/* Computes one step on a block of height x width cells with a border of one cell. */
static void advance(const double *old, double *new, int height, int width) {
  int row = width + 2;
  for (int y = 1; y <= height; y++)
    for (int x = 1; x <= width; x++) {
      const double *at = old + y * row + x;
      new[y * row + x] = *at + 0.2 * (at[-row] + at[row] + at[-1] + at[1] - 4.0 * *at);
    }
}

/* Fills the border of a block with the neighbours' cells; outside of the plane it stays 0. */
static void exchange(double *block, int height, int width, MPI_Comm grid) {
  int row = width + 2, up, down, left, right;
  MPI_Datatype column;
  MPI_Cart_shift(grid, 0, 1, &up, &down);
  MPI_Cart_shift(grid, 1, 1, &left, &right);
  MPI_Type_vector(height, 1, row, MPI_DOUBLE, &column);
  MPI_Type_commit(&column);
  double *first = block + row + 1, *last = block + height * row + width;
  MPI_Sendrecv(first, width, MPI_DOUBLE, up, 0, block + (height + 1) * row + 1, width, MPI_DOUBLE, down, 0,
               grid, MPI_STATUS_IGNORE);
  MPI_Sendrecv(block + height * row + 1, width, MPI_DOUBLE, down, 0, block + 1, width, MPI_DOUBLE, up, 0,
               grid, MPI_STATUS_IGNORE);
  MPI_Sendrecv(first, 1, column, left, 0, first + width, 1, column, right, 0, grid, MPI_STATUS_IGNORE);
  MPI_Sendrecv(last - (height - 1) * row, 1, column, right, 0, block + row, 1, column, left, 0, grid,
               MPI_STATUS_IGNORE);
  MPI_Type_free(&column);
}

/* Computes the last plane in one process. */
static void alone(double *plane) {
  int cells = (HEIGHT + 2) * (WIDTH + 2);
  double *old = calloc(cells, sizeof *old), *new = calloc(cells, sizeof *new);
  for (int y = 0; y < HEIGHT; y++)
    for (int x = 0; x < WIDTH; x++) old[(y + 1) * (WIDTH + 2) + x + 1] = initial(y, x);
  for (int step = 1; step < STEPS; step++) {
    advance(old, new, HEIGHT, WIDTH);
    double *swap = old;
    old = new;
    new = swap;
  }
  for (int y = 0; y < HEIGHT; y++)
    memcpy(plane + y * WIDTH, old + (y + 1) * (WIDTH + 2) + 1, WIDTH * sizeof *plane);
  free(old);
  free(new);
}

/* Opens the store again, reads the last step, and compares it. */
static void verify(const char *path) {
  static double found[HEIGHT * WIDTH], expected[HEIGHT * WIDTH];
  bf_store store;
  bf_array t;
  uint64_t start[3] = {STEPS - 1, 0, 0}, shape[3] = {1, HEIGHT, WIDTH};
  check(bf_open(path, "r", NULL, &store));
  check(bf_open_array(store, "t", &t));
  check(bf_read(t, 3, start, shape, NULL, found, sizeof found));
  check(bf_close_array(t));
  check(bf_close(store));
  alone(expected);
  if (memcmp(found, expected, sizeof found) != 0) {
    fprintf(stderr, "heat: the plane read is not the one computed\n");
    stop(1);
  }
  printf("%d steps committed; the last plane is right\n", STEPS);
}

int main(int count, char **arguments) {
  MPI_Init(&count, &arguments);
  if (count != 2) {
    fprintf(stderr, "usage: heat PATH\n");
    stop(2);
  }
  const char *path = arguments[1];
  int size, rank, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2];
  MPI_Comm grid;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Dims_create(size, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, at);

  /* One process creates the store, then all open it. */
  bf_store store;
  if (rank == 0) {
    uint64_t shape[3] = {STEPS, HEIGHT, WIDTH};
    check(bf_create(path, "{\"title\": \"heat\"}", NULL, &store));
    check(bf_create_array(store, "t", "float64", 3, shape, "step,y,x", NULL, NULL,
                          "{\"reads\": {\"y,x\": 0.7, \"step\": 0.3}, \"codecs\": [\"zstd\"]}", NULL));
    check(bf_close(store));
  }
  MPI_Barrier(grid);
  check(bf_open(path, "r+", NULL, &store));

  /* The block of this process: rows top to bottom, columns left to right. */
  int top = HEIGHT * at[0] / dims[0], bottom = HEIGHT * (at[0] + 1) / dims[0];
  int left = WIDTH * at[1] / dims[1], right = WIDTH * (at[1] + 1) / dims[1];
  int height = bottom - top, width = right - left, row = width + 2;
  size_t cells = (size_t)(height + 2) * (size_t)row;
  double *old = calloc(cells, sizeof *old), *new = calloc(cells, sizeof *new);
  double *block = malloc((size_t)(height * width) * sizeof *block);
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++) old[(y + 1) * row + x + 1] = initial(top + y, left + x);

  bf_comm comm;
  bf_session session;
  if (bf_comm_from_mpi(grid, &comm) != 0) stop(1);
  check(bf_session_begin(store, &comm, NULL, &session));
  for (int step = 0; step < STEPS; step++) {
    uint64_t start[3] = {(uint64_t)step, (uint64_t)top, (uint64_t)left};
    uint64_t shape[3] = {1, (uint64_t)height, (uint64_t)width};
    for (int y = 0; y < height; y++)
      memcpy(block + y * width, old + (y + 1) * row + 1, (size_t)width * sizeof *block);
    check(bf_session_write(session, "t", 3, start, shape, block,
                           (uint64_t)(height * width) * sizeof *block));
    check(bf_session_commit(session, NULL));
    exchange(old, height, width, grid);
    advance(old, new, height, width);
    double *swap = old;
    old = new;
    new = swap;
  }
  check(bf_session_end(session)); /* turns the commits into plain Zarr */
  check(bf_comm_free(&comm));
  check(bf_close(store));

  if (rank == 0) verify(path);
  free(old);
  free(new);
  free(block);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return 0;
}
