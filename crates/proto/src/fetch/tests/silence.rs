//! Paths that join and leave, and fetches without any active path.

use manyways_unit::{Rate, Size, Span, Time};

use super::world::{End, Server, World};
use super::{MB, lte, wifi};
use crate::fetch::{Config, Fault, FaultClass, Note, PathId, Reason};

const BOTH: [PathId; 2] = [PathId(0), PathId(1)];

fn seconds(seconds: u64) -> Time {
    Time::from_millis(seconds * 1_000)
}

/// Two paths that have received bytes, and then receive none.
fn silenced() -> World {
    let mut world = World::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    world.run_until(Time::from_millis(1_000));
    BOTH.into_iter().for_each(|path| world.set_dead(path, true));
    world
}

#[test]
fn all_silent_is_said_and_has_an_end() {
    let mut world = silenced();
    assert_eq!(world.run(), End::Failed(Reason::Silence(Span::from_secs(60))));
    assert!(world.now <= seconds(61), "{}", world.now);
    assert!(world.fetch.resumable());
    let [Note::Quiet { lasted, left }] = world.notes() else { panic!("{:?}", world.notes()) };
    assert_eq!((*lasted, *left), (Span::from_secs(10), Span::from_secs(50)));
}

#[test]
fn a_silence_that_ends_in_time_costs_no_path() {
    let mut world = silenced();
    world.run_until(seconds(50));
    BOTH.into_iter().for_each(|path| world.set_dead(path, false));
    let took = world.run_to_the_end();
    // The end may wait for a connection attempt that is under way.
    assert!(took < seconds(75), "{took}");
    assert!(matches!(world.notes(), [Note::Quiet { .. }]), "{:?}", world.notes());
}

/// Name servers that do not answer count as part of the idle time, for any number of queries.
#[test]
fn quick_faults_while_all_are_silent_are_not_the_reason() {
    let mut world = silenced();
    let end = loop {
        let until = world.now + Span::from_millis(100);
        if let Some(end) = world.step(until) {
            break end;
        }
        if world.now >= seconds(7) {
            let words = "no name server answers";
            BOTH.into_iter()
                .for_each(|path| world.break_off(path, Fault::passing(FaultClass::Dns, words)));
        }
    };
    assert_eq!(end, End::Failed(Reason::Silence(Span::from_secs(60))));
}

#[test]
fn where_nothing_ever_came_the_faults_are_named() {
    let mut world = World::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    BOTH.into_iter().for_each(|path| world.set_dead(path, true));
    let End::Failed(Reason::NoPathLeft(faults)) = world.run() else { panic!("it was done") };
    assert_eq!(faults.len(), 2);
    assert_eq!(world.now, seconds(60));
}

#[test]
fn a_server_that_says_no_is_not_silent() {
    let mut world = silenced();
    let refused = Fault::passing(FaultClass::Connect, "connection refused");
    let end = loop {
        let until = world.now + Span::from_millis(100);
        if let Some(end) = world.step(until) {
            break end;
        }
        if world.now >= seconds(7) {
            BOTH.into_iter().for_each(|path| world.break_off(path, refused.clone()));
        }
    };
    assert_eq!(end, End::Failed(Reason::NoPathLeft(BOTH.map(|id| (id, refused.clone())).into())));
}

#[test]
fn a_path_that_is_gone_gives_its_bytes_back_at_once() {
    let mut world = World::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
    world.run_until(Time::from_millis(1_000));
    world.set_up(PathId(0), false);
    let rest = 8 * MB - world.fetch.done().total();
    let took = world.run_to_the_end();
    let alone = Time::from_millis(1_000) + lte().rate.time_for(Size::from_bytes(rest));
    assert!(took < alone + Span::from_millis(200), "{took} against {alone}");
    assert_eq!(world.notes(), []);
}

#[test]
fn all_gone_may_return() {
    for back in [Some(30), None] {
        let mut world = World::new(Config::default(), Server::of(8 * MB), &[wifi(), lte()]);
        world.run_until(Time::from_millis(1_000));
        BOTH.into_iter().for_each(|path| world.set_up(path, false));
        match back {
            Some(back) => {
                world.run_until(seconds(back));
                world.set_up(PathId(1), true);
                world.run_to_the_end();
            }
            None => {
                assert_eq!(world.run(), End::Failed(Reason::Silence(Span::from_secs(60))));
            }
        }
    }
}

/// A new path has the time to connect even shortly before the idle timeout of the others.
#[test]
fn a_path_may_join_at_the_last_moment() {
    let mut world = silenced();
    world.run_until(Time::from_millis(60_900));
    world.join(lte());
    world.run_to_the_end();
    assert!(world.fetch.stats(world.now, PathId(2)).useful > 6 * MB);
}

#[test]
fn a_path_that_joins_under_way_takes_its_share() {
    let mut world = World::new(Config::default(), Server::of(8 * MB), &[lte()]);
    world.run_until(Time::from_millis(2_000));
    let rest = 8 * MB - world.fetch.done().total();
    world.join(wifi());
    let took = world.run_to_the_end();
    let both: Rate = [wifi().rate, lte().rate].into_iter().sum();
    let bound = Time::from_millis(2_000) + both.time_for(Size::from_bytes(rest));
    assert!(took < bound + Span::from_millis(500), "{took} against {bound}");
}
