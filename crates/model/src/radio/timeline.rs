//! States of a radio over time, under the network's timers.

use manyways_unit::{Span, Time};

use super::{Direction, NEVER, Packet, Power, Profile, TailEnergy};

/// State or change of state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// A transfer, by the direction of the packet at the end of a gap.
    Transfer(Direction),
    /// The state at this index of the profile, without packets.
    State(usize),
    /// The promotion out of the state at this index; takes energy but no time, because the times of
    /// packets are fixed.
    Promotion(usize),
    /// The demotion by a timer into the state at this index; takes energy but no time.
    Demotion(usize),
}

impl Phase {
    /// Name for people; `profile` is that of the timeline.
    pub fn name(self, profile: &Profile) -> &str {
        match self {
            Self::Transfer(Direction::Up) => "sending",
            Self::Transfer(Direction::Down) => "receiving",
            Self::State(place) => profile.states.get(place).map_or("", |state| &state.name),
            Self::Promotion(_) => "promotion",
            Self::Demotion(_) => "demotion",
        }
    }
}

/// A part of the timeline in one phase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    pub start: Time,
    /// Equals `start` if the segment has energy only.
    pub end: Time,
    pub phase: Phase,
    pub joules: f64,
}

/// Maximum length of a transfer's segment, unless one gap is longer; the energy of a bit is located
/// with this precision.
const MAX_TRANSFER_TIME: Span = Span::from_millis(100);

/// Follows a trace. The sum of the joules of all segments equals the total of the
/// [`Meter`](super::meter::Meter) without a policy.
#[derive(Clone, Debug)]
pub struct Timeline {
    stay: TailEnergy,
    burst_gap: Span,
    power: [f64; 2],
    per_bit: [f64; 2],
    last: Option<Time>,
    /// A transfer that may continue.
    transfer: Option<Segment>,
}

impl Timeline {
    pub fn new(profile: &Profile) -> Self {
        let transfer = &profile.transfer;
        Self {
            stay: TailEnergy::from_state(profile, 0),
            burst_gap: transfer.burst_gap,
            power: [transfer.send.as_watts(), transfer.receive.as_watts()],
            per_bit: [transfer.send_per_mbit, transfer.receive_per_mbit]
                .map(|energy| energy.as_joules() / 1e6),
            last: None,
            transfer: None,
        }
    }

    /// Adds a packet and passes each finished segment to `each`.
    pub fn push(&mut self, packet: &Packet, mut each: impl FnMut(Segment)) {
        let direction = usize::from(packet.direction == Direction::Down);
        let bits = f64::from(packet.bytes) * 8.0 * self.per_bit[direction];
        let at = self.last.map_or(packet.at, |last| last.max(packet.at));
        let phase = Phase::Transfer(packet.direction);
        let moment = |phase, joules| Segment { start: at, end: at, phase, joules };
        let gap = self.last.map(|last| at.since(last));
        match (gap, self.last) {
            (Some(gap), Some(last)) if gap <= self.burst_gap => {
                let joules = gap.as_secs_f64() * self.power[direction];
                let fits = |before: &&mut Segment| {
                    before.phase == phase && at.since(before.start) <= MAX_TRANSFER_TIME
                };
                if let Some(before) = self.transfer.as_mut().filter(fits) {
                    before.end = at;
                    before.joules += joules + bits;
                } else {
                    self.transfer.take().into_iter().for_each(&mut each);
                    let new = Segment { start: last, end: at, phase, joules };
                    if gap <= MAX_TRANSFER_TIME {
                        self.transfer = Some(Segment { joules: joules + bits, ..new });
                    } else {
                        each(new);
                        self.transfer = (bits > 0.0).then(|| moment(phase, bits));
                    }
                }
            }
            _ => {
                self.transfer.take().into_iter().for_each(&mut each);
                if let (Some(gap), Some(last)) = (gap, self.last) {
                    push_gap(last, self.stay.energy_by_state(gap), &mut each);
                }
                let gap = gap.unwrap_or(Span::MAX);
                let promotion = self.stay.promotion(gap);
                if promotion > 0.0 {
                    each(moment(Phase::Promotion(self.stay.state(gap)), promotion));
                }
                if bits > 0.0 {
                    self.transfer = Some(moment(phase, bits));
                }
            }
        }
        self.last = Some(at);
    }

    /// Ends the trace with the last tail.
    pub fn finish(&mut self, mut each: impl FnMut(Segment)) {
        self.transfer.take().into_iter().for_each(&mut each);
        let Some(last) = self.last else { return };
        if self.stay.idle_after() < NEVER {
            push_gap(last, self.stay.energy_by_state_until_idle(), &mut each);
        }
    }
}

fn push_gap(
    mut start: Time,
    parts: impl Iterator<Item = (usize, Span, f64, f64)>,
    each: &mut impl FnMut(Segment),
) {
    for (state, duration, joules, demotion) in parts {
        if demotion > 0.0 {
            each(Segment { start, end: start, phase: Phase::Demotion(state), joules: demotion });
        }
        let end = start + duration;
        each(Segment { start, end, phase: Phase::State(state), joules });
        start = end;
    }
}

/// Energy over time in a bounded number of steps, whose width grows with the length of the trace.
#[derive(Clone, Debug)]
pub struct EnergySteps {
    max_steps: usize,
    /// In seconds.
    width: f64,
    /// Joules of each step.
    joules: Vec<f64>,
}

impl EnergySteps {
    /// Creates at most `max` steps (at least two), each `width` wide at first.
    pub fn new(max: usize, width: Span) -> Self {
        Self { max_steps: max.max(2), width: width.as_secs_f64().max(1e-6), joules: Vec::new() }
    }

    /// Adds energy spent between two times since the start.
    pub fn add(&mut self, from: Span, to: Span, joules: f64) {
        let (from, to) = (from.as_secs_f64(), to.max(from).as_secs_f64());
        while to >= self.width * self.max_steps as f64 {
            self.width *= 2.0;
            self.joules = self.joules.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
        let (first, last) = ((from / self.width) as usize, (to / self.width) as usize);
        if self.joules.len() <= last {
            self.joules.resize(last + 1, 0.0);
        }
        if first == last {
            self.joules[first] += joules;
            return;
        }
        for step in first..=last {
            let (begin, end) = (step as f64 * self.width, (step + 1) as f64 * self.width);
            let part = (end.min(to) - begin.max(from)).max(0.0);
            self.joules[step] += joules * part / (to - from);
        }
    }

    pub fn width(&self) -> Span {
        Span::from_secs_f64(self.width)
    }

    /// Start of each step, and its mean power.
    pub fn power(&self) -> impl Iterator<Item = (Span, Power)> {
        let (steps, width) = (self.joules.iter().zip(0..), self.width());
        steps.map(move |(joules, step)| (width * step, Power::watts(joules / self.width)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::meter::Meter;
    use crate::radio::policy::NEVER;
    use crate::radio::span;
    use crate::radio::{profiles, workload};

    fn run(profile: &Profile, packets: impl Iterator<Item = Packet>) -> (Vec<Segment>, f64) {
        let (mut timeline, mut meter) = (Timeline::new(profile), Meter::new(profile));
        let mut segments = Vec::new();
        let mut last = None;
        for packet in packets {
            match last {
                None => meter.push_first(&packet),
                Some(last) => {
                    meter.push(&packet, packet.at.since(last), NEVER);
                }
            }
            timeline.push(&packet, |segment| segments.push(segment));
            last = Some(packet.at);
        }
        timeline.finish(|segment| segments.push(segment));
        meter.finish(NEVER);
        (segments, meter.account().total())
    }

    #[test]
    fn segments_follow_each_other_and_add_up() {
        for (name, _) in profiles::all() {
            let profile = profiles::named(name).unwrap().unwrap();
            let (segments, total) = run(&profile, workload::mixed(5, Span::from_secs(30_000)));
            let sum: f64 = segments.iter().map(|segment| segment.joules).sum();
            assert!((sum / total - 1.0).abs() < 1e-9, "{name}: {sum} {total}");
            for pair in segments.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{name}: {pair:?}");
            }
        }
    }

    #[test]
    fn a_heartbeat_is_a_tail_by_hand() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let beats = workload::heartbeats(Span::from_secs(60), 100, Span::from_secs(60));
        let (segments, _) = run(&profile, beats);
        let seen: Vec<_> = segments
            .iter()
            .map(|one| (one.start.as_nanos() / 1_000_000, one.phase, (one.joules * 1e6).round()))
            .collect();
        let tail = |from: u64| {
            [
                (from, Phase::State(0), 5_679_200.0),
                (from + 6_200, Phase::State(1), 6_853_600.0),
                (from + 16_600, Phase::Demotion(2), 550_000.0),
                (from + 16_600, Phase::State(2), 0.0),
            ]
        };
        let begin = [(0, Phase::Promotion(2), 550_000.0)];
        let next = [(60_000, Phase::Promotion(2), 550_000.0)];
        let all = [&begin[..], &tail(0), &next, &tail(60_000)].concat();
        assert_eq!(seen, all);
    }

    /// The segments of a long transfer are short, so that bits are located at their packets.
    #[test]
    fn a_transfer_comes_in_short_pieces() {
        let profile = profiles::named("lte").unwrap().unwrap();
        let packet = |millis: u64, bytes| Packet {
            at: Time::from_millis(millis),
            direction: Direction::Down,
            bytes,
            app: 0,
            session: 0,
        };
        // 40 packets of a burst, and one 300 ms after them.
        let packets = (0..40).map(|number| packet(10 * number, 1_000)).chain([packet(690, 500)]);
        let (segments, _) = run(&profile, packets);
        let transfer: Vec<&Segment> =
            segments.iter().filter(|one| matches!(one.phase, Phase::Transfer(_))).collect();
        let millis = |segment: &Segment| segment.end.since(segment.start).as_secs_f64() * 1e3;
        let [parts @ .., long, last] = &transfer[..] else { unreachable!() };
        assert!(
            parts.len() == 4 && parts.iter().all(|part| millis(part) <= 100.0),
            "{transfer:#?}"
        );
        // The gap has the power of a transfer, and the energy of bits is at their packet.
        assert!(millis(long) == 300.0 && (long.joules - 0.3 * 1.2).abs() < 1e-12, "{long:?}");
        assert!(millis(last) == 0.0 && (last.joules - 0.004 * 0.05197).abs() < 1e-12, "{last:?}");
    }

    #[test]
    fn steps_keep_all_energy_in_bounded_room() {
        let mut steps = EnergySteps::new(10, span(1.0));
        steps.add(span(0.5), span(2.5), 2.0);
        let power: Vec<_> = steps.power().map(|(at, power)| (at, power.as_watts())).collect();
        assert_eq!(power, [(span(0.0), 0.5), (span(1.0), 1.0), (span(2.0), 0.5)]);
        let mut sum = 2.0;
        for second in 3..1_000 {
            steps.add(span(second.into()), span(f64::from(second) + 0.7), 0.3);
            sum += 0.3;
        }
        let power: Vec<_> = steps.power().collect();
        assert!(power.len() <= 10, "{}", power.len());
        let width = steps.width().as_secs_f64();
        let all: f64 = power.iter().map(|(_, power)| power.as_watts() * width).sum();
        assert!((all - sum).abs() < 1e-9, "{all} {sum}");
    }
}
