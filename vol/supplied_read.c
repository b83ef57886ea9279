#include "supplied_read.h"

#include <stdlib.h>

#include "selection.h"

/* A shorter read is not made ahead. */
enum { AHEAD_BYTES_MIN = 16 << 10 };

static void read_natively(void* context) {
  DatasetRead* read = context;
  Library* library = read->dataset->library;
  read->status =
      library->H5VLdataset_read(1, &read->dataset->under, library->native, &read->type, &read->memory,
                                &read->space, read->dxpl, &read->buffer, read->request);
}

/* True if nothing in the properties of the transfer changes elements or makes it collective. */
static bool is_plain(Library* library, hid_t dxpl) {
  hid_t plain = *library->default_transfer;
  return dxpl == plain || dxpl == 0 || library->H5Pequal(dxpl, plain) > 0;
}

/* True if the memory space takes `total` elements that follow each other from the start of the buffer. Else
 * they go to the elements of `target`; that is H5I_INVALID_HID if the read is left to the library. */
static bool is_contiguous(const DatasetRead* read, const Selection* selection, uint64_t whole,
                          hid_t* target) {
  Library* library = read->dataset->library;
  *target = H5I_INVALID_HID;
  if (read->memory == H5S_BLOCK) return true;
  if (read->memory == H5S_ALL) {
    /* The buffer has the shape of the whole dataset, and elements go to their own places. */
    bool is_whole = selection->total == whole && selection->elements.points == 0;
    if (!is_whole) *target = read->space;
    return is_whole;
  }
  hssize_t total = (hssize_t)selection->total;
  if (read->memory < H5S_IDS || library->H5Sget_select_npoints(read->memory) != total) return false;
  if (library->H5Sget_select_type(read->memory) == H5S_SEL_ALL) return true;
  if (!is_slab_in_place(library, read->memory)) return false;
  if (library->H5Sget_simple_extent_npoints(read->memory) == total) return true;
  *target = read->memory;
  return false;
}

static void swap_bytes(unsigned char* elements, uint64_t total, size_t size) {
  for (; total > 0; total--, elements += size)
    for (size_t at = 0; at < size / 2; at++) {
      unsigned char byte = elements[at];
      elements[at] = elements[size - 1 - at];
      elements[size - 1 - at] = byte;
    }
}

typedef struct {
  const void* elements;
  size_t bytes;
} Scattered;

static herr_t all_at_once(const void** elements, size_t* bytes, void* context) {
  const Scattered* scattered = context;
  *elements = scattered->elements;
  *bytes = scattered->bytes;
  return 0;
}

/* Reads into `room` by the engine, and from there into the program's buffer; else natively. */
static void read_into(DatasetRead* read, const KnownDataset* dataset, const Selection* selection,
                      NumberType type, unsigned char* room, hid_t target) {
  size_t bytes = selection->total * type.size;
  bool is_big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
  read->status = 0;
  if (!engine()->read(dataset->dataset, &selection->elements, room, bytes, read_natively, read)) return;
  if (type.is_big_endian != is_big_endian && type.size > 1) swap_bytes(room, selection->total, type.size);
  if (target == H5I_INVALID_HID) return;
  Library* library = read->dataset->library;
  Scattered scattered = {.elements = room, .bytes = bytes};
  if (library->H5Dscatter(all_at_once, &scattered, read->type, target, read->buffer) < 0) read_natively(read);
}

/* Has the read recorded, and makes it natively. */
static void record(DatasetRead* read, const KnownDataset* dataset, const Selection* selection) {
  engine()->read(dataset->dataset, &selection->elements, NULL, 0, read_natively, read);
}

/* True if the engine may supply elements of the read, not record it alone. */
static bool may_supply(const KnownDataset* dataset, uint64_t total) {
  bool is_long = total * dataset->type.size >= AHEAD_BYTES_MIN;
  return dataset->type.kind != '-' &&
         ((dataset->uses & USE_REPLICAS) != 0 || ((dataset->uses & USE_AHEAD) != 0 && is_long));
}

/* Makes the read of a selection that the engine has. */
static void read_selection(DatasetRead* read, const KnownDataset* dataset, const Selection* selection) {
  if (selection->total > SIZE_MAX / 64 || !may_supply(dataset, selection->total)) {
    record(read, dataset, selection);
    return;
  }
  NumberType type = number_type(read->dataset->library, read->type);
  uint64_t whole = 1;
  hid_t target;
  for (unsigned axis = 0; axis < dataset->rank; axis++) whole *= dataset->extent[axis];
  bool is_whole = is_contiguous(read, selection, whole, &target);
  bool is_same = type.kind == dataset->type.kind && type.size == dataset->type.size;
  if (!is_same || (!is_whole && target == H5I_INVALID_HID)) {
    record(read, dataset, selection);
    return;
  }
  unsigned char* room = is_whole ? read->buffer : malloc(selection->total * type.size);
  if (room == NULL)
    read_natively(read);
  else
    read_into(read, dataset, selection, type, room, target);
  if (!is_whole) free(room);
}

/* True for a read that would only be read ahead, and that takes less time than to wake a thread. */
static bool is_too_short(const DatasetRead* read, const KnownDataset* dataset) {
  if (dataset->uses != USE_AHEAD || read->space < H5S_IDS) return false;
  hssize_t elements = read->dataset->library->H5Sget_select_npoints(read->space);
  return elements >= 0 && (uint64_t)elements * dataset->type.size < AHEAD_BYTES_MIN;
}

herr_t read_known(DatasetRead* read) {
  VolObject* object = read->dataset;
  Library* library = object->library;
  Selection selection;
  const KnownDataset* dataset = NULL;
  bool may_be = read->request == NULL && !is_open_for_writing(object->file->device, object->file->inode) &&
                is_plain(library, read->dxpl);
  if (may_be) dataset = known_dataset_of(object);
  if (dataset != NULL && is_too_short(read, dataset)) dataset = NULL;
  if (dataset == NULL || !selection_of(library, dataset, read->space, &selection)) {
    read_natively(read);
    return read->status;
  }
  if (selection.total == 0)
    read_natively(read);
  else
    read_selection(read, dataset, &selection);
  selection_freed(&selection);
  return read->status;
}
