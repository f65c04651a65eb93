//! The reference of all settings, as Markdown: `docs/configuration.md`.

use crate::keys::{Effect, Key, Kind, chapters, sets};
use crate::options;
use std::fmt::Write;

/// The text of `docs/configuration.md`.
pub fn reference() -> String {
    let mut out = String::from(
        "# Settings\n\n\
         Every setting of the configuration, and every option of the command line. This page is generated from the engine's own \
         table (`crates/config/src/keys`); a test fails when it is out of date. `etc/margay.yaml` shows the settings that act.\n\n\
         The format is Suricata 8's. An invalid value is an error with file and line, or a warning if \
         nothing reads it in the run: its section is off, or belongs to another way to capture. An unknown setting is a warning. A setting \
         without effect is accepted; the start says in one line why it has none, unless its value is the one in the table.\n\n\
         `#` stands for any item of a list, `*` for any name. A word in angle brackets stands for one of a list:\n\n",
    );
    for (name, words) in sets() {
        let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
        let _ = writeln!(out, "- `<{name}>`: {}", words.join(", "));
    }
    for (title, about, keys) in chapters() {
        let _ = writeln!(out, "\n## {title}\n\n{about}\n");
        table(&mut out, keys);
        let (ignored, refused): (Vec<&Key>, Vec<&Key>) =
            keys.iter().filter(|k| k.effect != Effect::Acts).partition(|k| matches!(k.effect, Effect::Ignored(_)));
        if !refused.is_empty() {
            out.push_str("\nRefused:\n\n| setting | meaning in Suricata | why it is refused |\n| --- | --- | --- |\n");
            for k in refused {
                let Effect::Refused(why) = k.effect else { continue };
                let _ = writeln!(out, "| `{}` | {} | {why} |", cell(k.path), cell(k.text));
            }
        }
        if !ignored.is_empty() {
            out.push_str("\nWithout effect:\n\n| setting | value without a notice | reason |\n| --- | --- | --- |\n");
            for k in ignored {
                let Effect::Ignored(why) = k.effect else { continue };
                let value = match k.default {
                    "*" => "any".to_owned(),
                    "" => String::new(),
                    value => format!("`{}`", cell(value)),
                };
                let _ = writeln!(out, "| `{}` | {value} | {why} |", cell(k.path));
            }
        }
    }
    out.push_str(
        "\n## The command line\n\n`margay --help` is the short form. Options for capture hardware and systems that this release does \
         not support are refused with an error.\n\n| option | effect |\n| --- | --- |\n",
    );
    for option in options::all() {
        let _ = writeln!(out, "| {} | {} |", cell(&option.shown()), cell(&option.meaning()));
    }
    out
}

fn table(out: &mut String, keys: &[Key]) {
    let acting = keys.iter().filter(|k| k.effect == Effect::Acts);
    out.push_str("| setting | value | default | effect |\n| --- | --- | --- | --- |\n");
    for k in acting {
        let default = if k.default.is_empty() { String::new() } else { format!("`{}`", cell(k.default)) };
        let _ = writeln!(out, "| `{}` | {} | {default} | {} |", cell(k.path), cell(&values(k.kind)), cell(k.text));
    }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The allowed values, in words.
fn values(kind: Kind) -> String {
    let words = |words: &[&str]| words.join(", ");
    match kind {
        Kind::Flag => "yes, no".into(),
        Kind::FlagOr([]) => "yes, no".into(),
        Kind::FlagOr(more) => format!("yes, no, {}", words(more)),
        Kind::Word(all) => words(all),
        Kind::Number { least, most, unit } => {
            let range = match (least, most) {
                (a, b) if a == b => a.to_string(),
                (least, most) if most >= i64::from(u32::MAX) => format!("from {least}"),
                (least, most) => format!("{least} to {most}"),
            };
            if unit.is_empty() { format!("a number, {range}") } else { format!("{unit}, {range}") }
        }
        Kind::Size { least: 0, most } if most >= u64::from(u32::MAX) => "bytes".into(),
        Kind::Size { least, most } if most == u64::MAX => format!("bytes, from {least}"),
        Kind::Size { least, most } => format!("bytes, {least} to {most}"),
        Kind::Fraction => "a number".into(),
        Kind::Percent => "percent".into(),
        Kind::Text(what) => what.into(),
        Kind::List(what) => format!("a list: {what}"),
        Kind::Section => "a section".into(),
    }
}
