//! Errors of scripts.

/// The kind of an error, as counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The script is invalid, or raised an error itself.
    Script,
    /// It called a function that the sandbox lacks.
    Blocked,
    /// It ran for too long.
    Instructions,
    /// It exceeded its memory limit.
    Memory,
}

/// An error of a script, with file and line if Lua knows them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LuaError {
    /// The kind.
    pub kind: ErrorKind,
    /// What happened, and where.
    pub message: String,
}

impl LuaError {
    pub(crate) fn script(message: impl Into<String>) -> Self {
        LuaError { kind: ErrorKind::Script, message: message.into() }
    }

    /// Converts an error raised by Lua. `name` is the script's file, which is the name of its chunk.
    pub(crate) fn of(error: &mlua::Error, kind: ErrorKind, name: &str) -> Self {
        let kind = match error {
            mlua::Error::MemoryError(_) if kind == ErrorKind::Script => ErrorKind::Memory,
            _ => kind,
        };
        let message = text(error, name);
        let message = if message.starts_with(name) { message } else { format!("{name}: {message}") };
        LuaError { kind, message }
    }
}

/// The error's message, without the traceback, but with its line number.
fn text(error: &mlua::Error, name: &str) -> String {
    match error {
        mlua::Error::CallbackError { traceback, cause } => {
            let words = text(cause, name);
            match place(traceback, name) {
                Some(place) if !words.starts_with(name) => format!("{place}: {words}"),
                _ => words,
            }
        }
        mlua::Error::RuntimeError(s) | mlua::Error::SyntaxError { message: s, .. } => first(s).to_owned(),
        mlua::Error::MemoryError(_) => "not enough memory".to_owned(),
        mlua::Error::ExternalError(e) => e.to_string(),
        other => first(&other.to_string()).to_owned(),
    }
}

fn first(s: &str) -> &str {
    s.split("\nstack traceback:").next().unwrap_or(s).trim_end()
}

/// The first line of a traceback that is in the script: `file:line`.
fn place(traceback: &str, name: &str) -> Option<String> {
    traceback.lines().find_map(|l| {
        let l = l.trim_start();
        let rest = l.strip_prefix(name)?.strip_prefix(':')?;
        let line = rest.split(':').next().filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))?;
        Some(format!("{name}:{line}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_in_a_traceback() {
        let t = "stack traceback:\n\t[C]: in ?\n\ta/b.lua:12: in function 'match'\n\ta/b.lua:1: x";
        assert_eq!(place(t, "a/b.lua").as_deref(), Some("a/b.lua:12"));
        assert_eq!(place(t, "c.lua"), None);
        assert_eq!(first("x.lua:1: bad\nstack traceback:\n\tx"), "x.lua:1: bad");
    }
}
