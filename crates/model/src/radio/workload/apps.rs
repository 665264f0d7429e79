//! Behaviour of applications: the seven categories of a study of radio energy from 2011, as
//! described in its text (S. Deng and H. Balakrishnan, "Traffic-aware techniques to reduce 3G/LTE
//! wireless energy consumption", CoNEXT 2012, and Deng's thesis, §4.6.1). The study specifies how
//! often each category sends; sizes, variation and everything else are ours.
//!
//! These parameters were fixed before any policy was run on the traces. They are not tuned.

use super::super::{Direction, Draw};
use super::exchange::Exchange;

/// A repeated activity of an application.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    /// Seconds between repetitions.
    pub every: Draw,
    /// Whether waits are longer at night and shorter by day, because users cause the activity.
    pub has_rhythm: bool,
    /// Number of parallel exchanges: rounded, at least one.
    pub exchanges: Draw,
    pub exchange: Exchange,
}

/// A category of applications and its traffic (thesis, section 4.6.1).
#[derive(Clone, Copy, Debug)]
pub struct App {
    /// Name of the category.
    pub name: &'static str,
    /// Activities at any time.
    pub background: &'static [Activity],
    /// Activities while the application is in use.
    pub in_use: &'static [Activity],
    /// Whether the application is in use all the time in a trace without other applications; otherwise never.
    pub is_used_alone: bool,
    /// Share of users who have the application.
    pub installed: f64,
    /// Relative frequency of use among a user's applications.
    pub weight: f64,
}

const ONE: Draw = Draw::Always(1.0);
const NOTHING: Draw = Draw::Always(0.0);
/// Think time of servers in seconds.
const THINKS: Draw = Draw::LogNormal { median: 0.08, sigma: 1.0, most: 5.0 };
/// Seconds until a server closes an unused connection; most servers use a timer of some seconds.
const CLOSES: Draw = Draw::Either(0.5, &Draw::Uniform(0.0, 0.5), &Draw::Uniform(3.0, 16.0));

/// A short message on a persistent connection, and its answer.
const HEARTBEAT: Exchange = Exchange {
    connects: 0.0,
    secures: 0.0,
    begins: Direction::Up,
    up: Draw::Uniform(20.0, 80.0),
    thinks: Draw::Uniform(0.001, 0.02),
    down: Draw::Uniform(10.0, 80.0),
    closes: NOTHING,
};

/// A request over a new connection.
const fn asks(up: Draw, down: Draw) -> Exchange {
    Exchange {
        connects: 1.0,
        secures: 0.5,
        begins: Direction::Up,
        up,
        thinks: THINKS,
        down,
        closes: CLOSES,
    }
}

const fn once(every: Draw, exchange: Exchange) -> Activity {
    Activity { every, has_rhythm: false, exchanges: ONE, exchange }
}

const REQUEST: Draw = Draw::LogNormal { median: 500.0, sigma: 0.5, most: 4_000.0 };
const TEXT: Draw = Draw::LogNormal { median: 6e3, sigma: 1.0, most: 3e5 };
const PICTURE: Draw = Draw::LogNormal { median: 2.5e4, sigma: 1.1, most: 2e6 };

/// A news reader that also fetches news in the background.
pub const NEWS: App = App {
    name: "news",
    background: &[once(Draw::Uniform(110.0, 130.0), asks(REQUEST, TEXT))],
    in_use: &[Activity {
        every: Draw::LogNormal { median: 25.0, sigma: 1.0, most: 300.0 },
        has_rhythm: false,
        exchanges: Draw::Uniform(1.0, 5.0),
        exchange: asks(REQUEST, PICTURE),
    }],
    is_used_alone: false,
    installed: 0.6,
    weight: 0.15,
};

/// Instant messages: a heartbeat every 5 to 20 s, and messages of users.
pub const IM: App = App {
    name: "im",
    background: &[
        once(Draw::Uniform(5.0, 20.0), HEARTBEAT),
        Activity {
            every: Draw::Pareto { least: 20.0, shape: 0.9, most: 7_200.0 },
            has_rhythm: true,
            exchanges: ONE,
            exchange: Exchange {
                begins: Direction::Down,
                down: Draw::LogNormal { median: 300.0, sigma: 0.8, most: 2e4 },
                ..HEARTBEAT
            },
        },
    ],
    in_use: &[Activity {
        every: Draw::LogNormal { median: 9.0, sigma: 0.9, most: 120.0 },
        has_rhythm: false,
        exchanges: ONE,
        exchange: Exchange {
            up: Draw::LogNormal { median: 250.0, sigma: 0.8, most: 2e4 },
            ..HEARTBEAT
        },
    }],
    is_used_alone: false,
    installed: 0.8,
    weight: 0.25,
};

/// A microblog, fetched in the background.
pub const MICROBLOG: App = App {
    name: "microblog",
    background: &[once(
        Draw::LogNormal { median: 90.0, sigma: 0.3, most: 600.0 },
        asks(REQUEST, Draw::LogNormal { median: 8e3, sigma: 1.0, most: 3e5 }),
    )],
    in_use: &[Activity {
        every: Draw::LogNormal { median: 15.0, sigma: 1.0, most: 180.0 },
        has_rhythm: false,
        exchanges: Draw::Uniform(1.0, 4.0),
        exchange: asks(REQUEST, PICTURE),
    }],
    is_used_alone: false,
    installed: 0.5,
    weight: 0.15,
};

/// An offline game with an advertisement that changes about once a minute.
pub const GAME_AD: App = App {
    name: "game-ad",
    background: &[],
    in_use: &[Activity {
        every: Draw::Uniform(55.0, 65.0),
        has_rhythm: false,
        exchanges: Draw::Uniform(1.0, 2.0),
        exchange: asks(REQUEST, Draw::LogNormal { median: 1.5e4, sigma: 0.6, most: 1.5e5 }),
    }],
    is_used_alone: true,
    installed: 0.4,
    weight: 0.15,
};

/// Mail, fetched every five minutes; one fetch in five finds new mail.
pub const EMAIL: App = App {
    name: "email",
    background: &[Activity {
        every: Draw::Uniform(295.0, 305.0),
        has_rhythm: false,
        exchanges: ONE,
        exchange: Exchange {
            secures: 1.0,
            ..asks(
                Draw::Uniform(200.0, 600.0),
                Draw::Either(
                    0.2,
                    &Draw::Pareto { least: 4e3, shape: 1.1, most: 5e6 },
                    &Draw::Uniform(200.0, 800.0),
                ),
            )
        },
    }],
    in_use: &[Activity {
        every: Draw::LogNormal { median: 30.0, sigma: 1.0, most: 300.0 },
        has_rhythm: false,
        exchanges: ONE,
        exchange: asks(REQUEST, TEXT),
    }],
    is_used_alone: false,
    installed: 1.0,
    weight: 0.1,
};

/// A social network: the user reads, opens pictures and comments. In the background it fetches news
/// every half hour.
pub const SOCIAL: App = App {
    name: "social",
    background: &[once(Draw::Uniform(1_780.0, 1_820.0), asks(REQUEST, TEXT))],
    in_use: &[
        Activity {
            every: Draw::LogNormal { median: 10.0, sigma: 1.0, most: 240.0 },
            has_rhythm: false,
            exchanges: Draw::Uniform(1.0, 6.0),
            exchange: asks(REQUEST, PICTURE),
        },
        once(
            Draw::LogNormal { median: 90.0, sigma: 1.0, most: 900.0 },
            asks(Draw::LogNormal { median: 2e3, sigma: 1.5, most: 2e6 }, TEXT),
        ),
    ],
    is_used_alone: true,
    installed: 0.8,
    weight: 0.4,
};

/// Stock quotes, about once a second while in use.
pub const FINANCE: App = App {
    name: "finance",
    background: &[],
    in_use: &[once(
        Draw::Uniform(0.8, 1.2),
        Exchange {
            up: Draw::Uniform(150.0, 300.0),
            thinks: Draw::LogNormal { median: 0.03, sigma: 0.6, most: 1.0 },
            down: Draw::LogNormal { median: 700.0, sigma: 0.5, most: 5_000.0 },
            ..HEARTBEAT
        },
    )],
    is_used_alone: true,
    installed: 0.15,
    weight: 0.05,
};

pub const APPS: [App; 7] = [NEWS, IM, MICROBLOG, GAME_AD, EMAIL, SOCIAL, FINANCE];

/// Differences between users.
pub mod user {
    use super::Draw;

    /// Round-trip time to servers in seconds.
    pub const ROUND_TRIP: Draw = Draw::LogNormal { median: 0.13, sigma: 0.35, most: 0.5 };
    /// Factor of the round-trip time for each exchange.
    pub const ROUND_TRIP_VARIES: Draw = Draw::LogNormal { median: 1.0, sigma: 0.15, most: 3.0 };
    /// Downlink rate in bit/s.
    pub const RATE_DOWN: Draw = Draw::Uniform(1.5e6, 6e6);
    /// Uplink rate in bit/s.
    pub const RATE_UP: Draw = Draw::Uniform(0.5e6, 2e6);
    /// Share of lost packets.
    pub const LOSS: f64 = 0.003;
    /// Factor of the waits for each application.
    pub const PACE: Draw = Draw::LogNormal { median: 1.0, sigma: 0.2, most: 3.0 };
    /// Visits per day.
    pub const VISITS: Draw = Draw::LogNormal { median: 45.0, sigma: 0.5, most: 200.0 };
    /// Seconds of a visit.
    pub const VISIT: Draw = Draw::LogNormal { median: 60.0, sigma: 1.2, most: 3_600.0 };
    /// Relative activity of users in each hour of the day; the mean is about 1.
    pub const RHYTHM: [f64; 24] = [
        0.25, 0.12, 0.06, 0.05, 0.06, 0.15, 0.4, 0.8, 1.1, 1.2, 1.2, 1.3, 1.5, 1.3, 1.2, 1.2, 1.3,
        1.5, 1.6, 1.6, 1.7, 1.6, 1.3, 0.7,
    ];
}
