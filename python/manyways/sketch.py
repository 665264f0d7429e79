"""Computes quantiles of values on many machines, from sketches that can be merged.

A sketch counts values in bins whose edges grow by a constant factor, so that a quantile is within
1 % of an existing value (DDSketch, VLDB 2019). Bins add up: two merged sketches
equal one sketch of all values.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable

# A quantile is so close to a value that is there.
ACCURACY = 0.01
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_LOG = math.log(_GAMMA)
# Beyond that nothing is measured: values are moved to these ends, and there are at most 3,500 bins.
LEAST, MOST = 1e-12, 1e18


class Sketch:
    """Counts of non-negative numbers by bin; negative numbers raise an error."""

    def __init__(self, values: Iterable[float] = ()):
        self.bins: Counter[int] = Counter()
        self.zeros = 0
        for value in values:
            self.add(value)

    def __len__(self) -> int:
        return self.zeros + self.bins.total()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sketch) and (self.zeros, self.bins) == (other.zeros, other.bins)

    def add(self, value: float, times: int = 1) -> None:
        """Adds a value `times` times."""
        if not 0 <= value < math.inf:
            raise ValueError(f"{value} is no number from zero on")
        if value < LEAST:
            self.zeros += times
        else:
            self.bins[math.ceil(math.log(min(value, MOST)) / _LOG)] += times

    def merge(self, other: Sketch) -> None:
        """Adds the values of another sketch."""
        self.zeros += other.zeros
        self.bins.update(other.bins)

    def quantile(self, at: float) -> float | None:
        """Returns the quantile `at`, from 0 to 1; None if the sketch is empty."""
        count = len(self)
        if count == 0:
            return None
        # The lower one of two in the middle, as quantile_disc has it.
        rank = max(0, math.ceil(at * count) - 1)
        below = self.zeros
        if rank < below:
            return 0.0
        for index in sorted(self.bins):
            below += self.bins[index]
            if rank < below:
                return 2 * _GAMMA**index / (_GAMMA + 1)
        return None

    def json(self) -> str:
        """Returns the sketch as JSON text for `parse`."""
        return json.dumps({"zeros": self.zeros, "bins": sorted(self.bins.items())})

    @classmethod
    def parse(cls, text: str) -> Sketch:
        """Returns the sketch in a text of `json`."""
        said = json.loads(text)
        sketch = cls()
        sketch.zeros = int(said["zeros"])
        sketch.bins = Counter({int(index): int(times) for index, times in said["bins"]})
        return sketch
