"""Attributes as JSON: what Zarr stores, and back."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

# The engine marks numbers that JSON lacks by a character of the private use area.
_NON_FINITE = {
    "\ue000NaN": math.nan,
    "\ue000Infinity": math.inf,
    "\ue000-Infinity": -math.inf,
}


def _plain(value: Any) -> Any:
    """``value`` as JSON has it; numbers that JSON lacks as the words that Zarr v3 uses."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be an attribute: it is not JSON")


def dump_attributes(attributes: Any) -> str:
    """Attributes as a JSON object. NaN and infinities become the words that Zarr v3 uses."""
    return json.dumps(_plain(dict(attributes or {})), allow_nan=False)


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _restore(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_restore(entry) for entry in value]
    if isinstance(value, str) and value[:1] == "\ue000":
        return _NON_FINITE.get(value, value)
    return value


def load(text: str) -> Any:
    """A JSON document of the engine; bare NaN of other writers come back as numbers."""
    return _restore(json.loads(text))
