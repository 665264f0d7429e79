"""What a device's radio spends on a trace of packets, and what it could save.

After the last packet a cellular radio stays awake for seconds, in case another one comes. This tail
can take more than all packets together. A policy says after each packet when to go to sleep, and
some hold back what can wait. Here a policy is one of those that come with manyways, an array of
waits, or an object of your own; `simulate` runs it over a trace, and `compare` runs many.

    from manyways import radio

    trace = radio.workload("mixed-day", seed=1)
    radio.compare(trace, "att-hspa", ["makeidle", "context", "oracle"])

Units are seconds, joules, watts and bytes everywhere. Packets are where they are, whatever the
radio does (open loop); only a session that is held back comes later. The model and most policies
are those of S. Deng and H. Balakrishnan, "Traffic-aware techniques to reduce 3G/LTE wireless energy
consumption", CoNEXT 2012, and chapter 4 of Deng's thesis (MIT, 2015); docs/radio.md says where
manyways differs. Everything that makes no sense is a ValueError of one sentence and what to do; a
file that cannot be opened is an OSError.
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
    """A policy of your own.

    It may have two more methods, and then it holds back what can wait: `begins(now)`, which it may
    leave out, is called for every session that can, and `hold(now)`, after that, for one that finds
    the radio asleep while no other one is held back. It says for how many seconds to hold it and
    those that come until then. `now` is in seconds since the trace's first packet.
    """

    def observe(
        self, time: float, direction: str, bytes: int, app: str, gap: float | None
    ) -> float | None:
        """A packet passed at `time`, in seconds since the trace's first one, `gap` seconds after
        the one before it; `direction` is "up", from the device, or "down"; `app` is empty where it
        is not known. Says after how many seconds of silence to go to sleep, strictly after:
        infinity or None leaves it to the network's timers."""


class Policy:
    """A policy that comes with manyways, and its numbers: `Policy("fixed", seconds=3)`.

    | Name | Numbers | Source |
    |---|---|---|
    | `status-quo` | | the network's timers |
    | `fixed` | `seconds` 4.5 | Falaki et al., "A first look at traffic on smartphones", IMC 2010 |
    | `iat` | `p` 0.95 | the p-quantile of the trace's own gaps: Deng's thesis, 4.6.2 |
    | `threshold` | | a timer of the silence from which on sleeping at once is worth it |
    | `oracle` | | knows what comes: the least that can be had without delay (4.6.2) |
    | `makeidle` | `n` 100 gaps | Deng's thesis, 4.4.2, with the cost of waiting put right |
    | `printed` | | makeidle by its equations 4.1 and 4.2 as printed: an ablation |
    | `context` | | ours: what has been best after packets like the last one |
    | `makeactive-fixed` | `hold` in seconds, else k·(t1 + t2) | Deng's thesis, 4.5.1 |
    | `makeactive` | `experts` 10 (of 1, 2, … s), `gamma` 0.008 | Deng's thesis, 4.5.2, app. A |

    The last two hold back what can wait and leave sleeping to the network's timers, or to another
    policy: `makeidle+makeactive`. The p-quantile is the shortest gap that the share p of all gaps
    does not exceed. k is the mean number of bursts (packets with gaps of at most the profile's
    `burst_gap`) from one release of the radio to the next under the status quo, and t1 + t2 the
    time until the network releases it.
    """

    def __init__(self, name: str, **numbers: float):
        self._native = _native.Plan(name, numbers)
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
    """The policies that come with manyways, by name: each one's numbers with their defaults. None
    is worked out from the trace."""
    return {name: numbers for name, numbers, _ in _native.plans()}


class Profile:
    """A radio: what it takes in which state, and when it leaves it.

    Its states are in the order in which it goes through them while nothing passes; a packet brings
    it back into the first. `numbers` has everything, with the source of each number:

    - `title`, `technology`;
    - `transfer`: `send` and `receive` in W while packets follow each other, `send_per_mbit` and
      `receive_per_mbit` in J for each million bits, `burst_gap` in s (a gap of at most this belongs
      to a transfer);
    - `states`: for each `name`, `power` in W, `listen_every` and `listen_for` in s and
      `listen_power` in W (discontinuous reception or paging; None where there is none), `timer` in
      s until the next state (None for the last), `demotion` and `promotion` in J to enter it and to
      be brought back, `promotion_delay` in s, `released` (coming back counts as a switch) and
      `dormant` (the device can go there by itself).
    """

    def __init__(self, native: Any, name: str | None):
        self._native = native
        self.name = name if name is not None else self.numbers["title"]

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """Everything that the profile says, in seconds, watts and joules."""
        return self._native.numbers()

    @property
    def states(self) -> list[str]:
        """The names of its states, in their order."""
        return [state["name"] for state in self.numbers["states"]]

    @property
    def threshold(self) -> float:
        """t_threshold, in seconds: the silence from which on it is worth to sleep at once; infinite
        where it never is (Deng's thesis, 4.4.1)."""
        return self._native.threshold()

    @property
    def switch_energy(self) -> float:
        """E_switch, in joules: what it takes to go to sleep and to be brought back."""
        return self._native.switch_energy()

    @property
    def released(self) -> float:
        """t1 + t2, in seconds: how long after the last packet the network lets go of the device."""
        return self._native.released()

    def tail(self, seconds: Any) -> Any:
        """E(t), in joules, of silences of so many seconds that a packet ends, under the network's
        timers (Deng's thesis, 4.4.1). Takes a number, a list, or an array of numpy or Arrow of any
        length, and gives the same."""
        silences = columns.floats(_several(seconds), "seconds")
        return columns.like(seconds, self._native.cost(silences))

    def cost(self, seconds: Any, wait: Any) -> Any:
        """As `tail`, where the device goes to sleep after `wait` seconds: a number, or one for each
        silence. Infinity leaves it to the network."""
        silences = columns.floats(_several(seconds), "seconds")
        if isinstance(wait, Real):
            wait = [float(wait)] * len(silences)
        return columns.like(seconds, self._native.cost(silences, columns.floats(wait, "wait")))

    def __repr__(self) -> str:
        return f"<Profile {self.name}: {self.numbers['title']}>"

    def __deepcopy__(self, memo: dict) -> Profile:
        return self


def profiles() -> list[str]:
    """The names of the profiles that come with manyways."""
    return _native.radios()


def profile(source: Profile | str | os.PathLike[str]) -> Profile:
    """A profile by its name (`profiles` lists them), from a file that ends in .toml, or from the
    text of one. Each of the numbers of a profile has a source in it: see `Profile.numbers`."""
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
    """Packets in the order in which they passed; `trace` makes one of a table.

    It is kept in the form in which policies run over it, 24 bytes a packet, and does not change.
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
        """The names of its applications; that of packets of which it is not known is empty."""
        return self._native.names()

    @property
    def seconds(self) -> pa.DoubleArray:
        """When each packet passed, in seconds since the first: an array as long as the trace."""
        return self._column("seconds", pa.float64())

    @property
    def gaps(self) -> pa.DoubleArray:
        """Seconds since the packet before it, for each packet, NaN for the first: an array as long
        as the trace. The silence after packet i is `gaps[i + 1]`: what a policy has to foresee."""
        return self._column("gap", pa.float64())

    @property
    def table(self) -> pa.Table:
        """A row for each packet: `time`, `bytes`, `direction` ("up" or "down"), `application` (null
        where it is not known) and `flow`, the session's number: the columns of the table of
        packets that `manyways flows` writes. `trace` reads them again."""
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
    """A trace of a table of Arrow (or of whatever gives one, as data frames do), of a dict of
    columns (arrays of numpy or Arrow, lists), of a file that ends in .parquet or .csv (also
    .csv.gz), or of the folder into which `manyways flows --packets -o` wrote one.

    | Column | Values |
    |---|---|
    | `time` | times, nanoseconds as whole numbers, or seconds as numbers with a point; sorted |
    | `bytes` | whole numbers: the packet's length on the network layer |
    | `direction` | "up", from the device, or "down" |
    | `application` or `app` | a name; may be absent |
    | `flow` | anything that is the same for all packets of a session; may be absent |

    Where there is no flow, what an application does after 1.5 s of silence is a new session (the
    burst gap of AT&T's Video Optimizer). Sessions are what is held back.
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
    """The names of what `workload` makes."""
    return _native.workloads()


def workload(name: str = "mixed-day", *, seed: int, seconds: float = 86_400.0) -> Trace:
    """A trace of what applications send and receive, made from a seed: the same in every run.

    "mixed-day" are the days of a user with several applications, from midnight. Every other name is
    an application alone: the seven categories of Deng's thesis, 4.6.1, which gives how often each
    speaks; sizes and variation are manyways' own. Seeds below 1,000 are there to develop with:
    judge a policy by those from 1,000 on. What an application does in use is called NAME.use.
    """
    if not isinstance(seed, Integral) or not 0 <= seed < 1 << 64:
        hint = "it is a whole number from 0 to 2^64 - 1"
        raise ValueError(f"a seed cannot be {columns.short(seed)}; {hint}")
    return Trace(_native.Trace.workload(name, int(seed), _number(seconds, "seconds")))


def heartbeats(every: float, *, seconds: float = 86_400.0, bytes: int = 100) -> Trace:
    """A packet of so many bytes from the device every so many seconds, the first at the beginning
    and the last after at most `seconds`. Every one is a session, and every energy can be worked out
    by hand: `Profile.tail`."""
    if not isinstance(bytes, Integral) or not 0 <= bytes < 1 << 32:
        hint = "it is a whole number from 0 to 2^32 - 1"
        raise ValueError(f"{columns.short(bytes)} bytes cannot be sent; {hint}")
    every, seconds = _number(every, "every"), _number(seconds, "seconds")
    return Trace(_native.Trace.heartbeats(every, int(bytes), seconds))


@dataclass(frozen=True)
class Outcome:
    """What a policy did with a trace. Energies are in joules, times in seconds, rates and shares
    from 0 to 1; None where there is nothing to divide by."""

    policy: str
    profile: str
    # From the first packet to the last.
    duration: float
    packets: int
    bytes_up: int
    bytes_down: int
    # All of it, the tail behind the last packet included.
    energy: float
    # What a policy can save: awake without a transfer, and going to sleep and coming back.
    tail_energy: float
    # By the direction of the packet that ended a gap, with what the bits themselves took.
    transfer_energy_up: float
    transfer_energy_down: float
    # Entering states, and being brought back by packets.
    demotion_energy: float
    promotion_energy: float
    transfer_seconds: float
    # By the profile's states, without transfers and without what changing between them takes.
    state_energies: dict[str, float]
    state_seconds: dict[str, float]
    # Packets that found the radio released, the first one among them.
    switches: int
    # How often the device went to sleep by itself, and the mean wait before it did.
    sleeps: int
    mean_wait: float | None
    # Gaps, by whether the radio was released in them and whether the oracle would have released it.
    released_rightly: int
    released_wrongly: int
    stayed_rightly: int
    stayed_wrongly: int
    # Of the gaps in which the oracle stays awake, the share in which this did not, and of those in
    # which it sleeps, the share in which this stayed awake (Deng's thesis, 4.6.3).
    false_switch_rate: float | None
    missed_switch_rate: float | None
    # Sessions that could wait, those that were held back, and for how long those were.
    tolerant_sessions: int
    held_sessions: int
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
        """Joules of both directions."""
        return self.transfer_energy_up + self.transfer_energy_down

    @property
    def saved(self) -> float | None:
        """The share of the total energy under the status quo that was saved."""
        return _share(self.status_quo_energy - self.energy, self.status_quo_energy)

    @property
    def saved_tail(self) -> float | None:
        """The same saving as a share of the status quo's tail energy."""
        return _share(
            self.status_quo_tail_energy - self.tail_energy, self.status_quo_tail_energy
        )

    @property
    def switches_ratio(self) -> float | None:
        """Switches for each one under the status quo."""
        return _share(self.switches, self.status_quo_switches)

    @property
    def saved_per_switch(self) -> float | None:
        """Joules saved for each switch (Deng's thesis, figure 4-10c)."""
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
    packet i the radio goes to sleep after `waits[i]` seconds of silence, and infinity leaves it to
    the network; or a function of trace and profile that gives waits; or an object with `observe`
    (see `Decider`), which is called for every packet. Waits are by far the fastest way for a policy
    of your own, if it can be worked out for all packets together.

    `delay_tolerant` has the names of applications whose sessions can wait; nothing else is ever
    held back, and nothing at all by a policy that holds nothing.
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
    """Runs policies over traces under profiles, and gives a row for each of these, with the numbers
    of `Outcome` in its units. Its schema says what each column means.

    Traces and policies may have names: give a dict. Policies are as in `simulate`; an object runs
    as a copy of what it is, so that no run knows of another; a class with `observe` is made anew
    for each. What is not Python's runs on all cores.
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
        _field("trace", pa.string(), "Its name, or its number, counted from zero."),
        _field("profile", pa.string(), "Its name."),
        _field("policy", pa.string(), "Its name."),
        _field("packets", pa.int64(), "Packets."),
        _field("duration", pa.float64(), "From the first packet to the last.", "s"),
        _field("energy", pa.float64(), "What the radio took.", "J"),
        _field("transfer_energy", pa.float64(), "Of that, transfers.", "J"),
        _field("tail_energy", pa.float64(), "Of that, awake without one, and switching.", "J"),
        _field("saved", pa.float64(), "Share of the status quo's energy that was saved."),
        _field("saved_tail", pa.float64(), "The same as a share of its tail energy."),
        _field("switches", pa.int64(), "Packets that found the radio released."),
        _field("switches_ratio", pa.float64(), "Switches for each one of the status quo."),
        _field("saved_per_switch", pa.float64(), "Energy saved for each switch.", "J"),
        _field("sleeps", pa.int64(), "How often the device went to sleep by itself."),
        _field("mean_wait", pa.float64(), "Mean wait before it did.", "s"),
        _field("false_switch_rate", pa.float64(), "Released where the oracle stays awake."),
        _field("missed_switch_rate", pa.float64(), "Awake where the oracle sleeps."),
        _field("tolerant_sessions", pa.int64(), "Sessions that could wait."),
        _field("held_sessions", pa.int64(), "Sessions that were held back."),
        _field("delay_mean", pa.float64(), "For how long those were: mean.", "s"),
        _field("delay_median", pa.float64(), "Median, to 0.01 s.", "s"),
        _field("delay_p95", pa.float64(), "95th percentile, to 0.01 s.", "s"),
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
    """As it is before it has seen anything."""
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
