//! Regression trees.

use super::super::features::Feature;

/// A regression tree. A node is followed by its children.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
}

/// A node of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Node {
    /// `None` for a leaf.
    pub(super) split: Option<Split>,
    pub(super) value: f64,
}

/// The question of a node: values up to the threshold go left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Split {
    pub(super) feature: Feature,
    pub(super) threshold: f64,
    pub(super) left: u32,
    pub(super) right: u32,
    /// Whether an unknown value goes left.
    pub(super) missing_left: bool,
}

impl Tree {
    /// The value of the leaf. `value` returns that of a feature.
    #[inline]
    pub(super) fn predict(&self, value: impl Fn(Feature) -> f64) -> f64 {
        let mut node = &self.nodes[0];
        while let Some(split) = &node.split {
            let value = value(split.feature);
            let is_left =
                if value.is_nan() { split.missing_left } else { value <= split.threshold };
            node = &self.nodes[if is_left { split.left } else { split.right } as usize];
        }
        node.value
    }

    /// Whether a greater value of a feature never lowers the prediction. It is shown by bounds, as
    /// monotonic constraints are enforced in training: at each split by the feature, no leaf on the
    /// left exceeds a leaf on the right.
    pub(super) fn is_monotone_in(&self, feature: Feature) -> bool {
        self.nodes.iter().filter_map(|node| node.split).all(|split| {
            split.feature != feature
                || self.bound(split.left, f64::max) <= self.bound(split.right, f64::min) + 1e-12
        })
    }

    fn bound(&self, root: u32, of: fn(f64, f64) -> f64) -> f64 {
        let mut open = vec![root as usize];
        let mut bound: Option<f64> = None;
        while let Some(index) = open.pop() {
            let node = &self.nodes[index];
            match &node.split {
                Some(split) => open.extend([split.left as usize, split.right as usize]),
                None => bound = Some(bound.map_or(node.value, |bound| of(bound, node.value))),
            }
        }
        bound.unwrap_or_default()
    }
}
