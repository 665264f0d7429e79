"""Converts arrays, tables and files to the columns that the models in Rust take.

Columns are passed as memory buffers, so that only callers with numpy arrays need numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from manyways import _native

_COLUMNS = "it needs time, bytes and direction, and may have application (or app) and flow"


def file(path: Path) -> Any:
    """Reads the trace in a file or folder."""
    name = path.name.lower()
    try:
        if path.is_dir():
            return packets(_parquet(path / "packets.parquet"))
        if name.endswith(".parquet"):
            return packets(_parquet(path))
        if name.endswith((".csv", ".csv.gz")):
            return _native.Trace.csv(_text(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    raise ValueError(
        f"{path} does not end in .parquet or .csv; captures are read by manyways.read_captures"
    )


def _text(path: Path) -> bytes:
    with pa.input_stream(path) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise ValueError(f"it cannot be decompressed ({error}); compress it anew") from None


def _parquet(path: Path) -> dict[str, pa.ChunkedArray]:
    path.stat()
    try:
        file = parquet.ParquetFile(path)
        wanted = {"time", "bytes", "direction", "application", "app", "flow"}
        table = file.read([name for name in file.schema_arrow.names if name in wanted])
    except (pa.ArrowException, ValueError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(f"it cannot be read as Parquet ({first}); write it anew") from None
    return {name: table.column(name) for name in table.column_names}


def packets(source: Mapping[str, Any]) -> Any:
    """Converts columns to a trace."""
    for name in ("time", "bytes", "direction"):
        if name not in source:
            raise ValueError(f"the trace has no column `{name}`; {_COLUMNS}")
    if "app" in source and "application" in source:
        raise ValueError("the trace has both `app` and `application`; leave one out")
    time = _whole(_array(source["time"], "time"), "time")
    if pa.types.is_timestamp(time.type):
        time = _cast(time, pa.timestamp("ns", tz=time.type.tz), "time").view(pa.int64())
    elif pa.types.is_duration(time.type):
        time = _cast(time, pa.duration("ns"), "time").view(pa.int64())
    elif pa.types.is_floating(time.type):
        time = _cast(time, pa.float64(), "time")
    elif pa.types.is_integer(time.type):
        time = _cast(time, pa.int64(), "time")
    else:
        raise ValueError(
            f"the column `time` has values of {time.type}; "
            "give times, nanoseconds as whole numbers, or seconds as numbers with a point"
        )
    size = _cast(_whole(_array(source["bytes"], "bytes"), "bytes"), pa.int64(), "bytes")
    way = _direction(_whole(_array(source["direction"], "direction"), "direction"))
    name = "application" if "application" in source else "app"
    app, names = _places(source.get(name), name)
    flow, _ = _places(source.get("flow"), "flow")
    if app is not None:
        names = ["" if one is None else str(one) for one in names]
        if app.null_count:
            names.append("")
            app = app.fill_null(len(names) - 1)
    return _native.Trace.columns(
        _buffer(time),
        _buffer(size),
        _buffer(way),
        None if app is None else _buffer(app),
        names,
        None if flow is None else _buffer(flow.fill_null(-1)),
    )


def _direction(given: pa.Array) -> pa.Array:
    way = pc.index_in(_cast(given, pa.string(), "direction"), pa.array(["up", "down"]))
    if way.null_count:
        row = pc.index(pc.is_null(way), True).as_py()
        raise ValueError(
            f"the direction of row {row} is {short(given[row].as_py())}; "
            "it is up, from the device, or down"
        )
    return way.cast(pa.uint8())


def _places(given: Any, name: str) -> tuple[pa.Array | None, list]:
    """Returns the index of each value in a list of the distinct values; null stays null."""
    if given is None:
        return None, []
    values = _array(given, name)
    if pa.types.is_dictionary(values.type):
        values = _cast(values, values.type.value_type, name)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.int32()), []
    try:
        encoded = values.dictionary_encode()
    except pa.ArrowException:
        sentence = f"the column `{name}` cannot have values of {values.type}"
        raise ValueError(f"{sentence}; give texts or numbers") from None
    return encoded.indices.cast(pa.int32()), encoded.dictionary.to_pylist()


def _array(given: Any, name: str) -> pa.Array:
    """Converts values to one Arrow array."""
    try:
        values = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            # Texts of more than 2 GiB.
            values = values.cast(pa.large_string()).combine_chunks()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"the column `{name}` cannot be read ({first}); give an array") from None
    return values


def _whole(values: pa.Array, name: str) -> pa.Array:
    """Returns the values; raises an error if one is missing."""
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise ValueError(f"row {row} has no `{name}`; leave out the rows without one")
    # Nothing at all is of no type.
    return values.cast(pa.int64()) if pa.types.is_null(values.type) else values


def _cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        sentence = f"`{name}` cannot be taken for {_WORDS.get(kind, kind)}"
        raise ValueError(f"{sentence}; Arrow says: {first}") from None


_WORDS = {pa.int64(): "whole numbers", pa.float64(): "numbers", pa.string(): "texts"}
# How memory is looked at, as Python's struct calls it.
_CODES = {pa.int64(): "q", pa.int32(): "i", pa.float64(): "d", pa.uint8(): "B"}


def _buffer(values: pa.Array) -> Any:
    """Returns the memory of an array, without a copy if it is aligned."""
    code, width = _CODES[values.type], values.type.bit_width // 8
    if not len(values):
        return memoryview(bytearray(width)).cast(code)[:0]
    data = values.buffers()[1]
    begin = values.offset * width
    memory = memoryview(data)[begin : begin + len(values) * width].cast("B")
    if data.address % width:
        memory = memoryview(bytearray(memory))
    return memory.cast(code)


def floats(given: Any, name: str) -> Any:
    """Returns the memory of one number or several."""
    if isinstance(given, (str, bytes, Real)) or given is None:
        raise ValueError(f"{name} cannot be {short(given)}; give a number for each")
    return _buffer(_cast(_whole(_array(given, name), name), pa.float64(), name))


def like(given: Any, result: bytes) -> Any:
    """Returns numbers in the type of `given`: a number, a list or an array."""
    values = pa.Array.from_buffers(pa.float64(), len(result) // 8, [None, pa.py_buffer(result)], 0)
    if isinstance(given, Real):
        return values[0].as_py()
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return values
    return values.to_pylist() if isinstance(given, (list, tuple)) else values.to_numpy()


def short(given: Any) -> str:
    """Shortens a value for an error message."""
    text = repr(given)
    return text if len(text) <= 60 else text[:60] + "…"
