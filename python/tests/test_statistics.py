"""Statistics agree with tables, and sketches with what they are of."""

import random

import pytest

from manyways.sketch import Sketch
from manyways.statistics import Sample, modes, welch


@pytest.mark.parametrize(
    # Critical values of Student's t, from any table of it.
    ("t", "freedom", "p"),
    [(2.228, 10, 0.05), (2.086, 20, 0.05), (3.169, 10, 0.01), (1.660, 100, 0.10), (1.984, 100, 0.05)],
)
def test_p_is_that_of_the_tables(t, freedom, p):
    # Two samples of the same size and variance have 2n - 2 degrees of freedom.
    count = freedom // 2 + 1
    mean = t * (2 / count) ** 0.5
    result = welch(Sample(count, mean, 1.0), Sample(count, 0.0, 1.0))
    assert result.freedom == pytest.approx(freedom)
    assert result.t == pytest.approx(t)
    assert result.p == pytest.approx(p, rel=0.01)


def test_no_difference_and_no_values():
    same = Sample(10, 1.0, 2.0)
    assert welch(same, same).p == pytest.approx(1.0)
    assert welch(same, Sample(1, 1.0, 0.0)) is None
    assert welch(Sample(5, 1.0, 0.0), Sample(5, 2.0, 0.0)) is None
    assert welch(same, Sample(10, 9.0, 2.0)).t < 0


def test_modes():
    chance = random.Random(1)
    near = [chance.lognormvariate(-4.6, 0.2) for _ in range(500)]
    far = [chance.lognormvariate(-2.3, 0.2) for _ in range(300)]
    assert modes(near) == [pytest.approx(0.01, rel=0.25)]
    assert modes(near + far) == [pytest.approx(0.01, rel=0.25), pytest.approx(0.1, rel=0.25)]
    # A few beside it are no mode, and few altogether say nothing.
    assert len(modes(near + far[:10])) == 1
    assert modes(near[:10]) == []


def test_quantiles_are_within_one_part_in_a_hundred():
    chance = random.Random(2)
    values = [chance.lognormvariate(0, 3) for _ in range(20_000)] + [0.0] * 100
    parts = [Sketch(values[i::7]) for i in range(7)]
    merged = Sketch()
    for part in parts:
        merged.merge(Sketch.parse(part.json()))
    assert merged == Sketch(values) and len(merged) == len(values)
    ordered = sorted(values)
    for at in (0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1):
        exact = ordered[max(0, -(-int(at * 1000) * len(values) // 1000) - 1)]
        assert merged.quantile(at) == pytest.approx(exact, rel=0.0101)


def test_a_sketch_refuses_what_is_no_measure():
    assert Sketch().quantile(0.5) is None
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no number"):
            Sketch([wrong])
    assert len(Sketch([1e-300, 1e300]).bins) == 1
