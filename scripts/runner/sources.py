"""What the sources say about a test: remarks above it, and whether a line belongs to a test."""

import functools
import re
import subprocess

from .processes import ROOT

# A remark stands above the attributes of its test.
REMARK = re.compile(r"^\s*// (Slow|Alone): (.*)")
FUNCTION = re.compile(r"^\s*(?:pub )?(?:async )?fn (\w+)")
# Code of the harness, whose panics are failed expectations.
HARNESS = ("crates/rig/", "tests/", "bench/", "fuzz/")


@functools.cache
def remarks():
    """Returns the remarks of all tests: {(kind, function): reason}."""
    found, waiting = {}, []
    listed = subprocess.run(
        ["git", "grep", "-hE", r"^\s*(// (Slow|Alone): |(pub )?(async )?fn )", "--", "*.rs"],
        cwd=ROOT, capture_output=True, text=True,
    )
    for line in listed.stdout.splitlines():
        if match := REMARK.match(line):
            waiting.append(match.groups())
        elif match := FUNCTION.match(line):
            found.update({(kind, match[1]): reason for kind, reason in waiting})
            waiting = []
    return found


def remark(kind, test):
    """Returns the reason of the remark above a test; empty if it has none."""
    return remarks().get((kind, test.function), "")


@functools.cache
def _first_test_line(path):
    """Returns the line on which the tests of a file begin; all of it, for a file of tests."""
    if path.endswith("/tests.rs") or "/tests/" in path:
        return 0
    try:
        lines = (ROOT / path).read_text().splitlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines, 1) if line.startswith("#[cfg(test)]")), len(lines) + 1)


def is_product(path, line):
    """Whether a line, as panics name it, belongs to the product: not to its tests or the harness."""
    path = path.removeprefix("./")
    return path.startswith("crates/") and not path.startswith(HARNESS) and line < _first_test_line(path)


@functools.cache
def added_files(base="origin/main"):
    """Returns the Rust files that the change since `base` added, with their text."""
    listed = subprocess.run(
        ["git", "diff", "--name-only", "--diff-filter=A", f"{base}...HEAD", "--", "*.rs"],
        cwd=ROOT, capture_output=True, text=True,
    )
    paths = [ROOT / path for path in listed.stdout.splitlines()]
    return {path: path.read_text() for path in paths if path.exists()}


def is_new(test):
    """Whether the file of a test was added by the change since `origin/main`."""
    pattern = re.compile(rf"\bfn {re.escape(test.function)}\b")
    return any(test.binary.folder in path.parents and pattern.search(text) for path, text in added_files().items())
