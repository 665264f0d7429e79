//! Networks that answer in place of the server, and networks that disagree.

use manyways_unit::{Rate, Size, Span, Time};
use proptest::prelude::*;

use super::simulation::{Link, Refusal, RunOutcome, Server, Simulation};
use super::{MB, lte, wifi};
use crate::fetch::doubt::{Judgement, Rules};
use crate::fetch::{
    Config, Evidence, FetchFailure, Note, PathError, PathErrorKind, PathId, Range, Scheduler,
    Validator,
};

const PAGE: u64 = 2_000;
/// The version of a portal's bytes.
const PORTAL: u8 = 9;

/// Answers every request with a login page.
fn page() -> Server {
    let server = Server { validator: None, is_page: true, ranges: false, ..Server::of(PAGE) };
    Server { version: PORTAL, ..server }
}

/// Redirects every request to a login page.
fn redirect() -> Server {
    Server { other_host: Some("portal.test"), ..page() }
}

/// Redirects every request to a file.
fn redirect_to_file() -> Server {
    Server { other_host: Some("portal.test"), version: PORTAL, ..Server::of(PAGE) }
}

/// Answers every request as RFC 6585 recommends.
fn login_required() -> Server {
    Server { status: 511, ..page() }
}

fn simulation(config: Config, servers: &[Server], links: &[Link]) -> Simulation {
    let length = servers.iter().map(|server| server.length).max().unwrap();
    let mut simulation = Simulation::new(config, Server::of(length), links);
    simulation.servers = servers.to_vec();
    simulation
}

fn portal_notes(simulation: &Simulation) -> Vec<(usize, PathErrorKind)> {
    let notes = simulation.notes().iter().filter_map(|note| match note {
        Note::Dropped { path, error } => Some((path.0, error.kind)),
        _ => None,
    });
    notes.collect()
}

#[test]
fn a_login_page_is_never_the_file() {
    let equal_length = Server { length: MB, ..page() };
    for portal in [page(), equal_length, redirect(), redirect_to_file(), login_required()] {
        for portal_path in [0, 1] {
            for multiplexed in [false, true] {
                let mut servers = vec![Server::of(MB); 2];
                servers[portal_path] = portal.clone();
                let links = [wifi(), lte()].map(|link| Link { multiplexed, ..link });
                let mut simulation = simulation(Config::default(), &servers, &links);
                assert_eq!(simulation.run_unchecked(), RunOutcome::Done, "{portal:?}");
                assert!(simulation.is_all_of(1), "{portal:?} on path {portal_path}");
                let notes = portal_notes(&simulation);
                assert_eq!(notes, [(portal_path, PathErrorKind::CaptivePortal)], "{portal:?}");
                if portal.other_host.is_some() {
                    assert_eq!(simulation.forgotten, [PathId(portal_path)]);
                }
            }
        }
    }
}

#[test]
fn a_path_with_a_portal_is_named_with_its_host() {
    let mut simulation =
        simulation(Config::default(), &[redirect(), Server::of(MB)], &[wifi(), lte()]);
    simulation.run_unchecked();
    let [.., Note::Dropped { error, .. }] = simulation.notes() else {
        panic!("{:?}", simulation.notes())
    };
    let words = "its answer, from portal.test, looks like a login page of the network";
    assert!(error.message.starts_with(words), "{error}");
}

/// A release page, for example, redirects every network to the host of its files.
#[test]
fn a_redirect_on_all_networks_costs_nothing() {
    for (length, max) in [(8 * MB, Span::ZERO), (10_000, lte().rtt * 2)] {
        let time = |other_host, links: &[Link]| {
            let server = Server { other_host, ..Server::of(length) };
            let mut simulation = Simulation::new(Config::default(), server, links);
            let took = simulation.run_to_the_end();
            assert_eq!((simulation.notes(), simulation.restarts), (&[][..], 0));
            took
        };
        for links in [&[wifi(), lte()][..], &[wifi()]] {
            let (plain, redirected) = (time(None, links), time(Some("files.test"), links));
            assert!(redirected.since(plain) <= max, "{redirected} after {plain}");
        }
    }
}

#[test]
fn a_page_without_a_version_costs_one_question() {
    let server = Server { version: 1, ..page() };
    let mut simulation = Simulation::new(Config::default(), server, &[wifi(), lte()]);
    let took = simulation.run_to_the_end();
    let question = (PathId(1), Some(Range::new(0, 1)));
    assert_eq!(simulation.requests(), [(PathId(0), None), question]);
    assert_eq!(simulation.notes(), [Note::NoValidator]);
    assert!(took <= Time::ZERO + lte().rtt * 3, "{took}");
}

#[test]
fn a_network_that_does_not_answer_is_not_waited_for_long() {
    let dead = Link { dead_from: Some(Time::ZERO), ..lte() };
    let server = Server { version: 1, ..page() };
    let mut simulation = Simulation::new(Config::default(), server, &[wifi(), dead]);
    let took = simulation.run_to_the_end();
    assert!(took <= Time::ZERO + Span::from_millis(5_100), "{took}");
}

#[test]
fn the_only_network_is_believed_unless_it_requires_a_login() {
    for portal in [page(), redirect(), redirect_to_file()] {
        let mut simulation = simulation(Config::default(), &[portal], &[wifi()]);
        simulation.run_to_the_end();
        assert_eq!((simulation.requests().len(), simulation.notes()), (1, &[][..]));
    }
    for links in [&[wifi()][..], &[wifi(), lte()]] {
        let servers = vec![login_required(); links.len()];
        let mut simulation = simulation(Config::default(), &servers, links);
        assert_eq!(simulation.run(), RunOutcome::Failed(FetchFailure::Status(511)));
    }
}

#[test]
fn networks_fail_if_nothing_decides() {
    let unversioned = Server { validator: None, ..Server::of(MB) };
    let redirected = Server { other_host: Some("files.test"), ..Server::of(MB) };
    let missing = Server { status: 404, ..Server::of(MB) };
    for (portal, other) in [
        (page(), unversioned.clone()),
        // One answer is a page, and the other one comes from another host.
        (page(), redirected),
        (page(), missing.clone()),
        (redirect_to_file(), missing),
    ] {
        for portal_path in [0, 1] {
            let mut servers = vec![other.clone(); 2];
            servers[portal_path] = portal.clone();
            let mut simulation = simulation(Config::default(), &servers, &[wifi(), lte()]);
            let end = simulation.run_unchecked();
            let RunOutcome::Failed(FetchFailure::Disagreement(answers)) = end else {
                // A first response without doubt asks no other network.
                assert!(other == unversioned && portal_path == 1, "{portal:?} and {other:?}");
                assert!(simulation.is_all_of(1));
                continue;
            };
            let lengths: Vec<_> = answers.iter().map(|(path, e)| (path.0, e.length)).collect();
            let of = |path: usize| {
                let server = &servers[path];
                (path, Some(server.length).filter(|_| server.status == 200))
            };
            assert_eq!(lengths, [of(0), of(1)]);
        }
    }
}

/// The answers of other paths still count when the fetch begins again.
#[test]
fn a_refusal_contradicts_the_next_page_too() {
    let missing = Server { status: 404, ..Server::of(MB) };
    let servers = [redirect(), Server { length: PAGE + 1, ..page() }, missing];
    // The refusal arrives first, and its path is dropped.
    let links = [400, 900, 65].map(|rtt| Link { rtt: Span::from_millis(rtt), ..wifi() });
    let mut simulation = simulation(Config::default(), &servers, &links);
    let end = simulation.run_unchecked();
    assert!(matches!(end, RunOutcome::Failed(FetchFailure::Disagreement(_))), "{end:?}");
}

/// A page whose transfer breaks off is not believed the next time.
#[test]
fn a_refusal_contradicts_a_page_that_is_fetched_again() {
    let missing = Server { status: 404, ..Server::of(MB) };
    // The refusal arrives first, and its path is dropped; the third path never connects.
    let dead = Link { dead_from: Some(Time::ZERO), ..wifi() };
    let links = [Link { rtt: Span::from_millis(400), ..wifi() }, lte(), dead];
    let servers = [page(), missing.clone(), missing];
    let mut simulation = simulation(Config::default(), &servers, &links);
    simulation.failures.insert((PathId(0), 0), 1_000);
    let end = simulation.run_unchecked();
    assert!(matches!(end, RunOutcome::Failed(FetchFailure::Disagreement(_))), "{end:?}");
    assert_eq!(simulation.restarts, 1);
}

/// A server without capacity is asked again, as long as the page may wait.
#[test]
fn a_busy_server_is_asked_again() {
    for (busy_until, is_back) in [(1_000, true), (30_000, false)] {
        let mut simulation =
            simulation(Config::default(), &[page(), Server::of(MB)], &[wifi(), lte()]);
        let busy = Refusal::new(Time::from_millis(busy_until), 503);
        simulation.refusals.insert(PathId(1), busy);
        match simulation.run_unchecked() {
            RunOutcome::Done => assert!(is_back && simulation.is_all_of(1)),
            end => assert!(
                !is_back && matches!(end, RunOutcome::Failed(FetchFailure::Disagreement(_)))
            ),
        }
        assert!(simulation.requests().len() < 9, "{:?}", simulation.requests());
    }
}

/// A portal ignores ranges, and the server does not.
#[test]
fn the_networks_without_a_portal_share_the_file() {
    let config = Config { length: Some(4 * MB), ..Config::default() };
    let servers = [Server::of(4 * MB), page(), Server::of(4 * MB)];
    let mut simulation = simulation(config, &servers, &[lte(), wifi(), lte()]);
    assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
    assert!(simulation.is_all_of(1));
    for path in [0, 2].map(PathId) {
        assert!(simulation.fetch.stats(simulation.now, path).useful > MB);
    }
}

/// A server that refuses one network does not contradict the file that another one has.
#[test]
fn a_refusal_does_not_end_a_redirected_download() {
    let server = Server { other_host: Some("files.test"), ..Server::of(MB) };
    let busy = Server { status: 403, ..server.clone() };
    let mut simulation = simulation(Config::default(), &[server, busy], &[wifi(), lte()]);
    simulation.run_to_the_end();
    assert_eq!(portal_notes(&simulation), [(1, PathErrorKind::UnusableResponse)]);
}

#[test]
fn the_expected_length_decides() {
    let portal = Server { validator: None, version: PORTAL, ..Server::of(PAGE) };
    let origin = Server { validator: None, ..Server::of(MB) };
    for is_authenticated in [false, true] {
        for servers in [[portal.clone(), origin.clone()], [origin.clone(), portal.clone()]] {
            let config = Config { length: Some(MB), is_authenticated, ..Config::default() };
            let mut simulation = simulation(config, &servers, &[wifi(), lte()]);
            assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
            assert!(simulation.is_all_of(1), "{servers:?}");
        }
    }
}

#[test]
fn servers_that_prove_their_identity_are_believed() {
    let config = Config { is_authenticated: true, ..Config::default() };
    let servers = [page(), Server { length: PAGE + 1, ..page() }];
    let mut simulation = simulation(config, &servers, &[wifi(), lte()]);
    assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
    assert_eq!(simulation.requests().len(), 1);
}

/// A login that expires during the transfer: the network answers the next request itself.
#[test]
fn a_portal_that_appears_later_costs_only_its_network() {
    let mut simulation = Simulation::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    simulation.run_until(Time::from_millis(1_000));
    simulation.servers[0] = redirect();
    let error = PathError::transient(PathErrorKind::Reset, "the connection broke");
    simulation.fail_request(PathId(0), error);
    assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
    assert!(simulation.is_all_of(1));
    assert_eq!(simulation.restarts, 0);
    assert_eq!(portal_notes(&simulation), [(0, PathErrorKind::CaptivePortal)]);
}

#[test]
fn a_portal_does_not_answer_the_check_of_the_version() {
    let mut simulation = Simulation::new(Config::default(), Server::of(4 * MB), &[wifi(), lte()]);
    while simulation.fetch.done().total() < 4 * MB - 200_000 {
        assert_eq!(simulation.step(Time::MAX), None);
    }
    // The bytes in flight are still those of the object.
    simulation.servers[0] = Server { version: 1, ..redirect() };
    assert_eq!(simulation.run(), RunOutcome::Done);
    assert_eq!(simulation.restarts, 0);
    assert_eq!(portal_notes(&simulation), [(0, PathErrorKind::CaptivePortal)]);
}

#[test]
fn a_download_that_goes_on_behind_a_portal_is_kept() {
    let mut first = Simulation::new(Config::default(), Server::of(4 * MB), &[wifi()]);
    first.run_until(Time::from_millis(1_000));
    let resume = first.fetch.object().cloned().zip(Some(first.fetch.done().clone()));
    let config = Config { resume, ..Config::default() };
    let mut second = simulation(config, &[redirect()], &[wifi()]);
    let RunOutcome::Failed(FetchFailure::NoPathLeft(errors)) = second.run() else { panic!() };
    assert_eq!(errors[0].1.kind, PathErrorKind::CaptivePortal);
    assert!(second.fetch.is_resumable());
}

/// The earlier run may have been redirected to the same host.
#[test]
fn a_changed_object_behind_a_redirect_is_not_a_portal() {
    let mirror =
        |version, length| Server { version, other_host: Some("mirror.test"), ..Server::of(length) };
    let mut first = Simulation::new(Config::default(), mirror(1, 4 * MB), &[wifi()]);
    first.run_until(Time::from_millis(1_000));
    let resume = first.fetch.object().cloned().zip(Some(first.fetch.done().clone()));
    let config = Config { resume, ..Config::default() };
    for length in [4 * MB, 5 * MB] {
        for links in [&[wifi()][..], &[wifi(), lte()]] {
            let mut second = Simulation::new(config.clone(), mirror(2, length), links);
            assert_eq!(second.run_unchecked(), RunOutcome::Failed(FetchFailure::Changed));
        }
    }
}

/// No rule detects a portal that answers with an ordinary file.
#[test]
fn a_file_with_the_wrong_checksum_is_fetched_over_the_other_network() {
    let file = Server { version: PORTAL, ..Server::of(PAGE) };
    for portal in [file, Server { validator: None, version: PORTAL, ..Server::of(PAGE) }] {
        let config = Config { checks_file: true, ..Config::default() };
        let servers = [portal, Server::of(MB)];
        let mut simulation = simulation(config, &servers, &[wifi(), lte()]);
        assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
        assert!(!simulation.is_all_of(1));
        assert!(simulation.fetch.fetch_elsewhere(simulation.now));
        assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
        assert!(simulation.is_all_of(1));
        assert_eq!(simulation.fetch.stats(simulation.now, PathId(0)).useful, 0);
        assert_eq!(simulation.notes().last(), Some(&Note::WrongFile));
        assert!(!simulation.fetch.fetch_elsewhere(simulation.now));
    }
}

#[test]
fn a_wrong_checksum_does_not_fetch_the_same_file_twice() {
    let config = Config { checks_file: true, ..Config::default() };
    let mut simulation = Simulation::new(config, Server::of(10_000), &[wifi(), lte()]);
    simulation.run_to_the_end();
    let used =
        (0..2).filter(|path| simulation.fetch.stats(simulation.now, PathId(*path)).useful > 0);
    assert_eq!(used.count(), 1);
    assert!(simulation.fetch.fetch_elsewhere(simulation.now));
    assert!(matches!(simulation.run(), RunOutcome::Failed(FetchFailure::NoPathLeft(_))));
    // All networks have delivered bytes of a large file.
    let config = Config { checks_file: true, ..Config::default() };
    let mut simulation = Simulation::new(config, Server::of(MB), &[wifi(), lte()]);
    simulation.run_to_the_end();
    assert!(!simulation.fetch.fetch_elsewhere(simulation.now));
}

#[test]
fn a_checksum_decides_where_nothing_else_does() {
    let unversioned = Server { validator: None, ..Server::of(MB) };
    let config = Config { checks_file: true, ..Config::default() };
    let mut simulation = simulation(config, &[page(), unversioned], &[wifi(), lte()]);
    assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
    assert!(simulation.fetch.fetch_elsewhere(simulation.now));
    assert_eq!(simulation.run_unchecked(), RunOutcome::Done);
    assert!(simulation.is_all_of(1));
}

#[test]
fn answers_are_judged_in_either_order() {
    use Judgement::{AgainstFirst, Consistent, Undecided};
    let rules = Rules { is_authenticated: false, length: None };
    let object = Evidence {
        status: 200,
        length: Some(1_000),
        validator: Some(Validator::Etag("\"a\"".into())),
        other_host: None,
        is_uncacheable_page: false,
    };
    let login = Evidence { status: 511, length: Some(10), validator: None, ..object.clone() };
    let page = Evidence { status: 200, is_uncacheable_page: true, ..login.clone() };
    let plain = Evidence { length: Some(20), is_uncacheable_page: false, ..page.clone() };
    let chunked = Evidence { length: None, ..page.clone() };
    let at = |host: &str, evidence: &Evidence| Evidence {
        other_host: Some(host.into()),
        ..evidence.clone()
    };
    let other = Evidence {
        length: Some(2_000),
        validator: Some(Validator::Etag("\"b\"".into())),
        ..object.clone()
    };
    let same_length = Evidence { length: Some(1_000), ..other.clone() };
    for (first, second, expected) in [
        (&login, &object, AgainstFirst),
        (&login, &page, AgainstFirst),
        (&login, &login, Consistent),
        (&page, &object, AgainstFirst),
        (&chunked, &object, AgainstFirst),
        (&page, &plain, Undecided),
        (&page, &page, Consistent),
        (&page, &chunked, Consistent),
        (&page, &at("c", &object), Undecided),
        (&page, &at("c", &plain), Undecided),
        (&at("p", &page), &page, Consistent),
        (&at("p", &page), &Evidence { length: Some(11), ..page.clone() }, AgainstFirst),
        (&at("p", &page), &at("c", &object), AgainstFirst),
        (&at("p", &other), &object, AgainstFirst),
        (&at("p", &other), &at("c", &object), Undecided),
        (&at("c", &same_length), &at("d", &object), Consistent),
        (&at("c", &other), &at("c", &object), Consistent),
        (&other, &object, Consistent),
        (&plain, &object, Consistent),
    ] {
        assert_eq!(rules.judge(first, second), expected, "{first:?}\n{second:?}");
        let mirrored = match expected {
            AgainstFirst => Judgement::AgainstSecond,
            other => other,
        };
        assert_eq!(rules.judge(second, first), mirrored, "{second:?}\n{first:?}");
    }
    let rules = Rules { is_authenticated: false, length: Some(1_000) };
    assert_eq!(rules.judge(&plain, &object), AgainstFirst);
    assert_eq!(rules.judge(&other, &at("c", &object)), AgainstFirst);
}

fn link() -> impl Strategy<Value = Link> {
    (200u64..5_000, 1u64..400, any::<bool>()).prop_map(|(kbps, rtt, multiplexed)| {
        let link = Link::new(Rate::from_kbps(kbps), Span::from_millis(rtt));
        Link { multiplexed, ..link }
    })
}

fn portal() -> impl Strategy<Value = Server> {
    prop_oneof![Just(page()), Just(redirect()), Just(redirect_to_file()), Just(login_required())]
}

/// The server of the object.
fn origin() -> impl Strategy<Value = Server> {
    let versions = prop_oneof![3 => Just(Some("\"v\"")), 1 => Just(None)];
    let hosts = prop_oneof![3 => Just(None), 1 => Just(Some("files.test"))];
    (PAGE + 1..150_000, versions, hosts).prop_map(|(length, validator, other_host)| Server {
        validator,
        other_host,
        ..Server::of(length)
    })
}

fn scheduler() -> impl Strategy<Value = Scheduler> {
    prop_oneof![
        3 => Just(Scheduler::MpH2),
        1 => (1_000u64..60_000).prop_map(|bytes| Scheduler::FixedChunk(Size::from_bytes(bytes))),
        1 => Just(Scheduler::MsPlayer),
        1 => Just(Scheduler::EqualSplit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// In any order of the answers, one network with the object is enough if a rule decides.
    #[test]
    fn the_file_is_never_that_of_a_portal(
        networks in prop::collection::vec((link(), prop::option::of(portal())), 2..5),
        reached in any::<prop::sample::Index>(),
        origin in origin(),
        is_length_known in any::<bool>(),
        scheduler in scheduler(),
    ) {
        let links: Vec<Link> = networks.iter().map(|(link, _)| *link).collect();
        let servers = networks.into_iter().map(|(_, portal)| portal);
        let mut servers: Vec<Server> =
            servers.map(|portal| portal.unwrap_or(origin.clone())).collect();
        servers[reached.index(links.len())] = origin.clone();
        let length = is_length_known.then_some(origin.length);
        let config = Config { length, scheduler, ..Config::default() };
        let mut simulation = simulation(config, &servers, &links);
        match simulation.run_unchecked() {
            RunOutcome::Done => prop_assert!(simulation.is_all_of(1)),
            RunOutcome::Failed(FetchFailure::Disagreement(_)) => {
                let decides = origin.validator.is_some() && origin.other_host.is_none();
                prop_assert!(!is_length_known && !decides);
            }
            end => prop_assert!(false, "{end:?}"),
        }
    }
}
