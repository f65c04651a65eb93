//! Lua scripts in a sandbox.
//!
//! A [`Script`] is one Lua 5.4 state with one script in it. It is created when rules or outputs are loaded, never for a
//! packet, and belongs to one worker. All queries of a script to the engine go through one narrow trait, [`Host`]: a subject
//! (the packet, the flow, a transaction ...), the query, and arguments. So this crate knows Lua and the structure of the
//! libraries that scripts `require` (`suricata.packet`, `suricata.http` ...), and nothing about packets or protocols.
//!
//! The libraries themselves are written in Lua (`prelude.lua`), on top of a few Rust functions. That text defines what
//! scripts see, and its instructions count like the script's own.
//!
//! # Limits
//!
//! Each call has a budget of instructions, which Lua's count hook checks every few hundred instructions. The allocator
//! enforces a limit of bytes for the state. C functions run between hooks, so those whose work is not bounded by the length
//! of their input are replaced. Pattern matching is done in Rust, and counts every step ([`pattern`]). `string.rep` and the
//! table functions compute their cost and pay for it first. The remaining functions touch each byte of their arguments a
//! fixed number of times. As a last resort, a call that has used many instructions also has a limit of one second.
//!
//! The sandbox has no `pcall` and no coroutine, so nothing can catch the error of a limit. It has no metatables, so no
//! finalizers, and no way to load code. A missing function raises an error with its name ([`ErrorKind::Blocked`]). Byte code
//! is never loaded in any mode, because Lua does not verify it.

mod budget;
mod error;
mod host;
mod native;
pub mod pattern;
mod registered;
mod running;
mod sandbox;
mod script;
mod settings;
mod source;
mod value;

/// Stack size of a thread that runs scripts: calls nest through C up to 200 levels, at up to 12 KiB each in an unoptimised
/// build.
pub const STACK: usize = 8 << 20;

pub use error::{ErrorKind, LuaError};
pub use host::{Host, HostError, NoHost, Subject};
pub use registered::Registered;
pub use running::{running, thread_mark};
pub use script::{Needs, Script, TRANSFORM_ARGS_MAX};
pub use settings::{Limits, Log, LogLevel, Mode, Settings};
pub use source::{SOURCE_MAX, Source};
pub use value::Value;
