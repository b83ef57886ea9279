"""The connector for programs that read by HDF5: its environment, and checks before they start.

HDF5 loads the connector when two variables say so. A connector that is named and does not load ends
some programs at their first open, and netCDF4 at its import. So the program's HDF5 is loaded in a
child first.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bedform._errors import InvalidArgumentError, NotFoundError, UnsupportedError
from bedform._run import interpreters, loader_of, program_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "LoadedHdf5",
    "enable_hdf5",
    "environment",
    "environment_without",
    "look_at",
    "native_environment",
]

CONNECTOR: Final = "bedform"
PLUGINS: Final = Path(__file__).parent / "hdf5_plugin"
_PROBE: Final = Path(__file__).parent / "_hdf5_probe.py"
_CONNECTOR_VARIABLE: Final = "HDF5_VOL_CONNECTOR"
_PLUGINS_VARIABLE: Final = "HDF5_PLUGIN_PATH"
#: Where HDF5 looks for plug-ins if no variable names a place.
_DEFAULT_PLUGINS: Final = "/usr/local/hdf5/lib/plugin"
#: The oldest HDF5 with the interface of the connector.
_VERSION_MIN: Final = (1, 14)
#: The modules of Python that bring an HDF5.
_MODULES: Final = ("h5py", "netCDF4", "tables")
_PROBE_SECONDS: Final = 300
_LOADER_SECONDS: Final = 60
_IS_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")


@dataclasses.dataclass(frozen=True)
class LoadedHdf5:
    """The HDF5 libraries that a program loads, as a child found them."""

    #: The path and version of each HDF5, and whether the connector loads into it.
    libraries: tuple[tuple[str, tuple[int, ...], bool], ...]
    #: False for a program that starts others, such as a shell, whose libraries are not known.
    is_certain: bool

    def why_useless(self) -> str | None:
        """Return why the connector gains nothing; None if it may gain something."""
        if not self.is_certain or any(connected for *_, connected in self.libraries):
            return None
        if not self.libraries:
            return "loads no HDF5"
        path, version, _ = self.libraries[0]
        shown = ".".join(map(str, version))
        return f"loads HDF5 {shown} ({path}), and connectors need 1.14 or later"


def enable_hdf5() -> None:
    r"""Have h5py, netCDF4 and xarray read through Bedform in this process.

    Afterwards reads of files that are watched are recorded; where replicas or elements that were
    read ahead are there, these supply the elements. All other reads are HDF5's own. Call it before
    the first import of h5py or netCDF4. Processes that this one starts inherit it.

    Raises
    ------
    InvalidArgumentError
        HDF5 is already in the process.
    NotFoundError
        The connector was not built.
    UnsupportedError
        The connector does not load into the HDF5 of this Python.

    Examples
    --------
    >>> import subprocess, sys
    >>> program = "import bedform as bf; bf.enable_hdf5(); import h5py; print('ready')"
    >>> subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    b'ready\n'
    """
    imported = [name for name in _MODULES if name in sys.modules]
    if imported:
        raise InvalidArgumentError(
            f"{' and '.join(imported)} is imported already, and HDF5 takes the connector only at "
            "its start: call bf.enable_hdf5() before the first import of h5py, netCDF4 or tables"
        )
    connection = look_at([sys.executable])
    useless = connection.why_useless()
    if useless is not None:
        raise UnsupportedError(f"{sys.executable} {useless}")
    os.environ.update(environment(os.environ, [sys.executable]))


def environment(before: Mapping[str, str], command: Sequence[str]) -> dict[str, str]:
    """Return the variables by which HDF5 loads the connector into a program.

    Plug-ins that the program has so far stay: those of the folders that are named, else HDF5's own
    folder and the filters that netCDF4 brings.

    Raises
    ------
    InvalidArgumentError
        The program uses another connector.
    NotFoundError
        The connector was not built.
    """
    named = before.get(_CONNECTOR_VARIABLE, "").strip()
    if named not in ("", CONNECTOR):
        raise InvalidArgumentError(
            f"{_CONNECTOR_VARIABLE} names another connector, {named!r}, and HDF5 takes one: "
            "unset it"
        )
    if not (PLUGINS / "libbedform_hdf5.so").exists():
        raise NotFoundError(f"{PLUGINS}: the connector of HDF5 was not built: run make build")
    folders = [folder for folder in before.get(_PLUGINS_VARIABLE, "").split(":") if folder]
    if not folders:
        folders = [*_filters_of_netcdf(command[0]), _DEFAULT_PLUGINS]
    if str(PLUGINS) not in folders:
        folders.insert(0, str(PLUGINS))
    return {_CONNECTOR_VARIABLE: CONNECTOR, _PLUGINS_VARIABLE: ":".join(folders)}


def environment_without(before: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables as they were before `environment`; None for one to be unset."""
    named = before.get(_CONNECTOR_VARIABLE)
    folders = [folder for folder in before.get(_PLUGINS_VARIABLE, "").split(":") if folder]
    folders = [folder for folder in folders if folder != str(PLUGINS)]
    return {
        _CONNECTOR_VARIABLE: named if named not in (None, CONNECTOR) else None,
        _PLUGINS_VARIABLE: ":".join(folders) or None,
    }


def native_environment() -> dict[str, str]:
    """Return the environment of a child that reads by HDF5 alone, for the engine itself."""
    before = dict(os.environ)
    for name, value in environment_without(before).items():
        before.pop(name, None)
        if value is not None:
            before[name] = value
    return before


def look_at(command: Sequence[str]) -> LoadedHdf5:
    """Find out in a child which HDF5 a program loads, and whether the connector loads into it.

    Raises
    ------
    NotFoundError
        The program does not exist, or the connector was not built.
    UnsupportedError
        The connector does not load: the program would not run.
    """
    found = program_path(command[0])
    python = _python_of(Path(found))
    if python is not None:
        return LoadedHdf5(_probed([python], _MODULES, command), is_certain=True)
    linked = _linked_hdf5(found)
    if linked is None:
        return LoadedHdf5((), is_certain=False)
    return LoadedHdf5(_probed([sys.executable], linked, command) if linked else (), is_certain=True)


def _python_of(program: Path) -> str | None:
    """Returns the Python that runs a program; None for other programs."""
    last = list(interpreters(program))[-1]
    if last.name == "env" and last != program:
        with program.open("rb") as file:
            words = map(os.fsdecode, file.readline(256)[2:].split()[1:])
        # Options, and variables that env sets, stand before the program.
        named = [word for word in words if not word.startswith("-") and "=" not in word]
        last = Path(shutil.which(named[0]) or "") if named else last
    return str(last) if _IS_PYTHON.fullmatch(last.name) else None


def _linked_hdf5(program: str) -> list[str] | None:
    """Returns the HDF5 libraries that the loader finds for a program; None where it finds none."""
    with Path(program).open("rb") as file:
        loader = loader_of(file)
    if not loader:
        return None
    # The loader, which is called by its own name, lists the libraries and starts nothing.
    said = subprocess.run(  # noqa: S603 - the loader of the user's own program
        [os.fsdecode(loader), "--list", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LOADER_SECONDS,
    )
    paths = re.findall(r"^\s*libhdf5[-_a-z0-9]*\.so\S* => (/\S+)", said.stdout, re.MULTILINE)
    # Programs without HDF5 may be shells, launchers or drivers of others.
    return paths or None


def _probed(
    python: list[str], names: Sequence[str], command: Sequence[str]
) -> tuple[tuple[str, tuple[int, ...], bool], ...]:
    variables = {**os.environ, **environment(os.environ, command)}
    found, _ = _answered(python, names, variables)
    if found is None:
        # One child for each, which names the library that dies.
        for name in names:
            found, reason = _answered(python, [name], variables)
            if found is None:
                raise _unloadable(f"the HDF5 of {name}: {reason}")
        raise _unloadable(f"one process with the HDF5s of {', '.join(names)}")
    for path, version, connected in found:
        if version >= _VERSION_MIN and not connected:
            raise _unloadable(f"HDF5 {'.'.join(map(str, version))} of {path}")
    return tuple(found)


def _answered(
    python: list[str], names: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[tuple[str, tuple[int, ...], bool]] | None, str]:
    """Returns the answer of a child, or None and the last line that it said."""
    child = subprocess.run(  # noqa: S603 - the user's own Python
        [*python, str(_PROBE), *names],
        env=dict(variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=_PROBE_SECONDS,
    )
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines()
        return None, (lines or [f"exit code {child.returncode}"])[-1]
    libraries = json.loads(child.stdout.splitlines()[-1])
    answer = [(one["path"], tuple(one["version"]), one["connected"]) for one in libraries]
    return answer, ""


def _unloadable(place: str) -> UnsupportedError:
    return UnsupportedError(f"the connector does not load into {place}; run it without --hdf5")


@functools.cache
def _filters_of_netcdf(program: str) -> tuple[str, ...]:
    """Returns the folders of filters that netCDF4 names where the program names no other.

    Of a program that is no Python they are those of the Pythons that it may start.
    """
    found = shutil.which(program)
    python = _python_of(Path(found)) if found is not None else None
    others = (shutil.which("python"), shutil.which("python3"), sys.executable)
    pythons = [python] if python is not None else [one for one in others if one is not None]
    script = (
        "import importlib.util, os\n"
        "found = importlib.util.find_spec('netCDF4')\n"
        "print(os.path.join(os.path.dirname(found.origin), 'plugins') if found else '')"
    )
    folders = []
    for one in dict.fromkeys(pythons):
        child = subprocess.run(  # noqa: S603 - the user's own Python
            [one, "-c", script], capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS
        )
        folders.append(child.stdout.strip())
    return tuple(folder for folder in dict.fromkeys(folders) if folder and Path(folder).is_dir())
