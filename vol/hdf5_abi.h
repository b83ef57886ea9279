/* The part of HDF5's interface for VOL connectors that this connector names: version 3 of the class
 * structure, which HDF5 1.14 and 2.x share. Argument structures that are passed on unread are opaque.
 *
 * HDF5's own headers are not included: the connector is built without HDF5, and its calls go to the library
 * that loads it (library.h). */
#ifndef BEDFORM_VOL_HDF5_ABI_H
#define BEDFORM_VOL_HDF5_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t hid_t;
typedef int herr_t;
typedef int htri_t;
typedef unsigned long long hsize_t;
typedef signed long long hssize_t;

enum { H5VL_VERSION = 3, H5PL_TYPE_VOL = 1, H5VL_NATIVE_VALUE = 0, H5E_DEFAULT = 0, H5P_DEFAULT = 0 };
enum { H5I_INVALID_HID = -1 };
enum { H5F_ACC_RDWR = 1 };
enum {
  H5S_ALL = 0,
  H5S_BLOCK = 1,
  H5S_IDS = 16,
  H5S_SEL_POINTS = 1,
  H5S_SEL_HYPERSLABS = 2,
  H5S_SEL_ALL = 3,
  H5S_MAX_RANK = 32
};
enum {
  H5T_INTEGER = 0,
  H5T_FLOAT = 1,
  H5T_ORDER_LE = 0,
  H5T_ORDER_BE = 1,
  H5T_SGN_2 = 1,
  H5T_NORM_IMPLIED = 0
};
enum {
  H5D_COMPACT = 0,
  H5D_CONTIGUOUS = 1,
  H5D_CHUNKED = 2,
  H5D_FILL_TIME_NEVER = 1,
  H5D_FILL_VALUE_UNDEFINED = 0
};

typedef enum {
  H5I_FILE = 1,
  H5I_GROUP,
  H5I_DATATYPE,
  H5I_DATASPACE,
  H5I_DATASET,
  H5I_MAP,
  H5I_ATTR
} H5I_type_t;

typedef struct H5VL_attr_get_args H5VL_attr_get_args;
typedef struct H5VL_attr_specific_args H5VL_attr_specific_args;
typedef struct H5VL_dataset_specific_args H5VL_dataset_specific_args;
typedef struct H5VL_datatype_get_args H5VL_datatype_get_args;
typedef struct H5VL_datatype_specific_args H5VL_datatype_specific_args;
typedef struct H5VL_file_get_args H5VL_file_get_args;
typedef struct H5VL_group_get_args H5VL_group_get_args;
typedef struct H5VL_link_get_args H5VL_link_get_args;
typedef struct H5VL_link_specific_args H5VL_link_specific_args;
typedef struct H5VL_object_specific_args H5VL_object_specific_args;
typedef struct H5VL_request_specific_args H5VL_request_specific_args;
typedef struct H5VL_blob_specific_args H5VL_blob_specific_args;
typedef herr_t (*H5VL_request_notify)(void* context, int status);

typedef herr_t (*H5D_scatter_func)(const void** elements, size_t* bytes, void* context);

/* An object by itself needs no more of its location. */
typedef struct {
  H5I_type_t obj_type;
  enum { H5VL_OBJECT_BY_SELF } type;
  union {
    void* pointers[8];
  } loc_data;
} H5VL_loc_params;

typedef struct {
  int op_type;
  void* args;
} H5VL_optional_args;

/* The native operation that returns the handle of a file's driver: for local files their descriptor. */
enum { H5VL_NATIVE_FILE_GET_VFD_HANDLE = 9 };

typedef struct {
  hid_t fapl_id;
  void** file_handle;
  void* others[16];
} H5VL_native_file_optional_args;

typedef struct {
  enum {
    H5VL_DATASET_GET_DAPL,
    H5VL_DATASET_GET_DCPL,
    H5VL_DATASET_GET_SPACE,
    H5VL_DATASET_GET_SPACE_STATUS,
    H5VL_DATASET_GET_STORAGE_SIZE,
    H5VL_DATASET_GET_TYPE
  } op_type;
  union {
    hid_t id;
    void* pointers[2];
  } args;
} H5VL_dataset_get_args;

/* In files of the native connector, the address of the object's header, the lowest byte first. */
typedef struct {
  uint8_t bytes[16];
} H5O_token;

enum { H5O_INFO_BASIC = 1 };

typedef struct {
  unsigned long fileno;
  H5O_token token;
  int type;
  unsigned rc;
  int64_t times[4];
  hsize_t num_attrs;
} H5O_info2;

typedef struct {
  enum { H5VL_OBJECT_GET_FILE, H5VL_OBJECT_GET_NAME, H5VL_OBJECT_GET_TYPE, H5VL_OBJECT_GET_INFO } op_type;
  union {
    struct {
      unsigned fields;
      H5O_info2* oinfo;
    } get_info;
    void* pointers[3];
  } args;
} H5VL_object_get_args;

/* File operations whose arguments hold objects or property lists of the connector. */
typedef enum {
  H5VL_FILE_FLUSH,
  H5VL_FILE_REOPEN,
  H5VL_FILE_IS_ACCESSIBLE,
  H5VL_FILE_DELETE,
  H5VL_FILE_IS_EQUAL
} H5VL_file_specific;

typedef struct {
  H5VL_file_specific op_type;
  union {
    struct {
      int obj_type, scope;
    } flush;
    struct {
      void** file;
    } reopen;
    struct {
      const char* filename;
      hid_t fapl_id;
      bool* accessible;
    } is_accessible;
    struct {
      const char* filename;
      hid_t fapl_id;
    } del;
    struct {
      void* obj2;
      bool* same_file;
    } is_equal;
  } args;
} H5VL_file_specific_args;

typedef enum {
  H5VL_GROUP_MOUNT,
  H5VL_GROUP_UNMOUNT,
  H5VL_GROUP_FLUSH,
  H5VL_GROUP_REFRESH
} H5VL_group_specific;

typedef struct {
  H5VL_group_specific op_type;
  union {
    struct {
      const char* name;
      void* child_file;
      hid_t fmpl_id;
    } mount;
    struct {
      const char* name;
    } unmount;
    struct {
      hid_t grp_id;
    } flush;
  } args;
} H5VL_group_specific_args;

typedef enum { H5VL_LINK_CREATE_HARD, H5VL_LINK_CREATE_SOFT, H5VL_LINK_CREATE_UD } H5VL_link_create;

/* The structure is longer: it is changed in place for the call below, and put back. */
typedef struct {
  H5VL_link_create op_type;
  union {
    struct {
      void* curr_obj;
    } hard;
  } args;
} H5VL_link_create_args;

typedef enum { H5VL_GET_CONN_LVL_CURR, H5VL_GET_CONN_LVL_TERM } H5VL_get_conn_lvl;

typedef struct H5VL_class H5VL_class;

struct H5VL_class {
  unsigned version;
  int value;
  const char* name;
  unsigned conn_version;
  uint64_t cap_flags;
  herr_t (*initialize)(hid_t vipl);
  herr_t (*terminate)(void);
  struct {
    size_t size;
    void* (*copy)(const void*);
    herr_t (*cmp)(int*, const void*, const void*);
    herr_t (*free)(void*);
    herr_t (*to_str)(const void*, char**);
    herr_t (*from_str)(const char*, void**);
  } info;
  struct {
    void* (*get_object)(const void*);
    herr_t (*get_wrap_ctx)(const void*, void**);
    void* (*wrap_object)(void*, H5I_type_t, void*);
    void* (*unwrap_object)(void*);
    herr_t (*free_wrap_ctx)(void*);
  } wrap;
  struct {
    void* (*create)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, void**);
    void* (*open)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, void**);
    herr_t (*read)(void*, hid_t, void*, hid_t, void**);
    herr_t (*write)(void*, hid_t, const void*, hid_t, void**);
    herr_t (*get)(void*, H5VL_attr_get_args*, hid_t, void**);
    herr_t (*specific)(void*, const H5VL_loc_params*, H5VL_attr_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, H5VL_optional_args*, hid_t, void**);
    herr_t (*close)(void*, hid_t, void**);
  } attr;
  struct {
    void* (*create)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, hid_t,
                    void**);
    void* (*open)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, void**);
    herr_t (*read)(size_t, void*[], hid_t[], hid_t[], hid_t[], hid_t, void*[], void**);
    herr_t (*write)(size_t, void*[], hid_t[], hid_t[], hid_t[], hid_t, const void*[], void**);
    herr_t (*get)(void*, H5VL_dataset_get_args*, hid_t, void**);
    herr_t (*specific)(void*, H5VL_dataset_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, H5VL_optional_args*, hid_t, void**);
    herr_t (*close)(void*, hid_t, void**);
  } dataset;
  struct {
    void* (*commit)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, hid_t, hid_t, hid_t, void**);
    void* (*open)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, void**);
    herr_t (*get)(void*, H5VL_datatype_get_args*, hid_t, void**);
    herr_t (*specific)(void*, H5VL_datatype_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, H5VL_optional_args*, hid_t, void**);
    herr_t (*close)(void*, hid_t, void**);
  } datatype;
  struct {
    void* (*create)(const char*, unsigned, hid_t, hid_t, hid_t, void**);
    void* (*open)(const char*, unsigned, hid_t, hid_t, void**);
    herr_t (*get)(void*, H5VL_file_get_args*, hid_t, void**);
    herr_t (*specific)(void*, H5VL_file_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, H5VL_optional_args*, hid_t, void**);
    herr_t (*close)(void*, hid_t, void**);
  } file;
  struct {
    void* (*create)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, hid_t, hid_t, void**);
    void* (*open)(void*, const H5VL_loc_params*, const char*, hid_t, hid_t, void**);
    herr_t (*get)(void*, H5VL_group_get_args*, hid_t, void**);
    herr_t (*specific)(void*, H5VL_group_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, H5VL_optional_args*, hid_t, void**);
    herr_t (*close)(void*, hid_t, void**);
  } group;
  struct {
    herr_t (*create)(H5VL_link_create_args*, void*, const H5VL_loc_params*, hid_t, hid_t, hid_t, void**);
    herr_t (*copy)(void*, const H5VL_loc_params*, void*, const H5VL_loc_params*, hid_t, hid_t, hid_t, void**);
    herr_t (*move)(void*, const H5VL_loc_params*, void*, const H5VL_loc_params*, hid_t, hid_t, hid_t, void**);
    herr_t (*get)(void*, const H5VL_loc_params*, H5VL_link_get_args*, hid_t, void**);
    herr_t (*specific)(void*, const H5VL_loc_params*, H5VL_link_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, const H5VL_loc_params*, H5VL_optional_args*, hid_t, void**);
  } link;
  struct {
    void* (*open)(void*, const H5VL_loc_params*, H5I_type_t*, hid_t, void**);
    herr_t (*copy)(void*, const H5VL_loc_params*, const char*, void*, const H5VL_loc_params*, const char*,
                   hid_t, hid_t, hid_t, void**);
    herr_t (*get)(void*, const H5VL_loc_params*, H5VL_object_get_args*, hid_t, void**);
    herr_t (*specific)(void*, const H5VL_loc_params*, H5VL_object_specific_args*, hid_t, void**);
    herr_t (*optional)(void*, const H5VL_loc_params*, H5VL_optional_args*, hid_t, void**);
  } object;
  struct {
    herr_t (*get_conn_cls)(void*, H5VL_get_conn_lvl, const H5VL_class**);
    herr_t (*get_cap_flags)(const void*, uint64_t*);
    herr_t (*opt_query)(void*, int, int, uint64_t*);
  } introspect;
  struct {
    herr_t (*wait)(void*, uint64_t, int*);
    herr_t (*notify)(void*, H5VL_request_notify, void*);
    herr_t (*cancel)(void*, int*);
    herr_t (*specific)(void*, H5VL_request_specific_args*);
    herr_t (*optional)(void*, H5VL_optional_args*);
    herr_t (*free)(void*);
  } request;
  struct {
    herr_t (*put)(void*, const void*, size_t, void*, void*);
    herr_t (*get)(void*, const void*, void*, size_t, void*);
    herr_t (*specific)(void*, void*, H5VL_blob_specific_args*);
    herr_t (*optional)(void*, void*, H5VL_optional_args*);
  } blob;
  struct {
    herr_t (*cmp)(void*, const H5O_token*, const H5O_token*, int*);
    herr_t (*to_str)(void*, H5I_type_t, const H5O_token*, char**);
    herr_t (*from_str)(void*, H5I_type_t, const char*, H5O_token*);
  } token;
  herr_t (*optional)(void*, H5VL_optional_args*, hid_t, void**);
};

#endif
