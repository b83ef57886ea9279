/* Foreign files through C alone.
 *
 * usage: foreign read FILE OUT NAME...     a line for each array: its type or its error; elements go to OUT
 *        foreign describe FILE NAME        texts: list, attributes of the root and of NAME, description, plan
 *        foreign convert SOURCE TARGET OPTIONS
 *        foreign stop SOURCE TARGET        stops a conversion, then lets it end */
#include <bedform.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(bf_status status) {
  if (status == BF_OK) return;
  printf("%s: %s\n", bf_status_name(status), bf_last_error());
  exit(0);
}

static const uint64_t none[BF_RANK_MAX] = {0};

static int read_all(bf_store store, const char *out, int count, char **names) {
  FILE *file = fopen(out, "wb");
  if (file == NULL) return 1;
  for (int i = 0; i < count; i++) {
    bf_array array;
    bf_array_facts facts;
    bf_status status = bf_open_array(store, names[i], &array);
    if (status != BF_OK) {
      printf("%s\n", bf_status_name(status));
      continue;
    }
    check(bf_array_info(array, &facts, sizeof facts));
    uint64_t bytes = facts.item_bytes;
    for (uint32_t axis = 0; axis < facts.rank; axis++) bytes *= facts.shape[axis];
    void *buffer = malloc(bytes + 1);
    check(bf_read(array, facts.rank, none, facts.shape, NULL, buffer, bytes));
    if (fwrite(buffer, 1, bytes, file) != bytes) return 1;
    free(buffer);
    printf("%s\n", facts.dtype);
    status = bf_write(array, facts.rank, none, none, NULL, NULL, 0);
    if (status != BF_READ_ONLY) return 1;
    check(bf_close_array(array));
  }
  return fclose(file);
}

static char text[1 << 20];

static void describe(bf_store store, const char *name) {
  bf_array array;
  bf_array_facts facts;
  uint64_t needed;
  int kind;
  check(bf_list(store, text, sizeof text, NULL));
  puts(text);
  check(bf_attributes(store, "", text, sizeof text, NULL));
  puts(text);
  check(bf_attributes(store, name, text, sizeof text, NULL));
  puts(text);
  check(bf_kind(store, name, &kind));
  check(bf_open_array(store, name, &array));
  check(bf_array_info(array, &facts, sizeof facts));
  check(bf_array_describe(array, text, sizeof text, NULL));
  puts(text);
  check(bf_array_explain(array, facts.rank, none, facts.shape, NULL, NULL, 0, &needed));
  check(bf_array_explain(array, facts.rank, none, facts.shape, NULL, text, needed, NULL));
  puts(text);
  check(bf_array_dimension_name(array, facts.rank - 1, text, sizeof text, NULL));
  printf("%s %d\n", text, kind);
}

static uint64_t told[2];

static void progress(void *context, uint64_t done, uint64_t total) {
  (void)context;
  told[0] = done;
  told[1] = total;
}

/* Takes so long that the conversion polls for cancellation after each call. */
static void slow(void *context, uint64_t done, uint64_t total) {
  usleep(100000);
  progress(context, done, total);
}

static void warning(void *context, const char *line) { printf("%s%s\n", (const char *)context, line); }

static int stop(void *context) { return ++*(int *)context > 0; }

int main(int count, char **arguments) {
  bf_store store;
  bf_convert_watch watch = {"warning: ", progress, warning};
  if (count < 4) return 2;
  if (strcmp(arguments[1], "convert") == 0) {
    check(bf_convert(arguments[2], arguments[3], arguments[4], &watch));
    printf("%llu of %llu\n", (unsigned long long)told[0], (unsigned long long)told[1]);
    return 0;
  }
  if (strcmp(arguments[1], "stop") == 0) {
    int asked = 0;
    const char *options = "{\"verify\": true}";
    watch.progress = slow;
    check(bf_set_stop(stop, &asked));
    puts(bf_status_name(bf_convert(arguments[2], arguments[3], options, &watch)));
    check(bf_set_stop(NULL, NULL));
    check(bf_convert(arguments[2], arguments[3], options, NULL));
    puts(asked > 0 ? "asked" : "not asked");
    return 0;
  }
  if (bf_open(arguments[2], "r+", NULL, &store) != BF_READ_ONLY) return 1;
  check(bf_open(arguments[2], "r", NULL, &store));
  if (strcmp(arguments[1], "read") == 0) return read_all(store, arguments[3], count - 4, arguments + 4);
  describe(store, arguments[3]);
  check(bf_close(store));
  return 0;
}
