//! The plan: captures and their contenders.

use super::contender::Contender::{self, Manyways, NfStream, TShark, TcpTrace, Twice, Untrained};
use crate::capture::CaptureSpec;
use crate::options::Mode;

pub type Cell = manyways_rig::cell::Cell<Contender, Setting>;

#[derive(Clone, Debug, Default)]
pub struct Setting {
    pub capture: CaptureSpec,
    /// Whether the capture is read from a pipe while it is created.
    pub is_stream: bool,
}

const fn own(threads: u8, tables: bool) -> Contender {
    Manyways { threads, tables }
}

/// Contenders that read packet headers.
const OF_HEADERS: [Contender; 10] = [
    own(1, false),
    own(1, true),
    own(2, false),
    own(2, true),
    Untrained { threads: 1 },
    Untrained { threads: 2 },
    Twice,
    TShark,
    TcpTrace,
    NfStream,
];
/// Contenders that read whole packets.
const OF_WHOLE: [Contender; 4] = [own(1, false), own(2, false), Untrained { threads: 1 }, Twice];

/// All cells of a mode.
pub fn plan(mode: Mode) -> Vec<Cell> {
    let is_quick = mode == Mode::Quick;
    let rounds = if is_quick { 3 } else { 5 };
    let cell = |part, name: &str, title: String, shape, contenders: &[Contender]| Cell {
        name: name.to_owned(),
        part,
        title,
        contenders: contenders.to_vec(),
        rounds: if part < 'c' { rounds } else { 3 },
        setting: Setting { capture: shape, is_stream: part >= 'c' },
        ..Cell::default()
    };
    let shape = |flows, packets, snap, lasts| CaptureSpec {
        flows,
        packets,
        snap,
        duration: lasts,
        open: false,
    };
    let millions = if is_quick { 1 } else { 3 };
    let whole = if is_quick { 500_000 } else { 1_500_000 };
    let mut cells = vec![
        cell(
            'a',
            "headers",
            format!("{millions} million packets of 20,000 connections, 96 bytes of each"),
            shape(20_000, millions * 1_000_000, 96, 60),
            &OF_HEADERS,
        ),
        cell(
            'b',
            "whole",
            "Whole packets, most of 1,514 bytes".to_owned(),
            shape(8_000, whole, 65_535, 60),
            &OF_WHOLE,
        ),
    ];
    for flows in [2_000, 200_000] {
        let title = format!("{flows} connections of about 20 packets that do not end");
        let shape = CaptureSpec { open: true, ..shape(flows, u64::from(flows) * 20, 96, 20) };
        cells.push(cell('c', &format!("alive-{flows}"), title, shape, &[own(1, false)]));
    }
    let growth: &[u64] = match mode {
        Mode::Quick => &[1],
        Mode::Default => &[1, 10],
        Mode::Full => &[1, 10, 100],
    };
    for millions in growth {
        let title = format!("{millions} million packets, as many in a second in each of these");
        let packets = millions * 1_000_000;
        let shape = shape((packets / 150) as u32, packets, 96, millions * 20);
        let cell = cell('d', &format!("grown-{millions}M"), title, shape, &[own(1, false)]);
        let rounds = if *millions == 100 { 1 } else { cell.rounds };
        cells.push(Cell { rounds, ..cell });
    }
    cells
}
