//! A chain of capture points, and what became of bytes from each to the next.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::delay::{self, Sample, Summary};
use super::log::{Log, READ, WRITE};
use super::pairing::{self, Match, Same};
use super::part::{Measure, Name, Part, Trust};
use super::track::{Carries, Run, Track};
use super::{Difference, Way};

/// Where a capture was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// At the server.
    Server,
    /// At the phone, on the side of the server.
    PhoneIn,
    /// At the phone, on the side of the wearable.
    PhoneOut,
    /// At the wearable.
    Wearable,
    /// Somewhere else.
    Other,
}

/// A capture.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where it was taken.
    pub place: Place,
    /// The number of the clock that stamped it: captures of one device have the same one.
    pub clock: u32,
    /// What passed there.
    pub tracks: Vec<Track>,
}

/// What a chain of points tells.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Each point and the next one, in the chain's order.
    pub pairs: Vec<Pair>,
    /// The parts of the delay, by way and name.
    pub parts: Vec<Part>,
}

/// Two neighbours in the chain.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Their numbers.
    pub points: [usize; 2],
    /// What they have in common.
    pub streams: Vec<Paired>,
    /// Tracks of the second point that may be of the first one's streams, but nobody knows.
    pub ambiguous: Vec<usize>,
    /// Tracks that were not looked at.
    pub left_out: usize,
    /// Their two clocks; none where they have one, or nothing in common.
    pub clock: Option<Clock>,
}

/// A stream at two points.
#[derive(Clone, Debug)]
pub struct Paired {
    /// Which tracks, and where.
    pub found: Match,
    /// Which way it goes.
    pub way: Way,
    /// What it is made of.
    pub carries: Carries,
    /// Its bytes by the places of the first track, by the clock of each point.
    pub samples: Vec<Sample>,
    /// How long they took, by one clock as well as that can be known; none where no byte has a time
    /// at both.
    pub delays: Option<Summary>,
}

impl Report {
    /// Of points in the order in which bytes pass them, [`Way::Along`], with a log of the proxy
    /// between [`Place::PhoneIn`] and [`Place::PhoneOut`] or none.
    pub fn new(points: &[Point], log: Option<&Log>) -> Self {
        let pairs = points.windows(2).enumerate().filter_map(|(number, two)| match two {
            [first, second] => Some(Pair::new(number, first, second)),
            _ => None,
        });
        let pairs: Vec<Pair> = pairs.collect();
        let parts = pairs.iter().flat_map(|pair| pair.parts(points, log)).collect();
        Self { pairs, parts }
    }

    /// The clocks that parts of it were measured with.
    pub fn clocks(&self) -> impl Iterator<Item = &Clock> {
        self.pairs.iter().filter_map(|pair| pair.clock.as_ref())
    }

    /// The part of that name, one way.
    pub fn part(&self, name: Name, way: Way) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name && part.way == way)
    }
}

impl Pair {
    fn new(number: usize, first: &Point, second: &Point) -> Self {
        let pairing = pairing::pair(&first.tracks, &second.tracks);
        let streams = pairing.matches.into_iter().filter_map(|found| {
            let (a, b) = (first.tracks.get(found.first)?, second.tracks.get(found.second)?);
            let samples = samples(&found.same, a, a.runs(), b, b.runs());
            let carries = a.origin().map_or(Carries::Bytes, |origin| origin.carries);
            Some(Paired { found, way: a.way(), carries, samples, delays: None })
        });
        let mut streams: Vec<Paired> = streams.collect();
        let times = |way: Way| -> Vec<_> {
            let streams = streams.iter().filter(|stream| stream.way == way);
            streams.flat_map(|s| &s.samples).map(|s| (s.first, s.second)).collect()
        };
        let is_one = first.clock == second.clock;
        let clocks = [first.clock, second.clock];
        let [along, against] = Way::BOTH;
        let clock = match is_one {
            true => None,
            false => Clock::estimate(clocks, &times(along), &times(against)),
        };
        for stream in &mut streams {
            let measure = Measure { way: stream.way, clock: clock.as_ref() };
            stream.delays = measure.summaries(&stream.samples).map(|(all, _)| all);
        }
        let points = [number, number + 1];
        let (ambiguous, left_out) = (pairing.ambiguous, pairing.left_out);
        Self { points, streams, ambiguous, left_out, clock }
    }

    /// How long each sample of a stream of this pair took, in the stream's order, and how good that
    /// is.
    pub fn series(&self, stream: &Paired) -> (Trust, Vec<Difference>) {
        let measure = Measure { way: stream.way, clock: self.clock.as_ref() };
        let delays: Vec<_> = stream.samples.iter().map(|sample| measure.delay(sample)).collect();
        let least = match measure.trust() {
            Trust::AboveLeast => delays.iter().min().copied().unwrap_or_default(),
            _ => Difference::default(),
        };
        (measure.trust(), delays.into_iter().map(|delay| delay.less(least)).collect())
    }

    fn parts(&self, points: &[Point], log: Option<&Log>) -> Vec<Part> {
        let [Some(first), Some(second)] = self.points.map(|number| points.get(number)) else {
            return Vec::new();
        };
        let whole = match (first.place, second.place) {
            (Place::Server, Place::PhoneIn) => Name::D1,
            (Place::PhoneIn, Place::PhoneOut) => Name::D2AndD3,
            (Place::PhoneOut, Place::Wearable) => Name::D4,
            _ => Name::Other,
        };
        let mut found: BTreeMap<(Way, Name), Vec<Sample>> = BTreeMap::new();
        for stream in self.streams.iter().filter(|stream| stream.carries == Carries::Bytes) {
            let tracks =
                first.tracks.get(stream.found.first).zip(second.tracks.get(stream.found.second));
            let Some((a, b)) = tracks else { continue };
            let logged = Logged::of(log, stream.way, (first.place, a), (second.place, b));
            let same = &stream.found.same;
            let mut add = |name, samples: Vec<Sample>| {
                found.entry((stream.way, name)).or_default().extend(samples);
            };
            match logged.ends.iter().any(Option::is_some) {
                true => {
                    let [from, to] = [(&logged.ends[0], a), (&logged.ends[1], b)]
                        .map(|(logged, track)| logged.as_deref().unwrap_or(track.runs()));
                    add(whole, samples(same, a, from, b, to));
                }
                false => add(whole, stream.samples.clone()),
            }
            let Some(read) = &logged.read else { continue };
            let (up, [d2_first, d2_second], [d3_first, d3_second]) = match stream.way {
                Way::Along => (
                    a,
                    [a.runs(), read],
                    [&read[..], logged.ends[1].as_deref().unwrap_or(b.runs())],
                ),
                Way::Against => (
                    b,
                    [&read[..], b.runs()],
                    [logged.ends[0].as_deref().unwrap_or(a.runs()), &read[..]],
                ),
            };
            let all = [Same { first: 0, second: 0, length: up.length() }];
            add(Name::D2, delay::samples(&all, d2_first, d2_second, &up.all_again(), true));
            add(Name::D3, samples(same, a, d3_first, b, d3_second));
        }
        let part = |((way, name), samples): ((Way, Name), Vec<Sample>)| {
            let measure = Measure { way, clock: self.clock.as_ref() };
            let (all, sent_once) = measure.summaries(&samples)?;
            let (points, trust) = (self.points, measure.trust());
            Some(Part { name, way, points, trust, all, sent_once })
        };
        found.into_iter().filter_map(part).collect()
    }
}

/// What a log says of a stream between two points, by the places of their tracks.
struct Logged {
    read: Option<Vec<Run>>,
    /// What takes the place of the first and of the second track's own times.
    ends: [Option<Vec<Run>>; 2],
}

impl Logged {
    /// A proxy reads what comes to the one side of the phone, and from where it writes on, the part
    /// of the way behind the phone begins.
    fn of(log: Option<&Log>, way: Way, first: (Place, &Track), second: (Place, &Track)) -> Self {
        let placed = |point: &str, track: &Track| placed(log?.track(point, track.name())?, track);
        let (up, down) = match way {
            Way::Along => (first, second),
            Way::Against => (second, first),
        };
        let (comes_to, goes_from) = match way {
            Way::Along => (Place::PhoneIn, Place::PhoneOut),
            Way::Against => (Place::PhoneOut, Place::PhoneIn),
        };
        let is_phone = (up.0, down.0) == (comes_to, goes_from);
        let read = if is_phone { placed(READ, up.1) } else { None };
        let from = if up.0 == goes_from { placed(WRITE, up.1) } else { None };
        let to = if is_phone { placed(WRITE, down.1) } else { None };
        let ends = match way {
            Way::Along => [from, to],
            Way::Against => [to, from],
        };
        Self { read, ends }
    }
}

/// What a log says, by the places of a track: none where nobody knows where the track begins.
fn placed(logged: &Track, track: &Track) -> Option<Vec<Run>> {
    let start = track.start()?;
    let behind = logged.runs().iter().filter(|run| run.end > start);
    let place =
        |run: &Run| Run { begin: run.begin.saturating_sub(start), end: run.end - start, ..*run };
    Some(behind.map(place).collect())
}

/// Samples of two tracks, with the times of these runs.
fn samples(same: &[Same], a: &Track, from: &[Run], b: &Track, to: &[Run]) -> Vec<Sample> {
    let is_first = a.way() == Way::Along;
    let again = if is_first { a.all_again() } else { b.all_again() };
    delay::samples(same, from, to, &again, is_first)
}
