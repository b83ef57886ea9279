/* Objects of the connector: each stands for one of the native connector. */
#ifndef BEDFORM_VOL_OBJECTS_H
#define BEDFORM_VOL_OBJECTS_H

#include "opened_file.h"

typedef struct KnownDataset KnownDataset;

typedef struct {
  void* under;
  Library* library;
  /* The file that it was reached through; NULL if that is not known. */
  OpenedFile* file;
  /* The engine's view of a dataset, from its first read on. */
  KnownDataset* dataset;
} VolObject;

/* Makes an object for one of the native connector, reached through `file`; NULL for NULL, and if memory
 * lacks: then the native one is not closed, as HDF5's own connectors do. */
VolObject* object_made(Library* library, OpenedFile* file, void* under);

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

/* The library, the native connector and the file of an object. */
#define LIBRARY(object) (((VolObject*)(object))->library)
#define NATIVE(object) (LIBRARY(object)->native)
#define FILE_OF(object) (((VolObject*)(object))->file)

#endif
