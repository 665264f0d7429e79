"""Many captures on many workers give what one run gives."""

import json

import pyarrow as pa
import pytest
from conftest import a_day

import manyways
from manyways import cluster
from manyways.flows import find

LOCAL = ["10.0.0.0/8"]


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hours")
    return [a_day(hour * 3600.0).write(folder / f"{hour}.pcap") for hour in range(4)]


@pytest.fixture(scope="module")
def workers():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def ordered(table: pa.Table) -> list[str]:
    return sorted(json.dumps(row, default=str) for row in table.to_pylist())


def test_two_workers_find_the_rows_of_one_run(captures, tmp_path, workers):
    manifests = cluster.extract(captures, tmp_path / "out", "local", local=LOCAL)
    assert [one["rows"]["tcp"] for one in manifests] == [25] * 4
    shards, single = manyways.Flows(tmp_path / "out"), manyways.read_captures(captures, local=LOCAL)
    for name in ("tcp", "http", "seconds", "dns"):
        found = shards.query(f"SELECT * FROM {name}")
        assert single[name].num_rows > 0 and ordered(found) == ordered(single[name]), name
    # And so are the answers.
    one = manyways.Flows(single)
    assert shards.ask("servicing-rate").table == one.ask("servicing-rate").table
    sketched = cluster.quantiles(tmp_path / "out", "local-rtt", address="local").to_pylist()
    exact = one.query(
        find("local-rtt").observed(None)
        + "SELECT flow_group, device, count(*) AS count, quantile_disc(value, 0.1) AS p10, "
        + "quantile_disc(value, 0.5) AS p50, quantile_disc(value, 0.9) AS p90\n"
        + "FROM observed GROUP BY ALL ORDER BY ALL"
    ).to_pylist()
    assert len(exact) == 5
    for row, of in zip(sketched, exact, strict=True):
        labels = ("flow_group", "device", "count")
        assert [row[key] for key in labels] == [of[key] for key in labels]
        for name in ("p10", "p50", "p90"):
            assert row[name] == pytest.approx(of[name], rel=0.0101)


def test_what_is_whole_is_not_done_again(captures, tmp_path):
    out = tmp_path / "out"
    first = cluster.extract(captures[:2], out, local=LOCAL)
    home = out / f"shard={first[0]['shard']}"
    stamp = (home / "tcp.parquet").stat().st_mtime_ns
    # What an interruption leaves: a shard without its manifest is done again, the other one not.
    (out / f"shard={first[1]['shard']}" / "shard.json").unlink()
    again = cluster.extract(captures, out, local=LOCAL)
    assert [one.get("resumed", False) for one in again] == [True, False, False, False]
    assert (home / "tcp.parquet").stat().st_mtime_ns == stamp
    # Read in another way, they are other shards.
    assert not any("resumed" in one for one in cluster.extract(captures[:2], out, idle=9.0))
    assert not any("resumed" in one for one in cluster.extract(captures[:2], out, idle=9.0, resume=False))
    assert manyways.Flows(out).query("SELECT count(*) AS n FROM tcp").to_pylist() == [{"n": 100}]
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_a_capture_that_fails_fails_alone(captures, tmp_path):
    bad = tmp_path / "bad.pcap"
    bad.write_bytes(captures[0].read_bytes()[:30_000])
    gone, whole, cut = cluster.extract([tmp_path / "gone", captures[0], bad], tmp_path / "out")
    assert "gone" in gone["failed"] and whole["rows"]["tcp"] == 25
    assert "ends in the middle" in cut["faults"][0] and cut["rows"]["tcp"] > 0


def test_captures_that_belong_together_are_one_shard(captures, tmp_path):
    (both,) = cluster.extract([captures[:2]], tmp_path / "out")
    assert both["rows"]["tcp"] == 50 and len(both["captures"]) == 2
