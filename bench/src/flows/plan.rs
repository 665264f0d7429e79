//! The plan: captures and their contenders.

use super::capture::Shape;
use super::contender::Contender;
use crate::options::Mode;

pub type Cell = manyways_rig::cell::Cell<Contender, Setting>;

#[derive(Clone, Debug, Default)]
pub struct Setting {
    pub shape: Shape,
    /// Whether the capture is read from a pipe while it is created.
    pub is_stream: bool,
}

/// All cells of a mode.
pub fn plan(mode: Mode) -> Vec<Cell> {
    use Contender::{Manyways, NfStream, TShark, TcpTrace, Twice, Untrained};
    let is_quick = mode == Mode::Quick;
    let own = |threads, tables| Manyways { threads, tables };
    let one = || vec![own(1, false)];
    let several = if is_quick { 3 } else { 5 };
    let cell = |part, name: String, title: String, shape, is_stream, contenders, rounds| Cell {
        name,
        part,
        title,
        contenders,
        rounds,
        setting: Setting { shape, is_stream },
        ..Cell::default()
    };
    let millions = if is_quick { 1 } else { 3 };
    let mut cells = Vec::new();
    let shape =
        Shape { flows: 20_000, packets: millions * 1_000_000, snap: 96, lasts: 60, open: false };
    cells.push(cell(
        'a',
        "headers".to_owned(),
        format!("{millions} million packets of 20,000 connections, 96 bytes of each"),
        shape,
        false,
        vec![
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
        ],
        several,
    ));
    let shape = Shape {
        flows: 8_000,
        packets: if is_quick { 500_000 } else { 1_500_000 },
        snap: 65_535,
        lasts: 60,
        open: false,
    };
    let title = "Whole packets, most of 1,514 bytes".to_owned();
    let both = vec![own(1, false), own(2, false), Untrained { threads: 1 }, Twice];
    cells.push(cell('b', "whole".to_owned(), title, shape, false, both, several));
    for flows in [2_000, 200_000] {
        let shape =
            Shape { flows, packets: u64::from(flows) * 20, snap: 96, lasts: 20, open: true };
        let title = format!("{flows} connections of about 20 packets that do not end");
        let rounds = several.min(3);
        cells.push(cell('c', format!("alive-{flows}"), title, shape, true, one(), rounds));
    }
    let growth: &[u64] = match mode {
        Mode::Quick => &[1],
        Mode::Default => &[1, 10],
        Mode::Full => &[1, 10, 100],
    };
    for millions in growth {
        let packets = millions * 1_000_000;
        let shape = Shape {
            flows: (packets / 150) as u32,
            packets,
            snap: 96,
            lasts: millions * 20,
            open: false,
        };
        let title = format!("{millions} million packets, as many in a second in each of these");
        let rounds = if *millions == 100 { 1 } else { several.min(3) };
        cells.push(cell('d', format!("grown-{millions}M"), title, shape, true, one(), rounds));
    }
    cells
}

/// Estimated duration of a cell in seconds.
pub fn seconds(cell: &Cell) -> f64 {
    let packets = cell.setting.shape.packets as f64;
    let each: f64 = cell.contenders.iter().map(|who| packets / who.packets_per_second()).sum();
    // A pipe is as slow as the process that creates the packets.
    let made = packets / 1.5e6;
    f64::from(cell.rounds) * (each + if cell.setting.is_stream { made } else { 0.0 }) + made
}
