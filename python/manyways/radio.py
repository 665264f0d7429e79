"""Computes the energy of a device's radio for a packet trace, and the savings of policies.

After its last packet a cellular radio stays connected for seconds, in case one follows. This tail
can take more energy than all transfers. A policy returns after each packet when to go idle, and
some delay delay-tolerant sessions. A policy is a built-in policy of manyways, an array of
waits, or a custom object; `simulate` runs one policy over one trace, and `compare` runs several.

    from manyways import radio

    trace = radio.workload("mixed-day", seed=1)
    radio.compare(trace, "att-hspa", ["makeidle", "context", "oracle"])

Units are seconds, joules, watts and bytes everywhere. The times of packets do not depend on the
radio (open loop), except in delayed sessions. The model and most policies
are those of S. Deng and H. Balakrishnan, "Traffic-aware techniques to reduce 3G/LTE wireless energy
consumption", CoNEXT 2012, and chapter 4 of Deng's thesis (MIT, 2015); docs/radio.md lists the
differences of manyways. Invalid arguments raise a ValueError with one sentence and a hint; a
file that cannot be opened raises an OSError.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from manyways import _native, columns

__all__ = [
    "Decider",
    "Outcome",
    "Policy",
    "Profile",
    "Trace",
    "compare",
    "heartbeats",
    "policies",
    "profile",
    "profiles",
    "simulate",
    "trace",
    "workload",
    "workloads",
]


class Decider(Protocol):
    """The interface of a custom policy.

    With a method `session_delay(now)`, the policy delays sessions. `on_session(now)`, which is
    optional, is called for every delay-tolerant session, then `session_delay(now)` for a session
    that finds the radio idle while no other is delayed. `session_delay` returns how long, in s,
    this session and those until then wait. `now` is in seconds since the trace's first packet.
    """

    def observe(
        self, time: float, direction: str, bytes: int, app: str, gap: float | None
    ) -> float | None:
        """Receives a packet at `time`, in seconds since the trace's first one, `gap` seconds after
        the previous one; `direction` is "up", from the device, or "down"; `app` is empty if it
        is unknown. Returns the wait: the radio goes idle strictly after so long without a packet;
        with infinity or None, only the network's timers apply."""


class Policy:
    """A built-in policy and its parameters: `Policy("fixed", seconds=3)`.

    | Name | Parameters | Meaning and source |
    |---|---|---|
    | `status-quo` | | the network's timers |
    | `fixed` | `seconds` 4.5 | Falaki et al., "A first look at traffic on smartphones", IMC 2010 |
    | `iat` | `p` 0.95 | the p-quantile of the trace's own gaps: Deng's thesis, 4.6.2 |
    | `threshold` | | a constant wait: the shortest gap for which immediate sleep saves energy |
    | `oracle` | | knows all gaps: the minimum energy without delays (4.6.2) |
    | `makeidle` | `n` 100 gaps | Deng's thesis, 4.4.2, with a corrected cost of waiting |
    | `printed` | | makeidle by its equations 4.1 and 4.2 as printed: an ablation |
    | `context` | | ours: the best wait after packets like the last one |
    | `makeactive-fixed` | `delay` in seconds, else k·(t1 + t2) | Deng's thesis, 4.5.1 |
    | `makeactive` | `experts` 10 (of 1, 2, … s), `gamma` 0.008 | Deng's thesis, 4.5.2, app. A |

    The last two delay delay-tolerant sessions. The network's timers decide about sleep, or another
    policy: `makeidle+makeactive`. The p-quantile is the shortest gap that the share p of all gaps
    does not exceed. k is the mean number of bursts (packets with gaps of at most the profile's
    `burst_gap`) between two releases of the radio under the status quo, and t1 + t2 is the
    time until the network releases it.
    """

    def __init__(self, name: str, **numbers: float):
        self._native = _native.PolicySpec(name, numbers)
        self.name = name
        self.numbers = numbers

    def __repr__(self) -> str:
        numbers = "".join(f", {name}={value!r}" for name, value in self.numbers.items())
        return f"Policy({self.name!r}{numbers})"

    def __str__(self) -> str:
        numbers = ", ".join(f"{name}={value!r}" for name, value in self.numbers.items())
        return f"{self.name}({numbers})" if numbers else self.name

    def __deepcopy__(self, memo: dict) -> Policy:
        return self


def policies() -> dict[str, dict[str, float | None]]:
    """Returns the parameters of each built-in policy by its name, with their defaults. The value
    None means that the policy computes the parameter from the trace."""
    return {name: numbers for name, numbers, _ in _native.policies()}


class Profile:
    """A radio profile: the power and the timer of each state.

    The states are in the order in which an idle radio passes through them; a packet causes a
    promotion to the first state. `numbers` contains all values, with a source for each:

    - `title`, `technology`;
    - `transfer`: `send` and `receive` in W during transfers, `send_per_mbit` and
      `receive_per_mbit` in J for each million bits, `burst_gap` in s (a gap of at most this belongs
      to a transfer);
    - `states`: for each `name`, `power` in W, `listen_every` and `listen_for` in s and
      `listen_power` in W (discontinuous reception or paging; None without a cycle), `timer` in
      s until the next state (None for the last), `demotion` in J to enter it, `promotion` in J to
      leave it, `promotion_delay` in s, `released` (a promotion counts as a switch) and
      `dormant` (fast dormancy leads into this state).
    """

    def __init__(self, native: Any, name: str | None):
        self._native = native
        self.name = name if name is not None else self.numbers["title"]

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """All values of the profile, in seconds, watts and joules."""
        return self._native.numbers()

    @property
    def states(self) -> list[str]:
        """The names of the states, in their order."""
        return [state["name"] for state in self.numbers["states"]]

    @property
    def threshold(self) -> float:
        """t_threshold, in seconds: the shortest gap in which immediate sleep saves energy; inf
        if sleep never saves energy (Deng's thesis, 4.4.1)."""
        return self._native.threshold()

    @property
    def switch_energy(self) -> float:
        """E_switch, in joules: the energy of a demotion and the promotion that follows."""
        return self._native.switch_energy()

    @property
    def released(self) -> float:
        """t1 + t2, in seconds: time from the last packet to the release by the network."""
        return self._native.released()

    def tail(self, seconds: Any) -> Any:
        """Returns E(t), in joules, for gaps in seconds that end with a packet, under the network's
        timers (Deng's thesis, 4.4.1). Takes a number, a list, or an array of numpy or Arrow of any
        length, and returns the same type."""
        gaps = columns.floats(_several(seconds), "seconds")
        return columns.like(seconds, self._native.cost(gaps))

    def cost(self, seconds: Any, wait: Any) -> Any:
        """Like `tail`, if the device goes idle after `wait` seconds: a number, or one for each
        gap. With infinity, only the network's timers apply."""
        gaps = columns.floats(_several(seconds), "seconds")
        if isinstance(wait, Real):
            wait = [float(wait)] * len(gaps)
        return columns.like(seconds, self._native.cost(gaps, columns.floats(wait, "wait")))

    def __repr__(self) -> str:
        return f"<Profile {self.name}: {self.numbers['title']}>"

    def __deepcopy__(self, memo: dict) -> Profile:
        return self


def profiles() -> list[str]:
    """Returns the names of the built-in profiles."""
    return _native.radios()


def profile(source: Profile | str | os.PathLike[str]) -> Profile:
    """Returns a profile by its name (see `profiles`), from a file that ends in .toml, or from the
    text of this file. A profile contains a source for each number: see `Profile.numbers`."""
    if isinstance(source, Profile):
        return source
    if not isinstance(source, (str, os.PathLike)):
        names = ", ".join(profiles())
        hint = f"give a file, its text, or one of {names}"
        raise ValueError(f"{columns.short(source)} is no profile; {hint}")
    if isinstance(source, str) and "\n" in source:
        return Profile(_native.Radio.parse(source), None)
    if str(source).endswith(".toml") or isinstance(source, os.PathLike):
        path = Path(source)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no text; a profile is TOML in UTF-8") from error
        try:
            return Profile(_native.Radio.parse(text), path.stem)
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from None
    return Profile(_native.Radio.named(source), source)


class Trace:
    """A packet trace in order of time; `trace` creates it from a table.

    A trace is immutable, and takes 24 bytes per packet.
    """

    def __init__(self, native: Any):
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @property
    def duration(self) -> float:
        """Seconds from the first packet to the last."""
        return self._native.duration()

    @property
    def apps(self) -> list[str]:
        """The names of the applications; empty for packets of an unknown application."""
        return self._native.names()

    @property
    def seconds(self) -> pa.DoubleArray:
        """Time of each packet, in seconds since the first: an array as long as the trace."""
        return self._column("seconds", pa.float64())

    @property
    def gaps(self) -> pa.DoubleArray:
        """Seconds from the previous packet to each packet, NaN for the first: an array as long
        as the trace. The gap after packet i is `gaps[i + 1]`, which a policy must predict."""
        return self._column("gap", pa.float64())

    @property
    def table(self) -> pa.Table:
        """A row per packet: `time`, `bytes`, `direction` ("up" or "down"), `application` (null
        if unknown) and `flow`, the session's number: columns of the table of
        packets that `manyways flows` writes. `trace` accepts this table."""
        apps = pa.array([app or None for app in self.apps], pa.string())
        words = pa.array(["up", "down"])
        direction = pa.DictionaryArray.from_arrays(self._column("direction", pa.int32()), words)
        application = pa.DictionaryArray.from_arrays(self._column("app", pa.int32()), apps)
        return pa.table(
            {
                "time": self._column("time", pa.timestamp("ns", tz="UTC")),
                "bytes": self._column("bytes", pa.int64()),
                # Not as dictionaries: what is written is read everywhere.
                "direction": direction.dictionary_decode(),
                "application": application.dictionary_decode(),
                "flow": self._column("flow", pa.int64()),
            }
        )

    def _column(self, name: str, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(
            kind, len(self), [None, pa.py_buffer(self._native.column(name))], 0
        )

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} packets in {self.duration:.0f} s>"

    def __deepcopy__(self, memo: dict) -> Trace:
        return self


Source: TypeAlias = "Trace | pa.Table | Mapping[str, Any] | str | os.PathLike[str]"


def trace(source: Source) -> Trace:
    """Creates a trace from an Arrow table (or an object that exports one: data frames), a dict of
    columns (arrays of numpy or Arrow, lists), a file that ends in .parquet or .csv (also
    .csv.gz), or a folder of `manyways flows --packets -o`.

    | Column | Values |
    |---|---|
    | `time` | times, nanoseconds as whole numbers, or seconds as numbers with a point; sorted |
    | `bytes` | whole numbers: the packet's length on the network layer |
    | `direction` | "up", from the device, or "down" |
    | `application` or `app` | a name; may be absent |
    | `flow` | a value that is the same for all packets of a session; may be absent |

    Without flows, traffic of an application after a gap of 1.5 s is a new session (the
    burst gap of AT&T's Video Optimizer). Policies delay whole sessions.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, (str, os.PathLike)):
        return Trace(columns.file(Path(source)))
    if not isinstance(source, Mapping):
        if not isinstance(source, pa.Table):
            try:
                source = pa.table(source)
            except (TypeError, ValueError) as error:
                hint = "give a table, a dict of columns or a file"
                raise ValueError(f"{columns.short(source)} is no trace; {hint}") from error
        source = {name: source.column(name) for name in source.column_names}
    return Trace(columns.packets(source))


def workloads() -> list[str]:
    """Returns the names that `workload` accepts."""
    return _native.workloads()


def workload(name: str = "mixed-day", *, seed: int, seconds: float = 86_400.0) -> Trace:
    """Generates the traffic of applications from a seed; the same seed gives the same trace.

    "mixed-day" are the days of a user with several applications, from midnight. Every other name is
    one application: the seven categories of Deng's thesis, 4.6.1, which specifies how often each
    sends; sizes and variation are ours. Use seeds below 1,000 for development;
    those from 1,000 on are for evaluation. Traffic during use of an application is named NAME.use.
    """
    if not isinstance(seed, Integral) or not 0 <= seed < 1 << 64:
        hint = "it is a whole number from 0 to 2^64 - 1"
        raise ValueError(f"a seed cannot be {columns.short(seed)}; {hint}")
    return Trace(_native.Trace.workload(name, int(seed), _number(seconds, "seconds")))


def heartbeats(every: float, *, seconds: float = 86_400.0, bytes: int = 100) -> Trace:
    """Returns a trace with `bytes` from the device every `every` seconds, the first at time 0
    and the last after at most `seconds`. Each packet is a session, and `Profile.tail` gives
    the energy of each gap."""
    if not isinstance(bytes, Integral) or not 0 <= bytes < 1 << 32:
        hint = "it is a whole number from 0 to 2^32 - 1"
        raise ValueError(f"{columns.short(bytes)} bytes cannot be sent; {hint}")
    every, seconds = _number(every, "every"), _number(seconds, "seconds")
    return Trace(_native.Trace.heartbeats(every, int(bytes), seconds))


@dataclass(frozen=True)
class Outcome:
    """The result of a policy on a trace. Energies are in joules, times in seconds, rates and shares
    from 0 to 1; None if the denominator is zero."""

    policy: str
    profile: str
    # From the first packet to the last.
    duration: float
    packets: int
    bytes_up: int
    bytes_down: int
    # Total energy, including the tail of the last packet.
    energy: float
    # Energy that a policy can save: connected without a transfer, demotions and promotions.
    tail_energy: float
    # By the direction of the packet that ended a gap, including the energy of its bits.
    transfer_energy_up: float
    transfer_energy_down: float
    # Energy of demotions, and of promotions by packets.
    demotion_energy: float
    promotion_energy: float
    transfer_seconds: float
    # By the profile's states, without transfers, demotions and promotions.
    state_energies: dict[str, float]
    state_seconds: dict[str, float]
    # Packets that found the radio idle, including the first one.
    switches: int
    # Number of sleeps by the policy, and the mean wait before them.
    sleeps: int
    mean_wait: float | None
    # Gaps, by whether the radio was idle in them and whether the oracle would have been.
    true_switches: int
    false_switches: int
    true_stays: int
    missed_switches: int
    # Of the gaps in which the oracle stays connected, the share with a switch; of the gaps in
    # which the oracle sleeps, the share without one (Deng's thesis, 4.6.3).
    false_switch_rate: float | None
    missed_switch_rate: float | None
    # Delay-tolerant sessions, delayed sessions, and their mean delay.
    tolerant_sessions: int
    delayed_sessions: int
    delay_mean: float | None
    # To a hundredth of a second.
    delay_median: float | None
    delay_p95: float | None
    # The same trace under the network's timers.
    status_quo_energy: float
    status_quo_tail_energy: float
    status_quo_switches: int

    @property
    def transfer_energy(self) -> float:
        """Energy of transfers in both directions, in joules."""
        return self.transfer_energy_up + self.transfer_energy_down

    @property
    def saved(self) -> float | None:
        """Saved share of the total energy under the status quo."""
        return _share(self.status_quo_energy - self.energy, self.status_quo_energy)

    @property
    def saved_tail(self) -> float | None:
        """Saved energy as a share of the status quo's tail energy."""
        return _share(
            self.status_quo_tail_energy - self.tail_energy, self.status_quo_tail_energy
        )

    @property
    def switches_ratio(self) -> float | None:
        """Number of switches divided by that under the status quo."""
        return _share(self.switches, self.status_quo_switches)

    @property
    def saved_per_switch(self) -> float | None:
        """Saved joules per switch (Deng's thesis, figure 4-10c)."""
        return _share(self.status_quo_energy - self.energy, self.switches)


Waits: TypeAlias = "Sequence[float] | pa.Array | Any"
AnyPolicy: TypeAlias = "str | Policy | Decider | Waits | Callable[[Trace, Profile], Waits]"


def simulate(
    trace: Source,
    profile: Profile | str | os.PathLike[str],
    policy: AnyPolicy,
    *,
    delay_tolerant: Iterable[str] = (),
) -> Outcome:
    """Runs a policy over a trace.

    `policy` is a name or a `Policy`; or waits in seconds, as many as there are packets: after
    packet i the radio goes idle after `waits[i]` seconds without one, or with infinity by timers of
    the network; or a function of trace and profile that returns waits; or an object with `observe`
    (see `Decider`), which is called for every packet. A custom policy is fastest as waits,
    if they can be computed for all packets together.

    `delay_tolerant` contains the names of applications with delay-tolerant sessions. Only these
    are delayed, and only by a policy that delays sessions.
    """
    over, of = _trace(trace), _profile(profile)
    names = _names(delay_tolerant, [over])
    return _run(over, of, _label(policy), policy, names, _status_quo(over, of))


def compare(
    traces: Source | Sequence[Source] | Mapping[str, Source],
    profiles: Profile | str | os.PathLike[str] | Sequence[Profile | str | os.PathLike[str]],
    policies: Sequence[AnyPolicy] | Mapping[str, AnyPolicy],
    *,
    delay_tolerant: Iterable[str] = (),
) -> pa.Table:
    """Runs all policies over all traces with all profiles. Returns a row for each run, with values
    and units of `Outcome`. The schema describes each column.

    Traces and policies may have names: give a dict. Policies are as in `simulate`; an object runs
    as a copy, so that runs are independent; a class with `observe` is instantiated
    for each run. Built-in policies run on all cores.
    """
    named = {name: _trace(one) for name, one in _several_traces(traces).items()}
    listed = profiles if isinstance(profiles, (list, tuple)) else [profiles]
    radios = [_profile(one) for one in listed]
    chosen = _several_policies(policies)
    names = _names(delay_tolerant, named.values())
    if not named or not radios or not chosen:
        raise ValueError("there is nothing to compare; give a trace, a profile and a policy")
    pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    try:
        runs = []
        for name, over in named.items():
            for of in radios:
                quo = pool.submit(_status_quo, over, of)
                for label, policy in chosen:
                    run = partial(_run_after, over, of, label, policy, names, quo)
                    # What is Python's needs its lock, and somebody who can interrupt it.
                    is_native = isinstance(policy, Policy)
                    runs.append((name, pool.submit(run).result if is_native else run))
        rows = [(name, run()) for name, run in runs]
    finally:
        pool.shutdown(cancel_futures=True)
    numbers = _COMPARED.names[1:]
    values = [{"trace": name, **{of: getattr(row, of) for of in numbers}} for name, row in rows]
    return pa.Table.from_pylist(values, schema=_COMPARED)


def _field(name: str, kind: pa.DataType, about: str, unit: str | None = None) -> pa.Field:
    return pa.field(name, kind, metadata={"about": about, **({"unit": unit} if unit else {})})


_COMPARED = pa.schema(
    [
        _field("trace", pa.string(), "Name of the trace, or its number from 0."),
        _field("profile", pa.string(), "Its name."),
        _field("policy", pa.string(), "Its name."),
        _field("packets", pa.int64(), "Packets."),
        _field("duration", pa.float64(), "From the first packet to the last.", "s"),
        _field("energy", pa.float64(), "Total energy.", "J"),
        _field("transfer_energy", pa.float64(), "Energy of transfers.", "J"),
        _field("tail_energy", pa.float64(), "Tail energy, with switches.", "J"),
        _field("saved", pa.float64(), "Saved share of the status quo's energy."),
        _field("saved_tail", pa.float64(), "Saved share of the status quo's tail energy."),
        _field("switches", pa.int64(), "Packets that found the radio idle."),
        _field("switches_ratio", pa.float64(), "Switches divided by those of the status quo."),
        _field("saved_per_switch", pa.float64(), "Saved energy per switch.", "J"),
        _field("sleeps", pa.int64(), "Number of sleeps by the policy."),
        _field("mean_wait", pa.float64(), "Mean wait before these sleeps.", "s"),
        _field("false_switch_rate", pa.float64(), "Switches in gaps without one by the oracle."),
        _field("missed_switch_rate", pa.float64(), "Gaps without the oracle's switch."),
        _field("tolerant_sessions", pa.int64(), "Delay-tolerant sessions."),
        _field("delayed_sessions", pa.int64(), "Delayed sessions."),
        _field("delay_mean", pa.float64(), "Mean delay of delayed sessions.", "s"),
        _field("delay_median", pa.float64(), "Median delay, to 0.01 s.", "s"),
        _field("delay_p95", pa.float64(), "95th percentile of the delay, to 0.01 s.", "s"),
    ]
)
# Arguments are called like the functions.
_trace, _profile = trace, profile


def _run(
    over: Trace, of: Profile, label: str, policy: AnyPolicy, names: list[str], quo: dict[str, Any]
) -> Outcome:
    if isinstance(policy, str):
        policy = Policy(policy)
    if isinstance(policy, Policy):
        given = policy._native
    elif hasattr(policy, "observe"):
        given = _fresh(policy) if isinstance(policy, type) else policy
    else:
        given = columns.floats(policy(over, of) if callable(policy) else policy, "waits")
    did = over._native.run(of._native, given, names)
    before = {f"status_quo_{name}": quo[name] for name in ("energy", "tail_energy", "switches")}
    return Outcome(policy=label, profile=of.name, **did, **before)


def _run_after(
    over: Trace,
    of: Profile,
    label: str,
    policy: AnyPolicy,
    names: list[str],
    quo: Future[dict[str, Any]],
) -> Outcome:
    return _run(over, of, label, _fresh(policy), names, quo.result())


def _status_quo(over: Trace, of: Profile) -> dict[str, Any]:
    return over._native.run(of._native, Policy("status-quo")._native, [])


def _fresh(policy: AnyPolicy) -> AnyPolicy:
    """Returns a copy of the policy without its state from runs."""
    if not hasattr(policy, "observe"):
        return policy
    return policy() if isinstance(policy, type) else copy.deepcopy(policy)


def _label(policy: AnyPolicy) -> str:
    if isinstance(policy, (str, Policy)):
        return str(policy)
    if hasattr(policy, "observe") and not isinstance(policy, type):
        return type(policy).__name__
    return getattr(policy, "__name__", "waits")


def _several_policies(given: Any) -> list[tuple[str, AnyPolicy]]:
    if isinstance(given, (str, Policy)) or hasattr(given, "observe") or callable(given):
        given = [given]
    items = given.items() if isinstance(given, Mapping) else ((_label(one), one) for one in given)
    # A name that is none is told before anything runs.
    return [(name, Policy(one) if isinstance(one, str) else one) for name, one in items]


def _several_traces(given: Any) -> dict[str, Source]:
    is_one = isinstance(given, Mapping) and (
        {"time", "bytes"} <= given.keys() or any(map(_is_column, given.values()))
    )
    if isinstance(given, Mapping) and not is_one:
        return {str(name): one for name, one in given.items()}
    if isinstance(given, (list, tuple)):
        names = [str(one) if isinstance(one, (str, os.PathLike)) else None for one in given]
        named = enumerate(zip(names, given, strict=True))
        return {name or str(at): one for at, (name, one) in named}
    return {str(given) if isinstance(given, (str, os.PathLike)) else "0": given}


def _is_column(given: Any) -> bool:
    return not isinstance(given, (Trace, pa.Table, Mapping, str, os.PathLike)) and not hasattr(
        given, "__arrow_c_stream__"
    )


def _names(given: Iterable[str], traces: Iterable[Trace]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        return names
    known = {app: None for one in traces for app in one.apps}
    for name in names:
        if name not in known:
            some = ", ".join(app for app in list(known)[:20] if app) or "none that has a name"
            sentence = f"there is no application {columns.short(name)} in the trace"
            raise ValueError(f"{sentence}; it has: {some}")
    return names


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _several(given: Any) -> Any:
    return [float(given)] if isinstance(given, Real) else given


def _number(given: Any, name: str) -> float:
    if not isinstance(given, Real):
        raise ValueError(f"{name} cannot be {columns.short(given)}; it is a number")
    return float(given)
