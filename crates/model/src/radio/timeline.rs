//! States of a radio over time, under the network's timers.

use manyways_unit::{Span, Time};

use super::{Decay, Direction, Packet, Profile};

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

/// A part of the timeline in one phase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    pub begins: Time,
    /// Equals `begins` if the segment has energy only.
    pub ends: Time,
    pub phase: Phase,
    pub joules: f64,
}

/// Maximum length of a transfer's segment in seconds, unless one gap is longer; the energy of a bit
/// is located with this precision.
const PIECE: f64 = 0.1;

/// Follows a trace. The sum of the joules of all segments equals the total of the
/// [`Meter`](super::meter::Meter) without a policy.
#[derive(Clone, Debug)]
pub struct Timeline {
    stay: Decay,
    burst_gap: f64,
    power: [f64; 2],
    bit: [f64; 2],
    last: Option<Time>,
    /// A transfer that may continue.
    transfer: Option<Segment>,
}

impl Timeline {
    pub fn new(profile: &Profile) -> Self {
        let transfer = &profile.transfer;
        Self {
            stay: Decay::from(profile, 0),
            burst_gap: transfer.burst_gap.as_secs_f64(),
            power: [transfer.send.as_watts(), transfer.receive.as_watts()],
            bit: [transfer.send_per_mbit, transfer.receive_per_mbit]
                .map(|energy| energy.as_joules() / 1e6),
            last: None,
            transfer: None,
        }
    }

    /// Adds a packet and passes each finished segment to `each`.
    pub fn next(&mut self, packet: &Packet, mut each: impl FnMut(Segment)) {
        let way = usize::from(packet.direction == Direction::Down);
        let bits = f64::from(packet.bytes) * 8.0 * self.bit[way];
        let at = self.last.map_or(packet.at, |last| last.max(packet.at));
        let phase = Phase::Transfer(packet.direction);
        let moment = |phase, joules| Segment { begins: at, ends: at, phase, joules };
        let gap = self.last.map(|last| at.since(last).as_secs_f64());
        match (gap, self.last) {
            (Some(gap), Some(last)) if gap <= self.burst_gap => {
                let joules = gap * self.power[way];
                let fits = |before: &&mut Segment| {
                    before.phase == phase && at.since(before.begins).as_secs_f64() <= PIECE
                };
                if let Some(before) = self.transfer.as_mut().filter(fits) {
                    before.ends = at;
                    before.joules += joules + bits;
                } else {
                    self.transfer.take().into_iter().for_each(&mut each);
                    let new = Segment { begins: last, ends: at, phase, joules };
                    if gap <= PIECE {
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
                    self.silence(last, gap, at, &mut each);
                }
                let gap = gap.unwrap_or(f64::INFINITY);
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
    pub fn end(&mut self, mut each: impl FnMut(Segment)) {
        self.transfer.take().into_iter().for_each(&mut each);
        let Some(last) = self.last else { return };
        let gap = self.stay.released().next_up();
        if gap.is_finite() {
            self.silence(last, gap, last + Span::from_secs_f64(gap), &mut each);
        }
    }

    fn silence(&self, last: Time, gap: f64, ends: Time, each: &mut impl FnMut(Segment)) {
        let mut begins = last;
        let mut until = 0.0;
        for (state, secs, joules, demotion) in self.stay.parts(gap) {
            until += secs;
            let end = if until >= gap { ends } else { last + Span::from_secs_f64(until) };
            let end = end.min(ends);
            if demotion > 0.0 {
                let phase = Phase::Demotion(state);
                each(Segment { begins, ends: begins, phase, joules: demotion });
            }
            each(Segment { begins, ends: end, phase: Phase::State(state), joules });
            begins = end;
        }
    }
}

/// Energy over time in a bounded number of steps, whose width grows with the length of the trace.
#[derive(Clone, Debug)]
pub struct Steps {
    most: usize,
    width: f64,
    /// Joules of each step.
    joules: Vec<f64>,
}

impl Steps {
    /// Creates at most `most` steps (at least two), each `width` seconds wide at first.
    pub fn new(most: usize, width: f64) -> Self {
        Self { most: most.max(2), width: width.max(1e-6), joules: Vec::new() }
    }

    /// Adds energy spent between two times, in seconds from the start.
    pub fn add(&mut self, from: f64, to: f64, joules: f64) {
        let to = to.max(from);
        while to >= self.width * self.most as f64 {
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

    /// In seconds.
    pub fn width(&self) -> f64 {
        self.width
    }

    /// Start of each step in seconds, and its mean power in watts.
    pub fn power(&self) -> impl Iterator<Item = (f64, f64)> {
        let steps = self.joules.iter().enumerate();
        steps.map(|(step, joules)| (step as f64 * self.width, joules / self.width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::meter::Meter;
    use crate::radio::policy::NEVER;
    use crate::radio::{profiles, workload};

    fn run(profile: &Profile, packets: impl Iterator<Item = Packet>) -> (Vec<Segment>, f64) {
        let (mut timeline, mut meter) = (Timeline::new(profile), Meter::new(profile));
        let mut segments = Vec::new();
        let mut last = None;
        for packet in packets {
            match last {
                None => meter.begin(&packet),
                Some(last) => {
                    meter.next(&packet, packet.at.since(last).as_secs_f64(), NEVER);
                }
            }
            timeline.next(&packet, |segment| segments.push(segment));
            last = Some(packet.at);
        }
        timeline.end(|segment| segments.push(segment));
        meter.end(NEVER);
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
                assert_eq!(pair[0].ends, pair[1].begins, "{name}: {pair:?}");
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
            .map(|one| (one.begins.as_nanos() / 1_000_000, one.phase, (one.joules * 1e6).round()))
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
        let millis = |segment: &Segment| segment.ends.since(segment.begins).as_secs_f64() * 1e3;
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
        let mut steps = Steps::new(10, 1.0);
        steps.add(0.5, 2.5, 2.0);
        let power: Vec<_> = steps.power().collect();
        assert_eq!(power, [(0.0, 0.5), (1.0, 1.0), (2.0, 0.5)]);
        let mut sum = 2.0;
        for second in 3..1_000 {
            steps.add(f64::from(second), f64::from(second) + 0.7, 0.3);
            sum += 0.3;
        }
        let power: Vec<_> = steps.power().collect();
        assert!(power.len() <= 10, "{}", power.len());
        let all: f64 = power.iter().map(|(_, watts)| watts * steps.width()).sum();
        assert!((all - sum).abs() < 1e-9, "{all} {sum}");
    }
}
