//! Links that share an air with other links of the relay.

use manyways_link::Pipe;
use manyways_link::medium::{Medium, Member};
use manyways_model::radio::Direction;
use manyways_unit::Time;

use super::{Link, Worker};

/// Returns the airs of the links.
pub(super) fn airs(links: &[Link]) -> Vec<Medium> {
    let mut by_name: Vec<(&str, Vec<usize>)> = Vec::new();
    for (index, link) in links.iter().enumerate() {
        let Some(name) = &link.spec.air else { continue };
        match by_name.iter_mut().find(|(known, _)| known == name) {
            Some((_, members)) => members.push(index),
            None => by_name.push((name, vec![index])),
        }
    }
    let member = |index: usize| (index, links[index].spec.kind());
    by_name.into_iter().map(|(_, members)| Medium::new(members.into_iter().map(member))).collect()
}

impl Member for Link {
    fn directions(&mut self) -> [&mut Pipe; 2] {
        [self.down.pipe(), self.up.pipe()]
    }
}

impl Worker {
    /// Passes the packets from remote hosts that have reached a link to it.
    pub(super) fn take_approaching(&mut self, now: Time, index: usize) {
        while let Some((at, id)) = self.links[index].approaching.poll(now) {
            self.advance_airs(at);
            self.links[index].enqueue(Direction::Down, at, id, &self.slab);
        }
    }

    /// Must precede each use of a link at `now`, so that links of one air have the rates of the time.
    pub(super) fn advance_airs(&mut self, now: Time) {
        for air in &mut self.airs {
            air.advance(now, &mut self.links);
        }
    }
}
