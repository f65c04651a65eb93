//! The rule language: text to a checked tree, every error with file, line and column.

pub mod ast;
