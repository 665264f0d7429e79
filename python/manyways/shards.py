"""Writes, reads and removes the shards of a folder; each is complete or absent."""

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
    """Returns the manifest of a shard; None if the shard is absent or incomplete."""
    try:
        return json.loads((home / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None


def write(home: Path, tables: Mapping[str, pa.Table | Path], about: dict) -> None:
    """Writes a complete shard atomically, also with several writers. A `Path` among the tables is
    a file to copy; the name of a table may contain a folder."""
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
    """Removes a shard atomically."""
    if home.exists():
        # A folder cannot be renamed over another one.
        old = home.parent / f".{home.name}.{uuid.uuid4().hex}.old"
        home.rename(old)
        shutil.rmtree(old, ignore_errors=True)
