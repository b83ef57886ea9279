/* Callbacks apart from those of objects: contexts in which native objects get one of the connector, the
 * connector's own facts, requests, blobs and tokens. */
#include "callbacks.h"

#include <stdlib.h>

typedef struct {
  Library* library;
  OpenedFile* file;
  void* under;
} WrapContext;

void* wrap_get_object(const void* object) {
  return LIBRARY(object)->H5VLget_object(under_of((void*)object), NATIVE(object));
}

herr_t wrap_get_context(const void* object, void** context) {
  WrapContext* made = malloc(sizeof *made);
  if (made == NULL) return -1;
  *made = (WrapContext){.library = LIBRARY(object)};
  if (made->library->H5VLget_wrap_ctx(under_of((void*)object), NATIVE(object), &made->under) < 0) {
    free(made);
    return -1;
  }
  made->file = opened_file_shared(FILE_OF(object));
  *context = made;
  return 0;
}

void* wrap_object(void* object, H5I_type_t type, void* context) {
  WrapContext* known = context;
  void* under = known->library->H5VLwrap_object(object, type, known->library->native, known->under);
  return object_made(known->library, known->file, under);
}

void* unwrap_object(void* object) {
  void* under = LIBRARY(object)->H5VLunwrap_object(under_of(object), NATIVE(object));
  if (under != NULL) object_freed(object);
  return under;
}

herr_t wrap_free_context(void* context) {
  WrapContext* known = context;
  SavedErrors saved = errors_saved(known->library);
  herr_t status =
      known->under == NULL ? 0 : known->library->H5VLfree_wrap_ctx(known->under, known->library->native);
  errors_restored(saved);
  opened_file_left(known->file);
  free(known);
  return status;
}

herr_t introspect_connector(void* object, H5VL_get_conn_lvl level, const H5VL_class** found) {
  if (level == H5VL_GET_CONN_LVL_CURR) {
    *found = &connector_class;
    return 0;
  }
  /* Calls that are for the native connector alone ask for the last one. */
  return LIBRARY(object)->H5VLintrospect_get_conn_cls(under_of(object), NATIVE(object), level, found);
}

herr_t introspect_capabilities(const void* info, uint64_t* flags) {
  Library* library = CALLING_LIBRARY();
  (void)info;
  if (library == NULL) return -1;
  return library->H5VLintrospect_get_cap_flags(NULL, library->native, flags);
}

herr_t introspect_optional(void* object, int subclass, int operation, uint64_t* flags) {
  return LIBRARY(object)->H5VLintrospect_opt_query(under_of(object), NATIVE(object), subclass, operation,
                                                   flags);
}

herr_t request_wait(void* request, uint64_t timeout, int* status) {
  return LIBRARY(request)->H5VLrequest_wait(under_of(request), NATIVE(request), timeout, status);
}

herr_t request_notify(void* request, H5VL_request_notify call, void* context) {
  return LIBRARY(request)->H5VLrequest_notify(under_of(request), NATIVE(request), call, context);
}

herr_t request_cancel(void* request, int* status) {
  return LIBRARY(request)->H5VLrequest_cancel(under_of(request), NATIVE(request), status);
}

herr_t request_specific(void* request, H5VL_request_specific_args* arguments) {
  return LIBRARY(request)->H5VLrequest_specific(under_of(request), NATIVE(request), arguments);
}

herr_t request_optional(void* request, H5VL_optional_args* arguments) {
  return LIBRARY(request)->H5VLrequest_optional(under_of(request), NATIVE(request), arguments);
}

herr_t request_free(void* request) {
  herr_t status = LIBRARY(request)->H5VLrequest_free(under_of(request), NATIVE(request));
  if (status >= 0) object_freed(request);
  return status;
}

herr_t blob_put(void* object, const void* data, size_t size, void* id, void* context) {
  return LIBRARY(object)->H5VLblob_put(under_of(object), NATIVE(object), data, size, id, context);
}

herr_t blob_get(void* object, const void* id, void* data, size_t size, void* context) {
  return LIBRARY(object)->H5VLblob_get(under_of(object), NATIVE(object), id, data, size, context);
}

herr_t blob_specific(void* object, void* id, H5VL_blob_specific_args* arguments) {
  return LIBRARY(object)->H5VLblob_specific(under_of(object), NATIVE(object), id, arguments);
}

herr_t blob_optional(void* object, void* id, H5VL_optional_args* arguments) {
  return LIBRARY(object)->H5VLblob_optional(under_of(object), NATIVE(object), id, arguments);
}

herr_t token_compare(void* object, const H5O_token* one, const H5O_token* other, int* order) {
  return LIBRARY(object)->H5VLtoken_cmp(under_of(object), NATIVE(object), one, other, order);
}

herr_t token_to_text(void* object, H5I_type_t type, const H5O_token* token, char** text) {
  return LIBRARY(object)->H5VLtoken_to_str(under_of(object), type, NATIVE(object), token, text);
}

herr_t token_from_text(void* object, H5I_type_t type, const char* text, H5O_token* token) {
  return LIBRARY(object)->H5VLtoken_from_str(under_of(object), type, NATIVE(object), text, token);
}

herr_t any_optional(void* object, H5VL_optional_args* arguments, hid_t dxpl, REQ request) {
  Library* library = LIBRARY(object);
  herr_t status = library->H5VLoptional(under_of(object), library->native, arguments, dxpl, request);
  request_made(library, request);
  return status;
}
