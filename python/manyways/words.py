"""Formats numbers and tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from manyways.questions import Question

_QUANTILES = ("p10", "p25", "p50", "p75", "p90", "p99", "median_share")
# Quantiles of fewer values are marked: of so many, the largest is at p95.
_FEW = 20
FEW_NOTE = "* of fewer than 20 values: another capture may well show others"


def amount(value: float | None, unit: str) -> str:
    """Formats a number with its unit."""
    if value is None:
        return "-"
    if unit == "1":
        return f"{value * 100:.1f} %"
    if unit == "s":
        for factor, name in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
            if abs(value) * factor >= 1 or name == "µs":
                return f"{_short(value * factor)} {name}"
    if unit in ("bit/s", "B"):
        for factor, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= factor:
                return f"{_short(value / factor)} {name}{unit}"
        return f"{_short(value)} {unit}"
    if unit == "number":
        return f"{value:.2f}"
    return _short(value)


def _short(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def unit(column: str, question: Question) -> str:
    """Returns the unit of a column of an answer."""
    said = dict(question.units).get(column)
    if said:
        return said
    if column in ("count", "flows", "responses") or column in question.by:
        return "count"
    shares = ("without_loss", "all_on_it", "share_of_bytes", "with_several")
    return "1" if column in shares else question.unit


def table(rows: pa.Table, question: Question) -> list[str]:
    """Formats rows as aligned columns under their names, with marks that a last line explains."""
    columns = []
    has_few = rows.column("count").to_pylist() if "count" in rows.column_names else []
    has_few = [count < _FEW for count in has_few]
    for name in rows.column_names:
        values = rows.column(name).to_pylist()
        is_text = any(isinstance(value, str) for value in values)
        if is_text:
            cells = ["-" if value is None else label(value) for value in values]
        else:
            # Integers of aggregates may come as decimals.
            numbers = (None if value is None else float(value) for value in values)
            cells = [amount(value, unit(name, question)) for value in numbers]
        if name in _QUANTILES and any(has_few):
            # A space where there is no mark keeps the digits below each other.
            marks = ["*" if few else " " for few in has_few]
            cells = [cell + mark for cell, mark in zip(cells, marks, strict=True)]
        cells = [name.replace("_", " "), *cells]
        width = max(map(len, cells))
        columns.append([c.ljust(width) if is_text else c.rjust(width) for c in cells])
    lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
    return [*lines, "", FEW_NOTE] if any(has_few) and set(_QUANTILES) & set(rows.column_names) else lines


def label(text: str) -> str:
    """Returns a label without its sort prefix, and with control characters removed."""
    plain = "".join(char if char.isprintable() else "?" for char in text)
    return plain[3:] if plain[:1].isdigit() and plain[1:3] == ": " else plain


def test(numbers: dict, unit: str) -> str:
    """Formats the result of a t-test as a sentence."""
    one, other = numbers["pair"]
    means = [amount(mean, unit) for mean in numbers["means"]]
    p = numbers["p"]
    said = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    verdict = "differ" if p < 0.05 else "do not differ significantly"
    where = ", ".join(label(value) for value in numbers["within"].values())
    column = numbers["column"].replace("_", " ")
    return (
        f"{where + ': ' if where else ''}means of {column} {one} ({means[0]}, "
        f"n={numbers['counts'][0]}) and {other} ({means[1]}, n={numbers['counts'][1]}) {verdict}: "
        f"Welch's t = {numbers['t']:.2f}, {numbers['degrees_of_freedom']:.1f} degrees of freedom, "
        f"{said}."
    )


def modes(name: str, at: list[float], unit: str) -> str:
    """Formats the peaks of a distribution as a sentence."""
    if not at:
        return f"{label(name)}: too few flows to look for modes."
    places = ", ".join(amount(value, unit) for value in at)
    return f"{label(name)}: {len(at)} mode{'s' if len(at) > 1 else ''}, at {places}."
