#include "known_dataset.h"

#include <stdlib.h>

/* A program that reads in a loop may get replicas meanwhile. */
enum { READS_BETWEEN = 1000 };

/* True for the layout of an IEEE float of this size. */
static bool is_ieee(Library* library, hid_t type, size_t size) {
  static const size_t known[][4] = {{2, 15, 10, 15}, {4, 31, 23, 127}, {8, 63, 52, 1023}};
  size_t sign, exponent, exponent_bits, mantissa, mantissa_bits;
  if (library->H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
    return false;
  for (size_t at = 0; at < sizeof known / sizeof *known; at++)
    if (known[at][0] == size)
      return sign == known[at][1] && exponent == known[at][2] && exponent_bits == sign - exponent &&
             mantissa == 0 && mantissa_bits == exponent && library->H5Tget_ebias(type) == known[at][3] &&
             library->H5Tget_norm(type) == H5T_NORM_IMPLIED;
  return false;
}

NumberType number_type(Library* library, hid_t type) {
  int class = library->H5Tget_class(type);
  NumberType found = {.kind = '-', .size = library->H5Tget_size(type)};
  if (class != H5T_INTEGER && class != H5T_FLOAT) return found;
  int order = library->H5Tget_order(type);
  bool is_whole = library->H5Tget_precision(type) == 8 * found.size && library->H5Tget_offset(type) == 0;
  if (!is_whole || (order != H5T_ORDER_LE && order != H5T_ORDER_BE)) return found;
  found.is_big_endian = order == H5T_ORDER_BE;
  if (class == H5T_FLOAT && is_ieee(library, type, found.size)) found.kind = 'f';
  if (class == H5T_INTEGER) found.kind = library->H5Tget_sign(type) == H5T_SGN_2 ? 'i' : 'u';
  return found;
}

/* Asks a dataset for one of its ids: type, space or creation properties. */
static hid_t id_of(const VolObject* object, int which) {
  Library* library = object->library;
  H5VL_dataset_get_args asked = {.op_type = which, .args = {.id = H5I_INVALID_HID}};
  herr_t status =
      library->H5VLdataset_get(object->under, library->native, &asked, *library->default_transfer, NULL);
  return status < 0 ? H5I_INVALID_HID : asked.args.id;
}

/* True if every element has a value that the file defines, in the file itself. */
static bool is_defined(const VolObject* object) {
  Library* library = object->library;
  hid_t dcpl = id_of(object, H5VL_DATASET_GET_DCPL);
  int fill = H5D_FILL_VALUE_UNDEFINED, time = H5D_FILL_TIME_NEVER;
  if (dcpl < 0) return false;
  int layout = library->H5Pget_layout(dcpl);
  bool is_inside = layout == H5D_COMPACT || layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED;
  bool is_defined = is_inside && library->H5Pget_external_count(dcpl) == 0 &&
                    library->H5Pfill_value_defined(dcpl, &fill) >= 0 && fill != H5D_FILL_VALUE_UNDEFINED &&
                    library->H5Pget_fill_time(dcpl, &time) >= 0 && time != H5D_FILL_TIME_NEVER;
  library->H5Pclose(dcpl);
  return is_defined;
}

/* Finds the shape; returns false for a dataset without one. */
static bool shape_found(const VolObject* object, KnownDataset* dataset) {
  Library* library = object->library;
  hid_t space = id_of(object, H5VL_DATASET_GET_SPACE);
  if (space < 0) return false;
  int rank = library->H5Sget_simple_extent_ndims(space);
  bool has_shape = rank >= 0 && rank <= H5S_MAX_RANK && library->H5Sget_simple_extent_npoints(space) > 0 &&
                   library->H5Sget_simple_extent_dims(space, dataset->extent, NULL) == rank;
  dataset->rank = has_shape ? (unsigned)rank : 0;
  library->H5Sclose(space);
  return has_shape;
}

static void find(const VolObject* object, KnownDataset* dataset) {
  Library* library = object->library;
  unsigned long file;
  uint64_t address;
  char kind = '-';
  if (!object_found(library, object->under, H5I_DATASET, &file, &address) || file != object->file->number ||
      !shape_found(object, dataset))
    return;
  hid_t type = id_of(object, H5VL_DATASET_GET_TYPE);
  if (type < 0) return;
  dataset->type = number_type(library, type);
  library->H5Tclose(type);
  dataset->dataset =
      engine()->dataset(object->file->known, address, dataset->rank, dataset->type.size, &kind);
  if (dataset->dataset != NULL && (kind != dataset->type.kind || !is_defined(object)))
    dataset->type.kind = '-';
}

const KnownDataset* known_dataset_of(VolObject* object) {
  KnownDataset* dataset = object->dataset;
  if (dataset == NULL) {
    dataset = object->dataset = calloc(1, sizeof *dataset);
    if (dataset == NULL) return NULL;
    find(object, dataset);
  }
  if (dataset->dataset == NULL) return NULL;
  if (dataset->reads_left-- == 0) {
    dataset->uses = engine()->uses(dataset->dataset);
    dataset->reads_left = READS_BETWEEN;
  }
  return dataset->uses == 0 ? NULL : dataset;
}

void known_dataset_freed(KnownDataset* dataset) {
  if (dataset == NULL) return;
  if (dataset->dataset != NULL) engine()->dataset_close(dataset->dataset);
  free(dataset);
}
