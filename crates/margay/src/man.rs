//! Manual pages in groff's `man` macros.

use std::fmt::Write as _;

use crate::pages::{Choice, Page};

/// The page of a command and its subcommands: its name (`margay-rules.1`) and its text.
pub(crate) fn page(command: &str, pages: &[Page]) -> Option<(String, String)> {
    let of = |p: &&Page| p.words.first().map_or("", String::as_str) == command;
    let mut mine = pages.iter().filter(of);
    let top = mine.next()?;
    let title = top.name().replace(' ', "-");
    let about = margay_config::COMMANDS
        .iter()
        .find(|c| c.0 == command)
        .map_or("network intrusion detection and prevention", |c| c.1);
    let mut out = format!(
        ".TH {} 1 \"\" \"Margay {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
        title.to_uppercase().replace('-', "\\-"),
        env!("CARGO_PKG_VERSION"),
        escape(&title),
        escape(about)
    );
    out.push_str(".SH SYNOPSIS\n");
    synopsis(top, &mut out);
    body(top, "SH", &mut out);
    for sub in mine {
        let _ = writeln!(out, ".SH \"{}\"", escape(&sub.name().to_uppercase()));
        synopsis(sub, &mut out);
        body(sub, "SS", &mut out);
    }
    if command.is_empty() {
        out.push_str(
            ".SH FILES\n.TP\n.I /etc/margay/margay.yaml\nThe configuration where \\-c names none; without it, built\\-in \
             defaults hold.\n.TP\n.I /var/lib/margay/rules\nRules, where suricata\\-update puts them.\n",
        );
    }
    let others: Vec<String> = std::iter::once("margay".to_owned())
        .chain(margay_config::COMMANDS.iter().map(|c| format!("margay-{}", c.0)))
        .filter(|n| *n != title && pages.iter().any(|p| p.name().replace(' ', "-") == *n))
        .map(|n| format!(".BR {} (1)", escape(&n)))
        .collect();
    let _ = writeln!(out, ".SH \"SEE ALSO\"\n{}", others.join(",\n"));
    Some((format!("{title}.1"), out))
}

fn synopsis(page: &Page, out: &mut String) {
    for (n, usage) in page.usage.iter().enumerate() {
        let _ = writeln!(out, "{}.B {}", if n > 0 { ".br\n" } else { "" }, escape(usage));
    }
}

fn body(page: &Page, heading: &str, out: &mut String) {
    let about = page.about.join("\n");
    if !about.trim().is_empty() {
        if heading == "SH" {
            out.push_str(".SH DESCRIPTION\n");
        }
        paragraphs(&page.about, out, heading != "SH");
    }
    if !page.commands.is_empty() {
        let _ = writeln!(out, ".{heading} Commands");
        for (name, text) in &page.commands {
            let text = if text.is_empty() { "\\&".to_owned() } else { escape(text) };
            let _ = writeln!(out, ".TP\n.B {}\n{text}", escape(name));
        }
    }
    for (title, choices) in &page.options {
        let _ = writeln!(out, ".{heading} \"{}\"", escape(if title.is_empty() { "Options" } else { title }));
        choices.iter().for_each(|c| option(c, out));
    }
    for (title, lines) in &page.rest {
        if lines.iter().all(String::is_empty) {
            continue;
        }
        if !title.is_empty() {
            let _ = writeln!(out, ".{heading} \"{}\"", escape(title));
        }
        if title == "Examples" {
            out.push_str(".nf\n");
            lines.iter().filter(|l| !l.is_empty()).for_each(|l| out.push_str(&format!("{}\n", escape(l))));
            out.push_str(".fi\n");
        } else {
            paragraphs(lines, out, title.is_empty());
        }
    }
}

fn option(c: &Choice, out: &mut String) {
    let value = c.value.as_deref().map(escape);
    let flags: Vec<String> = c
        .flags
        .iter()
        .map(|flag| match &value {
            None => format!("\\fB{}\\fR", escape(flag)),
            Some(v) if c.perhaps => format!("\\fB{}\\fR[=\\fI{v}\\fR]", escape(flag)),
            Some(v) => format!("\\fB{}\\fR \\fI{v}\\fR", escape(flag)),
        })
        .collect();
    let text = if c.text.is_empty() { "\\&".to_owned() } else { escape(&c.text) };
    let _ = writeln!(out, ".TP\n{}\n{text}", flags.join(", "));
}

/// Writes lines as paragraphs, separated at empty lines.
fn paragraphs(lines: &[String], out: &mut String, mut begun: bool) {
    let mut open = false;
    for line in lines {
        if line.is_empty() {
            open = false;
            continue;
        }
        if !open && begun {
            out.push_str(".PP\n");
        }
        (open, begun) = (true, true);
        let _ = writeln!(out, "{}", escape(line));
    }
}

/// Escapes text so that groff reads no request in it.
fn escape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => plain.push_str("\\e"),
            '-' => plain.push_str("\\-"),
            '"' => plain.push_str("\\(dq"),
            '\'' => plain.push_str("\\(aq"),
            c if c.is_ascii() => plain.push(c),
            c => plain.push_str(&format!("\\[u{:04X}]", u32::from(c))),
        }
    }
    if plain.starts_with('.') { format!("\\&{plain}") } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_its_page() {
        let pages = crate::commands();
        for p in &pages {
            let command = p.words.first().map_or("", String::as_str);
            let (name, text) = page(command, &pages).expect("a page");
            for flag in p.choices().flat_map(|c| &c.flags) {
                assert!(text.contains(&format!("\\fB{}\\fR", escape(flag))), "{name}: {flag}");
            }
        }
        assert!(page("nothing", &pages).is_none());
    }

    #[test]
    fn nothing_in_a_text_is_a_request() {
        assert_eq!(escape(".TH a-b\\c"), "\\&.TH a\\-b\\ec");
        assert_eq!(escape("'quoted' \u{2026}"), "\\(aqquoted\\(aq \\[u2026]");
    }
}
