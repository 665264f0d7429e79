//! Commands without a network: help, output, exports, and names from outside.

mod command_line;
mod flows_export;
mod foreign_names;
mod output;
