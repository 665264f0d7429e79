//! Films over one network: over TCP, in virtual time and with dash.js; BBA and CBA, alone and sharing.

use std::collections::BTreeMap;

use manyways_rig::film_page::FilmPlayer;
use manyways_rig::launch::DriveError;
use manyways_rig::programs::quoted;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Rate, Span};

use super::Qoe;
use super::cells::OneNetwork;
use super::plan::Cell;
use super::play::{self, Film, Plays, http_url, link_option, listing, value, write_trace};
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub const CONSTANT: &str = "constant rate, TCP";
pub const CONSTANT_VIRTUAL: &str = "constant rate, virtual time";
pub const CONSTANT_DASHJS: &str = "constant rate, dash.js";
pub const TRACED: &str = "trace, TCP";
pub const TRACED_VIRTUAL: &str = "trace, virtual time";
pub const BBA_ALONE: &str = "BBA alone";
pub const CBA_ALONE: &str = "CBA alone";
pub const BBA_SHARING: &str = "BBA beside CBA";
pub const CBA_SHARING: &str = "CBA beside BBA";
pub const BBA_CONTROLLED: &str = "BBA beside CBA, load control";
pub const CBA_CONTROLLED: &str = "CBA beside BBA, load control";
pub const CONTENDERS: [&str; 11] = [
    CONSTANT,
    CONSTANT_VIRTUAL,
    CONSTANT_DASHJS,
    TRACED,
    TRACED_VIRTUAL,
    BBA_ALONE,
    CBA_ALONE,
    BBA_SHARING,
    CBA_SHARING,
    BBA_CONTROLLED,
    CBA_CONTROLLED,
];

/// Part of the bytes of full packets that is the film: without the headers of IP and of TCP with
/// timestamps.
const GOODPUT: f64 = 1448.0 / 1500.0;

pub fn measure(
    qoe: &Qoe,
    cell: &Cell,
    (film, one): (&Film, &OneNetwork),
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&qoe.tools)?;
    if let Err(reason) = film.prepare(&shell)? {
        record.error = Some(reason);
        return Ok(());
    }
    let dashjs = FilmPlayer::DashJs.script().map(|script| quoted(script.as_os_str()));
    if let Err(reason) = &dashjs {
        record.skipped.push(format!("{CONSTANT_DASHJS}: {reason}"));
    }
    let dashjs = dashjs.ok();
    let mut labs = Vec::new();
    let mut names: Vec<Vec<(u32, &str)>> = Vec::new();
    for round in 0..cell.rounds {
        for (contenders, lab) in round_labs(&shell, cell, film, one, dashjs.as_deref())? {
            names.push(contenders.into_iter().map(|contender| (round, contender)).collect());
            labs.push(lab);
        }
    }
    let played = play::run(&shell, film, &labs)?;
    let mut outcomes: BTreeMap<(u32, &str), Result<Figures, String>> =
        names.into_iter().flatten().zip(played.into_iter().flatten()).collect();
    for (contender, link) in [CONSTANT_VIRTUAL, TRACED_VIRTUAL].into_iter().zip(&cell.links) {
        let figures = simulated(&shell, film, link)?;
        for round in 0..cell.rounds {
            outcomes.insert((round, contender), figures.clone());
        }
    }
    let able: Vec<&'static str> = cell
        .contenders
        .iter()
        .copied()
        .filter(|contender| *contender != CONSTANT_DASHJS || dashjs.is_some())
        .collect();
    cell.run_rounds(&able, qoe.tools.seed, record, progress, |round, contender| {
        let outcome = outcomes.remove(&(round, *contender));
        Ok(Figures::run(outcome.unwrap_or_else(|| Err("it did not run".to_owned()))))
    })
}

/// The labs of a round, with the contender of each script.
fn round_labs(
    shell: &Shell<'_>,
    cell: &Cell,
    film: &Film,
    one: &OneNetwork,
    dashjs: Option<&str>,
) -> Result<Vec<(Vec<&'static str>, Plays)>, DriveError> {
    let play = |via: &str, options: &str| {
        let (url, film) = (http_url(), film.options());
        format!("\"$MANYWAYS\" probe video {url} --via {via} --parallel {film} {options}\n")
    };
    let lab = |links, plays: Vec<(&'static str, String)>| {
        let (names, scripts) = plays.into_iter().unzip();
        (names, Plays { links, offset: Span::ZERO, is_mptcp: false, scripts })
    };
    let rule = format!("--rule {}", film.rule);
    let [constant, traced] = &cell.links[..] else { return Ok(Vec::new()) };

    // dash.js has a link of its own in the same lab.
    let mut links = vec![link_option(shell, constant)?];
    let mut plays = vec![(CONSTANT, play(&constant.name, &rule))];
    if let Some(script) = dashjs {
        let other = LinkSpec { name: "other".to_owned(), ..constant.clone() };
        links.push(link_option(shell, &other)?);
        let options = format!("{rule} --browser dashjs --library {script}");
        plays.push((CONSTANT_DASHJS, play(&other.name, &options)));
    }
    let beside_dashjs = lab(links, plays);
    let links = vec![link_option(shell, traced)?];
    let over_trace = lab(links, vec![(TRACED, play(&traced.name, &rule))]);

    let named = |name: &str, rate: Rate| {
        let down = CapacitySpec::Constant(rate);
        let spec = LinkSpec { name: name.to_owned(), ..constant.clone() };
        let down = manyways_trace::scenario::DirectionSpec { capacity: down, ..spec.down.clone() };
        link_option(shell, &LinkSpec { down, ..spec })
    };
    let links = vec![
        named("bba", one.alone)?,
        named("cba", one.alone)?,
        named("shared", one.shared)?,
        named("control", one.shared)?,
    ];
    let controlled =
        |rule: &str| format!("--rule {rule} --resume-below {}", value(one.resume_below));
    let rules = lab(
        links,
        vec![
            (BBA_ALONE, play("bba", "--rule bba")),
            (CBA_ALONE, play("cba", "--rule cba")),
            (BBA_SHARING, play("shared", "--rule bba")),
            (CBA_SHARING, play("shared", "--rule cba")),
            (BBA_CONTROLLED, play("control", &controlled("bba"))),
            (CBA_CONTROLLED, play("control", &controlled("cba"))),
        ],
    );
    Ok(vec![beside_dashjs, over_trace, rules])
}

/// The film in virtual time over the rate of a link that is left for it.
fn simulated(
    shell: &Shell<'_>,
    film: &Film,
    link: &LinkSpec,
) -> Result<Result<Figures, String>, DriveError> {
    let less = |rate: Rate| Rate::from_bps((rate.as_bps() as f64 * GOODPUT) as u64);
    let steps = match &link.down.capacity {
        CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } => {
            let rows = steps.steps().iter().map(|(at, rate)| (*at, less(*rate)));
            Steps::new(rows.collect(), steps.period())
        }
        CapacitySpec::Constant(rate) => {
            Steps::new(vec![(Span::ZERO, less(*rate))], Span::from_secs(1))
        }
        _ => return Ok(Err("a link without a rate".to_owned())),
    };
    let Some(steps) = steps.ok() else { return Ok(Err("a wrong trace".to_owned())) };
    let file = format!("{}-goodput.json", link.name);
    write_trace(shell, &file, &LinkTrace::Rates(steps), manyways_rig::links::round_trip(link))?;
    let options = format!("--rule {} {}", film.rule, film.options());
    let script = format!("\"$MANYWAYS\" probe video {} --simulate {file} {options}", listing());
    let printed = shell.run(&script, Span::from_secs(30))?;
    Ok(printed.and_then(|json| play::figures(json.as_bytes())))
}
