//! The causes of requests, and the edges between objects.

use super::load::{Blocking, Initiator, Kind, Load, Loading, TaskKind};
use super::steps::{Steps, Work, at};

/// An edge of the graph between two requests, named by their indices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    pub kind: EdgeKind,
    /// The earlier one.
    pub from: usize,
    /// The one that waits.
    pub to: usize,
}

/// Why one object waits for another. The first is a flow dependency of WProf, the last a resource
/// dependency, the others are blocking dependencies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EdgeKind {
    /// The browser requested `to` because of `from`: a document, script or style sheet that names it,
    /// or a redirect.
    Found,
    /// The parser of the document `to` waits until the script `from` has been executed.
    BlocksParser,
    /// The script `to` waits for the style sheet `from` before it. Only the first script behind a
    /// sheet has this edge, since the later ones wait for that script.
    StyleBeforeScript,
    /// The script `to` is executed after the document `from` has been parsed.
    AfterParsing,
    /// The request `to` waited until `from` had left its connection.
    Connection,
}

/// Place of an element in its document.
type Place = (u32, u32, usize);

/// For each request the one that made the browser fetch it. That of an image which a script inserts is
/// the script, although DevTools reports the parser.
pub(super) fn finders(load: &Load, steps: &[Steps], work: &[Work]) -> Vec<Option<usize>> {
    let count = load.requests.len();
    let finder = |index: usize| {
        let request = &load.requests[index];
        let running = at(work, steps[index].issued).map(|task| work[task]);
        let scripted = running.filter(|task| {
            matches!(
                task.kind,
                TaskKind::EvaluateScript
                    | TaskKind::Function
                    | TaskKind::Timer
                    | TaskKind::Event(_)
            )
        });
        let script = scripted.and_then(|task| task.request);
        match request.initiator {
            Initiator::Navigation => None,
            Initiator::Parser { document, .. } => Some(script.unwrap_or(document)),
            Initiator::Script { request } | Initiator::Style { request } => Some(request),
            Initiator::Redirect { request } | Initiator::Preload { request } => Some(request),
            Initiator::InlineScript { document, .. } => Some(document),
            Initiator::Other => script,
        }
    };
    (0..count)
        .map(|index| finder(index).filter(|found| *found < count && *found != index))
        .collect()
}

/// Scripts and sheets of a document that its parser found, in their order.
pub(super) struct Elements {
    /// Parser-blocking scripts and the sheets that block scripts.
    pub blocking: Vec<(Place, usize)>,
    /// Scripts that run after parsing.
    pub deferred: Vec<usize>,
}

impl Elements {
    pub fn of(load: &Load, finders: &[Option<usize>], document: usize) -> Self {
        let mut blocking = Vec::new();
        let mut deferred = Vec::new();
        for (index, request) in load.requests.iter().enumerate() {
            let Initiator::Parser { document: found_in, line, column } = request.initiator else {
                continue;
            };
            if found_in != document || finders[index] != Some(document) {
                continue;
            }
            let place = (line.unwrap_or(u32::MAX), column.unwrap_or_default(), index);
            match (request.kind, request.loading) {
                (Kind::Script, Some(Loading::Deferred | Loading::Module)) => {
                    deferred.push((place, index));
                }
                (Kind::Script, Some(Loading::Blocking)) => blocking.push((place, index)),
                (Kind::Style, _) if blocks_scripts(request.blocking) => {
                    blocking.push((place, index))
                }
                _ => (),
            }
        }
        blocking.sort_unstable();
        deferred.sort_unstable();
        Self { blocking, deferred: deferred.into_iter().map(|(_, index)| index).collect() }
    }
}

pub(super) fn blocks_scripts(blocking: Blocking) -> bool {
    matches!(blocking, Blocking::Render | Blocking::Parser)
}

/// The edges, ordered.
pub(super) fn edges(load: &Load, steps: &[Steps], finders: &[Option<usize>]) -> Vec<Edge> {
    let mut edges = Vec::new();
    let mut add = |kind, from, to| edges.push(Edge { kind, from, to });
    for (to, finder) in finders.iter().enumerate() {
        if let Some(from) = *finder {
            add(EdgeKind::Found, from, to);
        }
    }
    let imports = imports(load, finders);
    for document in 0..load.requests.len() {
        if load.requests[document].kind != Kind::Document {
            continue;
        }
        let elements = Elements::of(load, finders, document);
        let mut sheets: Vec<usize> = Vec::new();
        for (_, index) in elements.blocking {
            if load.requests[index].kind == Kind::Style {
                sheets.push(index);
                continue;
            }
            add(EdgeKind::BlocksParser, index, document);
            while let Some(sheet) = sheets.pop() {
                add(EdgeKind::StyleBeforeScript, sheet, index);
                sheets.extend(&imports[sheet]);
            }
        }
        for index in elements.deferred {
            add(EdgeKind::AfterParsing, document, index);
        }
    }
    connections(load, steps, &mut add);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// For each style sheet the ones that it imports. A sheet that two import belongs to the one that
/// found it, thus there are no cycles of sheets among those that a document found.
pub(super) fn imports(load: &Load, finders: &[Option<usize>]) -> Vec<Vec<usize>> {
    let mut imports = vec![Vec::new(); load.requests.len()];
    for (index, finder) in finders.iter().enumerate() {
        let style = |index: usize| load.requests[index].kind == Kind::Style;
        if let Some(finder) = finder.filter(|finder| style(*finder) && style(index)) {
            imports[finder].push(index);
        }
    }
    imports
}

/// A request that was sent as soon as its connection was left, though it had started before, waited
/// for it. Requests share a connection of HTTP/2 and /3.
fn connections(load: &Load, steps: &[Steps], add: &mut impl FnMut(EdgeKind, usize, usize)) {
    let mut by_connection: Vec<(u64, usize)> = Vec::new();
    for (index, request) in load.requests.iter().enumerate() {
        if let (Some(connection), super::load::Protocol::Http1) =
            (request.connection, request.protocol)
            && steps[index].timed
        {
            by_connection.push((connection, index));
        }
    }
    by_connection.sort_by(|a, b| {
        (a.0, steps[a.1].sent)
            .partial_cmp(&(b.0, steps[b.1].sent))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    for pair in by_connection.windows(2) {
        let ((one, before), (other, index)) = (pair[0], pair[1]);
        let waited = steps[index].started < steps[before].ended;
        if one == other && waited && steps[before].sent < steps[index].sent {
            add(EdgeKind::Connection, before, index);
        }
    }
}
