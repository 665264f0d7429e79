"""Questions have the answers that the captures were made for."""

import json

import pytest
from conftest import rows

import manyways
from manyways import words
from manyways.questions import ALL

GOOD = {"is_valid": True, "protocol": "http", "has_other_methods": False, "requests": 1}


def answer(tables: dict, question: str, where: str | None = None) -> list[dict]:
    return manyways.Flows(tables).ask(question, where).table.to_pylist()


def tcp(*given: dict) -> dict:
    return {"tcp": rows("tcp", *({"flow": i, **GOOD, **row} for i, row in enumerate(given)))}


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_said_in_a_sentence(name):
    empty = {table: schema.empty_table() for table, schema in manyways.schemas().items()}
    for tables in (empty, {}):
        found = manyways.Flows(tables).ask(name)
        assert found.nothing and found.nothing.startswith("There is nothing to answer with")
        assert found.nothing in found.text() and json.loads(found.json())["rows"] == []
    assert "has no table" in found.nothing


@pytest.mark.parametrize("name", ALL)
def test_each_question_says_what_it_needs(name, flows):
    question = ALL[name]
    assert question.notes and question.tables and question.title
    assert set(question.tables) <= set(manyways.schemas())
    # Its condition is put to the source: a column of its first table.
    column = manyways.schemas()[question.tables[0]].names[0]
    assert flows.ask(name, f"{column} IS NULL").nothing
    if not flows.ask(name).nothing:
        assert not flows.ask(name, f"{column} IS NOT NULL -- and no more").nothing
    assert flows.query(question.sql()).num_rows == flows.ask(name).table.num_rows


def test_local_rtt_differs_between_devices(flows):
    found = flows.ask("local-rtt")
    at = {(row["flow_group"], row["device"]): row for row in found.table.to_pylist()}
    # 8 to 19 ms and 1 to 12 ms.
    assert at["G3", "handheld"]["p50"] == pytest.approx(0.0135)
    assert at["G3", "other"]["p50"] == pytest.approx(0.0065)
    assert at["G2", "other"]["count"] == 12
    test = next(one for one in found.tests if one["within"] == {"flow_group": "G3"})
    # Both vary by 13 ms²: 7 / sqrt(26 / 12).
    assert test["t"] == pytest.approx(7 / (26 / 12) ** 0.5)
    assert test["degrees_of_freedom"] == pytest.approx(22)
    assert test["p"] == pytest.approx(9.5e-5, rel=0.02)
    assert "p < 0.001" in found.text()


def test_servicing_rate_is_of_get_alone(flows):
    table = flows.ask("servicing-rate").table.to_pylist()
    # Each of the 24 is in G2 and in G3; the POST, the only one in G1, is in none.
    assert [(row["flow_group"], row["count"]) for row in table] == [("G2", 24), ("G3", 24)]
    head = len("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2000\r\n\r\n")
    bits = 8 * (62_000 + 2 * head + 2)
    assert table[0]["p50"] == pytest.approx(bits / 0.6, rel=1e-3)


def test_where_the_time_goes(flows):
    at = {row["part"]: row for row in flows.ask("durations", "is_handheld").table.to_pylist()}
    for part, seconds in (("2", 0.6), ("3", 0.01), ("4", 1.0), ("5", 2.0)):
        (row,) = (row for name, row in at.items() if name.startswith(part))
        assert (row["count"], row["p50"]) == (12, pytest.approx(seconds))
    assert at["1: total"]["median_share"] == 1
    between = next(row for name, row in at.items() if name.startswith("4"))
    assert between["median_share"] == pytest.approx(1 / 3.7395, rel=1e-2)


def test_responses_by_content(flows):
    at = {(row["device"], row["content"]): row for row in flows.ask("response-time").table.to_pylist()}
    assert at["handheld", "text"]["p50"] == pytest.approx(0.1)
    assert at["other", "image"]["p50"] == pytest.approx(0.05)
    # Of the POST's response nothing is here.
    assert at["other", "text"]["count"] == 12


def test_names_and_requests(flows):
    (row,) = flows.ask("dns").table.to_pylist()
    assert (row["server"], row["p50"], row["unanswered"]) == ("10.0.0.53", pytest.approx(0.03), 0)
    shares = {row["device"]: row["share"] for row in flows.ask("domains").table.to_pylist()}
    assert shares == {"handheld": 1, "other": 1}
    requests = flows.ask("requests").table.to_pylist()
    assert [(row["count"], row["most"], row["with_several"]) for row in requests] == [(12, 2, 1)] * 2
    (length,) = flows.ask("content-length").table.to_pylist()
    assert length["responses"] == 49 and length["share"] == 1


def test_rtt_by_cluster_and_device():
    given = [
        {"organisation": "Akamai", "cluster": 0, "is_handheld": True, "rtt": 0.01 + i / 1000}
        for i in range(10)
    ] + [{"organisation": "Google", "is_handheld": False, "rtt": 0.02} for _ in range(3)]
    given += [{"organisation": f"Few {i}", "rtt": 0.5} for i in range(9)]
    found = manyways.Flows(tcp(*given)).ask("rtt")
    at = {(row["device"], row["cluster"]): row["count"] for row in found.table.to_pylist()}
    assert at["handheld", "Akamai #0"] == 10 and at["other", "Google"] == 3
    # Five have names; the other six of eleven are one.
    assert at["unknown", "all others"] == 6 and len(at) == 6
    (test,) = found.tests
    assert test["means"] == pytest.approx([0.0145, 0.02]) and test["counts"] == [10, 3]


def test_loss_is_told_by_side():
    given = [{"is_g2": True, "local_loss": 0.0, "remote_loss": i / 100} for i in range(4)]
    at = {row["side"]: row for row in answer(tcp(*given), "loss")}
    assert at["local"]["without_loss"] == 1 and at["remote"]["without_loss"] == 0.25
    assert at["remote"]["p50"] == pytest.approx(0.015)


def test_concurrency_is_correlated():
    given = [{"is_g3": True, "concurrency": i, "servicing_rate": 1e6 - i} for i in range(5)]
    (row,) = answer(tcp(*given), "concurrency")
    assert (row["p50"], row["correlation"]) == (2, pytest.approx(-1))
    (row,) = answer(tcp(*given[:2]), "concurrency")
    assert row["correlation"] is None


def test_servers_need_ten_estimates():
    sizes = [14_600] * 9 + [29_200]
    given = [
        {"server": server, "organisation": "Google", "icwnd_is_valid": True, "icwnd_bytes": size}
        for server, of in (("192.0.2.1", sizes), ("192.0.2.2", sizes[:9]))
        for size in of
    ]
    given += [{"server": "192.0.2.2", "icwnd_is_valid": False, "icwnd_bytes": 1} for _ in range(9)]
    (row,) = answer(tcp(*given), "initial-windows")
    assert (row["organisation"], row["count"], row["estimates"]) == ("Google", 1, 10)
    assert (row["p50"], row["mean"], row["largest"]) == (14_600, 16_060, 29_200)


def test_windows_that_flows_begin_with():
    base = {"is_g1": True, "server": "192.0.2.1"}
    given = [{**base, "client_window_first": 5_000, "servicing_rate": 1e6 + i} for i in range(3)]
    given += [{**base, "client_window_first": 14_000, "servicing_rate": 2e6 + i} for i in range(3)]
    estimate = {"server": "192.0.2.1", "icwnd_is_valid": True, "icwnd_bytes": 14_600}
    found = manyways.Flows(tcp(*given, *[estimate] * 10)).ask("icwnd-effect")
    at = {row["client_window"]: row for row in found.table.to_pylist()}
    assert {row["server_window"] for row in at.values()} == {"large"}
    assert (at["small"]["p50"], at["large"]["p50"]) == (1e6 + 1, 2e6 + 1)
    (test,) = found.tests
    assert test["t"] < -1000 and test["p"] < 1e-9
    (row,) = answer(
        tcp({"is_g2": True, "system": "ios", "down_in_flight_max": 9, "client_window_max": 8}),
        "receive-windows",
    )
    assert (row["system"], row["p50"], row["largest_window"]) == ("ios", 9, 8)


def test_limits_count_by_time():
    shares = {"down_limited_application": 1.0, "down_limited_loss": 0.0}
    given = [
        {"down_limited_time": 3.0, "is_handheld": True, **shares},
        # Also of a flow that was reset or began before the capture.
        {
            "down_limited_time": 1.0,
            "duration": 99.0,
            "is_valid": False,
            "is_handheld": True,
            **{k: 1 - v for k, v in shares.items()},
        },
        {"duration": 9.0, "down_limited_time": None},
    ]
    at = {row["kind"]: row for row in answer(tcp(*given), "limits")}
    assert (at["device"]["application"], at["device"]["loss"]) == (0.75, 0.25)
    assert (at["server"]["flows"], at["server"]["time"]) == (2, 4.0)


def test_quantiles_of_few_values_are_marked():
    given = [{"organisation": "A", "is_handheld": True, "rtt": 0.01 + i / 1000} for i in range(20)]
    given += [{"organisation": "A", "is_handheld": False, "rtt": 0.02} for _ in range(19)]
    found = manyways.Flows(tcp(*given)).ask("rtt")
    head, many, few = found.text().splitlines()[2:5]
    assert head.startswith("device") and many.startswith("handheld") and few.startswith("other")
    assert "*" not in many and few.count("20 ms*") == 5
    # The digits stand below each other.
    assert many.rindex("ms") == few.rindex("ms")
    assert words.FEW_NOTE in found.text() and words.FEW_NOTE.startswith("* of fewer than 20 values")
    assert "*" not in found.json() + found.csv()
    assert "*" not in manyways.Flows(tcp(*given[:20])).ask("rtt").text()


def test_multipath_paths():
    given = [
        {"connection": 0, "down_bytes": 5_000, "up_bytes": 0, "share_of_primary": 1.0, "subflows": 1},
        {"connection": 1, "down_bytes": 2_000_000, "up_bytes": 0, "share_of_primary": 0.5, "subflows": 2},
        {"connection": 2, "down_bytes": 6_000_000, "up_bytes": 0, "share_of_primary": 0.1, "subflows": 2},
    ]
    at = {row["size"]: row for row in answer({"mptcp": rows("mptcp", *given)}, "mptcp-shares")}
    assert at["1: below 10 kB"]["all_on_it"] == 1
    assert at["4: above 1 MB"]["share_of_bytes"] == pytest.approx(0.2)
    parts = [{"role": "primary", "handshake_delay": 9.0, "join_delay": 0.0}]
    parts += [{"role": "joined", "handshake_delay": 0.063, "join_delay": 0.2}] * 3
    delays = {row["delay"]: row for row in answer({"subflows": rows("subflows", *parts)}, "mptcp-handshakes")}
    assert (delays["handshake"]["count"], delays["handshake"]["p50"]) == (3, pytest.approx(0.063))
    assert delays["since the first SYN"]["p50"] == pytest.approx(0.2)


def test_throughput_puts_subflows_together():
    second = 10**9
    times = {"started": 0, "ended": 2 * second}
    flows = [
        {"down_bytes": 500_000, **times},
        {"down_bytes": 1_500_000, "started": second, "ended": 4 * second},
        {"down_bytes": 50_000, **times},
        # Nothing passed in the second between: it waited.
        {"down_bytes": 50_000, **times},
    ]
    tables = tcp(*flows)
    tables["subflows"] = rows(
        "subflows",
        {"connection": 7, "flow": 0, "role": "primary"},
        {"connection": 7, "flow": 1, "role": "joined", "is_accepted": True},
    )
    tables["seconds"] = rows(
        "seconds",
        *({"flow": flow, "second": at * second} for flow, at in ((2, 0), (2, 1), (3, 0), (3, 2))),
    )
    at = {(row["kind"], row["size"][0]): row for row in answer(tables, "throughput")}
    assert at["MPTCP", "4"]["p50"] == pytest.approx(8 * 2e6 / 4)
    assert (at["TCP", "2"]["count"], at["TCP", "2"]["p50"]) == (1, pytest.approx(8 * 50_000 / 2))
    assert len(at) == 2


def test_bytes_by_application_over_each_network():
    packets = [
        {"application": "example.com", "network": "cellular", "bytes": 60, "direction": "down"},
        {"application": "example.com", "network": "cellular", "bytes": 20, "direction": "up"},
        {"application": "example.net", "network": "cellular", "bytes": 20, "direction": "down"},
        {"application": "example.com", "network": "wifi", "bytes": 7, "direction": "down"},
        {"application": None, "network": None, "interface": 3, "bytes": 9, "direction": "up"},
    ]
    at = {
        (row["network"], row["application"]): row
        for row in answer({"packets": rows("packets", *packets)}, "networks")
    }
    assert len(at) == 4
    most = at["cellular", "example.com"]
    assert (most["packets"], most["bytes"], most["share"], most["share_up"]) == (2, 80, 0.8, 0.25)
    assert at["wifi", "example.com"]["share"] == 1
    assert at["interface 3", "no flow"]["share_up"] == 1


def test_applications_and_content_length():
    tables = tcp({"domain": "example.com", "down_bytes": 60, "up_bytes": 20})
    tables["udp"] = rows("udp", {"server_port": 53, "down_bytes": 15, "up_bytes": 5})
    first, second = answer(tables, "applications")
    assert (first["application"], first["share"], first["share_up"]) == ("example.com", 0.8, 0.25)
    assert second["application"] == "udp port 53"
    base = {"method": "GET", "ending": "whole", "framing": "length"}
    http = [
        {**base, "declared": 100, "captured": 91},
        {**base, "declared": 100, "captured": 90},
        {**base, "declared": None, "captured": 7, "framing": "chunked"},
        {**base, "declared": 100, "captured": 100},
        {**base, "declared": 100, "captured": 3, "ending": "open"},
    ]
    at = answer({"http": rows("http", *http)}, "content-length")
    assert [(row["content_length"][0], row["share"]) for row in at] == [
        ("1", 0.5), ("2", 0.25), ("3", 0.25)
    ]  # fmt: skip
    (fetch,) = answer(
        {"fetches": rows("fetches", {"content_type": "video/mp4", "flows": 75, "requests": 75})},
        "fetches",
    )
    assert (fetch["content"], fetch["most"]) == ("video", 75)


def test_modes_are_found():
    http = [{"flow": i, "method": "GET", "content": "image", "response_time": 0.1} for i in range(100)]
    tables = tcp(*({"rtt": 0.01 if i % 2 else 0.08} for i in range(100)))
    found = manyways.Flows({**tables, "http": rows("http", *http)}).ask("response-modes")
    assert found.table.to_pylist()[0]["count"] == 100
    assert found.findings[0].startswith("image: 2 modes")


def test_a_condition_that_is_no_sql_is_a_usage_error(flows):
    with pytest.raises(manyways.FlowsError) as error:
        flows.ask("rtt", "no_such_column = 1")
    assert error.value.is_usage and "no_such_column" in str(error.value)
    with pytest.raises(manyways.FlowsError, match="no question"):
        flows.ask("nothing")
