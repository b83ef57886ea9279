/* Writes the data of the plans to their final places in one flat file, throttled, and prints the time.
 *
 *   mpiexec -n P direct_write FILE PLAN-PREFIX BYTES-PER-SECOND LATENCY-SECONDS RECORDS
 *
 * Process r reads PLAN-PREFIX-r.plan and writes its part of the first RECORDS records. The file has record
 * after record, of each all variables one behind the other, each in C order. Each run of neighbouring bytes of
 * a process is one request, one at a time; processes exchange no data. Each process is throttled separately,
 * by the rule of crates/bedform-storage/src/throttle.rs. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "plan.h"

typedef struct place {
  int file;
  double bytes_per_second, latency, free; /* the time at which all requests so far are done */
  int64_t requests;
} place;

static void sleep_until(double end) {
  double left = end - MPI_Wtime();
  if (left <= 0) return;
  struct timespec span = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
  nanosleep(&span, NULL);
}

static void request(place *to, const char *data, int64_t bytes, int64_t offset) {
  double now = MPI_Wtime();
  to->free = (to->free > now ? to->free : now) + (double)bytes / to->bytes_per_second;
  double end = to->free + to->latency;
  to->requests++;
  while (bytes > 0) {
    ssize_t count = pwrite(to->file, data, (size_t)bytes, offset);
    if (count <= 0) plan_fail("cannot be written", "the file");
    data += count, bytes -= count, offset += count;
  }
  sleep_until(end);
}

/* Writes one box of a variable that begins at byte `base`; returns the bytes that it used of `data`. */
static int64_t write_box(place *to, const part *one, int64_t box, int64_t item, int64_t base,
                         const char *data) {
  const int64_t *corner = one->corners + box * one->axes, *shape = one->shapes + box * one->axes;
  int64_t cut = one->axes - 1;
  while (cut > 0 && shape[cut] == one->lengths[cut]) cut--;
  int64_t runs = plan_product(shape, cut), bytes = plan_product(shape + cut, one->axes - cut) * item;
  for (int64_t run = 0; run < runs; run++) {
    int64_t offset = 0, left = run, stride = 1;
    for (int64_t axis = one->axes - 1; axis >= 0; axis--) {
      int64_t within = 0;
      if (axis < cut) within = left % shape[axis], left /= shape[axis];
      offset += (corner[axis] + within) * stride;
      stride *= one->lengths[axis];
    }
    request(to, data + run * bytes, bytes, base + offset * item);
  }
  return runs * bytes;
}

static void write_record(place *to, const plan *all, int64_t record, int64_t record_bytes) {
  int64_t base = record * record_bytes;
  for (int64_t at = 0; at < all->variable_count; at++) {
    const variable *one = &all->variables[at];
    const part *held = &all->parts[one->decomposition];
    int64_t item = plan_items[one->type];
    const char *data = one->data;
    for (int64_t box = 0; box < held->boxes; box++) data += write_box(to, held, box, item, base, data);
    base += plan_product(one->lengths, one->axes) * item;
  }
}

int main(int count, char **words) {
  char path[4096];
  int rank;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (count != 6) plan_fail("usage: direct_write FILE PLAN-PREFIX BYTES-PER-SECOND LATENCY RECORDS", words[0]);
  snprintf(path, sizeof path, "%s-%d.plan", words[2], rank);
  plan all = plan_read(path);
  int64_t record_bytes = 0, records = atoll(words[5]);
  for (const variable *one = all.variables; one < all.variables + all.variable_count; one++) {
    if (!one->has_record || one->decomposition < 0) plan_fail("has what this does not write", path);
    record_bytes += plan_product(one->lengths, one->axes) * plan_items[one->type];
  }
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  place to = {.bytes_per_second = atof(words[3]), .latency = atof(words[4])};
  to.file = open(words[1], O_CREAT | O_WRONLY, 0666);
  if (to.file < 0) plan_fail("cannot be created", words[1]);
  for (int64_t record = 0; record < records; record++) write_record(&to, &all, record, record_bytes);
  double end = MPI_Wtime() + to.latency;
  if (fsync(to.file) != 0 || close(to.file) != 0) plan_fail("cannot be synced", words[1]);
  sleep_until(end);
  double span = MPI_Wtime() - start, longest;
  int64_t requests;
  MPI_Reduce(&span, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&to.requests, &requests, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("{\"seconds\": %.6f, \"requests\": %lld}\n", longest, (long long)requests);
  MPI_Finalize();
  return 0;
}
