"""The cells of a table row from the samples of one line: the fastest engine, and its lead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.harness.options import PEERS
from benchmarks.harness.report import milliseconds
from benchmarks.harness.statistics import Ratio, median, paired_ratio

if TYPE_CHECKING:
    from benchmarks.harness.rounds import Samples

OURS = "bedform"
UNVERIFIED = "!"
LOSS = "LOSS"


@dataclass
class Comparison:
    """One line: the samples of each engine, and the engines that skip the checksum."""

    line: str
    samples: Samples
    variants: dict[str, str]
    unverified: frozenset[str] = frozenset()

    def fastest_peer(self, verified: bool = False) -> str:
        """Returns the peer with the lowest median; `verified`: of those that verify checksums.

        If no peer verifies, all of them count.
        """
        peers = [name for name in PEERS if name in self.samples]
        honest = [name for name in peers if name not in self.unverified]
        pool = honest if verified and honest else peers
        return min(pool, key=lambda name: median(self.samples[name]))

    def ratio(self, name: str, other: str) -> Ratio | None:
        """Return the time of one engine over that of another, if both ran."""
        if name not in self.samples or other not in self.samples:
            return None
        return paired_ratio(self.samples[name], self.samples[other])

    def against(self, name: str) -> Ratio | None:
        """Return our time over that of another engine, if both ran."""
        return self.ratio(OURS, name)

    def is_loss(self, verified: bool = False) -> bool:
        """Whether we are slower than the fastest peer beyond doubt."""
        ratio = self.against(self.fastest_peer(verified))
        return ratio is not None and ratio.is_loss()

    def cell(self, name: str) -> str:
        """Return the median of an engine in milliseconds, marked if it does not verify."""
        if name not in self.samples:
            return "-"
        mark = UNVERIFIED if name in self.unverified else ""
        return milliseconds(median(self.samples[name])) + mark

    def way(self, name: str) -> str:
        """Returns an engine's name with its variant.

        >>> Comparison("full", {"zarrs": [1.0]}, {"zarrs": "serial out"}).way("zarrs")
        'zarrs (serial out)'
        """
        return f"{name} ({self.variants[name]})"

    def ratio_cell(self, name: str, marks_loss: bool = True) -> str:
        """Returns our ratio to an engine with its interval, marked if it is a loss."""
        ratio = self.against(name)
        if ratio is None:
            return "-"
        return ratio.describe() + (f" {LOSS}" if marks_loss and ratio.is_loss() else "")

    def to_dict(self) -> dict[str, Any]:
        """Returns the samples with the settings that produced them."""
        return {
            "seconds": self.samples,
            "variants": self.variants,
            "unverified": sorted(self.unverified),
        }
