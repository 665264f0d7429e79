//! Storage of packets while the pure core decides about them.

use manyways_link::segment::{Offload, Plan};
use manyways_sys::tun::MAX_PACKET;
use manyways_unit::Span;

/// Packets up to this size are copied into a buffer of this size. A longer one keeps the buffer
/// that it was read into, because copying 10 Gbit/s once more costs a tenth of a core.
const SMALL_PACKET: usize = 4096;

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Device,
    /// A remote host.
    Host {
        index: usize,
        /// One-way delay between the link and the address.
        distance: Span,
    },
}

/// One packet.
pub struct Slot {
    buffer: Vec<u8>,
    length: usize,
    pub offload: Offload,
    pub plan: Plan,
    pub target: Target,
    /// Segments that were neither delivered nor dropped yet.
    remaining: u32,
}

impl Slot {
    pub fn packet(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// Packets by id. Buffers are reused, so that after some time nothing is allocated.
pub struct Slab {
    slots: Vec<Slot>,
    free: Vec<usize>,
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    /// Buffer for the next packet.
    inbox: Vec<u8>,
}

impl Slab {
    pub fn new() -> Self {
        let inbox = vec![0; MAX_PACKET];
        Self { slots: Vec::new(), free: Vec::new(), small: Vec::new(), large: Vec::new(), inbox }
    }

    /// Returns the buffer to read the next packet into.
    pub fn inbox(&mut self) -> &mut [u8] {
        &mut self.inbox
    }

    /// Stores the first `length` bytes of the inbox as a packet and returns its id.
    pub fn insert(&mut self, length: usize, offload: Offload, plan: Plan, target: Target) -> u64 {
        let buffer = if length <= SMALL_PACKET {
            let mut buffer = self.small.pop().unwrap_or_else(|| vec![0; SMALL_PACKET]);
            buffer[..length].copy_from_slice(&self.inbox[..length]);
            buffer
        } else {
            let fresh = self.large.pop().unwrap_or_else(|| vec![0; MAX_PACKET]);
            std::mem::replace(&mut self.inbox, fresh)
        };
        let remaining = plan.segments;
        let slot = Slot { buffer, length, offload, plan, target, remaining };
        match self.free.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index as u64
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u64
            }
        }
    }

    pub fn get(&self, id: u64) -> Option<&Slot> {
        self.slots.get(id as usize)
    }

    /// Releases `count` segments of a packet.
    pub fn release(&mut self, id: u64, count: u32) {
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        slot.remaining = slot.remaining.saturating_sub(count);
        if slot.remaining == 0 {
            let buffer = std::mem::take(&mut slot.buffer);
            slot.length = 0;
            if buffer.len() == SMALL_PACKET { &mut self.small } else { &mut self.large }
                .push(buffer);
            self.free.push(id as usize);
        }
    }

    /// Returns the number of stored packets.
    #[cfg(test)]
    fn packet_count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use manyways_link::segment::Gso;

    use super::*;

    const HEADERS: usize = 40;

    /// Stores a TCP super-packet of `segments` segments whose payload bytes all have that value.
    fn keep(slab: &mut Slab, length: usize, segments: u16) -> u64 {
        let packet = &mut slab.inbox()[..length];
        packet.fill(segments as u8);
        packet[..HEADERS].fill(0);
        (packet[0], packet[9], packet[32]) = (0x45, 6, 0x50);
        packet[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        let gso_size = (length - HEADERS).div_ceil(usize::from(segments)) as u16;
        let offload = Offload {
            needs_csum: true,
            csum_start: 20,
            csum_offset: 16,
            gso: Gso::TcpV4,
            gso_size,
            ..Offload::default()
        };
        let plan = manyways_link::segment::plan(packet, &offload).unwrap();
        assert_eq!(plan.segments, u32::from(segments));
        slab.insert(length, offload, plan, Target::Device)
    }

    fn holds(slab: &Slab, id: u64, length: usize, byte: u16) -> bool {
        let packet = slab.get(id).unwrap().packet();
        packet.len() == length && packet[HEADERS..].iter().all(|b| *b == byte as u8)
    }

    #[test]
    fn a_packet_stays_until_its_last_segment_is_released() {
        let mut slab = Slab::new();
        for length in [100, SMALL_PACKET, SMALL_PACKET + 1, 65_535] {
            let id = keep(&mut slab, length, 3);
            slab.release(id, 2);
            assert!(holds(&slab, id, length, 3));
            slab.release(id, 1);
            assert_eq!(slab.packet_count(), 0);
        }
    }

    #[test]
    fn buffers_are_used_again_and_packets_do_not_mix() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (1..=9).map(|n| keep(&mut slab, 1000 * usize::from(n), n)).collect();
        for (n, id) in (1..=9).zip(&ids) {
            assert!(holds(&slab, *id, 1000 * usize::from(n), n));
        }
        for (n, id) in (1..=9).zip(&ids) {
            slab.release(*id, n);
        }
        assert_eq!((slab.small.len(), slab.large.len()), (4, 5));
        keep(&mut slab, 9000, 1);
        assert_eq!((slab.small.len(), slab.large.len()), (4, 4));
    }
}
