/* Datasets. */
#include "callbacks.h"

#include <stdlib.h>

#include "supplied_read.h"

/* Datasets of one call that need no memory from the heap. */
enum { FEW = 16 };

void* dataset_create(void* place, LOC loc, const char* name, hid_t lcpl, hid_t type, hid_t space, hid_t dcpl,
                     hid_t dapl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLdataset_create(under_of(place), loc, library->native, name, lcpl, type, space,
                                            dcpl, dapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

void* dataset_open(void* place, LOC loc, const char* name, hid_t dapl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLdataset_open(under_of(place), loc, library->native, name, dapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

/* Returns the native objects of some datasets, in `few` if they fit; NULL if memory lacks. */
static void** unders_of(size_t count, void* datasets[], void* few[FEW]) {
  void** unders = count <= FEW ? few : malloc(count * sizeof *unders);
  if (unders == NULL) return NULL;
  for (size_t at = 0; at < count; at++) unders[at] = under_of(datasets[at]);
  return unders;
}

herr_t dataset_read(size_t count, void* datasets[], hid_t types[], hid_t memory[], hid_t spaces[], hid_t dxpl,
                    void* buffers[], REQ request) {
  if (count == 1 && FILE_OF(datasets[0]) != NULL && FILE_OF(datasets[0])->known != NULL) {
    DatasetRead read = {.dataset = datasets[0],
                        .type = types[0],
                        .memory = memory[0],
                        .space = spaces[0],
                        .dxpl = dxpl,
                        .buffer = buffers[0],
                        .request = request};
    return read_known(&read);
  }
  void *few[FEW], **unders = unders_of(count, datasets, few);
  if (unders == NULL || count == 0) return unders == NULL ? -1 : 0;
  Library* library = LIBRARY(datasets[0]);
  herr_t status = library->H5VLdataset_read(count, unders, library->native, types, memory, spaces, dxpl,
                                            buffers, request);
  request_made(library, request);
  if (unders != few) free(unders);
  return status;
}

herr_t dataset_write(size_t count, void* datasets[], hid_t types[], hid_t memory[], hid_t spaces[],
                     hid_t dxpl, const void* buffers[], REQ request) {
  void *few[FEW], **unders = unders_of(count, datasets, few);
  if (unders == NULL || count == 0) return unders == NULL ? -1 : 0;
  Library* library = LIBRARY(datasets[0]);
  herr_t status = library->H5VLdataset_write(count, unders, library->native, types, memory, spaces, dxpl,
                                             buffers, request);
  request_made(library, request);
  if (unders != few) free(unders);
  return status;
}

herr_t dataset_get(void* dataset, H5VL_dataset_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(dataset);
  herr_t status = library->H5VLdataset_get(under_of(dataset), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t dataset_specific(void* dataset, H5VL_dataset_specific_args* arguments, hid_t dxpl, REQ request) {
  /* A refresh frees the object: nothing of it is used behind the call. */
  Library* library = LIBRARY(dataset);
  herr_t status = library->H5VLdataset_specific(under_of(dataset), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t dataset_optional(void* dataset, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(dataset);
  herr_t status = library->H5VLdataset_optional(under_of(dataset), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t dataset_close(void* dataset, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(dataset);
  herr_t status = library->H5VLdataset_close(under_of(dataset), library->native, dxpl, request);
  request_made(library, request);
  if (status >= 0) object_freed(dataset);
  return status;
}
