/* Named datatypes. */
#include "callbacks.h"

void* datatype_commit(void* place, LOC loc, const char* name, hid_t type, hid_t lcpl, hid_t tcpl, hid_t tapl,
                      hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLdatatype_commit(under_of(place), loc, library->native, name, type, lcpl, tcpl,
                                             tapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

void* datatype_open(void* place, LOC loc, const char* name, hid_t tapl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLdatatype_open(under_of(place), loc, library->native, name, tapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

herr_t datatype_get(void* datatype, H5VL_datatype_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(datatype);
  herr_t status = library->H5VLdatatype_get(under_of(datatype), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t datatype_specific(void* datatype, H5VL_datatype_specific_args* arguments, hid_t dxpl, REQ request) {
  /* A refresh frees the object: nothing of it is used behind the call. */
  Library* library = LIBRARY(datatype);
  herr_t status =
      library->H5VLdatatype_specific(under_of(datatype), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t datatype_optional(void* datatype, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(datatype);
  herr_t status =
      library->H5VLdatatype_optional(under_of(datatype), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t datatype_close(void* datatype, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(datatype);
  herr_t status = library->H5VLdatatype_close(under_of(datatype), library->native, dxpl, request);
  request_made(library, request);
  if (status >= 0) object_freed(datatype);
  return status;
}
