/* Files. */
#include "callbacks.h"

/* Returns a copy of a file access property list that names the native connector. */
static hid_t native_fapl(Library* library, hid_t fapl) {
  hid_t copy = library->H5Pcopy(fapl);
  if (copy >= 0 && library->H5Pset_vol(copy, library->native, NULL) < 0) {
    library->H5Pclose(copy);
    return H5I_INVALID_HID;
  }
  return copy;
}

/* Closes the copy; the errors of a call that failed before stay. */
static void close_fapl(Library* library, hid_t fapl, bool has_failed) {
  if (!has_failed) {
    library->H5Pclose(fapl);
    return;
  }
  SavedErrors saved = errors_saved(library);
  library->H5Pclose(fapl);
  errors_restored(saved);
}

/* Makes the object of a file that was opened with these properties and flags, and closes the properties. */
static void* file_made(Library* library, void* under, hid_t fapl, unsigned flags, REQ request) {
  OpenedFile* file = under == NULL ? NULL : opened_file_made(library, under, fapl, flags);
  close_fapl(library, fapl, under == NULL);
  request_made(library, request);
  VolObject* made = object_made(library, file, under);
  opened_file_left(file);
  return made;
}

void* file_create(const char* name, unsigned flags, hid_t fcpl, hid_t fapl, hid_t dxpl, REQ request) {
  Library* library = CALLING_LIBRARY();
  hid_t below = library == NULL ? H5I_INVALID_HID : native_fapl(library, fapl);
  if (below < 0) return NULL;
  void* under = library->H5VLfile_create(name, flags, fcpl, below, dxpl, request);
  return file_made(library, under, below, flags | H5F_ACC_RDWR, request);
}

void* file_open(const char* name, unsigned flags, hid_t fapl, hid_t dxpl, REQ request) {
  Library* library = CALLING_LIBRARY();
  hid_t below = library == NULL ? H5I_INVALID_HID : native_fapl(library, fapl);
  if (below < 0) return NULL;
  void* under = library->H5VLfile_open(name, flags, below, dxpl, request);
  return file_made(library, under, below, flags, request);
}

herr_t file_get(void* file, H5VL_file_get_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(file);
  herr_t status = library->H5VLfile_get(under_of(file), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

/* Makes a call on a file by name, with a property list that names the native connector. */
static herr_t specific_by_name(Library* library, H5VL_file_specific_args* arguments, hid_t* fapl, hid_t dxpl,
                               REQ request) {
  if (library == NULL) return -1;
  hid_t below = native_fapl(library, *fapl);
  if (below < 0) return -1;
  *fapl = below;
  herr_t status = library->H5VLfile_specific(NULL, library->native, arguments, dxpl, request);
  close_fapl(library, below, status < 0);
  request_made(library, request);
  return status;
}

herr_t file_specific(void* file, H5VL_file_specific_args* arguments, hid_t dxpl, REQ request) {
  H5VL_file_specific_args below = *arguments;
  if (below.op_type == H5VL_FILE_IS_ACCESSIBLE)
    return specific_by_name(CALLING_LIBRARY(), &below, &below.args.is_accessible.fapl_id, dxpl, request);
  if (below.op_type == H5VL_FILE_DELETE)
    return specific_by_name(CALLING_LIBRARY(), &below, &below.args.del.fapl_id, dxpl, request);
  if (below.op_type == H5VL_FILE_IS_EQUAL) below.args.is_equal.obj2 = under_of(below.args.is_equal.obj2);
  Library* library = LIBRARY(file);
  herr_t status = library->H5VLfile_specific(under_of(file), library->native, &below, dxpl, request);
  if (below.op_type == H5VL_FILE_REOPEN && status >= 0)
    *below.args.reopen.file = object_made(library, FILE_OF(file), *below.args.reopen.file);
  request_made(library, request);
  return status;
}

herr_t file_optional(void* file, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(file);
  herr_t status = library->H5VLfile_optional(under_of(file), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}

herr_t file_close(void* file, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(file);
  herr_t status = library->H5VLfile_close(under_of(file), library->native, dxpl, request);
  request_made(library, request);
  if (status >= 0) object_freed(file);
  return status;
}
