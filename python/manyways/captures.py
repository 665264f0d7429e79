"""Converts packet captures to Arrow tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa

from manyways import _native

# So many bytes of a capture are looked at together.
_PIECE = 4 << 20
_MAGICS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_UNREADABLE = {b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
# Offsets of 64 bits: a column of names may be longer than 2 GiB.
_TYPES = {
    "time": pa.timestamp("ns", tz="UTC"),
    "span": pa.float64(),
    "count": pa.int64(),
    "number": pa.float64(),
    "flag": pa.bool_(),
    "text": pa.large_string(),
}
_UNITS = {"time": "UTC", "span": "s"}


class CaptureWarning(UserWarning):
    """A capture could not be read to its end. The tables contain the packets before this point."""


@cache
def schemas() -> dict[str, pa.Schema]:
    """Returns the schema of each table by its name. The metadata describe each column."""
    return {
        table: pa.schema(
            [
                pa.field(name, _TYPES[kind], metadata=_about(kind, about))
                for name, kind, about in columns
            ],
            metadata={"about": rows, "schema": schema},
        )
        for table, schema, rows, columns in _native.schemas()
    }


def read_captures(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    local: Iterable[str] = (),
    packets: bool = False,
    idle: float = 300.0,
) -> dict[str, pa.Table]:
    """Reads captures (pcap, pcapng, btsnoop; also compressed with gzip or zstd) in the given order.

    `local` contains the local prefixes ("10.0.0.0/8"); without prefixes the client's side counts as
    local. `packets` adds a table of all packets. A flow ends after
    `idle` seconds without a packet. Flows continue if the next capture begins where this one ended.

    The result contains every table, also empty ones. All rows stay in memory until the end:
    for more rows than fit, `manyways.cluster` reads captures one by one.

    Raises OSError if a capture cannot be opened, and ValueError if an argument is
    invalid. Warns with `CaptureWarning` if a capture cannot be read to its end.
    """
    return read_timed(paths, local=local, packets=packets, idle=idle)[0]


def read_timed(
    paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    *,
    local: Iterable[str] = (),
    packets: bool = False,
    idle: float = 300.0,
) -> tuple[dict[str, pa.Table], list[tuple[int, int] | None]]:
    """Reads like `read_captures`; also returns the first and last packet times of each capture, in
    nanoseconds since 1970 (UTC); None for a capture without packets."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    captures = _native.Captures(list(local), packets, float(idle))
    passed = []
    for path in paths:
        fault = None
        try:
            for piece in _pieces(os.fspath(path)):
                captures.feed(piece)
        except EOFError as error:
            fault = str(error)
        _, found, times = captures.end()
        passed.append(times)
        if fault or found:
            warnings.warn(f"{os.fspath(path)}: {found or fault}", CaptureWarning, stacklevel=3)
    given = captures.finish()
    return {table: _table(schema, given.get(table)) for table, schema in schemas().items()}, passed


def excerpt(
    path: str | os.PathLike[str],
    flows: Iterable[tuple[int, str, int, str, int]],
    out: str | os.PathLike[str],
) -> None:
    """Writes the packets of the given flows to a new capture. A flow is a protocol (IANA's number)
    with two addresses and ports. The new capture ends where `path` becomes unreadable."""
    some = _native.Excerpt(list(flows))
    with open(out, "wb") as file:
        try:
            for piece in _pieces(os.fspath(path)):
                file.write(some.feed(piece))
        except EOFError:
            return


def _pieces(path: str) -> Iterator[bytes]:
    """Yields the content of a file in decompressed pieces."""
    with open(path, "rb") as file:
        magic = file.read(6)
    for begin, how in _UNREADABLE.items():
        if magic.startswith(begin):
            raise ValueError(f"{path} is compressed with {how}: decompress it first")
    compression = next((how for begin, how in _MAGICS.items() if magic.startswith(begin)), None)
    with pa.input_stream(path, compression=compression) as stream:
        while True:
            try:
                piece = stream.read(_PIECE)
            except OSError as error:
                raise EOFError(f"it cannot be decompressed to its end: {error}") from error
            if not piece:
                return
            yield piece


def _table(schema: pa.Schema, given: dict | None) -> pa.Table:
    if given is None:
        return schema.empty_table()
    rows, columns = given["rows"], given["columns"]
    arrays = []
    for field in schema:
        absent, validity, data = columns[field.name]
        buffers = [pa.py_buffer(buffer) for buffer in data]
        validity = None if validity is None else pa.py_buffer(validity)
        arrays.append(pa.Array.from_buffers(field.type, rows, [validity, *buffers], absent))
    return pa.Table.from_arrays(arrays, schema=schema)


def _about(kind: str, about: str) -> dict[str, str]:
    unit = {"unit": _UNITS[kind]} if kind in _UNITS else {}
    return {"about": about, **unit}
