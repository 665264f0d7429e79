"""Energies, policies and traces of radios."""

import gzip
import math
import subprocess
import sys
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

import manyways
from manyways import radio

# Timers and powers of the tail, and E_switch: Deng's thesis, tables 4.1 and 4.2; 4.2.1 and 4.4.1.
CARRIERS = {
    "att-hspa": ([(6.2, 0.916), (10.4, 0.659)], 1.1),
    "tmobile-3g": ([(3.2, 0.445), (16.3, 0.343)], 0.857 * 0.445 * 3.6),
    "verizon-3g": ([(9.8, 1.130)], 0.857 * 1.130 * 1.2),
    "verizon-lte": ([(10.2, 1.325)], 0.857 * 1.325 * 0.6),
}
SLEEPING = [name for name in radio.policies() if not name.startswith("makeactive")]


def tail(carrier, secs):
    """E(t) by hand."""
    states, switch = CARRIERS[carrier]
    spent = 0.0
    for timer, power in states:
        spent += min(secs, timer) * power
        secs -= timer
        if secs <= 0:
            return spent
    return spent + switch


def a_trace(*rows, **more):
    """Of times in seconds and directions; 100 bytes each."""
    times, ways = zip(*rows, strict=True)
    count = len(times)
    return radio.trace({"time": [float(at) for at in times], "bytes": [100] * count, "direction": ways} | more)


def same(one, other):
    """But for what they are called."""
    return asdict(one) | {"policy": ""} == asdict(other) | {"policy": ""}


@pytest.fixture(scope="module")
def day():
    return radio.workload("mixed-day", seed=1)


def test_heartbeats_have_closed_forms():
    for carrier, (states, switch) in CARRIERS.items():
        rest = sum(timer * power for timer, power in states)
        for every in (5.0, 7.5, 15.0, 20.0, 60.0):
            trace = radio.heartbeats(every, seconds=every * 100)
            assert len(trace) == 101
            quo = radio.simulate(trace, carrier, "status-quo")
            # The first one wakes the radio, and behind the last one it goes through its tail.
            assert quo.energy == pytest.approx(100 * tail(carrier, every) + rest + switch, rel=1e-9)
            best = radio.simulate(trace, carrier, "oracle")
            one = min(tail(carrier, every), switch)
            assert best.energy == pytest.approx(100 * one + switch, rel=1e-9)
            assert best.status_quo_energy == quo.energy and quo.saved == 0.0


def test_a_heartbeat_every_quarter_of_a_minute_can_save_nine_tenths_of_the_tail():
    profile = radio.profile("att-hspa")
    best = 1 - profile.cost(15.0, 0.0) / profile.tail(15.0)
    assert best == pytest.approx(1 - 1.1 / (6.2 * 0.916 + 8.8 * 0.659), abs=1e-12)
    # The ends of a trace weigh the less the longer it is.
    day = radio.simulate(radio.heartbeats(15.0), profile, "oracle")
    assert day.saved_tail == pytest.approx(best, abs=1e-4)
    assert round(day.saved_tail, 3) == 0.904 == round(day.saved, 3)


def test_the_tail_is_told_in_the_form_in_which_it_is_asked_for():
    profile = radio.profile("att-hspa")
    secs = [0.0, 1.2, 6.2, 10.0, 16.5, 17.0, 1e6]
    wanted = [tail("att-hspa", one) for one in secs]
    assert profile.tail(secs) == pytest.approx(wanted, abs=1e-9)
    assert isinstance(profile.tail(np.array(secs)), np.ndarray)
    assert profile.tail(pa.array(secs)).to_pylist() == profile.tail(secs)
    assert profile.tail(10) == profile.tail(np.float32(10.0)) == pytest.approx(wanted[3])
    assert profile.tail([]) == []
    waits = [2.0, 10.0, math.inf]
    assert profile.cost([10.0] * 3, waits) == pytest.approx([2 * 0.916 + 1.1] + 2 * [wanted[3]])
    assert profile.cost(10.0, 2) == profile.cost([10.0], [2.0])[0]


def test_profiles_have_their_numbers():
    assert set(CARRIERS) < set(radio.profiles())
    for carrier, (states, switch) in CARRIERS.items():
        profile = radio.profile(carrier)
        assert profile.switch_energy == pytest.approx(switch, abs=1e-6)
        assert profile.threshold == pytest.approx(switch / states[0][1], abs=1e-6)
        assert profile.released == pytest.approx(sum(timer for timer, _ in states))
        own = [(state["timer"], state["power"]) for state in profile.numbers["states"]]
        assert own == [*states, (None, 0.0)]
    for name in radio.profiles():
        numbers = radio.profile(name).numbers
        assert numbers["transfer"]["source"] and all(state["source"] for state in numbers["states"])
        assert numbers["title"] in repr(radio.profile(name))
    lte = radio.profile("lte").numbers
    assert lte["technology"] == "lte" and lte["transfer"]["send_per_mbit"] == 0.43839
    asleep = lte["states"][-1]
    assert (asleep["listen_every"], asleep["listen_for"], asleep["listen_power"]) == (1.28, 0.043, 0.594)
    assert (asleep["promotion"], asleep["promotion_delay"]) == (pytest.approx(0.3146), 0.26)
    assert asleep["released"] and asleep["dormant"] and not lte["states"][0]["released"]


PROFILE = """
title = "mine"
technology = "wifi"
[transfer]
send = "1W"
receive = "500mW"
source = "none"
[[state]]
name = "on"
power = "100mW"
timer = "1s"
source = "none"
[[state]]
name = "off"
power = "0"
promotion = "50mJ"
source = "none"
"""


def test_a_profile_may_be_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(PROFILE)
    for source in (PROFILE, path, str(path)):
        profile = radio.profile(source)
        assert profile.name == "mine" and profile.states == ["on", "off"]
        assert profile.threshold == pytest.approx(0.5)
    path.write_text(PROFILE.replace("100mW", "100"))
    with pytest.raises(ValueError, match=r"mine.toml, line 10.*`100` is not a power; write 916mW"):
        radio.profile(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is no text; "):
        radio.profile(path)


def test_a_trace_by_hand():
    # As in the tests of the model: a question, an answer, and three silences.
    trace = a_trace((0, "up"), (0.4, "down"), (5.4, "up"), (15.4, "down"), (45.4, "up"))
    did = radio.simulate(trace, "att-hspa", "status-quo")
    rest = 6.2 * 0.916 + 10.4 * 0.659
    awake = 5.0 * 0.916 + (6.2 * 0.916 + 3.8 * 0.659) + 2 * rest
    assert did.energy == pytest.approx(0.4 * 1.212 + awake + 2 * 1.1, abs=1e-9)
    assert did.tail_energy == pytest.approx(awake + 2 * 1.1, abs=1e-9)
    assert (did.transfer_energy_up, did.transfer_energy_down) == (0.0, pytest.approx(0.4 * 1.212))
    assert did.transfer_energy == did.transfer_energy_down
    assert did.state_energies["DCH"] == pytest.approx((5 + 3 * 6.2) * 0.916)
    assert did.state_seconds["FACH"] == pytest.approx(3.8 + 2 * 10.4)
    assert [did.demotion_energy, did.promotion_energy] == pytest.approx([1.1, 1.1])
    assert (did.switches, did.sleeps, did.packets, did.bytes_up, did.bytes_down) == (2, 0, 5, 300, 200)
    assert did.duration == 45.4 and did.mean_wait is None
    assert (did.true_switches, did.true_stays, did.missed_switches) == (1, 1, 2)
    # Gaps of 5 s and more are worth it, so that the oracle has missed none, and a timer of 0.1 s
    # sleeps in the transfer as well.
    hasty = radio.simulate(trace, "att-hspa", radio.Policy("fixed", seconds=0.1))
    assert (hasty.false_switch_rate, hasty.missed_switch_rate) == (1.0, 0.0)
    assert hasty.energy == pytest.approx(0.4 * 1.212 + 4 * 0.1 * 0.916 + 5 * 1.1)
    assert hasty.switches_ratio == 2.5
    # Asleep once by itself, after the answer; the network releases it twice more.
    once = radio.simulate(trace, "att-hspa", [math.inf, 0.1, math.inf, math.inf, math.inf])
    assert (once.switches, once.sleeps, once.mean_wait) == (3, 1, 0.1)
    saved = 4.9 * 0.916 - 1.1
    assert once.saved == pytest.approx(saved / did.energy)
    assert once.saved_tail == pytest.approx(saved / did.tail_energy)
    assert once.saved_per_switch == pytest.approx(saved / 3)


class Fixed:
    """The same wait each time, as a policy of Python's."""

    def __init__(self, wait=4.5):
        self.wait = wait
        self.seen = []

    def observe(self, time, direction, bytes, app, gap):
        self.seen.append((time, direction, bytes, app, gap))
        return self.wait


def test_a_policy_of_pythons_is_as_good_as_one_of_rusts(day):
    for profile in ("wifi", "att-hspa", "lte"):
        fixed = radio.simulate(day, profile, "fixed")
        assert same(radio.simulate(day, profile, Fixed()), fixed)
        assert same(radio.simulate(day, profile, Fixed), fixed)
        assert same(radio.simulate(day, profile, [4.5] * len(day)), fixed)
        assert same(radio.simulate(day, profile, np.full(len(day), 4.5)), fixed)
        quo = radio.simulate(day, profile, "status-quo")
        assert same(radio.simulate(day, profile, Fixed(None)), quo)
        assert same(radio.simulate(day, profile, pa.array([math.inf] * len(day))), quo)
    assert fixed.energy != quo.energy


def test_a_policy_is_told_every_packet(day):
    policy = Fixed()
    radio.simulate(day, "lte", policy)
    rows = day.table.to_pydict()
    told = list(zip(*policy.seen, strict=True))
    assert list(told[0]) == day.seconds.to_pylist()
    assert list(told[1]) == rows["direction"] and list(told[2]) == rows["bytes"]
    assert list(told[3]) == rows["application"]
    gaps = day.gaps.to_pylist()
    assert math.isnan(gaps[0]) and told[4][0] is None and list(told[4][1:]) == gaps[1:]
    assert gaps[1:] == pytest.approx(np.diff(day.seconds.to_numpy()).tolist(), abs=1e-9)


def foresees(trace, profile):
    """The oracle, worked out for all packets together."""
    gaps = np.append(trace.gaps.to_numpy()[1:], np.inf)
    least = max(profile.threshold, profile.numbers["transfer"]["burst_gap"])
    return np.where(gaps > least, 0.0, np.inf)


def test_waits_may_be_worked_out_for_all_packets_together(day):
    for profile in CARRIERS:
        assert same(radio.simulate(day, profile, foresees), radio.simulate(day, profile, "oracle"))


def test_learned_numbers_are_those_of_the_trace(day):
    gaps = day.gaps.to_numpy()[1:]
    for share in (0.5, 0.95, 1.0):
        wait = float(np.quantile(gaps, share, method="inverted_cdf"))
        learned = radio.simulate(day, "att-hspa", radio.Policy("iat", p=share))
        # As in the binary, the quantile is rounded up by at most a thousandth.
        exact = radio.simulate(day, "att-hspa", radio.Policy("fixed", seconds=wait))
        assert learned.energy == pytest.approx(exact.energy, rel=1e-3)
        assert learned.switches == pytest.approx(exact.switches, rel=1e-3)
        assert exact.sleeps == 0 or exact.mean_wait <= learned.mean_wait <= exact.mean_wait * 1.001
    # The fixed bound of what is held back: bursts in a period, times t1 + t2.
    profile = radio.profile("verizon-lte")
    periods = 1 + np.count_nonzero(gaps > profile.released)
    bound = (1 + np.count_nonzero(gaps > 0.5)) / periods * profile.released
    run = [
        radio.simulate(day, profile, policy, delay_tolerant=["email"])
        for policy in ("makeactive-fixed", radio.Policy("makeactive-fixed", delay=bound))
    ]
    assert same(*run) and run[0].delayed_sessions > 0 and run[0].delay_p95 <= bound + 0.01


def test_makeidle_is_best_for_the_gaps_that_it_remembers():
    # A hundred gaps of 3 s, and from then on it sleeps at once.
    trace = radio.heartbeats(3.0, seconds=600.0)
    did = radio.simulate(trace, "att-hspa", radio.Policy("makeidle", n=100))
    assert did.sleeps == len(trace) - 100 and did.mean_wait == 0.0
    wanted = 100 * 3.0 * 0.916 + (len(trace) - 101) * 1.1 + 1.1
    assert did.energy == pytest.approx(wanted, rel=1e-9)


def test_timers_by_name(day):
    profile = radio.profile("verizon-3g")
    for name, wait in (("printed", 0.0), ("threshold", profile.threshold)):
        fixed = radio.simulate(day, profile, radio.Policy("fixed", seconds=wait))
        assert same(radio.simulate(day, profile, name), fixed)


def test_context_knows_what_comes_after_what():
    # A second after what goes out, and a minute after what comes in.
    rows = [(61.0 * beat + later, way) for beat in range(200) for later, way in ((0, "up"), (1, "down"))]
    trace = a_trace(*rows)
    best, own, idle = (radio.simulate(trace, "att-hspa", name) for name in ("oracle", "context", "makeidle"))
    assert idle.saved < 0.95 * best.saved and own.saved > 0.95 * best.saved
    assert own.switches == best.switches


class Holding(Fixed):
    """Holds back for three seconds."""

    def __init__(self):
        super().__init__(1.0)
        self.begun = []

    def on_session(self, now):
        self.begun.append(now)

    def session_delay(self, now):
        return 3.0


def test_what_can_wait_is_held_back():
    # As in the tests of the model, but that the trace begins later.
    rows = [(50.0, "up"), (50.4, "up"), (52.0, "up"), (53.1, "up"), (53.3, "up")]
    trace = a_trace(*rows, flow=[1, 1, 2, 3, 3], app=["mail"] * 5)
    own = Holding()
    policies = [radio.Policy("fixed+makeactive-fixed", seconds=1, delay=3), own]
    for policy in policies:
        did = radio.simulate(trace, "att-hspa", policy, delay_tolerant="mail")
        assert (did.tolerant_sessions, did.delayed_sessions, did.switches) == (3, 2, 1)
        assert (did.delay_mean, did.delay_median, did.delay_p95) == (2.0, 1.0, 3.0)
    assert own.begun == pytest.approx([0.0, 2.0, 3.1])
    assert [time for time, *_ in own.seen] == pytest.approx([3.0, 3.0, 3.1, 3.3, 3.4])
    # Without leave nothing is.
    did = radio.simulate(trace, "att-hspa", policies[0])
    assert (did.tolerant_sessions, did.delayed_sessions, did.delay_mean) == (0, 0, None)


def test_sessions_are_told_by_silence_where_there_is_no_flow():
    rows = [(0, "up"), (1.4, "up"), (20, "up"), (21, "up"), (22.6, "up")]
    policy = radio.Policy("makeactive-fixed", delay=0)
    count = lambda **more: radio.simulate(
        a_trace(*rows, **more), "att-hspa", policy, delay_tolerant=[""]
    ).tolerant_sessions
    assert count() == 3
    assert count(flow=["a", "a", "b", "b", "b"]) == 2
    # What has no flow is no part of one that has the same number.
    assert count(flow=[0, None, 1, 1, 1]) == 3
    assert count(flow=[None] * 5) == 3
    apps = radio.simulate(a_trace(*rows, app=["", "mail", "", "", ""]), "lte", policy, delay_tolerant=[""])
    assert apps.tolerant_sessions == 3


def test_learning_what_to_hold_back(day):
    tolerant = [app for app in day.apps if not app.endswith(".use")]
    for name in ("makeactive", "makeidle+makeactive"):
        did = radio.simulate(day, "att-hspa", name, delay_tolerant=tolerant)
        assert 0 < did.delayed_sessions <= did.tolerant_sessions
        assert 0 < did.delay_mean <= 10 and did.delay_p95 <= 10
    alone = radio.simulate(day, "att-hspa", "makeidle", delay_tolerant=tolerant)
    assert (alone.tolerant_sessions, alone.delayed_sessions) == (0, 0)
    assert did.switches < alone.switches
    # With one expert there is nothing to learn: a second each time.
    one = radio.Policy("makeidle+makeactive", experts=1)
    fixed = radio.Policy("makeidle+makeactive-fixed", delay=1)
    run = [radio.simulate(day, "att-hspa", policy, delay_tolerant=tolerant) for policy in (one, fixed)]
    assert same(*run)


def test_what_is_spent_adds_up(day):
    for profile in radio.profiles():
        best = radio.simulate(day, profile, "oracle")
        for name in radio.policies():
            did = radio.simulate(day, profile, name)
            parts = did.transfer_energy + sum(did.state_energies.values())
            parts += did.demotion_energy + did.promotion_energy
            assert did.energy == pytest.approx(parts, rel=1e-9) and did.energy > 0
            assert did.packets == len(day) and did.duration == day.duration
            gaps = did.true_switches + did.false_switches + did.true_stays + did.missed_switches
            assert gaps == len(day) - 1
            # With two thresholds nobody who does not delay is better than who knows.
            if profile in CARRIERS:
                assert best.energy <= did.energy + 1e-9


def forms():
    """The same four packets, as people have them."""
    ns = [1_500_000_000, 2_000_000_000, 2_000_000_000, 40_250_000_000]
    secs = [at / 1e9 for at in ns]
    ways = ["up", "down", "down", "up"]
    plain = {"bytes": [60, 1500, 1500, 60], "direction": ways}
    yield {"time": ns} | plain
    yield {"time": secs} | plain
    yield {"time": np.array(ns), "bytes": np.array(plain["bytes"], np.uint16), "direction": np.array(ways)}
    yield {"time": np.array(secs, np.float32)} | plain | {"direction": np.array(ways, "S4")}
    yield {"time": np.array(ns, "datetime64[ns]")} | plain
    yield {"time": np.array([at // 1000 for at in ns], "datetime64[us]")} | plain
    yield {"time": np.array(ns, "timedelta64[ns]")} | plain
    # Every second value of a longer array.
    yield {"time": np.repeat(secs, 2)[::2], "bytes": np.repeat(plain["bytes"], 2)[1::2], "direction": ways}
    yield {"time": np.repeat(ns, 2)[::2]} | plain | {"direction": pa.array(ways).dictionary_encode()}
    table = pa.table({"time": secs} | plain)
    yield table
    yield table.to_batches()[0]
    yield pa.concat_tables([table.slice(0, 1), table.slice(1)])
    yield pa.concat_tables([table.slice(3), table]).slice(1)
    odd = pa.py_buffer(b"?" + np.array(ns).tobytes()).slice(1)
    yield {"time": pa.Array.from_buffers(pa.int64(), 4, [None, odd])} | plain
    yield {"time": pa.array([0.0, *secs]).slice(1)} | plain | {"bytes": pa.array([7, 60, 1500, 1500, 60]).slice(1)}


def test_columns_are_what_people_have():
    first, *others = (radio.trace(form).table for form in forms())
    assert first.column("time").cast(pa.int64()).to_pylist()[0] == 1_500_000_000
    assert len(others) == 14 and all(other.equals(first) for other in others)
    assert first.column("application").to_pylist() == [None] * 4


def test_applications_are_bounded():
    count = 10_002
    apps = [f"app{number}" for number in range(count)]
    trace = a_trace(*((at, "up") for at in range(count)), app=apps)
    # Those behind the last one are that one, as in lines of text.
    assert trace.apps == apps[:10_000]
    assert trace.table.column("application").to_pylist()[9_998:] == ["app9998"] + 3 * ["app9999"]


def test_a_trace_survives_its_table(day, tmp_path):
    again = radio.trace(day.table)
    assert again.table.equals(day.table) and set(again.apps) <= set(day.apps)
    path = tmp_path / "day.parquet"
    parquet.write_table(day.table.append_column("other", pa.nulls(len(day))), path)
    assert radio.trace(path).table.equals(day.table)
    (tmp_path / "tables").mkdir()
    parquet.write_table(day.table, tmp_path / "tables" / "packets.parquet")
    assert radio.trace(str(tmp_path / "tables")).table.equals(day.table)
    # In lines of text, times are seconds.
    lines = day.table.set_column(0, "time", day.seconds)
    csv.write_csv(lines, tmp_path / "day.csv")
    text = radio.trace(tmp_path / "day.csv")
    assert text.table.drop_columns("time").num_rows == len(day)
    assert text.gaps.to_pylist()[1:] == pytest.approx(day.gaps.to_pylist()[1:], abs=2e-9)
    packed = tmp_path / "day.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "day.csv").read_bytes()))
    assert radio.trace(packed).table.equals(text.table)
    policy = "makeidle+makeactive"
    one, other = (radio.simulate(of, "lte", policy, delay_tolerant=["email"]) for of in (day, text))
    assert other.energy == pytest.approx(one.energy, rel=1e-6) and one.delayed_sessions == other.delayed_sessions


def test_captures_are_traces(capture):
    packets = manyways.read_captures(capture, local=["10.0.0.0/8"], packets=True)["packets"]
    trace = radio.trace(packets)
    assert len(trace) == packets.num_rows > 0 and "example.com" in trace.apps
    assert trace.table.column("time").equals(packets.column("time"))
    assert radio.simulate(trace, "verizon-lte", "oracle").saved > 0


def test_what_is_made_is_the_same_in_every_run():
    for name in radio.workloads():
        one, other, third = (radio.workload(name, seed=seed, seconds=7_200) for seed in (7, 7, 8))
        assert one.table.equals(other.table) and not one.table.equals(third.table)
        assert len(one) > 10 and one.duration <= 7_200 and all(one.apps)
    assert len(radio.workloads()) == 8
    beats = radio.heartbeats(20.0, seconds=100.0, bytes=42)
    assert beats.seconds.to_pylist() == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    assert set(beats.table.column("bytes").to_pylist()) == {42} and beats.apps == ["heartbeat"]
    assert len(set(beats.table.column("flow").to_pylist())) == 6


class Counts:
    """Knows how many packets it has seen in its life."""

    def __init__(self):
        self.count = 0

    def observe(self, time, direction, bytes, app, gap):
        self.count += 1
        return 1.0 if self.count <= 10 else None


def test_policies_are_compared(day):
    other = radio.workload("email", seed=3)
    policies = {
        "nothing": "status-quo",
        "one": radio.Policy("fixed", seconds=1),
        "foresees": foresees,
        "mine": Counts(),
        "class": Counts,
        "both": "makeidle+makeactive",
    }
    profiles = ["att-hspa", radio.profile("lte")]
    table = radio.compare(
        {"day": day, "mail": other.table}, profiles, policies, delay_tolerant=["email"]
    )
    assert table.num_rows == 2 * 2 * 6
    order = [(row["trace"], row["profile"], row["policy"]) for row in table.to_pylist()]
    wanted = [(t, p, name) for t in ("day", "mail") for p in ("att-hspa", "lte") for name in policies]
    assert order == wanted
    assert all(field.metadata[b"about"] for field in table.schema)
    assert table.schema.field("energy").metadata[b"unit"] == b"J"
    for row in table.to_pylist():
        over = {"day": day, "mail": other}[row["trace"]]
        policy = {"mine": Counts(), "class": Counts()}.get(row["policy"], policies[row["policy"]])
        alone = radio.simulate(over, row["profile"], policy, delay_tolerant=["email"])
        for name in set(row) - {"trace", "profile", "policy"}:
            assert row[name] == getattr(alone, name), name
    # What was given is as it was.
    assert policies["mine"].count == 0


def test_one_of_each_can_be_compared_without_a_list(day, tmp_path):
    row = radio.compare(day, "lte", "makeidle").to_pylist()
    assert len(row) == 1 and row[0]["policy"] == "makeidle" and row[0]["trace"] == "0"
    path = str(tmp_path / "day.parquet")
    parquet.write_table(day.table, path)
    names = radio.compare([path, day], ["lte"], [radio.Policy("makeidle", n=10), Fixed, foresees])
    assert names.column("trace").to_pylist() == 3 * [path] + 3 * ["1"]
    assert names.column("policy").to_pylist()[:3] == ["makeidle(n=10)", "Fixed", "foresees"]
    columns = {name: day.table.column(name) for name in ("time", "bytes", "direction")}
    assert radio.compare(columns, "lte", "oracle").column("packets").to_pylist() == [len(day)]


def test_policies_are_described():
    for name, numbers in radio.policies().items():
        assert f"| `{name}` |" in radio.Policy.__doc__
        line = next(line for line in radio.Policy.__doc__.splitlines() if f"| `{name}` |" in line)
        for number, default in numbers.items():
            assert f"`{number}`" in line and (default is None or f" {default:g}" in line)
        assert str(radio.Policy(name)) == name
    assert str(radio.Policy("iat", p=0.5)) == "iat(p=0.5)"
    assert repr(radio.Policy("iat", p=0.5)) == "Policy('iat', p=0.5)"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"time": [0.0, 2.0, 1.0]}, "row 2 is earlier than the row before it; sort"),
        ({"time": [0, 2, 1]}, "row 2 is earlier than the row before it; sort"),
        ({"time": [0.0, math.nan, 1.0]}, "the time of row 1 is not a number; "),
        ({"time": [0.0, 1.0, math.inf]}, "the time of row 2 is too late; "),
        ({"time": [1e18, 1e18, 1e18]}, "the time of row 0 is too late; .*nanoseconds"),
        ({"time": [-1.0, 0.0, 1.0]}, "the time of row 0 is negative; "),
        ({"time": [-1, 0, 1]}, "the time of row 0 is negative; "),
        ({"time": [0.0, None, 1.0]}, "row 1 has no `time`; "),
        ({"time": ["a", "b", "c"]}, "the column `time` has values of string; "),
        ({"time": [[0.0], [1.0], [2.0]]}, "the column `time` has values of list"),
        ({"time": np.zeros((3, 1))}, "the column `time` cannot be read .*; give an array"),
        ({"time": 3.0}, "the column `time` cannot be read .*; give an array"),
        ({"time": [0.0, 1.0]}, "there are 3 values of `bytes` for 2 values of `time`; "),
        ({"app": ["a"]}, "there are 1 values of `app` for 3 values of `time`; "),
        ({"flow": [1, 2, 3, 4]}, "there are 4 values of `flow` for 3 values of `time`; "),
        ({"flow": [[1], [2], [3]]}, "the column `flow` cannot have values of list"),
        ({"bytes": [1, -1, 1]}, "row 1 has -1 bytes; "),
        ({"bytes": [1, 2**32, 1]}, "row 1 has 4294967296 bytes; "),
        ({"bytes": [1, 2**64, 1]}, "`bytes` c.*; "),
        ({"bytes": [1, 1.5, 1]}, "`bytes` cannot be taken for whole numbers; "),
        ({"bytes": [1, None, 1]}, "row 1 has no `bytes`; "),
        ({"direction": ["up", "sideways", "up"]}, "the direction of row 1 is 'sideways'; it is up"),
        ({"direction": ["up", None, "up"]}, "row 1 has no `direction`; "),
        ({"direction": [0, 1, 0]}, "the direction of row 0 is 0; it is up"),
        ({"direction": None}, "the column `direction` cannot be read"),
        ({"app": ["a"] * 3, "application": ["b"] * 3}, "both `app` and `application`; "),
        ({"time": [], "bytes": [], "direction": []}, "the trace has no packets; "),
    ],
)  # fmt: skip
def test_traces_that_make_no_sense(change, sentence):
    columns = {"time": [0.0, 1.0, 2.0], "bytes": [1, 2, 3], "direction": ["up", "up", "down"]}
    with pytest.raises(ValueError, match=sentence) as told:
        radio.trace(columns | change)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["time", "bytes", "direction"])
def test_columns_that_are_missing(name):
    table = a_trace((0, "up")).table.drop_columns(name)
    with pytest.raises(ValueError, match=f"the trace has no column `{name}`; it needs time"):
        radio.trace(table)


def test_files_that_make_no_sense(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time,bytes,direction\n0,1,up\n0.5,1,upward\n")
    with pytest.raises(ValueError, match="trace.csv: line 3: `upward` is not a direction; a direction is up"):
        radio.trace(path)
    path.write_bytes(b"time,bytes,direction\n0,1,up\n\xff\n")
    with pytest.raises(ValueError, match="line 3 is not text; "):
        radio.trace(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="line 1: there is no column `time`; "):
        radio.trace(path)
    path.write_bytes(b"time,bytes,direction\n")
    with pytest.raises(ValueError, match="the trace has no packets; "):
        radio.trace(path)
    path.write_bytes(b"time,bytes,direction\n18000000000,1,up\n")
    with pytest.raises(ValueError, match="ends too late; "):
        radio.trace(path)
    for name, content, sentence in [
        ("trace.csv.gz", b"\x1f\x8bnothing", "it cannot be decompressed"),
        ("trace.parquet", b"PAR1nothing", "it cannot be read as Parquet"),
        ("trace.pcap", b"", "does not end in .parquet or .csv; .*read_captures"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=sentence) as told:
            radio.trace(tmp_path / name)
        assert "\n" not in str(told.value)
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(FileNotFoundError):
            radio.trace(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        radio.trace(tmp_path)
    with pytest.raises(ValueError, match="3 is no trace; give a table"):
        radio.trace(3)


def test_names_that_are_none(day):
    for call, sentence in [
        (lambda: radio.profile("lt"), "there is no profile `lt`; did you mean `lte`. they are: .*wifi"),
        (lambda: radio.profile("moon"), "there is no profile `moon`; they are: 3g-i997"),
        (lambda: radio.profile(3), "3 is no profile; .*att-hspa"),
        (lambda: radio.profile("title = 1\n"), "line 1, column 9: .*"),
        (lambda: radio.Policy("makeidel"), "`makeidel`; did you mean `makeidle`. the policies are: "),
        (lambda: radio.simulate(day, "lte", "moon"), "there is no policy `moon`; the policies are: .*context"),
        (lambda: radio.compare(day, "lte", ["oracle", "moon"]), "there is no policy `moon`; "),
        (lambda: radio.Policy("makeactive+makeidle"), "`makeactive` does not decide when to go idle; "),
        (lambda: radio.Policy("makeidle+fixed"), "`fixed` does not delay sessions; .*makeidle.makeactive"),
        (lambda: radio.Policy("makeidle+moon"), "there is no policy `moon`; "),
        (lambda: radio.Policy("oracle+makeactive"), "`oracle` cannot be combined with another policy; "),
        (lambda: radio.Policy("fixed", n=3), "`fixed` has no parameter `n`; its parameters are: seconds"),
        (lambda: radio.Policy("oracle", n=3), "`oracle` has no parameter `n`; the policy has no parameters"),
        (lambda: radio.Policy("makeidle", n=0), "`n` cannot be 0; give a whole number from 1 to 65536"),
        (lambda: radio.Policy("makeidle", n=1.5), "`n` cannot be 1.5; "),
        (lambda: radio.Policy("fixed", seconds=-1), "`seconds` cannot be -1; "),
        (lambda: radio.Policy("fixed", seconds=math.nan), "`seconds` cannot be nan; "),
        (lambda: radio.Policy("fixed", seconds="x"), "`seconds` cannot be x; "),
        (lambda: radio.Policy("makeidle+makeactive", gamma=math.inf), "`gamma` cannot be inf; "),
        (lambda: radio.workload("news ", seed=1), "there is no workload `news `; did you mean `news`"),
        (lambda: radio.workload(seed=-1), "a seed cannot be -1; "),
        (lambda: radio.workload(seed=1, seconds=math.nan), "a duration of NaN s is invalid; "),
        (lambda: radio.workload(seed=1, seconds="1h"), "seconds cannot be '1h'; "),
        (lambda: radio.heartbeats(0.0), "a heartbeat interval of 0 s is invalid; "),
        (lambda: radio.heartbeats(1e-6), "has more than 268435456 packets; "),
        (lambda: radio.heartbeats(1.0, bytes=-1), "-1 bytes cannot be sent; "),
        (lambda: radio.compare(day, "lte", []), "there is nothing to compare; "),
        (lambda: radio.compare(day, [], ["oracle"]), "there is nothing to compare; "),
        (lambda: radio.compare({}, "lte", ["oracle"]), "there is nothing to compare; "),
        (
            lambda: radio.simulate(day, "lte", "makeactive", delay_tolerant=["e-mail"]),
            "there is no application 'e-mail' in the trace; it has: im, ",
        ),
    ]:
        with pytest.raises(ValueError, match=sentence) as told:
            call()
        assert "\n" not in str(told.value)


def test_gaps_that_are_none():
    profile = radio.profile("lte")
    for secs in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="the gap in row 1 is invalid: .* s; "):
            profile.tail([1.0, secs])
    with pytest.raises(ValueError, match="there are 1 waits for 2 gaps; "):
        profile.cost([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="the wait after packet 0 is -1; "):
        profile.cost(1.0, -1.0)
    with pytest.raises(ValueError, match="seconds cannot be 'x'; "):
        profile.tail("x")


def test_waits_that_are_none():
    trace = radio.heartbeats(15.0, seconds=60.0)
    for waits, sentence in [
        ([1.0] * 4, "there are 4 waits for 5 packets; "),
        ([1.0, math.nan, 1, 1, 1], "the wait after packet 1 is NaN; .*infinity leaves the radio"),
        ([1.0, 1, -0.5, 1, 1], "the wait after packet 2 is -0.5; "),
        ([1.0, None, 1, 1, 1], "row 1 has no `waits`; "),
        (["a"] * 5, "`waits` cannot be taken for numbers; "),
        (4.5, "waits cannot be 4.5; give a number for each"),
        (None, "waits cannot be None; "),
        (lambda trace, profile: 4.5, "waits cannot be 4.5; "),
    ]:
        with pytest.raises(ValueError, match=sentence):
            radio.simulate(trace, "lte", waits)
    for wait in (math.nan, -1.0, "soon", [1.0]):
        with pytest.raises(ValueError, match="the wait after packet 0 is .*; give numbers"):
            radio.simulate(trace, "lte", Fixed(wait))


def test_what_a_policy_raises_ends_the_run():
    class Breaks(Fixed):
        def observe(self, *packet):
            super().observe(*packet)
            if len(self.seen) == 3:
                raise LookupError("broken")

    policy = Breaks()
    with pytest.raises(LookupError, match="broken"):
        radio.simulate(radio.heartbeats(15.0), "lte", policy)
    assert len(policy.seen) == 3
    with pytest.raises(LookupError, match="broken"):
        radio.compare(radio.heartbeats(15.0), "lte", ["makeidle", Breaks])

    class Holds(Fixed):
        def session_delay(self, now):
            return -1.0

    sentence = "a delay of -1.0 s is invalid; return a number from 0 to 86400"
    with pytest.raises(ValueError, match=sentence):
        radio.simulate(radio.heartbeats(15.0), "lte", Holds, delay_tolerant=["heartbeat"])

    class Wrong:
        def observe(self):
            return 1.0

    with pytest.raises(TypeError):
        radio.simulate(radio.heartbeats(15.0), "lte", Wrong())


def test_numpy_is_not_needed():
    code = """
import sys
sys.modules["numpy"] = None
from manyways import radio
trace = radio.trace({"time": [0.0, 1.0, 30.0], "bytes": [1, 2, 3], "direction": ["up", "down", "up"]})
print(radio.compare(trace, "lte", ["oracle"]).num_rows, radio.profile("lte").tail([1.0])[0] > 0)
"""
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1 True\n"
