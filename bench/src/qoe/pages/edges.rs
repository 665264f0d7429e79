//! The edges that the graph of a load has, beside those that the page has.

use std::collections::BTreeSet;

use manyways_model::qoe::page::known::KnownPage;

use super::load::{Edge, Loaded, kind_name};
use crate::figures::Figures;

pub const F1: &str = "F1, all loads";
pub const LEAST_F1: &str = "F1, least load";

/// Edges of all loads of known pages.
#[derive(Default)]
pub struct Edges(Vec<Counts>);

impl Edges {
    /// Adds loads of the page with a seed.
    pub fn add(&mut self, seed: u64, loads: &[&Loaded]) {
        let exist = true_edges(seed);
        let of = |load: &&Loaded| Counts::of(&load.edges.iter().cloned().collect(), &exist);
        self.0.extend(loads.iter().map(of));
    }

    pub fn figures(&self) -> Figures {
        let all = self.0.iter().copied().fold(Counts::default(), Counts::plus);
        let least = self.0.iter().map(|load| load.f1()).fold(1.0, f64::min);
        Figures::of([
            ("edges of the loads", all.exist),
            ("precision", all.precision()),
            ("recall", all.recall()),
            (F1, all.f1()),
            (LEAST_F1, least),
        ])
    }
}

fn true_edges(seed: u64) -> BTreeSet<Edge> {
    let edges = KnownPage::new(seed).edges();
    let named = edges.into_iter().filter_map(|edge| {
        let kind = kind_name(edge.kind)?;
        Some((kind.to_owned(), edge.from, edge.to))
    });
    named.collect()
}

/// Numbers of edges.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    found: f64,
    exist: f64,
    /// Those that exist and were found.
    right: f64,
}

impl Counts {
    fn of(found: &BTreeSet<Edge>, exist: &BTreeSet<Edge>) -> Self {
        let right = found.intersection(exist).count();
        let [found, exist, right] = [found.len(), exist.len(), right].map(|count| count as f64);
        Self { found, exist, right }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            found: self.found + other.found,
            exist: self.exist + other.exist,
            right: self.right + other.right,
        }
    }

    fn precision(self) -> f64 {
        self.right / self.found.max(1.0)
    }

    fn recall(self) -> f64 {
        self.right / self.exist.max(1.0)
    }

    /// The harmonic mean of precision and recall.
    fn f1(self) -> f64 {
        2.0 * self.right / (self.found + self.exist).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(all: &[(&str, usize, usize)]) -> BTreeSet<Edge> {
        all.iter().map(|(kind, from, to)| ((*kind).to_owned(), *from, *to)).collect()
    }

    #[test]
    fn an_edge_of_another_kind_or_direction_is_wrong() {
        let exist = edges(&[("found", 0, 1), ("found", 0, 2), ("found", 1, 3), ("found", 2, 4)]);
        let found =
            edges(&[("found", 0, 1), ("found", 0, 2), ("blocks parser", 1, 3), ("found", 4, 2)]);
        let counts = Counts::of(&found, &exist);
        assert_eq!([counts.precision(), counts.recall(), counts.f1()], [0.5; 3]);
        let counts = Counts::of(&edges(&[("found", 0, 1)]), &exist);
        assert_eq!([counts.precision(), counts.recall(), counts.f1()], [1.0, 0.25, 0.4]);
    }

    #[test]
    fn all_edges_count_alike_and_the_least_load_is_told() {
        let load = |found, exist, right| Counts { found, exist, right };
        let figures = Edges(vec![load(10.0, 10.0, 10.0), load(2.0, 2.0, 1.0)]).figures().quantities;
        assert!((figures[F1] - 22.0 / 24.0).abs() < 1e-9);
        assert_eq!(figures[LEAST_F1], 0.5);
    }

    #[test]
    fn the_true_edges_have_all_kinds() {
        let kinds: BTreeSet<String> = true_edges(7).into_iter().map(|edge| edge.0).collect();
        assert_eq!(kinds.len(), 3);
    }
}
