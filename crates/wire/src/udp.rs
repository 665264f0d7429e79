//! UDP datagrams (RFC 768).

/// Source port, destination port, length and checksum.
const HEADER: usize = 8;

/// A UDP datagram, whose payload may be truncated by the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// The captured bytes of the payload.
    pub payload: &'a [u8],
    /// Number of payload bytes, captured or not.
    pub length: usize,
}

impl<'a> Datagram<'a> {
    /// Reads the datagram in an IP packet whose payload has `length` bytes, of which `bytes` were
    /// captured. `None` if the header is incomplete, or if the length in it is shorter than the
    /// header or longer than the packet, because receivers discard these datagrams. A length of 0
    /// means the rest of the packet, in jumbograms (RFC 2675) and in packets that offloads merged.
    /// Bytes after the datagram (UDP options, RFC 9868) are skipped.
    pub fn read(bytes: &'a [u8], length: usize) -> Option<Self> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let declared = match usize::from(short(4)) {
            0 => length,
            declared => declared,
        };
        if declared < HEADER || declared > length {
            return None;
        }
        let payload = bytes.get(HEADER..bytes.len().min(declared)).unwrap_or_default();
        Some(Self {
            source_port: short(0),
            destination_port: short(2),
            payload,
            length: declared - HEADER,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DATAGRAM: &[u8] = &[0x14, 0xe9, 0, 53, 0, 11, 1, 2, b'a', b'b', b'c', b'd'];

    #[test]
    fn the_header_gives_ports_and_length() {
        let whole =
            Datagram { source_port: 5_353, destination_port: 53, payload: b"abc", length: 3 };
        assert_eq!(Datagram::read(DATAGRAM, 12), Some(whole), "with UDP options");
        assert_eq!(Datagram::read(&DATAGRAM[..11], 11), Some(whole));
        let cut = Datagram { payload: b"a", ..whole };
        assert_eq!(Datagram::read(&DATAGRAM[..9], 11), Some(cut));
        let header = Datagram { payload: b"", ..whole };
        assert_eq!(Datagram::read(&DATAGRAM[..8], 11), Some(header));
        let nothing = [&DATAGRAM[..4], &[0, 8, 0, 0]].concat();
        assert_eq!(
            Datagram::read(&nothing, 8).map(|it| (it.payload, it.length)),
            Some((&[][..], 0))
        );
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        assert_eq!(Datagram::read(&DATAGRAM[..7], 12), None, "the header is truncated");
        assert_eq!(Datagram::read(DATAGRAM, 10), None, "longer than the packet");
        for declared in [1, 7] {
            let mut bytes = DATAGRAM.to_vec();
            bytes[5] = declared;
            assert_eq!(Datagram::read(&bytes, 12), None);
        }
    }

    #[test]
    fn without_a_length_the_datagram_is_as_long_as_its_packet() {
        let mut bytes = DATAGRAM.to_vec();
        bytes[5] = 0;
        let found = Datagram::read(&bytes, 70_000).unwrap();
        assert_eq!((found.payload, found.length), (&b"abcd"[..], 69_992));
        assert_eq!(Datagram::read(&bytes[..8], 7), None);
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..20),
            length in any::<usize>(),
        ) {
            if let Some(read) = Datagram::read(&bytes, length) {
                prop_assert!(read.payload.len() <= read.length && read.length < length);
            }
        }
    }
}
