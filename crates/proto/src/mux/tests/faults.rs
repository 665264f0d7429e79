//! Peers that break rules.
