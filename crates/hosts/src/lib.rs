//! Ways past the engine, looked for with the real thing: the Linux kernel's TCP/IP stack.
//!
//! Random conversations ([`generate`]) go through the engine ([`margay_engine::in_process`]) to a listening socket of the kernel
//! ([`host`]); the kernel's answers go back through the engine. What the application on the host reads is compared with what was
//! inspected ([`play`]). A conversation that gets past is made as small as possible ([`shrink`]) and written to a file, which is
//! run again as a test. `docs/hosts.md` is for those who run it.

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
