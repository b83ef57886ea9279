/* Reads that the engine supplies. */
#ifndef BEDFORM_VOL_SUPPLIED_READ_H
#define BEDFORM_VOL_SUPPLIED_READ_H

#include "objects.h"

/* A read of one dataset, as the native connector makes it. */
typedef struct {
  VolObject* dataset;
  hid_t type, memory, space, dxpl;
  void* buffer;
  REQ request;
  herr_t status;
} DatasetRead;

/* Makes a read of a dataset in a file that the engine knows: by the engine if it has a part of the elements,
 * else by the native connector. */
herr_t read_known(DatasetRead* read);

#endif
