/* Objects of any class, by name, index or token. */
#include "callbacks.h"

void* object_open(void* place, LOC loc, H5I_type_t* type, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLobject_open(under_of(place), loc, library->native, type, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

herr_t object_copy(void* from, LOC from_loc, const char* from_name, void* to, LOC to_loc, const char* to_name,
                   hid_t ocpypl, hid_t lcpl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(from);
  herr_t status = library->H5VLobject_copy(under_of(from), from_loc, from_name, under_of(to), to_loc, to_name,
                                           library->native, ocpypl, lcpl, dxpl, request);
  request_made(library, request);
  return status;
}

/* The file of an object, too, stays that of the native connector: the library wraps it. */
herr_t object_get(void* place, LOC loc, H5VL_object_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  herr_t status = library->H5VLobject_get(under_of(place), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t object_specific(void* place, LOC loc, H5VL_object_specific_args* arguments, hid_t dxpl, REQ request) {
  /* A refresh frees the object: nothing of it is used behind the call. */
  Library* library = LIBRARY(place);
  herr_t status =
      library->H5VLobject_specific(under_of(place), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t object_optional(void* place, LOC loc, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  herr_t status =
      library->H5VLobject_optional(under_of(place), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}
