//! Counters of an interface.

use std::io;

/// Bytes and packets of an interface since its creation. Bytes include the headers of the link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
}

/// Returns the kernel's counters of an interface in this thread's network namespace; `None` if this
/// name is unknown.
///
/// # Errors
/// The counters cannot be read.
pub fn counters(interface: &str) -> io::Result<Option<Counters>> {
    Ok(parse(&std::fs::read_to_string("/proc/thread-self/net/dev")?, interface))
}

/// Finds an interface in the text of `/proc/net/dev`.
fn parse(text: &str, interface: &str) -> Option<Counters> {
    let line = text.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (name.trim() == interface).then_some(rest)
    })?;
    let field = |place: usize| line.split_whitespace().nth(place)?.parse::<u64>().ok();
    Some(Counters {
        received_bytes: field(0)?,
        received_packets: field(1)?,
        sent_bytes: field(8)?,
        sent_packets: field(9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_whole_name() {
        let text = "Inter-|   Receive                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n\
                    lo: 10 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n \
                    wlan0: 2000 20 0 0 0 0 0 0 300 3 0 0 0 0 0 0\n";
        let found = Counters {
            received_bytes: 2_000,
            received_packets: 20,
            sent_bytes: 300,
            sent_packets: 3,
        };
        assert_eq!(parse(text, "wlan0"), Some(found));
        assert_eq!((parse(text, "wlan"), parse(text, "")), (None, None));
        assert_eq!(parse("wlan0: 1 2 3", "wlan0"), None);
    }
}
