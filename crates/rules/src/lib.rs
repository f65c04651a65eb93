//! The rule language: text to a checked tree.
