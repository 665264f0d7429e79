//! A film over two networks at once.

use std::collections::BTreeMap;

use manyways_rig::launch::DriveError;
use manyways_unit::Span;

use super::Qoe;
use super::plan::Cell;
use super::play::{self, Film, Plays, link_option, url};
use crate::figures::{Figures, Record};
use crate::shell::Shell;

pub const SERVE: &str = "get --serve";
pub const MSPLAYER: &str = "get --serve --scheduler msplayer";
pub const MPTCP: &str = "kernel MPTCP";
pub const CONTENDERS: [&str; 3] = [SERVE, MSPLAYER, MPTCP];

pub fn measure(
    qoe: &Qoe,
    cell: &Cell,
    film: &Film,
    step: Span,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&qoe.tools)?;
    if let Err(reason) = film.prepare(&shell)? {
        record.error = Some(reason);
        return Ok(());
    }
    let links = cell.links.iter().map(|link| link_option(&shell, link));
    let links: Vec<String> = links.collect::<Result<_, _>>()?;
    let runs = (0..cell.rounds).flat_map(|round| CONTENDERS.map(|contender| (round, contender)));
    let runs: Vec<(u32, &str)> = runs.collect();
    let lab = |(round, contender): &(u32, &'static str)| Plays {
        links: links.clone(),
        offset: step * u64::from(*round),
        is_mptcp: *contender == MPTCP,
        scripts: vec![script(film, contender, &format!("{round}-{}", contender.len()))],
    };
    let labs: Vec<Plays> = runs.iter().map(lab).collect();
    let played = play::run(&shell, film, &labs)?;
    let mut outcomes: BTreeMap<(u32, &str), Result<Figures, String>> =
        runs.into_iter().zip(played.into_iter().flatten()).collect();
    cell.run_rounds(&cell.contenders, qoe.tools.seed, record, progress, |round, contender| {
        let outcome = outcomes.remove(&(round, *contender));
        Ok(Figures::run(outcome.unwrap_or_else(|| Err("it did not run".to_owned()))))
    })
}

/// A script that plays the film, which prints its document. `name` is that of a pipe.
fn script(film: &Film, contender: &str, name: &str) -> String {
    let options = format!("--rule {} {}", film.rule, film.options());
    if contender == MPTCP {
        let url = url(true);
        return format!(
            "\"$MANYWAYS\" probe video {url} --cacert authority.pem --transport mptcp {options}\n"
        );
    }
    let scheduler = if contender == MSPLAYER { " --scheduler msplayer" } else { "" };
    let url = url(false);
    format!(
        "mkfifo pipe{name}\n\
         \"$MANYWAYS\" get --serve 127.0.0.1:0 --origin {url} --cacert authority.pem --cache off \
         --json{scheduler} >pipe{name} &\n\
         exec 3<pipe{name}\nread -r line <&3\n\
         url=${{line#*'\"url\":\"'}}\nurl=${{url%%'\"'*}}\n\
         \"$MANYWAYS\" probe video \"$url\" {options}\n\
         kill $!\nwait $! || true\n"
    )
}
