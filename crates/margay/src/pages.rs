//! Each command's help, parsed from the text of its `--help`. Manual pages and completions are generated from it, so
//! they always match the command.

/// An option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The spellings: `-c`, `--config`.
    pub(crate) flags: Vec<String>,
    /// The value's name, as in `FILE`.
    pub(crate) value: Option<String>,
    /// Whether the value is optional and follows a `=`.
    pub(crate) perhaps: bool,
    pub(crate) text: String,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The command's words without the program's name: `rules check`; empty for a run.
    pub(crate) words: Vec<String>,
    pub(crate) usage: Vec<String>,
    pub(crate) about: Vec<String>,
    /// Options under their headings, in the order of the text.
    pub(crate) options: Vec<(String, Vec<Choice>)>,
    /// Subcommands: name with arguments, and description.
    pub(crate) commands: Vec<(String, String)>,
    /// The remaining sections: headings and their lines.
    pub(crate) rest: Vec<(String, Vec<String>)>,
    /// The original text.
    pub(crate) help: String,
}

impl Page {
    pub(crate) fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.options.iter().flat_map(|(_, c)| c)
    }

    /// The full name: `margay`, `margay rules check`.
    pub(crate) fn name(&self) -> String {
        std::iter::once("margay").chain(self.words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// Parses the text of a `--help`.
    pub(crate) fn read(words: &str, help: &str) -> Page {
        let mut page = Page {
            words: words.split_whitespace().map(str::to_owned).collect(),
            usage: Vec::new(),
            about: Vec::new(),
            options: Vec::new(),
            commands: Vec::new(),
            rest: Vec::new(),
            help: help.to_owned(),
        };
        let mut heading = String::new();
        let mut usage = false;
        for line in help.lines() {
            let inner = line.starts_with(' ') || line.is_empty();
            if let Some(first) = line.strip_prefix("Usage:") {
                page.usage.push(first.trim().to_owned());
                usage = true;
                continue;
            }
            if usage && line.starts_with(' ') {
                page.usage.push(line.trim().to_owned());
                continue;
            }
            usage = false;
            match line.strip_suffix(':').filter(|h| !inner && h.len() < 60) {
                Some(h) => h.clone_into(&mut heading),
                None => page.line(&heading, line),
            }
        }
        page
    }

    fn line(&mut self, heading: &str, line: &str) {
        let (left, right) = columns(line);
        let deep = line.len() - line.trim_start().len();
        if heading == "Commands" {
            match (deep, left.is_empty()) {
                (_, true) => {}
                (1..=4, _) => self.commands.push((left.to_owned(), right.to_owned())),
                // Continues the description above.
                _ => join(self.commands.last_mut().map(|c| &mut c.1), line),
            }
        } else if let Some(choice) = choice(left, right).filter(|_| (1..=6).contains(&deep)) {
            match self.options.last_mut().filter(|(h, _)| h == heading) {
                Some((_, list)) => list.push(choice),
                None => self.options.push((heading.to_owned(), vec![choice])),
            }
        } else if deep > 6 && self.options.last().is_some_and(|(h, _)| h == heading) {
            join(self.options.last_mut().and_then(|(_, l)| l.last_mut()).map(|c| &mut c.text), line);
        } else if heading.is_empty() && self.options.is_empty() {
            self.about.push(line.trim().to_owned());
        } else {
            match self.rest.last_mut().filter(|(h, _)| h == heading) {
                Some((_, lines)) => lines.push(line.trim().to_owned()),
                None => self.rest.push((heading.to_owned(), vec![line.trim().to_owned()])),
            }
        }
    }
}

/// Appends a continuation line.
fn join(text: Option<&mut String>, line: &str) {
    if let Some(text) = text {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line.trim());
    }
}

/// Splits a line at the first gap of two spaces.
fn columns(line: &str) -> (&str, &str) {
    let line = line.trim();
    line.split_once("  ").map_or((line, ""), |(left, right)| (left.trim(), right.trim()))
}

/// Parses an option: `-c, --config <FILE>`, `--af-packet[=IF]`, `--pcap FILE, -r FILE`.
fn choice(left: &str, right: &str) -> Option<Choice> {
    if !left.starts_with('-') {
        return None;
    }
    let (mut flags, mut value, mut perhaps) = (Vec::new(), None, false);
    for part in left.split(", ") {
        let end = part.find([' ', '=', '[']).unwrap_or(part.len());
        let (flag, after) = part.split_at(end);
        if !flag.starts_with('-') {
            continue;
        }
        flags.push(flag.to_owned());
        perhaps |= after.starts_with('[');
        let name = after.trim_matches([' ', '=', '[', ']', '<', '>', '.']);
        if !name.is_empty() {
            value = Some(name.to_owned());
        }
    }
    Some(Choice { flags, value, perhaps, text: right.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_run_is_there() {
        let page = Page::read("", &margay_config::help());
        let flags: Vec<&String> = page.choices().flat_map(|c| &c.flags).collect();
        let help = margay_config::help();
        let words: Vec<&str> = help.split([' ', ',', '[', '=', '\n']).collect();
        let shown = margay_config::option_rows().filter(|(name, _, _)| words.contains(&name.as_str()));
        let mut n = 0;
        for (name, takes, _) in shown {
            assert!(flags.contains(&&name), "{name}: {flags:?}");
            let choice = page.choices().find(|c| c.flags.contains(&name)).expect("it is there");
            assert_eq!(choice.value.is_some(), takes.is_some(), "{name}");
            assert!(!choice.text.is_empty(), "{name}");
            n += 1;
        }
        assert!(n > 45, "{n}");
        assert_eq!(page.commands.len(), margay_config::COMMANDS.len());
        assert!(page.rest.iter().any(|(h, lines)| h == "Examples" && lines.len() > 2), "{:?}", page.rest);
    }

    #[test]
    fn forms_of_options() {
        let of = |left: &str| choice(left, "").map(|c| (c.flags.join(" "), c.value, c.perhaps));
        assert_eq!(of("-c, --config <FILE>"), Some(("-c --config".into(), Some("FILE".into()), false)));
        assert_eq!(of("--pcap FILE, -r FILE"), Some(("--pcap -r".into(), Some("FILE".into()), false)));
        assert_eq!(of("--af-packet[=IF]"), Some(("--af-packet".into(), Some("IF".into()), true)));
        assert_eq!(of("-h, --help"), Some(("-h --help".into(), None, false)));
        assert_eq!(of("check"), None);
    }

    #[test]
    fn every_command_has_a_page() {
        let pages = crate::commands();
        for (name, _) in margay_config::COMMANDS {
            let page = pages.iter().find(|p| p.words == [*name]);
            assert!(page.is_some_and(|p| !p.usage.is_empty()) || !cfg!(feature = "lab"), "{name}");
        }
        // Everything with a dash in a command's `--help` is an option of its page.
        for page in &pages {
            let shallow = |l: &&str| (1..=6).contains(&(l.len() - l.trim_start().len()));
            for line in page.help.lines().filter(shallow).filter(|l| l.trim_start().starts_with("--")) {
                let flag = line.trim().split([' ', '=', '[', ',']).next().unwrap_or_default();
                assert!(page.choices().any(|c| c.flags.iter().any(|f| f == flag)), "{}: {flag}", page.name());
            }
        }
    }
}
