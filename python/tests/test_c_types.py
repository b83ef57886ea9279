"""The type of the data travels with each call of C, C++ and Fortran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from native import PROGRAMS, flags, needed, prefix, run
from test_c_api import fortran

import bedform as bf

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["prefix"]

COUNT = 6
DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
# float16 has no type in C.
OF_C = [name for name in DTYPES if name != "float16"]
SIGNIFICANT_BITS = {"f2": 11, "f4": 24, "f8": 53, "c8": 24, "c16": 53}
INVALID_ARGUMENT = 3
WRITES = [
    "write",
    "append",
    *(f"session_{call}" for call in ("write", "append", "write_boxes", "write_points")),
    *(f"session_write_{call}" for call in ("borrowed", "decomposed", "decomposed_borrowed")),
]
READS = ["read", "read_boxes", "read_points"]


def keeps_all(given: str, wanted: str) -> bool:
    """Whether every value of one type is one of the other: NumPy's rule, but for large integers."""
    source, target = np.dtype(given), np.dtype(wanted)
    bits = SIGNIFICANT_BITS.get(target.str[1:])
    if bits is not None and source.kind in "iu":
        return 8 * source.itemsize - (source.kind == "i") <= bits
    return np.can_cast(source, target, "safe")


def values(name: str, seed: int) -> NDArray[Any]:
    """Random values of a type, its limits among them."""
    random, dtype = np.random.default_rng(seed), np.dtype(name)
    if dtype.kind == "b":
        return random.integers(0, 2, COUNT).astype(bool)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        found = random.integers(limits.min, limits.max, COUNT, dtype, endpoint=True)
        found[:2] = limits.min, limits.max
        return found
    found = random.normal(0, 100, COUNT).astype(dtype)
    if dtype.kind == "c":
        found += (1j * random.normal(0, 1, COUNT)).astype(dtype)
    found[0] = np.finfo(dtype).max
    return found


def filled_store(place: Path, names: list[str]) -> None:
    """A store with arrays to write to, to append to and to read, of each type."""
    store = bf.create(place)
    for seed, name in enumerate(DTYPES):
        for use in ("to", "grown", "logged"):
            store.create_array(f"{use}_{name}", (COUNT,), name, chunks=(4,), shards=(8,))
        store.create_array(f"of_{name}", (COUNT,), name)[...] = values(name, 100 + seed)
    for seed, name in enumerate(names):
        (place.parent / name).write_bytes(values(name, seed).tobytes())


def check_calls(said: str, given: dict[str, NDArray[Any]], in_memory: dict[str, str]) -> None:
    """Compares each line of a program with NumPy; ``in_memory`` has the type behind each name."""
    lines = [line.split(" ", 4) for line in said.splitlines()]
    calls = {(kind, array, call) for kind, array, call, *_ in lines}
    assert calls == {(k, a, c) for k in given for a in DTYPES for c in WRITES + READS}
    kept = 0
    for kind, array, call, status, result in lines:
        ends = (in_memory[kind], array) if call in WRITES else (array, in_memory[kind])
        what = f"{kind} {array} {call}: {status} {result}"
        if not keeps_all(*ends):
            assert int(status) == INVALID_ARGUMENT, what
            assert array in result and kind in result, what
            continue
        assert int(status) == 0, what
        source = given[kind] if call in WRITES else values(array, 100 + DTYPES.index(array))
        expected = source.astype(array if call in WRITES else np.dtype(in_memory[kind]))
        if call in READS and kind.startswith("logical"):
            expected = expected.astype(f"i{int(kind[7:]) // 8}")
        assert bytes.fromhex(result) == expected.tobytes(), what
        kept += 1
    assert kept >= len(lines) // 3


@pytest.mark.parametrize(
    ("compiler", "options"),
    [("cc", ["-std=c11"]), ("c++", ["-xc++", "-std=c++98"])],
)
def test_every_pair_of_types_is_converted_without_loss_or_refused(
    prefix: Path, tmp_path: Path, compiler: str, options: list[str]
) -> None:
    filled_store(tmp_path / "s.zarr", OF_C)
    program, tool = tmp_path / "types", needed(compiler, "apt-get install g++")
    strict = ["-Wall", "-Wextra", "-Werror", "-O1"]
    source = PROGRAMS / "types.c"
    run(tool, *options, *strict, source, "-xnone", *flags(prefix), "-o", program)
    said = run(program, tmp_path / "s.zarr", tmp_path)
    given = {name: values(name, seed) for seed, name in enumerate(OF_C)}
    check_calls(said, given, {name: name for name in OF_C})


KINDS = {
    "int8": "integer(int8)",
    "int16": "integer(int16)",
    "int32": "integer",
    "int64": "integer(int64)",
    "float32": "real",
    "float64": "double precision",
    "complex64": "complex",
    "complex128": "complex(real64)",
    "logical8": "logical(1)",
    "logical16": "logical(2)",
    "logical32": "logical",
    "logical64": "logical(8)",
}

FORTRAN = """
program types
  use bedform
  use bedform_interfaces, only: c_read
  use iso_fortran_env
  use iso_c_binding
  implicit none
  integer, parameter :: i8 = bf_index, n = 6
  type(bf_store) :: store
  type(bf_session) :: session
  type(bf_decomposition) :: halves
  character(1000) :: path, values_of
  character(10), parameter :: dtypes(14) = [character(10) :: {dtypes}]
  character(:), allocatable :: array_type
  integer(bf_index) :: starts(1, 2) = reshape([1_i8, 3_i8], [1, 2]), token, at
  integer(bf_index) :: shapes(1, 2) = reshape([2_i8, 4_i8], [1, 2])
  integer(bf_index) :: points(1, n) = reshape([1_i8, 2_i8, 3_i8, 4_i8, 5_i8, 6_i8], [1, n])
  integer :: i
  call get_command_argument(1, path)
  call get_command_argument(2, values_of)
  call bf_open(path, "r+", store, options='{{"durability": "process"}}')
  call bf_session_begin(store, session, options='{{"settle": "later"}}')
  call bf_decomposition_declare(starts, shapes, halves)
  do i = 1, size(dtypes)
    array_type = trim(dtypes(i))
{uses}
  end do
  call bf_session_end(session)
contains
  subroutine told(type, call, array, status)
    character(*), intent(in) :: type, call
    type(bf_array), intent(in) :: array
    integer, intent(in) :: status
    integer(int8), target :: bytes(16*n)
    integer(int64) :: all
    type(bf_array_facts) :: facts
    if (status /= BF_OK) then
      call told_read(type, call, status, bytes)
      return
    end if
    if (index(call, "session") == 1) call bf_session_commit(session)
    call bf_array_info(array, facts)
    all = n*facts%item_bytes
    if (c_read(array, 1, facts%shape - n, [int(n, int64)], c_null_ptr, c_loc(bytes), all, &
        c_null_char) /= 0) then
      error stop "the elements cannot be read back"
    end if
    call told_read(type, call, status, bytes(:all))
  end subroutine
  subroutine told_read(type, call, status, bytes)
    character(*), intent(in) :: type, call
    integer, intent(in) :: status
    integer(int8), intent(in) :: bytes(:)
    write (*, "(*(g0))", advance="no") type, " ", array_type, " ", call, " ", status, " "
    if (status == BF_OK) print "(*(z2.2))", bytes
    if (status /= BF_OK) print "(a)", bf_last_error()
  end subroutine
{calls}
end program
"""

OF_KIND = """
  subroutine calls_{name}()
    type(bf_array) :: array, grown, logged, readable
    {kind}, target :: x(n), y(n)
    integer :: status, unit
    open (newunit=unit, file=trim(values_of) // "/{name}", access="stream", form="unformatted")
    read (unit) x
    close (unit)
    call bf_open_array(store, "to_" // array_type, array)
    call bf_open_array(store, "grown_" // array_type, grown)
    call bf_open_array(store, "logged_" // array_type, logged)
    call bf_open_array(store, "of_" // array_type, readable)
    call bf_write(array, [1_i8], x, status)
    call told("{name}", "write", array, status)
    call bf_session_write(session, "to_" // array_type, [1_i8], x, status)
    call told("{name}", "session_write", array, status)
    call bf_session_write_borrowed(session, "to_" // array_type, [1_i8], x, token, status)
    call told("{name}", "session_write_borrowed", array, status)
    call bf_session_write_boxes(session, "to_" // array_type, starts, shapes, x, status)
    call told("{name}", "session_write_boxes", array, status)
    call bf_session_write_points(session, "to_" // array_type, points, x, status)
    call told("{name}", "session_write_points", array, status)
    call bf_session_write_decomposed(session, "to_" // array_type, 0_i8, halves, x, status)
    call told("{name}", "session_write_decomposed", array, status)
    call bf_session_write_decomposed_borrowed(session, "to_" // array_type, 0_i8, halves, x, &
      token, status)
    call told("{name}", "session_write_decomposed_borrowed", array, status)
    call bf_append(grown, 1, x, at, status)
    call told("{name}", "append", grown, status)
    call bf_session_append(session, "logged_" // array_type, 1, x, at, status)
    call told("{name}", "session_append", logged, status)
    call bf_read(readable, [1_i8], y, status)
    call told_read("{name}", "read", status, transfer(y, [0_int8]))
    call bf_read_boxes(readable, starts, shapes, y, status)
    call told_read("{name}", "read_boxes", status, transfer(y, [0_int8]))
    call bf_read_points(readable, points, y, status)
    call told_read("{name}", "read_points", status, transfer(y, [0_int8]))
    call bf_close_array(array)
    call bf_close_array(grown)
    call bf_close_array(logged)
    call bf_close_array(readable)
  end subroutine
"""


def logicals(name: str, seed: int) -> NDArray[Any]:
    """Truth values of a size, with every representation that compilers have of true."""
    dtype = np.dtype(f"i{int(name[7:]) // 8}")
    found = np.array([0, 1, -1, 0, 2, 255], "i8").astype(dtype)
    return np.random.default_rng(seed).permutation(found)


def test_every_pair_of_types_of_fortran_is_converted_without_loss_or_refused(
    prefix: Path, tmp_path: Path
) -> None:
    filled_store(tmp_path / "s.zarr", [name for name in KINDS if name in DTYPES])
    given = {name: values(name, seed) for seed, name in enumerate(KINDS) if name in DTYPES}
    for seed, name in enumerate(KINDS):
        if name.startswith("logical"):
            stored = logicals(name, seed)
            (tmp_path / name).write_bytes(stored.tobytes())
            given[name] = stored != 0
        else:
            (tmp_path / name).write_bytes(given[name].tobytes())
    source = FORTRAN.format(
        dtypes=", &\n    ".join(f'"{name}"' for name in DTYPES),
        uses="\n".join(f"    call calls_{name}()" for name in KINDS),
        calls="".join(OF_KIND.format(name=name, kind=kind) for name, kind in KINDS.items()),
    )
    said = run(fortran(prefix, tmp_path, source), tmp_path / "s.zarr", tmp_path)
    in_memory = {name: "bool" if name.startswith("logical") else name for name in KINDS}
    check_calls(said, given, in_memory)


def test_integers_in_an_array_of_reals_are_refused_in_fortran_by_both_names(
    prefix: Path, tmp_path: Path
) -> None:
    """Regression: the bits of the integers were stored, and 1 was read as 1.4e-45."""
    source = """
program first
  use bedform
  implicit none
  type(bf_store) :: store
  type(bf_array) :: t, d
  integer :: i(4) = [1, 2, 3, 4], status
  double precision :: r(4)
  character(1000) :: path
  call get_command_argument(1, path)
  call bf_create(path, store)
  call bf_create_array(store, "t", "float32", [4_bf_index], array=t)
  call bf_create_array(store, "d", "float64", [4_bf_index], array=d)
  call bf_write(t, [1_bf_index], i, status)
  if (status /= BF_INVALID_ARGUMENT) error stop "not refused"
  print "(a)", bf_last_error()
  call bf_write(d, [1_bf_index], i)
  call bf_read(d, [1_bf_index], r)
  if (any(r /= [1, 2, 3, 4])) error stop "other numbers"
end program
"""
    said = run(fortran(prefix, tmp_path, source), tmp_path / "s.zarr")
    expected = "t holds float32 and the data are int32, which can change values: convert them first"
    assert said.strip() == expected


def test_a_section_with_gaps_is_not_borrowed_in_fortran(prefix: Path, tmp_path: Path) -> None:
    source = """
program first
  use bedform
  implicit none
  integer, parameter :: i8 = bf_index
  type(bf_store) :: store
  type(bf_array) :: t
  type(bf_session) :: session
  integer, target :: x(2, 4) = reshape([1, 2, 3, 4, 5, 6, 7, 8], [2, 4])
  integer :: row(1, 4), status
  integer(bf_index) :: token
  character(1000) :: path
  call get_command_argument(1, path)
  call bf_create(path, store)
  call bf_create_array(store, "t", "int32", [2_i8, 4_i8], array=t)
  call bf_session_begin(store, session)
  call bf_session_write_borrowed(session, "t", [1_i8, 1_i8], x(1:1, :), token, status)
  if (status /= BF_INVALID_ARGUMENT) error stop "borrowed"
  print "(a)", bf_last_error()
  call bf_session_write(session, "t", [1_i8, 1_i8], x(1:1, :))
  call bf_session_write_borrowed(session, "t", [2_i8, 3_i8], x(2:2, 3), token)
  call bf_session_wait(session, token)
  call bf_session_end(session)
  call bf_read(t, [1_i8, 1_i8], row)
  if (any(row(1, :) /= [1, 3, 5, 7])) error stop "other numbers"
end program
"""
    said = run(fortran(prefix, tmp_path, source), tmp_path / "s.zarr")
    assert "cannot be borrowed" in said


def test_fortran_makes_the_calls_without_data(prefix: Path, tmp_path: Path) -> None:
    source = """
module watching
  use iso_c_binding
  implicit none
  integer :: stops = 0
  integer(c_int64_t) :: done_last = 0
contains
  integer(c_int) function stop_second(context) bind(C)
    type(c_ptr), value :: context
    integer(c_int), pointer :: limit
    call c_f_pointer(context, limit)
    stops = stops + 1
    stop_second = merge(1, 0, stops > limit)
  end function
  subroutine progress(context, done, total) bind(C)
    type(c_ptr), value :: context
    integer(c_int64_t), value :: done, total
    if (c_associated(context) .or. done > total) error stop "progress"
    done_last = done
  end subroutine
end module
program calls
  use iso_c_binding
  use bedform
  use watching
  implicit none
  integer, parameter :: i8 = bf_index
  type(bf_store) :: store
  type(bf_array) :: t
  type(bf_session) :: session
  type(bf_array_facts) :: facts
  type(bf_recovered) :: recovered
  type(bf_convert_watch) :: watch
  integer :: x(6, 4), every(3, 2), status, i
  integer(bf_index) :: token
  integer, target :: lent(6) = [(60 + i, i = 1, 6)]
  integer(c_int), target :: limit = 1000000
  character(:), allocatable :: text
  character(1000) :: path
  call get_command_argument(1, path)
  call bf_create(path, store)
  call bf_create_group(store, "forcing", attributes='{"a": 1}')
  call bf_create_array(store, "forcing/t", "int32", [6_i8, 4_i8], dims="x,y", chunks=[3_i8, 2_i8], &
    shards=[6_i8, 4_i8], array=t)
  call bf_kind(store, "forcing", text)
  if (text /= "group") error stop "kind of a group"
  call bf_kind(store, "forcing/t", text)
  if (text /= "array") error stop "kind of an array"
  call bf_kind(store, "none", text)
  if (text /= "") error stop "kind of nothing"
  call bf_array_info(t, facts)
  if (facts%dtype /= "int32" .or. facts%item_bytes /= 4) error stop "type"
  if (any([facts%shape, facts%chunks, facts%shards] /= [6, 4, 3, 2, 6, 4])) then
    error stop "shapes"
  end if
  call bf_array_dimension_name(t, 1, text)
  if (text /= "x") error stop "first dimension"
  call bf_array_dimension_name(t, 2, text)
  if (text /= "y") error stop "second dimension"
  call bf_array_dimension_name(t, 3, text, status)
  if (status /= BF_INVALID_ARGUMENT) error stop "third dimension"
  call bf_array_describe(t, text)
  if (index(text, '"int32"') == 0) error stop "description"
  if (bf_status_name(BF_NOT_FOUND) /= "NotFound") error stop "name of a status"

  x = reshape([(i, i = 1, 24)], [6, 4])
  call bf_write(t, [1_i8, 1_i8], x)
  call bf_read(t, [1_i8, 2_i8], every, stride=[2_i8, 2_i8])
  if (any(every /= x(1::2, 2::2))) error stop "every second element"
  call bf_write(t, [2_i8, 1_i8], -every, stride=[2_i8, 2_i8])
  x(2::2, 1::2) = -every
  call bf_array_explain(t, [1_i8, 2_i8], [3_i8, 2_i8], text, stride=[2_i8, 2_i8])
  if (index(text, "chunks") == 0) error stop "explanation"

  call bf_session_begin(store, session)
  call bf_session_write_borrowed(session, "forcing/t", [1_i8, 4_i8], lent, token)
  call bf_session_wait(session, token)
  call bf_session_flush(session)
  call bf_recover(store, recovered=recovered)
  if (recovered%live /= 1 .or. recovered%completed /= 0) error stop "recovery"
  call bf_session_end(session)
  x(:, 4) = lent
  call bf_read(t, [1_i8, 1_i8], every(:, 1:1))

  call bf_set_stop(stop_second, c_loc(limit))
  watch%progress = c_funloc(progress)
  call bf_convert(path, trim(path) // ".copy.zarr", watch=watch)
  if (done_last == 0) error stop "no progress"
  limit = 0
  call bf_convert(path, trim(path) // ".other.zarr", status=status)
  if (status /= BF_INTERRUPTED) error stop "not stopped"
  call bf_set_stop()
  call bf_delete(store, "forcing")
  call bf_kind(store, "forcing", text)
  if (text /= "") error stop "it was not deleted"
  call bf_recover(store, options='{"leftover": "discard"}')
  call bf_close(store)
  print "(*(i0, :, ' '))", x
end program
"""
    place = tmp_path / "s.zarr"
    said = run(fortran(prefix, tmp_path, source), place)
    copied = bf.open(f"{place}.copy.zarr")["forcing/t"][...]
    assert copied.ravel().tolist() == [int(number) for number in said.split()]
    assert not bf.open(place).groups()
