"""Flows that the ends of captures cut are those of one run over all captures."""

import gzip
import os

import pyarrow as pa
import pytest
from captures import Capture, Http, Talk, datagrams, dns

import manyways
from manyways import cluster, stitch

LOCAL = ["10.0.0.0/8", "2001:db8:1::/48"]
SERVER = "198.51.100.7"
# What joins other records, of which a shard knows its own.
JOINED = {"name", "name_source", "domain", "system", "is_handheld", "device_evidence"}
JOINED |= {"device_confidence", "cluster", "cluster_rtt", "concurrency", "application"}
TABLES = ("tcp", "udp", "http", "exchanges", "seconds", "dns", "packets")
RESPONSES = (("text/html", 20_000, 0.1, 0.4, 0.5), ("image/png", 60_000, 0.05, 2.5, 1.0))


def an_hour() -> Capture:
    """Ten seconds full of flows, and some that go on."""
    capture = Capture()
    for number in range(6):
        for client, server in (("10.0.0.1", SERVER), ("2001:db8:1::1", "2001:db8:2::7")):
            Http(client, server, number * 1.5, 40_000 + number, RESPONSES).put(capture)
            # The port is used again, soon after the end and much later.
            Http(client, server, number * 1.5 + 4.8, 40_000 + number, RESPONSES[:1]).put(capture)
        Http("10.0.0.2", SERVER, number * 1.5, 41_000, RESPONSES[:1]).put(capture)
    hello = b"\x16\x03\x01\x00\x64" + b"h" * 100
    data = b"\x17\x03\x03\x01\x00" + b"d" * 256
    for number in range(4):
        says = [("up", hello), ("down", hello), *[("up", data), ("down", data), ("down", data)] * 40]
        Talk("10.0.0.3", SERVER, number * 2.0, 42_000 + number).put(capture, *says)
        says = [("up", b"\0binary"), ("down", b"\0" * 900)] * 50
        Talk("10.0.0.3", SERVER, number * 2.0, 43_000 + number, 9_000).put(capture, *says, gap=0.05)
    # The same ports for another flow, one after the other.
    for number in range(30):
        talk = Talk("10.0.0.4", SERVER, number * 0.4, 44_000, number=10_000 + number * 5_000)
        talk.put(capture, ("up", b"\0ask"), ("down", b"\0say"), gap=0.03)
    # Silent for longer than a part of the hour.
    Talk("10.0.0.5", SERVER, 0.1, 45_000).put(capture, ("up", hello), ("down", hello), gap=2.4)
    for number in range(3):
        times = [number + index * 0.11 for index in range(90)]
        datagrams(capture, "10.0.0.6", SERVER, 46_000 + number, times)
        datagrams(capture, "2001:db8:1::6", "2001:db8:2::7", 46_000 + number, times)
        datagrams(capture, "10.0.0.7", SERVER, 47_000 + number, times, 1_500)
    for number in range(40):
        dns(capture, "10.0.0.1", "10.0.0.53", number * 0.3, 0.15, "www.example.com")
    # Long after all others, for which they are over.
    datagrams(capture, "10.0.0.6", SERVER, 46_000, [400.0, 400.1])
    return capture


HOUR = an_hour()


def rows(table: pa.Table) -> list[tuple]:
    names = sorted(set(table.column_names) - JOINED)
    columns = [table.column(name) for name in names]
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in columns]
    return sorted(zip(*(c.to_pylist() for c in columns), strict=True), key=repr)


def same(folder, single: dict[str, pa.Table], tables=TABLES) -> dict[str, bool]:
    """Of each table whether its rows are those of one run."""
    shards = manyways.Flows(folder)
    return {t: rows(shards.query(f"SELECT * FROM {t}")) == rows(single[t]) for t in tables}


def parts(folder, *places: int) -> list:
    return [part.write(folder / f"{i}.pcap") for i, part in enumerate(HOUR.cut(*places))]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    whole = HOUR.write(tmp_path_factory.mktemp("whole") / "all.pcap")
    tables = manyways.read_captures(whole, local=LOCAL, packets=True)
    assert all(tables[name].num_rows > 10 for name in TABLES)
    return tables


@pytest.fixture(scope="module")
def workers():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_two_workers_find_the_flows_of_one_run(single, tmp_path, workers):
    captures = parts(tmp_path, 1_200, 2_300)
    manifests = cluster.extract(captures, tmp_path / "out", "local", local=LOCAL, packets=True)
    assert all(same(tmp_path / "out", single).values())
    assert len(manifests) == 4 and len(manifests[3]["cut"]) == 3
    counts = [sum(one["rows"][name] for one in manifests) for name in TABLES]
    assert counts == [single[name].num_rows for name in TABLES]
    # Without it they are not.
    alone = {"local": LOCAL, "packets": True, "stitch": False}
    assert len(cluster.extract(captures, tmp_path / "alone", "local", **alone)) == 3
    assert not any(same(tmp_path / "alone", single).values())


def test_captures_may_be_cut_anywhere(single, tmp_path):
    count = len(HOUR.packets)
    # Between the two fragments of a packet.
    between = [
        index
        for index, (_, frame) in enumerate(sorted(HOUR.packets, key=lambda packet: packet[0]))
        if frame[12:14] == b"\x08\x00" and frame[20:22] == b"\x00\x64"
    ]
    many = [count * part // 9 for part in range(1, 9)]
    for number, places in enumerate([[3, 7, count - 3], between[100:400:60], many]):
        home = tmp_path / str(number)
        home.mkdir()
        cluster.extract(parts(home, *places), home / "out", local=LOCAL, packets=True)
        wrong = [name for name, is_same in same(home / "out", single).items() if not is_same]
        assert not wrong, places


def test_interfaces_and_lengths_stay_what_they_are(tmp_path):
    def write(name: str, part: Capture) -> str:
        (tmp_path / name).write_bytes(gzip.compress(part.pcapng(200)))
        return str(tmp_path / name)

    whole = manyways.read_captures(write("all", HOUR), local=LOCAL, packets=True)
    assert set(whole["packets"].column("interface").to_pylist()) == {0, 1}
    captures = [write(str(index), part) for index, part in enumerate(HOUR.cut(1_200, 2_300))]
    cluster.extract(captures, tmp_path / "out", local=LOCAL, packets=True)
    assert all(same(tmp_path / "out", whole).values())


def test_several_captures_may_be_a_shard(single, tmp_path):
    one, *others, last = parts(tmp_path, 900, 1_500, 2_500)
    cluster.extract([one, others, last], tmp_path / "out", local=LOCAL, packets=True)
    assert all(same(tmp_path / "out", single).values())


def test_what_the_beginning_knew_of_others_stays(tmp_path):
    captures = parts(tmp_path, 1_200, 2_300)
    apart = tmp_path / "apart"
    cluster.extract(captures, apart, local=LOCAL, stitch=False)
    cluster.extract(captures, tmp_path / "out", local=LOCAL)
    query = "SELECT flow, concurrency, system FROM tcp ORDER BY flow"
    knew = {row["flow"]: row for row in manyways.Flows(apart).query(query).to_pylist()}
    found = manyways.Flows(tmp_path / "out").query(query).to_pylist()
    assert found and all(row == knew[row["flow"]] for row in found)


def state(folder) -> dict:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


def test_it_goes_on_after_an_interruption_and_then_changes_nothing(single, tmp_path, monkeypatch):
    captures, out = parts(tmp_path, 1_200, 2_300), tmp_path / "out"
    for step in ("_copy", "_join", "_split"):
        for calls in (0, 1):

            def broken(*given, real=getattr(stitch, step), left=[calls]):  # noqa: B006
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                return real(*given)

            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(stitch, step, broken)
                if (step, calls) == ("_join", 1):
                    raise KeyboardInterrupt
                cluster.extract(captures, out, local=LOCAL, packets=True)
    # What is left has packets in it.
    left = list(out.glob(".stitched-*"))
    assert left and all(path.stat().st_mode & 0o077 == 0 for path in left)
    cluster.extract(captures, out, local=LOCAL, packets=True)
    assert all(same(out, single).values())
    before = state(out)
    assert not [path for path in before if "/." in path.replace("/.cut/", "/cut/")]
    again = cluster.extract(captures, out, local=LOCAL, packets=True)
    assert all(one["resumed"] for one in again) and len(again) == 4
    assert state(out) == before
    # A part of the chain is still a part of it.
    cluster.extract(captures[1:2], out, local=LOCAL, packets=True)
    assert state(out) == before


def test_a_shard_that_is_new_is_stitched_again(single, tmp_path):
    captures, out = parts(tmp_path, 1_200, 2_300), tmp_path / "out"
    settings = {"local": LOCAL, "packets": True}
    cluster.extract(captures, out, **settings)
    os.utime(captures[1])
    manifests = cluster.extract(captures, out, **settings)
    assert ["resumed" in one for one in manifests] == [True, False, True, False]
    assert all(same(out, single).values())
    cluster.extract(captures, out, resume=False, **settings)
    assert all(same(out, single).values())
    # What no longer goes on with others is as it was, in the order that it had.
    whole = cluster.extract(captures, tmp_path / "alone", stitch=False, **settings)
    assert len(cluster.extract(captures, out, stitch=False, **settings)) == 3
    for one in whole:
        here, there = (manyways.Flows(at / f"shard={one['shard']}") for at in (out, tmp_path / "alone"))
        for name in TABLES:
            query = f"SELECT * FROM {name}"
            assert here.query(query).equals(there.query(query)), name
    cluster.extract(captures[:2], out, **settings)
    cluster.extract(captures[1:], out, **settings)
    assert len(list(out.glob("shard=*"))) == 4
    cluster.extract(captures, out, **settings)
    assert all(same(out, single).values()) and len(list(out.glob("shard=*"))) == 4


def test_what_does_not_follow_is_not_stitched(tmp_path):
    one, other, last = parts(tmp_path, 1_200, 2_300)
    for given in ([last, other, one], [one, tmp_path / "gone", other]):
        manifests = cluster.extract(given, tmp_path / "out", local=LOCAL)
        assert len(manifests) == 3 and not any("stitched" in one for one in manifests)
    assert not list((tmp_path / "out").glob("shard=stitched-*"))
