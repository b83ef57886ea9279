"""The main job on real input, shown in two ways; every answer is compared with the file's.

:func:`replicate` leaves the file as its producer wrote it, and makes its reads fast by replicas;
:func:`convert` lays the field out as a new store.

Promises
--------
- The input is a real field, grown in time and written as its producer writes it, or a file of the
  user's own; the growth is said, and it compresses within 10 % of the source.
- The file, and a sidecar that it has, stay as they are.
- Every answer of every reader is compared with the one of h5py; a difference is an error.
- Reads are cold where the system lets us make them so, and it is said when it does not.
"""

from __future__ import annotations

from .conversion import convert
from .files import Request
from .replication import replicate

__all__ = ["Request", "convert", "replicate"]
