/* Links. */
#include "callbacks.h"

/* The object of two that is there: a link to the same location has one alone. */
static void* either(void* one, void* other) { return one != NULL ? one : other; }

herr_t link_create(H5VL_link_create_args* arguments, void* place, LOC loc, hid_t lcpl, hid_t lapl, hid_t dxpl,
                   REQ request) {
  bool is_hard = arguments->op_type == H5VL_LINK_CREATE_HARD;
  void* target = is_hard ? arguments->args.hard.curr_obj : NULL;
  void* known = either(place, target);
  if (known == NULL) return -1;
  Library* library = LIBRARY(known);
  if (is_hard) arguments->args.hard.curr_obj = under_of(target);
  herr_t status =
      library->H5VLlink_create(arguments, under_of(place), loc, library->native, lcpl, lapl, dxpl, request);
  if (is_hard) arguments->args.hard.curr_obj = target;
  request_made(library, request);
  return status;
}

herr_t link_copy(void* from, LOC from_loc, void* to, LOC to_loc, hid_t lcpl, hid_t lapl, hid_t dxpl,
                 REQ request) {
  void* known = either(from, to);
  if (known == NULL) return -1;
  Library* library = LIBRARY(known);
  herr_t status = library->H5VLlink_copy(under_of(from), from_loc, under_of(to), to_loc, library->native,
                                         lcpl, lapl, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t link_move(void* from, LOC from_loc, void* to, LOC to_loc, hid_t lcpl, hid_t lapl, hid_t dxpl,
                 REQ request) {
  void* known = either(from, to);
  if (known == NULL) return -1;
  Library* library = LIBRARY(known);
  herr_t status = library->H5VLlink_move(under_of(from), from_loc, under_of(to), to_loc, library->native,
                                         lcpl, lapl, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t link_get(void* place, LOC loc, H5VL_link_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  herr_t status = library->H5VLlink_get(under_of(place), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t link_specific(void* place, LOC loc, H5VL_link_specific_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  herr_t status = library->H5VLlink_specific(under_of(place), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t link_optional(void* place, LOC loc, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(place);
  herr_t status = library->H5VLlink_optional(under_of(place), loc, library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}
