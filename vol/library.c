#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LIBRARIES_MAX = 16 };

/* Places are filled under the lock and never emptied, so that readers need none. */
static Library libraries[LIBRARIES_MAX];
static _Atomic int count;
static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;

static Library* known(const void* base) {
  int end = atomic_load_explicit(&count, memory_order_acquire);
  for (int at = 0; at < end; at++)
    if (libraries[at].base == base) return &libraries[at];
  return NULL;
}

/* Finds all functions of a library by its handle; returns false if one is missing. */
static bool resolve(Library* library, void* handle) {
#define RESOLVE(result, name, arguments)          \
  {                                               \
    void* found = dlsym(handle, #name);           \
    if (found == NULL) return false;              \
    memcpy(&library->name, &found, sizeof found); \
  }
  HDF5_FUNCTIONS(RESOLVE)
#undef RESOLVE
  return true;
}

/* Finds ids that are macros in HDF5's headers. */
static void find_ids(Library* library, void* handle) {
  library->local_driver = dlsym(handle, "H5FD_SEC2_id_g");
  library->default_transfer = dlsym(handle, "H5P_LST_DATASET_XFER_ID_g");
  void* call = dlsym(handle, "H5FD_sec2_init");
  memcpy(&library->local_driver_1_14, &call, sizeof call);
}

Library* library_of(const void* address) {
  Dl_info place;
  if (dladdr(address, &place) == 0 || place.dli_fbase == NULL) return NULL;
  Library* found = known(place.dli_fbase);
  if (found != NULL) return found;
  pthread_mutex_lock(&filling);
  found = known(place.dli_fbase);
  int at = atomic_load(&count);
  if (found == NULL && at < LIBRARIES_MAX) {
    /* A program that links HDF5 statically has no name to load: its symbols are the program's. */
    void* handle = dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) handle = dlopen(NULL, RTLD_LAZY);
    Library library = {.base = place.dli_fbase, .native = H5I_INVALID_HID};
    if (handle != NULL && resolve(&library, handle)) {
      find_ids(&library, handle);
      libraries[at] = library;
      atomic_store_explicit(&count, at + 1, memory_order_release);
      found = &libraries[at];
    }
    /* The library has loaded this connector, and stays: the handle is not needed. */
    if (handle != NULL) dlclose(handle);
  }
  pthread_mutex_unlock(&filling);
  return found;
}
