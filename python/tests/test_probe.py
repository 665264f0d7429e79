"""Probes by the command; a small program stands for it."""

import json
import stat

import pytest

from manyways import probe

RESULT = {"interface": "wlan0", "ending": "complete", "ping": {"median": 0.028}}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Replaces the command: prints `stdout`, and keeps its arguments."""

    def replace(stdout="", stderr="", code=0):
        path = tmp_path / "manyways"
        path.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{tmp_path}/arguments\n"
            f"cat <<'END'\n{stdout}\nEND\ncat >&2 <<'END'\n{stderr}\nEND\nexit {code}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("MANYWAYS", str(path))
        return lambda: (tmp_path / "arguments").read_text().splitlines()

    return replace


def test_a_ping_is_a_row(program):
    arguments = program(json.dumps({"results": [RESULT]}))
    row = probe.ping("example.org", via="wlan0", tcp=443, isolated=True, cap=None)
    assert row["ping"]["median"] == 0.028
    assert arguments() == [
        *["probe", "ping", "--json", "--via", "wlan0", "--tcp", "443", "--isolated"],
        *["--", "example.org"],
    ]


def test_every_network_has_a_row_also_if_it_failed(program):
    failed = {"interface": "wwan0", "ending": "failed", "message": "wwan0 is gone or down"}
    program(json.dumps({"results": [RESULT, failed]}), code=1)
    rows = probe.run("ping", "example.org", via=["wlan0", "wwan0"])
    assert [row["ending"] for row in rows] == ["complete", "failed"]


def test_a_refusal_is_an_error_with_a_hint(program, monkeypatch):
    program("", "manyways: there is no interface `a`\nhint: the interfaces are lo", 2)
    with pytest.raises(probe.ProbeError, match="^there is no interface") as caught:
        probe.ping("example.org", via="a")
    assert caught.value.hint == "the interfaces are lo"
    monkeypatch.setenv("MANYWAYS", "/nowhere/manyways")
    with pytest.raises(probe.ProbeError, match="cannot run /nowhere/manyways") as caught:
        probe.ping("example.org", via="a")
    assert "environment variable MANYWAYS" in caught.value.hint
