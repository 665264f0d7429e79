//! Where a run is, on standard error.

use std::io::{self, IsTerminal, Write};

use manyways_sys::clock::Clock;

/// Where the run is, and how long the rest will take.
pub struct Progress {
    clock: Clock,
    terminal: bool,
    /// Seconds that what is over was expected to take, and all.
    over: f64,
    all: f64,
    cells: usize,
    number: usize,
}

impl Progress {
    /// So many cells are to be measured, in `all` seconds, and so many are there already.
    pub fn new(wanted: usize, kept: usize, all: f64) -> Self {
        let words = if kept > 0 { format!(", {kept} are there") } else { String::new() };
        eprintln!("{wanted} cells{words}; about {:.0} minutes", (all / 60.0).abs());
        let terminal = io::stderr().is_terminal();
        Self { clock: Clock::start(), terminal, over: 0.0, all, cells: wanted, number: 1 }
    }

    /// So many rounds of a cell are over, which takes `estimate` seconds in all.
    pub fn tell(&self, cell: &str, estimate: f64, (round, rounds): (u32, u32)) {
        let share = f64::from(round) / f64::from(rounds.max(1));
        let over = self.over + estimate * share;
        let passed = self.clock.now().as_secs_f64();
        // What it took so far says more about the rest than the estimate does.
        let left = (self.all - over) * (passed / over.max(1.0)).clamp(0.3, 3.0) / 60.0;
        let (begin, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        eprint!(
            "{begin}cell {} of {}, {cell}: round {round} of {rounds}; {left:.0} min left{end}",
            self.number, self.cells
        );
        // A terminal that went away is no reason to stop.
        let _ = io::stderr().flush();
    }

    /// A cell is over.
    pub fn finish(&mut self, estimate: f64) {
        self.over += estimate;
        self.number += 1;
    }

    /// Makes room on the terminal for other words.
    pub fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    /// Since the beginning.
    pub fn seconds(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }
}
