"""Result of giving the arrays of a store new layouts."""

from __future__ import annotations

from typing import Any

from bedform._plan_lines import foremost, gain_by_array, gain_of_read, profile_line
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
        gains = gain_by_array(self.plan["reads"])
        arrays, more_arrays = foremost(
            self.plan["arrays"], lambda array: gains.get(array["array"], 0.0)
        )
        for array in arrays:
            now = layout_text(array["now"])
            if array["is_changed"]:
                size = format_bytes(array["bytes"])
                said = f"{now} now, {layout_text(array['then'])} then, {size}"
            else:
                said = f"{now}, stays: {array['kept']}"
            lines.append(f"{array['array']}: {said}")
        lines += [f"and {more_arrays:,} more arrays"] if more_arrays else []
        reads, more_reads = foremost(self.plan["reads"], gain_of_read)
        for read in reads:
            now, then = (format_seconds(read[f"seconds_{when}"]) for when in ("now", "then"))
            shape = format_shape(read["shape"])
            lines.append(f"{read['array']}: reads of {shape}: {now} now, {then} then")
        lines += [f"and {more_reads:,} more kinds of reads"] if more_reads else []
        lines += profile_line(self.plan)
        return "\n".join([*lines, *(f"note: {note}" for note in self.plan["notes"])])


def layout_text(layout: dict[str, Any]) -> str:
    """Returns a layout in a few words."""
    chunks, shards = (format_shape(layout[key]) for key in ("chunk_shape", "shard_shape"))
    return f"chunks of {chunks} in shards of {shards}, {layout['order']}"
