//! Rules compiled into groups, prefilters and ordered checks.

pub mod checks;
pub mod effect;
pub mod hostvars;
pub mod inspect;
pub mod pcre;
