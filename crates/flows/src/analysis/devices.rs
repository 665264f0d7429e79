use crate::columns::{SCHEMA, columns};
use crate::device::{Device, Evidence};
use manyways_record::table::{Column, Row};

fn count(row: &Device, evidence: Evidence) -> u64 {
    let index = Evidence::ALL.iter().position(|one| *one == evidence);
    index.and_then(|index| row.evidence.get(index)).copied().unwrap_or(0)
}

impl Row for Device {
    const TABLE: &'static str = "devices";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A device: the owner of an address for a time.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "address" Address "The address." |row| row.address;
        "hardware" Name "Hardware address of the DHCP lease, if in the capture."
            |row| row.hardware.map(|bytes| bytes.map(|byte| format!("{byte:02x}")).join(":"));
        "first" Time "Start of its first flow." |row| row.first;
        "last" Time "End of the last of its flows." |row| row.last;
        "flows" Count "Number of its flows." |row| row.flows;
        "is_handheld" Flag "The device is a phone, a tablet or a watch."
            |row| row.handheld.as_ref().map(|finding| finding.value);
        "handheld_evidence" Text "Evidence of this: user-agent, concurrent, pool, dhcp or tls."
            |row| row.handheld.as_ref().map(|finding| finding.evidence.name());
        "handheld_confidence" Number "Confidence in this, from 0 to 1: an estimate."
            |row| row.handheld.as_ref().map(|finding| finding.confidence);
        "system" Text "The operating system."
            |row| row.system.as_ref().map(|finding| finding.value.name());
        "system_evidence" Text "Evidence of the operating system."
            |row| row.system.as_ref().map(|finding| finding.evidence.name());
        "system_confidence" Number "Confidence in the operating system."
            |row| row.system.as_ref().map(|finding| finding.confidence);
        "is_shared" Flag "Its flows have contradicting devices: several devices share the address." |row| row.shared;
        "user_agents" Count "Flows with a user agent."
            |row| count(row, Evidence::UserAgent);
        "concurrent" Count "Flows classified by concurrent flows of the address."
            |row| count(row, Evidence::Concurrent);
    };
}
