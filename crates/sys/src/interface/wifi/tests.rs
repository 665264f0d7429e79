use proptest::prelude::*;

use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut text = (value.len() as u16 + 4).to_ne_bytes().to_vec();
    text.extend(kind.to_ne_bytes());
    text.extend(value);
    text.resize(text.len().next_multiple_of(4), 0);
    text
}

/// A message of the family 28 with the sequence number 3.
fn message(command: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
    let payload = [vec![command, 1, 0, 0], attributes.concat()].concat();
    let mut text = (payload.len() as u32 + 16).to_ne_bytes().to_vec();
    text.extend(28_u16.to_ne_bytes());
    text.extend([2, 0]);
    text.extend(3_u32.to_ne_bytes());
    text.extend([0; 4]);
    [text, payload].concat()
}

fn station_message(facts: &[Vec<u8>]) -> Vec<u8> {
    let address = attribute(6, &[2, 0, 0, 0, 1, 0]);
    message(NEW_STATION, &[address, attribute(ATTR_STATION | 0x8000, &facts.concat())])
}

fn usual() -> Vec<u8> {
    station_message(&[
        attribute(1, &40_u32.to_ne_bytes()),
        attribute(SIGNAL, &(-61_i8).to_ne_bytes()),
        attribute(SIGNAL_AVERAGE, &(-58_i8).to_ne_bytes()),
        attribute(
            TX_RATE,
            &[attribute(RATE_16, &1_300_u16.to_ne_bytes()), attribute(2, &[15])].concat(),
        ),
        // Too fast for the old attribute, which then has no or a saturated value.
        attribute(
            RX_RATE,
            &[
                attribute(RATE_16, &u16::MAX.to_ne_bytes()),
                attribute(RATE_32, &96_078_u32.to_ne_bytes()),
            ]
            .concat(),
        ),
    ])
}

#[test]
fn signal_and_rates_of_an_access_point_are_read() {
    let expected = Station {
        signal: Some(-61),
        signal_average: Some(-58),
        sent_rate: Some(Rate::from_mbps(130)),
        received_rate: Some(Rate::from_kbps(9_607_800)),
    };
    assert_eq!(read_stations(&usual()), [expected]);
}

#[test]
fn direct_links_and_other_messages_are_no_access_points() {
    let flags = |set: u32| [(FLAG_TDLS_PEER | 2).to_ne_bytes(), set.to_ne_bytes()].concat();
    let signal = |set| {
        station_message(&[
            attribute(SIGNAL, &(-30_i8).to_ne_bytes()),
            attribute(FLAGS, &flags(set)),
        ])
    };
    let datagram = [
        signal(FLAG_TDLS_PEER | 2),
        message(NEW_INTERFACE, &[attribute(ATTR_STATION, &[])]),
        message(NEW_STATION, &[]),
        signal(2),
    ]
    .concat();
    let expected = Station { signal: Some(-30), ..Station::default() };
    assert_eq!(read_stations(&datagram), [expected]);
}

#[test]
fn unknown_rates_are_no_rates() {
    let rates = [
        attribute(TX_RATE, &attribute(RATE_16, &0_u16.to_ne_bytes())),
        attribute(RX_RATE, &attribute(RATE_32, &[1])),
        attribute(SIGNAL, &[]),
    ];
    assert_eq!(read_stations(&station_message(&rates)), [Station::default()]);
}

#[test]
fn the_mode_of_an_interface_is_read() {
    let payload = |mode: u32| attribute(ATTR_MODE, &mode.to_ne_bytes());
    assert_eq!(read_mode(NEW_INTERFACE, &payload(2)), Some(2));
    assert_eq!(read_mode(NEW_STATION, &payload(2)), None);
    assert_eq!(read_mode(NEW_INTERFACE, &attribute(ATTR_MODE, &[2])), None);
}

#[test]
fn an_interface_without_wifi_has_no_signal() {
    assert!(matches!(station("lo"), Err(WifiError::NoWifi | WifiError::OtherKind)));
    assert!(matches!(station("no-such"), Err(WifiError::NoInterface)));
}

proptest! {
    #[test]
    fn a_damaged_message_does_not_panic(
        cut in 0..200_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut datagram = [usual(), usual()].concat();
        for (at, byte) in changes {
            let at = at.index(datagram.len());
            datagram[at] = byte;
        }
        datagram.truncate(datagram.len().saturating_sub(cut));
        prop_assert!(read_stations(&datagram).len() <= 2 * datagram.len());
    }
}
