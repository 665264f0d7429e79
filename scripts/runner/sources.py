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
    for number, line in enumerate(lines, 1):
        if line.startswith("#[cfg(test)]"):
            # Not of a single item: a block of tests ends the file.
            item = next((other for other in lines[number:] if not other.startswith("#[")), "")
            if re.match(r"(pub )?mod \w+ \{", item):
                return number
    return len(lines) + 1


def is_product(path, line):
    """Whether a line, as panics name it, belongs to the product: not to its tests or the harness."""
    path = path.removeprefix("./")
    return path.startswith("crates/") and not path.startswith(HARNESS) and line < _first_test_line(path)


def _git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def base():
    """Returns the commit from which the change starts; empty if there is none."""
    found = (_git("merge-base", name, "HEAD").strip() for name in ("origin/main", "main"))
    return next((commit for commit in found if commit), "")


@functools.cache
def added_files():
    """Returns the files of tests that the change added, also those that are not committed, with their
    text. A file that was only moved is not among them."""
    if not base():
        return {}
    listed = _git("diff", "--name-only", "-z", "--diff-filter=A", base())
    listed += _git("ls-files", "-z", "--others", "--exclude-standard")
    paths = [ROOT / path for path in listed.split("\0") if path.endswith((".rs", ".py"))]
    return {path: path.read_text(errors="replace") for path in paths if path.exists()}


def is_new(test):
    """Whether the file of a test was added by the change since `origin/main`."""
    if test.binary.name == "python":
        file = test.name.partition("::")[0]
        return any(str(path).endswith(f"/{file}") for path in added_files())
    pattern = re.compile(rf"\bfn {re.escape(test.function)}\b")
    modules = {*test.name.split("::")[:-1], test.binary.target, "lib", "main", "mod"}
    return any(
        test.binary.folder in path.parents and path.stem in modules and pattern.search(text)
        for path, text in added_files().items()
    )
