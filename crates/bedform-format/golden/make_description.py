"""Write `hdf5-description.json` and `hdf5-tables.json` into the directory of this script.

They are Python's chunk map of a file with every kind of HDF5 dataset; Rust must accept them. Run
with `PYTHONPATH=python:python/tests`, only when the format of the description changes.
"""

import json
import pathlib
import tempfile

from foreign_files import write_hdf5

from bedform._foreign import chunk_map

HERE = pathlib.Path(__file__).parent

with tempfile.TemporaryDirectory() as directory:
    parts = chunk_map(write_hdf5(pathlib.Path(directory) / "file.h5"))
description = json.loads(parts.description)
description["source"].update(modified_ns=1, changed_ns=2, identity=[3, 4])
text = json.dumps(description, indent=None, ensure_ascii=False, separators=(",", ":"))
(HERE / "hdf5-description.json").write_text(text + "\n")
tables = [[column.tolist() for column in table] for table in parts.tables]
(HERE / "hdf5-tables.json").write_text(json.dumps(tables) + "\n")
