//! States: what is in them, and what holds them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, VmState};

use crate::budget::Budget;
use crate::error::LuaError;
use crate::native::{self, Shared};
use crate::script::Registered;

/// How much a script says with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warning,
    Notice,
    Info,
    Perf,
    Config,
    Debug,
}

impl LogLevel {
    pub(crate) const ALL: [LogLevel; 7] = [
        LogLevel::Error,
        LogLevel::Warning,
        LogLevel::Notice,
        LogLevel::Info,
        LogLevel::Perf,
        LogLevel::Config,
        LogLevel::Debug,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Notice => "notice",
            LogLevel::Info => "info",
            LogLevel::Perf => "perf",
            LogLevel::Config => "config",
            LogLevel::Debug => "debug",
        }
    }
}

/// Where messages of scripts go.
pub type Log = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// What a script may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes beyond what an empty state has (`security.lua.max-bytes`).
    pub bytes: usize,
    /// Instructions of one call (`security.lua.max-instructions`).
    pub instructions: u64,
    /// Longest time of one call; asked for only once a call has used many instructions.
    pub time: Duration,
}

impl Limits {
    /// Those of rules where the configuration has none.
    pub const RULES: Limits = Limits { bytes: 500_000, instructions: 500_000, time: Duration::from_secs(1) };
    /// Those of scripts that write logs.
    pub const OUTPUT: Limits = Limits { bytes: 256 << 20, instructions: 100_000_000, time: Duration::from_secs(10) };
}

/// What a script may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The sandbox's functions alone.
    Sandbox,
    /// All of Lua, files and modules of Lua too (`security.lua.allow-restricted-functions`, scripts that write logs).
    Open,
}

/// How scripts are run.
#[derive(Clone)]
pub struct Settings {
    /// What they may use.
    pub limits: Limits,
    /// What they may reach.
    pub mode: Mode,
    /// Where their messages go.
    pub log: Log,
    /// The folder of logs, for `suricata.config`.
    pub log_path: Option<String>,
}

impl Default for Settings {
    /// The sandbox with the limits of rules; messages go nowhere.
    fn default() -> Self {
        Settings { limits: Limits::RULES, mode: Mode::Sandbox, log: Arc::new(|_, _| {}), log_path: None }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("limits", &self.limits).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// What a script registered; nobody else holds it.
pub(crate) fn locked(list: &Mutex<Registered>) -> std::sync::MutexGuard<'_, Registered> {
    list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Where a script is, for the error of a limit.
fn place(debug: &mlua::debug::Debug<'_>) -> String {
    let source = debug.source();
    match (source.source.as_deref().and_then(|s| s.strip_prefix('@')), debug.current_line()) {
        (Some(name), Some(line)) => format!("{name}:{line}: "),
        _ => String::new(),
    }
}

/// A state with the libraries in it and no script yet.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// What the prelude shares with Rust.
    pub(crate) native: Table,
    pub(crate) budget: Arc<Budget>,
    pub(crate) registered: Arc<Mutex<Registered>>,
}

impl State {
    pub(crate) fn new(settings: &Settings) -> Result<State, LuaError> {
        Self::build(settings).map_err(|e| LuaError::script(format!("cannot make a state of Lua: {e}")))
    }

    fn build(settings: &Settings) -> mlua::Result<State> {
        let mut libs = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8;
        if settings.mode == Mode::Open {
            libs |= StdLib::COROUTINE | StdLib::IO | StdLib::OS | StdLib::PACKAGE;
        }
        let lua = Lua::new_with(libs, LuaOptions::new().catch_rust_panics(true))?;
        let budget = Arc::new(Budget::new(settings.limits.instructions.max(1), settings.limits.time));
        let registered = Arc::new(Mutex::new(Registered::default()));
        let native = lua.create_table()?;
        let shared = Arc::new(Shared { budget: budget.clone(), bytes: settings.limits.bytes });
        native::install(&lua, &native, shared, settings)?;
        let list = registered.clone();
        let register = lua.create_function(move |_, (kind, name): (LuaString, LuaString)| {
            locked(&list).add(&kind.to_string_lossy(), &name.to_string_lossy()).map_err(mlua::Error::runtime)
        })?;
        native.set("register", register)?;
        let list = registered.clone();
        let find = lua.create_function(move |_, (kind, which): (LuaString, mlua::Value)| {
            let list = locked(&list);
            let names = list.of(&kind.to_string_lossy());
            Ok(match which {
                mlua::Value::Integer(n) => usize::try_from(n).ok().and_then(|n| names.get(n)).cloned(),
                mlua::Value::String(s) => {
                    let s = s.to_string_lossy();
                    names.iter().find(|n| **n == s).cloned()
                }
                _ => None,
            })
        })?;
        native.set("registered", find)?;
        let prelude: Function =
            lua.load(include_str!("prelude.lua")).set_name("=prelude").set_mode(ChunkMode::Text).into_function()?;
        let mode = if settings.mode == Mode::Sandbox { "sandbox" } else { "open" };
        prelude.call::<()>((&native, mode))?;
        lua.gc_collect()?;
        lua.set_memory_limit(lua.used_memory().saturating_add(settings.limits.bytes))?;
        let counted = budget.clone();
        let interval = budget.interval();
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(interval), move |_, debug| {
            match counted.spend(interval.into()) {
                Ok(()) => Ok(VmState::Continue),
                Err(mlua::Error::RuntimeError(e)) => Err(mlua::Error::runtime(format!("{}{e}", place(debug)))),
                Err(e) => Err(e),
            }
        })?;
        Ok(State { lua, native, budget, registered })
    }
}
