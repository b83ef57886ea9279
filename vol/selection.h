/* The selections of dataspaces, as the engine has them. */
#ifndef BEDFORM_VOL_SELECTION_H
#define BEDFORM_VOL_SELECTION_H

#include "known_dataset.h"

typedef struct {
  SelectedElements elements;
  uint64_t start[H5S_MAX_RANK], step[H5S_MAX_RANK], count[H5S_MAX_RANK];
  /* The coordinates of points, or the list of an axis; NULL for others. */
  uint64_t* listed;
  /* The number of elements. */
  uint64_t total;
} Selection;

/* Describes the elements of a dataset that a file space selects, in the order of HDF5. Returns false, and
 * nothing to free, for a selection that is left to the library. */
bool selection_of(Library* library, const KnownDataset* dataset, hid_t space, Selection* selection);

void selection_freed(Selection* selection);

/* True for a hyperslab that lies in the extent of its dataspace and has no offset. */
bool is_slab_in_place(Library* library, hid_t space);

#endif
