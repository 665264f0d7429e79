"""Captures by the thousand: one task of Ray for each, and answers that are put together.

    extract(captures, "tables", address="auto")
    quantiles("tables", "servicing-rate")

Each capture becomes a shard of its own, `shard=NAME/TABLE.parquet`, which `manyways ask` and
`Flows` read like the tables of one run. A shard is whole or not there: it is written beside and
renamed, and what is whole is left alone when the work goes on after an interruption.

Flows that the ends of captures cut are one all the same: captures that are given in their order go
on with each other as in one run, and the flows that did are in shards of their own,
`shard=stitched-NAME`, and no longer in those of their captures. Rows of `tcp`, `udp`, `http`,
`exchanges`, `seconds`, `packets`, and of questions to name servers, are those of one run.

What one run does and this does not: it knows names, leases and devices from all captures, and what
else joins other records (`concurrency`, `cluster`); here these columns are as the shard knows them in
which a flow begins, and `devices` and `fetches` have what a shard knows. Subflows of Multipath TCP
find each other only within a shard, and `mptcp` and `subflows` number its own flows, cut ones too. A
packet that a capture's end cut into fragments counts only where its flow has whole ones on both
sides. Captures that belong together in these ways may be one shard: a list of them, in their order.

Workers see captures and the folder for the tables under the same paths, on a file system that they
share. Ray is needed for clusters alone: without an address everything runs in this process.
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
    """Captures that are read together, in their order."""

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

    `address` is of a cluster of Ray ("auto", "ray://HOST:10001", or "local" for one of this machine);
    without one nothing but this process works. With `resume`, shards that are whole stay as they
    are, unless their captures have changed since, or they were read in another way.

    With `stitch`, flows that go on in later captures are one, in shards of their own, whose manifests
    come last. Give all captures that follow each other in one call, in their order: what was stitched
    with others comes apart when they are given in another way. A shard with captures that do not
    follow each other goes on with no other one.

    A capture that fails fails alone: its manifest says why under "failed".
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
    """The quantiles of a question, put together from a sketch of each shard: within 1 %.

    Only what fits into memory shard by shard is ever loaded. Each shard is looked at by itself, so
    what a question compares within all flows, as "all others", is compared within a shard.
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
    """Runs where the capture is looked at."""
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
    """Runs where the shard is looked at."""
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
    """The cluster is there as long as this lasts, where one is wanted."""
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
    """What the task returns for each of these, in their order."""
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
