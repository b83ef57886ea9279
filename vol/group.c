/* Groups. */
#include "callbacks.h"

void* group_create(void* place, LOC loc, const char* name, hid_t lcpl, hid_t gcpl, hid_t gapl, hid_t dxpl,
                   REQ request) {
  Library* library = LIBRARY(place);
  void* under =
      library->H5VLgroup_create(under_of(place), loc, library->native, name, lcpl, gcpl, gapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

void* group_open(void* place, LOC loc, const char* name, hid_t gapl, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  void* under = library->H5VLgroup_open(under_of(place), loc, library->native, name, gapl, dxpl, request);
  request_made(library, request);
  return object_made(library, FILE_OF(place), under);
}

herr_t group_get(void* group, H5VL_group_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(group);
  herr_t status = library->H5VLgroup_get(under_of(group), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t group_specific(void* group, H5VL_group_specific_args* arguments, hid_t dxpl, REQ request) {
  /* A refresh frees the object: nothing of it is used behind the call. */
  Library* library = LIBRARY(group);
  H5VL_group_specific_args below = *arguments;
  if (below.op_type == H5VL_GROUP_MOUNT) below.args.mount.child_file = under_of(below.args.mount.child_file);
  herr_t status = library->H5VLgroup_specific(under_of(group), library->native, &below, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t group_optional(void* group, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(group);
  herr_t status = library->H5VLgroup_optional(under_of(group), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t group_close(void* group, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(group);
  herr_t status = library->H5VLgroup_close(under_of(group), library->native, dxpl, request);
  request_made(library, request);
  if (status >= 0) object_freed(group);
  return status;
}
