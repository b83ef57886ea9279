/* The plan of one process, as benchmarks/harness/workload.py writes it: 64-bit little-endian integers.
 *
 *   magic rank ranks records decompositions variables
 *   of each decomposition: axes, lengths of the axes, boxes, their corners, their shapes
 *   of each variable: name (64 bytes), type, has records, decomposition or -1, axes, their lengths
 *
 * The machine is little-endian, as those are that the benchmarks run on. */
#ifndef PLAN_H
#define PLAN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_MAGIC 0x00014E414C504642LL
#define PLAN_NAME_BYTES 64
#define PLAN_AXES_MAX 8

typedef struct part {
  int64_t axes;
  const int64_t *lengths;
  int64_t boxes;
  const int64_t *corners;
  const int64_t *shapes;
  int64_t elements; /* of all boxes */
} part;

typedef struct variable {
  const char *name;
  int64_t type; /* an index of plan_types */
  int64_t has_record;
  int64_t decomposition; /* -1 if process 0 has all */
  int64_t axes;
  const int64_t *lengths;
  int64_t elements; /* of one record, of this process */
  void *data;       /* one record of them */
} variable;

typedef struct plan {
  int64_t *words;
  int64_t rank, ranks, records, part_count, variable_count;
  part *parts;
  variable *variables;
  int64_t bytes; /* of one record of everything */
} plan;

static const char *const plan_types[] = {"uint8", "int32", "float32", "float64"};
static const int64_t plan_items[] = {1, 4, 4, 8};

static inline void plan_fail(const char *what, const char *path) {
  fprintf(stderr, "%s: %s\n", path, what);
  exit(2);
}

static inline int64_t plan_product(const int64_t *lengths, int64_t count) {
  int64_t product = 1;
  for (int64_t at = 0; at < count; at++) product *= lengths[at];
  return product;
}

/* Fills an array with the value that this process gives to a variable. */
static inline void plan_fill(variable *one, int64_t number, int64_t rank) {
  int64_t value = rank + 64 * number;
  for (int64_t at = 0; at < one->elements; at++) {
    if (one->type == 0) ((uint8_t *)one->data)[at] = (uint8_t)(value % 251);
    if (one->type == 1) ((int32_t *)one->data)[at] = (int32_t)value;
    if (one->type == 2) ((float *)one->data)[at] = (float)value;
    if (one->type == 3) ((double *)one->data)[at] = (double)value;
  }
}

static inline int64_t *plan_words(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) plan_fail("cannot be opened", path);
  fseek(file, 0, SEEK_END);
  long length = ftell(file);
  rewind(file);
  int64_t *words = malloc((size_t)length);
  if (words == NULL || fread(words, 1, (size_t)length, file) != (size_t)length)
    plan_fail("cannot be read", path);
  fclose(file);
  if (length < 48 || words[0] != PLAN_MAGIC) plan_fail("is no plan", path);
  return words;
}

/* Reads a plan and fills the buffers of all variables. */
static inline plan plan_read(const char *path) {
  plan made;
  int64_t *at = made.words = plan_words(path);
  made.rank = at[1], made.ranks = at[2], made.records = at[3];
  made.part_count = at[4], made.variable_count = at[5];
  at += 6;
  made.parts = calloc((size_t)made.part_count + 1, sizeof(part));
  made.variables = calloc((size_t)made.variable_count + 1, sizeof(variable));
  for (part *one = made.parts; one < made.parts + made.part_count; one++) {
    one->axes = *at++;
    one->lengths = at, at += one->axes;
    one->boxes = *at++;
    one->corners = at, at += one->boxes * one->axes;
    one->shapes = at, at += one->boxes * one->axes;
    for (int64_t box = 0; box < one->boxes; box++)
      one->elements += plan_product(one->shapes + box * one->axes, one->axes);
  }
  made.bytes = 0;
  for (variable *one = made.variables; one < made.variables + made.variable_count; one++) {
    one->name = (const char *)at, at += PLAN_NAME_BYTES / 8;
    one->type = *at++, one->has_record = *at++, one->decomposition = *at++;
    one->axes = *at++;
    one->lengths = at, at += one->axes;
    if (one->decomposition >= 0) one->elements = made.parts[one->decomposition].elements;
    else one->elements = made.rank == 0 ? plan_product(one->lengths, one->axes) : 0;
    one->data = malloc((size_t)(one->elements * plan_items[one->type]) + 1);
    if (one->data == NULL) plan_fail("needs more memory than there is", path);
    plan_fill(one, one - made.variables, made.rank);
    made.bytes += one->elements * plan_items[one->type];
  }
  return made;
}

#endif
