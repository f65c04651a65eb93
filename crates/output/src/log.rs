//! The engine's own messages: on the console, in `suricata.log` and in syslog.
//!
//! A message takes a lock and reads the clock, so this is for the start, the end and rare events. The packet path counts
//! instead.
//!
//! Until [`init`] is called, messages go to the console, at level [`Level::Notice`].

use std::fmt::{Arguments, Write as _};
use std::io::{IsTerminal, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::SystemTime;

use margay_packet::Time;

use crate::json::Json;
use crate::priority::Facility;
use crate::time::{Clock, split_at_conversion};

/// Importance of a message. The later levels are shown only at a higher verbosity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work.
    Error,
    /// Something is wrong, but the engine works.
    Warning,
    /// Worth knowing in every run; the default.
    Notice,
    /// `-v`.
    Info,
    /// `-vv`.
    Perf,
    /// `-vvv`.
    Config,
    /// `-vvvv`.
    Debug,
}

impl Level {
    /// The level with that name. Syslog's levels above `error` map to `error`.
    pub fn from_name(name: &str) -> Option<Level> {
        Some(match name.to_ascii_lowercase().as_str() {
            "emergency" | "alert" | "critical" | "error" => Level::Error,
            "warning" => Level::Warning,
            "notice" => Level::Notice,
            "info" => Level::Info,
            "perf" => Level::Perf,
            "config" => Level::Config,
            "debug" => Level::Debug,
            _ => return None,
        })
    }

    /// The level's name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Error => "Error",
            Level::Warning => "Warning",
            Level::Notice => "Notice",
            Level::Info => "Info",
            Level::Perf => "Perf",
            Level::Config => "Config",
            Level::Debug => "Debug",
        }
    }

    /// The level's short name in messages.
    const fn letter(self) -> &'static str {
        match self {
            Level::Error => "E",
            Level::Warning => "W",
            Level::Notice | Level::Info => "i",
            Level::Perf => "P",
            Level::Config => "C",
            Level::Debug => "D",
        }
    }

    /// The level that `times` repetitions of `-v` ask for at least. Without `-v` it is the lowest, so that the
    /// configuration decides.
    pub const fn verbose(times: u8) -> Level {
        match times {
            0 => Level::Error,
            1 => Level::Info,
            2 => Level::Perf,
            3 => Level::Config,
            _ => Level::Debug,
        }
    }
}

/// Destination of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Errors to standard error, the rest to standard output.
    Console,
    /// A file, appended to.
    File(PathBuf),
    /// Syslog, with the facility and the sender's identity.
    Syslog(Facility, String),
}

/// One entry of `logging.outputs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOutput {
    /// Destination.
    pub target: LogTarget,
    /// `level`; `-v` may raise it.
    pub level: Level,
    /// `type: json`: events of type `engine`.
    pub json: bool,
    /// `format`: the form of text lines, if it is not the default.
    pub format: Option<String>,
}

#[derive(Debug)]
enum Writer {
    /// The flags say whether standard output and standard error are terminals.
    Console {
        colour: [bool; 2],
    },
    File(std::fs::File),
    Syslog(Option<UnixDatagram>, Facility, String),
}

#[derive(Debug)]
struct Open {
    writer: Writer,
    path: Option<PathBuf>,
    level: Level,
    json: bool,
    format: Option<String>,
}

static LOGGER: RwLock<Logger> = RwLock::new(Logger { outputs: Vec::new(), filter: None });

/// Selects the lines to write. It receives each line as the output formats it, without colours and line end.
pub type LineFilter = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

struct Logger {
    outputs: Vec<Open>,
    filter: Option<LineFilter>,
}

/// Opens the outputs and uses them from now on. `verbosity` raises the level of each to at least this one. With a
/// `filter`, only the lines that it accepts are written.
///
/// # Errors
/// The message of the first file that cannot be opened; all other outputs are in use then.
pub fn init(outputs: &[LogOutput], verbosity: Level, filter: Option<LineFilter>) -> Result<(), String> {
    let mut result = Ok(());
    let mut open = Vec::new();
    for o in outputs {
        let (writer, path) = match &o.target {
            LogTarget::Console => (console(), None),
            LogTarget::File(path) => match open_file(path) {
                Ok(f) => (Writer::File(f), Some(path.clone())),
                Err(e) => {
                    result = Err(format!("{}: log file cannot be opened: {e}", path.display()));
                    continue;
                }
            },
            LogTarget::Syslog(facility, identity) => (Writer::Syslog(syslog(), *facility, identity.clone()), None),
        };
        open.push(Open { writer, path, level: o.level.max(verbosity), json: o.json, format: o.format.clone() });
    }
    *LOGGER.write().unwrap_or_else(PoisonError::into_inner) = Logger { outputs: open, filter };
    result
}

/// Reopens the log files, after they were moved away.
pub fn reopen() {
    for o in &mut LOGGER.write().unwrap_or_else(PoisonError::into_inner).outputs {
        if let Some(f) = o.path.as_ref().and_then(|p| open_file(p).ok()) {
            o.writer = Writer::File(f);
        }
    }
}

/// Colours are used on terminals, unless the environment forbids them (NO_COLOR).
fn console() -> Writer {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let allowed = !forbidden && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
    let terminals = [std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
    Writer::Console { colour: terminals.map(|t| t && allowed) }
}

fn open_file(path: &PathBuf) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).open(path)
}

fn syslog() -> Option<UnixDatagram> {
    let s = UnixDatagram::unbound().ok()?;
    s.connect("/dev/log").ok()?;
    s.set_nonblocking(true).ok()?;
    Some(s)
}

/// Logs a message. `module` is the part of the engine that logs it: `detect`, `suricata`, ...
pub fn log(level: Level, module: &str, message: Arguments<'_>) {
    let logger = LOGGER.read().unwrap_or_else(PoisonError::into_inner);
    let fallback;
    let list: &[Open] = if logger.outputs.is_empty() {
        fallback = [Open { writer: console(), path: None, level: Level::Notice, json: false, format: None }];
        &fallback
    } else {
        &logger.outputs
    };
    if list.iter().all(|o| level > o.level) {
        return;
    }
    let mut text = String::new();
    let _ = text.write_fmt(message);
    let micros = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_micros());
    let said = Said {
        level,
        module,
        text: &text,
        time: Time(i64::try_from(micros).unwrap_or(i64::MAX)),
        thread: std::thread::current().name().map_or("Worker", |n| if n == "main" { "Main" } else { n }).to_owned(),
        id: rustix::thread::gettid().as_raw_nonzero().get(),
    };
    for o in list.iter().filter(|o| level <= o.level) {
        if logger.filter.as_ref().is_none_or(|takes| takes(o.plain(&said).trim_ascii_end())) {
            o.write(&said);
        }
    }
}

struct Said<'a> {
    level: Level,
    module: &'a str,
    text: &'a str,
    time: Time,
    thread: String,
    id: i32,
}

impl Open {
    /// The message as this output formats it, without colours.
    fn plain(&self, said: &Said<'_>) -> Vec<u8> {
        self.line(said, false)
    }

    fn line(&self, said: &Said<'_>, colour: bool) -> Vec<u8> {
        let mut line = Vec::with_capacity(said.text.len() + 100);
        match (&self.format, &self.writer) {
            _ if self.json => said.json(&mut line),
            (Some(format), Writer::Syslog(..)) => said.formatted(&mut line, format),
            (Some(format), _) => {
                said.formatted(&mut line, format);
                line.push(b'\n');
            }
            (None, Writer::Console { .. }) => said.console(&mut line, self.level, colour),
            (None, Writer::File(_)) => said.file(&mut line),
            (None, Writer::Syslog(..)) => said.syslog(&mut line),
        }
        line
    }

    fn write(&self, said: &Said<'_>) {
        let colour = match self.writer {
            Writer::Console { colour } => colour[usize::from(said.level == Level::Error)],
            _ => false,
        };
        let line = self.line(said, colour);
        // If this fails, there is nowhere left to report it.
        let _ = match &self.writer {
            Writer::Console { .. } if said.level == Level::Error => std::io::stderr().lock().write_all(&line),
            Writer::Console { .. } => std::io::stdout().lock().write_all(&line),
            Writer::File(f) => {
                let mut f = f;
                f.write_all(&line)
            }
            Writer::Syslog(Some(s), facility, identity) => {
                let priority = (*facility as u8) << 3
                    | match said.level {
                        Level::Error => 3,
                        Level::Warning => 4,
                        Level::Notice => 5,
                        Level::Info | Level::Perf | Level::Config => 6,
                        Level::Debug => 7,
                    };
                let mut message = format!("<{priority}>{identity}[{}]: ", std::process::id()).into_bytes();
                message.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(&line));
                s.send(&message).map(|_| ())
            }
            Writer::Syslog(None, ..) => Ok(()),
        };
    }
}

impl Said<'_> {
    /// The format depends on the console's level: higher levels also show the module.
    fn console(&self, out: &mut Vec<u8>, shown: Level, colour: bool) {
        let (mark, text) = match self.level {
            Level::Error => ("\x1b[1;31m", "\x1b[31m"),
            Level::Warning => ("\x1b[31m", "\x1b[33m"),
            Level::Notice => ("\x1b[1;33m", "\x1b[33m"),
            _ => ("\x1b[33m", ""),
        };
        let name = match self.level {
            level if shown > Level::Notice => level.name(),
            level => level.letter(),
        };
        if shown >= Level::Perf {
            let _ = write!(out, "[{}] ", self.id);
        }
        let _ = if colour {
            writeln!(out, "{mark}{name}\x1b[0m: \x1b[32m{}\x1b[0m: {text}{}\x1b[0m", self.module, self.text)
        } else {
            writeln!(out, "{name}: {}: {}", self.module, self.text)
        };
    }

    fn file(&self, out: &mut Vec<u8>) {
        let _ = write!(out, "[{} - {}] ", self.id, self.thread);
        Clock::system().log(out, self.time);
        let _ = writeln!(out, " {}: {}: {}", self.level.name(), self.module, self.text);
    }

    fn syslog(&self, out: &mut Vec<u8>) {
        let _ = write!(out, "[{}] <{}> -- {}", self.id, self.level.name(), self.text);
    }

    /// Appends the message in a configured form: text with `%` and a letter for each part. A form without `%M` comes
    /// before the message. Places in the source are not kept; the module stands for them.
    fn formatted(&self, out: &mut Vec<u8>, format: &str) {
        let mut has_text = false;
        let mut rest = format;
        while let Some((before, conversion, after)) = split_at_conversion(rest) {
            out.extend_from_slice(before.as_bytes());
            rest = after;
            let _ = match conversion.chars().nth(1) {
                Some('z') => {
                    Clock::system().log(out, self.time);
                    Ok(())
                }
                Some('t') => {
                    Clock::system().strftime(out, self.time, "%d/%m/%Y -- %H:%M:%S");
                    Ok(())
                }
                Some('p') => write!(out, "{}", std::process::id()),
                Some('i') => write!(out, "{}", self.id),
                Some('m' | 'T') => write!(out, "{}", self.thread),
                Some('d') => write!(out, "{}", self.level.name()),
                Some('D') => write!(out, "{}", self.level.letter()),
                Some('S' | 'f' | 'n') => write!(out, "{}", self.module),
                Some('l') => write!(out, "0"),
                Some('M') => {
                    has_text = true;
                    write!(out, "{}", self.text)
                }
                _ => write!(out, "{conversion}"),
            };
        }
        out.extend_from_slice(rest.as_bytes());
        if !has_text {
            out.extend_from_slice(self.text.as_bytes());
        }
    }

    fn json(&self, out: &mut Vec<u8>) {
        let mut j = Json::new();
        j.item_object();
        j.time("timestamp", self.time, &mut Clock::system());
        j.str("log_level", self.level.name());
        j.str("event_type", "engine");
        j.object("engine");
        j.str("message", self.text);
        j.str("thread_name", &self.thread);
        j.str("module", self.module);
        j.end_object();
        j.end_object();
        j.raw(b"\n");
        out.extend_from_slice(j.as_bytes());
    }
}

/// `error!("detect", "rule {} ...", n)`
#[macro_export]
macro_rules! error {
    ($module:expr, $($arg:tt)+) => { $crate::log::log($crate::log::Level::Error, $module, format_args!($($arg)+)) };
}
/// `warning!("detect", "...")`
#[macro_export]
macro_rules! warning {
    ($module:expr, $($arg:tt)+) => { $crate::log::log($crate::log::Level::Warning, $module, format_args!($($arg)+)) };
}
/// `notice!("suricata", "...")`
#[macro_export]
macro_rules! notice {
    ($module:expr, $($arg:tt)+) => { $crate::log::log($crate::log::Level::Notice, $module, format_args!($($arg)+)) };
}
/// `info!("detect", "...")`
#[macro_export]
macro_rules! info {
    ($module:expr, $($arg:tt)+) => { $crate::log::log($crate::log::Level::Info, $module, format_args!($($arg)+)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(level: Level) -> Said<'static> {
        Said {
            level,
            module: "detect",
            text: "a \"b\"",
            time: Time::new(1_468_449_727, 199_672),
            thread: "W#01".into(),
            id: 42,
        }
    }

    fn console(level: Level, shown: Level, colour: bool) -> String {
        let mut out = Vec::new();
        said(level).console(&mut out, shown, colour);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn console_lines() {
        assert_eq!(console(Level::Notice, Level::Notice, false), "i: detect: a \"b\"\n");
        assert_eq!(console(Level::Error, Level::Notice, false), "E: detect: a \"b\"\n");
        assert_eq!(console(Level::Warning, Level::Notice, false), "W: detect: a \"b\"\n");
        assert_eq!(console(Level::Notice, Level::Info, false), "Notice: detect: a \"b\"\n");
        assert_eq!(console(Level::Perf, Level::Perf, false), "[42] Perf: detect: a \"b\"\n");
        assert_eq!(
            console(Level::Error, Level::Notice, true),
            "\x1b[1;31mE\x1b[0m: \x1b[32mdetect\x1b[0m: \x1b[31ma \"b\"\x1b[0m\n"
        );
    }

    #[test]
    fn configured_forms() {
        let formatted = |format: &str| {
            let mut out = Vec::new();
            said(Level::Warning).formatted(&mut out, format);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(formatted("[%i - %m] %d %D: %S: %M|"), "[42 - W#01] Warning W: detect: a \"b\"|");
        assert_eq!(formatted("[%i] <%d> -- "), "[42] <Warning> -- a \"b\"");
        assert_eq!(formatted("%q%% %ü%"), "%q%% %ü%a \"b\"");
        assert_eq!(
            formatted("%T (%f:%l) (%n) %p %M"),
            format!("W#01 (detect:0) (detect) {} a \"b\"", std::process::id())
        );
        assert_eq!((formatted("%z%M").len(), formatted("%t%M").len()), (19 + 5, 22 + 5));
    }

    #[test]
    fn json_lines() {
        let mut out = Vec::new();
        said(Level::Error).json(&mut out);
        let v: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(v["log_level"], "Error");
        assert_eq!(v["event_type"], "engine");
        assert_eq!(v["engine"]["message"], "a \"b\"");
        assert_eq!(v["engine"]["module"], "detect");
        assert_eq!(v["engine"]["thread_name"], "W#01");
        assert!(out.ends_with(b"}}\n"));
    }

    #[test]
    fn levels() {
        assert_eq!(Level::from_name("Emergency"), Some(Level::Error));
        assert_eq!(Level::from_name("perf"), Some(Level::Perf));
        assert_eq!(Level::from_name("loud"), None);
        assert!(Level::verbose(1) > Level::verbose(0));
        // Without -v, a configuration may ask for errors alone.
        assert_eq!(Level::verbose(0), Level::Error);
        assert_eq!(Level::verbose(200), Level::Debug);
    }
}
