/* Datasets of files that the engine knows. */
#ifndef BEDFORM_VOL_KNOWN_DATASET_H
#define BEDFORM_VOL_KNOWN_DATASET_H

#include "objects.h"

/* A type of numbers that HDF5 and the engine hold in the same bytes, apart from their order. */
typedef struct {
  /* 'i' and 'u' for integers, 'f' for IEEE floats, '-' for any other type. */
  char kind;
  size_t size;
  bool is_big_endian;
} NumberType;

struct KnownDataset {
  /* NULL for a dataset that is left to the library. */
  EngineDataset* dataset;
  /* '-' for elements that the engine never supplies: reads are only recorded. */
  NumberType type;
  /* The engine's uses of its reads, and the number of reads until it is asked again. */
  unsigned uses, reads_left;
  unsigned rank;
  hsize_t extent[H5S_MAX_RANK];
};

/* Returns the dataset of an object, which is asked for at the first call; NULL if a read is left to the
 * library. */
const KnownDataset* known_dataset_of(VolObject* object);

void known_dataset_freed(KnownDataset* dataset);

NumberType number_type(Library* library, hid_t type);

#endif
