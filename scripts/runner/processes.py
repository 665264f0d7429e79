"""Processes of a run: each in a group that ends with the runner, and those that a test left behind."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Each test has its name in this variable, and so has every process that it starts.
MARK = "MANYWAYS_TEST"
# Ended processes need this many seconds at most to disappear.
GRACE = 5.0

_running = set()
_lock = threading.Lock()


def execute(command, limit, environment=None, folder=ROOT):
    """Runs a command for at most `limit` seconds; returns its status, output and duration."""
    start = time.monotonic()
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )
    with _lock:
        _running.add(child)
    try:
        text, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # First a signal on which tests remove their namespaces.
        _signal_group(child, signal.SIGTERM)
        try:
            text, _ = child.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            _signal_group(child, signal.SIGKILL)
            text, _ = child.communicate()
        text += f"\nended after {limit} s\n"
    finally:
        with _lock:
            _running.discard(child)
    return child.returncode, text, time.monotonic() - start


def end_all():
    """Ends every process that `execute` started."""
    with _lock:
        for child in _running:
            _signal_group(child, signal.SIGTERM)


def _signal_group(child, number):
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass


def marked(name):
    """Yields the process id and the command line of each process that a test started."""
    wanted = f"{MARK}={name}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                # A process without a command line has ended, and nobody has waited for it yet.
                if line:
                    yield int(folder.name), line
        except OSError:
            pass


def end_leftover(name):
    """Kills the processes that a test left behind; returns their command lines."""
    deadline = time.monotonic() + GRACE
    killed = {}
    while left := dict(marked(name)):
        if time.monotonic() > deadline + GRACE:
            break
        if time.monotonic() > deadline:
            killed |= left
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.02)
    return list(killed.values())
