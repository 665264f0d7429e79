//! Rates on generated second runs, properties, and single cases.

mod cases;
mod properties;
mod rates;
