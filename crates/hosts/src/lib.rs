//! Ways past the engine, looked for with the real thing: the Linux kernel's TCP/IP stack.
//!
//! Random conversations ([`generate`]) go through the engine ([`margay_engine::in_process`]) to a listening socket of the kernel
//! ([`host`]); the kernel's answers go back through the engine. The bytes that the host's application reads are compared with
//! the inspected ones ([`play`]). A conversation that slips past is minimised ([`shrink`]) and written to a file, which becomes
//! a test. `docs/hosts.md` is the user's view.

pub mod conversation;
pub mod course;
pub mod generate;
pub mod host;
pub mod packet;
pub mod play;
pub mod random;
pub mod report;
pub mod seen;
pub mod shrink;
mod sys;
pub mod undecidable;
