use std::net::IpAddr;

use manyways_wire::mptcp::{Capable, DataSequence, Dss, Join, Mapping, Subtype};

use super::*;

fn read(bytes: &[u8]) -> Subtype<'_> {
    assert_eq!((bytes[0], usize::from(bytes[1])), (30, bytes.len()));
    Subtype::read(&bytes[2..]).unwrap()
}

#[test]
fn a_connection_begins_in_both_versions() {
    let said = |version, key, peer_key, length| {
        Subtype::Capable(Capable { version, flags: 1, key, peer_key, length })
    };
    let [client, server] = KEYS.map(Some);
    assert_eq!(read(&capable(1, &[], None)), said(1, None, None, None));
    assert_eq!(read(&capable(0, &KEYS[..1], None)), said(0, client, None, None));
    assert_eq!(read(&capable(0, &KEYS, None)), said(0, client, server, None));
    assert_eq!(read(&capable(1, &KEYS, Some(99))), said(1, client, server, Some(99)));
    let summed = [capable(1, &KEYS, Some(99)), vec![3, 4]].concat();
    let summed = [&[30, 24], &summed[2..]].concat();
    assert_eq!(read(&summed), said(1, client, server, Some(99)));
    let Subtype::Capable(flags) = read(&[30, 4, 0x01, 0xa1]) else { panic!() };
    assert!(flags.requires_checksums() && flags.forbids_joins());
    let Subtype::Capable(flags) = read(&[30, 4, 0x01, 0x41]) else { panic!() };
    assert!(!flags.requires_checksums() && !flags.forbids_joins());
}

#[test]
fn a_join_has_three_parts() {
    let [asked, answered] = NONCES;
    let join = Join::Syn { is_backup: false, address: 7, token: 0x0506_0708, nonce: asked };
    assert_eq!(read(&join_syn(0x0506_0708)), Subtype::Join(join));
    let answer = option(0x11, &[&[9], &KEYS[1].to_be_bytes(), &answered.to_be_bytes()]);
    let join = Join::SynAck { is_backup: true, address: 9, hmac: KEYS[1], nonce: answered };
    assert_eq!(read(&answer), Subtype::Join(join));
    let confirm = option(0x10, &[&[0], &[5; 20]]);
    assert_eq!(read(&confirm), Subtype::Join(Join::Ack([5; 20])));
}

#[test]
fn numbers_are_short_or_long_and_not_all_there() {
    let said = |bytes: &[u8]| match read(bytes) {
        Subtype::Dss(said) => said,
        other => panic!("{other:?}"),
    };
    let [four, eight] = [&[0, 0, 0, 4][..], &[0, 0, 0, 8, 0, 0, 0, 9]];
    let rest = [0, 0, 0, 5, 0, 6];
    let ack = said(&option(0x20, &[&[0x01], four]));
    assert_eq!(ack, Dss { ack: Some(DataSequence::Short(4)), mapping: None, is_data_fin: false });
    let ack = said(&option(0x20, &[&[0x03], eight]));
    assert_eq!(ack.ack, Some(DataSequence::Long((8 << 32) + 9)));
    // Bytes without a flag are ignored.
    assert_eq!(said(&option(0x20, &[&[0x0a], eight])), Dss::default());
    for (flags, data, number) in
        [(0x05, four, DataSequence::Short(4)), (0x0d, eight, DataSequence::Long((8 << 32) + 9))]
    {
        let mut mapping = Mapping { data: number, subflow: 5, length: 6, checksum: None };
        let both = said(&option(0x20, &[&[flags], four, data, &rest]));
        let expected =
            Dss { ack: Some(DataSequence::Short(4)), mapping: Some(mapping), is_data_fin: false };
        assert_eq!(both, expected);
        mapping.checksum = Some(0x0102);
        let summed = said(&option(0x20, &[&[flags | 0x10], four, data, &rest, &[1, 2]]));
        assert_eq!((summed.mapping, summed.is_data_fin), (Some(mapping), true));
    }
    assert_eq!(DataSequence::Long((8 << 32) + 9).low(), 9);
    let short = option(0x20, &[&[0x0d], four, eight, &rest[..5]]);
    assert_eq!(read(&short), Subtype::Other(2));
}

#[test]
fn addresses_of_both_families_and_versions() {
    let said = |bytes: &[u8]| match Subtype::read(&bytes[2..]) {
        Some(Subtype::AddAddress(said)) => {
            (said.is_echo, said.id, said.address, said.port, said.hmac.copied())
        }
        other => panic!("{other:?}"),
    };
    let (v4, v6) = ([192, 0, 2, 9], [0x20; 16]);
    let (four, six) = (IpAddr::from(v4), IpAddr::from(v6));
    let hash = [9; 8];
    assert_eq!(said(&option(0x34, &[&[3], &v4])), (false, 3, four, None, None));
    assert_eq!(said(&option(0x31, &[&[3], &v4])), (true, 3, four, None, None));
    assert_eq!(said(&option(0x36, &[&[3], &v6, &[1, 187]])), (false, 3, six, Some(443), None));
    assert_eq!(said(&option(0x30, &[&[3], &v6, &hash])), (false, 3, six, None, Some(hash)));
    let ported = option(0x30, &[&[3], &v4, &[1, 187], &hash]);
    assert_eq!(said(&ported), (false, 3, four, Some(443), Some(hash)));
}

#[test]
fn what_else_there_is() {
    assert_eq!(read(&option(0x40, &[&[3, 4]])), Subtype::RemoveAddress(&[3, 4]));
    assert_eq!(read(&option(0x51, &[])), Subtype::Priority { is_backup: true, address: None });
    let other = Subtype::Priority { is_backup: false, address: Some(8) };
    assert_eq!(read(&option(0x50, &[&[8]])), other);
    let key = KEYS[0].to_be_bytes();
    assert_eq!(read(&option(0x60, &[&[0], &key])), Subtype::Fail(KEYS[0]));
    assert_eq!(read(&option(0x70, &[&[0], &key])), Subtype::FastClose(KEYS[0]));
    let reset = Subtype::Reset { is_transient: true, reason: 4 };
    assert_eq!(read(&option(0x81, &[&[4]])), reset);
    assert_eq!(read(&option(0xf0, &[&[4]])), Subtype::Other(15));
    assert_eq!(Subtype::read(&[]), None);
}

#[test]
fn a_length_that_cannot_be_says_nothing() {
    for subtype in [0, 1, 2, 3, 4, 6, 7, 8] {
        assert_eq!(Subtype::read(&[subtype << 4]), Some(Subtype::Other(subtype)));
        // The length is valid for no option, or a mapping follows by its flags.
        let long = [&[subtype << 4, 0x0f][..], &[0; 15]].concat();
        let said = Subtype::read(&long).unwrap();
        assert!(subtype == 4 || said == Subtype::Other(subtype), "{said:?}");
    }
}

proptest! {
    #[test]
    fn any_option(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let said = Subtype::read(&bytes);
        prop_assert_eq!(said.is_none(), bytes.is_empty());
    }
}
