//! The recorded requests, ordered for look-ups.

use std::collections::HashMap;

use super::answer::{Answer, Candidate, Difference, Explanation, Hit};
use super::compare::{
    Comparison, Learned, THRESHOLD, UNIFORM_THRESHOLD, compare, compare_fields, each_difference,
};
use super::learn;
use super::mahimahi::Mahimahi;
use super::reading::{Atom, Fields, Pair, Place, Reading};
use super::request::{Recorded, Request};
use super::session::Session;
use super::shape::Class;

/// Candidates that are compared for one request.
const MAX_CANDIDATES: usize = 192;
/// Pairs that are compared for one request.
const MAX_STEPS: usize = 60_000;
/// Candidates of an explanation, and of the nearest one of a miss.
const MAX_EXPLAINED: usize = 16;
/// Bytes of a body that are kept for explanations.
const MAX_KEPT: usize = 1 << 14;

/// How recorded requests are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// That of Mahimahi's `mm-webreplay` (R. Netravali et al., USENIX ATC 2015; `replayserver.cc`):
    /// method, scheme, Host and path before `?` equal, and of these the first request with the longest
    /// common prefix. Bodies do not count, nor how often a request came.
    Mahimahi {
        /// Whether User-Agent must be equal, as in Mahimahi itself.
        user_agent: bool,
    },
    /// The module describes it.
    #[default]
    Ours,
}

/// Recorded requests.
#[derive(Clone, Debug)]
pub struct Index {
    entries: Vec<Entry>,
    rule: Choice,
}

#[derive(Clone, Debug)]
enum Choice {
    Mahimahi(Mahimahi),
    Ours(Groups),
}

/// Places of entries, by hashes of [`Reading`].
#[derive(Clone, Debug, Default)]
struct Groups {
    exact: HashMap<u64, Vec<u32>>,
    /// By bucket.
    buckets: HashMap<u64, Bucket>,
    /// By bucket and identity.
    members: HashMap<(u64, u64), Members>,
    /// By host.
    hosts: HashMap<u64, Vec<u32>>,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    places: Vec<u32>,
    learned: Learned,
}

/// Requests for the same objects, as far as their keys name them.
#[derive(Clone, Debug, Default)]
struct Members {
    places: Vec<u32>,
    /// Places by the hash of a pair; empty for a few members, which are all compared.
    by_pair: HashMap<u64, Vec<u32>>,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub id: usize,
    pub atoms: Box<[Atom]>,
    pub fields: Fields,
    pub status: Option<u16>,
    pub response: Option<u64>,
    pub connection: Option<u64>,
    text: Text,
}

/// The request as it was, to explain differences.
#[derive(Clone, Debug)]
struct Text {
    method: String,
    path: Box<[u8]>,
    query: Option<Box<[u8]>>,
    content_type: Box<[u8]>,
    body: Box<[u8]>,
}

impl Index {
    /// Reads recorded requests, in recorded order. Requests beyond 2^32 are omitted.
    pub fn new<'a>(rule: Rule, recorded: impl IntoIterator<Item = Recorded<'a>>) -> Self {
        let mut entries = Vec::new();
        let mut groups = Groups::default();
        let mut mahimahi = Mahimahi::new(rule);
        for (recorded, place) in recorded.into_iter().zip(0_u32..) {
            if let Some(mahimahi) = &mut mahimahi {
                mahimahi.add(place, &recorded.request);
            }
            let reading = Reading::new(&recorded.request, recorded.request.method);
            groups.add(place, &reading);
            entries.push(Entry::new(&recorded, reading));
        }
        let rule = match mahimahi {
            Some(mahimahi) => Choice::Mahimahi(mahimahi),
            None => {
                groups.learn(&entries);
                Choice::Ours(groups)
            }
        };
        Self { entries, rule }
    }

    /// Finds the exchange that answers a request, and remembers that it did. Equal calls in equal
    /// sessions have equal answers.
    pub fn find(&self, session: &mut Session, request: &Request<'_>) -> Answer {
        match &self.rule {
            Choice::Mahimahi(mahimahi) => {
                match mahimahi.find(request).and_then(|at| self.entries.get(at)) {
                    Some(entry) => Answer::Hit(Hit {
                        id: entry.id,
                        is_head: false,
                        is_range: false,
                        is_conditional: false,
                    }),
                    None => Answer::Miss { nearest: None },
                }
            }
            Choice::Ours(groups) => {
                let reading = Reading::new(request, request.method);
                if let Some(answer) = self.answer(groups, session, request, &reading, false) {
                    return answer;
                }
                if request.method == "HEAD" {
                    let whole = Reading::new(request, "GET");
                    if let Some(answer) = self.answer(groups, session, request, &whole, true) {
                        return answer;
                    }
                }
                let nearest =
                    self.near(groups, request, &reading, MAX_EXPLAINED).into_iter().next();
                Answer::Miss { nearest }
            }
        }
    }

    /// Explains the answer to a request that is the first of a session.
    pub fn explain(&self, request: &Request<'_>) -> Explanation {
        let answer = self.find(&mut Session::new(), request);
        let reading = Reading::new(request, request.method);
        let candidates = match &self.rule {
            Choice::Mahimahi(_) => Vec::new(),
            Choice::Ours(groups) => self.near(groups, request, &reading, 2 * MAX_CANDIDATES),
        };
        let threshold = match &self.rule {
            Choice::Mahimahi(_) => 0.0,
            Choice::Ours(groups) => threshold(groups.buckets.get(&reading.bucket)),
        };
        Explanation { answer, candidates, threshold }
    }

    fn answer(
        &self,
        groups: &Groups,
        session: &mut Session,
        request: &Request<'_>,
        reading: &Reading,
        is_head: bool,
    ) -> Option<Answer> {
        let asked = &reading.fields;
        let exact = groups.exact.get(&reading.exact).map(Vec::as_slice).unwrap_or_default();
        let window = self.window(session, reading.exact, exact, asked);
        if let Some(place) = session.choose(&self.entries, &window, asked, request.connection) {
            let hit = self.take(session, place, request, asked, is_head)?;
            return Some(Answer::Hit(hit));
        }
        let members = groups.members.get(&(reading.bucket, reading.identity))?;
        let bucket = groups.buckets.get(&reading.bucket)?;
        let atoms: Vec<Atom> = reading.atoms().collect();
        let mut best: Option<Comparison> = None;
        let mut equally_good = Vec::new();
        let mut steps = 0;
        for place in members.candidates(session, reading, &atoms) {
            let Some(entry) =
                self.entries.get(place as usize).filter(|entry| entry.may_answer(asked))
            else {
                continue;
            };
            steps += entry.atoms.len() + atoms.len();
            if steps > MAX_STEPS && best.is_some() {
                break;
            }
            let mut comparison = compare(&entry.atoms, &atoms, &bucket.learned);
            compare_fields(&entry.fields, asked, &mut comparison);
            if comparison.is_excluded || best.is_some_and(|best| best.is_better(comparison)) {
                continue;
            }
            if best.is_none_or(|best| comparison.is_better(best)) {
                equally_good.clear();
            }
            best = Some(comparison);
            equally_good.push(place);
        }
        let score = best?.score();
        if score < threshold(Some(bucket)) {
            return None;
        }
        equally_good.sort_unstable();
        let place = session.choose(&self.entries, &equally_good, asked, request.connection)?;
        let differences = self
            .entries
            .get(place)
            .map(|entry| entry.differences(request, reading))
            .unwrap_or_default();
        let hit = self.take(session, place, request, asked, is_head)?;
        Some(Answer::Approximate { hit, score, differences })
    }

    /// Returns the equal requests that may answer: around the first unused one if there are many.
    fn window(
        &self,
        session: &mut Session,
        group: u64,
        places: &[u32],
        asked: &Fields,
    ) -> Vec<u32> {
        let start = match places.len() {
            0..MAX_CANDIDATES => 0,
            count => session.first_unused(group, places).min(count - MAX_CANDIDATES / 2),
        };
        let near = places.iter().skip(start).take(MAX_CANDIDATES).copied();
        near.filter(|place| {
            self.entries.get(*place as usize).is_some_and(|entry| entry.may_answer(asked))
        })
        .collect()
    }

    fn take(
        &self,
        session: &mut Session,
        place: usize,
        request: &Request<'_>,
        asked: &Fields,
        is_head: bool,
    ) -> Option<Hit> {
        let entry = self.entries.get(place)?;
        session.record(place, self.entries.len(), (request.connection, entry.connection));
        Some(Hit {
            id: entry.id,
            is_head,
            is_range: asked.range != 0 && asked.range != entry.fields.range,
            is_conditional: asked.is_conditional && !entry.fields.is_conditional,
        })
    }

    /// Compares some recorded requests of the same host, the most similar first: those of the same
    /// path, else any.
    fn near(
        &self,
        groups: &Groups,
        request: &Request<'_>,
        reading: &Reading,
        most: usize,
    ) -> Vec<Candidate> {
        let atoms: Vec<Atom> = reading.atoms().collect();
        let bucket = groups.buckets.get(&reading.bucket);
        let members = groups.members.get(&(reading.bucket, reading.identity));
        let same = members
            .into_iter()
            .flat_map(|members| &members.places)
            .chain(bucket.into_iter().flat_map(|bucket| &bucket.places));
        let host = groups.hosts.get(&reading.host).into_iter().flatten();
        let places: Vec<u32> = match bucket {
            Some(_) => same.take(most).copied().collect(),
            None => host.take(most).copied().collect(),
        };
        let none = Learned::default();
        let learned = bucket.map_or(&none, |bucket| &bucket.learned);
        let mut compared: Vec<(u32, Comparison)> = Vec::new();
        let mut steps = 0;
        for place in places {
            let Some(entry) = self.entries.get(place as usize) else { continue };
            steps += entry.atoms.len() + atoms.len();
            if steps > MAX_STEPS || compared.iter().any(|(other, _)| *other == place) {
                continue;
            }
            let mut comparison = compare(&entry.atoms, &atoms, learned);
            compare_fields(&entry.fields, &reading.fields, &mut comparison);
            if bucket.is_none() {
                // The path or the method differs.
                comparison.different += 400;
                comparison.is_excluded = true;
            }
            comparison.is_excluded |= !entry.may_answer(&reading.fields);
            compared.push((place, comparison));
        }
        compared.sort_by(|(a, x), (b, y)| y.score().total_cmp(&x.score()).then(a.cmp(b)));
        let best = compared.into_iter().take(if most > MAX_EXPLAINED { MAX_EXPLAINED } else { 1 });
        best.filter_map(|(place, comparison)| {
            let entry = self.entries.get(place as usize)?;
            Some(Candidate {
                id: entry.id,
                score: comparison.score(),
                is_excluded: comparison.is_excluded,
                differences: entry.differences(request, reading),
            })
        })
        .collect()
    }
}

fn threshold(bucket: Option<&Bucket>) -> f64 {
    if bucket.is_some_and(|bucket| bucket.learned.is_uniform) {
        UNIFORM_THRESHOLD
    } else {
        THRESHOLD
    }
}

impl Groups {
    fn add(&mut self, place: u32, reading: &Reading) {
        self.exact.entry(reading.exact).or_default().push(place);
        self.buckets.entry(reading.bucket).or_default().places.push(place);
        self.members.entry((reading.bucket, reading.identity)).or_default().places.push(place);
        self.hosts.entry(reading.host).or_default().push(place);
    }

    fn learn(&mut self, entries: &[Entry]) {
        for bucket in self.buckets.values_mut() {
            bucket.learned = learn::learn(entries, &bucket.places);
        }
        for members in
            self.members.values_mut().filter(|members| members.places.len() > MAX_CANDIDATES)
        {
            for place in &members.places {
                let atoms =
                    entries.get(*place as usize).into_iter().flat_map(|entry| entry.atoms.iter());
                for atom in atoms.filter(|atom| atom.class != Class::Identity) {
                    members.by_pair.entry(atom.hash()).or_default().push(*place);
                }
            }
        }
    }
}

impl Members {
    /// Returns the members to compare: those with the rarest equal pairs, and the first unused.
    fn candidates(&self, session: &mut Session, reading: &Reading, atoms: &[Atom]) -> Vec<u32> {
        if self.by_pair.is_empty() {
            return self.places.clone();
        }
        let mut lists: Vec<&Vec<u32>> =
            atoms.iter().filter_map(|atom| self.by_pair.get(&atom.hash())).collect();
        lists.sort_by_key(|list| list.len());
        let start = session.first_unused(reading.bucket ^ reading.identity, &self.places);
        let start = start.min(self.places.len().saturating_sub(MAX_CANDIDATES / 4));
        let first = self.places.get(start).copied().unwrap_or(0);
        let mut chosen = Vec::new();
        for list in lists {
            // Of a long list, only those from the first unused on.
            let from = if list.len() > MAX_CANDIDATES {
                list.partition_point(|place| *place < first)
            } else {
                0
            };
            let room = (MAX_CANDIDATES - MAX_CANDIDATES / 4).saturating_sub(chosen.len());
            chosen.extend(list.iter().skip(from).take(room).copied());
        }
        chosen.extend(self.places.iter().skip(start).take(MAX_CANDIDATES / 4).copied());
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}

impl Entry {
    fn new(recorded: &Recorded<'_>, reading: Reading) -> Self {
        let request = &recorded.request;
        let kept = request.body.get(..request.body.len().min(MAX_KEPT)).unwrap_or_default();
        Self {
            id: recorded.id,
            atoms: reading.atoms().collect(),
            fields: reading.fields,
            status: recorded.status,
            response: recorded.response,
            connection: request.connection,
            text: Text {
                method: request.method.to_owned(),
                path: request.path.into(),
                query: request.query.map(Into::into),
                content_type: request.field("content-type").unwrap_or_default().into(),
                body: kept.into(),
            },
        }
    }

    /// Whether the response fits: a part only for the same range, "not modified" only for a
    /// condition.
    fn may_answer(&self, asked: &Fields) -> bool {
        match self.status {
            Some(206 | 416) => asked.range == self.fields.range,
            Some(304) => asked.is_conditional || !self.fields.is_conditional,
            _ => true,
        }
    }

    /// Describes the differences of a request.
    fn differences(&self, request: &Request<'_>, reading: &Reading) -> Vec<Difference> {
        let text = &self.text;
        let fields = [("content-type", &*text.content_type)];
        let recorded = Request {
            method: &text.method,
            path: &text.path,
            query: text.query.as_deref(),
            fields: &fields,
            body: &text.body,
            ..*request
        };
        let recorded = Reading::new(&recorded, &text.method);
        let atoms = |reading: &Reading| reading.atoms().collect::<Vec<_>>();
        let pair = |reading: &Reading, atom: Option<Atom>| -> Option<Pair> {
            let atom = atom?;
            reading.pairs.iter().find(|pair| pair.atom == atom).cloned()
        };
        let mut all = Vec::new();
        each_difference(&atoms(&recorded), &atoms(reading), |is_equal, old, new| {
            if is_equal {
                return;
            }
            let (old, new) = (pair(&recorded, old), pair(reading, new));
            let Some(named) = new.as_ref().or(old.as_ref()) else { return };
            all.push(Difference {
                place: named.place,
                key: named.key.clone(),
                class: named.atom.class,
                recorded: old.as_ref().map(|pair| pair.shown.clone()),
                asked: new.as_ref().map(|pair| pair.shown.clone()),
            });
        });
        all.sort_by(|a, b| b.class.cmp(&a.class).then_with(|| a.key.cmp(&b.key)));
        if text.path[..] != *request.path
            && all.iter().all(|difference| difference.place != Place::Path)
        {
            let show =
                |path: &[u8]| String::from_utf8_lossy(path.get(..200).unwrap_or(path)).into_owned();
            let (recorded, asked) = (Some(show(&text.path)), Some(show(request.path)));
            all.insert(
                0,
                Difference {
                    place: Place::Path,
                    key: "all".into(),
                    recorded,
                    asked,
                    class: Class::Identity,
                },
            );
        }
        all
    }
}
