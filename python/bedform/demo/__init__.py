"""Demonstration of Bedform's main job on real input, in two variants.

:func:`replicate` makes reads of a file fast by replicas and leaves the file as it is.
:func:`convert` converts the field to a new store.

Promises
--------
- The input is a file of the user, or a real field that is extended in time and written like its
  source. The output states the extension; the file compresses within 10 % of the source.
- The file and an existing sidecar of it do not change.
- Every result of every reader is compared with that of h5py; a difference is an error.
- Reads are cold where the system allows it; otherwise the output says so.
"""

from __future__ import annotations

from .conversion import convert
from .files import DemoOptions
from .replication import replicate

__all__ = ["DemoOptions", "convert", "replicate"]
