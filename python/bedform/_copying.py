"""Copies of arrays and groups, including their descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bedform import _json
from bedform._array import Array
from bedform._errors import InvalidArgumentError
from bedform._layout import Regular
from bedform._new_array import about
from bedform._peer_words import wanted
from bedform._zarr_encoding import array_codecs, codecs_from

if TYPE_CHECKING:
    from bedform._creating import Creating

# Codecs that every array has: those from elements to bytes, and the checksum.
_IMPLIED = {"bytes", "vlen-utf8", "crc32c"}


def description_of(array: Array) -> dict[str, Any]:
    """Returns an array's description as arguments of :meth:`bedform.Group.create_array`.

    Codecs that Bedform cannot write are left to its own choice.
    """
    chain = array_codecs(array)
    filters = [codec for codec in chain if codec["name"] == "transpose"]
    serializer = [codec for codec in chain if codec["name"].endswith("pcodec")]
    others = [codec for codec in chain if codec not in filters and codec not in serializer]
    encoding = {
        "filters": filters,
        "serializer": serializer[0] if serializer else "auto",
        "compressors": [codec for codec in others if codec["name"] not in _IMPLIED],
    }
    if array._has_open_codecs():
        # The array is unwritten: the copy chooses its own codecs.
        del encoding["compressors"]
    layout = Regular(array.chunks, array.shards, array.order or "row-major")  # type: ignore[arg-type]
    return {
        "shape": array.shape,
        "dtype": str if array.dtype.hasobject else array.dtype,
        "dims": array._facts["dims"],
        "layout": layout,
        "fill_value": array.fill_value,
        "attributes": array._load_attributes(),
        **(codecs_from(encoding, demanded=False) or {}),
    }


def copy_elements(source: Any, target: Array) -> None:
    """Copies the elements of ``source`` to ``target``, of the same shape, one shard at a time."""
    if isinstance(source, np.ndarray) or not hasattr(source, "__getitem__"):
        target[...] = source
        return
    for region in target.iter_shards():
        target[region] = np.asanyarray(source[region])


def copy_group(source: Any, target: Creating, name: str) -> None:
    """Copies a group with all nodes below it; the copy appears as a whole."""
    if not hasattr(source, "_below"):
        raise InvalidArgumentError(
            f"{source!r} is of a file: bf.convert copies files, with their attributes"
        )
    nodes = [("", "group"), *((path, kind) for _, path, kind in source._below())]
    store, drafts, groups = target._store, [], []
    try:
        for path, kind in nodes:
            new_path = target._join(f"{name}/{path}".rstrip("/"))
            member = source[path] if path else source
            if kind == "group":
                groups.append((new_path, _json.dump_attributes(member._load_attributes())))
                continue
            with about(path):
                text = _json.dump(wanted(description_of(member)).description)
            inner = store._call(store._inner.create_array)(new_path, text, True)
            drafts.append(new_path)
            copy_elements(member, Array(store, inner))
        store._call(store._inner.commit_drafts)(drafts, groups)
    except BaseException:
        store._call(store._inner.discard_drafts)(drafts)
        raise
