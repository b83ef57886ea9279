/* The HDF5 libraries of this process that have loaded the connector, and the functions of each.
 *
 * h5py and netCDF4 bring an HDF5 of their own each, with hidden symbols, and a process may have both. So the
 * connector links none: the address that a call returns to tells the library that makes it. */
#ifndef BEDFORM_VOL_LIBRARY_H
#define BEDFORM_VOL_LIBRARY_H

#include "hdf5_abi.h"

#define LOC const H5VL_loc_params*
#define REQ void**

/* Functions that the connector calls: result, name, arguments. */
#define HDF5_FUNCTIONS(F)                                                                                 \
  F(hid_t, H5Pcopy, (hid_t))                                                                              \
  F(herr_t, H5Pclose, (hid_t))                                                                            \
  F(herr_t, H5Pset_vol, (hid_t, hid_t, const void*))                                                      \
  F(htri_t, H5Pequal, (hid_t, hid_t))                                                                     \
  F(hid_t, H5Pget_driver, (hid_t))                                                                        \
  F(herr_t, H5Pget_fill_time, (hid_t, int*))                                                              \
  F(herr_t, H5Pfill_value_defined, (hid_t, int*))                                                         \
  F(int, H5Pget_layout, (hid_t))                                                                          \
  F(int, H5Pget_external_count, (hid_t))                                                                  \
  F(herr_t, H5Tclose, (hid_t))                                                                            \
  F(int, H5Tget_class, (hid_t))                                                                           \
  F(size_t, H5Tget_size, (hid_t))                                                                         \
  F(int, H5Tget_order, (hid_t))                                                                           \
  F(size_t, H5Tget_precision, (hid_t))                                                                    \
  F(int, H5Tget_offset, (hid_t))                                                                          \
  F(int, H5Tget_sign, (hid_t))                                                                            \
  F(herr_t, H5Tget_fields, (hid_t, size_t*, size_t*, size_t*, size_t*, size_t*))                          \
  F(size_t, H5Tget_ebias, (hid_t))                                                                        \
  F(int, H5Tget_norm, (hid_t))                                                                            \
  F(herr_t, H5Sclose, (hid_t))                                                                            \
  F(int, H5Sget_simple_extent_ndims, (hid_t))                                                             \
  F(int, H5Sget_simple_extent_dims, (hid_t, hsize_t*, hsize_t*))                                          \
  F(hssize_t, H5Sget_simple_extent_npoints, (hid_t))                                                      \
  F(int, H5Sget_select_type, (hid_t))                                                                     \
  F(htri_t, H5Sselect_valid, (hid_t))                                                                     \
  F(hssize_t, H5Sget_select_npoints, (hid_t))                                                             \
  F(herr_t, H5Sget_select_bounds, (hid_t, hsize_t*, hsize_t*))                                            \
  F(htri_t, H5Sis_regular_hyperslab, (hid_t))                                                             \
  F(herr_t, H5Sget_regular_hyperslab, (hid_t, hsize_t*, hsize_t*, hsize_t*, hsize_t*))                    \
  F(hssize_t, H5Sget_select_hyper_nblocks, (hid_t))                                                       \
  F(herr_t, H5Sget_select_hyper_blocklist, (hid_t, hsize_t, hsize_t, hsize_t*))                           \
  F(herr_t, H5Sget_select_elem_pointlist, (hid_t, hsize_t, hsize_t, hsize_t*))                            \
  F(herr_t, H5Dscatter, (H5D_scatter_func, void*, hid_t, hid_t, void*))                                   \
  F(hid_t, H5Eget_current_stack, (void))                                                                  \
  F(herr_t, H5Eset_current_stack, (hid_t))                                                                \
  F(hid_t, H5VLget_connector_id_by_value, (int))                                                          \
  F(herr_t, H5VLclose, (hid_t))                                                                           \
  F(void*, H5VLget_object, (void*, hid_t))                                                                \
  F(herr_t, H5VLget_wrap_ctx, (void*, hid_t, void**))                                                     \
  F(void*, H5VLwrap_object, (void*, H5I_type_t, hid_t, void*))                                            \
  F(void*, H5VLunwrap_object, (void*, hid_t))                                                             \
  F(herr_t, H5VLfree_wrap_ctx, (void*, hid_t))                                                            \
  F(void*, H5VLattr_create, (void*, LOC, hid_t, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, REQ))     \
  F(void*, H5VLattr_open, (void*, LOC, hid_t, const char*, hid_t, hid_t, REQ))                            \
  F(herr_t, H5VLattr_read, (void*, hid_t, hid_t, void*, hid_t, REQ))                                      \
  F(herr_t, H5VLattr_write, (void*, hid_t, hid_t, const void*, hid_t, REQ))                               \
  F(herr_t, H5VLattr_get, (void*, hid_t, H5VL_attr_get_args*, hid_t, REQ))                                \
  F(herr_t, H5VLattr_specific, (void*, LOC, hid_t, H5VL_attr_specific_args*, hid_t, REQ))                 \
  F(herr_t, H5VLattr_optional, (void*, hid_t, H5VL_optional_args*, hid_t, REQ))                           \
  F(herr_t, H5VLattr_close, (void*, hid_t, hid_t, REQ))                                                   \
  F(void*, H5VLdataset_create,                                                                            \
    (void*, LOC, hid_t, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, hid_t, REQ))                      \
  F(void*, H5VLdataset_open, (void*, LOC, hid_t, const char*, hid_t, hid_t, REQ))                         \
  F(herr_t, H5VLdataset_read, (size_t, void*[], hid_t, hid_t[], hid_t[], hid_t[], hid_t, void*[], REQ))   \
  F(herr_t, H5VLdataset_write,                                                                            \
    (size_t, void*[], hid_t, hid_t[], hid_t[], hid_t[], hid_t, const void*[], REQ))                       \
  F(herr_t, H5VLdataset_get, (void*, hid_t, H5VL_dataset_get_args*, hid_t, REQ))                          \
  F(herr_t, H5VLdataset_specific, (void*, hid_t, H5VL_dataset_specific_args*, hid_t, REQ))                \
  F(herr_t, H5VLdataset_optional, (void*, hid_t, H5VL_optional_args*, hid_t, REQ))                        \
  F(herr_t, H5VLdataset_close, (void*, hid_t, hid_t, REQ))                                                \
  F(void*, H5VLdatatype_commit, (void*, LOC, hid_t, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, REQ)) \
  F(void*, H5VLdatatype_open, (void*, LOC, hid_t, const char*, hid_t, hid_t, REQ))                        \
  F(herr_t, H5VLdatatype_get, (void*, hid_t, H5VL_datatype_get_args*, hid_t, REQ))                        \
  F(herr_t, H5VLdatatype_specific, (void*, hid_t, H5VL_datatype_specific_args*, hid_t, REQ))              \
  F(herr_t, H5VLdatatype_optional, (void*, hid_t, H5VL_optional_args*, hid_t, REQ))                       \
  F(herr_t, H5VLdatatype_close, (void*, hid_t, hid_t, REQ))                                               \
  F(void*, H5VLfile_create, (const char*, unsigned, hid_t, hid_t, hid_t, REQ))                            \
  F(void*, H5VLfile_open, (const char*, unsigned, hid_t, hid_t, REQ))                                     \
  F(herr_t, H5VLfile_get, (void*, hid_t, H5VL_file_get_args*, hid_t, REQ))                                \
  F(herr_t, H5VLfile_specific, (void*, hid_t, H5VL_file_specific_args*, hid_t, REQ))                      \
  F(herr_t, H5VLfile_optional, (void*, hid_t, H5VL_optional_args*, hid_t, REQ))                           \
  F(herr_t, H5VLfile_close, (void*, hid_t, hid_t, REQ))                                                   \
  F(void*, H5VLgroup_create, (void*, LOC, hid_t, const char*, hid_t, hid_t, hid_t, hid_t, REQ))           \
  F(void*, H5VLgroup_open, (void*, LOC, hid_t, const char*, hid_t, hid_t, REQ))                           \
  F(herr_t, H5VLgroup_get, (void*, hid_t, H5VL_group_get_args*, hid_t, REQ))                              \
  F(herr_t, H5VLgroup_specific, (void*, hid_t, H5VL_group_specific_args*, hid_t, REQ))                    \
  F(herr_t, H5VLgroup_optional, (void*, hid_t, H5VL_optional_args*, hid_t, REQ))                          \
  F(herr_t, H5VLgroup_close, (void*, hid_t, hid_t, REQ))                                                  \
  F(herr_t, H5VLlink_create, (H5VL_link_create_args*, void*, LOC, hid_t, hid_t, hid_t, hid_t, REQ))       \
  F(herr_t, H5VLlink_copy, (void*, LOC, void*, LOC, hid_t, hid_t, hid_t, hid_t, REQ))                     \
  F(herr_t, H5VLlink_move, (void*, LOC, void*, LOC, hid_t, hid_t, hid_t, hid_t, REQ))                     \
  F(herr_t, H5VLlink_get, (void*, LOC, hid_t, H5VL_link_get_args*, hid_t, REQ))                           \
  F(herr_t, H5VLlink_specific, (void*, LOC, hid_t, H5VL_link_specific_args*, hid_t, REQ))                 \
  F(herr_t, H5VLlink_optional, (void*, LOC, hid_t, H5VL_optional_args*, hid_t, REQ))                      \
  F(void*, H5VLobject_open, (void*, LOC, hid_t, H5I_type_t*, hid_t, REQ))                                 \
  F(herr_t, H5VLobject_copy,                                                                              \
    (void*, LOC, const char*, void*, LOC, const char*, hid_t, hid_t, hid_t, hid_t, REQ))                  \
  F(herr_t, H5VLobject_get, (void*, LOC, hid_t, H5VL_object_get_args*, hid_t, REQ))                       \
  F(herr_t, H5VLobject_specific, (void*, LOC, hid_t, H5VL_object_specific_args*, hid_t, REQ))             \
  F(herr_t, H5VLobject_optional, (void*, LOC, hid_t, H5VL_optional_args*, hid_t, REQ))                    \
  F(herr_t, H5VLintrospect_get_conn_cls, (void*, hid_t, H5VL_get_conn_lvl, const H5VL_class**))           \
  F(herr_t, H5VLintrospect_get_cap_flags, (const void*, hid_t, uint64_t*))                                \
  F(herr_t, H5VLintrospect_opt_query, (void*, hid_t, int, int, uint64_t*))                                \
  F(herr_t, H5VLrequest_wait, (void*, hid_t, uint64_t, int*))                                             \
  F(herr_t, H5VLrequest_notify, (void*, hid_t, H5VL_request_notify, void*))                               \
  F(herr_t, H5VLrequest_cancel, (void*, hid_t, int*))                                                     \
  F(herr_t, H5VLrequest_specific, (void*, hid_t, H5VL_request_specific_args*))                            \
  F(herr_t, H5VLrequest_optional, (void*, hid_t, H5VL_optional_args*))                                    \
  F(herr_t, H5VLrequest_free, (void*, hid_t))                                                             \
  F(herr_t, H5VLblob_put, (void*, hid_t, const void*, size_t, void*, void*))                              \
  F(herr_t, H5VLblob_get, (void*, hid_t, const void*, void*, size_t, void*))                              \
  F(herr_t, H5VLblob_specific, (void*, hid_t, void*, H5VL_blob_specific_args*))                           \
  F(herr_t, H5VLblob_optional, (void*, hid_t, void*, H5VL_optional_args*))                                \
  F(herr_t, H5VLtoken_cmp, (void*, hid_t, const H5O_token*, const H5O_token*, int*))                      \
  F(herr_t, H5VLtoken_to_str, (void*, H5I_type_t, hid_t, const H5O_token*, char**))                       \
  F(herr_t, H5VLtoken_from_str, (void*, H5I_type_t, hid_t, const char*, H5O_token*))                      \
  F(herr_t, H5VLoptional, (void*, hid_t, H5VL_optional_args*, hid_t, REQ))

/* An HDF5 library of the process. */
typedef struct {
  /* Where it is loaded; NULL if this place of the list is free. */
  const void* base;
  /* The variables with the ids of the driver of local files and of the default properties of transfers, which
   * change if the library is closed and used again; 1.14 has a call for the driver. */
  const hid_t *local_driver, *default_transfer;
  hid_t (*local_driver_1_14)(void);
  /* Its native connector, held while the connector is registered; else H5I_INVALID_HID. */
  hid_t native;
#define MEMBER(result, name, arguments) result(*name) arguments;
  HDF5_FUNCTIONS(MEMBER)
#undef MEMBER
} Library;

/* Returns the library that contains an address; NULL if it is none, or lacks a function. Thread-safe. */
Library* library_of(const void* address);

/* The library that called the function in which this stands. */
#define CALLING_LIBRARY() library_of(__builtin_return_address(0))

#endif
