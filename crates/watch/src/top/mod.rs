//! `margay top`: shows a running engine in a terminal. Once a second, it requests a snapshot over the unix socket (the
//! command `watch`), and draws it. To a file or a dumb terminal, it prints one snapshot as text.

mod client;
mod draw;
mod format;
mod text;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::model::Snapshot;
use client::Client;
use draw::View;

/// The default path of an engine's socket.
const SOCKET: &str = "/run/margay/margay-command.socket";
/// The default interval between snapshots, and its limits.
const INTERVAL: Duration = Duration::from_secs(1);
const SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;
/// Interval of key polls.
const STEP: Duration = Duration::from_millis(100);

/// The text of `margay top --help`.
pub const HELP: &str = "\
Usage: margay top [OPTIONS]

Shows a running engine: packets and losses, workers, memory, flows, alerts, addresses.

  -s, --socket FILE    the engine's socket (default: /run/margay/margay-command.socket)
  -i, --interval SECS  seconds between two pictures, 1 to 3600 (default: 1)
  -1, --once           print one picture as text and end; the default if the output
                       is not a terminal, and with TERM=dumb
      --json           with --once: the picture as JSON
  -w, --wait           wait for an engine where there is none yet: beside 'margay lab',
                       which starts one after the other, each is shown in its turn
  -h, --help           this text

Keys: q quits, p pauses, h or ? shows the keys, Tab or 1 to 4 changes the view,
arrows move. With NO_COLOR in the environment there are no colours.

Exit status: 0; 2 if no engine answers or the command is invalid.
";

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    socket: PathBuf,
    interval: Duration,
    once: bool,
    json: bool,
    wait: bool,
    help: bool,
}

fn options(args: impl IntoIterator<Item = OsString>) -> Result<Options, String> {
    let mut o =
        Options { socket: SOCKET.into(), interval: INTERVAL, once: false, json: false, wait: false, help: false };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy().into_owned();
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(OsString::from(value))),
            _ => (text.clone(), None),
        };
        let mut value = |what: &str| attached.clone().or_else(|| args.next()).ok_or(format!("{name} needs {what}"));
        match name.as_str() {
            "-s" | "--socket" => o.socket = value("a file")?.into(),
            "-i" | "--interval" => {
                let given = value("a number of seconds")?;
                let seconds = given.to_str().and_then(|t| t.parse().ok()).filter(|n| SECONDS.contains(n));
                o.interval = Duration::from_secs(seconds.ok_or("--interval is 1 to 3600 seconds")?);
            }
            "-1" | "--once" => o.once = true,
            "--json" => (o.once, o.json) = (true, true),
            "-w" | "--wait" => o.wait = true,
            "-h" | "--help" => o.help = true,
            _ => return Err(format!("there is no option {text}; see 'margay top --help'")),
        }
    }
    Ok(o)
}

/// Runs `margay top`; `args` are the arguments after these two words.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let wrong = |what: &str| {
        eprintln!("margay top: {what}");
        ExitCode::from(2)
    };
    let options = match options(args) {
        Ok(o) => o,
        Err(e) => return wrong(&e),
    };
    if options.help {
        return say(HELP);
    }
    let mut client = Client::new(&options.socket);
    let first = match first(&mut client, options.wait) {
        Ok(s) => s,
        Err(e) => return wrong(&e),
    };
    let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb" || t.is_empty());
    if options.once || dumb || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        // A rate needs two samples.
        std::thread::sleep(INTERVAL + Duration::from_millis(200));
        return match client.snapshot() {
            Ok(s) if options.json => say(&serde_json::to_string(&s).unwrap_or_default()),
            Ok(s) => say(&text::of(&s)),
            Err(e) => wrong(&e),
        };
    }
    match live(&options, &mut client, first) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => wrong(&format!("the terminal cannot be used: {e}; margay top --once prints text")),
    }
}

/// The first snapshot. With `wait`, waits until an engine answers.
fn first(client: &mut Client, wait: bool) -> Result<Snapshot, String> {
    let mut told = false;
    loop {
        match client.snapshot() {
            Err(e) if wait => {
                if !told {
                    eprintln!("margay top: waiting: {e}");
                    told = true;
                }
                std::thread::sleep(STEP);
            }
            answer => return answer,
        }
    }
}

fn say(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    // A reader that closed the pipe (`margay top --once | head`) is not an error.
    let _ =
        out.write_all(text.as_bytes()).and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    ExitCode::SUCCESS
}

/// Draws until the user quits.
fn live(options: &Options, client: &mut Client, first: Snapshot) -> std::io::Result<()> {
    // The terminal is restored even after a panic.
    let mut terminal = ratatui::try_init()?;
    let mut view = View::new(std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()));
    view.take(Ok(first));
    let done = follow(options, client, &mut terminal, &mut view);
    ratatui::restore();
    done
}

fn follow(
    options: &Options,
    client: &mut Client,
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
) -> std::io::Result<()> {
    let mut next = Instant::now() + options.interval;
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        // Wait until there is something new to draw.
        loop {
            if event::poll(STEP)? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        let quits = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                        if quits || !view.key(key.code) {
                            return Ok(());
                        }
                        break;
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
            if Instant::now() >= next {
                next = Instant::now() + options.interval;
                if !view.is_paused() {
                    view.take(client.snapshot());
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, String> {
        options(words.iter().map(OsString::from))
    }

    #[test]
    fn command_lines() {
        let plain = read(&[]).unwrap();
        assert_eq!((plain.socket.to_str(), plain.interval, plain.once), (Some(SOCKET), INTERVAL, false));
        let o = read(&["-s", "/a", "--interval=5", "--json"]).unwrap();
        assert_eq!((o.socket.to_str(), o.interval.as_secs(), o.once, o.json), (Some("/a"), 5, true, true));
        for wrong in [&["-x"][..], &["--socket"], &["-i", "0"], &["-i", "4000"], &["-i", "x"], &["word"]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
