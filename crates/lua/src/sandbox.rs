//! Lua states: their content and their limits.

use std::sync::{Arc, Mutex};

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, VmState};

use crate::budget::Budget;
use crate::error::LuaError;
use crate::native::{self, Shared};
use crate::registered::Registered;
use crate::settings::{Mode, Settings};

/// Locks the script's registrations; the lock is never contended.
pub(crate) fn locked(list: &Mutex<Registered>) -> std::sync::MutexGuard<'_, Registered> {
    list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The script's position, for the error of a limit.
fn place(debug: &mlua::debug::Debug<'_>) -> String {
    let source = debug.source();
    match (source.source.as_deref().and_then(|s| s.strip_prefix('@')), debug.current_line()) {
        (Some(name), Some(line)) => format!("{name}:{line}: "),
        _ => String::new(),
    }
}

/// A state with the libraries, but without a script.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lua: Lua,
    /// Values that the prelude shares with Rust.
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
