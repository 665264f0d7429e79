//! Target values of `manyways probe`, and whether they were met.

use manyways_rig::sample::median;
use manyways_rig::target::{Bound, Figure, Target, every_figure, target, told};

use super::packets::PHASES;
use super::record::{Record, networks, values};

/// Bytes of a receive window of TCP, which may be under way when a probe stops.
const RECEIVE_WINDOW: f64 = 6.0 * 1_048_576.0;
/// Smallest and largest ratio of the loaded round trip to that of the emulator.
const LOADED: (f64, f64) = (0.9, 1.1);
/// Smallest share of routes on which the right hop is named.
const RIGHT_HOPS: f64 = 0.95;

/// All targets with their measured values.
pub fn targets(cells: &[Record]) -> Vec<Target> {
    use Bound::{AtMost, Higher, Lower};
    let ping = |contender: &'static str| {
        each(cells, "a", &[contender], |cell, contender, network| {
            difference(cell, contender, network, "median, ms")
        })
    };
    let rate = |start: &'static str| {
        each(cells, "b", &["down", "up"], move |cell, way, network| {
            relative(cell, &format!("{start} {way}"), network)
        })
    };
    let early_bytes = each(cells, "b", &["down", "up"], |cell, way, network| {
        let bytes = |start: &str| {
            median(values(cell, &format!("{start} {way}"), network, "bytes").into_values())
        };
        Some(bytes("early")? / bytes("full")?)
    });
    let worst_rate = each(cells, "b", &["full down", "full up"], |cell, contender, network| {
        worst_relative(cell, contender, network)
    });
    let loss = |name: &'static str, bound: f64| {
        let figures = each(cells, name, &["probe down", "probe up"], |cell, contender, network| {
            worst_difference(cell, contender, network, "loss, %")
        });
        every_figure(
            format!("udp: difference to the loss of the link, points, {name}"),
            AtMost(bound),
            figures,
        )
    };
    let reordered = each(cells, "udp-reordered", &["probe down"], |cell, contender, network| {
        worst_difference(cell, contender, network, "reordered")
    });
    let loaded = |truth: &'static str| {
        each(cells, "d", &["down", "up"], move |cell, contender, network| {
            ratio(cell, contender, network, "loaded, ms", truth)
        })
    };
    let phases = PHASES.iter().flat_map(|phase| {
        let figures =
            each(cells, "f", &["http", "https h1", "https h2"], |cell, contender, network| {
                difference(cell, contender, network, &format!("{phase}, ms"))
            });
        let named = |figure: Figure| Figure::new(format!("{phase}, {}", figure.case), figure.value);
        figures.into_iter().map(named).collect::<Vec<_>>()
    });
    let answer = |contender: &'static str| {
        each(cells, "g", &[contender], |cell, contender, network| {
            difference(cell, contender, network, "answer, ms")
        })
    };
    let iperf3 = each(cells, "b", &["iperf3 down", "iperf3 up"], relative);
    let other_loss = each(cells, "c", &["iperf3 down", "iperf3 up"], |cell, contender, network| {
        worst_difference(cell, contender, network, "loss, %")
    });
    vec![
        every_figure(
            "ping by ICMP: difference to the round trip of the link, ms",
            AtMost(0.5),
            ping("probe icmp"),
        ),
        every_figure(
            "ping by TCP: difference to the round trip of the link, ms",
            AtMost(0.5),
            ping("probe tcp"),
        ),
        every_figure("fping: difference to the round trip of the link, ms", Lower, ping("fping")),
        every_figure("tcp --full: difference to link × 1448/1500, %", AtMost(3.0), rate("full")),
        every_figure("tcp --full: the same of the worst run, %", Lower, worst_rate),
        every_figure(
            "tcp, early stop: difference to link × 1448/1500, %",
            AtMost(5.0),
            rate("early"),
        ),
        every_figure("tcp, early stop: bytes / bytes of --full", AtMost(0.5), early_bytes),
        every_figure("iperf3: difference to link × 1448/1500, %", Lower, iperf3),
        loss("udp-down-0.2", 0.1),
        loss("udp-down-2", 0.2),
        loss("udp-up-2", 0.2),
        loss("udp-down-10", 0.5),
        every_figure(
            "udp: difference to the reordered datagrams in a capture",
            AtMost(0.0),
            reordered,
        ),
        every_figure("iperf3: difference to the loss of the link, points", Lower, other_loss),
        within(
            "load: loaded round trip / (base + what waited in the queue)",
            loaded("true loaded, ms"),
        ),
        told("load: loaded round trip / (base + limit of the queue)", loaded("true limit, ms")),
        hops(cells, "trace-delay-probe", "trace: right hop where a delay of 40 ms begins", true),
        hops(cells, "trace-loss-probe", "trace: right hop where a loss of 3 % begins", true),
        hops(cells, "trace-delay-mtr", "mtr: right hop where a delay of 40 ms begins", false),
        hops(cells, "trace-loss-mtr", "mtr: right hop where a loss of 3 % begins", false),
        every_figure(
            "compare: winner of 1 MB, begun 1 s later, right",
            Bound::AtLeast(0.8),
            forecast(cells, "after 01 s", "right"),
        ),
        every_figure(
            "compare: begun 1 s later, unsure",
            AtMost(0.2),
            forecast(cells, "after 01 s", "unsure"),
        ),
        every_figure(
            "always Wi-Fi, always LTE or last winner, begun 1 s later, right",
            Higher,
            forecast(cells, "after 01 s", "best baseline"),
        ),
        every_figure(
            "compare: begun 30 s later, right",
            Higher,
            forecast(cells, "after 30 s", "right"),
        ),
        every_figure(
            "always Wi-Fi, always LTE or last winner, begun 30 s later, right",
            Higher,
            forecast(cells, "after 30 s", "best baseline"),
        ),
        every_figure(
            "http: difference to the phase in a capture, ms",
            AtMost(1.0),
            phases.collect(),
        ),
        every_figure("dns: difference to the round trip of the link, ms", Lower, answer("probe")),
        every_figure("dig: difference to the round trip of the link, ms", Lower, answer("dig")),
        every_figure(
            "bytes on the link / (prediction + one receive window), each run",
            AtMost(1.0),
            over_prediction(cells),
        ),
        every_figure("bytes used / predicted", AtMost(1.0), of_prediction(cells)),
        every_figure("bytes on the link / bytes used", Lower, of_link(cells)),
    ]
}

/// A figure for every network of the contenders in the cells with this letter or name.
fn each(
    cells: &[Record],
    here: &str,
    contenders: &[&str],
    figure: impl Fn(&Record, &str, &str) -> Option<f64>,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for cell in cells.iter().filter(|cell| cell.part == here || cell.name == here) {
        for contender in contenders {
            for network in &cell.links {
                let value = figure(cell, contender, network);
                let case = format!("{}, {contender}, {network}", cell.name);
                figures.extend(value.map(|value| Figure { case, value }));
            }
        }
    }
    figures
}

/// Difference of the median to the true one, without its sign.
fn difference(cell: &Record, contender: &str, network: &str, quantity: &str) -> Option<f64> {
    let of = |name: &str| {
        let truth = values(cell, contender, network, &format!("true {name}"));
        let pairs = values(cell, contender, network, name);
        let differences = pairs.iter().filter_map(|(round, value)| Some(value - truth.get(round)?));
        median(differences)
    };
    of(quantity).map(f64::abs)
}

/// The largest difference of one run to the truth of that run, without its sign.
fn worst_difference(cell: &Record, contender: &str, network: &str, quantity: &str) -> Option<f64> {
    let truth = values(cell, contender, network, &format!("true {quantity}"));
    let all = values(cell, contender, network, quantity);
    let differences =
        all.iter().filter_map(|(round, value)| Some((value - truth.get(round)?).abs()));
    differences.reduce(f64::max)
}

/// Deviation of the median rate from the true one, in per cent and without its sign.
fn relative(cell: &Record, contender: &str, network: &str) -> Option<f64> {
    let over = ratio(cell, contender, network, "rate, Mbit/s", "true rate, Mbit/s")?;
    Some((over - 1.0).abs() * 100.0)
}

fn worst_relative(cell: &Record, contender: &str, network: &str) -> Option<f64> {
    let truth = values(cell, contender, network, "true rate, Mbit/s");
    let all = values(cell, contender, network, "rate, Mbit/s");
    let ratios = all.iter().filter_map(|(round, value)| Some(value / truth.get(round)?));
    ratios.map(|ratio| (ratio - 1.0).abs() * 100.0).reduce(f64::max)
}

/// Median of the rounds' ratios of a quantity to its truth.
fn ratio(
    cell: &Record,
    contender: &str,
    network: &str,
    quantity: &str,
    truth: &str,
) -> Option<f64> {
    let truth = values(cell, contender, network, truth);
    let all = values(cell, contender, network, quantity);
    median(all.iter().filter_map(|(round, value)| Some(value / truth.get(round)?)))
}

/// A share of the forecasts.
fn forecast(cells: &[Record], network: &str, quantity: &str) -> Vec<Figure> {
    let cell = cells.iter().find(|cell| cell.name == "forecast");
    let share = cell
        .and_then(|cell| median(values(cell, "probe compare", network, quantity).into_values()));
    share.into_iter().map(|share| Figure::new("forecast", share)).collect()
}

/// A target that bounds figures on both sides.
fn within(what: &str, figures: Vec<Figure>) -> Target {
    let (least, most) = LOADED;
    let far = |figure: &Figure| (figure.value - 1.0).abs();
    let worst = figures.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
    let measured = worst.map(|worst| {
        let middle = median(figures.iter().map(|figure| figure.value)).unwrap_or_default();
        let words = format!("median {middle:.3}, worst {:.3} ({})", worst.value, worst.case);
        let holds = figures.iter().all(|figure| (least..=most).contains(&figure.value));
        (words, holds)
    });
    target(what, format!("{least:.2} to {most:.2}"), measured)
}

/// The share of routes on which the right hop is named.
fn hops(cells: &[Record], name: &str, what: &str, is_target: bool) -> Target {
    let is_delay = name.contains("delay");
    let quantity = if is_delay { "delay after hop" } else { "loss after hop" };
    let (mut right, mut all) = (0, 0);
    for cell in cells.iter().filter(|cell| cell.name == name) {
        for run in &cell.runs {
            for route in run.figures.networks.values() {
                all += 1;
                right += usize::from(route.get(quantity) == route.get("true after hop"));
            }
        }
    }
    let share = right as f64 / f64::from(all.max(1));
    let measured =
        (all > 0).then(|| (format!("{share:.3} ({right} of {all})"), share >= RIGHT_HOPS));
    let wanted = if is_target { format!(">= {RIGHT_HOPS:.2}") } else { "as measured".to_owned() };
    let target = target(what, wanted, measured);
    if is_target { target } else { manyways_rig::target::reported_only(target) }
}

/// The probes with a prediction, as (cell, contender, network).
fn predicted(cells: &[Record]) -> Vec<(&Record, String, String)> {
    let mut all = Vec::new();
    for cell in cells {
        for contender in cell.distinct(|run| Some(&run.contender)) {
            for network in networks(cell, contender) {
                let has = !values(cell, contender, &network, "predicted bytes up").is_empty();
                if has {
                    all.push((cell, contender.to_owned(), network));
                }
            }
        }
    }
    all
}

/// The largest value of `figure` over both directions and all runs, for each probe.
fn worst_cost(cells: &[Record], over: [&str; 2], figure: impl Fn(f64, f64) -> f64) -> Vec<Figure> {
    let of = |(cell, contender, network): (&Record, String, String)| {
        let ways = ["up", "down"].into_iter().flat_map(|way| {
            let bytes =
                |kind: &str| values(cell, &contender, &network, &format!("{kind} bytes {way}"));
            let (upper, lower) = (bytes(over[0]), bytes(over[1]));
            let pairs = upper.into_iter();
            let pairs = pairs.filter_map(|(round, value)| Some((value, *lower.get(&round)?)));
            pairs.map(|(upper, lower)| figure(upper, lower)).collect::<Vec<_>>()
        });
        let worst = ways.reduce(f64::max)?;
        Some(Figure::new(format!("{}, {contender}, {network}", cell.name), worst))
    };
    predicted(cells).into_iter().filter_map(of).collect()
}

fn over_prediction(cells: &[Record]) -> Vec<Figure> {
    worst_cost(cells, ["carried", "predicted"], |carried, predicted| {
        carried / (predicted + RECEIVE_WINDOW)
    })
}

fn of_prediction(cells: &[Record]) -> Vec<Figure> {
    worst_cost(cells, ["used", "predicted"], |used, predicted| used / predicted)
}

fn of_link(cells: &[Record]) -> Vec<Figure> {
    worst_cost(cells, ["carried", "used"], |carried, used| carried / used.max(1.0))
}
