"""URLs of object stores, and the options of their connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bedform._errors import InvalidArgumentError

#: Names and types of ``storage_options``. No secrets, since they are pickled.
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
    """Returns the options of an object store's connection; None if there are none."""
    found = {name: value for name, value in options.items() if name in _STORAGE_OPTIONS}
    return found or None


def is_url(path: str) -> bool:
    """Whether ``path`` is a URL instead of a local path."""
    return "://" in path


def without_query(path: str) -> str:
    """Returns a path or URL without the query of a web URL, which may be a secret."""
    if not path.lower().startswith(("http://", "https://")):
        return path
    return path.partition("#")[0].partition("?")[0]


def storage_options_of(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the options in the engine's form.

    Raises
    ------
    InvalidArgumentError
        An option is unknown, or its value has another type.
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
        # In Python True is an integer, too.
        is_other = isinstance(value, bool) and bool not in expected
        if is_other or not isinstance(value, expected):
            types = " or ".join(kind.__name__ for kind in expected)
            raise InvalidArgumentError(
                f"the storage option {name!r} must be a {types}, not {value!r}"
            )
    return dict(given or {})
