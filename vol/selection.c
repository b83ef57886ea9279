#include "selection.h"

#include <stdlib.h>

/* A longer list of points or blocks is left to the library. */
enum { LISTED_MAX = 1 << 20 };

static void select_all(const KnownDataset* dataset, Selection* selection) {
  for (unsigned axis = 0; axis < dataset->rank; axis++) {
    selection->start[axis] = 0;
    selection->step[axis] = 1;
    selection->count[axis] = dataset->extent[axis];
  }
}

/* Describes blocks that repeat along an axis as evenly spaced positions; returns false if they are not. */
static bool select_axis(hsize_t start, hsize_t stride, hsize_t count, hsize_t block, Selection* selection,
                        unsigned axis) {
  bool is_one = count == 1 || stride == block;
  if (!is_one && block != 1) return false;
  selection->start[axis] = start;
  selection->step[axis] = is_one ? 1 : stride;
  selection->count[axis] = is_one ? count * block : count;
  return true;
}

/* True for a dataspace of the extent of the dataset, whose selection lies in it with its offset. For others,
 * calls on bounds fail and leave errors on the stack. */
static bool fits_dataset(Library* library, const KnownDataset* dataset, hid_t space) {
  hsize_t extent[H5S_MAX_RANK];
  /* Ids below the first real one stand for selections that property lists hold. */
  if (space < H5S_IDS || library->H5Sget_simple_extent_ndims(space) != (int)dataset->rank ||
      library->H5Sget_simple_extent_dims(space, extent, NULL) != (int)dataset->rank)
    return false;
  for (unsigned axis = 0; axis < dataset->rank; axis++)
    if (extent[axis] != dataset->extent[axis]) return false;
  return library->H5Sselect_valid(space) > 0;
}

/* A regular hyperslab: blocks along each axis. */
typedef struct {
  hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
} Slab;

/* Finds the regular hyperslab of a valid selection; returns false for one with an offset: the library leaves
 * it out of the hyperslab, while bounds have it. */
static bool slab_found(Library* library, unsigned rank, hid_t space, Slab* slab) {
  hsize_t low[H5S_MAX_RANK], high[H5S_MAX_RANK];
  if (library->H5Sget_regular_hyperslab(space, slab->start, slab->stride, slab->count, slab->block) < 0 ||
      library->H5Sget_select_bounds(space, low, high) < 0)
    return false;
  for (unsigned axis = 0; axis < rank; axis++) {
    hsize_t reach = (slab->count[axis] - 1) * slab->stride[axis] + slab->block[axis] - 1;
    if (slab->count[axis] == 0 || slab->block[axis] == 0 || low[axis] != slab->start[axis] ||
        high[axis] != slab->start[axis] + reach)
      return false;
  }
  return true;
}

bool is_slab_in_place(Library* library, hid_t space) {
  Slab slab;
  int rank = library->H5Sget_simple_extent_ndims(space);
  return rank > 0 && rank <= H5S_MAX_RANK && library->H5Sget_select_type(space) == H5S_SEL_HYPERSLABS &&
         library->H5Sselect_valid(space) > 0 && library->H5Sis_regular_hyperslab(space) > 0 &&
         slab_found(library, (unsigned)rank, space, &slab);
}

static bool select_hyperslab(Library* library, unsigned rank, hid_t space, Selection* selection) {
  Slab slab;
  if (!slab_found(library, rank, space, &slab)) return false;
  for (unsigned axis = 0; axis < rank; axis++)
    if (!select_axis(slab.start[axis], slab.stride[axis], slab.count[axis], slab.block[axis], selection,
                     axis))
      return false;
  return true;
}

/* Finds the one axis along which blocks differ; returns false if there are several, or if they do not ascend.
 * The corners of a block follow each other: the first, then the last. */
static bool listed_axis(const hsize_t* blocks, size_t count, unsigned rank, unsigned* listed) {
  *listed = rank;
  for (size_t at = 1; at < count; at++)
    for (unsigned axis = 0; axis < rank; axis++) {
      const hsize_t *one = blocks + 2 * rank * (at - 1) + axis, *next = one + 2 * rank;
      if (one[0] == next[0] && one[rank] == next[rank]) continue;
      if ((*listed != rank && *listed != axis) || next[0] <= one[rank]) return false;
      *listed = axis;
    }
  return *listed != rank;
}

/* Lists the positions of blocks along an axis; returns false if there are too many, or memory lacks. */
static bool list_positions(const hsize_t* blocks, size_t count, unsigned rank, unsigned axis,
                           Selection* selection) {
  uint64_t total = 0, *list;
  for (size_t at = 0; at < count; at++)
    total += blocks[2 * rank * at + rank + axis] - blocks[2 * rank * at + axis] + 1;
  if (total > LISTED_MAX || (list = malloc(total * sizeof *list)) == NULL) return false;
  selection->listed = list;
  selection->elements.list = list;
  selection->elements.listed = axis;
  selection->count[axis] = total;
  for (size_t at = 0; at < count; at++)
    for (hsize_t place = blocks[2 * rank * at + axis]; place <= blocks[2 * rank * at + rank + axis]; place++)
      *list++ = place;
  return true;
}

/* Describes blocks that differ along one axis alone, as lists of indices make them. */
static bool select_blocks(Library* library, unsigned rank, hid_t space, Selection* selection) {
  hsize_t low[H5S_MAX_RANK], high[H5S_MAX_RANK];
  hssize_t count = library->H5Sget_select_hyper_nblocks(space);
  if (count <= 0 || count > LISTED_MAX || rank == 0) return false;
  hsize_t* blocks = malloc(2 * rank * (size_t)count * sizeof *blocks);
  if (blocks == NULL) return false;
  unsigned listed;
  bool fits = library->H5Sget_select_hyper_blocklist(space, 0, (hsize_t)count, blocks) >= 0 &&
              library->H5Sget_select_bounds(space, low, high) >= 0 &&
              listed_axis(blocks, (size_t)count, rank, &listed);
  const hsize_t* last = blocks + 2 * rank * (size_t)(count - 1);
  for (unsigned axis = 0; fits && axis < rank; axis++) {
    selection->start[axis] = blocks[axis];
    selection->step[axis] = 1;
    selection->count[axis] = blocks[rank + axis] - blocks[axis] + 1;
    fits = low[axis] == blocks[axis] && high[axis] == last[rank + axis];
  }
  fits = fits && list_positions(blocks, (size_t)count, rank, listed, selection);
  free(blocks);
  return fits;
}

static bool select_points(Library* library, unsigned rank, hid_t space, Selection* selection) {
  hsize_t low[H5S_MAX_RANK], high[H5S_MAX_RANK];
  hssize_t points = library->H5Sget_select_npoints(space);
  if (points <= 0 || points > LISTED_MAX || rank == 0) return false;
  hsize_t* found = malloc((size_t)points * rank * sizeof *found);
  if (found == NULL) return false;
  bool fits = library->H5Sget_select_elem_pointlist(space, 0, (hsize_t)points, found) >= 0 &&
              library->H5Sget_select_bounds(space, low, high) >= 0;
  for (unsigned axis = 0; fits && axis < rank; axis++) {
    hsize_t least = found[axis], most = found[axis];
    for (size_t at = axis; at < (size_t)points * rank; at += rank) {
      if (found[at] < least) least = found[at];
      if (found[at] > most) most = found[at];
    }
    fits = least == low[axis] && most == high[axis];
  }
  if (!fits) {
    free(found);
    return false;
  }
  _Static_assert(sizeof(hsize_t) == sizeof(uint64_t), "coordinates are passed on as they are");
  selection->listed = (uint64_t*)found;
  selection->elements.start = selection->listed;
  selection->elements.points = (uint64_t)points;
  selection->total = (uint64_t)points;
  return true;
}

bool selection_of(Library* library, const KnownDataset* dataset, hid_t space, Selection* selection) {
  unsigned rank = dataset->rank;
  selection->listed = NULL;
  selection->elements = (SelectedElements){.rank = rank,
                                           .listed = rank,
                                           .start = selection->start,
                                           .step = selection->step,
                                           .count = selection->count};
  if (space != H5S_ALL && !fits_dataset(library, dataset, space)) return false;
  int form = space == H5S_ALL ? H5S_SEL_ALL : library->H5Sget_select_type(space);
  if (form == H5S_SEL_POINTS) return select_points(library, rank, space, selection);
  if (form == H5S_SEL_ALL)
    select_all(dataset, selection);
  else if (form != H5S_SEL_HYPERSLABS)
    return false;
  else if (library->H5Sis_regular_hyperslab(space) > 0 ? !select_hyperslab(library, rank, space, selection)
                                                       : !select_blocks(library, rank, space, selection))
    return false;
  selection->total = 1;
  for (unsigned axis = 0; axis < rank; axis++) selection->total *= selection->count[axis];
  return true;
}

void selection_freed(Selection* selection) { free(selection->listed); }
