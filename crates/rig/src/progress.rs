//! Progress of a benchmark on standard error.

use std::io::{self, IsTerminal, Write};

use manyways_sys::clock::Clock;

/// Progress of a benchmark and its remaining time.
pub struct Progress {
    clock: Clock,
    terminal: bool,
    /// Expected seconds of the finished cells, and of all cells.
    done_seconds: f64,
    total_seconds: f64,
    cells: usize,
    cell_number: usize,
}

impl Progress {
    /// Starts with `wanted` cells, which take `all` seconds in total; `kept` cells have results
    /// already.
    pub fn new(wanted: usize, kept: usize, all: f64) -> Self {
        let words = if kept > 0 { format!(", {kept} are there") } else { String::new() };
        eprintln!("{wanted} cells{words}; about {:.0} minutes", (all / 60.0).abs());
        let terminal = io::stderr().is_terminal();
        Self {
            clock: Clock::start(),
            terminal,
            done_seconds: 0.0,
            total_seconds: all,
            cells: wanted,
            cell_number: 1,
        }
    }

    /// Prints that `round` of `rounds` rounds of a cell are done; the whole cell takes `estimate`
    /// seconds.
    pub fn print(&self, cell: &str, estimate: f64, (round, rounds): (u32, u32)) {
        let share = f64::from(round) / f64::from(rounds.max(1));
        let over = self.done_seconds + estimate * share;
        let passed = self.clock.now().as_secs_f64();
        // Scales the estimate by the ratio of elapsed to estimated time so far.
        let remaining =
            (self.total_seconds - over) * (passed / over.max(1.0)).clamp(0.3, 3.0) / 60.0;
        let (begin, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        eprint!(
            "{begin}cell {} of {}, {cell}: round {round} of {rounds}; {remaining:.0} min left{end}",
            self.cell_number, self.cells
        );
        // A closed terminal does not stop the benchmark.
        let _ = io::stderr().flush();
    }

    /// Marks the current cell as done; `estimate` is in seconds.
    pub fn finish(&mut self, estimate: f64) {
        self.done_seconds += estimate;
        self.cell_number += 1;
    }

    /// Clears the progress line on a terminal before other output.
    pub fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }
}
