"""Captures become tables."""

import gzip
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from captures import EPOCH, Capture

import manyways

ROOT = Path(__file__).parents[2]


def test_every_table_of_the_crate_is_here(tables):
    sources = (ROOT / "crates/flows/src").rglob("*.rs")
    named = {
        name for path in sources for name in re.findall(r'const TABLE.*= "(\w+)"', path.read_text())
    }
    # A row that only a test has.
    assert set(manyways.schemas()) == named - {"visits"} == set(tables)
    assert len(tables) >= 13


def test_columns_say_what_they_are(tables):
    for name, table in tables.items():
        table.validate(full=True)
        assert table.schema.equals(manyways.schemas()[name], check_metadata=True)
        assert all(field.metadata[b"about"] for field in table.schema)
    duration = tables["tcp"].schema.field("duration")
    assert (duration.type, duration.metadata[b"unit"]) == (pa.float64(), b"s")
    assert tables["tcp"].schema.field("started").type == pa.timestamp("ns", tz="UTC")


def test_rows_have_the_times_that_were_written(tables):
    flow = tables["tcp"].sort_by([("started", "ascending"), ("client", "ascending")]).to_pylist()[0]
    began = tables["tcp"].column("started").cast(pa.int64()).to_pylist()
    assert min(began) == EPOCH * 10**9
    assert flow["client"] == "10.0.0.1" and flow["server_port"] == 80
    assert flow["local_rtt"] == pytest.approx(0.008)
    # 0.05 + 0.008 + 0.01 until the first request; the responses; the way to the end and back.
    assert flow["duration"] == pytest.approx(0.068 + 0.2 + 1 + 0.4 + 2 + 0.058)
    assert flow["wait_between"] == pytest.approx(1.0) and flow["wait_last"] == pytest.approx(2.0)
    # Absent beside present, of every kind of buffer.
    assert flow["sni"] is None and flow["icwnd_is_valid"] is not True
    assert {row["domain"] for row in tables["tcp"].to_pylist()} == {"example.com"}


def test_a_file_may_be_compressed_and_given_in_parts(capture, tables, tmp_path):
    packed = tmp_path / "day.pcap.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    assert manyways.read_captures([packed], local=["10.0.0.0/8"])["tcp"].equals(tables["tcp"])
    zstd = tmp_path / "day.pcap.zst"
    with pa.output_stream(zstd, compression="zstd") as out:
        out.write(capture.read_bytes())
    assert manyways.read_captures([zstd], local=["10.0.0.0/8"])["tcp"].equals(tables["tcp"])


def test_pieces_may_end_anywhere(capture, tables, monkeypatch):
    monkeypatch.setattr("manyways.captures._PIECE", 997)
    assert manyways.read_captures(capture, local=["10.0.0.0/8"])["http"].equals(tables["http"])


def test_what_is_local_may_be_said(capture):
    turned = manyways.read_captures(capture, local=["198.51.100.0/24"])["tcp"]
    assert set(turned.column("local_end").to_pylist()) == {"server"}
    with pytest.raises(ValueError, match="is not a prefix"):
        manyways.read_captures(capture, local=["10.0.0.0/33"])
    with pytest.raises(ValueError, match="idle"):
        manyways.read_captures(capture, idle=0)


def test_packets_come_where_they_are_wanted(capture, tables):
    packets = manyways.read_captures(capture, packets=True)["packets"]
    assert packets.num_rows > 1_500 and tables["packets"].num_rows == 0
    assert packets.column("flow").null_count == 0


def test_a_broken_capture_keeps_what_was_read(capture, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(capture.read_bytes()[:50_000])
    with pytest.warns(manyways.CaptureWarning, match="ends in the middle"):
        assert manyways.read_captures(cut)["tcp"].num_rows > 0
    # One that cannot be read is no reason to lose the others.
    noise = tmp_path / "noise.pcap"
    noise.write_bytes(b"noise, not a capture")
    with pytest.warns(manyways.CaptureWarning, match="not a capture"):
        assert manyways.read_captures([noise, capture])["tcp"].num_rows == 25
    packed = tmp_path / "cut.pcap.gz"
    packed.write_bytes(gzip.compress(capture.read_bytes())[:-2_000])
    with pytest.warns(manyways.CaptureWarning):
        manyways.read_captures(packed)
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(b"")
    with pytest.warns(manyways.CaptureWarning):
        assert manyways.read_captures(empty)["tcp"].num_rows == 0
    with pytest.raises(OSError):
        manyways.read_captures(tmp_path / "none.pcap")


def test_a_capture_may_go_on_in_the_next_one(capture, tables, tmp_path):
    packets = Capture()
    from conftest import a_day

    packets.packets = sorted(a_day().packets, key=lambda packet: packet[0])
    halves = [Capture(packets.packets[:900]), Capture(packets.packets[900:])]
    paths = [half.write(tmp_path / f"{i}.pcap") for i, half in enumerate(halves)]
    both = manyways.read_captures(paths, local=["10.0.0.0/8"])
    assert both["tcp"].equals(tables["tcp"])
    # The same one again is another day: its clock begins before the other's end.
    again = tmp_path / "again.pcap"
    shutil.copy(capture, again)
    assert manyways.read_captures([capture, again])["tcp"].num_rows == 50
