//! Rules compiled into groups, prefilters and ordered checks.

pub mod buffer;
pub mod checks;
pub mod effect;
pub mod fast_pattern;
pub mod hostvars;
pub mod inspect;
pub mod pcre;
pub mod transform;
