"""Draws answers as figures into files."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from manyways import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
# So many numbers stand side by side below a panel.
_TICKS = 5


def draw(flows: Flows, question: Question, where: str | None, path: Path) -> None:
    """Draws the answer of a question into a file; the suffix of its name determines the format."""
    from manyways.flows import FlowsError

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise FlowsError(
            f"{path} names no format of figures", "end it in .png, .svg or .pdf", is_usage=True
        )
    try:
        make(flows, question, where).savefig(path, dpi=150)
    except ImportError as error:
        raise FlowsError(
            "matplotlib is not installed", "install it with: pip install 'manyways[plot]'"
        ) from error
    except OSError as error:
        raise FlowsError(f"cannot write {path}: {error.strerror}") from error


def make(flows: Flows, question: Question, where: str | None) -> Figure:
    """Returns the figure of an answer."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not through pyplot: that would look for a display.
    figure = Figure(layout="constrained")
    FigureCanvasAgg(figure)
    draws = {"bars": _bars, "shares": _shares}.get(question.figure, _distributions)
    draws(figure, flows, question, where)
    _title(figure, question.title)
    return figure


def _distributions(figure, flows: Flows, question: Question, where: str | None) -> None:
    """Draws a panel per value of the first column, with a curve per value of the second."""
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
    lines = max(min(len(series), _LINES) for series in panels.values())
    # Keys stand below the panels: none of the places within is free of curves for sure.
    figure.set_size_inches(max(5.5, 3.6 * len(panels) + 0.8), 3.6 + 0.16 * lines)
    # The last number of a panel and the first of the next one need room beside each other.
    figure.get_layout_engine().set(wspace=0.04)
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
        axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.2))
    values = [point for series in panels.values() for _, _, points in series for point in points]
    least, most = min(values) / factor, max(values) / factor
    _scale(axes, least, most, logarithmic=logarithmic, is_count=not unit)
    axes[0].set_ylabel("share of observations (CDF)")
    axes[0].set_ylim(0, 1)


def _scale(axes, least: float, most: float, *, logarithmic: bool, is_count: bool) -> None:
    """Sets the common axis of values, with labels that do not overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    first, plain = axes[0], FuncFormatter(lambda value, _: f"{value:,.10g}")
    if logarithmic:
        first.set_xscale("log")
        first.set_xlim(least / 1.15, most * 1.15)
        # Powers of ten alone, where there are enough of them.
        few = most < 100 * least
        for axis in axes:
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=_TICKS + 1))
            axis.xaxis.set_major_formatter(plain)
            axis.xaxis.set_minor_formatter(NullFormatter())
        return
    # Zero is where sizes, rates and counts begin: one value alone gives no other scale.
    begin, end = min(0.0, least), max(0.0, most)
    end = end if end > begin else 1.0
    room = 0.04 * (end - begin)
    first.set_xlim(begin - (room if begin < 0 else 0), end + (room if end > 0 else 0))
    for axis in axes:
        axis.xaxis.set_major_locator(MaxNLocator(_TICKS, integer=is_count))
        axis.xaxis.set_major_formatter(plain)


def _title(figure, text: str) -> None:
    """Sets the title, wrapped at the width of the figure."""
    shown = figure.suptitle(text, fontsize=11)
    room = 0.96 * figure.bbox.width
    for columns in range(len(text), 20, -4):
        shown.set_text(textwrap.fill(text, columns))
        if shown.get_window_extent(figure.canvas.get_renderer()).width <= room:
            return


def _spans_decades(panels: dict[str, list[tuple[str, int, list[float]]]]) -> bool:
    """Returns whether the values are positive and span at least a factor of ten."""
    curves = [points for series in panels.values() for _, _, points in series]
    least, most = min(points[0] for points in curves), max(points[-1] for points in curves)
    return 0 < 10 * least <= most


def _bars(figure, flows: Flows, question: Question, where: str | None) -> None:
    """Draws the share of each label, in a panel for each value of the preceding column."""
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
    """Draws a stacked bar for each label, from the shares of its time."""
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
