! The types of Bedform and the calls of bedform.h, for the module bedform.
!
! Licence: Apache-2.0 or MIT, at your choice.
module bedform_interfaces
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64
  implicit none
  public

  integer, parameter :: bf_index = int64

  integer(c_int), parameter :: BF_OK = 0, BF_NOT_FOUND = 1, BF_EXISTS = 2, &
    BF_INVALID_ARGUMENT = 3, BF_OUT_OF_BOUNDS = 4, BF_UNSUPPORTED = 5, BF_CORRUPT = 6, BF_CONFLICT = 7, &
    BF_SNAPSHOT_MOVED = 8, BF_LIMIT_EXCEEDED = 9, BF_READ_ONLY = 10, BF_PERMISSION_DENIED = 11, &
    BF_NO_SPACE = 12, BF_POISONED = 13, BF_INTERRUPTED = 14, BF_IO = 15, BF_INTERNAL = 100

  type, bind(C) :: bf_store
    integer(c_int64_t) :: id = 0
  end type
  type, bind(C) :: bf_array
    integer(c_int64_t) :: id = 0
  end type
  type, bind(C) :: bf_session
    integer(c_int64_t) :: id = 0
  end type
  type, bind(C) :: bf_decomposition
    integer(c_int64_t) :: id = 0
  end type

  type, bind(C) :: bf_query
    integer(c_int64_t) :: id = 0
  end type
  type, bind(C) :: bf_points
    integer(c_int64_t) :: id = 0
  end type
  type, bind(C) :: bf_batches
    integer(c_int64_t) :: id = 0
  end type

  ! Statistics of the values of an array at the matching elements of a query.
  type, bind(C) :: bf_value_statistics
    integer(c_int64_t) :: count = 0
    real(c_double) :: sum = 0, mean = 0, minimum = 0, maximum = 0
  end type

  ! The processes of a session: bf_comm_from_mpi of the module bedform_mpi fills it.
  type, bind(C) :: bf_comm
    type(c_ptr) :: context = c_null_ptr
    integer(c_int32_t) :: rank = 0, size = 0
    type(c_funptr) :: barrier = c_null_funptr, broadcast = c_null_funptr, &
      gather = c_null_funptr, reserved = c_null_funptr, exchange = c_null_funptr, free = c_null_funptr
  end type

  integer, parameter :: rank_max = 32

  ! The callbacks of bf_convert; each may be c_null_funptr.
  type, bind(C) :: bf_convert_watch
    type(c_ptr) :: context = c_null_ptr
    type(c_funptr) :: progress = c_null_funptr, warning = c_null_funptr
  end type

  ! The findings and changes of bf_recover.
  type, bind(C) :: bf_recovered
    integer(c_int64_t) :: drained_bytes = 0, completed = 0, live = 0, uncommitted_writes = 0, &
      uncommitted_bytes = 0, committed = 0, given_up = 0, damaged = 0, tiers = 0
  end type

  ! A function that stops calls: a result other than 0 does.
  abstract interface
    integer(c_int) function bf_stop(context) bind(C)
      import
      type(c_ptr), value :: context
    end function
  end interface

  ! bf_array_facts of bedform.h.
  type, bind(C) :: facts_type
    integer(c_int32_t) :: rank, reserved
    integer(c_int64_t) :: item_bytes
    integer(c_int64_t) :: shape(rank_max), chunks(rank_max), shards(rank_max)
    character(kind=c_char) :: dtype(64)
  end type

  interface
    integer(c_int) function c_create(path, attributes, options, store) bind(C, name="bf_create")
      import
      character(kind=c_char), intent(in) :: path(*), attributes(*), options(*)
      type(bf_store), intent(out) :: store
    end function
    integer(c_int) function c_open(path, mode, options, store) bind(C, name="bf_open")
      import
      character(kind=c_char), intent(in) :: path(*), mode(*), options(*)
      type(bf_store), intent(out) :: store
    end function
    integer(c_int) function c_snapshot(store, snapshot) bind(C, name="bf_snapshot")
      import
      type(bf_store), value :: store
      type(bf_store), intent(out) :: snapshot
    end function
    integer(c_int) function c_close(store) bind(C, name="bf_close")
      import
      type(bf_store), value :: store
    end function
    integer(c_int) function c_settle(store) bind(C, name="bf_settle")
      import
      type(bf_store), value :: store
    end function
    integer(c_int) function c_settle_together(store, comm, options) bind(C, name="bf_settle_together")
      import
      type(bf_store), value :: store
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in) :: options(*)
    end function
    integer(c_int) function c_attributes(store, path, buffer, capacity, needed) bind(C, name="bf_attributes")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_set_attributes(store, path, attributes) bind(C, name="bf_set_attributes")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*), attributes(*)
    end function
    integer(c_int) function c_kind(store, path, kind) bind(C, name="bf_kind")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), intent(out) :: kind
    end function
    integer(c_int) function c_create_group(store, path, attributes) bind(C, name="bf_create_group")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*), attributes(*)
    end function
    integer(c_int) function c_delete(store, path) bind(C, name="bf_delete")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*)
    end function
    integer(c_int) function c_recover(store, options, recovered, bytes) bind(C, name="bf_recover")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: options(*)
      type(bf_recovered), intent(out) :: recovered
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_create_array(store, path, dtype, rank, shape, dims, chunks, shards, options, &
        array) bind(C, name="bf_create_array")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*), dtype(*), options(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_ptr), value :: dims, chunks, shards
      type(bf_array), intent(out) :: array
    end function
    integer(c_int) function c_open_array(store, path, array) bind(C, name="bf_open_array")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: path(*)
      type(bf_array), intent(out) :: array
    end function
    integer(c_int) function c_close_array(array) bind(C, name="bf_close_array")
      import
      type(bf_array), value :: array
    end function
    integer(c_int) function c_array_info(array, facts, bytes) bind(C, name="bf_array_info")
      import
      type(bf_array), value :: array
      type(facts_type), intent(out) :: facts
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_array_dimension_name(array, axis, buffer, capacity, needed) &
        bind(C, name="bf_array_dimension_name")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: axis
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_array_describe(array, buffer, capacity, needed) &
        bind(C, name="bf_array_describe")
      import
      type(bf_array), value :: array
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_array_explain(array, rank, start, shape, stride, buffer, capacity, needed) &
        bind(C, name="bf_array_explain")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: start(*), shape(*)
      type(c_ptr), value :: stride, buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_convert(source, target, options, watch) bind(C, name="bf_convert")
      import
      character(kind=c_char), intent(in) :: source(*), target(*), options(*)
      type(c_ptr), value :: watch
    end function
    integer(c_int) function c_list(store, buffer, capacity, needed) bind(C, name="bf_list")
      import
      type(bf_store), value :: store
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_read(array, rank, start, shape, stride, buffer, bytes, dtype) &
        bind(C, name="bf_read_as")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: start(*), shape(*)
      type(c_ptr), value :: stride, buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_write(array, rank, start, shape, stride, buffer, bytes, dtype) &
        bind(C, name="bf_write_as")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: start(*), shape(*)
      type(c_ptr), value :: stride, buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_resize(array, rank, shape) bind(C, name="bf_resize")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: shape(*)
    end function
    integer(c_int) function c_append(array, axis, rank, shape, buffer, bytes, start, dtype) &
        bind(C, name="bf_append_as")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: axis, rank
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      integer(c_int64_t), intent(out) :: start
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_read_boxes(array, rank, count, starts, shapes, buffer, bytes, dtype) &
        bind(C, name="bf_read_boxes_as")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: rank
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(in) :: starts(*), shapes(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_read_points(array, rank, count, coordinates, buffer, bytes, dtype) &
        bind(C, name="bf_read_points_as")
      import
      type(bf_array), value :: array
      integer(c_int32_t), value :: rank
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(in) :: coordinates(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_query_open(store, expression, rank, dims, start, shape, options, query) &
        bind(C, name="bf_query_open")
      import
      type(bf_store), value :: store
      character(kind=c_char), intent(in) :: expression(*), dims(*), options(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: start(*), shape(*)
      type(bf_query), intent(out) :: query
    end function
    integer(c_int) function c_query_close(query) bind(C, name="bf_query_close")
      import
      type(bf_query), value :: query
    end function
    integer(c_int) function c_query_rank(query, rank) bind(C, name="bf_query_rank")
      import
      type(bf_query), value :: query
      integer(c_int32_t), intent(out) :: rank
    end function
    integer(c_int) function c_query_dims(query, buffer, capacity, needed) bind(C, name="bf_query_dims")
      import
      type(bf_query), value :: query
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_query_region(query, rank, start, shape) bind(C, name="bf_query_region")
      import
      type(bf_query), value :: query
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(out) :: start(*), shape(*)
    end function
    integer(c_int) function c_query_count(query, count) bind(C, name="bf_query_count")
      import
      type(bf_query), value :: query
      integer(c_int64_t), intent(out) :: count
    end function
    integer(c_int) function c_query_any(query, any) bind(C, name="bf_query_any")
      import
      type(bf_query), value :: query
      integer(c_int), intent(out) :: any
    end function
    integer(c_int) function c_query_count_over(query, over, counts, bytes) bind(C, name="bf_query_count_over")
      import
      type(bf_query), value :: query
      character(kind=c_char), intent(in) :: over(*)
      type(c_ptr), value :: counts
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_query_mask(query, mask, bytes) bind(C, name="bf_query_mask")
      import
      type(bf_query), value :: query
      type(c_ptr), value :: mask
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_query_statistics(query, array, over, statistics, bytes) &
        bind(C, name="bf_query_statistics")
      import
      type(bf_query), value :: query
      character(kind=c_char), intent(in) :: array(*), over(*)
      type(c_ptr), value :: statistics
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_query_histogram(query, array, bins, edges, counts, bytes) &
        bind(C, name="bf_query_histogram")
      import
      type(bf_query), value :: query
      character(kind=c_char), intent(in) :: array(*)
      integer(c_int64_t), value :: bins
      real(c_double), intent(in) :: edges(*)
      integer(c_int64_t), intent(out) :: counts(*)
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_query_explain(query, buffer, capacity, needed) &
        bind(C, name="bf_query_explain")
      import
      type(bf_query), value :: query
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_query_points(query, arrays, limit, points) bind(C, name="bf_query_points")
      import
      type(bf_query), value :: query
      character(kind=c_char), intent(in) :: arrays(*)
      integer(c_int64_t), value :: limit
      type(bf_points), intent(out) :: points
    end function
    integer(c_int) function c_query_batches(query, arrays, memory_bytes, batches) &
        bind(C, name="bf_query_batches")
      import
      type(bf_query), value :: query
      character(kind=c_char), intent(in) :: arrays(*)
      integer(c_int64_t), value :: memory_bytes
      type(bf_batches), intent(out) :: batches
    end function
    integer(c_int) function c_batches_next(batches, points, found) bind(C, name="bf_batches_next")
      import
      type(bf_batches), value :: batches
      type(bf_points), intent(out) :: points
      integer(c_int), intent(out) :: found
    end function
    integer(c_int) function c_batches_close(batches) bind(C, name="bf_batches_close")
      import
      type(bf_batches), value :: batches
    end function
    integer(c_int) function c_points_close(points) bind(C, name="bf_points_close")
      import
      type(bf_points), value :: points
    end function
    integer(c_int) function c_points_count(points, count) bind(C, name="bf_points_count")
      import
      type(bf_points), value :: points
      integer(c_int64_t), intent(out) :: count
    end function
    integer(c_int) function c_points_rank(points, rank) bind(C, name="bf_points_rank")
      import
      type(bf_points), value :: points
      integer(c_int32_t), intent(out) :: rank
    end function
    integer(c_int) function c_points_dims(points, buffer, capacity, needed) bind(C, name="bf_points_dims")
      import
      type(bf_points), value :: points
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_points_positions(points, rank, coordinates, bytes) &
        bind(C, name="bf_points_positions")
      import
      type(bf_points), value :: points
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(out) :: coordinates(*)
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_points_dtype(points, array, buffer, capacity, needed) &
        bind(C, name="bf_points_dtype")
      import
      type(bf_points), value :: points
      character(kind=c_char), intent(in) :: array(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: capacity
      integer(c_int64_t), intent(out) :: needed
    end function
    integer(c_int) function c_points_values(points, array, buffer, bytes, dtype) &
        bind(C, name="bf_points_values_as")
      import
      type(bf_points), value :: points
      character(kind=c_char), intent(in) :: array(*), dtype(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
    end function
    integer(c_int) function c_comm_free(comm) bind(C, name="bf_comm_free")
      import
      type(bf_comm), intent(inout) :: comm
    end function
    integer(c_int) function c_session_begin(store, comm, options, session) bind(C, name="bf_session_begin")
      import
      type(bf_store), value :: store
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in) :: options(*)
      type(bf_session), intent(out) :: session
    end function
    integer(c_int) function c_session_write(session, path, rank, start, shape, buffer, bytes, dtype) &
        bind(C, name="bf_session_write_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: start(*), shape(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_session_write_borrowed(session, path, rank, start, shape, buffer, bytes, &
        token, dtype) bind(C, name="bf_session_write_borrowed_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: start(*), shape(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      integer(c_int64_t), intent(out) :: token
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_session_write_boxes(session, path, rank, count, starts, shapes, buffer, &
        bytes, dtype) bind(C, name="bf_session_write_boxes_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(in) :: starts(*), shapes(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_session_write_points(session, path, rank, count, coordinates, buffer, &
        bytes, dtype) bind(C, name="bf_session_write_points_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(in) :: coordinates(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_session_wait(session, token) bind(C, name="bf_session_wait")
      import
      type(bf_session), value :: session
      integer(c_int64_t), value :: token
    end function
    integer(c_int) function c_session_flush(session) bind(C, name="bf_session_flush")
      import
      type(bf_session), value :: session
    end function
    integer(c_int) function c_session_append(session, path, axis, rank, shape, buffer, bytes, start, &
        dtype) bind(C, name="bf_session_append_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: axis, rank
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      integer(c_int64_t), intent(out) :: start
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_define_begin(store) bind(C, name="bf_define_begin")
      import
      type(bf_store), value :: store
    end function
    integer(c_int) function c_define_end(store) bind(C, name="bf_define_end")
      import
      type(bf_store), value :: store
    end function
    integer(c_int) function c_session_define_end(session, store) bind(C, name="bf_session_define_end")
      import
      type(bf_session), value :: session
      type(bf_store), value :: store
    end function
    integer(c_int) function c_session_resize(session, path, rank, shape) bind(C, name="bf_session_resize")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: rank
      integer(c_int64_t), intent(in) :: shape(*)
    end function
    integer(c_int) function c_decomposition_declare(rank, count, starts, shapes, decomposition) &
        bind(C, name="bf_decomposition_declare")
      import
      integer(c_int32_t), value :: rank
      integer(c_int64_t), value :: count
      integer(c_int64_t), intent(in) :: starts(*), shapes(*)
      type(bf_decomposition), intent(out) :: decomposition
    end function
    integer(c_int) function c_decomposition_free(decomposition) bind(C, name="bf_decomposition_free")
      import
      type(bf_decomposition), value :: decomposition
    end function
    integer(c_int) function c_session_write_decomposed(session, path, record, decomposition, buffer, &
        bytes, dtype) bind(C, name="bf_session_write_decomposed_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int64_t), value :: record
      type(bf_decomposition), value :: decomposition
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_session_write_decomposed_borrowed(session, path, record, decomposition, &
        buffer, bytes, token, dtype) bind(C, name="bf_session_write_decomposed_borrowed_as")
      import
      type(bf_session), value :: session
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int64_t), value :: record
      type(bf_decomposition), value :: decomposition
      type(c_ptr), value :: buffer
      integer(c_int64_t), value :: bytes
      integer(c_int64_t), intent(out) :: token
      character(kind=c_char), intent(in) :: dtype(*)
    end function
    integer(c_int) function c_session_commit(session, number) bind(C, name="bf_session_commit")
      import
      type(bf_session), value :: session
      integer(c_int64_t), intent(out) :: number
    end function
    integer(c_int) function c_session_commit_begin(session) bind(C, name="bf_session_commit_begin")
      import
      type(bf_session), value :: session
    end function
    integer(c_int) function c_session_commit_wait(session, number) bind(C, name="bf_session_commit_wait")
      import
      type(bf_session), value :: session
      integer(c_int64_t), intent(out) :: number
    end function
    integer(c_int) function c_session_drain(session, number) bind(C, name="bf_session_drain")
      import
      type(bf_session), value :: session
      integer(c_int64_t), intent(out) :: number
    end function
    integer(c_int) function c_session_end(session) bind(C, name="bf_session_end")
      import
      type(bf_session), value :: session
    end function
    integer(c_int) function c_session_abort(session) bind(C, name="bf_session_abort")
      import
      type(bf_session), value :: session
    end function
    integer(c_int) function c_set_stop(stop, context) bind(C, name="bf_set_stop")
      import
      type(c_funptr), value :: stop
      type(c_ptr), value :: context
    end function
    ! For the functions of a bf_comm of your own, which call these themselves.
    integer(c_int) function bf_comm_waits(seconds, missing, count) bind(C, name="bf_comm_waits")
      import
      real(c_double), value :: seconds
      integer(c_int32_t), intent(in) :: missing(*)
      integer(c_int64_t), value :: count
    end function
    real(c_double) function bf_comm_rest(tries) bind(C, name="bf_comm_rest")
      import
      integer(c_int32_t), value :: tries
    end function
    type(c_ptr) function c_status_name(status) bind(C, name="bf_status_name")
      import
      integer(c_int), value :: status
    end function
    type(c_ptr) function c_last_error() bind(C, name="bf_last_error")
      import
    end function
    type(c_ptr) function c_version() bind(C, name="bf_version")
      import
    end function
    integer(c_size_t) function c_strlen(text) bind(C, name="strlen")
      import
      type(c_ptr), value :: text
    end function
  end interface

end module bedform_interfaces
