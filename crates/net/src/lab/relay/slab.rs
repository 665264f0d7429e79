//! Where packets wait while the pure core decides about them.

use manyways_link::segment::{Offload, Plan};

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the device.
    Device,
    /// To the far host of that number.
    Host(usize),
}

/// One packet.
pub struct Slot {
    buffer: Vec<u8>,
    pub offload: Offload,
    pub plan: Plan,
    pub target: Target,
    /// Segments that were neither delivered nor dropped yet.
    remaining: u32,
}

impl Slot {
    pub fn packet(&self) -> &[u8] {
        &self.buffer
    }
}

/// Buffers by number, used again and again.
///
/// Most packets are either small (an acknowledgement, a datagram) or a super-packet; a slot keeps
/// the room it once needed, so after a while nothing is allocated.
#[derive(Default)]
pub struct Slab {
    slots: Vec<Slot>,
    /// Free slots by the size of their buffers.
    small: Vec<usize>,
    large: Vec<usize>,
}

const SMALL: usize = 2048;

impl Slab {
    /// Copies a packet in and gives its number.
    pub fn insert(&mut self, packet: &[u8], offload: Offload, plan: Plan, target: Target) -> u64 {
        let free = if packet.len() <= SMALL { &mut self.small } else { &mut self.large };
        let remaining = plan.segments;
        let index = match free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index];
                slot.buffer.clear();
                slot.buffer.extend_from_slice(packet);
                (slot.offload, slot.plan, slot.target) = (offload, plan, target);
                slot.remaining = remaining;
                index
            }
            None => {
                let room = if packet.len() <= SMALL { SMALL } else { packet.len() };
                let mut buffer = Vec::with_capacity(room);
                buffer.extend_from_slice(packet);
                self.slots.push(Slot { buffer, offload, plan, target, remaining });
                self.slots.len() - 1
            }
        };
        index as u64
    }

    /// The packet of that number.
    pub fn get(&self, id: u64) -> Option<&Slot> {
        self.slots.get(id as usize)
    }

    /// Says that `count` segments need no room any more.
    pub fn release(&mut self, id: u64, count: u32) {
        let index = id as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        slot.remaining = slot.remaining.saturating_sub(count);
        if slot.remaining == 0 {
            let free =
                if slot.buffer.capacity() <= SMALL { &mut self.small } else { &mut self.large };
            free.push(index);
        }
    }
}
