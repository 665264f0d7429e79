"""Shards in a folder: each is whole or not there."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

_MANIFEST = "shard.json"


def manifest(home: Path) -> dict | None:
    """What is said of a shard; none where it is not there, or not whole."""
    try:
        return json.loads((home / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None


def write(home: Path, tables: Mapping[str, pa.Table | Path], about: dict) -> None:
    """The shard appears as a whole, however many work on it at a time. A path among the tables is of
    a file that is copied; a name may have a folder before it."""
    # Begins with a point: nobody takes it for a shard.
    fresh = home.parent / f".{home.name}.{uuid.uuid4().hex}"
    fresh.mkdir()
    try:
        for name, table in tables.items():
            path = fresh / f"{name}.parquet"
            path.parent.mkdir(exist_ok=True)
            if isinstance(table, Path):
                shutil.copyfile(table, path)
            elif table.num_rows or name == "tcp":
                parquet.write_table(table, path, compression="zstd")
        (fresh / _MANIFEST).write_text(json.dumps(about, indent=1) + "\n")
        remove(home)
        fresh.rename(home)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def remove(home: Path) -> None:
    """The shard is gone at once."""
    if home.exists():
        # A folder cannot be renamed over another one.
        old = home.parent / f".{home.name}.{uuid.uuid4().hex}.old"
        home.rename(old)
        shutil.rmtree(old, ignore_errors=True)
