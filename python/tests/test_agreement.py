"""The command and the package say the same about one capture."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from captures import Capture
from conftest import a_day

import manyways

ROOT = Path(__file__).parents[2]
LIMITS = ("application", "think", "receiver window", "congestion", "loss", "slow start")


@pytest.fixture
def command():
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    program = target / "debug" / "manyways"
    if not program.exists():
        pytest.skip(f"{program} was not built")
    return program


def shares(text: str) -> dict[str, float]:
    """The share of each limit in a text such as `loss 62.3 %, slow start 17.0 %`."""
    found = re.findall(rf"({'|'.join(LIMITS)}) ([0-9.]+) %", text)
    return {limit: 0.0 for limit in LIMITS} | {limit: float(share) for limit, share in found}


def test_limits_of_the_summary_the_report_and_the_question(command, tmp_path):
    # The first flow began before the capture, so that its handshake is incomplete.
    packets = sorted(a_day().packets, key=lambda packet: packet[0])[3:]
    file = Capture(packets).write(tmp_path / "day.pcap")
    out, report = tmp_path / "tables", tmp_path / "report.html"
    done = subprocess.run(
        [command, "flows", file, "-o", out, "--report", report],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (line,) = re.findall("^Limited by (.*)$", done.stdout, re.MULTILINE)
    summary = shares(line)
    assert sum(summary.values()) == pytest.approx(100, abs=0.5) and summary["application"] > 0
    (drawing,) = re.findall("<desc[^>]*>([^<]*slow start [^<]*)</desc>", report.read_text())
    assert shares(drawing) == summary
    found = manyways.Flows(out).ask("limits")
    rows = found.table.to_pylist()
    for kind in ("device", "server"):
        parts = [row for row in rows if row["kind"] == kind]
        assert sum(row["flows"] for row in parts) == 25
        time = sum(row["time"] for row in parts)
        for limit in LIMITS:
            share = sum(row["time"] * row[limit.replace(" ", "_")] for row in parts) / time
            assert 100 * share == pytest.approx(summary[limit], abs=0.051), (kind, limit)
