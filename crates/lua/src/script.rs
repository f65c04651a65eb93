//! One script: loads it, determines its needs, and calls it.

use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{FromLuaMulti, Function, IntoLuaMulti, LuaString, MultiValue, Table};

use crate::error::{ErrorKind, LuaError};
use crate::host::{Host, HostError, NoHost, Subject};
use crate::registered::Registered;
use crate::running::Call;
use crate::sandbox::{State, locked};
use crate::settings::Settings;
use crate::source::Source;
use crate::value::Value;

/// Limit of the arguments of a `luaxform`.
pub const TRANSFORM_ARGS_MAX: usize = 10;
/// Limit of the entries that `init` returns.
const NEEDS_MAX: usize = 64;

/// The result of `init`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names with the value true (or the text `"true"`).
    pub wanted: Vec<String>,
    /// Names with another text: `type`, `protocol`, `filter`.
    pub texts: Vec<(String, String)>,
    /// Variables that it names, in the result or through the libraries.
    pub registered: Registered,
}

impl Needs {
    /// The text of a name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.texts.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// A query of the prelude: the subject, the query, and arguments; missing ones are nil.
type Question = (LuaString, LuaString, mlua::Value, mlua::Value, mlua::Value);

/// A script in a state of its own, for one worker.
#[derive(Debug)]
pub struct Script {
    state: State,
    name: String,
    /// Shows other threads whether it is running.
    call: Arc<Call>,
    /// The function that is called repeatedly.
    main: Option<Function>,
}

impl Script {
    /// Creates a state and runs the script's text, which defines its functions.
    ///
    /// # Errors
    /// The script does not compile, or fails.
    pub fn load(source: &Source, settings: &Settings) -> Result<Script, LuaError> {
        Self::with_path(source, settings, None)
    }

    /// As [`Script::load`], with a search path for Lua modules (`package.path`), if the mode allows modules.
    ///
    /// # Errors
    /// As [`Script::load`].
    pub fn with_path(source: &Source, settings: &Settings, path: Option<&str>) -> Result<Script, LuaError> {
        let state = State::new(settings)?;
        if let Some(path) = path
            && let Ok(package) = state.lua.globals().get::<Table>("package")
        {
            package.set("path", path).map_err(|e| LuaError::of(&e, ErrorKind::Script, &source.name))?;
        }
        let script = Script { state, name: source.name.to_string(), call: Call::of(&source.name), main: None };
        let lua = &script.state.lua;
        // As for the lua command, a script may begin with a byte order mark, and with a `#!` line.
        let text = source.text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&source.text);
        let text = match text.strip_prefix(b"#") {
            Some(rest) => rest.get(rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())..).unwrap_or(&[]),
            None => text,
        };
        let chunk = lua
            .load(text)
            .set_name(format!("@{}", script.name))
            .set_mode(ChunkMode::Text)
            .into_function()
            .map_err(|e| LuaError::of(&e, ErrorKind::Script, &script.name))?;
        script.run::<MultiValue>(&mut NoHost, &chunk, ())?;
        Ok(script)
    }

    /// Its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it defines a function.
    pub fn has(&self, function: &str) -> bool {
        self.function(function).is_some()
    }

    fn function(&self, name: &str) -> Option<Function> {
        self.state.lua.globals().raw_get::<Function>(name).ok()
    }

    fn needed(&self, name: &str) -> Result<Function, LuaError> {
        self.function(name)
            .ok_or_else(|| LuaError::script(format!("{}: there is no function {name}() in the script", self.name)))
    }

    /// Calls `init`, and checks the function `main` that is called later.
    ///
    /// # Errors
    /// A function is missing or fails, or `init` does not return a table with valid entries.
    pub fn init(&mut self, host: &mut dyn Host, main: &str) -> Result<Needs, LuaError> {
        let init = self.needed("init")?;
        let wrap = |e: mlua::Error| LuaError::of(&e, ErrorKind::Script, &self.name);
        let args = self.state.lua.create_table().map_err(wrap)?;
        args.raw_set("script_api_ver", 1).map_err(wrap)?;
        let returned: mlua::Value = self.run(host, &init, args)?;
        let mlua::Value::Table(table) = returned else {
            return Err(LuaError::script(format!("{}: init() returns no table", self.name)));
        };
        let mut needs = Needs::default();
        for pair in table.pairs::<mlua::Value, mlua::Value>().take(NEEDS_MAX) {
            let (key, value) = pair.map_err(wrap)?;
            let mlua::Value::String(key) = key else {
                return Err(LuaError::script(format!(
                    "{}: init() returns a table with a key that is no name",
                    self.name
                )));
            };
            let key = key.to_string_lossy();
            match value {
                mlua::Value::Boolean(true) => needs.wanted.push(key),
                mlua::Value::Boolean(false) => {}
                mlua::Value::String(text) => match text.to_string_lossy().as_str() {
                    "true" => needs.wanted.push(key),
                    "false" => {}
                    text => needs.texts.push((key, text.to_owned())),
                },
                mlua::Value::Table(list) if ["flowvar", "flowint", "bytevar"].contains(&key.as_str()) => {
                    self.named(host, &key, &list)?;
                }
                other => {
                    let what = other.type_name();
                    return Err(LuaError::script(format!("{}: init() has a {what} for {key}", self.name)));
                }
            }
        }
        needs.wanted.sort_unstable();
        needs.registered = locked(&self.state.registered).clone();
        self.main = Some(self.needed(main)?);
        Ok(needs)
    }

    /// Registers the variables of a list.
    fn named(&self, host: &mut dyn Host, kind: &str, list: &Table) -> Result<(), LuaError> {
        let wrap = |e: mlua::Error| LuaError::of(&e, ErrorKind::Script, &self.name);
        for name in list.sequence_values::<LuaString>() {
            let name = name.map_err(wrap)?.to_string_lossy();
            if kind == "bytevar"
                && let Err(HostError::Absent(why) | HostError::Wrong(why)) =
                    host.ask(Subject::ByteVar, "map", &[Value::text(&name)])
            {
                return Err(LuaError::script(format!("{}: {why}", self.name)));
            }
            locked(&self.state.registered)
                .add(kind, &name)
                .map_err(|e| LuaError::script(format!("{}: {e}", self.name)))?;
        }
        Ok(())
    }

    /// Checks a script's `transform`.
    ///
    /// # Errors
    /// The function is missing.
    pub fn prepare_transform(&mut self) -> Result<(), LuaError> {
        self.main = Some(self.needed("transform")?);
        Ok(())
    }

    /// Calls a function without arguments, if the script has it.
    ///
    /// # Errors
    /// The script raises an error, or exceeds a limit.
    pub fn call_if_there(&self, host: &mut dyn Host, name: &str) -> Result<(), LuaError> {
        match self.function(name) {
            Some(f) => {
                let args =
                    self.state.lua.create_table().map_err(|e| LuaError::of(&e, ErrorKind::Script, &self.name))?;
                self.run::<MultiValue>(host, &f, args).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Calls the main function with a table of the values that it requested. For a rule, returns whether it matches: the
    /// function returns 1, or a table whose `retval` is 1.
    ///
    /// # Errors
    /// The script raises an error, or exceeds a limit.
    pub fn call(&self, host: &mut dyn Host, args: &[(&str, Value<'_>)]) -> Result<bool, LuaError> {
        let Some(main) = &self.main else { return Ok(false) };
        let wrap = |e: mlua::Error| LuaError::of(&e, ErrorKind::Script, &self.name);
        let table = self.table(args).map_err(wrap)?;
        let one = |v: &mlua::Value| match v {
            mlua::Value::Integer(n) => *n == 1,
            mlua::Value::Number(n) => *n == 1.0,
            _ => false,
        };
        Ok(match self.run::<mlua::Value>(host, main, table)? {
            // In a table, text is a number too: the manual's older examples have tostring(1).
            mlua::Value::Table(t) => match t.raw_get::<mlua::Value>("retval").map_err(wrap)? {
                mlua::Value::String(s) => s.as_bytes().trim_ascii() == b"1",
                v => one(&v),
            },
            v => one(&v),
        })
    }

    /// Calls the main function with a value, and ignores the result.
    ///
    /// # Errors
    /// The script raises an error, or exceeds a limit.
    pub fn call_value(&self, host: &mut dyn Host, arg: &Value<'_>) -> Result<(), LuaError> {
        let Some(main) = &self.main else { return Ok(()) };
        let wrap = |e: mlua::Error| LuaError::of(&e, ErrorKind::Script, &self.name);
        let arg = arg.clone().into_lua(&self.state.lua).map_err(wrap)?;
        // Functions of older releases return parts of it.
        self.state.native.raw_set("args", &arg).map_err(wrap)?;
        self.run::<MultiValue>(host, main, arg).map(|_| ())
    }

    fn table(&self, args: &[(&str, Value<'_>)]) -> mlua::Result<Table> {
        let lua = &self.state.lua;
        let table = lua.create_table_with_capacity(0, args.len())?;
        for (name, value) in args {
            table.raw_set(*name, value.clone().into_lua(lua)?)?;
        }
        Ok(table)
    }

    /// Calls `transform` with `input` and the rule's arguments, and appends the result to `out`. Returns whether there is a
    /// result: a script that does not return text and a length leaves the input unchanged.
    ///
    /// # Errors
    /// The script raises an error, or exceeds a limit.
    pub fn transform(&self, input: &[u8], args: &[String], out: &mut Vec<u8>) -> Result<bool, LuaError> {
        let Some(main) = &self.main else { return Ok(false) };
        let lua = &self.state.lua;
        let prepare = || -> mlua::Result<(LuaString, Table)> {
            let list = lua.create_table()?;
            // Indexed from 1, as the loop in the manual's example expects; the manual's text counts from 0.
            for (arg, i) in args.iter().zip(1i64..) {
                list.raw_set(i, arg.as_str())?;
            }
            if let Some(first) = args.first() {
                list.raw_set(0, first.as_str())?;
            }
            Ok((lua.create_string(input)?, list))
        };
        let args = prepare().map_err(|e| LuaError::of(&e, ErrorKind::Script, &self.name))?;
        let (text, len): (mlua::Value, mlua::Value) = self.run(&mut NoHost, main, args)?;
        let (mlua::Value::String(text), Some(len)) = (text, Value::from_lua(&len).as_int()) else { return Ok(false) };
        let text = text.as_bytes();
        let len = usize::try_from(len).unwrap_or(0).min(text.len());
        out.extend_from_slice(text.get(..len).unwrap_or(&[]));
        Ok(true)
    }

    /// Calls a function within the limits.
    fn run<R: FromLuaMulti>(&self, host: &mut dyn Host, f: &Function, args: impl IntoLuaMulti) -> Result<R, LuaError> {
        let State { lua, native, budget, .. } = &self.state;
        budget.start();
        let _running = self.call.begin();
        let result = lua.scope(|scope| {
            let ask = scope.create_function_mut(|lua, (subject, what, a, b, c): Question| {
                let (subject, what) = (subject.to_str()?, what.to_str()?);
                let Some(subject) = Subject::from_name(&subject) else {
                    return Err(mlua::Error::runtime("the engine knows nothing of that"));
                };
                let args = [&a, &b, &c].map(Value::from_lua);
                match host.ask(subject, &what, &args) {
                    Ok(v) => v.into_multi(lua),
                    Err(HostError::Absent(why)) => {
                        Ok(MultiValue::from_iter([mlua::Value::Nil, mlua::Value::String(lua.create_string(why)?)]))
                    }
                    Err(HostError::Wrong(why)) => Err(mlua::Error::runtime(why)),
                }
            })?;
            native.raw_set("host", ask)?;
            let result = f.call::<R>(args);
            native.raw_set("host", mlua::Value::Nil)?;
            result
        });
        let kind = budget.broke();
        match result {
            // It exceeded a limit, even if the script swallowed the error.
            Ok(_) if kind == Some(ErrorKind::Instructions) => {
                let message = format!("{}: instruction limit exceeded", self.name);
                Err(LuaError { kind: ErrorKind::Instructions, message })
            }
            Ok(r) => Ok(r),
            Err(e) => Err(LuaError::of(&e, kind.unwrap_or(ErrorKind::Script), &self.name)),
        }
    }
}
