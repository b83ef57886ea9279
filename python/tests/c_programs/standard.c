/* Writes 1 to 6 as int16 into an array of float64 of shape (2, 3), and is refused with int64: C99 names the
 * types, later C and C++ find them. */
#include <bedform.h>
#include <stdio.h>

static int failed(bf_status status) {
  if (status != BF_OK) fprintf(stderr, "%s\n", bf_last_error());
  return status != BF_OK;
}

int main(int count, char **arguments) {
  static const int16_t small[2][3] = {{1, 2, 3}, {4, 5, 6}};
  static const int64_t large[2][3] = {{1, 2, 3}, {4, 5, 6}};
  static const uint64_t start[2] = {0, 0}, shape[2] = {2, 3};
  static double back[2][3];
  const void *bytes = back;
  bf_store store;
  bf_array t;
  bf_status status;
  if (count != 2 || failed(bf_open(arguments[1], "r+", NULL, &store))) return 1;
  if (failed(bf_open_array(store, "t", &t))) return 1;
#if defined(__cplusplus) || __STDC_VERSION__ >= 201112L
  if (failed(bf_write(t, 2, start, shape, NULL, small, sizeof small))) return 1;
  status = bf_write(t, 2, start, shape, NULL, large, sizeof large);
  if (failed(bf_read(t, 2, start, shape, NULL, back, sizeof back))) return 1;
#else
  if (failed(bf_write_as(t, 2, start, shape, NULL, small, sizeof small, "int16"))) return 1;
  status = bf_write_as(t, 2, start, shape, NULL, large, sizeof large, "int64");
  if (failed(bf_read_as(t, 2, start, shape, NULL, back, sizeof back, "float64"))) return 1;
#endif
  if (status != BF_INVALID_ARGUMENT) return 1;
  printf("%s\n", bf_last_error());
  /* A pointer to void passes bytes of the array's own type. */
  if (failed(bf_write(t, 2, start, shape, NULL, bytes, sizeof back))) return 1;
#if !defined(__cplusplus) && __STDC_VERSION__ >= 201112L
  /* Commas of compound literals do not hide the data. */
  if (failed(bf_read(t, 2, (uint64_t[]){0, 0}, (uint64_t[]){2, 3}, NULL, back, sizeof back))) return 1;
#endif
  return back[1][2] == 6 ? 0 : 1;
}
