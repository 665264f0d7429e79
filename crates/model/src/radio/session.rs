//! Assigns packets to sessions and applications.

use std::collections::HashMap;

use manyways_unit::{Span, Time};

/// Without a flow, a longer gap of an application starts a new session (the gap between bursts of
/// AT&T's Video Optimizer).
pub const BURST_GAP: Span = Span::from_millis(1_500);
/// Limit of stored flows; beyond it the next packet of each starts a new session.
const MAX_FLOWS: usize = 200_000;
/// Limit of applications; the last one, `(others)`, contains all further ones.
pub const MAX_APPS: usize = 10_000;

/// Assigns session numbers by flow, or by gaps of an application.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    next: u32,
    flows: HashMap<u64, u32>,
    bursts: HashMap<u16, (Time, u32)>,
}

/// An application and the server port of its traffic.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct App {
    /// Name in the trace; empty if unknown.
    pub name: String,
    /// Port of the server, if the trace has it.
    pub port: Option<u16>,
}

/// Assigns a number to each pair of name and port.
#[derive(Clone, Debug, Default)]
pub struct Apps {
    all: Vec<App>,
    numbers: HashMap<Option<u16>, HashMap<String, u16>>,
}

impl Sessions {
    /// Session number of a packet.
    pub fn assign(&mut self, at: Time, app: u16, flow: Option<u64>) -> u32 {
        if let Some(flow) = flow {
            if let Some(session) = self.flows.get(&flow) {
                return *session;
            }
            if self.flows.len() >= MAX_FLOWS {
                self.flows.clear();
            }
            let session = self.next_number();
            self.flows.insert(flow, session);
            return session;
        }
        let session = match self.bursts.get(&app) {
            Some((last, session)) if at.since(*last) <= BURST_GAP => *session,
            _ => self.next_number(),
        };
        self.bursts.insert(app, (at, session));
        session
    }

    fn next_number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }
}

impl Apps {
    /// Number of an application.
    pub fn number(&mut self, name: &str, port: Option<u16>) -> u16 {
        if let Some(number) = self.numbers.get(&port).and_then(|names| names.get(name)) {
            return *number;
        }
        if self.all.len() >= MAX_APPS - 1 {
            if self.all.len() < MAX_APPS {
                self.all.push(App { name: "(others)".to_owned(), port: None });
            }
            return (MAX_APPS - 1) as u16;
        }
        let number = self.all.len() as u16;
        self.all.push(App { name: name.to_owned(), port });
        self.numbers.entry(port).or_default().insert(name.to_owned(), number);
        number
    }

    /// Applications, indexed by number.
    pub fn all(&self) -> &[App] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_a_session_and_else_a_silence_ends_it() {
        let mut sessions = Sessions::default();
        let at = Time::from_millis;
        let of =
            |sessions: &mut Sessions, millis, app, flow| sessions.assign(at(millis), app, flow);
        assert_eq!(of(&mut sessions, 0, 0, Some(9)), 1);
        assert_eq!(of(&mut sessions, 0, 0, None), 2);
        assert_eq!(of(&mut sessions, 1_500, 0, None), 2);
        assert_eq!(of(&mut sessions, 1_500, 1, None), 3);
        assert_eq!(of(&mut sessions, 3_001, 0, None), 4);
        assert_eq!(of(&mut sessions, 90_000, 5, Some(9)), 1);
    }

    #[test]
    fn stored_flows_and_applications_are_bounded() {
        let (mut sessions, mut apps) = (Sessions::default(), Apps::default());
        for number in 0..300_000 {
            sessions.assign(Time::ZERO, 0, Some(number));
            apps.number(&number.to_string(), None);
        }
        assert!(sessions.flows.len() <= MAX_FLOWS);
        assert_eq!(apps.all().len(), MAX_APPS);
        assert_eq!(apps.number("7", None), 7);
        assert_eq!(apps.number("new", Some(7)), (MAX_APPS - 1) as u16);
    }

    #[test]
    fn an_application_at_two_ports_is_two() {
        let mut apps = Apps::default();
        assert_eq!(apps.number("a", None), 0);
        assert_eq!(apps.number("a", Some(443)), 1);
        assert_eq!(apps.number("a", None), 0);
        assert_eq!(apps.all()[1], App { name: "a".to_owned(), port: Some(443) });
    }
}
