"""Captures and tables that several tests look at."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from captures import Capture, Http, dns

import manyways

PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 16_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148"
DESK = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36"
SERVER = "198.51.100.7"


def a_day(begins: float = 0.0) -> Capture:
    """Twelve flows of a phone and twelve of a desk, all alike but for what is said here: the
    phone's local half is 8 to 19 ms, the desk's 1 to 12 ms; both fetch a text and an image."""
    capture = Capture()
    for number in range(12):
        for client, agent, local in (
            ("10.0.0.1", PHONE, 0.008 + number / 1000),
            ("10.0.0.2", DESK, 0.001 + number / 1000),
        ):
            Http(
                client,
                SERVER,
                began=begins + number * 10.0,
                port=40_000 + number,
                agent=agent,
                local=local,
                # 2,000 bytes in 0.1 s + 0.1 s, then 60,000 in 0.05 s + 0.35 s; 1 s between.
                responses=(("text/html", 2_000, 0.1, 0.1, 1.0), ("image/png", 60_000, 0.05, 0.35, 2.0)),
            ).put(capture)
        dns(capture, "10.0.0.1", "10.0.0.53", begins + number * 10 + 9.5, 0.030, "www.example.com")
    Http(
        "10.0.0.2",
        SERVER,
        began=begins + 200.0,
        method="POST",
        agent=DESK,
        responses=(("text/html", 1_000, 0.2, 0.0, 0.5),),
    ).put(capture)
    return capture


def rows(table: str, *given: dict) -> pa.Table:
    """Rows of a table, in which all columns are absent but those that are given."""
    schema = manyways.schemas()[table]
    columns = {field.name: [row.get(field.name) for row in given] for field in schema}
    return pa.table(columns, schema=schema)


@pytest.fixture(scope="session")
def capture(tmp_path_factory):
    return a_day().write(tmp_path_factory.mktemp("captures") / "day.pcap")


@pytest.fixture(scope="session")
def tables(capture):
    return manyways.read_captures(capture, local=["10.0.0.0/8"])


@pytest.fixture(scope="session")
def flows(tables):
    return manyways.Flows(tables)


@pytest.fixture(scope="session")
def folder(tables, tmp_path_factory):
    """As `manyways flows -o` writes it: tables without a row are left out where nothing needs them."""
    folder = tmp_path_factory.mktemp("tables")
    for name, table in tables.items():
        if table.num_rows or name in ("tcp", "udp"):
            parquet.write_table(table, folder / f"{name}.parquet")
    return folder
