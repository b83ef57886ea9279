"""Write the golden NetCDF classic files into the directory of this script.

There is one for each version, and one with a single record variable. Run it only to add a file:
existing files are never changed.

Element `i` of a variable, counted in C order, is `i % 100`; of a character variable, letter
`i % 26`.
"""

import pathlib

import netCDF4
import numpy as np

HERE = pathlib.Path(__file__).parent
TYPES = ["i1", "i2", "i4", "f4", "f8"]
TYPES_5 = [*TYPES, "u1", "u2", "u4", "i8", "u8"]


def fill(variable: netCDF4.Variable, shape: tuple[int, ...]) -> None:
    count = np.arange(int(np.prod(shape)))
    if variable.dtype == "S1":
        variable[:] = (count % 26 + 97).astype("u1").view("S1").reshape(shape)
    else:
        variable[...] = (count % 100).astype(variable.dtype).reshape(shape)


def write(name: str, kind: str, types: list[str]) -> None:
    with netCDF4.Dataset(HERE / name, "w", format=kind) as file:
        file.createDimension("time", None)
        file.createDimension("y", 3)
        file.createDimension("x", 5)
        file.title = "golden"
        file.numbers = np.array([1, -2, 3], "i2")
        for dtype in [*types, "S1"]:
            for prefix, axes in [("fixed", ("y", "x")), ("record", ("time", "x"))]:
                variable = file.createVariable(f"{prefix}_{dtype}", dtype, axes)
                if dtype == "f4":
                    variable.setncattr("valid_min", np.float32(-1.5))
                fill(variable, (3, 5) if prefix == "fixed" else (4, 5))
        fill(file.createVariable("scalar", "f8", ()), ())


def write_single(name: str) -> None:
    with netCDF4.Dataset(HERE / name, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("time", None)
        file.createDimension("x", 3)
        fill(file.createVariable("only", "i1", ("time", "x"), fill_value=-7), (4, 3))


write("classic-1.nc", "NETCDF3_CLASSIC", TYPES)
write("classic-2.nc", "NETCDF3_64BIT_OFFSET", TYPES)
write("classic-5.nc", "NETCDF3_64BIT_DATA", TYPES_5)
write_single("classic-1-single-record.nc")
