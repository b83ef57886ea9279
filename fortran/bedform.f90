! Bedform: storage for scientific arrays, in Fortran.
!
! docs/c-api.md is the guide, bedform.h the reference of each call. Fortran differs in these points:
!
! - Dimensions are in Fortran's order: the first varies fastest, and is the last one of the store. An array
!   t(x, y, step) here is t(step, y, x) in Python and C.
! - Indices begin at 1. They and shapes are integer(bf_index), of 64 bits.
! - The shape of a box is that of the data. Data with fewer dimensions than the array have length 1 along the
!   last ones: a plane u(x, y) is written into t(x, y, step) at [1, 1, step].
! - Data are arrays or scalars of an integer, real, complex or logical kind. The call passes their type: they
!   are converted if that keeps every value of the type, as from default integers to reals of 64 bits; other
!   types result in BF_INVALID_ARGUMENT. The compiler copies an array section that is not contiguous.
! - Data of the calls that end with _borrowed must be variables, contiguous, and have the attribute target or
!   asynchronous.
! - Every call has an optional argument `status`. Without it an error stops the program, with its text. An
!   argument after `status` is given by its name: bf_read(t, [1_bf_index], x, stride=[2_bf_index]).
!
! The modules are Fortran 2018, for data of any rank: gfortran needs its default, -std=f2018 or -std=f2008ts.
!
! Licence: Apache-2.0 or MIT, at your choice.
! Shared by the modules below: conversions of arguments, and calls with data of any type.
module bedform_raw
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64, error_unit
  use bedform_interfaces
  implicit none
  public

contains

  ! Returns the error text of this thread's last failed call.
  function bf_last_error() result(text)
    character(:), allocatable :: text
    text = text_at(c_last_error())
  end function

  function text_at(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    call c_f_pointer(pointer, letters, [c_strlen(pointer)])
    allocate (character(size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  ! Sets the caller's `status` if it is present; without it an error stops the program.
  subroutine settle_status(code, status)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: status
    if (present(status)) then
      status = code
    else if (code /= BF_OK) then
      write (error_unit, "(a)") "bedform: " // bf_last_error()
      error stop 1
    end if
  end subroutine

  ! Converts a text to C, with a NUL at its end; an absent text becomes empty.
  function c_text(text) result(terminated)
    character(*), intent(in), optional :: text
    character(:), allocatable :: terminated
    terminated = c_null_char
    if (present(text)) terminated = trim(text) // c_null_char
  end function

  pure function reversed(numbers) result(other)
    integer(bf_index), intent(in) :: numbers(:)
    integer(c_int64_t) :: other(size(numbers))
    other = numbers(size(numbers):1:-1)
  end function

  ! Converts a box to C's order, with the start counted from 0. Data with fewer dimensions have length 1 along
  ! the rest.
  pure function c_box(start, extents) result(box)
    integer(bf_index), intent(in) :: start(:), extents(:)
    integer(c_int64_t) :: box(max(size(start), size(extents)), 2)
    integer :: rank
    rank = size(box, 1)
    box(:, 1) = 0
    box(:, 2) = 1
    box(rank:rank - size(start) + 1:-1, 1) = start - 1
    box(rank:rank - size(extents) + 1:-1, 2) = extents
  end function

  ! Converts strides to C's order; along dimensions beyond the given ones they are 1.
  pure function c_stride(stride, rank) result(steps)
    integer(bf_index), intent(in), optional :: stride(:)
    integer, intent(in) :: rank
    integer(c_int64_t) :: steps(rank)
    integer :: given
    steps = 1
    if (.not. present(stride)) return
    given = min(size(stride), rank)
    steps(rank:rank - given + 1:-1) = stride(:given)
  end function

  ! Converts boxes or points, one a column, to C's order; `first` is the number of the first index.
  pure function c_columns(columns, first) result(other)
    integer(bf_index), intent(in) :: columns(:, :)
    integer, intent(in) :: first
    integer(c_int64_t), allocatable :: other(:, :)
    allocate (other(size(columns, 1), size(columns, 2)))
    other = columns(size(columns, 1):1:-1, :) - first
  end function

  ! Returns the name of the type, or one that C refuses with an explanation, if elements do not follow each
  ! other in memory.
  pure function of_contiguous(dtype, is_contiguous) result(name)
    character(*), intent(in) :: dtype
    logical, intent(in) :: is_contiguous
    character(:), allocatable :: name
    name = dtype
    if (.not. is_contiguous) name = dtype // " with gaps"
  end function

  ! Returns the number of boxes; a negative one, which C refuses, if starts and shapes are not alike.
  pure function box_count(starts, shapes) result(count)
    integer(bf_index), intent(in) :: starts(:, :), shapes(:, :)
    integer(c_int64_t) :: count
    count = size(starts, 2, int64)
    if (any(shape(starts) /= shape(shapes))) count = -1
  end function

  subroutine read_raw(array, start, extents, data, bytes, dtype, status, stride)
    type(bf_array), intent(in) :: array
    integer(bf_index), intent(in) :: start(:), extents(:)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    integer(bf_index), intent(in), optional :: stride(:)
    integer(c_int64_t) :: box(max(size(start), size(extents)), 2)
    integer(c_int64_t), target :: steps(max(size(start), size(extents)))
    type(c_ptr) :: steps_at
    box = c_box(start, extents)
    steps = c_stride(stride, size(steps))
    steps_at = c_null_ptr
    if (present(stride)) steps_at = c_loc(steps)
    call settle_status(c_read(array, size(box, 1), box(:, 1), box(:, 2), steps_at, data, bytes, &
      c_text(dtype)), status)
  end subroutine

  subroutine write_raw(array, start, extents, data, bytes, dtype, status, stride)
    type(bf_array), intent(in) :: array
    integer(bf_index), intent(in) :: start(:), extents(:)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    integer(bf_index), intent(in), optional :: stride(:)
    integer(c_int64_t) :: box(max(size(start), size(extents)), 2)
    integer(c_int64_t), target :: steps(max(size(start), size(extents)))
    type(c_ptr) :: steps_at
    box = c_box(start, extents)
    steps = c_stride(stride, size(steps))
    steps_at = c_null_ptr
    if (present(stride)) steps_at = c_loc(steps)
    call settle_status(c_write(array, size(box, 1), box(:, 1), box(:, 2), steps_at, data, bytes, &
      c_text(dtype)), status)
  end subroutine

  subroutine read_boxes_raw(array, starts, shapes, data, bytes, dtype, status)
    type(bf_array), intent(in) :: array
    integer(bf_index), intent(in) :: starts(:, :), shapes(:, :)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    call settle_status(c_read_boxes(array, size(starts, 1), box_count(starts, shapes), c_columns(starts, 1), &
      c_columns(shapes, 0), data, bytes, c_text(dtype)), status)
  end subroutine

  subroutine read_points_raw(array, coordinates, data, bytes, dtype, status)
    type(bf_array), intent(in) :: array
    integer(bf_index), intent(in) :: coordinates(:, :)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    call settle_status(c_read_points(array, size(coordinates, 1), size(coordinates, 2, int64), &
      c_columns(coordinates, 1), data, bytes, c_text(dtype)), status)
  end subroutine

  subroutine session_write_raw(session, path, start, extents, data, bytes, dtype, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: start(:), extents(:)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    integer(c_int64_t) :: box(max(size(start), size(extents)), 2)
    box = c_box(start, extents)
    call settle_status(c_session_write(session, c_text(path), size(box, 1), box(:, 1), box(:, 2), data, &
      bytes, c_text(dtype)), status)
  end subroutine

  subroutine session_lend_raw(session, path, start, extents, data, bytes, dtype, token, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: start(:), extents(:)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer(bf_index), intent(out) :: token
    integer, intent(out), optional :: status
    integer(c_int64_t) :: box(max(size(start), size(extents)), 2)
    box = c_box(start, extents)
    call settle_status(c_session_write_borrowed(session, c_text(path), size(box, 1), box(:, 1), &
      box(:, 2), data, bytes, token, c_text(dtype)), status)
  end subroutine

  subroutine session_write_boxes_raw(session, path, starts, shapes, data, bytes, dtype, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: starts(:, :), shapes(:, :)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    call settle_status(c_session_write_boxes(session, c_text(path), size(starts, 1), &
      box_count(starts, shapes), c_columns(starts, 1), c_columns(shapes, 0), data, bytes, c_text(dtype)), &
      status)
  end subroutine

  subroutine session_write_points_raw(session, path, coordinates, data, bytes, dtype, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: coordinates(:, :)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    call settle_status(c_session_write_points(session, c_text(path), size(coordinates, 1), &
      size(coordinates, 2, int64), c_columns(coordinates, 1), data, bytes, c_text(dtype)), status)
  end subroutine

  ! Appends along a dimension; `start` receives the first new index along it.
  subroutine append_raw(array, dimension, extents, data, bytes, dtype, start, status)
    type(bf_array), intent(in) :: array
    integer, intent(in) :: dimension
    integer(bf_index), intent(in) :: extents(:)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer(bf_index), intent(out), optional :: start
    integer, intent(out), optional :: status
    integer(c_int64_t) :: at
    integer(c_int) :: code
    at = 0
    code = c_append(array, size(extents) - dimension, size(extents), reversed(extents), data, bytes, at, &
      c_text(dtype))
    if (present(start)) start = at + 1
    call settle_status(code, status)
  end subroutine

  subroutine session_append_raw(session, path, dimension, extents, data, bytes, dtype, start, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer, intent(in) :: dimension
    integer(bf_index), intent(in) :: extents(:)
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer(bf_index), intent(out), optional :: start
    integer, intent(out), optional :: status
    integer(c_int64_t) :: at
    integer(c_int) :: code
    at = 0
    code = c_session_append(session, c_text(path), size(extents) - dimension, size(extents), &
      reversed(extents), data, bytes, at, c_text(dtype))
    if (present(start)) start = at + 1
    call settle_status(code, status)
  end subroutine

  ! Writes the boxes of a decomposition. For an array with one more dimension, `record` is the index along the
  ! last one, from 1; for an array of the same rank it is 0.
  subroutine session_write_decomposed_raw(session, path, record, decomposition, data, bytes, dtype, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: record
    type(bf_decomposition), intent(in) :: decomposition
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer, intent(out), optional :: status
    call settle_status(c_session_write_decomposed(session, c_text(path), record - 1, decomposition, data, &
      bytes, c_text(dtype)), status)
  end subroutine

  subroutine session_lend_decomposed_raw(session, path, record, decomposition, data, bytes, dtype, token, &
      status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: record
    type(bf_decomposition), intent(in) :: decomposition
    type(c_ptr), intent(in) :: data
    integer(int64), intent(in) :: bytes
    character(*), intent(in) :: dtype
    integer(bf_index), intent(out) :: token
    integer, intent(out), optional :: status
    call settle_status(c_session_write_decomposed_borrowed(session, c_text(path), record - 1, &
      decomposition, data, bytes, token, c_text(dtype)), status)
  end subroutine

end module bedform_raw

! The calls with data, a module for each kind. Their text is the same: the IMPLICIT statement gives `data` its
! type, and `dtype` is its name in C.
module bedform_int8
  use bedform_raw
  implicit integer(int8) (d)
  character(*), parameter :: dtype = "int8"
  include "bedform_data.inc"
end module bedform_int8

module bedform_int16
  use bedform_raw
  implicit integer(int16) (d)
  character(*), parameter :: dtype = "int16"
  include "bedform_data.inc"
end module bedform_int16

module bedform_int32
  use bedform_raw
  implicit integer(int32) (d)
  character(*), parameter :: dtype = "int32"
  include "bedform_data.inc"
end module bedform_int32

module bedform_int64
  use bedform_raw
  implicit integer(int64) (d)
  character(*), parameter :: dtype = "int64"
  include "bedform_data.inc"
end module bedform_int64

module bedform_real32
  use bedform_raw
  implicit real(real32) (d)
  character(*), parameter :: dtype = "float32"
  include "bedform_data.inc"
end module bedform_real32

module bedform_real64
  use bedform_raw
  implicit real(real64) (d)
  character(*), parameter :: dtype = "float64"
  include "bedform_data.inc"
end module bedform_real64

module bedform_complex64
  use bedform_raw
  implicit complex(real32) (d)
  character(*), parameter :: dtype = "complex64"
  include "bedform_data.inc"
end module bedform_complex64

module bedform_complex128
  use bedform_raw
  implicit complex(real64) (d)
  character(*), parameter :: dtype = "complex128"
  include "bedform_data.inc"
end module bedform_complex128

module bedform_logical8
  use bedform_raw
  implicit logical(int8) (d)
  character(*), parameter :: dtype = "logical8"
  include "bedform_data.inc"
end module bedform_logical8

module bedform_logical16
  use bedform_raw
  implicit logical(int16) (d)
  character(*), parameter :: dtype = "logical16"
  include "bedform_data.inc"
end module bedform_logical16

module bedform_logical32
  use bedform_raw
  implicit logical(int32) (d)
  character(*), parameter :: dtype = "logical32"
  include "bedform_data.inc"
end module bedform_logical32

module bedform_logical64
  use bedform_raw
  implicit logical(int64) (d)
  character(*), parameter :: dtype = "logical64"
  include "bedform_data.inc"
end module bedform_logical64

module bedform
  use bedform_raw
  use bedform_int8
  use bedform_int16
  use bedform_int32
  use bedform_int64
  use bedform_real32
  use bedform_real64
  use bedform_complex64
  use bedform_complex128
  use bedform_logical8
  use bedform_logical16
  use bedform_logical32
  use bedform_logical64
  implicit none
  private

  public :: bf_index, bf_store, bf_array, bf_session, bf_decomposition, bf_comm, bf_array_facts, &
    bf_convert_watch, bf_recovered, bf_stop, BF_OK, BF_NOT_FOUND, &
    BF_EXISTS, BF_INVALID_ARGUMENT, BF_OUT_OF_BOUNDS, BF_UNSUPPORTED, BF_CORRUPT, BF_CONFLICT, &
    BF_SNAPSHOT_MOVED, BF_LIMIT_EXCEEDED, BF_READ_ONLY, BF_PERMISSION_DENIED, BF_NO_SPACE, BF_POISONED, &
    BF_INTERRUPTED, BF_IO, BF_INTERNAL, bf_query, bf_points, bf_batches, bf_value_statistics
  public :: bf_last_error, bf_version, bf_create, bf_open, bf_close, bf_create_array, bf_open_array, &
    bf_close_array, bf_array_shape, bf_attributes, bf_set_attributes, bf_resize, bf_settle, bf_comm_free, &
    bf_session_begin, bf_session_commit, bf_session_commit_begin, bf_session_commit_wait, &
    bf_session_drain, bf_session_end, bf_session_abort, bf_session_resize, bf_settle_together, &
    bf_decomposition_declare, bf_decomposition_free, bf_read, bf_write, bf_append, bf_session_write, &
    bf_session_write_decomposed, bf_session_append, bf_define_begin, bf_define_end, bf_session_define_end, &
    bf_list, bf_array_explain, bf_convert, bf_snapshot, bf_status_name, bf_set_stop, bf_kind, &
    bf_create_group, bf_delete, bf_recover, bf_array_info, bf_array_dimension_name, bf_array_describe, &
    bf_read_boxes, bf_read_points, bf_session_write_borrowed, bf_session_write_decomposed_borrowed, &
    bf_session_write_boxes, bf_session_write_points, bf_session_wait, bf_session_flush, bf_comm_waits, &
    bf_comm_rest, bf_query_open, bf_query_close, bf_query_rank, bf_query_dims, bf_query_region, &
    bf_query_count, bf_query_any, bf_query_count_over, bf_query_mask, bf_query_statistics, &
    bf_query_histogram, bf_query_explain, bf_query_points, bf_query_batches, bf_batches_next, &
    bf_batches_close, bf_points_close, bf_points_count, bf_points_rank, bf_points_dims, &
    bf_points_positions, bf_points_dtype, bf_points_values

  ! The facts of an array; dimensions are in Fortran's order.
  type :: bf_array_facts
    character(:), allocatable :: dtype
    integer(bf_index) :: item_bytes = 0
    integer(bf_index), allocatable :: shape(:), chunks(:), shards(:)
  end type

contains

  ! Returns the name of a status: "NotFound".
  function bf_status_name(code) result(text)
    integer, intent(in) :: code
    character(:), allocatable :: text
    text = text_at(c_status_name(int(code, c_int)))
  end function

  ! Sets the function that can stop the calls of this thread; without `stop` removes it. `stop` is called with
  ! `context`.
  subroutine bf_set_stop(stop, context, status)
    procedure(bf_stop), optional :: stop
    type(c_ptr), intent(in), optional :: context
    integer, intent(out), optional :: status
    type(c_funptr) :: stop_at
    type(c_ptr) :: context_at
    stop_at = c_null_funptr
    context_at = c_null_ptr
    if (present(stop)) stop_at = c_funloc(stop)
    if (present(context)) context_at = context
    call settle_status(c_set_stop(stop_at, context_at), status)
  end subroutine

  function bf_version() result(text)
    character(:), allocatable :: text
    text = text_at(c_version())
  end function

  subroutine bf_create(path, store, attributes, options, status)
    character(*), intent(in) :: path
    type(bf_store), intent(out) :: store
    character(*), intent(in), optional :: attributes, options
    integer, intent(out), optional :: status
    call settle_status(c_create(c_text(path), c_text(attributes), c_text(options), store), status)
  end subroutine

  subroutine bf_open(path, mode, store, options, status)
    character(*), intent(in) :: path, mode
    type(bf_store), intent(out) :: store
    character(*), intent(in), optional :: options
    integer, intent(out), optional :: status
    call settle_status(c_open(c_text(path), c_text(mode), c_text(options), store), status)
  end subroutine

  ! Opens a read-only snapshot of the store: its arrays, groups and attributes at this moment.
  subroutine bf_snapshot(store, snapshot, status)
    type(bf_store), intent(in) :: store
    type(bf_store), intent(out) :: snapshot
    integer, intent(out), optional :: status
    call settle_status(c_snapshot(store, snapshot), status)
  end subroutine

  subroutine bf_close(store, status)
    type(bf_store), intent(in) :: store
    integer, intent(out), optional :: status
    call settle_status(c_close(store), status)
  end subroutine

  subroutine bf_settle(store, status)
    type(bf_store), intent(in) :: store
    integer, intent(out), optional :: status
    call settle_status(c_settle(store), status)
  end subroutine

  ! Settles as bf_settle does, with the work shared by all processes of `comm`; collective. Without `comm` by
  ! this process alone.
  subroutine bf_settle_together(store, comm, options, status)
    type(bf_store), intent(in) :: store
    type(bf_comm), intent(in), optional, target :: comm
    character(*), intent(in), optional :: options
    integer, intent(out), optional :: status
    type(c_ptr) :: comm_at
    comm_at = c_null_ptr
    if (present(comm)) comm_at = c_loc(comm)
    call settle_status(c_settle_together(store, comm_at, c_text(options)), status)
  end subroutine

  ! Returns the attributes of an array or group ("" is the root), as JSON.
  subroutine bf_attributes(store, path, attributes, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path
    character(:), allocatable, intent(out) :: attributes
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_attributes(store, c_text(path), c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_attributes(store, c_text(path), c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) attributes = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  ! Lists all arrays and groups below the root, as JSON.
  subroutine bf_list(store, nodes, status)
    type(bf_store), intent(in) :: store
    character(:), allocatable, intent(out) :: nodes
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_list(store, c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_list(store, c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) nodes = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  ! Looks up the kind of the object at a path: "array", "group", or "" if there is none.
  subroutine bf_kind(store, path, kind, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path
    character(:), allocatable, intent(out) :: kind
    integer, intent(out), optional :: status
    integer(c_int) :: number, code
    number = 0
    code = c_kind(store, c_text(path), number)
    kind = ""
    if (number == 1) kind = "array"
    if (number == 2) kind = "group"
    call settle_status(code, status)
  end subroutine

  subroutine bf_create_group(store, path, attributes, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path
    character(*), intent(in), optional :: attributes
    integer, intent(out), optional :: status
    call settle_status(c_create_group(store, c_text(path), c_text(attributes)), status)
  end subroutine

  ! Deletes an array, or a group with all arrays and groups below it.
  subroutine bf_delete(store, path, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path
    integer, intent(out), optional :: status
    call settle_status(c_delete(store, c_text(path)), status)
  end subroutine

  ! Finds the remains of dead writers, makes promised commits visible, and counts uncommitted writes.
  subroutine bf_recover(store, options, recovered, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in), optional :: options
    type(bf_recovered), intent(out), optional :: recovered
    integer, intent(out), optional :: status
    type(bf_recovered) :: found
    integer(c_int) :: code
    code = c_recover(store, c_text(options), found, c_sizeof(found))
    if (present(recovered)) recovered = found
    call settle_status(code, status)
  end subroutine

  ! Converts a store or foreign file; axes and lengths in `options` are in the order of the store, as in C.
  subroutine bf_convert(source, target, options, status, watch)
    character(*), intent(in) :: source, target
    character(*), intent(in), optional :: options
    integer, intent(out), optional :: status
    type(bf_convert_watch), intent(in), optional, target :: watch
    type(c_ptr) :: watch_at
    watch_at = c_null_ptr
    if (present(watch)) watch_at = c_loc(watch)
    call settle_status(c_convert(c_text(source), c_text(target), c_text(options), watch_at), status)
  end subroutine

  subroutine bf_set_attributes(store, path, attributes, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path, attributes
    integer, intent(out), optional :: status
    call settle_status(c_set_attributes(store, c_text(path), c_text(attributes)), status)
  end subroutine

  ! Creates an array. `shape`, `chunks`, `shards` and the names in `dims` ("x,y,step") are in Fortran's order;
  ! the order of names in `options` has no meaning.
  subroutine bf_create_array(store, path, dtype, shape, dims, chunks, shards, options, array, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path, dtype
    integer(bf_index), intent(in) :: shape(:)
    character(*), intent(in), optional :: dims, options
    integer(bf_index), intent(in), optional :: chunks(:), shards(:)
    type(bf_array), intent(out), optional :: array
    integer, intent(out), optional :: status
    type(bf_array) :: made
    integer(c_int64_t), target :: own_chunks(size(shape)), own_shards(size(shape))
    character(:), allocatable, target :: names
    type(c_ptr) :: names_at, chunks_at, shards_at
    integer(c_int) :: code
    names_at = c_null_ptr
    chunks_at = c_null_ptr
    shards_at = c_null_ptr
    if (present(dims)) then
      names = reversed_names(dims) // c_null_char
      names_at = c_loc(names)
    end if
    if (present(chunks)) then
      own_chunks = 0
      own_chunks(:min(size(chunks), size(shape))) = reversed(chunks(:min(size(chunks), size(shape))))
      chunks_at = c_loc(own_chunks)
    end if
    if (present(shards)) then
      own_shards = 0
      own_shards(:min(size(shards), size(shape))) = reversed(shards(:min(size(shards), size(shape))))
      shards_at = c_loc(own_shards)
    end if
    code = c_create_array(store, c_text(path), c_text(dtype), int(size(shape), c_int32_t), reversed(shape), &
      names_at, chunks_at, shards_at, c_text(options), made)
    if (present(array)) then
      array = made
    else if (code == BF_OK) then
      code = c_close_array(made)
    end if
    call settle_status(code, status)
  end subroutine

  recursive pure function reversed_names(names) result(other)
    character(*), intent(in) :: names
    character(:), allocatable :: other
    integer :: comma
    comma = index(names, ",")
    if (comma == 0) then
      other = trim(adjustl(names))
    else
      other = reversed_names(names(comma + 1:)) // "," // trim(adjustl(names(:comma - 1)))
    end if
  end function

  subroutine bf_open_array(store, path, array, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: path
    type(bf_array), intent(out) :: array
    integer, intent(out), optional :: status
    call settle_status(c_open_array(store, c_text(path), array), status)
  end subroutine

  subroutine bf_close_array(array, status)
    type(bf_array), intent(in) :: array
    integer, intent(out), optional :: status
    call settle_status(c_close_array(array), status)
  end subroutine

  ! Returns the present number of elements along each dimension.
  subroutine bf_array_shape(array, shape, status)
    type(bf_array), intent(in) :: array
    integer(bf_index), allocatable, intent(out) :: shape(:)
    integer, intent(out), optional :: status
    type(facts_type) :: facts
    integer(c_int) :: code
    code = c_array_info(array, facts, c_sizeof(facts))
    if (code == BF_OK) then
      shape = facts%shape(facts%rank:1:-1)
    else
      allocate (shape(0))
    end if
    call settle_status(code, status)
  end subroutine

  ! Returns the present facts of the array.
  subroutine bf_array_info(array, facts, status)
    type(bf_array), intent(in) :: array
    type(bf_array_facts), intent(out) :: facts
    integer, intent(out), optional :: status
    type(facts_type), target :: own
    integer(c_int) :: code
    code = c_array_info(array, own, c_sizeof(own))
    if (code /= BF_OK) own%rank = 0
    facts%shape = own%shape(own%rank:1:-1)
    facts%chunks = own%chunks(own%rank:1:-1)
    facts%shards = own%shards(own%rank:1:-1)
    facts%dtype = ""
    if (code == BF_OK) then
      facts%item_bytes = own%item_bytes
      facts%dtype = text_at(c_loc(own%dtype))
    end if
    call settle_status(code, status)
  end subroutine

  ! Returns the name of a dimension, counted from 1 in Fortran's order; empty if it has none.
  subroutine bf_array_dimension_name(array, dimension, name, status)
    type(bf_array), intent(in) :: array
    integer, intent(in) :: dimension
    character(:), allocatable, intent(out) :: name
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(bf_index), allocatable :: shape(:)
    integer(c_int64_t) :: needed
    integer(c_int32_t) :: axis
    integer :: code
    call bf_array_shape(array, shape, code)
    axis = size(shape) - dimension
    needed = 0
    if (code == BF_OK) code = c_array_dimension_name(array, axis, c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_array_dimension_name(array, axis, c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) name = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  ! Describes the array, as JSON; lengths and names are in the order of the store, as in C.
  subroutine bf_array_describe(array, description, status)
    type(bf_array), intent(in) :: array
    character(:), allocatable, intent(out) :: description
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_array_describe(array, c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_array_describe(array, c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) description = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  ! Returns the plan of a read of the box of `shape` at `start`, as JSON.
  subroutine bf_array_explain(array, start, shape, explanation, status, stride)
    type(bf_array), intent(in) :: array
    integer(bf_index), intent(in) :: start(:), shape(:)
    character(:), allocatable, intent(out) :: explanation
    integer, intent(out), optional :: status
    integer(bf_index), intent(in), optional :: stride(:)
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed, box(max(size(start), size(shape)), 2)
    integer(c_int64_t), target :: steps(max(size(start), size(shape)))
    type(c_ptr) :: steps_at
    integer(c_int) :: code
    box = c_box(start, shape)
    steps = c_stride(stride, size(steps))
    steps_at = c_null_ptr
    if (present(stride)) steps_at = c_loc(steps)
    needed = 0
    code = c_array_explain(array, size(box, 1), box(:, 1), box(:, 2), steps_at, c_null_ptr, 0_c_int64_t, &
      needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_array_explain(array, size(box, 1), box(:, 1), box(:, 2), steps_at, c_loc(buffer), &
        size(buffer, kind=int64), needed)
      if (code == BF_OK) explanation = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  subroutine bf_resize(array, shape, status)
    type(bf_array), intent(in) :: array
    integer(bf_index), intent(in) :: shape(:)
    integer, intent(out), optional :: status
    call settle_status(c_resize(array, int(size(shape), c_int32_t), reversed(shape)), status)
  end subroutine

  ! Opens a query of a condition on the values of arrays. `dims`, `start` and `shape` are the region: names of
  ! dimensions in any order, and the first index and length of each.
  subroutine bf_query_open(store, expression, query, dims, start, shape, options, status)
    type(bf_store), intent(in) :: store
    character(*), intent(in) :: expression
    type(bf_query), intent(out) :: query
    character(*), intent(in), optional :: dims, options
    integer(bf_index), intent(in), optional :: start(:), shape(:)
    integer, intent(out), optional :: status
    integer(c_int64_t), allocatable :: first(:), lengths(:)
    integer :: rank, given
    rank = 0
    if (present(start)) rank = size(start)
    if (present(shape)) rank = max(rank, size(shape))
    ! C refuses numbers that are not given.
    allocate (first(rank), lengths(rank))
    first = -1
    lengths = -1
    given = 0
    if (present(start)) given = size(start)
    if (given > 0) first(:given) = start - 1
    given = 0
    if (present(shape)) given = size(shape)
    if (given > 0) lengths(:given) = shape
    call settle_status(c_query_open(store, c_text(expression), int(rank, c_int32_t), c_text(dims), first, &
      lengths, c_text(options), query), status)
  end subroutine

  subroutine bf_query_close(query, status)
    type(bf_query), intent(in) :: query
    integer, intent(out), optional :: status
    call settle_status(c_query_close(query), status)
  end subroutine

  subroutine bf_query_rank(query, rank, status)
    type(bf_query), intent(in) :: query
    integer, intent(out) :: rank
    integer, intent(out), optional :: status
    integer(c_int32_t) :: own
    integer(c_int) :: code
    own = 0
    code = c_query_rank(query, own)
    rank = own
    call settle_status(code, status)
  end subroutine

  ! Returns the names of the dimensions in Fortran's order: "lon,lat,time".
  subroutine bf_query_dims(query, dims, status)
    type(bf_query), intent(in) :: query
    character(:), allocatable, intent(out) :: dims
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_query_dims(query, c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_query_dims(query, c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) dims = reversed_names(text_at(c_loc(buffer)))
    end if
    call settle_status(code, status)
  end subroutine

  ! Returns the region as of now, in Fortran's order.
  subroutine bf_query_region(query, start, shape, status)
    type(bf_query), intent(in) :: query
    integer(bf_index), allocatable, intent(out) :: start(:), shape(:)
    integer, intent(out), optional :: status
    integer(c_int64_t), allocatable :: first(:), lengths(:)
    integer(c_int32_t) :: rank
    integer(c_int) :: code
    rank = 0
    code = c_query_rank(query, rank)
    if (code /= BF_OK) rank = 0
    allocate (first(rank), lengths(rank))
    if (code == BF_OK) code = c_query_region(query, rank, first, lengths)
    start = reversed(first) + 1
    shape = reversed(lengths)
    call settle_status(code, status)
  end subroutine

  subroutine bf_query_count(query, count, status)
    type(bf_query), intent(in) :: query
    integer(bf_index), intent(out) :: count
    integer, intent(out), optional :: status
    call settle_status(c_query_count(query, count), status)
  end subroutine

  subroutine bf_query_any(query, any, status)
    type(bf_query), intent(in) :: query
    logical, intent(out) :: any
    integer, intent(out), optional :: status
    integer(c_int) :: found, code
    found = 0
    code = c_query_any(query, found)
    any = found /= 0
    call settle_status(code, status)
  end subroutine

  ! Counts over the dimensions `over` ("lon,lat"): a number for each position along the others, whose lengths
  ! are those of `counts`.
  subroutine bf_query_count_over(query, over, counts, status)
    type(bf_query), intent(in) :: query
    character(*), intent(in) :: over
    integer(bf_index), intent(inout), contiguous, target :: counts(..)
    integer, intent(out), optional :: status
    call settle_status(c_query_count_over(query, c_text(over), c_loc(counts), &
      storage_size(counts)/8*size(counts, kind=int64)), status)
  end subroutine

  ! Fills a mask of the region: true where an element matches.
  subroutine bf_query_mask(query, mask, status)
    type(bf_query), intent(in) :: query
    logical(c_bool), intent(inout), contiguous, target :: mask(..)
    integer, intent(out), optional :: status
    call settle_status(c_query_mask(query, c_loc(mask), storage_size(mask)/8*size(mask, kind=int64)), status)
  end subroutine

  ! Returns statistics of the values of an array at the matching elements: a scalar, or with `over` one for
  ! each position along the other dimensions.
  subroutine bf_query_statistics(query, array, statistics, over, status)
    type(bf_query), intent(in) :: query
    character(*), intent(in) :: array
    type(bf_value_statistics), intent(inout), contiguous, target :: statistics(..)
    character(*), intent(in), optional :: over
    integer, intent(out), optional :: status
    call settle_status(c_query_statistics(query, c_text(array), c_text(over), c_loc(statistics), &
      storage_size(statistics)/8*size(statistics, kind=int64)), status)
  end subroutine

  ! Counts the matching values of an array in classes between neighbouring `edges`, one more than `counts`.
  subroutine bf_query_histogram(query, array, edges, counts, status)
    type(bf_query), intent(in) :: query
    character(*), intent(in) :: array
    real(c_double), intent(in), contiguous :: edges(:)
    integer(bf_index), intent(out), contiguous :: counts(:)
    integer, intent(out), optional :: status
    call settle_status(c_query_histogram(query, c_text(array), size(edges, kind=int64) - 1, edges, counts, &
      8*size(counts, kind=int64)), status)
  end subroutine

  ! Returns the plan of the query, as JSON; names and lengths are in the order of the store, as in C.
  subroutine bf_query_explain(query, explanation, status)
    type(bf_query), intent(in) :: query
    character(:), allocatable, intent(out) :: explanation
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_query_explain(query, c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_query_explain(query, c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) explanation = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  ! Finds the matching elements, at most `limit`, with the values of `arrays` ("sp,t2m") at them. Without
  ! `limit` finds all. They are in the order of their indexes, of which the first varies fastest.
  subroutine bf_query_points(query, points, arrays, limit, status)
    type(bf_query), intent(in) :: query
    type(bf_points), intent(out) :: points
    character(*), intent(in), optional :: arrays
    integer(bf_index), intent(in), optional :: limit
    integer, intent(out), optional :: status
    integer(c_int64_t) :: most
    most = -1
    ! -1 stands for all in C, other negative numbers are refused.
    if (present(limit)) most = merge(limit, limit - 1, limit >= 0)
    call settle_status(c_query_points(query, c_text(arrays), most, points), status)
  end subroutine

  ! Finds the matching elements in batches, each of at most `memory_bytes` (256 MiB) of indexes and values.
  subroutine bf_query_batches(query, batches, arrays, memory_bytes, status)
    type(bf_query), intent(in) :: query
    type(bf_batches), intent(out) :: batches
    character(*), intent(in), optional :: arrays
    integer(bf_index), intent(in), optional :: memory_bytes
    integer, intent(out), optional :: status
    integer(c_int64_t) :: most
    most = 0
    if (present(memory_bytes)) most = memory_bytes
    call settle_status(c_query_batches(query, c_text(arrays), most, batches), status)
  end subroutine

  ! Searches for the next batch; `found` is false behind the last one.
  subroutine bf_batches_next(batches, points, found, status)
    type(bf_batches), intent(in) :: batches
    type(bf_points), intent(out) :: points
    logical, intent(out) :: found
    integer, intent(out), optional :: status
    integer(c_int) :: there, code
    there = 0
    code = c_batches_next(batches, points, there)
    found = there /= 0
    call settle_status(code, status)
  end subroutine

  subroutine bf_batches_close(batches, status)
    type(bf_batches), intent(in) :: batches
    integer, intent(out), optional :: status
    call settle_status(c_batches_close(batches), status)
  end subroutine

  subroutine bf_points_close(points, status)
    type(bf_points), intent(in) :: points
    integer, intent(out), optional :: status
    call settle_status(c_points_close(points), status)
  end subroutine

  subroutine bf_points_count(points, count, status)
    type(bf_points), intent(in) :: points
    integer(bf_index), intent(out) :: count
    integer, intent(out), optional :: status
    call settle_status(c_points_count(points, count), status)
  end subroutine

  subroutine bf_points_rank(points, rank, status)
    type(bf_points), intent(in) :: points
    integer, intent(out) :: rank
    integer, intent(out), optional :: status
    integer(c_int32_t) :: own
    integer(c_int) :: code
    own = 0
    code = c_points_rank(points, own)
    rank = own
    call settle_status(code, status)
  end subroutine

  ! Returns the names of the dimensions of positions in Fortran's order.
  subroutine bf_points_dims(points, dims, status)
    type(bf_points), intent(in) :: points
    character(:), allocatable, intent(out) :: dims
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_points_dims(points, c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_points_dims(points, c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) dims = reversed_names(text_at(c_loc(buffer)))
    end if
    call settle_status(code, status)
  end subroutine

  ! Returns the indexes of the elements, one column per element, as bf_read_points takes them.
  subroutine bf_points_positions(points, coordinates, status)
    type(bf_points), intent(in) :: points
    integer(bf_index), allocatable, intent(out) :: coordinates(:, :)
    integer, intent(out), optional :: status
    integer(c_int64_t), allocatable :: own(:, :)
    integer(c_int64_t) :: count
    integer(c_int32_t) :: rank
    integer(c_int) :: code
    rank = 0
    count = 0
    code = c_points_rank(points, rank)
    if (code == BF_OK) code = c_points_count(points, count)
    if (code /= BF_OK) count = 0
    allocate (own(rank, count))
    if (code == BF_OK) code = c_points_positions(points, rank, own, 8*size(own, kind=int64))
    allocate (coordinates(rank, count))
    coordinates = own(rank:1:-1, :) + 1
    call settle_status(code, status)
  end subroutine

  ! Returns the type of the values of an array: "float64".
  subroutine bf_points_dtype(points, array, dtype, status)
    type(bf_points), intent(in) :: points
    character(*), intent(in) :: array
    character(:), allocatable, intent(out) :: dtype
    integer, intent(out), optional :: status
    character(kind=c_char), allocatable, target :: buffer(:)
    integer(c_int64_t) :: needed
    integer(c_int) :: code
    needed = 0
    code = c_points_dtype(points, c_text(array), c_null_ptr, 0_c_int64_t, needed)
    if (code == BF_OK) then
      allocate (buffer(needed))
      code = c_points_dtype(points, c_text(array), c_loc(buffer), size(buffer, kind=int64), needed)
      if (code == BF_OK) dtype = text_at(c_loc(buffer))
    end if
    call settle_status(code, status)
  end subroutine

  subroutine bf_comm_free(comm, status)
    type(bf_comm), intent(inout) :: comm
    integer, intent(out), optional :: status
    call settle_status(c_comm_free(comm), status)
  end subroutine

  ! Begins a session of the processes of `comm`; collective. Without `comm` of this process alone.
  subroutine bf_session_begin(store, session, comm, options, status)
    type(bf_store), intent(in) :: store
    type(bf_session), intent(out) :: session
    type(bf_comm), intent(in), optional, target :: comm
    character(*), intent(in), optional :: options
    integer, intent(out), optional :: status
    type(c_ptr) :: comm_at
    comm_at = c_null_ptr
    if (present(comm)) comm_at = c_loc(comm)
    call settle_status(c_session_begin(store, comm_at, c_text(options), session), status)
  end subroutine

  subroutine bf_define_begin(store, status)
    type(bf_store), intent(in) :: store
    integer, intent(out), optional :: status
    call settle_status(c_define_begin(store), status)
  end subroutine

  subroutine bf_define_end(store, status)
    type(bf_store), intent(in) :: store
    integer, intent(out), optional :: status
    call settle_status(c_define_end(store), status)
  end subroutine

  subroutine bf_session_define_end(session, store, status)
    type(bf_session), intent(in) :: session
    type(bf_store), intent(in) :: store
    integer, intent(out), optional :: status
    call settle_status(c_session_define_end(session, store), status)
  end subroutine

  subroutine bf_session_resize(session, path, shape, status)
    type(bf_session), intent(in) :: session
    character(*), intent(in) :: path
    integer(bf_index), intent(in) :: shape(:)
    integer, intent(out), optional :: status
    call settle_status(c_session_resize(session, c_text(path), int(size(shape), c_int32_t), &
      reversed(shape)), status)
  end subroutine

  subroutine bf_session_commit(session, number, status)
    type(bf_session), intent(in) :: session
    integer(bf_index), intent(out), optional :: number
    integer, intent(out), optional :: status
    integer(c_int64_t) :: committed
    integer(c_int) :: code
    committed = 0
    code = c_session_commit(session, committed)
    if (present(number)) number = committed
    call settle_status(code, status)
  end subroutine

  ! Begins a commit, which becomes durable while the program computes; bf_session_commit_wait completes it.
  subroutine bf_session_commit_begin(session, status)
    type(bf_session), intent(in) :: session
    integer, intent(out), optional :: status
    call settle_status(c_session_commit_begin(session), status)
  end subroutine

  ! Completes the commit begun with bf_session_commit_begin; collective.
  subroutine bf_session_commit_wait(session, number, status)
    type(bf_session), intent(in) :: session
    integer(bf_index), intent(out), optional :: number
    integer, intent(out), optional :: status
    integer(c_int64_t) :: committed
    integer(c_int) :: code
    committed = 0
    code = c_session_commit_wait(session, committed)
    if (present(number)) number = committed
    call settle_status(code, status)
  end subroutine

  ! Waits until borrowed data may change, up to the call that returned `token`.
  subroutine bf_session_wait(session, token, status)
    type(bf_session), intent(in) :: session
    integer(bf_index), intent(in) :: token
    integer, intent(out), optional :: status
    call settle_status(c_session_wait(session, token), status)
  end subroutine

  ! Passes all data written so far to the operating system, so that they can be recovered.
  subroutine bf_session_flush(session, status)
    type(bf_session), intent(in) :: session
    integer, intent(out), optional :: status
    call settle_status(c_session_flush(session), status)
  end subroutine

  ! Waits until every commit has left the burst tiers and is visible; `number` receives the last one's number.
  subroutine bf_session_drain(session, number, status)
    type(bf_session), intent(in) :: session
    integer(bf_index), intent(out), optional :: number
    integer, intent(out), optional :: status
    integer(c_int64_t) :: drained
    integer(c_int) :: code
    drained = 0
    code = c_session_drain(session, drained)
    if (present(number)) number = drained
    call settle_status(code, status)
  end subroutine

  subroutine bf_session_end(session, status)
    type(bf_session), intent(in) :: session
    integer, intent(out), optional :: status
    call settle_status(c_session_end(session), status)
  end subroutine

  subroutine bf_session_abort(session, status)
    type(bf_session), intent(in) :: session
    integer, intent(out), optional :: status
    call settle_status(c_session_abort(session), status)
  end subroutine

  ! Declares boxes by their starts and shapes, one column per box.
  subroutine bf_decomposition_declare(starts, shapes, decomposition, status)
    integer(bf_index), intent(in) :: starts(:, :), shapes(:, :)
    type(bf_decomposition), intent(out) :: decomposition
    integer, intent(out), optional :: status
    integer(c_int64_t), allocatable :: own_starts(:, :), own_shapes(:, :)
    integer(c_int64_t) :: count
    count = min(size(starts, 2), size(shapes, 2))
    allocate (own_starts(size(starts, 1), size(starts, 2)), own_shapes(size(shapes, 1), size(shapes, 2)))
    own_starts = starts(size(starts, 1):1:-1, :) - 1
    own_shapes = shapes(size(shapes, 1):1:-1, :)
    call settle_status(c_decomposition_declare(int(min(size(starts, 1), size(shapes, 1)), c_int32_t), count, &
      own_starts, own_shapes, decomposition), status)
  end subroutine

  subroutine bf_decomposition_free(decomposition, status)
    type(bf_decomposition), intent(in) :: decomposition
    integer, intent(out), optional :: status
    call settle_status(c_decomposition_free(decomposition), status)
  end subroutine

end module bedform
