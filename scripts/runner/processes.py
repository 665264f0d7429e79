"""Processes of a run: each in a session that ends with the runner, and those that a test left behind."""

import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The folder of this machine for results and tools; commands work without it, too.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~")) / ".cache") / "manyways"
# Each process of a test has the mark of its run in this variable. Marks of this runner begin alike.
MARK = "MANYWAYS_TEST"
OURS = f"{os.getpid()}.{time.time_ns()}:"
# Ended processes of a busy machine need this many seconds at most to disappear.
GRACE = 30.0
# Tests that are asked to end have these seconds.
END = 15.0

_running = set()
_ending = False
# A signal handler takes it, too, perhaps in the thread that has it.
_lock = threading.RLock()


def execute(command, limit, mark="", environment=None, folder=ROOT, apart=False):
    """Runs a command for at most `limit` seconds. Returns its status (None at the limit), output, duration
    and the command lines of processes that it left behind, which are ended. `apart` puts standard error
    behind standard output, so that no line of it is within one."""
    start = time.monotonic()
    mark = f"{OURS}{time.time_ns()}:{mark}"
    environment = {**(environment or os.environ), MARK: mark}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with _lock:
            if _ending:
                raise SystemExit(1)
            child = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=errors if apart else subprocess.STDOUT, start_new_session=True,
            )
            _running.add(child)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            end(mark, child.pid)
            child.wait()
        seconds = time.monotonic() - start
        left = end_leftover(mark, child.pid) if status is not None else []
        with _lock:
            _running.discard(child)
        text = ""
        for file in (output, errors):
            file.seek(0)
            text += file.read().decode(errors="replace")
    if status is None:
        text += f"\nended after {limit} s\n"
    return status, text, seconds, left


def belonging(mark, session):
    """Returns the processes with a mark that begins like this or in a session: {pid: command line}."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            # A process without a command line has ended, and its parent has not waited for it yet.
            if not line or int(folder.name) == os.getpid():
                continue
            # Some programs write their title over their environment, but remain in the session.
            is_in_session = session == int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            if is_in_session or any(one.startswith(wanted) for one in (folder / "environ").read_bytes().split(b"\0")):
                found[int(folder.name)] = line
        except (OSError, IndexError, ValueError):
            pass
    return found


def _signal(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def end(mark, session):
    """Ends processes, at first with a signal on which labs remove their namespaces."""
    deadline = time.monotonic() + END
    while (left := belonging(mark, session)) and time.monotonic() < deadline:
        _signal(left, signal.SIGTERM)
        time.sleep(0.2)
    deadline = time.monotonic() + END
    while (left := belonging(mark, session)) and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)


def end_leftover(mark, session):
    """Ends the processes that an ended test left behind; returns their command lines."""
    deadline = time.monotonic() + GRACE
    while left := belonging(mark, session):
        if time.monotonic() > deadline:
            end(mark, session)
            return list(left.values())
        time.sleep(0.02)
    return []


def end_all():
    """Ends every process that `execute` started, and all that come from it."""
    global _ending
    with _lock:
        _ending = True
        running = [child.pid for child in _running]
    ends = [threading.Thread(target=end, args=(OURS, pid)) for pid in running]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join()
