/* The connector `bedform` of HDF5: a plug-in that HDF5 1.14 and 2.x load by HDF5_PLUGIN_PATH and
 * HDF5_VOL_CONNECTOR. It passes every call to the native connector, but for reads that the engine supplies
 * (supplied_read.c). */
#include "callbacks.h"

/* A number for testing: connectors have numbers from 512 on of the HDF Group's register. */
enum { CONNECTOR_VALUE = 437, CONNECTOR_VERSION = 1 };

static herr_t initialize(hid_t properties) {
  Library* library = CALLING_LIBRARY();
  (void)properties;
  if (library == NULL) return -1;
  library->native = library->H5VLget_connector_id_by_value(H5VL_NATIVE_VALUE);
  return library->native < 0 ? -1 : 0;
}

static herr_t terminate(void) {
  Library* library = CALLING_LIBRARY();
  const Engine* loaded = engine_if_loaded();
  if (loaded != NULL) loaded->end();
  if (library == NULL || library->native < 0) return 0;
  hid_t native = library->native;
  library->native = H5I_INVALID_HID;
  return library->H5VLclose(native);
}

const H5VL_class connector_class = {
    .version = H5VL_VERSION,
    .value = CONNECTOR_VALUE,
    .name = "bedform",
    .conn_version = CONNECTOR_VERSION,
    .initialize = initialize,
    .terminate = terminate,
    .wrap = {wrap_get_object, wrap_get_context, wrap_object, unwrap_object, wrap_free_context},
    .attr = {attribute_create, attribute_open, attribute_read, attribute_write, attribute_get,
             attribute_specific, attribute_optional, attribute_close},
    .dataset = {dataset_create, dataset_open, dataset_read, dataset_write, dataset_get, dataset_specific,
                dataset_optional, dataset_close},
    .datatype = {datatype_commit, datatype_open, datatype_get, datatype_specific, datatype_optional,
                 datatype_close},
    .file = {file_create, file_open, file_get, file_specific, file_optional, file_close},
    .group = {group_create, group_open, group_get, group_specific, group_optional, group_close},
    .link = {link_create, link_copy, link_move, link_get, link_specific, link_optional},
    .object = {object_open, object_copy, object_get, object_specific, object_optional},
    .introspect = {introspect_connector, introspect_capabilities, introspect_optional},
    .request = {request_wait, request_notify, request_cancel, request_specific, request_optional,
                request_free},
    .blob = {blob_put, blob_get, blob_specific, blob_optional},
    .token = {token_compare, token_to_text, token_from_text},
    .optional = any_optional,
};

/* The results of H5PLget_plugin_type and H5PLget_plugin_info, which lib.rs exports. */
int bedform_plugin_type(void) { return H5PL_TYPE_VOL; }

const void* bedform_plugin_info(void) { return &connector_class; }
