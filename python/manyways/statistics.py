"""Computes statistics that DuckDB does not have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Bins of a histogram in a decade, and what a mode needs.
_BINS = 10
_MODE_SHARE = 0.05
_VALLEY = 0.5
_MODE_VALUES = 20


@dataclass(frozen=True)
class Sample:
    """Summary of values for a t-test."""

    count: int
    mean: float
    variance: float


@dataclass(frozen=True)
class Welch:
    """Result of Welch's t-test: whether two means differ, with possibly different variances."""

    t: float
    freedom: float
    # Two-sided.
    p: float


def welch(one: Sample, other: Sample) -> Welch | None:
    """Runs Welch's t-test. Returns None for too few values, or values without variance."""
    if min(one.count, other.count) < 2:
        return None
    parts = one.variance / one.count, other.variance / other.count
    both = sum(parts)
    if not both > 0:
        return None
    t = (one.mean - other.mean) / math.sqrt(both)
    freedom = both**2 / (parts[0] ** 2 / (one.count - 1) + parts[1] ** 2 / (other.count - 1))
    return Welch(t, freedom, _beyond(t, freedom))


def _beyond(t: float, freedom: float) -> float:
    """Returns the two-sided probability that Student's t is at least as far from 0 as `t`."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Returns the regularised incomplete beta function (DLMF 8.17), by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # Lentz's method: tiny numbers stand for zeros in denominators.
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for part in (even, odd):
            d = 1 / _away(1 + part * d, tiny)
            c = _away(1 + part / c, tiny)
            step = c * d
            fraction *= step
        if abs(step - 1) < 1e-14:
            break
    return min(1.0, front * fraction / a)


def _away(number: float, tiny: float) -> float:
    return tiny if abs(number) < tiny else number


def modes(values: Sequence[float]) -> list[float]:
    """Returns the modes of values: the middles of peaks of a logarithmic histogram."""
    logs = [math.log10(value) for value in values if value > 0]
    if len(logs) < _MODE_VALUES:
        return []
    # Zeros beside it: what lies at an end can be a peak, too.
    pad = 3
    first = math.floor(min(logs) * _BINS) - pad
    bins = [0.0] * (math.floor(max(logs) * _BINS) - first + pad + 1)
    for value in logs:
        bins[math.floor(value * _BINS) - first] += 1
    for _ in range(2):
        around = [0.0, *bins, 0.0]
        bins = [
            (around[i - 1] + 2 * around[i] + around[i + 1]) / 4 for i in range(1, len(around) - 1)
        ]
    hills = _hills(bins)
    enough = _MODE_SHARE * len(logs)
    return [
        10 ** ((max(hill, key=bins.__getitem__) + first + 0.5) / _BINS)
        for hill in hills
        if sum(bins[i] for i in hill) >= enough
    ]


def _hills(bins: Sequence[float]) -> list[range]:
    """Splits bins into peaks at valleys of sufficient depth."""
    cuts, peak, valley = [], 0, 0
    for i, height in enumerate(bins):
        if height < bins[valley]:
            valley = i
        if valley <= peak:
            if height >= bins[peak]:
                peak = valley = i
        elif bins[valley] <= _VALLEY * min(height, bins[peak]) and height > 0:
            cuts.append(valley)
            peak = valley = i
        elif height >= bins[peak]:
            peak = valley = i
    edges = [0, *cuts, len(bins)]
    return [range(begin, end) for begin, end in zip(edges, edges[1:], strict=False)]
