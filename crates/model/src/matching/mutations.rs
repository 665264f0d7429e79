//! Populations of recorded requests, and the requests of a second run, with the truth about both: to
//! measure how often a rule misses a recording or takes a wrong one.
//!
//! [`population`] resembles the traffic of pages and apps; [`population_of_urls`] has the requests of
//! real pages. [`second_run`] draws again what differs from run to run (times, nonces, identifiers of
//! visits, cookies, order), repeats requests, and asks for objects that were not recorded.
//!
//! The generator shares no code with the matcher: it knows the role of each value because it drew
//! it, or, in URLs, from short lists. All numbers are in [`Parameters`].

mod body;
mod kinds;
mod second;
mod urls;
mod value;

use manyways_unit::Random;

pub use self::body::Content;
pub use self::second::second_run;
pub use self::urls::population_of_urls;
pub use self::value::{Role, Value};

use super::index::{Index, Rule};
use super::request::{Recorded, Request};

/// Parameters of populations and second runs. Shares are probabilities from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Parameters {
    /// Recorded requests of a population, without repeats.
    pub recorded: usize,
    /// Distinct hosts of each kind of traffic.
    pub hosts: u64,
    /// Connections to each host.
    pub connections: u64,
    /// Requests that were recorded several times.
    pub repeated: f64,
    /// Seconds between the two runs.
    pub later: u64,
    /// Values with a volatile role that are drawn again.
    pub redrawn: f64,
    /// Measured values of beacons and ads (durations, sizes of windows) that differ.
    pub remeasured: f64,
    /// Requests with reordered query keys.
    pub reordered: f64,
    /// Requests with another value of a cookie.
    pub new_cookies: f64,
    /// Requests without any cookie, though the recorded one had some.
    pub no_cookies: f64,
    /// Positions by which a request may be asked earlier or later.
    pub displacement: u64,
    /// Recorded requests that the second run does not ask.
    pub skipped: f64,
    /// Requests that are asked more often than recorded.
    pub asked_again: f64,
    /// Requests for other objects, for each recorded request.
    pub other_objects: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            recorded: 600,
            hosts: 3,
            connections: 6,
            repeated: 0.08,
            later: 90_061,
            redrawn: 0.95,
            remeasured: 0.3,
            reordered: 0.2,
            new_cookies: 0.3,
            no_cookies: 0.05,
            displacement: 12,
            skipped: 0.05,
            asked_again: 0.05,
            other_objects: 0.25,
        }
    }
}

/// A request with the role of each value.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub method: &'static str,
    pub scheme: String,
    pub authority: String,
    /// Segments, without the slashes; the values of one segment are joined.
    pub path: Vec<Vec<Value>>,
    /// Keys with their values; `None` without `?`.
    pub query: Option<Vec<(String, Value)>>,
    pub content: Content,
    pub fields: Vec<(&'static str, String)>,
    pub cookies: Vec<(String, Value)>,
    pub connection: u64,
}

/// A recorded request of a population.
#[derive(Clone, Debug)]
pub struct Sample {
    pub template: Template,
    pub rendered: Rendered,
    /// Number of the object that the request names; requests for one object have the same number.
    pub object: usize,
    pub status: u16,
    /// See [`Recorded::response`].
    pub response: u64,
}

/// A request of a second run.
#[derive(Clone, Debug)]
pub struct Asked {
    pub rendered: Rendered,
    /// The recorded object that it names; `None` if only a miss is right.
    pub object: Option<usize>,
}

/// A request as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub method: &'static str,
    pub scheme: String,
    pub authority: String,
    pub path: String,
    pub query: Option<String>,
    pub fields: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    pub connection: u64,
}

impl Rendered {
    /// Returns the fields in the form that [`Self::request`] needs.
    pub fn borrowed_fields(&self) -> Vec<(&str, &[u8])> {
        self.fields.iter().map(|(name, value)| (name.as_str(), &value[..])).collect()
    }

    /// Returns the borrowed form of this request.
    pub fn request<'a>(&'a self, fields: &'a [(&'a str, &'a [u8])]) -> Request<'a> {
        Request {
            method: self.method,
            scheme: &self.scheme,
            authority: &self.authority,
            path: self.path.as_bytes(),
            query: self.query.as_deref().map(str::as_bytes),
            fields,
            body: &self.body,
            connection: Some(self.connection),
        }
    }
}

/// Returns the index of a population; identifiers are the places of the samples.
pub fn index(rule: Rule, samples: &[Sample]) -> Index {
    let fields: Vec<_> = samples.iter().map(|sample| sample.rendered.borrowed_fields()).collect();
    let recorded = samples.iter().zip(&fields).enumerate().map(|(id, (sample, fields))| Recorded {
        id,
        request: sample.rendered.request(fields),
        status: Some(sample.status),
        response: Some(sample.response),
    });
    Index::new(rule, recorded)
}

impl Template {
    /// Returns the bytes of the request. The keys of the query are in the given order, if there is one.
    fn render(&self, boundary: u64) -> Rendered {
        let segment = |values: &Vec<Value>| values.iter().map(Value::encoded).collect::<String>();
        let path: Vec<String> = self.path.iter().map(segment).collect();
        let query = self.query.as_ref().map(|pairs| body::form(pairs));
        let mut fields: Vec<(String, Vec<u8>)> = self
            .fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
            .collect();
        if !self.cookies.is_empty() {
            let pairs: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={}", value.text)).collect();
            fields.push(("Cookie".into(), pairs.join("; ").into_bytes()));
        }
        let (content_type, body) = self.content.render(boundary);
        fields.extend(content_type.map(|value| ("Content-Type".to_owned(), value.into_bytes())));
        Rendered {
            method: self.method,
            scheme: self.scheme.clone(),
            authority: self.authority.clone(),
            path: format!("/{}", path.join("/")),
            query,
            fields,
            body,
            connection: self.connection,
        }
    }

    /// Calls a function with each value except those of cookies.
    fn each_value(&mut self, mut run: impl FnMut(&mut Value)) {
        self.path.iter_mut().flatten().for_each(&mut run);
        self.query.iter_mut().flatten().for_each(|(_, value)| run(value));
        self.content.each_value(&mut run);
    }

    /// Returns the request without volatile values: equal for all requests for one object.
    fn object_key(&self) -> String {
        let mut masked = self.clone();
        masked.each_value(|value| {
            if value.role.is_volatile() {
                value.text.clear();
            }
        });
        // Which volatile keys a request has does not matter, either.
        masked.content.retain_stable();
        if let Some(pairs) = &mut masked.query {
            pairs.retain(|(_, value)| !value.role.is_volatile());
            pairs.sort_by(|a, b| (&a.0, &a.1.text).cmp(&(&b.0, &b.1.text)));
        }
        let rendered = masked.render(0);
        format!(
            "{} {}://{}{}?{:?} {}",
            rendered.method,
            rendered.scheme,
            rendered.authority,
            rendered.path,
            rendered.query,
            rendered.body.escape_ascii()
        )
    }
}

/// Returns recorded requests that resemble those of pages and apps, the same for each seed.
pub fn population(parameters: &Parameters, seed: u64) -> Vec<Sample> {
    let mut random = Random::for_purpose(seed, 1);
    let now = 1_650_000_000 + random.up_to(90_000_000);
    let mut drawing = kinds::Drawing { random, now, hosts: parameters.hosts };
    let mut templates: Vec<(Template, kinds::Reply)> = Vec::new();
    while templates.len() < parameters.recorded {
        templates.extend(drawing.site());
    }
    templates.truncate(parameters.recorded);
    let mut random = Random::for_purpose(seed, 2);
    let mut samples: Vec<(Template, kinds::Reply)> = Vec::new();
    for (mut template, reply) in templates {
        template.connection = random.up_to(parameters.connections.saturating_sub(1));
        if random.chance(parameters.repeated) {
            // Behind later requests, as a poll is.
            let place = samples.len().saturating_sub(random.up_to(20) as usize);
            samples.insert(place, (template.clone(), reply));
        }
        samples.push((template, reply));
    }
    number(samples)
}

/// Gives each object its number, and each request its response.
fn number(samples: Vec<(Template, kinds::Reply)>) -> Vec<Sample> {
    let mut numbers = std::collections::HashMap::new();
    let mut all = Vec::new();
    for (place, (template, reply)) in samples.into_iter().enumerate() {
        let fresh = numbers.len();
        let object = *numbers.entry(template.object_key()).or_insert(fresh);
        let (status, response) = match reply {
            kinds::Reply::Object => (200, object as u64),
            kinds::Reply::Changing => (200, (1 << 40) + place as u64),
            kinds::Reply::Nothing => (204, u64::MAX),
        };
        let rendered = template.render(place as u64);
        all.push(Sample { template, rendered, object, status, response });
    }
    all
}
