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
# While a process starts a program, it has neither a command line nor an environment, for at most these
# seconds.
START = 1.0

_running = set()
_ending = False
# A signal handler takes it, too, perhaps in the thread that has it.
_lock = threading.RLock()


def execute(command, limit, mark="", environment=None, folder=ROOT, apart=False):
    """Runs a command for at most `limit` seconds. Returns its status (None at the limit), output, duration
    and the command lines of processes that it left behind, which are ended. `apart` puts standard error
    behind standard output, so that no line of it is within one."""
    start, born = time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
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
        left = end_leftover(mark, child.pid, born) if status is not None else []
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
    return _scan(mark, session, 0)[0]


def _scan(mark, session, since):
    """As `belonging`; and whether another process, which exists since a time after boot, just starts a
    program, so that it may belong to them."""
    wanted = f"{MARK}={mark}".encode()
    found, is_any_starting = {}, False
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            environment = (folder / "environ").read_bytes()
            state, parent, _, of, *rest = (folder / "stat").read_text().rpartition(")")[2].split()
            # A process that has ended, and for which its parent has not waited, or one of the kernel.
            if state == "Z" or "2" in (folder.name, parent) or int(folder.name) == os.getpid():
                continue
            # Some programs write their title over their environment, but remain in the session.
            if session == int(of) or any(one.startswith(wanted) for one in environment.split(b"\0")):
                found[int(folder.name)] = line
            is_new = int(rest[15]) / os.sysconf("SC_CLK_TCK") >= since - 0.1
            is_any_starting |= is_new and not (line and environment)
        except (OSError, IndexError, ValueError):
            pass
    return found, is_any_starting


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


def end_leftover(mark, session, since):
    """Ends the processes that a test left behind, which began at this time after boot; returns their
    command lines."""
    begin = time.monotonic()
    while True:
        left, is_any_starting = _scan(mark, session, since)
        waited = time.monotonic() - begin
        if left and waited > GRACE:
            end(mark, session)
            return list(left.values())
        if not left and (not is_any_starting or waited > START):
            return []
        time.sleep(0.02)


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
