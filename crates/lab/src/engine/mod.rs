//! Engines under test: the contract ([`Contract`]) and a running engine ([`Running`]).

mod contract;
pub(crate) mod counters;
mod running;

pub(crate) use contract::{Contract, Options, only, read_duration};
pub(crate) use counters::{CounterFile, Counts};
pub(crate) use running::{From, Running};
