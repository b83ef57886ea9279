/* The processes of an MPI communicator, for sessions of Bedform.
 *
 * Compiled into your program, with your MPI: libbedform links no MPI, so one build of it serves all of them.
 *
 *   bf_comm comm;
 *   bf_comm_from_mpi(MPI_COMM_WORLD, &comm);
 *   bf_session_begin(store, &comm, NULL, &session);
 *   ... bf_session_end(session); bf_comm_free(&comm); MPI_Finalize();
 *
 * The communicator is duplicated, so that your messages and Bedform's stay separate. Only a thread that may
 * call MPI may call a session. Waits do not spin: with more processes than cores, a spinning process would
 * take a core from a working one.
 *
 * Licence: Apache-2.0 or MIT, at your choice. */
#ifndef BEDFORM_MPI_H
#define BEDFORM_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "bedform.h"

/* The most bytes of one MPI message, within an int; longer messages are sent in pieces. */
#ifndef BF_MPI_PIECE
#define BF_MPI_PIECE (1 << 30)
#endif

/* Reports a wait that has lasted for `seconds`; returns 0 to continue it, or an error. The first requests
 * receive the pieces of `received`, in order, which tells which peers have not sent. */
static inline int bf_mpi_long_wait(double seconds, MPI_Request *requests, const bf_message *received,
                                   uint64_t received_count) {
  uint64_t i, done, missing_count = 0;
  int gives_up;
  int32_t *missing = NULL;
  if (received_count > 0) missing = (int32_t *)malloc((size_t)received_count * sizeof(int32_t));
  for (i = 0; missing != NULL && i < received_count; i++) {
    int is_missing = 0;
    for (done = 0; done < received[i].length; done += BF_MPI_PIECE) {
      int is_there = 0;
      int code = MPI_Test(requests, &is_there, MPI_STATUS_IGNORE);
      if (code != MPI_SUCCESS) {
        free(missing);
        return code;
      }
      is_missing |= !is_there;
      requests += 1;
    }
    if (is_missing) missing[missing_count++] = received[i].peer;
  }
  gives_up = bf_comm_waits(seconds, missing, missing_count);
  free(missing);
  return gives_up ? MPI_ERR_OTHER : 0;
}

/* Waits for requests; the first ones receive the pieces of `received`. */
static inline int bf_mpi_wait(int count, MPI_Request *requests, const bf_message *received,
                              uint64_t received_count) {
  uint32_t tries = 0;
  int first = 0;
  double start = 0, next = 1;
  while (first < count) {
    int done = 0;
    int code = MPI_Test(requests + first, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return code;
    if (done) {
      first += 1;
    } else {
      double now = bf_comm_rest(tries);
      if (tries == 0) start = now;
      tries += 1;
      if (now - start >= next) {
        code = bf_mpi_long_wait(now - start, requests, received, received_count);
        if (code != 0) return code;
        next += 1;
      }
    }
  }
  return 0;
}

/* Waits for the request that a call of MPI began; returns `code` at once if that call failed. */
static inline int bf_mpi_finish(int code, MPI_Request *request) {
  return code == MPI_SUCCESS ? bf_mpi_wait(1, request, NULL, 0) : code;
}

static inline MPI_Comm bf_mpi_of(void *context) { return *(MPI_Comm *)context; }

static inline int bf_mpi_barrier(void *context) {
  MPI_Request request;
  return bf_mpi_finish(MPI_Ibarrier(bf_mpi_of(context), &request), &request);
}

static inline int bf_mpi_broadcast(void *context, void *bytes, uint64_t length, int32_t root) {
  uint64_t done = 0;
  while (done < length) {
    MPI_Request request;
    uint64_t left = length - done;
    int piece = left < BF_MPI_PIECE ? (int)left : BF_MPI_PIECE;
    int code = MPI_Ibcast((char *)bytes + done, piece, MPI_BYTE, root, bf_mpi_of(context), &request);
    code = bf_mpi_finish(code, &request);
    if (code != 0) return code;
    done += (uint64_t)piece;
  }
  return 0;
}

static inline int bf_mpi_gather(void *context, const void *bytes, void *all, uint64_t length, int32_t root) {
  MPI_Request request;
  int count = (int)length;
  if (length > INT_MAX) return MPI_ERR_COUNT;
  return bf_mpi_finish(MPI_Igather((void *)bytes, count, MPI_BYTE, all, count, MPI_BYTE, root,
                                   bf_mpi_of(context), &request),
                       &request);
}

static inline uint64_t bf_mpi_pieces(const bf_message *messages, uint64_t count) {
  uint64_t pieces = 0, i;
  for (i = 0; i < count; i++) pieces += (messages[i].length + BF_MPI_PIECE - 1) / BF_MPI_PIECE;
  return pieces;
}

/* Begins to send or to receive messages, in pieces. Returns an error code of MPI. */
static inline int bf_mpi_begin(MPI_Comm comm, int sends, const bf_message *messages, uint64_t count,
                               MPI_Request *requests) {
  uint64_t i, done;
  for (i = 0; i < count; i++) {
    for (done = 0; done < messages[i].length; done += BF_MPI_PIECE) {
      uint64_t left = messages[i].length - done;
      int piece = left < BF_MPI_PIECE ? (int)left : BF_MPI_PIECE;
      char *at = (char *)messages[i].bytes + done;
      int code = sends ? MPI_Isend(at, piece, MPI_BYTE, messages[i].peer, 0, comm, requests)
                       : MPI_Irecv(at, piece, MPI_BYTE, messages[i].peer, 0, comm, requests);
      if (code != MPI_SUCCESS) return code;
      requests += 1;
    }
  }
  return 0;
}

static inline int bf_mpi_exchange(void *context, const bf_message *sent, uint64_t sent_count,
                                  const bf_message *received, uint64_t received_count) {
  uint64_t receives = bf_mpi_pieces(received, received_count);
  uint64_t all = receives + bf_mpi_pieces(sent, sent_count);
  MPI_Request *requests;
  int code;
  if (all > INT_MAX) return MPI_ERR_COUNT;
  if (all == 0) return 0;
  requests = (MPI_Request *)malloc((size_t)all * sizeof(MPI_Request));
  if (requests == NULL) return MPI_ERR_NO_MEM;
  code = bf_mpi_begin(bf_mpi_of(context), 0, received, received_count, requests);
  if (code == 0) code = bf_mpi_begin(bf_mpi_of(context), 1, sent, sent_count, requests + receives);
  if (code == 0) code = bf_mpi_wait((int)all, requests, received, received_count);
  /* After an error MPI may still use the requests. */
  if (code == 0) free(requests);
  return code;
}

static inline void bf_mpi_free(void *context) {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (!is_finalized) MPI_Comm_free((MPI_Comm *)context);
  free(context);
}

/* Fills `filled` with the processes of `comm`, and takes ownership of `comm`. */
static inline int bf_mpi_fill(MPI_Comm comm, bf_comm *filled) {
  int rank, size;
  MPI_Comm *context = (MPI_Comm *)malloc(sizeof(MPI_Comm));
  if (context == NULL) return MPI_ERR_NO_MEM;
  *context = comm;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  filled->context = context;
  filled->rank = rank;
  filled->size = size;
  filled->barrier = bf_mpi_barrier;
  filled->broadcast = bf_mpi_broadcast;
  filled->gather = bf_mpi_gather;
  filled->reserved = NULL;
  filled->exchange = bf_mpi_exchange;
  filled->free = bf_mpi_free;
  return 0;
}

/* Fills `comm` with the processes of `mpi`, for bf_session_begin; collective. Returns 0 or an error code of
 * MPI, which must be initialized. bf_comm_free frees `comm`, before MPI_Finalize. */
static inline int bf_comm_from_mpi(MPI_Comm mpi, bf_comm *comm) {
  MPI_Comm copy;
  MPI_Request request;
  int is_initialized = 0, code;
  MPI_Initialized(&is_initialized);
  if (!is_initialized || comm == NULL) return MPI_ERR_OTHER;
  if (mpi == MPI_COMM_NULL) return MPI_ERR_COMM;
  code = bf_mpi_finish(MPI_Comm_idup(mpi, &copy, &request), &request);
  return code == 0 ? bf_mpi_fill(copy, comm) : code;
}

#endif
