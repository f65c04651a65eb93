//! Shell completions, generated from each command's `--help`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use crate::pages::{Choice, Page};
use crate::print::print;

pub(crate) const HELP: &str = "\
Usage: margay completions SHELL

Prints completions for a shell: bash, zsh or fish.

  -h, --help  this text

Examples:
  margay completions bash > /usr/share/bash-completion/completions/margay
  margay completions zsh > /usr/share/zsh/vendor-completions/_margay
  margay completions fish > /usr/share/fish/vendor_completions.d/margay.fish
";

/// Serves `margay completions`; `commands` has all of them.
pub(crate) fn run(args: impl Iterator<Item = OsString>, commands: fn() -> Vec<Page>) -> ExitCode {
    let words: Vec<String> = args.map(|a| a.to_string_lossy().into_owned()).collect();
    let pages = commands();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["bash"] => print(&bash(&pages)),
        ["zsh"] => print(&zsh(&pages)),
        ["fish"] => print(&fish(&pages)),
        ["-h" | "--help"] => print(HELP),
        [] => wrong("which shell? bash, zsh or fish"),
        _ => wrong(&format!("there are completions for bash, zsh and fish, not for '{}'", words.join(" "))),
    }
}

fn wrong(what: &str) -> ExitCode {
    eprintln!("margay completions: {what}");
    ExitCode::from(2)
}

/// The kind of value that an option takes, for the shell's completion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Interface,
    Other,
}

fn kind(choice: &Choice) -> Kind {
    let value = choice.value.as_deref().unwrap_or_default();
    match value {
        "IF" | "INTERFACE" => Kind::Interface,
        "DIR" | "FOLDER" => Kind::Folder,
        _ if ["FILE", "PATH", "CONFIG", "RULES", "CAPTURE", "OUTPUT"].iter().any(|w| value.contains(w)) => Kind::File,
        _ => Kind::Other,
    }
}

/// The words that a value may be: `all|none`.
fn words_of(choice: &Choice) -> Vec<&str> {
    let value = choice.value.as_deref().unwrap_or_default();
    let plain = |w: &&str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    if value.contains('|') { value.split('|').filter(plain).collect() } else { Vec::new() }
}

/// The words that name a command in the shells' `case`: `rules check`; empty for a run.
fn key(page: &Page) -> String {
    page.words.join(" ")
}

/// The names of a command's subcommands, without their arguments.
fn below(page: &Page) -> Vec<&str> {
    let names = page.commands.iter().filter_map(|(n, _)| n.split([' ', ',']).next());
    names.filter(|n| *n != "help" || page.words.is_empty()).collect()
}

fn bash(pages: &[Page]) -> String {
    let mut out = String::from(
        "# bash completion for margay; 'margay completions bash' prints it.\n\
         _margay() {\n\
         \x20   local cur prev key words w\n\
         \x20   COMPREPLY=()\n\
         \x20   cur=${COMP_WORDS[COMP_CWORD]}\n\
         \x20   prev=${COMP_WORDS[COMP_CWORD-1]}\n\
         \x20   key=\n\
         \x20   for w in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n\
         \x20       case \"${key:+$key }$w\" in\n",
    );
    let keys: Vec<String> = pages.iter().map(key).filter(|k| !k.is_empty()).map(|k| format!("'{k}'")).collect();
    let _ = writeln!(out, "            {}) key=\"${{key:+$key }}$w\" ;;", keys.join("|"));
    out.push_str("        esac\n    done\n    case \"$key:$prev\" in\n");
    for page in pages {
        for (what, action) in [
            (Kind::File, "COMPREPLY=($(compgen -f -- \"$cur\"))"),
            (Kind::Folder, "COMPREPLY=($(compgen -d -- \"$cur\"))"),
            (Kind::Interface, "COMPREPLY=($(compgen -W \"$(ls /sys/class/net 2>/dev/null)\" -- \"$cur\"))"),
        ] {
            let with = |c: &&Choice| c.value.is_some() && !c.perhaps && words_of(c).is_empty() && kind(c) == what;
            let flags: Vec<String> =
                page.choices().filter(with).flat_map(|c| &c.flags).map(|f| format!("'{}:{f}'", key(page))).collect();
            if !flags.is_empty() {
                let _ = writeln!(out, "        {}) {action}; return ;;", flags.join("|"));
            }
        }
        for choice in page.choices().filter(|c| !words_of(c).is_empty()) {
            let flags: Vec<String> = choice.flags.iter().map(|f| format!("'{}:{f}'", key(page))).collect();
            let list = words_of(choice).join(" ");
            let _ =
                writeln!(out, "        {}) COMPREPLY=($(compgen -W '{list}' -- \"$cur\")); return ;;", flags.join("|"));
        }
    }
    out.push_str("    esac\n    case \"$key\" in\n");
    for page in pages {
        let mut words: BTreeSet<&str> = below(page).into_iter().collect();
        words.extend(page.choices().flat_map(|c| &c.flags).map(String::as_str));
        if page.words == ["completions"] {
            words.extend(["bash", "zsh", "fish"]);
        }
        let list: Vec<&str> = words.into_iter().collect();
        let _ = writeln!(out, "        '{}') words='{}' ;;", key(page), list.join(" "));
    }
    out.push_str(
        "    esac\n\
         \x20   COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n\
         \x20   case \"$cur\" in -*) ;; *) COMPREPLY+=($(compgen -f -- \"$cur\")) ;; esac\n\
         }\n\
         complete -o filenames -F _margay margay\n",
    );
    out
}

fn zsh(pages: &[Page]) -> String {
    let mut out = String::from(
        "#compdef margay\n\
         # zsh completion for margay; 'margay completions zsh' prints it.\n\
         _margay() {\n\
         \x20   local key= w\n\
         \x20   local -a options commands\n\
         \x20   for w in \"${words[@]:1:$((CURRENT-2))}\"; do\n\
         \x20       case \"${key:+$key }$w\" in\n",
    );
    let keys: Vec<String> = pages.iter().map(key).filter(|k| !k.is_empty()).map(|k| k.replace(' ', "\\ ")).collect();
    let _ = writeln!(out, "            {}) key=\"${{key:+$key }}$w\" ;;", keys.join("|"));
    out.push_str("        esac\n    done\n    case \"$key\" in\n");
    for page in pages {
        let _ = writeln!(out, "        '{}')\n            options=(", key(page));
        for choice in page.choices() {
            for flag in &choice.flags {
                let _ = writeln!(out, "                '{}'", zsh_option(flag, choice));
            }
        }
        out.push_str("            )\n            commands=(");
        let mut names: Vec<(&str, &str)> = page
            .commands
            .iter()
            .filter_map(|(n, t)| Some((n.split([' ', ',']).next()?, t.as_str())))
            .filter(|(n, _)| *n != "help" || page.words.is_empty())
            .collect();
        if page.words == ["completions"] {
            names.extend(["bash", "zsh", "fish"].map(|s| (s, "")));
        }
        for (name, text) in names {
            let _ = write!(out, " '{name}:{}'", text.replace('\'', "").replace(':', " "));
        }
        out.push_str(" )\n            ;;\n");
    }
    out.push_str(
        "    esac\n\
         \x20   (( $#commands )) && _describe -t commands 'command' commands\n\
         \x20   _arguments -s $options '*:file:_files'\n\
         }\n\
         _margay \"$@\"\n",
    );
    out
}

fn zsh_option(flag: &str, choice: &Choice) -> String {
    let text: String =
        choice.text.chars().map(|c| if "[]:'\\".contains(c) { ' ' } else { c }).collect::<String>().trim().to_owned();
    let Some(value) = choice.value.as_deref() else { return format!("*{flag}[{text}]") };
    let value: String = value.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let words = words_of(choice);
    let action = match kind(choice) {
        _ if !words.is_empty() => format!("({})", words.join(" ")),
        Kind::File => "_files".into(),
        Kind::Folder => "_files -/".into(),
        Kind::Interface => "_net_interfaces".into(),
        Kind::Other => " ".into(),
    };
    let joint = match (choice.perhaps, flag.starts_with("--")) {
        (true, _) => "=-",
        (false, true) => "=",
        (false, false) => "+",
    };
    let separator = if choice.perhaps { "::" } else { ":" };
    format!("*{flag}{joint}[{text}]{separator}{value}:{action}")
}

fn fish(pages: &[Page]) -> String {
    let mut out = String::from(
        "# fish completion for margay; 'margay completions fish' prints it.\n\
         function __margay_at\n\
         \x20   set -l key\n\
         \x20   for w in (commandline -opc)[2..-1]\n\
         \x20       if contains -- (string join ' ' $key $w) $__margay_keys\n\
         \x20           set key $key $w\n\
         \x20       end\n\
         \x20   end\n\
         \x20   test (string join ' ' $key) = \"$argv\"\n\
         end\n",
    );
    let keys: Vec<String> = pages.iter().map(key).filter(|k| !k.is_empty()).map(|k| format!("'{k}'")).collect();
    let _ = writeln!(out, "set -g __margay_keys {}", keys.join(" "));
    for page in pages {
        let at = format!("-n \"__margay_at {}\"", key(page));
        let quote = |t: &str| t.replace('\\', "\\\\").replace('\'', "\\'");
        for (name, text) in &page.commands {
            let name = name.split([' ', ',']).next().unwrap_or_default();
            let _ = writeln!(out, "complete -c margay {at} -f -a {name} -d '{}'", quote(text));
        }
        if page.words == ["completions"] {
            let _ = writeln!(out, "complete -c margay {at} -f -a 'bash zsh fish'");
        }
        for choice in page.choices() {
            let mut line = format!("complete -c margay {at}");
            for flag in &choice.flags {
                match (flag.strip_prefix("--"), flag.strip_prefix('-')) {
                    (Some(long), _) => line.push_str(&format!(" -l {long}")),
                    (None, Some(short)) => line.push_str(&format!(" -s {short}")),
                    (None, None) => {}
                }
            }
            let words = words_of(choice);
            match (choice.value.is_some() && !choice.perhaps, kind(choice)) {
                (true, _) if !words.is_empty() => line.push_str(&format!(" -x -a '{}'", words.join(" "))),
                (true, Kind::File | Kind::Folder) => line.push_str(" -r"),
                (true, Kind::Interface) => line.push_str(" -x -a '(ls /sys/class/net)'"),
                (true, Kind::Other) => line.push_str(" -x"),
                (false, _) => {}
            }
            let _ = writeln!(out, "{line} -d '{}'", quote(&choice.text));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_each() {
        let pages = crate::commands();
        let (bash, zsh, fish) = (bash(&pages), zsh(&pages), fish(&pages));
        for page in &pages {
            let (bash, fish): (Vec<&str>, Vec<&str>) = (
                bash.lines().filter(|l| l.contains(&format!("'{}') words=", key(page)))).collect(),
                fish.lines().filter(|l| l.contains(&format!("__margay_at {}\"", key(page)))).collect(),
            );
            for flag in page.choices().flat_map(|c| &c.flags) {
                assert!(
                    bash.iter().any(|l| l.contains(&format!("{flag} ")) || l.contains(&format!("{flag}'"))),
                    "{flag}"
                );
                let name = flag.trim_start_matches('-');
                assert!(
                    fish.iter().any(|l| l.contains(&format!("-l {name} ")) || l.contains(&format!("-s {name} "))),
                    "{flag}"
                );
                assert!(zsh.contains(&format!("'*{flag}")), "{flag}");
            }
        }
    }
}
