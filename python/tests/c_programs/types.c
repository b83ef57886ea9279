/* Makes every call with data, of every type, on arrays of every type: C11, and C++.
 *   types STORE VALUES
 * VALUES has a file for each type with COUNT elements of it. Each call prints a line: the type of the data,
 * that of the array, the call, its status, then the bytes that it stored or read in hexadecimal digits, or
 * its error. */
#include <bedform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
#include <complex>
typedef bool truth;
typedef std::complex<float> complex_float;
typedef std::complex<double> complex_double;
#else
typedef _Bool truth;
typedef float _Complex complex_float;
typedef double _Complex complex_double;
#endif

enum { COUNT = 6, ITEM_MAX = 16 };
static const char *const DTYPES[] = {"bool",    "int8",    "int16",   "int32",     "int64",
                                     "uint8",   "uint16",  "uint32",  "uint64",    "float16",
                                     "float32", "float64", "complex64", "complex128"};
enum { DTYPE_COUNT = sizeof DTYPES / sizeof *DTYPES };

static bf_store store;
static bf_session session;
static bf_decomposition halves;
static const char *type, *call, *array_type;

static void check(bf_status status) {
  if (status == BF_OK) return;
  fprintf(stderr, "%s\n", bf_last_error());
  exit(1);
}

static void load(const char *directory, const char *name, void *values, size_t bytes) {
  char path[4096];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  file = fopen(path, "rb");
  if (file == NULL || fread(values, 1, bytes, file) != bytes) {
    perror(path);
    exit(1);
  }
  fclose(file);
}

static void print_bytes(const void *bytes, uint64_t count) {
  uint64_t i;
  for (i = 0; i < count; i++) printf("%02x", ((const unsigned char *)bytes)[i]);
  printf("\n");
}

static void print_head(bf_status status) { printf("%s %s %s %d ", type, array_type, call, (int)status); }

/* Prints the last COUNT elements of the array, which the call has stored. */
static void print_stored(bf_status status, bf_array array) {
  bf_array_facts facts;
  unsigned char bytes[COUNT * ITEM_MAX];
  uint64_t start, count = COUNT;
  print_head(status);
  if (status != BF_OK) {
    printf("%s\n", bf_last_error());
    return;
  }
  check(bf_array_info(array, &facts, sizeof facts));
  start = facts.shape[0] - COUNT;
  check(bf_read(array, 1, &start, &count, NULL, (void *)bytes, COUNT * facts.item_bytes));
  print_bytes(bytes, COUNT * facts.item_bytes);
}

static void print_read(bf_status status, const void *buffer, uint64_t bytes) {
  print_head(status);
  if (status == BF_OK)
    print_bytes(buffer, bytes);
  else
    printf("%s\n", bf_last_error());
}

/* Makes the data of a session's call visible. */
static bf_status committed(bf_status status) {
  if (status == BF_OK) check(bf_session_commit(session, NULL));
  return status;
}

#define DEFINE_CALLS(T, name)                                                                               \
  static void name##_calls(bf_array array, const char *path, const char *values_of) {                       \
    static const uint64_t zero[1] = {0}, whole[1] = {COUNT}, all[COUNT] = {0, 1, 2, 3, 4, 5};               \
    static const uint64_t starts[2] = {0, 2}, shapes[2] = {2, COUNT - 2};                                   \
    T data[COUNT], buffer[COUNT];                                                                           \
    uint64_t token, size = sizeof data;                                                                     \
    bf_array readable;                                                                                      \
    char filled[32];                                                                                        \
    snprintf(filled, sizeof filled, "of_%s", array_type);                                                   \
    load(values_of, #name, data, sizeof data);                                                              \
    type = #name;                                                                                           \
    call = "write";                                                                                         \
    print_stored(bf_write(array, 1, zero, whole, NULL, data, size), array);                                 \
    call = "session_write";                                                                                 \
    print_stored(committed(bf_session_write(session, path, 1, zero, whole, data, size)), array);            \
    call = "session_write_borrowed";                                                                        \
    print_stored(committed(bf_session_write_borrowed(session, path, 1, zero, whole, data, size, &token)),   \
                 array);                                                                                    \
    call = "session_write_boxes";                                                                           \
    print_stored(committed(bf_session_write_boxes(session, path, 1, 2, starts, shapes, data, size)), array); \
    call = "session_write_points";                                                                          \
    print_stored(committed(bf_session_write_points(session, path, 1, COUNT, all, data, size)), array);      \
    call = "session_write_decomposed";                                                                      \
    print_stored(committed(bf_session_write_decomposed(session, path, -1, halves, data, size)), array);     \
    call = "session_write_decomposed_borrowed";                                                             \
    print_stored(                                                                                           \
        committed(bf_session_write_decomposed_borrowed(session, path, -1, halves, data, size, &token)),     \
        array);                                                                                             \
    check(bf_open_array(store, filled, &readable));                                                         \
    call = "read";                                                                                          \
    print_read(bf_read(readable, 1, zero, whole, NULL, buffer, size), buffer, size);                        \
    call = "read_boxes";                                                                                    \
    print_read(bf_read_boxes(readable, 1, 2, starts, shapes, buffer, size), buffer, size);                  \
    call = "read_points";                                                                                   \
    print_read(bf_read_points(readable, 1, COUNT, all, buffer, size), buffer, size);                        \
    check(bf_close_array(readable));                                                                        \
  }                                                                                                         \
  static void name##_appends(bf_array array, const char *path, const char *values_of) {                     \
    static const uint64_t whole[1] = {COUNT};                                                               \
    T data[COUNT];                                                                                          \
    uint64_t at;                                                                                            \
    load(values_of, #name, data, sizeof data);                                                              \
    type = #name;                                                                                           \
    call = "append";                                                                                        \
    print_stored(bf_append(array, 0, 1, whole, data, sizeof data, &at), array);                             \
    (void)path;                                                                                             \
  }                                                                                                         \
  static void name##_session_appends(bf_array array, const char *path, const char *values_of) {             \
    static const uint64_t whole[1] = {COUNT};                                                               \
    T data[COUNT];                                                                                          \
    uint64_t at;                                                                                            \
    load(values_of, #name, data, sizeof data);                                                              \
    type = #name;                                                                                           \
    call = "session_append";                                                                                \
    print_stored(committed(bf_session_append(session, path, 0, 1, whole, data, sizeof data, &at)), array);  \
  }

#define EACH_TYPE(DO)                                                                                \
  DO(truth, bool)                                                                                    \
  DO(int8_t, int8) DO(int16_t, int16) DO(int32_t, int32) DO(int64_t, int64)                          \
  DO(uint8_t, uint8) DO(uint16_t, uint16) DO(uint32_t, uint32) DO(uint64_t, uint64)                  \
  DO(float, float32) DO(double, float64) DO(complex_float, complex64) DO(complex_double, complex128)
EACH_TYPE(DEFINE_CALLS)

#define CALLS(T, name) name##_calls(array, path, values_of);
#define APPENDS(T, name) name##_appends(array, path, values_of);
#define SESSION_APPENDS(T, name) name##_session_appends(array, path, values_of);

static void on_array(const char *prefix, const char *values_of) {
  bf_array array;
  char path[32];
  snprintf(path, sizeof path, "%s_%s", prefix, array_type);
  check(bf_open_array(store, path, &array));
  if (strcmp(prefix, "grown") == 0) {
    EACH_TYPE(APPENDS)
  } else if (strcmp(prefix, "logged") == 0) {
    EACH_TYPE(SESSION_APPENDS)
  } else {
    EACH_TYPE(CALLS)
  }
  check(bf_close_array(array));
}

int main(int count, char **arguments) {
  static const uint64_t starts[2] = {0, 3}, shapes[2] = {3, 3};
  int i;
  if (count != 3) return 2;
  check(bf_open(arguments[1], "r+", "{\"durability\": \"process\"}", &store));
  check(bf_session_begin(store, NULL, "{\"settle\": \"later\"}", &session));
  check(bf_decomposition_declare(1, 2, starts, shapes, &halves));
  for (i = 0; i < DTYPE_COUNT; i++) {
    array_type = DTYPES[i];
    on_array("to", arguments[2]);
    on_array("grown", arguments[2]);
    on_array("logged", arguments[2]);
  }
  check(bf_decomposition_free(halves));
  check(bf_session_end(session));
  check(bf_close(store));
  return 0;
}
