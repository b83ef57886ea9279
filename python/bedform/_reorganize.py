"""Result of giving the arrays of a store new layouts."""

from __future__ import annotations

from typing import Any

from bedform._text import format_bytes, format_seconds, format_shape


class Reorganization:
    """Plan and outcome of new layouts for the arrays of a store.

    Examples
    --------
    >>> Reorganization({"arrays": [], "reads": [], "notes": [], "bytes": 0}, None).changed
    []
    """

    def __init__(self, plan: dict[str, Any], done: dict[str, Any] | None) -> None:
        self.plan = plan
        self.done = done

    @property
    def changed(self) -> list[str]:
        """Names of the arrays that get another layout, by the plan."""
        return [array["array"] for array in self.plan["arrays"] if array["is_changed"]]

    def to_dict(self) -> dict[str, Any]:
        """Returns plan and outcome; the outcome is ``None`` for a dry run."""
        return {"plan": self.plan, "done": self.done}

    def __repr__(self) -> str:
        kept = len(self.plan["arrays"]) - len(self.changed)
        what = f"{len(self.changed)} arrays with another layout, {kept} as they are"
        return f"<Reorganization: {what}{'' if self.done else ', nothing was written'}>"

    def __str__(self) -> str:
        lines = []
        for array in self.plan["arrays"]:
            now = layout_text(array["now"])
            if array["is_changed"]:
                size = format_bytes(array["bytes"])
                said = f"{now} now, {layout_text(array['then'])} then, {size}"
            else:
                said = f"{now}, stays: {array['kept']}"
            lines.append(f"{array['array']}: {said}")
        for read in self.plan["reads"]:
            now, then = (format_seconds(read[f"seconds_{when}"]) for when in ("now", "then"))
            shape = format_shape(read["shape"])
            lines.append(f"{read['array']}: reads of {shape}: {now} now, {then} then")
        return "\n".join([*lines, *(f"note: {note}" for note in self.plan["notes"])])


def layout_text(layout: dict[str, Any]) -> str:
    """Returns a layout in a few words."""
    chunks, shards = (format_shape(layout[key]) for key in ("chunk_shape", "shard_shape"))
    return f"chunks of {chunks} in shards of {shards}, {layout['order']}"
