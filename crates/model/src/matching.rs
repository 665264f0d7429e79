//! The recorded exchange that answers a request of a replayed client.
//!
//! [`Index`] holds the recorded requests, a [`Session`] the state of one replay, and an [`Answer`]
//! reports the exchange, or a miss. [`Rule::Ours`], in its order:
//!
//! 1. Method, scheme, host, path and kind of the body must be equal. HEAD is answered from GET. Segments
//!    that are times, or follow a word such as `session` and look random, may differ.
//! 2. Query, form fields and JSON values are multisets of pairs. If all are equal, the answer is a
//!    [`Answer::Hit`].
//! 3. Keys that name objects (`id`, `page`, `q`, …) must be equal, and so must keys that alone distinguish
//!    two recorded requests with different responses. A wrong object is worse than a miss.
//! 4. Each other pair has a weight: much for words, less for numbers, almost none for times,
//!    nonces and other values that differ from run to run ([`Class`]). Fields of the head weigh little. The
//!    request with the largest share of equal weight answers, if the share reaches a threshold.
//! 5. Among equally good requests, cookies, recorded order and connections decide: the n-th
//!    request has the n-th recorded response, and the last response repeats.
//!
//! The time of a look-up is bounded: at most 192 candidates are compared.

mod answer;
mod body;
mod compare;
mod index;
mod learn;
mod mahimahi;
pub mod mutations;
mod reading;
mod request;
mod session;
mod shape;
#[cfg(test)]
mod tests;

pub use self::answer::{Answer, Candidate, Difference, Explanation, Hit};
pub use self::index::{Index, Rule};
pub use self::reading::Place;
pub use self::request::{Recorded, Request};
pub use self::session::Session;
pub use self::shape::Class;
