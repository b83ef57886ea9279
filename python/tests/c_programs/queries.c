/* Makes every call of queries, and prints or stores what it returns.
 *   queries STORE EXPRESSION OPTIONS ARRAY EDGES POINTS OUT [DIM START COUNT]...
 * Statistics are of ARRAY, with EDGES of a histogram, "0,1,2"; values at points are of the array POINTS.
 * Files in the directory OUT: "mask", "positions" (uint64), "values" (bytes of their own type), "doubles" and
 * "in_batches" (both float64). An error ends the program with a line: its status and text. */
#include <bedform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 8, EDGES_MAX = 64 };
typedef unsigned long number;

static void check(bf_status status) {
  if (status == BF_OK) return;
  printf("%s: %s\n", bf_status_name(status), bf_last_error());
  exit(0);
}

static void *room(uint64_t bytes) {
  void *memory = calloc(bytes + 1, 1);
  if (memory == NULL) exit(1);
  return memory;
}

static void save(const char *directory, const char *name, const void *bytes, uint64_t count) {
  char path[4096];
  FILE *file;
  snprintf(path, sizeof path, "%s/%s", directory, name);
  file = fopen(path, "wb");
  if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) {
    perror(path);
    exit(1);
  }
}

static bf_query open_query(bf_store store, int count, char **arguments) {
  char dims[1024] = "";
  uint64_t start[DIMS_MAX], shape[DIMS_MAX];
  uint32_t rank = 0;
  int i;
  bf_query query;
  for (i = 8; i + 2 < count && rank < DIMS_MAX; i += 3) {
    if (rank > 0) strcat(dims, ",");
    strncat(dims, arguments[i], 100);
    start[rank] = strtoull(arguments[i + 1], NULL, 10);
    shape[rank++] = strtoull(arguments[i + 2], NULL, 10);
  }
  check(bf_query_open(store, arguments[2], rank, dims, start, shape, arguments[3], &query));
  return query;
}

/* Prints the counts over each dimension, and the sums of values over it. */
static void reduce(bf_query query, const char *array, uint32_t rank, const uint64_t *shape,
                   const char *dims) {
  char names[1024], *name;
  uint32_t axis;
  strncpy(names, dims, sizeof names - 1);
  names[sizeof names - 1] = 0;
  name = strtok(names, ",");
  for (axis = 0; axis < rank; axis++, name = strtok(NULL, ",")) {
    uint64_t entries = 1, *counts, i;
    bf_value_statistics *statistics;
    uint32_t other;
    for (other = 0; other < rank; other++) entries *= other == axis ? 1 : shape[other];
    counts = (uint64_t *)room(entries * sizeof *counts);
    statistics = (bf_value_statistics *)room(entries * sizeof *statistics);
    check(bf_query_count_over(query, name, counts, entries * sizeof *counts));
    check(bf_query_statistics(query, array, name, statistics, entries * sizeof *statistics));
    printf("over %s:", name);
    for (i = 0; i < entries; i++) printf(" %lu %.17g", (number)counts[i], statistics[i].sum);
    printf("\n");
    free(counts);
    free(statistics);
  }
}

static void histogram(bf_query query, const char *array, const char *text) {
  double edges[EDGES_MAX];
  uint64_t counts[EDGES_MAX], bins = 0, i;
  char *end = (char *)text;
  do edges[bins++] = strtod(end, &end);
  while (*end++ == ',' && bins < EDGES_MAX);
  bins--;
  check(bf_query_histogram(query, array, bins, edges, counts, bins * sizeof *counts));
  printf("histogram:");
  for (i = 0; i < bins; i++) printf(" %lu", (number)counts[i]);
  printf("\n");
}

static void points(bf_query query, const char *array, const char *out) {
  char dims[1024], dtype[64];
  uint32_t rank;
  uint64_t count, first, *coordinates, bytes;
  double *doubles;
  void *values;
  bf_points found;
  check(bf_query_points(query, array, 2, &found));
  check(bf_points_count(found, &first));
  check(bf_points_close(found));
  check(bf_query_points(query, array, BF_NO_LIMIT, &found));
  check(bf_points_count(found, &count));
  check(bf_points_rank(found, &rank));
  check(bf_points_dims(found, dims, sizeof dims, NULL));
  check(bf_points_dtype(found, array, dtype, sizeof dtype, NULL));
  printf("points: %lu %s %s %lu\n", (number)count, dims, dtype, (number)first);
  coordinates = (uint64_t *)room(count * rank * sizeof *coordinates);
  check(bf_points_positions(found, rank, coordinates, count * rank * sizeof *coordinates));
  save(out, "positions", coordinates, count * rank * sizeof *coordinates);
  free(coordinates);
  doubles = (double *)room(count * sizeof *doubles);
#if defined(__cplusplus) || __STDC_VERSION__ >= 201112L
  check(bf_points_values(found, array, doubles, count * sizeof *doubles));
#else
  check(bf_points_values_as(found, array, doubles, count * sizeof *doubles, "float64"));
#endif
  save(out, "doubles", doubles, count * sizeof *doubles);
  free(doubles);
  bytes = count * (strstr(dtype, "64") ? 8 : strstr(dtype, "32") ? 4 : strstr(dtype, "16") ? 2 : 1);
  values = room(bytes);
  check(bf_points_values(found, array, values, bytes));
  save(out, "values", values, bytes);
  free(values);
  check(bf_points_close(found));
}

/* Stores the values at the points once more, in batches of at most 1000 bytes. */
static void in_batches(bf_query query, const char *array, const char *out) {
  bf_batches batches;
  bf_points found;
  uint64_t count, all = 0, number_of_batches = 0;
  double *doubles = (double *)room(0);
  int more;
  check(bf_query_batches(query, array, 1000, &batches));
  for (;;) {
    check(bf_batches_next(batches, &found, &more));
    if (!more) break;
    check(bf_points_count(found, &count));
    doubles = (double *)realloc(doubles, (all + count) * sizeof *doubles);
    if (doubles == NULL) exit(1);
    check(bf_points_values_as(found, array, doubles + all, count * sizeof *doubles, "float64"));
    check(bf_points_close(found));
    all += count;
    number_of_batches++;
  }
  check(bf_batches_close(batches));
  save(out, "in_batches", doubles, all * sizeof *doubles);
  free(doubles);
  printf("batches: %lu\n", (number)number_of_batches);
}

int main(int count, char **arguments) {
  bf_store store;
  bf_query query;
  bf_value_statistics all;
  char dims[1024], *text;
  uint32_t rank, axis;
  uint64_t found, elements = 1, needed, start[DIMS_MAX], shape[DIMS_MAX];
  uint8_t *mask;
  int any;
  if (count < 8) return 2;
  check(bf_open(arguments[1], "r", NULL, &store));
  query = open_query(store, count, arguments);
  check(bf_close(store));
  check(bf_query_rank(query, &rank));
  check(bf_query_dims(query, dims, sizeof dims, NULL));
  check(bf_query_region(query, rank, start, shape));
  printf("region: %s", dims);
  for (axis = 0; axis < rank; axis++) {
    printf(" %lu %lu", (number)start[axis], (number)shape[axis]);
    elements *= shape[axis];
  }
  check(bf_query_count(query, &found));
  check(bf_query_any(query, &any));
  printf("\ncount: %lu %d\n", (number)found, any);
  check(bf_query_count_over(query, NULL, &found, sizeof found));
  check(bf_query_statistics(query, arguments[4], NULL, &all, sizeof all));
  printf("all: %lu %lu %.17g %.17g %.17g %.17g\n", (number)found, (number)all.count, all.sum, all.mean,
         all.minimum, all.maximum);
  reduce(query, arguments[4], rank, shape, dims);
  histogram(query, arguments[4], arguments[5]);
  mask = (uint8_t *)room(elements);
  check(bf_query_mask(query, mask, elements));
  save(arguments[7], "mask", mask, elements);
  free(mask);
  points(query, arguments[6], arguments[7]);
  in_batches(query, arguments[6], arguments[7]);
  check(bf_query_explain(query, NULL, 0, &needed));
  text = (char *)room(needed);
  check(bf_query_explain(query, text, needed, NULL));
  puts(text);
  free(text);
  check(bf_query_close(query));
  return 0;
}
