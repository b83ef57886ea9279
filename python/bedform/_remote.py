"""URLs of object stores, and how these are reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedform._errors import InvalidArgumentError

#: What ``storage_options`` may have. No secrets: they would be pickled.
_STORAGE_OPTIONS: dict[str, tuple[type, ...]] = {
    "anonymous": (bool,),
    "endpoint": (str,),
    "region": (str,),
    "single_writer": (bool,),
    "deadline_seconds": (int, float),
    "stall_seconds": (int, float),
    "bytes_per_second_min": (int, str),
}


def storage_options_among(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Those of the options that say how an object store is reached; nothing if there are none."""
    found = {name: value for name, value in options.items() if name in _STORAGE_OPTIONS}
    return found or None


def is_url(path: str) -> bool:
    """True for what is no path of this machine."""
    return "://" in path


def without_query(path: str) -> str:
    """The path, or a URL on a web server as messages may show it: its query may be a secret."""
    if not path.lower().startswith(("http://", "https://")):
        return path
    return path.partition("#")[0].partition("?")[0]


def storage_options_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options as the engine takes them.

    Raises
    ------
    InvalidArgumentError
        There is no such option, or its value is of another type.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidArgumentError(f"storage_options must be a dictionary, not {given!r}")
    for name, value in (given or {}).items():
        expected = _STORAGE_OPTIONS.get(name)
        if expected is None:
            raise InvalidArgumentError(
                f"there is no storage option {name!r}: there are {', '.join(_STORAGE_OPTIONS)}; "
                "credentials are taken from the environment"
            )
        # True is an integer, too.
        is_other = isinstance(value, bool) and bool not in expected
        if is_other or not isinstance(value, expected):
            types = " or ".join(kind.__name__ for kind in expected)
            raise InvalidArgumentError(
                f"the storage option {name!r} must be a {types}, not {value!r}"
            )
    return dict(given or {})
