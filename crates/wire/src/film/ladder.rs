//! Ladders of rates with their sources.

use manyways_unit::{Rate, Span};

/// One rung of a ladder: its rate, and the picture that its manifest declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub rate: Rate,
    pub width: u16,
    pub height: u16,
}

/// Rates that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Ladder {
    pub name: &'static str,
    /// Duration of a segment.
    pub segment: Span,
    /// Rising.
    pub steps: &'static [Step],
}

const fn step(kbps: u64, width: u16, height: u16) -> Step {
    Step { rate: Rate::from_kbps(kbps), width, height }
}

/// The ladders.
pub const LADDERS: [Ladder; 4] = [
    // MP-H2 (section 5.4) has nine rungs from 253 kbit/s to 10 Mbit/s in segments of 6 s. Those
    // between are ours: the ones of DASH-IF's film below, whose ends are nearly the same.
    Ladder {
        name: "mp-h2",
        segment: Span::from_secs(6),
        steps: &[
            step(253, 320, 180),
            step(507, 320, 180),
            step(760, 480, 270),
            step(1_013, 640, 360),
            step(1_255, 640, 360),
            step(1_884, 768, 432),
            step(3_134, 1_024, 576),
            step(4_953, 1_280, 720),
            step(10_000, 1_920, 1_080),
        ],
    },
    // Mobilyzer (section 4.5) has five rungs from 144p to 720p, the highest with 2,193 kbit/s, in
    // two minutes. The lower rates are ours, at the usual ratio of one to the next.
    Ladder {
        name: "mobilyzer",
        segment: Span::from_secs(5),
        steps: &[
            step(110, 256, 144),
            step(246, 426, 240),
            step(616, 640, 360),
            step(1_117, 854, 480),
            step(2_193, 1_280, 720),
        ],
    },
    // Apple, "HLS authoring specification for Apple devices", the table of H.264 at 16:9.
    Ladder {
        name: "apple",
        segment: Span::from_secs(6),
        steps: &[
            step(145, 416, 234),
            step(365, 640, 360),
            step(730, 768, 432),
            step(1_100, 768, 432),
            step(2_000, 960, 540),
            step(3_000, 1_280, 720),
            step(4_500, 1_280, 720),
            step(6_000, 1_920, 1_080),
            step(7_800, 1_920, 1_080),
        ],
    },
    // "Big Buck Bunny" at 30 pictures a second, the test film of the DASH Industry Forum, with its
    // 4K rung and segments of 4 s; rates rounded to kbit/s.
    Ladder {
        name: "dash-if",
        segment: Span::from_secs(4),
        steps: &[
            step(254, 320, 180),
            step(507, 320, 180),
            step(760, 480, 270),
            step(1_013, 640, 360),
            step(1_255, 640, 360),
            step(1_884, 768, 432),
            step(3_134, 1_024, 576),
            step(4_953, 1_280, 720),
            step(9_915, 1_920, 1_080),
            step(14_932, 3_840, 2_160),
        ],
    },
];

/// A rung of this rate with a plausible picture: the one that the ladders have near it.
pub fn picture_for(rate: Rate) -> Step {
    let (width, height) = match rate.as_bps() / 1_000 {
        0..200 => (256, 144),
        200..500 => (426, 240),
        500..1_100 => (640, 360),
        1_100..2_000 => (854, 480),
        2_000..5_000 => (1_280, 720),
        5_000..12_000 => (1_920, 1_080),
        _ => (3_840, 2_160),
    };
    Step { rate, width, height }
}
