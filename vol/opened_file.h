/* Files that are open through the connector, known to the engine or open for writing. */
#ifndef BEDFORM_VOL_OPENED_FILE_H
#define BEDFORM_VOL_OPENED_FILE_H

#include <sys/types.h>

#include "engine.h"
#include "library.h"

/* An open file, shared by the objects that were reached through it. Calls into one library never overlap, so
 * the count needs no lock. */
typedef struct {
  size_t objects;
  /* The engine's view; NULL for a file of which nothing is known. */
  EngineFile* known;
  /* HDF5's number of the file, by which its own objects are told from those behind external links and mounts.
   */
  unsigned long number;
  /* The file's identity, if it is listed below as open for writing. */
  bool is_written;
  dev_t device;
  ino_t inode;
} OpenedFile;

/* Makes the facts of a file that the native connector has just opened with these flags and properties, with
 * one object; NULL if memory lacks: the file is then like one of which nothing is known. */
OpenedFile* opened_file_made(Library* library, void* under, hid_t fapl, unsigned flags);

static inline OpenedFile* opened_file_shared(OpenedFile* file) {
  if (file != NULL) file->objects++;
  return file;
}

/* Takes one object from the count; the facts end with the last. */
void opened_file_left(OpenedFile* file);

/* True if any library of this process has a file of this identity open for writing through the connector. */
bool is_open_for_writing(dev_t device, ino_t inode);

/* Asks for the number of an object's file, and the address of its header; returns false if it has none. */
bool object_found(Library* library, void* under, H5I_type_t type, unsigned long* file, uint64_t* address);

#endif
