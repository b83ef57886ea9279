/* Objects of the connector: each stands for one of the native connector. */
#ifndef BEDFORM_VOL_OBJECTS_H
#define BEDFORM_VOL_OBJECTS_H

#include "library.h"

typedef struct {
  void* under;
  Library* library;
} VolObject;

/* Makes an object for one of the native connector; NULL for NULL, and if memory lacks: then the native one is
 * not closed, as HDF5's own connectors do. */
VolObject* object_made(Library* library, void* under);

void object_freed(VolObject* object);

/* Puts an object in the place of a native request, if there is one. */
void request_made(Library* library, void** request);

/* An error stack that is put away, with errno, while a failed call is cleaned up: calls of HDF5 begin with an
 * empty one, and programs look at both (h5py tells a missing file by errno). */
typedef struct {
  Library* library;
  hid_t stack;
  int number;
} SavedErrors;

SavedErrors errors_saved(Library* library);
void errors_restored(SavedErrors saved);

static inline void* under_of(void* object) { return object == NULL ? NULL : ((VolObject*)object)->under; }

/* The library and the native connector of an object. */
#define LIBRARY(object) (((VolObject*)(object))->library)
#define NATIVE(object) (LIBRARY(object)->native)

#endif
