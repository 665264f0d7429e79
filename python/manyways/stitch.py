"""Joins flows that the ends of captures cut.

Shards with consecutive captures are a chain. A flow is cut if a shard has packets of its
five-tuple soon after the packets of an earlier shard. All packets of these five-tuples are copied
into small captures, one for each capture, and one run over these finds the same flows as over all
captures. Their rows become a separate shard, `shard=stitched-NAME`; the rows of
these five-tuples in the chain's shards move to `.cut` in their folders, where no query finds them;
they return when the chain changes.

Every step can be repeated: the next call finishes interrupted work.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from manyways import shards
from manyways.captures import excerpt, read_timed, schemas

# A capture that begins this much before the one before it ended goes on with it, as in one run.
_OVERLAP = 2_000_000_000
# A UDP flow is over after this, whatever is said of others.
_UDP_IDLE = 120.0
# Tables of flows, and IANA's numbers of their protocols.
_PROTOCOLS = {"tcp": 6, "udp": 17}
_NAME_SERVER = 53
_ENDS = ("client", "client_port", "server", "server_port")
_CUT = ".cut"
_ROW = "row"
# What joins other records, and is taken from the row that the flow's beginning has in its shard,
# group by group, where the first of a group is there.
_JOINED = (
    ("name", "name_source", "domain"),
    ("is_handheld", "system", "device_evidence", "device_confidence"),
    ("system", "is_handheld", "device_evidence", "device_confidence"),
    ("cluster", "cluster_rtt"),
    ("concurrency",),
)
# A name from the flow's own packets is better than one from elsewhere.
_OWN_NAMES = ("http", "tls")

# Protocol, and both ends, the lower one first.
Tuple = tuple[int, str, int, str, int]
Each = Callable[[Callable, list[tuple]], list]


def stitch(out: Path, manifests: list[dict], each: Each, is_wanted: bool = True) -> list[dict]:
    """Stitches flows; returns the new manifests, then those of stitched shards. `each` runs a
    task for each of a list of arguments."""
    chains = _chains(manifests) if is_wanted else []
    given = {one["shard"] for one in manifests}
    old = [one for home in out.glob("shard=stitched-*") if (one := shards.manifest(home))]
    old = [one for one in old if given & set(one["shards"])]
    results, plans, kept = [], {}, set()
    for chain in chains:
        names = {one["shard"] for one in chain}
        done = next((one for one in old if names <= set(one["shards"]) and _is_whole(out, one)), None)
        if done:
            if done["shard"] not in kept:
                results.append({**done, "resumed": True})
            kept.add(done["shard"])
        elif len(chain) > 1 and (flows := _cut(out, chain)):
            plan = _plan(out, chain, flows)
            plans[plan["shard"]] = plan
    for plan in plans.values():
        results.append(_perform(out, plan, each))
    # What was stitched in another way comes back.
    busy = {name for plan in plans.values() for name in plan["shards"]}
    stale = [one for one in old if one["shard"] not in kept]
    back = [(str(out), name, None) for one in stale for name in one["cut"] if name not in busy]
    each(_split, back)
    for one in stale:
        if one["shard"] not in plans:
            shards.remove(out / f"shard={one['shard']}")
    now = [{**one, **_now(out, one)} for one in manifests]
    return now + results


def _chains(manifests: list[dict]) -> list[list[dict]]:
    """Returns the chains: lists of shards with consecutive captures."""
    chains: list[list[dict]] = []
    latest, seen, is_open = None, set(), False
    for manifest in manifests:
        if "failed" in manifest:
            latest, is_open = None, False
            continue
        if manifest["shard"] in seen:
            continue
        seen.add(manifest["shard"])
        breaks = []
        for index, (first, last) in enumerate(times for times in manifest["passed"] if times):
            if latest is not None and first + _OVERLAP < latest:
                breaks.append(index)
                latest = None
            latest = last if latest is None else max(latest, last)
        # One with a break in it would be two parts of two chains: it stays as it is.
        is_split = any(breaks)
        if is_open and not breaks:
            chains[-1].append(manifest)
        else:
            chains.append([manifest])
        is_open = not is_split
    return chains


def _cut(out: Path, chain: list[dict]) -> set[Tuple]:
    """Returns five-tuples of flows that may continue in another shard; some may not."""
    idle = int(max(chain[0]["idle"], _UDP_IDLE) * 1e9)
    found: set[Tuple] = set()
    # When something of these passed last.
    going_on: dict[Tuple, int] = {}
    latest = None
    for manifest in chain:
        times = [times for times in manifest["passed"] if times]
        if not times:
            continue
        before = latest
        latest = max(latest or 0, *(last for _, last in times))
        ended: dict[Tuple, int] = {}
        for name, protocol in _PROTOCOLS.items():
            rows = _held(out / f"shard={manifest['shard']}", name, [*_ENDS, "started", "ended"])
            if rows is None:
                continue
            began, over = (rows.column(c).cast(pa.int64()) for c in ("started", "ended"))
            may_be = pc.greater_equal(over, latest - idle)
            if before is not None:
                may_be = pc.or_(may_be, pc.less_equal(began, before + idle))
            some = [rows.column(c).filter(may_be).to_pylist() for c in _ENDS]
            some += [began.filter(may_be).to_pylist(), over.filter(may_be).to_pylist()]
            for *ends, start, end in zip(*some, strict=True):
                key = _tuple(protocol, *ends)
                if key in going_on and start - going_on[key] <= idle:
                    found.add(key)
                ended[key] = max(end, ended.get(key, 0))
        for key, end in ended.items():
            going_on[key] = max(end, going_on.get(key, 0))
        going_on = {key: end for key, end in going_on.items() if end >= latest - idle}
    return found


def _tuple(protocol: int, client: str, client_port: int, server: str, server_port: int) -> Tuple:
    one, other = sorted(((client, client_port), (server, server_port)))
    return (protocol, *one, *other)


def _plan(out: Path, chain: list[dict], flows: set[Tuple]) -> dict:
    """Writes the plan, a file that all tasks read."""
    stem = f"stitched-{chain[0]['shard']}"
    plan = {
        "shard": stem,
        "key": _key(chain),
        "shards": [one["shard"] for one in chain],
        "captures": [[source["path"] for source in one["captures"]] for one in chain],
        **{name: chain[0][name] for name in ("local", "idle", "packets")},
        "flows": sorted(flows),
    }
    text = json.dumps(plan)
    home = out / f".{stem}.{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    for other in out.glob(f".{stem}.*"):
        if other != home:
            shutil.rmtree(other, ignore_errors=True)
    # Packets come into it, and what they carry: it is for nobody else.
    home.mkdir(mode=0o700, exist_ok=True)
    _replace(home / "plan.json", lambda path: path.write_text(text))
    return {**plan, "home": str(home)}


def _key(chain: list[dict]) -> str:
    """Returns the key of a chain: its shards and their captures."""
    made_of = ("shard", "captures", "local", "idle", "packets")
    text = json.dumps([[one[name] for name in made_of] for one in chain])
    return hashlib.sha256(text.encode()).hexdigest()


def _is_whole(out: Path, stitched: dict) -> bool:
    """Returns whether a stitched shard is complete: its shards are unchanged, their rows moved."""
    now = {name: shards.manifest(out / f"shard={name}") for name in stitched["shards"]}
    if not all(now.values()) or _key(list(now.values())) != stitched["key"]:
        return False
    return all(now[name].get("stitched") == stitched["key"] for name in stitched["cut"])


def _now(out: Path, manifest: dict) -> dict:
    """Returns the fields of a manifest that stitching changed."""
    now = {} if "failed" in manifest else shards.manifest(out / f"shard={manifest['shard']}") or {}
    return {name: now[name] for name in ("rows", "stitched") if name in now}


def _perform(out: Path, plan: dict, each: Each) -> dict:
    home = plan["home"]
    try:
        has = each(_copy, [(str(out), home, index) for index in range(len(plan["shards"]))])
        cut = [name for name, has_some in zip(plan["shards"], has, strict=True) if has_some]
        (manifest,) = each(_join, [(str(out), home, cut)])
        each(_split, [(str(out), name, home) for name in plan["shards"]])
    except (OSError, ValueError) as error:
        # As if nobody had tried: what a shard knows is better than half of what they know together.
        each(_split, [(str(out), name, None) for name in plan["shards"]])
        shards.remove(out / f"shard={plan['shard']}")
        return {"shard": plan["shard"], "shards": plan["shards"], "failed": str(error)}
    shutil.rmtree(home, ignore_errors=True)
    return manifest


def _copy(out: str, home: str, index: int) -> bool:
    """Copies the packets of the flows from a shard's captures; returns whether rows exist."""
    plan = _read_plan(home)
    for number, capture in enumerate(plan["captures"][index]):
        path = Path(home) / f"{index}-{number}"
        if not path.exists():
            _replace(path, lambda path, capture=capture: excerpt(capture, plan["flows"], path))
    whose = _Whose(plan["flows"])
    shard = Path(out) / f"shard={plan['shards'][index]}"
    flows = ((name, _held(shard, name, list(_ENDS))) for name in _PROTOCOLS)
    return any(rows is not None and pc.any(whose.of(name, rows)).as_py() for name, rows in flows)


def _join(out: str, home: str, cut: list[str]) -> dict:
    """Analyses the copies in one run."""
    plan = _read_plan(home)
    captures = [
        Path(home) / f"{index}-{number}"
        for index, paths in enumerate(plan["captures"])
        for number in range(len(paths))
    ]
    with warnings.catch_warnings():
        # The shards' own manifests tell of faults.
        warnings.simplefilter("ignore")
        tables, _ = read_timed(
            captures, local=plan["local"], idle=plan["idle"], packets=plan["packets"]
        )
    whose = _Whose(plan["flows"])
    whose.look_at(tables)
    found = {name: table.filter(whose.of(name, table)) for name, table in tables.items()}
    for name in _PROTOCOLS:
        homes = [Path(out) / f"shard={shard}" for shard in cut]
        found[name] = _joined(name, found[name], homes)
    manifest = {
        "shard": plan["shard"],
        "key": plan["key"],
        "shards": plan["shards"],
        "cut": cut,
        "rows": {name: table.num_rows for name, table in found.items()},
        "faults": [],
    }
    shards.write(Path(out) / f"shard={plan['shard']}", found, manifest)
    return manifest


def _joined(name: str, table: pa.Table, homes: list[Path]) -> pa.Table:
    """Adds columns of the shards that the packets of a flow do not determine, such as names."""
    groups = [[c for c in group if c in table.column_names] for group in _JOINED]
    columns = sorted({column for group in groups for column in group})
    flows = [("flow", "in", table.column("flow").to_pylist())]
    known: dict[int, dict] = {}
    for home in homes:
        rows = _held(home, name, ["flow", *columns], flows) if table.num_rows else None
        for row in rows.to_pylist() if rows is not None else ():
            known.setdefault(row["flow"], row)
    values = {column: table.column(column).to_pylist() for column in columns}
    for index, flow in enumerate(table.column("flow").to_pylist()):
        row = known.get(flow, {})
        for group in (group for group in groups if group and row.get(group[0]) is not None):
            if group[0] == "name" and values["name_source"][index] in _OWN_NAMES:
                continue
            for column in group:
                values[column][index] = row[column]
    for column in columns:
        field = table.schema.field(column)
        place = table.schema.get_field_index(column)
        table = table.set_column(place, field, pa.array(values[column], field.type))
    return table


def _split(out: str, name: str, home: str | None) -> None:
    """Moves the rows of cut flows to `.cut`, or without a plan moves them back."""
    shard = Path(out) / f"shard={name}"
    manifest = shards.manifest(shard)
    if manifest is None:
        return
    plan = _read_plan(home) if home else {"flows": [], "key": None}
    if plan["key"] and manifest.get("stitched") == plan["key"]:
        return
    whose = _Whose(plan["flows"])
    whose.look_at({name: _held(shard, name, ["flow", *_ENDS]) for name in _PROTOCOLS})
    tables: dict[str, pa.Table | Path] = {}
    has_changed, has_cut = False, False
    for table in schemas():
        was_cut = (shard / _CUT / f"{table}.parquet").exists()
        file = shard / f"{table}.parquet"
        if not was_cut and not file.exists():
            continue
        rows = _whole(shard, table)
        mask = whose.of(table, rows)
        is_cut = bool(pc.any(mask).as_py())
        has_changed, has_cut = has_changed or was_cut or is_cut, has_cut or is_cut
        if not was_cut and not is_cut:
            tables[table] = file
            continue
        tables[table] = rows.filter(pc.invert(mask))
        manifest["rows"][table] = tables[table].num_rows
        if is_cut:
            places = pa.array(range(rows.num_rows), pa.int64()).filter(mask)
            tables[f"{_CUT}/{table}"] = rows.filter(mask).append_column(_ROW, places)
    manifest.pop("stitched", None)
    if has_cut:
        manifest["stitched"] = plan["key"]
    if has_changed:
        shards.write(shard, tables, manifest)


class _Whose:
    """A filter for the rows of given flows."""

    def __init__(self, flows: Iterable[Tuple]):
        self._ends: dict[str, set[str]] = {name: set() for name in _PROTOCOLS}
        self._questions: set[str] = set()
        names = {protocol: name for name, protocol in _PROTOCOLS.items()}
        for protocol, *ends in flows:
            name = names[protocol]
            for one, port, other, other_port in (ends, [*ends[2:], *ends[:2]]):
                self._ends[name].add(f"{one} {port} {other} {other_port}")
                if other_port == _NAME_SERVER:
                    self._questions.add(f"{one} {port} {other} {name}")
        self._flows = pa.array([], pa.int64())

    def look_at(self, tables: dict[str, pa.Table | None]) -> None:
        """Stores the numbers of the flows in these tables."""
        numbers: list[int] = []
        for name in _PROTOCOLS:
            if (table := tables[name]) is not None:
                numbers += table.column("flow").filter(self.of(name, table)).to_pylist()
        self._flows = pa.array(numbers, pa.int64())

    def of(self, name: str, table: pa.Table) -> pa.ChunkedArray:
        """Returns for each row whether it belongs to the flows."""
        if name in _PROTOCOLS:
            return self._among(table, _ENDS, self._ends[name])
        if name == "dns":
            columns = ("client", "client_port", "server", "transport")
            return self._among(table, columns, self._questions)
        # Those of Multipath TCP stay with the others of their connections.
        if "flow" in table.column_names and name != "subflows":
            return pc.is_in(table.column("flow"), self._flows)
        return pa.chunked_array([pa.repeat(False, table.num_rows)], pa.bool_())

    def _among(self, table: pa.Table, columns: Iterable[str], wanted: set[str]) -> pa.ChunkedArray:
        texts = [table.column(column).cast(pa.large_string()) for column in columns]
        joined = pc.binary_join_element_wise(*texts, pa.scalar(" ", pa.large_string()))
        return pc.is_in(joined, pa.array(sorted(wanted), pa.large_string()))


def _held(home: Path, name: str, columns: list[str], filters: list | None = None) -> pa.Table | None:
    """Returns rows of a shard, including those in `.cut`, in any order."""
    files = [folder / f"{name}.parquet" for folder in (home, home / _CUT)]
    parts = [
        parquet.read_table(file, columns=columns, filters=filters, partitioning=None)
        for file in files
        if file.exists()
    ]
    return pa.concat_tables(parts) if parts else None


def _whole(home: Path, name: str) -> pa.Table:
    """Returns all rows of a shard's table, in their original order."""
    file, aside = home / f"{name}.parquet", home / _CUT / f"{name}.parquet"
    rows = parquet.read_table(file, partitioning=None) if file.exists() else None
    if not aside.exists():
        return schemas()[name].empty_table() if rows is None else rows
    back = parquet.read_table(aside, partitioning=None)
    places = back.column(_ROW).to_pylist()
    back = back.drop_columns([_ROW])
    rows = back.slice(0, 0) if rows is None else rows
    taken = set(places)
    others = [place for place in range(rows.num_rows + len(places)) if place not in taken]
    order = pc.sort_indices(pa.array(others + places, pa.int64()))
    return pa.concat_tables([rows, back]).take(order)


def _read_plan(home: str) -> dict:
    plan = json.loads((Path(home) / "plan.json").read_text())
    plan["flows"] = [tuple(one) for one in plan["flows"]]
    return plan


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file atomically."""
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        write(fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
