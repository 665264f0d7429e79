"""Figures of answers, drawn into files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from manyways import words

if TYPE_CHECKING:
    from manyways.flows import Flows
    from manyways.questions import Question

# A curve has so many points at most, however many values it is of.
_POINTS = 500
# A panel with more lines than that cannot be read.
_LINES = 6
# Okabe and Ito's colours, which colour-blind people tell apart too.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_STYLES = ("-", "--", "-.", ":")
_SCALES = {"bit/s": (1e6, "Mbit/s"), "s": (1.0, "s"), "B": (1e3, "kB"), "1": (0.01, "%")}


def draw(flows: Flows, question: Question, where: str | None, path: Path) -> None:
    """Draws the answer of a question; the file's name says in which format."""
    from manyways.flows import FlowsError

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise FlowsError(
            f"{path} names no format of figures", "end it in .png, .svg or .pdf", is_usage=True
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FlowsError(
            "matplotlib is not installed", "install it with: pip install 'manyways[plot]'"
        ) from error
    # Not through pyplot: that would look for a display.
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    draws = {"bars": _bars, "shares": _shares}.get(question.figure, _distributions)
    draws(figure, flows, question, where)
    figure.suptitle(question.title, fontsize=11)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise FlowsError(f"cannot write {path}: {error.strerror}") from error


def _distributions(figure, flows: Flows, question: Question, where: str | None) -> None:
    """A panel for each value of the first column, and in it a curve for each of the second."""
    by = ", ".join(question.by)
    rows = flows.query(
        question.observed(where)
        + f"SELECT {by}, count(value) AS times, quantile_disc(value, "
        + f"[i / {_POINTS} FOR i IN range({_POINTS + 1})]) AS points\n"
        + f"FROM observed WHERE value IS NOT NULL GROUP BY {by} ORDER BY {by}"
    ).to_pylist()
    panels: dict[str, list[tuple[str, int, list[float]]]] = {}
    for row in rows:
        *panel, series = (words.label(str(row[column])) for column in question.by)
        name = panel[0] if panel else ""
        panels.setdefault(name, []).append((series, row["times"], row["points"]))
    factor, unit = _SCALES.get(question.unit, (1.0, ""))
    figure.set_size_inches(max(5.5, 3.6 * len(panels) + 0.8), 3.9)
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    column = question.by[0].replace("_", " ")
    logarithmic = question.log and _spans_decades(panels)
    for axis, (name, series) in zip(axes, panels.items(), strict=True):
        shown = sorted(series, key=lambda one: -one[1])[:_LINES]
        for index, (label, times, points) in enumerate(shown):
            axis.plot(
                [point / factor for point in points],
                [i / _POINTS for i in range(_POINTS + 1)],
                label=f"{label} ({times:,})",
                color=_COLOURS[index],
                linestyle=_STYLES[index % len(_STYLES)],
                linewidth=1.4,
                drawstyle="steps-pre",
            )
        title = f"{column}: {name}" if name else ""
        _finish(axis, f"{question.axis} [{unit}]" if unit else question.axis, title)
        axis.legend(fontsize=7, framealpha=0.8, edgecolor="none", loc="best")
    if logarithmic:
        axes[0].set_xscale("log")
    axes[0].set_ylabel("share of observations (CDF)")
    axes[0].set_ylim(0, 1)


def _spans_decades(panels: dict[str, list[tuple[str, int, list[float]]]]) -> bool:
    """Whether a logarithmic axis can show the values, and would show more of them."""
    curves = [points for series in panels.values() for _, _, points in series]
    least, most = min(points[0] for points in curves), max(points[-1] for points in curves)
    return 0 < 10 * least <= most


def _bars(figure, flows: Flows, question: Question, where: str | None) -> None:
    """The share of each label, in a panel for each value of the column before it."""
    rows = flows.query(question.sql(where)).to_pylist()
    columns = list(rows[0])
    label = columns[columns.index("share") - 2] if "flows" in columns else columns[0]
    label = "application" if "application" in columns else label
    panels: dict[str, list[dict]] = {}
    for row in rows:
        panels.setdefault(str(row[columns[0]]) if label != columns[0] else "", []).append(row)
    longest = max(map(len, panels.values()))
    figure.set_size_inches(max(5.5, 4.2 * len(panels)), 1.4 + 0.28 * longest)
    for axis, (name, bars) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        names = [words.label(str(bar[label])) for bar in bars]
        axis.barh(range(len(bars)), [100 * float(bar["share"] or 0) for bar in bars], color=_COLOURS[0])
        axis.set_yticks(range(len(bars)), names, fontsize=8)
        axis.invert_yaxis()
        _finish(axis, f"{question.axis} [%]", name)


def _shares(figure, flows: Flows, question: Question, where: str | None) -> None:
    """A bar for each label, made of the shares that its time falls into."""
    rows = flows.query(question.sql(where)).to_pylist()
    parts = [name for name, unit in question.units if unit == "1"]
    figure.set_size_inches(7.5, 1.8 + 0.32 * len(rows))
    axis = figure.subplots()
    begins = [0.0] * len(rows)
    for index, part in enumerate(parts):
        widths = [100 * float(row[part] or 0) for row in rows]
        colour, name = _COLOURS[index % len(_COLOURS)], part.replace("_", " ")
        axis.barh(range(len(rows)), widths, left=begins, color=colour, label=name)
        begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
    names = [f"{row['kind']}: {words.label(str(row['which']))} ({row['flows']:,})" for row in rows]
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_xlim(0, 100)
    axis.invert_yaxis()
    _finish(axis, f"{question.axis} [%]", "")
    figure.legend(fontsize=7, frameon=False, ncols=len(parts), loc="outside lower center")


def _finish(axis, name: str, title: str) -> None:
    axis.set_xlabel(name)
    axis.set_title(title, fontsize=10)
    axis.set_axisbelow(True)
    axis.grid(alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
