//! Scripts as a worker loads them.

use std::sync::Arc;

use margay_lua::{ErrorKind, Log, LogLevel, LuaError, Script};

/// Errors of scripts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LuaCounters {
    /// Calls that failed, for any reason.
    pub errors: u64,
    /// Calls of functions that the sandbox blocks.
    pub blocked: u64,
    /// Calls that ran too long.
    pub instructions: u64,
    /// Calls that needed too much memory.
    pub memory: u64,
}

impl LuaCounters {
    pub(crate) fn count(&mut self, kind: ErrorKind) {
        self.errors += 1;
        match kind {
            ErrorKind::Script => {}
            ErrorKind::Blocked => self.blocked += 1,
            ErrorKind::Instructions => self.instructions += 1,
            ErrorKind::Memory => self.memory += 1,
        }
    }

    pub(crate) fn and(self, other: LuaCounters) -> LuaCounters {
        LuaCounters {
            errors: self.errors + other.errors,
            blocked: self.blocked + other.blocked,
            instructions: self.instructions + other.instructions,
            memory: self.memory + other.memory,
        }
    }
}

/// Logs script errors, once for each script and kind of error.
pub(crate) struct Teller {
    pub(crate) log: Log,
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Teller")
    }
}

impl Default for Teller {
    fn default() -> Self {
        Teller { log: Arc::new(|_, _| {}) }
    }
}

impl Teller {
    pub(crate) fn tell(&self, logged: &mut u8, e: &LuaError) {
        let bit = 1 << e.kind as u8;
        if *logged & bit == 0 {
            *logged |= bit;
            (self.log)(LogLevel::Warning, &format!("failed to run script: {e}"));
        }
    }
}

/// A script loaded into a state of the worker.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// `None` if the state could not be created, which was logged.
    pub(crate) script: Option<Script>,
    /// Kinds of errors already logged, one bit each.
    pub(crate) told: u8,
}

/// Scripts of transforms.
#[derive(Debug, Default)]
pub struct TransformScripts {
    pub(crate) scripts: Vec<Loaded>,
    pub(crate) counters: LuaCounters,
    pub(crate) teller: Teller,
}

impl TransformScripts {
    /// Calls script number `number` for `input`; returns whether it gave a result, which is appended to `out`.
    pub(crate) fn transform(&mut self, number: u32, input: &[u8], args: &[String], out: &mut Vec<u8>) -> bool {
        let TransformScripts { scripts, counters, teller } = self;
        let Some(Loaded { script: Some(script), told }) = scripts.get_mut(number as usize) else { return false };
        match script.transform(input, args, out) {
            Ok(gave) => gave,
            Err(e) => {
                counters.count(e.kind);
                teller.tell(told, &e);
                false
            }
        }
    }
}
