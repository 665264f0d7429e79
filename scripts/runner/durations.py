"""How long each test took on this machine, so that the longest ones start first."""

import json
import os

from .processes import CACHE

FILE = CACHE / "durations.json"


def load():
    """Returns seconds by the title of the test; empty on a new machine."""
    try:
        return json.loads(FILE.read_text())
    except (OSError, ValueError):
        return {}


def store(seconds):
    """Adds the seconds of some tests; without a cache, the next run only starts in another order."""
    try:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        new = FILE.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(load() | seconds))
        new.replace(FILE)
    except OSError:
        pass
