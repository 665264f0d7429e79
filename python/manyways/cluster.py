"""Reads thousands of captures with one Ray task for each, and merges the answers.

    extract(captures, "tables", address="auto")
    quantiles("tables", "servicing-rate")

Each capture becomes a separate shard, `shard=NAME/TABLE.parquet`, which `manyways flows ask` and
`Flows` read like the tables of one run. A shard appears only when it is complete: a task writes it
under another name and renames it. After an interruption, the next run keeps complete shards.

Flows across the ends of captures become one flow: captures in their order of time continue
each other as in one run. The rows of these flows are in separate shards,
`shard=stitched-NAME`, instead of the shards of their captures. Rows of `tcp`, `udp`, `http`,
`exchanges`, `seconds`, `packets` and `dns` equal those of one run.

Differences from one run: one run uses names, leases and devices of all captures, also in columns
that join records (`concurrency`, `cluster`); here, these columns use only the shard in
which a flow begins, and `devices` and `fetches` are those of each shard. MPTCP subflows
are joined only within a shard, and `mptcp` and `subflows` contain its flows, also cut ones. A
packet whose fragments are in two captures counts only if its flow has complete packets on both
sides. To avoid these differences, pass a list of captures, in their order, as one shard.

Workers need a shared file system, with captures and the output folder under the same
paths. Only clusters need Ray: without an address, all tasks run in this process.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyways import shards
from manyways.captures import CaptureWarning, read_timed
from manyways.flows import Flows, FlowsError, find
from manyways.questions.question import QUANTILES
from manyways.sketch import Sketch
from manyways.stitch import stitch as _stitch

# So many tasks wait for a worker at a time: a million captures need no million of them.
_WAITING = 256


@dataclass(frozen=True)
class Shard:
    """Captures that one task reads together, in their order."""

    name: str
    captures: tuple[str, ...]
    local: tuple[str, ...] = ()
    idle: float = 300.0
    packets: bool = False


def extract(
    captures: Iterable[str | os.PathLike[str] | Sequence[str | os.PathLike[str]]],
    out: str | os.PathLike[str],
    address: str | None = None,
    resume: bool = True,
    *,
    local: Iterable[str] = (),
    idle: float = 300.0,
    packets: bool = False,
    stitch: bool = True,
) -> list[dict]:
    """Writes the tables of each capture, or of each list of captures, and returns their manifests.

    `address` is a Ray cluster ("auto", "ray://HOST:10001", or "local" for one on this machine);
    without an address, all tasks run in this process. With `resume`, complete shards stay
    unchanged, unless their captures have changed since, or the arguments differ.

    With `stitch`, flows across captures become one flow, in separate shards, whose manifests
    come last. Give all consecutive captures in one call, in their order: a later call
    with other captures undoes this stitching. A shard with captures that do not
    follow each other is not stitched.

    A failed capture does not affect the others: its manifest contains the reason under "failed".
    """
    out = Path(out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    local = tuple(local)
    given = [_shard(one, local, float(idle), packets) for one in captures]
    with _connected(address):

        def each(task: Callable[..., Any], arguments: list[tuple]) -> list:
            return _each(task, arguments, address)

        manifests = each(_extract, [(shard, str(out), resume) for shard in given])
        return _stitch(out, manifests, each, stitch)


def quantiles(
    folder: str | os.PathLike[str],
    question: str,
    where: str | None = None,
    address: str | None = None,
) -> pa.Table:
    """Returns the quantiles of a question, from merged sketches of all shards; error at most 1 %.

    At most one shard per task is in memory. Each shard is evaluated separately, so
    a question that compares groups of flows, as with "all others", compares them within a shard.
    """
    asked = find(question)
    folder = Path(folder).absolute()
    found = sorted(str(shard) for shard in folder.glob("shard=*"))
    merged: dict[tuple, Sketch] = {}
    with _connected(address):
        sketched = _each(_sketch, [(shard, question, where) for shard in found], address)
    for parts in sketched:
        for labels, text in parts:
            merged.setdefault(tuple(labels), Sketch()).merge(Sketch.parse(text))
    rows = [
        {
            **dict(zip(asked.by, labels, strict=True)),
            "count": len(sketch),
            **{name: sketch.quantile(at) for name, at in QUANTILES.items()},
        }
        for labels, sketch in sorted(merged.items(), key=lambda one: tuple(map(str, one[0])))
    ]
    columns = [(label, pa.string()) for label in asked.by]
    columns += [("count", pa.int64()), *((name, pa.float64()) for name in QUANTILES)]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def _shard(captures, local: tuple[str, ...], idle: float, packets: bool) -> Shard:
    if isinstance(captures, (str, os.PathLike)):
        captures = [captures]
    paths = tuple(str(Path(path).absolute()) for path in captures)
    # Of the paths, as folders may have files of the same name.
    digest = hashlib.sha256("\0".join(paths).encode()).hexdigest()[:12]
    stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in Path(paths[0]).name)
    return Shard(f"{stem[:80]}-{digest}", paths, local, idle, packets)


def _extract(shard: Shard, out: str, resume: bool) -> dict:
    """Reads the captures of a shard and writes its tables; runs on the worker."""
    home = Path(out) / f"shard={shard.name}"
    try:
        sources = [_source(path) for path in shard.captures]
        wanted = {
            "captures": sources,
            "local": list(shard.local),
            "idle": shard.idle,
            "packets": shard.packets,
        }
        old = shards.manifest(home) if resume else None
        if old and "passed" in old and all(old.get(k) == v for k, v in wanted.items()):
            return {**old, "resumed": True}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CaptureWarning)
            tables, passed = read_timed(
                shard.captures, local=shard.local, idle=shard.idle, packets=shard.packets
            )
        manifest = {
            "shard": shard.name,
            **wanted,
            # When the first and the latest packet of each capture did.
            "passed": passed,
            "rows": {name: table.num_rows for name, table in tables.items()},
            "faults": [str(one.message) for one in caught],
        }
        shards.write(home, tables, manifest)
        return manifest
    except (OSError, ValueError) as error:
        return {"shard": shard.name, "failed": str(error)}


def _source(path: str) -> dict:
    status = os.stat(path)
    return {"path": path, "bytes": status.st_size, "modified": status.st_mtime_ns}


def _sketch(shard: str, question: str, where: str | None) -> list[tuple[list[str], str]]:
    """Computes the sketches of a shard; runs on the worker."""
    asked = find(question)
    by = ", ".join(asked.by)
    rows = Flows(shard).query(
        asked.observed(where)
        + f"SELECT {by}, value, count(*) AS times FROM observed\n"
        + f"WHERE value >= 0 GROUP BY {by}, value ORDER BY {by}"
    )
    sketches: dict[tuple, Sketch] = {}
    *labels, values, times = rows.to_pydict().values()
    for *label, value, count in zip(*labels, values, times, strict=True):
        sketches.setdefault(tuple(label), Sketch()).add(float(value), count)
    return [(list(label), sketch.json()) for label, sketch in sketches.items()]


@contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Connects to the Ray cluster for the duration of the context, if there is an address."""
    if address is None:
        yield
        return
    try:
        import ray
    except ImportError as error:
        raise FlowsError(
            "ray is not installed", "install it with: pip install 'manyways[cluster]'"
        ) from error
    ours = not ray.is_initialized()
    if ours:
        # It would tell its makers that it runs.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(None if address == "local" else address, log_to_driver=False)
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _each(task: Callable[..., Any], arguments: list[tuple], address: str | None) -> list:
    """Runs the task with each of the arguments, and returns the results in the same order."""
    if address is None:
        return [task(*one) for one in arguments]
    import ray

    remote = ray.remote(max_retries=3)(task)
    waiting: dict[Any, int] = {}
    results: list = [None] * len(arguments)
    for index, one in enumerate(arguments):
        if len(waiting) >= _WAITING:
            _collect(ray, waiting, results)
        waiting[remote.remote(*one)] = index
    while waiting:
        _collect(ray, waiting, results)
    return results


def _collect(ray, waiting: dict[Any, int], results: list) -> None:
    done, _ = ray.wait(list(waiting), num_returns=1)
    for one in done:
        results[waiting.pop(one)] = ray.get(one)
