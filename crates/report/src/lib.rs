//! Values as text for people: numbers, text tables, charts, and one-file HTML pages.
//!
//! [`Page`] is an HTML document that needs nothing from outside; [`bars`], [`columns`], [`curves`],
//! [`timeline`] and [`ranges`] draw charts as [`svg::Drawing`]s, which also stand alone as pictures.
//! [`number`] is the one way to print a number, [`text`] lays out tables for terminals. Everything
//! that comes from outside is escaped here. The crate writes no file.
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

pub use page::{Column, Line, Page, escape};
