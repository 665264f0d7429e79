//! Formats links and changes as text that parses back to the same value.

use std::fmt;

use super::{Change, Condition, DORMANT, LinkSpec, NAT_RESTART};
use crate::scenario::{
    CapacitySpec, DelaySpec, Direction, DirectionSpec, Discipline, LinkState, LossSpec, Middlebox,
    NetworkKind, QueueLimit,
};
use manyways_unit::{Rate, Size, Span};

impl fmt::Display for LinkSpec {
    /// Formats `NAME:key=value,…` for [`LinkSpec::parse`], without settings that have their
    /// default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::new("");
        let mut words: Vec<String> = Vec::new();
        for (key, now, before) in [
            ("down", &self.down.capacity, &default.down.capacity),
            ("up", &self.up.capacity, &default.up.capacity),
        ] {
            if now != before {
                words.push(format!("{key}={}", capacity(now)));
            }
        }
        let each: [fn(&DirectionSpec, Direction) -> Change; 6] = [
            |spec, direction| Change::Delay(direction, spec.delay.clone()),
            |spec, direction| Change::Jitter(direction, spec.jitter),
            |spec, direction| Change::Reorder(direction, spec.reorder),
            |spec, direction| Change::Loss(direction, spec.loss),
            |spec, direction| Change::Queue(direction, spec.queue.limit),
            |spec, direction| Change::Discipline(direction, spec.queue.discipline),
        ];
        for change in each {
            let both = |spec| change(spec, Direction::Both);
            if both(&self.down) == both(&self.up) {
                if both(&self.down) != both(&default.down) {
                    words.push(both(&self.down).to_string());
                }
                continue;
            }
            for (spec, direction) in [(&self.down, Direction::Down), (&self.up, Direction::Up)] {
                if both(spec) != both(&default.down) {
                    words.push(change(spec, direction).to_string());
                }
            }
        }
        if self.state != default.state {
            words.push(Change::State(self.state).to_string());
        }
        if self.mtu != default.mtu {
            words.push(format!("mtu={}", self.mtu));
        }
        if self.metered {
            words.push("metered=yes".to_owned());
        }
        match self.middlebox {
            None => {}
            Some(Middlebox::StripMptcp) => words.push("middlebox=strip-mptcp".to_owned()),
            Some(Middlebox::Nat { idle }) => {
                words.push(format!("middlebox=nat:idle={}", span(idle)));
            }
        }
        if let Some(radio) = &self.radio {
            words.push(format!("rrc={}", radio.source));
        }
        match (&self.device, &self.peer) {
            (Some(device), Some(peer)) => words.push(format!("between={device}:{peer}")),
            (Some(device), None) => words.push(format!("device={device}")),
            (None, _) => {}
        }
        if let Some(air) = &self.air {
            words.push(format!("shares={air}"));
        }
        if self.signal.is_some() {
            words.push(Change::Signal(self.signal.clone()).to_string());
        }
        f.write_str(&self.name)?;
        for (number, word) in words.iter().enumerate() {
            let separator = if number == 0 { ':' } else { ',' };
            write!(f, "{separator}{}", escaped(word))?;
        }
        Ok(())
    }
}

/// Escapes the commas and backslashes of a setting, which the name of a file may contain.
pub(super) fn escaped(word: &str) -> String {
    word.replace('\\', r"\\").replace(',', r"\,")
}

impl fmt::Display for NetworkKind {
    /// Formats the kind as `manyways paths` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wifi => "wifi",
            Self::Cellular => "cellular",
            Self::Bluetooth => "bluetooth",
            Self::Ethernet => "ethernet",
        })
    }
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Paused => "paused",
            Self::Silent => "silent",
            Self::NoCarrier => "no-carrier",
        })
    }
}

impl fmt::Display for Change {
    /// Formats `key=value` for `lab set`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.direction() {
            Some(Direction::Down) => f.write_str("down-")?,
            Some(Direction::Up) => f.write_str("up-")?,
            _ => {}
        }
        match self {
            Self::State(state) => write!(f, "state={state}"),
            Self::Signal(None) => f.write_str("signal=none"),
            Self::Signal(Some(signal)) => write!(f, "signal=trace:{}", signal.source),
            Self::Dormant => f.write_str(DORMANT),
            Self::NatRestart => f.write_str(NAT_RESTART),
            Self::Down(spec) => write!(f, "down={}", capacity(spec)),
            Self::Up(spec) => write!(f, "up={}", capacity(spec)),
            Self::Delay(_, DelaySpec::Constant(delay)) => write!(f, "delay={}", span(*delay)),
            Self::Delay(_, DelaySpec::Trace { source, .. }) => write!(f, "delay=trace:{source}"),
            Self::Jitter(_, jitter) => write!(f, "jitter={}", span(*jitter)),
            Self::Reorder(_, yes) => write!(f, "reorder={}", if *yes { "yes" } else { "no" }),
            Self::Loss(_, loss) => match loss {
                LossSpec::None => f.write_str("loss=none"),
                LossSpec::Independent(p) => write!(f, "loss={}", probability(*p)),
                LossSpec::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                    f.write_str("loss=ge")?;
                    for p in [to_bad, to_good, loss_good, loss_bad] {
                        write!(f, ":{}", probability(*p))?;
                    }
                    Ok(())
                }
            },
            Self::Queue(_, limit) => match limit {
                QueueLimit::Bytes(bytes) => write!(f, "queue={}", size(*bytes)),
                QueueLimit::Packets(packets) => write!(f, "queue={packets}p"),
                QueueLimit::Time(time) => write!(f, "queue={}", span(*time)),
                QueueLimit::Unlimited => f.write_str("queue=unlimited"),
            },
            Self::Discipline(_, discipline) => match discipline {
                Discipline::DropTail => f.write_str("aqm=drop-tail"),
                Discipline::DropHead => f.write_str("aqm=drop-head"),
                Discipline::Codel { target, interval } => {
                    write!(f, "aqm=codel:target={}:interval={}", span(*target), span(*interval))
                }
            },
        }
    }
}

impl fmt::Display for Condition {
    /// Formats `LINK.COUNTER >= VALUE` for [`condition`](super::condition).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} >= {}", self.link, self.counter.name(), self.least)
    }
}

fn capacity(spec: &CapacitySpec) -> String {
    match spec {
        CapacitySpec::Unlimited => "unlimited".to_owned(),
        CapacitySpec::Constant(constant) => rate(*constant),
        CapacitySpec::Trace { source, .. } => format!("trace:{source}"),
    }
}

/// Formats the shortest decimal that parses back; 1 needs its percent sign.
fn probability(p: f64) -> String {
    if p == 1.0 { "100%".to_owned() } else { p.to_string() }
}

fn span(span: Span) -> String {
    in_unit(span.as_nanos(), &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
}

fn rate(rate: Rate) -> String {
    in_unit(
        rate.as_bps(),
        &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)],
    )
}

fn size(size: Size) -> String {
    in_unit(size.as_bytes(), &[("MiB", 1 << 20), ("KiB", 1 << 10), ("KB", 1_000), ("B", 1)])
}

/// Formats a value in the largest unit in which it is a whole number.
fn in_unit(value: u64, units: &[(&str, u64)]) -> String {
    units
        .iter()
        .find(|(_, scale)| value.is_multiple_of(*scale))
        .map_or_else(|| value.to_string(), |(unit, scale)| format!("{}{unit}", value / scale))
}
