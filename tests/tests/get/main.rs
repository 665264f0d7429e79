//! `manyways get` from the user's side: real servers and emulated links.
//!
//! No test measures time. A script waits for received bytes, with a deadline that only a hang
//! reaches.

mod advised;
mod all_idle;
mod all_paths;
mod answers;
mod digest;
mod estimate_cache;
mod events;
mod faulty;
mod files;
mod interfaces;
mod limits;
mod login;
mod messages;
mod metered;
mod options;
mod part_files;
mod path_failures;
mod players;
mod resume;
mod serve;
mod servers;
mod several;
mod single_path;
mod split_dns;
mod stdout;
mod terminal;
mod testbed;
mod web_servers;
