use crate::columns::columns;
use crate::device::{Device, Evidence};
use manyways_record::table::{Column, Row};

fn count(row: &Device, evidence: Evidence) -> u64 {
    let index = Evidence::ALL.iter().position(|one| *one == evidence);
    index.and_then(|index| row.evidence.get(index)).copied().unwrap_or(0)
}

impl Row for Device {
    const TABLE: &'static str = "devices";
    const ABOUT: &'static str = "Who had an address for a time.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "address" Address "The address." |row| row.address;
        "hardware" Name "The hardware address that it was leased to, where a lease passed."
            |row| row.hardware.map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":"));
        "first" Time "When its first flow began." |row| row.first;
        "last" Time "When the last of its flows ended." |row| row.last;
        "flows" Count "How many flows it has." |row| row.flows;
        "is_handheld" Flag "It is a phone, a tablet or a watch."
            |row| row.handheld.as_ref().map(|finding| finding.value);
        "handheld_evidence" Text "What that is known by: user-agent, concurrent, pool, dhcp or tls."
            |row| row.handheld.as_ref().map(|finding| finding.evidence.name());
        "handheld_confidence" Number "How far that may be believed, from 0 to 1: a judgement."
            |row| row.handheld.as_ref().map(|finding| finding.confidence);
        "system" Text "The operating system."
            |row| row.system.as_ref().map(|finding| finding.value.name());
        "system_evidence" Text "What that is known by."
            |row| row.system.as_ref().map(|finding| finding.evidence.name());
        "system_confidence" Number "How far that may be believed."
            |row| row.system.as_ref().map(|finding| finding.confidence);
        "is_shared" Flag "Its flows tell of several devices behind this address." |row| row.shared;
        "user_agents" Count "Flows that are known by a user agent of their own."
            |row| count(row, Evidence::UserAgent);
        "concurrent" Count "Flows that are known by others of the address at the same time."
            |row| count(row, Evidence::Concurrent);
    };
}
