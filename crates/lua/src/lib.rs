//! Lua scripts in a sandbox.
//!
//! A [`Script`] is one Lua 5.4 state with one script in it. It is made when rules or outputs are loaded, never for a packet,
//! and belongs to one worker. What a script may ask of the engine goes through one narrow trait, [`Host`]: a subject (the
//! packet, the flow, a transaction ...), what is asked of it, and arguments. So this crate knows Lua and the shape of the
//! libraries that scripts `require` (`suricata.packet`, `suricata.http` ...), and nothing of packets or protocols.
//!
//! The libraries themselves are Lua (`prelude.lua`), on top of few functions in Rust. What scripts see is that text's
//! doing; what it costs is counted like the script's own instructions.
//!
//! # Limits
//!
//! Each call has a budget of instructions, counted by Lua's count hook every few hundred of them, and the state a limit of
//! bytes, kept by the allocator. C functions run between hooks, so each one whose work is not bounded by the bytes
//! that it is given is replaced: pattern matching is done in Rust with every step counted ([`pattern`]), `string.rep` and
//! the functions on tables say what they are about to do and pay first. What remains touches each byte of its arguments
//! a fixed number of times. As a last net a call that has used many instructions is also held to a second of time.
//!
//! In the sandbox there is no `pcall` and no coroutine, so nothing catches an error of a limit, no metatable, so no
//! finalizer, and no way to load code. What is not in it raises an error that names it ([`ErrorKind::Blocked`]).
//! Byte code is never loaded, in whatever mode: Lua does not check it.

mod budget;
mod error;
mod host;
mod native;
pub mod pattern;
mod running;
mod sandbox;
mod script;
mod source;
mod value;

/// Bytes of stack that a thread needs that runs scripts: calls nest through C up to 200 deep, at up to 12 KiB each where
/// nothing is optimised.
pub const STACK: usize = 8 << 20;

pub use error::{ErrorKind, LuaError};
pub use host::{Host, HostError, NoHost, Subject};
pub use running::{running, thread_mark};
pub use sandbox::{Limits, Log, LogLevel, Mode, Settings};
pub use script::{Needs, Registered, Script, TRANSFORM_ARGS_MAX};
pub use source::{SOURCE_MAX, Source};
pub use value::Value;
