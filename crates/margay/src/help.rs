//! `margay help`: explains a command, a setting or a keyword, and prints the manual pages.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use margay_config::keys::{self, Effect};

use crate::man;
use crate::pages::Page;
use crate::print::print;

pub(crate) const HELP: &str = "\
Usage: margay help [TOPIC]
       margay help man [COMMAND]
       margay help man --all DIR

Explains a topic: a command (rules, rules check, lab traffic), a setting or a part of one
(stream.reassembly, memcap), or a keyword of rules (content). Without a topic it
describes the options of a run, as --help does.

'margay help man' prints a manual page for groff (margay help man rules | man -l -).

  --all DIR   write all manual pages to this folder
  -h, --help  this text
";

/// Serves `margay help`; `commands` has all of them.
pub(crate) fn run(args: impl Iterator<Item = OsString>, commands: fn() -> Vec<Page>) -> ExitCode {
    let words: Vec<String> = args.map(|a| a.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => print(&margay_config::help()),
        ["-h" | "--help"] => print(HELP),
        ["man", "--all", dir] => write_all(Path::new(dir), &commands()),
        ["man", command @ ..] if command.len() < 2 => match man::page(command.first().unwrap_or(&""), &commands()) {
            Some((_, text)) => print(&text),
            None => wrong(&format!("there is no command '{}'", command.join(" "))),
        },
        topic => match explain(topic, &commands()) {
            Some(text) => print(&text),
            // The engine explains keywords, and reports unknown ones.
            None if topic.len() == 1 && !topic.concat().starts_with('-') => {
                margay_engine::run([OsString::from(format!("--list-keywords={}", topic.concat()))])
            }
            None => wrong(&format!("there is no help on '{}'; see 'margay help --help'", topic.join(" "))),
        },
    }
}

fn wrong(what: &str) -> ExitCode {
    eprintln!("margay help: {what}");
    ExitCode::from(2)
}

fn write_all(dir: &Path, pages: &[Page]) -> ExitCode {
    let mut commands: Vec<&str> = pages.iter().map(|p| p.words.first().map_or("", String::as_str)).collect();
    commands.dedup();
    for (name, text) in commands.iter().filter_map(|c| man::page(c, pages)) {
        let file = dir.join(name);
        if let Err(e) = std::fs::write(&file, text) {
            eprintln!("margay help: cannot write {}: {e}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The help text of a command or a setting.
fn explain(topic: &[&str], pages: &[Page]) -> Option<String> {
    if let Some(page) = pages.iter().find(|p| p.words == topic) {
        return Some(page.help.clone());
    }
    let [word] = topic else { return None };
    settings(word)
}

/// The settings whose path contains that part.
fn settings(word: &str) -> Option<String> {
    let parts = |path: &str| path == word || format!(".{path}.").contains(&format!(".{word}."));
    let found: Vec<_> = keys::all().filter(|k| parts(k.path)).collect();
    if found.is_empty() {
        return None;
    }
    let mut out = String::new();
    for key in found {
        let default = if key.default.is_empty() { "none" } else { key.default };
        let _ = writeln!(out, "{}\n    {}\n    default: {default}", key.path, key.text);
        match key.effect {
            Effect::Acts => {}
            Effect::Ignored(why) => {
                let _ = writeln!(out, "    no effect: {why}");
            }
            Effect::Refused(why) => {
                let _ = writeln!(out, "    refused: {why}");
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics() {
        let commands = crate::commands();
        assert!(explain(&["rules", "check"], &commands).is_some_and(|t| t.contains("--strict")));
        assert!(explain(&["stream.memcap"], &commands).is_some_and(|t| t.contains("default: 64mb")));
        assert!(
            explain(&["memcap"], &commands).is_some_and(|t| t.contains("flow.memcap") && t.contains("stream.memcap"))
        );
        assert!(explain(&["no-such-thing"], &commands).is_none());
        assert!(explain(&["rules", "nothing"], &commands).is_none());
    }
}
