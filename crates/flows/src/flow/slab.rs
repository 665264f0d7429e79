//! Storage for many large values by index.

/// Size of a part in bytes; a power of two, because allocators round up.
const PART_BYTES: usize = 1 << 18;

/// Values by index. They are stored in large parts without the rounding of an allocation per value,
/// and they never move, while a single vector would be copied to grow.
#[derive(Debug)]
pub(super) struct Slab<T> {
    parts: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Values per part: a power of two, because each access divides by it.
    const VALUES_PER_PART: usize = {
        let fitting = PART_BYTES / size_of::<Option<T>>();
        if fitting > 1 { 1 << fitting.ilog2() } else { 1 }
    };

    /// Stores a value. Returns its index.
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        if let Some(index) = self.free.pop() {
            if let Some(slot) = self.slot(index) {
                *slot = Some(thing);
            }
            return index;
        }
        if self.parts.last().is_none_or(|part| part.len() == Self::VALUES_PER_PART) {
            self.parts.push(Vec::with_capacity(Self::VALUES_PER_PART));
        }
        let before = (self.parts.len() - 1) * Self::VALUES_PER_PART;
        let Some(part) = self.parts.last_mut() else { return 0 };
        part.push(Some(thing));
        (before + part.len() - 1) as u32
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        self.parts.get(index / Self::VALUES_PER_PART)?.get(index % Self::VALUES_PER_PART)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot(index)?.as_mut()
    }

    /// Removes a value and frees its index.
    pub(super) fn take(&mut self, index: u32) -> Option<T> {
        let thing = self.slot(index)?.take()?;
        self.free.push(index);
        Some(thing)
    }

    /// Returns all values with their indices, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let places = 0_u32..;
        let all = places.zip(self.parts.iter().flatten());
        all.filter_map(|(index, thing)| Some((index, thing.as_ref()?)))
    }

    /// Number of indices in use or free.
    #[cfg(test)]
    pub(super) fn slot_count(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    fn slot(&mut self, index: u32) -> Option<&mut Option<T>> {
        let index = index as usize;
        self.parts.get_mut(index / Self::VALUES_PER_PART)?.get_mut(index % Self::VALUES_PER_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..1_200).map(|number| slab.insert(number)).collect();
        assert_eq!(places, (0..1_200).collect::<Vec<u32>>());
        assert_eq!((slab.take(511), slab.take(512), slab.take(512)), (Some(511), Some(512), None));
        assert_eq!((slab.get(511), slab.get(513), slab.get(1_200)), (None, Some(&513), None));
        assert_eq!(slab.iter().count(), 1_198);
        assert_eq!(slab.iter().nth(511), Some((513, &513)));
        assert_eq!((slab.insert(7), slab.insert(8), slab.insert(9)), (512, 511, 1_200));
        *slab.get_mut(512).unwrap() += 5;
        assert_eq!((slab.get(512), slab.slot_count()), (Some(&12), 1_201));
    }
}
