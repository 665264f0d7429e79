//! Output for people: formatted numbers, text tables, charts, and HTML pages in one file.
//!
//! [`Page`] is an HTML document without external resources. [`bars`], [`columns`], [`curves`],
//! [`timeline`], [`ranges`] and [`waterfall`] draw charts as [`svg::Drawing`]s, which are also stand-alone
//! pictures. [`number`] formats all numbers for people, [`text`] lays out tables for terminals.
//! Foreign text is escaped here. The crate writes no files.
#![forbid(unsafe_code)]

pub mod bars;
pub mod columns;
pub mod curves;
pub mod number;
mod page;
pub mod ranges;
pub mod svg;
pub mod text;
pub mod timeline;
pub mod waterfall;

pub use page::{Column, Page, TableRow, escape};
