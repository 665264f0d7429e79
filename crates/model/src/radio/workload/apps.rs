//! Behaviour of applications: the seven categories of a study of radio energy from 2011, as
//! described in its text (S. Deng and H. Balakrishnan, "Traffic-aware techniques to reduce 3G/LTE
//! wireless energy consumption", CoNEXT 2012, and Deng's thesis, §4.6.1). The study specifies how
//! often each category sends; sizes, variation and everything else are ours.
//!
//! These parameters were fixed before any policy was run on the traces. They are not tuned.

use super::super::{Direction, Sampler};
use super::exchange::Exchange;

/// A repeated activity of an application.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    /// Seconds between repetitions.
    pub interval: Sampler,
    /// Whether waits are longer at night and shorter by day, because users cause the activity.
    pub is_diurnal: bool,
    /// Number of parallel exchanges: rounded, at least one.
    pub exchange_count: Sampler,
    pub exchange: Exchange,
}

/// A category of applications and its traffic (thesis, section 4.6.1).
#[derive(Clone, Copy, Debug)]
pub struct AppModel {
    /// Name of the category.
    pub name: &'static str,
    /// Activities at any time.
    pub background: &'static [Activity],
    /// Activities while the application is in use.
    pub foreground: &'static [Activity],
    /// Whether the application is in use all the time in a trace without other applications;
    /// otherwise never.
    pub is_foreground_alone: bool,
    /// Share of users who have the application.
    pub install_share: f64,
    /// Relative frequency of use among a user's applications.
    pub usage_weight: f64,
}

const ONE: Sampler = Sampler::Constant(1.0);
const NOTHING: Sampler = Sampler::Constant(0.0);
/// Think time of servers in seconds.
const THINK_TIME: Sampler = Sampler::LogNormal { median: 0.08, sigma: 1.0, max: 5.0 };
/// Seconds until a server closes an unused connection; most servers use a timer of some seconds.
const CLOSE_TIMEOUT: Sampler =
    Sampler::Mixture(0.5, &Sampler::Uniform(0.0, 0.5), &Sampler::Uniform(3.0, 16.0));

/// A short message on a persistent connection, and its answer.
const HEARTBEAT: Exchange = Exchange {
    connect_probability: 0.0,
    tls_probability: 0.0,
    first_direction: Direction::Up,
    up: Sampler::Uniform(20.0, 80.0),
    think_time: Sampler::Uniform(0.001, 0.02),
    down: Sampler::Uniform(10.0, 80.0),
    close_delay: NOTHING,
};

/// A request over a new connection.
const fn request(up: Sampler, down: Sampler) -> Exchange {
    Exchange {
        connect_probability: 1.0,
        tls_probability: 0.5,
        first_direction: Direction::Up,
        up,
        think_time: THINK_TIME,
        down,
        close_delay: CLOSE_TIMEOUT,
    }
}

const fn single_exchange(sampler: Sampler, exchange: Exchange) -> Activity {
    Activity { interval: sampler, is_diurnal: false, exchange_count: ONE, exchange }
}

const REQUEST: Sampler = Sampler::LogNormal { median: 500.0, sigma: 0.5, max: 4_000.0 };
const TEXT: Sampler = Sampler::LogNormal { median: 6e3, sigma: 1.0, max: 3e5 };
const PICTURE: Sampler = Sampler::LogNormal { median: 2.5e4, sigma: 1.1, max: 2e6 };

/// A news reader that also fetches news in the background.
pub const NEWS: AppModel = AppModel {
    name: "news",
    background: &[single_exchange(Sampler::Uniform(110.0, 130.0), request(REQUEST, TEXT))],
    foreground: &[Activity {
        interval: Sampler::LogNormal { median: 25.0, sigma: 1.0, max: 300.0 },
        is_diurnal: false,
        exchange_count: Sampler::Uniform(1.0, 5.0),
        exchange: request(REQUEST, PICTURE),
    }],
    is_foreground_alone: false,
    install_share: 0.6,
    usage_weight: 0.15,
};

/// Instant messages: a heartbeat every 5 to 20 s, and messages of users.
pub const IM: AppModel = AppModel {
    name: "im",
    background: &[
        single_exchange(Sampler::Uniform(5.0, 20.0), HEARTBEAT),
        Activity {
            interval: Sampler::Pareto { scale: 20.0, shape: 0.9, max: 7_200.0 },
            is_diurnal: true,
            exchange_count: ONE,
            exchange: Exchange {
                first_direction: Direction::Down,
                down: Sampler::LogNormal { median: 300.0, sigma: 0.8, max: 2e4 },
                ..HEARTBEAT
            },
        },
    ],
    foreground: &[Activity {
        interval: Sampler::LogNormal { median: 9.0, sigma: 0.9, max: 120.0 },
        is_diurnal: false,
        exchange_count: ONE,
        exchange: Exchange {
            up: Sampler::LogNormal { median: 250.0, sigma: 0.8, max: 2e4 },
            ..HEARTBEAT
        },
    }],
    is_foreground_alone: false,
    install_share: 0.8,
    usage_weight: 0.25,
};

/// A microblog, fetched in the background.
pub const MICROBLOG: AppModel = AppModel {
    name: "microblog",
    background: &[single_exchange(
        Sampler::LogNormal { median: 90.0, sigma: 0.3, max: 600.0 },
        request(REQUEST, Sampler::LogNormal { median: 8e3, sigma: 1.0, max: 3e5 }),
    )],
    foreground: &[Activity {
        interval: Sampler::LogNormal { median: 15.0, sigma: 1.0, max: 180.0 },
        is_diurnal: false,
        exchange_count: Sampler::Uniform(1.0, 4.0),
        exchange: request(REQUEST, PICTURE),
    }],
    is_foreground_alone: false,
    install_share: 0.5,
    usage_weight: 0.15,
};

/// An offline game with an advertisement that changes about once a minute.
pub const GAME_AD: AppModel = AppModel {
    name: "game-ad",
    background: &[],
    foreground: &[Activity {
        interval: Sampler::Uniform(55.0, 65.0),
        is_diurnal: false,
        exchange_count: Sampler::Uniform(1.0, 2.0),
        exchange: request(REQUEST, Sampler::LogNormal { median: 1.5e4, sigma: 0.6, max: 1.5e5 }),
    }],
    is_foreground_alone: true,
    install_share: 0.4,
    usage_weight: 0.15,
};

/// Mail, fetched every five minutes; one fetch in five finds new mail.
pub const EMAIL: AppModel = AppModel {
    name: "email",
    background: &[Activity {
        interval: Sampler::Uniform(295.0, 305.0),
        is_diurnal: false,
        exchange_count: ONE,
        exchange: Exchange {
            tls_probability: 1.0,
            ..request(
                Sampler::Uniform(200.0, 600.0),
                Sampler::Mixture(
                    0.2,
                    &Sampler::Pareto { scale: 4e3, shape: 1.1, max: 5e6 },
                    &Sampler::Uniform(200.0, 800.0),
                ),
            )
        },
    }],
    foreground: &[Activity {
        interval: Sampler::LogNormal { median: 30.0, sigma: 1.0, max: 300.0 },
        is_diurnal: false,
        exchange_count: ONE,
        exchange: request(REQUEST, TEXT),
    }],
    is_foreground_alone: false,
    install_share: 1.0,
    usage_weight: 0.1,
};

/// A social network: the user reads, opens pictures and comments. In the background it fetches news
/// every half hour.
pub const SOCIAL: AppModel = AppModel {
    name: "social",
    background: &[single_exchange(Sampler::Uniform(1_780.0, 1_820.0), request(REQUEST, TEXT))],
    foreground: &[
        Activity {
            interval: Sampler::LogNormal { median: 10.0, sigma: 1.0, max: 240.0 },
            is_diurnal: false,
            exchange_count: Sampler::Uniform(1.0, 6.0),
            exchange: request(REQUEST, PICTURE),
        },
        single_exchange(
            Sampler::LogNormal { median: 90.0, sigma: 1.0, max: 900.0 },
            request(Sampler::LogNormal { median: 2e3, sigma: 1.5, max: 2e6 }, TEXT),
        ),
    ],
    is_foreground_alone: true,
    install_share: 0.8,
    usage_weight: 0.4,
};

/// Stock quotes, about once a second while in use.
pub const FINANCE: AppModel = AppModel {
    name: "finance",
    background: &[],
    foreground: &[single_exchange(
        Sampler::Uniform(0.8, 1.2),
        Exchange {
            up: Sampler::Uniform(150.0, 300.0),
            think_time: Sampler::LogNormal { median: 0.03, sigma: 0.6, max: 1.0 },
            down: Sampler::LogNormal { median: 700.0, sigma: 0.5, max: 5_000.0 },
            ..HEARTBEAT
        },
    )],
    is_foreground_alone: true,
    install_share: 0.15,
    usage_weight: 0.05,
};

pub const APPS: [AppModel; 7] = [NEWS, IM, MICROBLOG, GAME_AD, EMAIL, SOCIAL, FINANCE];

/// Differences between users.
pub mod user {
    use super::Sampler;

    /// Round-trip time to servers in seconds.
    pub const ROUND_TRIP: Sampler = Sampler::LogNormal { median: 0.13, sigma: 0.35, max: 0.5 };
    /// Factor of the round-trip time for each exchange.
    pub const ROUND_TRIP_FACTOR: Sampler =
        Sampler::LogNormal { median: 1.0, sigma: 0.15, max: 3.0 };
    /// Downlink rate in bit/s.
    pub const RATE_DOWN: Sampler = Sampler::Uniform(1.5e6, 6e6);
    /// Uplink rate in bit/s.
    pub const RATE_UP: Sampler = Sampler::Uniform(0.5e6, 2e6);
    /// Share of lost packets.
    pub const LOSS: f64 = 0.003;
    /// Factor of the waits for each application.
    pub const WAIT_FACTOR: Sampler = Sampler::LogNormal { median: 1.0, sigma: 0.2, max: 3.0 };
    /// Visits per day.
    pub const VISITS_PER_DAY: Sampler = Sampler::LogNormal { median: 45.0, sigma: 0.5, max: 200.0 };
    /// Seconds of a visit.
    pub const VISIT_DURATION: Sampler =
        Sampler::LogNormal { median: 60.0, sigma: 1.2, max: 3_600.0 };
    /// Relative activity of users in each hour of the day; the mean is about 1.
    pub const DAILY_ACTIVITY: [f64; 24] = [
        0.25, 0.12, 0.06, 0.05, 0.06, 0.15, 0.4, 0.8, 1.1, 1.2, 1.2, 1.3, 1.5, 1.3, 1.2, 1.2, 1.3,
        1.5, 1.6, 1.6, 1.7, 1.6, 1.3, 0.7,
    ];
}
