/* The callbacks of the connector, by class of HDF5 object; each passes its call to the native connector. */
#ifndef BEDFORM_VOL_CALLBACKS_H
#define BEDFORM_VOL_CALLBACKS_H

#include "objects.h"

/* attribute.c */
void* attribute_create(void*, LOC, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, REQ);
void* attribute_open(void*, LOC, const char*, hid_t, hid_t, REQ);
herr_t attribute_read(void*, hid_t, void*, hid_t, REQ);
herr_t attribute_write(void*, hid_t, const void*, hid_t, REQ);
herr_t attribute_get(void*, H5VL_attr_get_args*, hid_t, REQ);
herr_t attribute_specific(void*, LOC, H5VL_attr_specific_args*, hid_t, REQ);
herr_t attribute_optional(void*, H5VL_optional_args*, hid_t, REQ);
herr_t attribute_close(void*, hid_t, REQ);

/* dataset.c */
void* dataset_create(void*, LOC, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, hid_t, REQ);
void* dataset_open(void*, LOC, const char*, hid_t, hid_t, REQ);
herr_t dataset_read(size_t, void*[], hid_t[], hid_t[], hid_t[], hid_t, void*[], REQ);
herr_t dataset_write(size_t, void*[], hid_t[], hid_t[], hid_t[], hid_t, const void*[], REQ);
herr_t dataset_get(void*, H5VL_dataset_get_args*, hid_t, REQ);
herr_t dataset_specific(void*, H5VL_dataset_specific_args*, hid_t, REQ);
herr_t dataset_optional(void*, H5VL_optional_args*, hid_t, REQ);
herr_t dataset_close(void*, hid_t, REQ);

/* datatype.c */
void* datatype_commit(void*, LOC, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, REQ);
void* datatype_open(void*, LOC, const char*, hid_t, hid_t, REQ);
herr_t datatype_get(void*, H5VL_datatype_get_args*, hid_t, REQ);
herr_t datatype_specific(void*, H5VL_datatype_specific_args*, hid_t, REQ);
herr_t datatype_optional(void*, H5VL_optional_args*, hid_t, REQ);
herr_t datatype_close(void*, hid_t, REQ);

/* file.c */
void* file_create(const char*, unsigned, hid_t, hid_t, hid_t, REQ);
void* file_open(const char*, unsigned, hid_t, hid_t, REQ);
herr_t file_get(void*, H5VL_file_get_args*, hid_t, REQ);
herr_t file_specific(void*, H5VL_file_specific_args*, hid_t, REQ);
herr_t file_optional(void*, H5VL_optional_args*, hid_t, REQ);
herr_t file_close(void*, hid_t, REQ);

/* group.c */
void* group_create(void*, LOC, const char*, hid_t, hid_t, hid_t, hid_t, REQ);
void* group_open(void*, LOC, const char*, hid_t, hid_t, REQ);
herr_t group_get(void*, H5VL_group_get_args*, hid_t, REQ);
herr_t group_specific(void*, H5VL_group_specific_args*, hid_t, REQ);
herr_t group_optional(void*, H5VL_optional_args*, hid_t, REQ);
herr_t group_close(void*, hid_t, REQ);

/* link.c */
herr_t link_create(H5VL_link_create_args*, void*, LOC, hid_t, hid_t, hid_t, REQ);
herr_t link_copy(void*, LOC, void*, LOC, hid_t, hid_t, hid_t, REQ);
herr_t link_move(void*, LOC, void*, LOC, hid_t, hid_t, hid_t, REQ);
herr_t link_get(void*, LOC, H5VL_link_get_args*, hid_t, REQ);
herr_t link_specific(void*, LOC, H5VL_link_specific_args*, hid_t, REQ);
herr_t link_optional(void*, LOC, H5VL_optional_args*, hid_t, REQ);

/* object.c */
void* object_open(void*, LOC, H5I_type_t*, hid_t, REQ);
herr_t object_copy(void*, LOC, const char*, void*, LOC, const char*, hid_t, hid_t, hid_t, REQ);
herr_t object_get(void*, LOC, H5VL_object_get_args*, hid_t, REQ);
herr_t object_specific(void*, LOC, H5VL_object_specific_args*, hid_t, REQ);
herr_t object_optional(void*, LOC, H5VL_optional_args*, hid_t, REQ);

/* services.c */
void* wrap_get_object(const void*);
herr_t wrap_get_context(const void*, void**);
void* wrap_object(void*, H5I_type_t, void*);
void* unwrap_object(void*);
herr_t wrap_free_context(void*);
herr_t introspect_connector(void*, H5VL_get_conn_lvl, const H5VL_class**);
herr_t introspect_capabilities(const void*, uint64_t*);
herr_t introspect_optional(void*, int, int, uint64_t*);
herr_t request_wait(void*, uint64_t, int*);
herr_t request_notify(void*, H5VL_request_notify, void*);
herr_t request_cancel(void*, int*);
herr_t request_specific(void*, H5VL_request_specific_args*);
herr_t request_optional(void*, H5VL_optional_args*);
herr_t request_free(void*);
herr_t blob_put(void*, const void*, size_t, void*, void*);
herr_t blob_get(void*, const void*, void*, size_t, void*);
herr_t blob_specific(void*, void*, H5VL_blob_specific_args*);
herr_t blob_optional(void*, void*, H5VL_optional_args*);
herr_t token_compare(void*, const H5O_token*, const H5O_token*, int*);
herr_t token_to_text(void*, H5I_type_t, const H5O_token*, char**);
herr_t token_from_text(void*, H5I_type_t, const char*, H5O_token*);
herr_t any_optional(void*, H5VL_optional_args*, hid_t, REQ);

/* connector.c */
extern const H5VL_class connector_class;

/* connector.c */
int bedform_plugin_type(void);
const void* bedform_plugin_info(void);

#endif
