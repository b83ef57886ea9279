#include "opened_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Files of this process that are open for writing. */
typedef struct Writer {
  struct Writer* next;
  dev_t device;
  ino_t inode;
  size_t times;
} Writer;

static Writer* writers;
static _Atomic size_t writers_count;
static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;

static Writer** place_of(dev_t device, ino_t inode) {
  Writer** place = &writers;
  while (*place != NULL && ((*place)->device != device || (*place)->inode != inode)) place = &(*place)->next;
  return place;
}

static bool writer_listed(dev_t device, ino_t inode) {
  pthread_mutex_lock(&listing);
  Writer* found = *place_of(device, inode);
  if (found == NULL && (found = malloc(sizeof *found)) != NULL) {
    *found = (Writer){.next = writers, .device = device, .inode = inode};
    writers = found;
    atomic_fetch_add(&writers_count, 1);
  }
  if (found != NULL) found->times++;
  pthread_mutex_unlock(&listing);
  return found != NULL;
}

static void writer_left(dev_t device, ino_t inode) {
  pthread_mutex_lock(&listing);
  Writer **place = place_of(device, inode), *found = *place;
  if (found != NULL && --found->times == 0) {
    *place = found->next;
    atomic_fetch_sub(&writers_count, 1);
    free(found);
  }
  pthread_mutex_unlock(&listing);
}

bool is_open_for_writing(dev_t device, ino_t inode) {
  if (atomic_load_explicit(&writers_count, memory_order_acquire) == 0) return false;
  pthread_mutex_lock(&listing);
  bool is_listed = *place_of(device, inode) != NULL;
  pthread_mutex_unlock(&listing);
  return is_listed;
}

bool object_found(Library* library, void* under, H5I_type_t type, unsigned long* file, uint64_t* address) {
  H5O_info2 info = {0};
  H5VL_loc_params itself = {.obj_type = type, .type = H5VL_OBJECT_BY_SELF};
  H5VL_object_get_args asked = {.op_type = H5VL_OBJECT_GET_INFO,
                                .args = {.get_info = {.fields = H5O_INFO_BASIC, .oinfo = &info}}};
  if (library->H5VLobject_get(under, &itself, library->native, &asked, *library->default_transfer, NULL) < 0)
    return false;
  *file = info.fileno;
  *address = 0;
  for (int at = 7; at >= 0; at--) *address = *address << 8 | info.token.bytes[at];
  return true;
}

/* Returns the descriptor of a local file; -1 if another driver reads it. */
static int descriptor_of(Library* library, void* under, hid_t fapl) {
  hid_t local = library->local_driver != NULL        ? *library->local_driver
                : library->local_driver_1_14 != NULL ? library->local_driver_1_14()
                                                     : H5I_INVALID_HID;
  if (local < 0 || library->H5Pget_driver(fapl) != local || library->default_transfer == NULL) return -1;
  void* handle = NULL;
  H5VL_native_file_optional_args where = {.fapl_id = fapl, .file_handle = &handle};
  H5VL_optional_args asked = {.op_type = H5VL_NATIVE_FILE_GET_VFD_HANDLE, .args = &where};
  herr_t status =
      library->H5VLfile_optional(under, library->native, &asked, *library->default_transfer, NULL);
  return status < 0 || handle == NULL ? -1 : *(int*)handle;
}

OpenedFile* opened_file_made(Library* library, void* under, hid_t fapl, unsigned flags) {
  OpenedFile* file = malloc(sizeof *file);
  struct stat found;
  if (file == NULL) return NULL;
  *file = (OpenedFile){.objects = 1};
  int descriptor = descriptor_of(library, under, fapl);
  if (descriptor < 0 || fstat(descriptor, &found) != 0) return file;
  file->device = found.st_dev;
  file->inode = found.st_ino;
  if ((flags & H5F_ACC_RDWR) != 0) {
    file->is_written = writer_listed(found.st_dev, found.st_ino);
    return file;
  }
  /* Files that are open for writing, or read while another program appends, are left to the library. */
  const Engine* known = flags == 0 ? engine() : NULL;
  uint64_t root;
  if (known != NULL) file->known = known->file(descriptor);
  if (file->known != NULL && !object_found(library, under, H5I_FILE, &file->number, &root)) {
    known->file_close(file->known);
    file->known = NULL;
  }
  return file;
}

void opened_file_left(OpenedFile* file) {
  if (file == NULL || --file->objects > 0) return;
  if (file->known != NULL) engine()->file_close(file->known);
  if (file->is_written) writer_left(file->device, file->inode);
  free(file);
}
