"""Measures networks with the `manyways probe` command.

    from manyways import probe

    row = probe.ping("example.org", via="wlan0")
    row["ping"]["median"]                   # seconds
    rows = probe.run("http", "https://example.org/")    # one row for each network

A row is a result of `manyways probe --json`, as docs/probe.md describes it: the network, how the
probe ended, its predicted and its actual cost, and what it measured, in seconds, bytes and bits a
second. The functions run the program `manyways` of the PATH, or that which the environment
variable MANYWAYS names. Options have the names of the command: `count=5` is `--count 5`, and
`isolated=True` is `--isolated`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from typing import Any

__all__ = ["ProbeError", "dns", "http", "ping", "portal", "run", "trace"]


class ProbeError(Exception):
    """The command failed. The text is its sentence; `hint` may say what helps."""

    def __init__(self, message: str, hint: str | None = None):
        super().__init__(message)
        self.hint = hint


def run(
    probe: str, *arguments: str, via: str | Iterable[str] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Runs a probe on some networks, or on all that can be used, and returns a row for each.

    A network that could not be measured has a row too; its `ending` is `failed`, and its `message`
    gives the reason.
    """
    names = [via] if isinstance(via, str) else list(via or [])
    command = [os.environ.get("MANYWAYS", "manyways"), "probe", probe, "--json"]
    command += [word for name in names for word in ("--via", name)]
    for option, value in options.items():
        flag = "--" + option.rstrip("_").replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is not None and value is not False:
            command += [flag, str(value)]
    command += ["--", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        hint = "install manyways, or name the program with the environment variable MANYWAYS"
        raise ProbeError(f"cannot run {command[0]}: {error.strerror}", hint) from error
    # The networks that failed are in the document.
    if done.returncode in (0, 1) and done.stdout:
        return json.loads(done.stdout)["results"]
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    raise ProbeError(lines[0].removeprefix("manyways: "), hints[0] if hints else None)


def _one(probe: str, target: str, via: str, options: dict[str, Any]) -> dict[str, Any]:
    return run(probe, target, via=via, **options)[0]


def ping(target: str, *, via: str, **options: Any) -> dict[str, Any]:
    """Measures round trips on a network: `row["ping"]`. With `tcp=443`, by TCP handshakes."""
    return _one("ping", target, via, options)


def dns(name: str, *, via: str, **options: Any) -> dict[str, Any]:
    """Queries the name server of a network: `row["dns"]`."""
    return _one("dns", name, via, options)


def trace(target: str, *, via: str, **options: Any) -> dict[str, Any]:
    """Finds the routers on the way, and where delay and loss begin: `row["trace"]`."""
    return _one("trace", target, via, options)


def http(url: str, *, via: str, **options: Any) -> dict[str, Any]:
    """Measures the phases of a request: `row["http"]`."""
    return _one("http", url, via, options)


def portal(url: str, *, via: str, **options: Any) -> dict[str, Any]:
    """Tells a network with internet from one with a login page: `row["portal"]`."""
    return _one("portal", url, via, options)
