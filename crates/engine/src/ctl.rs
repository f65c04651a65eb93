//! `margay ctl COMMAND …`: sends a command to a running engine over its unix socket.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::console::say;
use crate::control::commands::{COMMANDS, Kind};
use crate::settings::socket_path;

/// How long to wait for an answer: a reload of many rules takes time.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn help() -> String {
    let mut out = String::from(
        "Usage: margay ctl [--socket FILE] COMMAND [ARGUMENT]...\n\n\
         Sends a command to a running engine over its unix socket, and prints the answer as one JSON object.\n\n  \
           --socket FILE    the socket (default: /run/margay/margay-command.socket)\n  \
           -h, --help       this text\n\nCommands:\n",
    );
    for c in COMMANDS {
        out.push_str("  ");
        out.push_str(c.name);
        for a in c.args {
            out.push_str(&if a.required { format!(" <{}>", a.name) } else { format!(" [{}]", a.name) });
        }
        out.push('\n');
    }
    out.push_str(
        "\nExit status: 0 if the answer is OK, 1 if it is not, 2 if the engine did not answer or the command is unknown.\n",
    );
    out
}

/// The command as a message.
fn message(words: &[String]) -> Result<Value, String> {
    let Some((name, given)) = words.split_first() else {
        return Err("which command? See 'margay ctl --help'".into());
    };
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        // The engine may be newer, and know more commands.
        return if given.is_empty() {
            Ok(json!({"command": name}))
        } else {
            Err(format!("there is no command {name}"))
        };
    };
    if given.len() > command.args.len() {
        return Err(format!("{name} takes no more than {} arguments", command.args.len()));
    }
    let mut arguments = Map::new();
    for (a, text) in command.args.iter().zip(given) {
        let value = match a.kind {
            Kind::Text => json!(text),
            Kind::Number => {
                json!(text.parse::<u64>().map_err(|_| format!("{}: \"{text}\" is no whole number", a.name))?)
            }
            Kind::Flag => json!(margay_config::typed::parse_bool(text).map_err(|e| format!("{}: {e}", a.name))?),
        };
        arguments.insert(a.name.into(), value);
    }
    if let Some(missing) = command.args.iter().skip(given.len()).find(|a| a.required) {
        return Err(format!("{name} needs <{}>", missing.name));
    }
    let mut message = json!({"command": name});
    if let (false, Value::Object(o)) = (arguments.is_empty(), &mut message) {
        o.insert("arguments".into(), Value::Object(arguments));
    }
    Ok(message)
}

fn read(stream: &mut UnixStream) -> Result<Map<String, Value>, String> {
    let mut bytes = [0u8; 4096];
    let mut whole = Vec::new();
    loop {
        // Answers may exceed the engine's limit for messages. They end with a line feed.
        let n = stream.read(&mut bytes).map_err(|e| format!("no answer: {e}"))?;
        if n == 0 {
            return Err("the engine closed the connection".into());
        }
        whole.extend_from_slice(bytes.get(..n).unwrap_or_default());
        if whole.ends_with(b"\n") {
            return serde_json::from_slice(&whole).map_err(|e| format!("the answer is not valid JSON: {e}"));
        }
    }
}

fn ask(socket: &std::path::Path, message: &Value) -> Result<Map<String, Value>, String> {
    let failed = |e: std::io::Error| format!("cannot reach an engine at {}: {e}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.write_all(b"{\"version\": \"0.2\"}\n").map_err(failed)?;
    let hello = read(&mut stream)?;
    if hello.get("return").and_then(Value::as_str) != Some("OK") {
        return Err("the engine does not speak this version of the protocol".into());
    }
    stream.write_all(format!("{message}\n").as_bytes()).map_err(failed)?;
    read(&mut stream)
}

/// Runs `margay ctl`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let mut socket: Option<PathBuf> = None;
    let mut words: Vec<String> = Vec::new();
    let mut args = args.iter();
    let wrong = |what: &str| {
        eprintln!("margay ctl: {what}");
        ExitCode::from(2)
    };
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        match &*text {
            "-h" | "--help" if words.is_empty() => return say(&help()),
            "--socket" | "-s" if words.is_empty() => match args.next() {
                Some(file) => socket = Some(PathBuf::from(file)),
                None => return wrong("--socket needs a file"),
            },
            t if words.is_empty() && t.starts_with("--socket=") => {
                socket = t.split_once('=').map(|(_, file)| PathBuf::from(file));
            }
            t if words.is_empty() && t.starts_with('-') => return wrong(&format!("there is no option {t}")),
            t => words.push(t.to_owned()),
        }
    }
    let message = match message(&words) {
        Ok(m) => m,
        Err(e) => return wrong(&e),
    };
    // A relative name refers to the current folder, not to the engine's.
    let socket = socket.unwrap_or_else(|| socket_path(None));
    match ask(&socket, &message) {
        Ok(answer) => {
            let ok = answer.get("return").and_then(Value::as_str) == Some("OK");
            let said = say(&Value::Object(answer).to_string());
            if ok { said } else { ExitCode::FAILURE }
        }
        Err(e) => wrong(&e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_messages() {
        let of = |t: &str| message(&t.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("uptime"), Ok(json!({"command": "uptime"})));
        assert_eq!(
            of("pcap-file /a /b 3 yes"),
            Ok(json!({"command": "pcap-file", "arguments":
                {"filename": "/a", "output-dir": "/b", "tenant": 3, "continuous": true}}))
        );
        for (wrong, word) in [
            ("conf-get", "variable"),
            ("conf-get a b", "no more"),
            ("unregister-tenant x", "whole number"),
            ("nonsense a", "nonsense"),
        ] {
            let e = of(wrong).unwrap_err();
            assert!(e.contains(word), "{e}");
        }
        assert!(message(&[]).is_err());
    }
}
