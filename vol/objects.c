#include "objects.h"

#include <errno.h>
#include <stdlib.h>

#include "known_dataset.h"

VolObject* object_made(Library* library, OpenedFile* file, void* under) {
  if (under == NULL) return NULL;
  VolObject* object = malloc(sizeof *object);
  if (object == NULL) return NULL;
  *object = (VolObject){.under = under, .library = library, .file = opened_file_shared(file)};
  return object;
}

void object_freed(VolObject* object) {
  known_dataset_freed(object->dataset);
  opened_file_left(object->file);
  free(object);
}

void request_made(Library* library, void** request) {
  if (request != NULL && *request != NULL) *request = object_made(library, NULL, *request);
}

SavedErrors errors_saved(Library* library) {
  int number = errno;
  return (SavedErrors){.library = library, .stack = library->H5Eget_current_stack(), .number = number};
}

void errors_restored(SavedErrors saved) {
  if (saved.stack >= 0) saved.library->H5Eset_current_stack(saved.stack);
  errno = saved.number;
}
