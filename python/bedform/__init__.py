"""A storage engine for scientific arrays in layouts that fit their reads.

>>> import bedform as bf, numpy as np, tempfile
>>> store = bf.create(tempfile.mkdtemp() + "/run.zarr")
>>> t = store.create_array("t", shape=(4, 6), dtype="float32", dims=("time", "x"))
>>> t[1] = np.arange(6)
>>> t[1, 2:4]
array([2., 3.], dtype=float32)
"""

from bedform import _accessor
from bedform._advise import Advice, Profile, advise, calibrate
from bedform._array import Array
from bedform._convert import convert
from bedform._errors import (
    BedformError,
    BusyError,
    ConflictError,
    CorruptError,
    ExistsError,
    InternalError,
    InvalidArgumentError,
    InvalidSelectionError,
    IoError,
    LimitExceededError,
    NoDirectoryError,
    NoSpaceError,
    NotFoundError,
    OutOfBoundsError,
    PermissionDeniedError,
    PoisonedError,
    ReadOnlyError,
    SnapshotMovedError,
    UnsupportedError,
    WrongTypeError,
)
from bedform._explanation import Explanation
from bedform._foreign_array import ForeignArray
from bedform._foreign_child import SlowOpenWarning
from bedform._foreign_store import ForeignStore, NativeReadWarning
from bedform._group import Group
from bedform._hdf5 import enable_hdf5
from bedform._index import IndexReport, index
from bedform._internal import __version__
from bedform._layout import Regular
from bedform._left_out import ArchiveWarning, LeftOutWarning
from bedform._opening import create, open  # noqa: A004 - the name users expect
from bedform._optimize import Optimization, optimize
from bedform._overflow import ConversionWarning
from bedform._referencing import MadeReferences, references
from bedform._reorganize import Reorganization
from bedform._report import report
from bedform._session import Decomposition, Session
from bedform._sidecar import SidecarWarning
from bedform._simulate import Simulation, machine, machines, simulate
from bedform._store import Store
from bedform._traces import learn, watch, watch_state
from bedform._trust import trust
from bedform._write_dataset import write_dataset

__all__ = [
    "Advice",
    "ArchiveWarning",
    "Array",
    "BedformError",
    "BusyError",
    "ConflictError",
    "ConversionWarning",
    "CorruptError",
    "Decomposition",
    "ExistsError",
    "Explanation",
    "ForeignArray",
    "ForeignStore",
    "Group",
    "IndexReport",
    "InternalError",
    "InvalidArgumentError",
    "InvalidSelectionError",
    "IoError",
    "LeftOutWarning",
    "LimitExceededError",
    "MadeReferences",
    "NativeReadWarning",
    "NoDirectoryError",
    "NoSpaceError",
    "NotFoundError",
    "Optimization",
    "OutOfBoundsError",
    "PermissionDeniedError",
    "PoisonedError",
    "Profile",
    "ReadOnlyError",
    "Regular",
    "Reorganization",
    "Session",
    "SidecarWarning",
    "Simulation",
    "SlowOpenWarning",
    "SnapshotMovedError",
    "Store",
    "UnsupportedError",
    "WrongTypeError",
    "__version__",
    "advise",
    "calibrate",
    "convert",
    "create",
    "enable_hdf5",
    "index",
    "learn",
    "machine",
    "machines",
    "open",
    "optimize",
    "references",
    "report",
    "simulate",
    "trust",
    "watch",
    "watch_state",
    "write_dataset",
]

_accessor.register()
