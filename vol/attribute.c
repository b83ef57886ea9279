/* Attributes. */
#include "callbacks.h"

void* attribute_create(void* place, LOC loc, const char* name, hid_t type, hid_t space, hid_t acpl,
                       hid_t aapl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLattr_create(under_of(place), loc, library->native, name, type, space, acpl, aapl,
                                         dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

void* attribute_open(void* place, LOC loc, const char* name, hid_t aapl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLattr_open(under_of(place), loc, library->native, name, aapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

herr_t attribute_read(void* attribute, hid_t type, void* data, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(attribute);
  herr_t status = library->H5VLattr_read(under_of(attribute), library->native, type, data, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t attribute_write(void* attribute, hid_t type, const void* data, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(attribute);
  herr_t status = library->H5VLattr_write(under_of(attribute), library->native, type, data, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t attribute_get(void* object, H5VL_attr_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(object);
  herr_t status = library->H5VLattr_get(under_of(object), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t attribute_specific(void* object, LOC loc, H5VL_attr_specific_args* arguments, hid_t dxpl,
                          REQ request) {
  Library* library = LIBRARY(object);
  herr_t status =
      library->H5VLattr_specific(under_of(object), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t attribute_optional(void* object, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(object);
  herr_t status = library->H5VLattr_optional(under_of(object), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t attribute_close(void* attribute, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(attribute);
  herr_t status = library->H5VLattr_close(under_of(attribute), library->native, dxpl, request);
  request_made(library, request);
  if (status >= 0) object_freed(attribute);
  return status;
}
