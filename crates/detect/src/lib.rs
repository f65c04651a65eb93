//! Rules compiled into groups, prefilters and ordered checks.

pub mod mpm;
