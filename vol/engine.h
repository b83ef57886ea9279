/* Bedform's C library, loaded when the first file is opened for reading: its knowledge of a file that HDF5
 * has open, and reads that it supplies (crates/bedform-capi/src/hdf5.rs). */
#ifndef BEDFORM_VOL_ENGINE_H
#define BEDFORM_VOL_ENGINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct EngineFile EngineFile;
typedef struct EngineDataset EngineDataset;

/* The uses of reads of a dataset. */
enum { USE_RECORDED = 1, USE_REPLICAS = 2, USE_AHEAD = 4 };

/* The elements of a read. `points` is 0 for a product of positions along each axis; else `start` has the
 * coordinates of so many points, one after the other. */
typedef struct {
  unsigned rank;
  /* The axis whose positions are those of `list`; `rank` if all axes have evenly spaced ones. */
  unsigned listed;
  uint64_t points;
  const uint64_t *start, *step, *count;
  /* As many ascending positions as `count` has for the axis. */
  const uint64_t* list;
} SelectedElements;

typedef struct {
  int (*calls)(void);
  EngineFile* (*file)(int descriptor);
  void (*file_close)(EngineFile*);
  EngineDataset* (*dataset)(const EngineFile*, uint64_t address, unsigned rank, size_t item_size, char* kind);
  unsigned (*uses)(const EngineDataset*);
  void (*dataset_close)(EngineDataset*);
  int (*read)(const EngineDataset*, const SelectedElements*, void* buffer, size_t length, void (*read)(void*),
              void* context);
  void (*end)(void);
} Engine;

/* Returns the engine, which is loaded at the first call; NULL if the library is not there. */
const Engine* engine(void);

/* Returns the engine if it is loaded. */
const Engine* engine_if_loaded(void);

#endif
