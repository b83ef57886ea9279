"""xarray's encodings of Zarr arrays, from their metadata and back.

Reading gives exactly the encoding of xarray's own backend ``zarr``. If zarr-python is installed,
the codecs are its objects, made from the array's document without another read of storage.
Otherwise they are the dictionaries of the document.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bedform._dask_blocks import PreferredChunks, block_shape
from bedform._errors import InvalidArgumentError, UnsupportedError, WrongTypeError
from bedform._layout import Regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bedform._array import Array

# Bytes-to-bytes codecs of Zarr v3 that the engine writes.
_BYTES_CODECS = {"zstd", "gzip", "blosc", "crc32c", "numcodecs.zlib", "numcodecs.shuffle"}
# Array-to-bytes codecs that the engine writes, besides the usual ones.
_SERIALIZERS = {"pcodec", "numcodecs.pcodec"}
_BLOSC_SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}


def _strict(value: Any) -> Any:
    """Returns a fill value in Zarr's form: numbers that JSON lacks become words."""
    if isinstance(value, list):
        return [_strict(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


class _ZarrDescription(NamedTuple):
    """zarr-python's description of an array, without its shape, names and attributes."""

    dtype: np.dtype[Any]
    fill_value: Any
    codecs: Mapping[str, Any]


# Cache by document: many arrays are alike, and zarr-python takes 0.5 ms for one.
_ALIKE: dict[str, _ZarrDescription | None] = {}
_ALIKE_MAX = 256


def _by_zarr(array: Array) -> _ZarrDescription | None:
    """Returns zarr-python's description of an array; None if zarr-python has none."""
    if not _has_zarr():
        return None
    # Facts describe arrays of the engine completely; for others use the whole document.
    facts = array._facts
    names = ("zarr_format", "dtype", "chunks", "shards", "codecs", "fill_value")
    known = [facts[name] for name in names] if facts["bedform"] else _without_names(array)
    key = json.dumps(known, sort_keys=True)
    if key not in _ALIKE:
        if len(_ALIKE) >= _ALIKE_MAX:
            _ALIKE.clear()
        _ALIKE[key] = _ask_zarr(_without_names(array))
    return _ALIKE[key]


def _has_zarr() -> bool:
    try:
        import zarr  # noqa: F401
    except ImportError:
        return False
    return True


def _without_names(array: Array) -> dict[str, Any]:
    """Returns the document of a one-chunk array with the same storage."""
    document = array.document()
    fill_value = _strict(document.get("fill_value"))
    one = {"shape": array._facts["shards"] or array._facts["chunks"], "attributes": {}}
    document.pop("dimension_names", None)
    document.pop("bedform", None)
    return {**document, **one, "fill_value": fill_value}


def _ask_zarr(document: dict[str, Any]) -> _ZarrDescription | None:
    import zarr
    from zarr.core.array import AsyncArray
    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
    from zarr.storage import MemoryStore, StorePath

    is_v3 = document["zarr_format"] == 3
    kind: Any = ArrayV3Metadata if is_v3 else ArrayV2Metadata
    names = ["compressors", "filters", *(["serializer"] if is_v3 else [])]
    # An array that zarr-python cannot describe needs no equal encoding: xarray cannot open it.
    with contextlib.suppress(Exception):
        array = zarr.Array(AsyncArray(kind.from_dict(document), StorePath(MemoryStore())))
        codecs = {name: getattr(array, name) for name in names}
        return _ZarrDescription(array.dtype, array.fill_value, codecs)
    return None


class ZarrView:
    """An array of a Zarr store as zarr-python describes it, at the time of its opening."""

    def __init__(self, array: Array) -> None:
        self._array = array
        facts = array._facts
        self.attributes: dict[str, Any] = dict(facts["attributes"])
        self.shape: tuple[int, ...] = tuple(facts["shape"])
        self.zarr_format: int = facts["zarr_format"]
        described = _by_zarr(array)
        if described is None:
            described = _ZarrDescription(self._dtype(), self._fill_value(), self._codecs())
        #: The type that readers see: text as NumPy's variable-length strings; in v2 as stored.
        self.dtype = described.dtype
        #: The fill value; ``None`` if a v2 array has none.
        self.fill_value = described.fill_value
        self._described = described

    def encoding(self) -> dict[str, Any]:
        """Returns the chunks and codecs in the words of xarray's backend ``zarr``."""
        array = self._array
        chunks, shards = array.chunks, array.shards
        blocks = block_shape(self.shape, self.dtype.itemsize, chunks, shards)
        encoding: dict[str, Any] = {
            "chunks": chunks,
            "preferred_chunks": PreferredChunks(array.dims, blocks, chunks),
            **self._described.codecs,
            "shards": shards,
        }
        if self.dtype.kind == "T":
            encoding["dtype"] = self.dtype
        return encoding

    # Without zarr-python --------------------------------------------------------------------------

    def _dtype(self) -> np.dtype[Any]:
        if self._array.dtype == object:
            return np.dtypes.StringDType()
        stored = self._array.document()["dtype"] if self.zarr_format == 2 else None
        # With the byte order of v2; structured types have it already.
        return np.dtype(stored) if isinstance(stored, str) else self._array.dtype

    def _fill_value(self) -> Any:
        is_missing = self._array.document().get("fill_value") is None
        return None if is_missing else self._array.fill_value

    def _codecs(self) -> dict[str, Any]:
        if self.zarr_format == 2:
            document = self._array.document()
            compressor = document.get("compressor")
            return {
                "compressors": () if compressor is None else (compressor,),
                "filters": tuple(document.get("filters") or ()),
            }
        chain = array_codecs(self._array)
        makes_bytes = {"bytes", "vlen-utf8", *_SERIALIZERS}
        at = next(at for at, codec in enumerate(chain) if codec["name"] in makes_bytes)
        return {
            "compressors": tuple(chain[at + 1 :]),
            "filters": tuple(chain[:at]),
            "serializer": chain[at],
        }


def array_codecs(array: Array) -> list[dict[str, Any]]:
    """Returns the codecs of a chunk as in Zarr v3 metadata."""
    return cast("list[dict[str, Any]]", array.info()["codecs"])


def codecs_from(encoding: Mapping[str, Any], *, demanded: bool) -> dict[str, Any] | None:
    """Returns the codec arguments of a new array: ``codecs`` and perhaps ``transpose``.

    ``None`` if the encoding has none. Unsupported codecs raise only if the encoding was
    ``demanded``; one inherited from another source is ignored then.
    """
    try:
        return _codecs_from(encoding)
    except UnsupportedError:
        if demanded:
            raise
        return None


def _codecs_from(encoding: Mapping[str, Any]) -> dict[str, Any] | None:
    result: dict[str, Any] = {}
    serializer = _serializer(encoding.get("serializer", "auto"))
    filters = encoding.get("filters", "auto")
    for codec in _sequence(filters):
        plain = _configured(codec)
        if plain["name"] == "vlen-utf8":
            continue
        if plain["name"] != "transpose":
            raise UnsupportedError(f"the filter {plain['name']!r} is not supported for new arrays")
        result["transpose"] = list(plain["configuration"]["order"])
    compressors = encoding.get("compressors", "auto")
    if isinstance(compressors, str) and compressors == "auto":
        if serializer:
            result["codecs"] = serializer
        return result or None
    result["codecs"] = [*serializer, *(_bytes_codec(codec) for codec in _sequence(compressors))]
    return result


def _sequence(codecs: Any) -> Iterable[Any]:
    if codecs is None or (isinstance(codecs, str) and codecs == "auto"):
        return ()
    return codecs if isinstance(codecs, (list, tuple)) else (codecs,)


def _serializer(codec: Any) -> list[Any]:
    """Returns the encoding's serializer unless it is the default one."""
    serializer = _configured(codec)
    if serializer in (None, "auto"):
        return []
    name, configuration = serializer["name"], serializer.get("configuration") or {}
    if name in _SERIALIZERS:
        return [{"name": name, "configuration": configuration}]
    endian = str(configuration.get("endian", "little"))
    if name not in {"bytes", "vlen-utf8"} or endian != "little":
        raise UnsupportedError(f"the serializer {name!r} ({endian}) is not supported")
    return []


def _configured(codec: Any) -> Any:
    """Converts a codec (an object, a name or a dictionary) to Zarr v3 metadata."""
    if hasattr(codec, "to_dict"):
        codec = codec.to_dict()
    elif hasattr(codec, "get_config"):
        codec = codec.get_config()
    if isinstance(codec, dict) and "id" in codec:
        configuration = {key: value for key, value in codec.items() if key != "id"}
        return _of_numcodecs(str(codec["id"]), configuration)
    if isinstance(codec, str) and codec != "auto":
        return {"name": codec, "configuration": {}}
    return codec


def _of_numcodecs(name: str, configuration: dict[str, Any]) -> dict[str, Any]:
    """Converts a codec of Zarr v2 to v3."""
    if name == "blosc" and isinstance(configuration.get("shuffle"), int):
        # -1 selects by the size of the elements, which is unknown here.
        shuffle = _BLOSC_SHUFFLES.get(configuration["shuffle"], "shuffle")
        configuration = {**configuration, "shuffle": shuffle}
    if name in {"zlib", "shuffle"}:
        name = f"numcodecs.{name}"
    return {"name": name, "configuration": configuration}


def _bytes_codec(codec: Any) -> Any:
    plain = _configured(codec)
    name = plain.get("name") if isinstance(plain, dict) else None
    if name not in _BYTES_CODECS:
        raise UnsupportedError(f"the compressor {name or codec!r} is not supported for new arrays")
    configuration = plain.get("configuration") or {}
    if not configuration and isinstance(codec, str):
        return name
    return {"name": name, "configuration": configuration}


def layout_from(encoding: Mapping[str, Any], shape: Sequence[int], name: str) -> Regular | None:
    """Returns the chunks and shards of an encoding; ``None`` if it has none."""
    chunks = _lengths(encoding.get("chunks"), shape, name, "chunks")
    shards = _lengths(encoding.get("shards"), shape, name, "shards")
    if chunks is None:
        return None if shards is None else Regular(shards, shards)
    if shards is not None and any(s % c for s, c in zip(shards, chunks, strict=True)):
        raise InvalidArgumentError(
            f"{name}: the shards {shards} are no multiple of the chunks {chunks}"
        )
    return Regular(chunks, shards)


def _lengths(value: Any, shape: Sequence[int], name: str, key: str) -> tuple[int, ...] | None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return None
    if isinstance(value, (int, np.integer)):
        value = (int(value),) * len(shape)
    if not isinstance(value, (tuple, list)) or len(value) != len(shape):
        # As in xarray: an encoding from before a change of the dimensions is ignored.
        return None
    if any(isinstance(part, bool) or not isinstance(part, (int, np.integer)) for part in value):
        raise WrongTypeError(f"{name}: encoding[{key!r}] must be whole numbers, not {value!r}")
    return tuple(max(1, int(part)) for part in value)
