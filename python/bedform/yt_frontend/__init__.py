"""A frontend for yt: refined meshes of stores, and plotfiles of AMReX.

``yt.load("run.zarr")`` finds it once Bedform is installed. A plotfile is opened by name,
``BedformDataset("plt00100")``, since ``yt.load`` leaves plotfiles to the frontend that yt ships.
"""

from __future__ import annotations

from bedform.yt_frontend._dataset import BedformDataset

__all__ = ["BedformDataset"]
