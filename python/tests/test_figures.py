"""Figures can be read: nothing is cut off, and nothing lies over something else."""

import pytest
from conftest import rows

import manyways
from manyways.figure import make
from manyways.questions import ALL

HTTP = {"is_valid": True, "protocol": "http", "has_other_methods": False, "requests": 1}


@pytest.fixture(scope="module")
def spread():
    """Flows and requests of several devices and servers, whose times span half a decade to three,
    so that each panel of a figure has numbers of its own below it."""
    flows = []
    for device, handheld in enumerate((True, False, None)):
        for number in range(24):
            flow = {
                "flow": len(flows),
                **HTTP,
                "is_handheld": handheld,
                "organisation": f"a well-known organisation {number % 7}",
                "cluster": number % 2,
                "is_g1": True,
                "rtt": 0.0005 * 1.4**number,
                "servicing_rate": 9e3 * 1.7**number,
                "client_window_first": 4_000 if number % 3 else 60_000,
                "server": f"192.0.2.{device}",
            }
            flows.append(flow)
    http = [
        {
            "flow": number,
            "method": "GET",
            "content": ("text", "image", "video")[number % 4 % 3],
            "response_time": 0.011 * 1.04**number,
        }
        for number in range(len(flows))
    ]
    return manyways.Flows({"tcp": rows("tcp", *flows), "http": rows("http", *http)})


def drawn(flows, name):
    """The figure and what measures it."""
    figure = make(flows, ALL[name], None)
    figure.canvas.draw()
    return figure, figure.canvas.get_renderer()


def numbers(axis):
    """Those below a panel."""
    low, high = axis.get_xlim()
    labels = axis.get_xticklabels()
    return [one for one in labels if one.get_text() and low <= one.get_position()[0] <= high]


def is_readable(figure, renderer):
    whole = figure.bbox.padded(1)
    title = figure._suptitle.get_window_extent(renderer)
    assert whole.x0 <= title.x0 and title.x1 <= whole.x1, "the title is cut off"
    below = []
    for axis in figure.axes:
        shown = numbers(axis)
        assert 2 <= len(shown) <= 8, [one.get_text() for one in shown]
        below += [one.get_window_extent(renderer) for one in shown]
        legend = axis.get_legend()
        if legend:
            plot, keys = axis.get_window_extent(renderer), legend.get_window_extent(renderer)
            assert not plot.overlaps(keys), "the keys lie over the data"
            assert whole.y0 <= keys.y0, "the keys are cut off"
    # Those of one panel beside each other, and of panels beside each other.
    below.sort(key=lambda box: box.x0)
    for one, other in zip(below, below[1:], strict=False):
        assert one.x1 < other.x0, "numbers lie over each other"


@pytest.mark.parametrize("name", ALL)
def test_nothing_in_a_figure_is_cut_off_or_covered(name, flows, spread):
    for given in (flows, spread):
        if not given.ask(name).nothing:
            is_readable(*drawn(given, name))


@pytest.mark.parametrize("name", ["rtt", "icwnd-effect", "response-time", "requests"])
def test_the_figures_of_the_trials_are_drawn(name, spread):
    assert not spread.ask(name).nothing


def test_an_axis_of_counts_begins_at_zero_and_has_whole_numbers(spread):
    """Each flow has one request: from 0.96 to 1.04 says nothing."""
    figure, _ = drawn(spread, "requests")
    (axis,) = figure.axes
    low, high = axis.get_xlim()
    assert low == 0 and 1 < high < 1.2
    assert [one.get_text() for one in numbers(axis)] == ["0", "1"]
