"""How long each step of a run took. Continuous integration passes a file, to which the scripts before
this one have added their steps."""

import contextlib
import os
import time

# Lines "NAME SECONDS".
FILE = os.environ.get("MANYWAYS_STEPS", "")
_steps = []


@contextlib.contextmanager
def step(name):
    """Measures the body."""
    start = time.monotonic()
    try:
        yield
    finally:
        _steps.append((name, time.monotonic() - start))


def line():
    """Returns the steps of this run, and before them those of the file."""
    earlier = []
    if FILE:
        with contextlib.suppress(OSError), open(FILE) as file:
            earlier = [tuple(line.rsplit(" ", 1)) for line in file.read().splitlines()]
    return ", ".join(f"{name} {float(seconds):.0f} s" for name, seconds in [*earlier, *_steps])
