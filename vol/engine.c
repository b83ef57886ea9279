#define _GNU_SOURCE
#include "engine.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { CALLS = 1 };

/* Where the library lies, from the folder of the connector: in the Python package, and as installed. */
static const char* const places[] = {"../libbedform.so", "../../libbedform.so.0"};

static Engine loaded;
static _Atomic bool is_loaded;
static pthread_once_t loading = PTHREAD_ONCE_INIT;

static bool resolve(void* library, const char* name, void* member) {
  void* found = dlsym(library, name);
  if (found != NULL) memcpy(member, &found, sizeof found);
  return found != NULL;
}

static bool resolve_all(void* library) {
  return resolve(library, "bf_hdf5_calls", &loaded.calls) && loaded.calls() == CALLS &&
         resolve(library, "bf_hdf5_file", &loaded.file) &&
         resolve(library, "bf_hdf5_file_close", &loaded.file_close) &&
         resolve(library, "bf_hdf5_dataset", &loaded.dataset) &&
         resolve(library, "bf_hdf5_uses", &loaded.uses) &&
         resolve(library, "bf_hdf5_dataset_close", &loaded.dataset_close) &&
         resolve(library, "bf_hdf5_read", &loaded.read) && resolve(library, "bf_hdf5_end", &loaded.end);
}

/* The library is never unloaded: its threads may run until the process ends. */
static void load(void) {
  Dl_info own;
  char path[PATH_MAX];
  int number = errno;
  if (dladdr((const void*)&loading, &own) == 0 || own.dli_fname == NULL) return;
  const char* end = strrchr(own.dli_fname, '/');
  int folder = end == NULL ? 0 : (int)(end - own.dli_fname) + 1;
  for (size_t at = 0; at < sizeof places / sizeof *places && !is_loaded; at++) {
    int length = snprintf(path, sizeof path, "%.*s%s", folder, own.dli_fname, places[at]);
    if (length < 0 || (size_t)length >= sizeof path) continue;
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != NULL && resolve_all(library)) is_loaded = true;
  }
  errno = number;
}

const Engine* engine(void) {
  pthread_once(&loading, load);
  return engine_if_loaded();
}

const Engine* engine_if_loaded(void) { return is_loaded ? &loaded : NULL; }
