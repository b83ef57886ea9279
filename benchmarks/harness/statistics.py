"""Medians, ratios of pairs, and bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000
LOSS_RATIO = 1.05


@dataclass(frozen=True)
class Ratio:
    """The median of per-round ratios with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    def is_loss(self, limit: float = LOSS_RATIO) -> bool:
        """Whether even the lower bound exceeds `limit`; smaller times are better.

        >>> Ratio(1.2, 1.1, 1.3).is_loss(), Ratio(1.2, 1.0, 1.3).is_loss()
        (True, False)
        """
        return self.low > limit

    def describe(self) -> str:
        """Return the ratio for a table."""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def paired_ratio(ours: list[float], theirs: list[float]) -> Ratio:
    """Return the ratio of our time to theirs, round by round.

    >>> paired_ratio([1.0, 2.0], [2.0, 4.0]).median
    0.5
    """
    ratios = np.asarray(ours) / np.asarray(theirs)
    random = np.random.default_rng(0)
    drawn = random.choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def median(samples: list[float]) -> float:
    """Return the median."""
    return float(np.median(samples))


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean.

    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return float(np.exp(np.mean(np.log(values))))
