//! `margay rules check FILE…`: validates rule files, for people and for CI.
//!
//! Rules are read and compiled as in a run, with the variables and classes of a given or installed configuration, or else
//! with the built-in ones. The exit status is 0 if every rule loads, 1 if one does not (with `--strict` also for warnings),
//! and 2 if the command fails.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use margay_config::RunOptions;
use margay_detect::{Detect, Environment};
use margay_json::Json;
use margay_rules::ast::Place;
use margay_rules::{Loader, Message, Severity};
use margay_stream::StreamEvent;

use crate::console::say;
use crate::rules;

/// `margay rules --help`.
pub(crate) const COMMANDS: &str = "\
Usage: margay rules COMMAND [OPTIONS] ...

Works with rule files.

Commands:
  check    validate rule files, as text or JSON, with an exit status for CI
  explain  show why a rule did or did not match on a capture

'margay rules COMMAND --help' describes a command.
";

pub(crate) const HELP: &str = "\
Usage: margay rules check [OPTIONS] FILE...

Reads rule files as a run would, and reports their errors.

  -c FILE          use the variables, classes and references of this configuration
                   (default: the installed one, or else the built-in one)
  --set NAME=VALUE change a setting of it
  --json           one JSON object instead of text
  --strict         warnings count as errors
  --all            also list rules that are set aside or skipped
  -h, --help       this text

Exit status: 0 if every rule loads, 1 if some do not, 2 if the command failed.
";

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    /// Valid, but this build lacks something it needs.
    Aside,
    /// It requires another version or feature.
    Skipped,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Aside => "set aside",
            Level::Skipped => "skipped",
        }
    }
}

/// One message.
#[derive(Debug, Clone)]
struct Finding {
    level: Level,
    file: String,
    line: u32,
    column: u32,
    module: &'static str,
    text: String,
}

impl Finding {
    fn new(level: Level, place: &Place, module: &'static str, text: impl Into<String>) -> Finding {
        Finding {
            level,
            file: place.file.to_string(),
            line: place.line,
            column: place.column,
            module,
            text: text.into(),
        }
    }

    fn of(place: &Place, m: &Message) -> Finding {
        let level = if m.severity == Severity::Error { Level::Error } else { Level::Warning };
        Finding::new(level, place, m.module, m.text.clone())
    }
}

/// The result of checking the files.
#[derive(Debug, Default)]
struct Checked {
    findings: Vec<Finding>,
    files: usize,
    loaded: usize,
    failed: usize,
    aside: usize,
    skipped: usize,
    /// Messages beyond the limit.
    dropped: u64,
}

impl Checked {
    fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|f| f.level == level).count()
    }
}

/// The options of the command.
#[derive(Debug, Default)]
struct Options {
    config: Option<PathBuf>,
    sets: Vec<String>,
    json: bool,
    strict: bool,
    all: bool,
    files: Vec<PathBuf>,
}

/// Parses the arguments; `Ok(None)` for help.
fn parse(args: &[OsString]) -> Result<Option<Options>, String> {
    let mut args = args.iter();
    match args.next().and_then(|a| a.to_str()) {
        Some("check") => {}
        Some(other) => return Err(format!("there is no command 'rules {other}'; there are: check, explain")),
        None => return Err("'rules' needs a command: check or explain".to_owned()),
    }
    let mut o = Options::default();
    let mut plain = false;
    while let Some(a) = args.next() {
        match a.to_str().filter(|_| !plain) {
            Some("-h" | "--help") => return Ok(None),
            Some("--json") => o.json = true,
            Some("--strict") => o.strict = true,
            Some("--all") => o.all = true,
            Some("--") => plain = true,
            Some("-c") => o.config = Some(args.next().ok_or("-c needs the path of a configuration")?.into()),
            Some("--set") => {
                let set = args.next().and_then(|s| s.to_str()).filter(|s| s.contains('='));
                o.sets.push(set.ok_or("--set needs NAME=VALUE")?.to_owned());
            }
            Some(s) if s.len() > 1 && s.starts_with('-') => return Err(format!("unrecognized option '{s}'")),
            _ => o.files.push(a.into()),
        }
    }
    if o.files.is_empty() {
        return Err("no rule file named".to_owned());
    }
    Ok(Some(o))
}

/// Runs `margay rules …`; `args` are the arguments after `rules`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    if args.first().is_some_and(|a| a == "-h" || a == "--help") {
        return say(COMMANDS);
    }
    let options = match parse(args) {
        Ok(Some(o)) => o,
        Ok(None) => return say(HELP),
        Err(e) => {
            eprintln!("margay rules: {e}\nTry 'margay rules --help'.");
            return ExitCode::from(2);
        }
    };
    match check(&options) {
        Ok(checked) => {
            let said = say(&if options.json { json(&checked) } else { text(&checked, options.all) });
            let bad = checked.failed > 0 || checked.count(Level::Error) > 0;
            let odd = options.strict && checked.count(Level::Warning) > 0;
            if bad || odd { ExitCode::FAILURE } else { said }
        }
        Err(e) => {
            eprintln!("margay rules: {e}");
            ExitCode::from(2)
        }
    }
}

fn check(o: &Options) -> Result<Checked, String> {
    let run = RunOptions { config: o.config.clone(), sets: o.sets.clone(), ..RunOptions::default() };
    let config = crate::settings::configuration(&run).map_err(|f| f.message)?;
    let mut checked = Checked::default();
    let mut ctx = rules::context(&config, &RunOptions::default(), true);
    for p in rules::classes_and_references(&config, &config, &mut ctx) {
        checked.findings.push(Finding::of(&p.place, &p.message));
    }
    // Without known classes and references, every name would be reported as unknown.
    let (no_classes, no_references) = (ctx.classes.is_empty(), ctx.references.is_empty());
    let mut loader = Loader::new(&ctx);
    for path in &o.files {
        loader.load_file(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    }
    let set = loader.finish();
    checked.files = set.files;
    checked.failed = set.failed();
    checked.skipped = set.skipped.len();
    checked.dropped = set.dropped_messages;
    for e in &set.errors {
        // The last message of a failed rule repeats its place and text.
        let said = e.messages.iter().filter(|m| !m.text.starts_with("error parsing signature"));
        let from = checked.findings.len();
        checked.findings.extend(said.map(|m| Finding::of(&e.place, m)));
        if !e.silent {
            // The rule is refused, whatever the level of its messages.
            for f in checked.findings.iter_mut().skip(from) {
                f.level = Level::Error;
            }
        }
    }
    for w in &set.warnings {
        let lookup = no_classes && w.message.module == "detect-classtype"
            || no_references && w.message.module == "detect-reference";
        if !lookup {
            checked.findings.push(Finding::of(&w.place, &w.message));
        }
    }
    for s in &set.skipped {
        checked.findings.push(Finding::new(Level::Skipped, &s.place, "requires", s.reason.clone()));
    }
    for r in &set.set_aside {
        let text = format!("this build does not have {}", r.missing.join(", "));
        checked.findings.push(Finding::new(Level::Aside, &r.place, "rules", text));
    }
    checked.aside = set.set_aside.len();
    let folder = config.get("default-rule-path").map(PathBuf::from);
    let detect_config = crate::settings::detect(&config).map_err(|e| e.to_string())?;
    let environment = Environment {
        stream_event: &|name| StreamEvent::from_name(name).map(|e| e as u8),
        rule_folder: folder.as_deref().map(Path::new),
        ..Environment::default()
    };
    let (_, report) = Detect::compile(set.rules, &environment, &detect_config).map_err(|e| format!("detect: {e}"))?;
    checked.loaded = report.loaded;
    checked.failed += report.errors.len();
    checked.aside += report.set_aside.len();
    checked.findings.extend(report.errors.iter().map(|(p, e)| Finding::new(Level::Error, p, "detect", e.clone())));
    checked.findings.extend(report.set_aside.iter().map(|(p, e)| Finding::new(Level::Aside, p, "detect", e.clone())));
    checked.findings.sort_by(|a, b| (&a.file, a.line, a.column, a.level).cmp(&(&b.file, b.line, b.column, b.level)));
    Ok(checked)
}

/// Shortens a very long text (such as a whole rule in a message) to fit into a line.
fn brief(text: &str) -> std::borrow::Cow<'_, str> {
    const MOST: usize = 240;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)).into(),
        None => text.into(),
    }
}

/// The text report: one line per finding, in columns.
fn text(c: &Checked, all: bool) -> String {
    let shown: Vec<(String, &Finding)> = c
        .findings
        .iter()
        .filter(|f| all || matches!(f.level, Level::Error | Level::Warning))
        .map(|f| (format!("{}:{}:{}", f.file, f.line, f.column), f))
        .collect();
    // A very long path must not widen the column for all others.
    let width = shown.iter().map(|s| s.0.chars().count()).max().unwrap_or(0).min(60);
    let module = shown.iter().map(|s| s.1.module.len()).max().unwrap_or(0).min(24);
    let mut out = String::new();
    for (place, f) in &shown {
        let _ = writeln!(out, "{place:<width$}  {:<9}  {:<module$}  {}", f.level.name(), f.module, brief(&f.text));
    }
    if !shown.is_empty() {
        out.push('\n');
    }
    let plural = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let total = c.loaded + c.failed + c.aside + c.skipped;
    let _ = writeln!(out, "{} in {}:", plural(total, "rule"), plural(c.files, "file"));
    for (n, what) in [
        (c.loaded, "load"),
        (c.failed, "fail"),
        (c.aside, "set aside: they need what this build does not have"),
        (c.skipped, "skipped: they require another version or feature"),
        (c.count(Level::Warning), if c.count(Level::Warning) == 1 { "warning" } else { "warnings" }),
    ] {
        let _ = writeln!(out, "  {n:>7}  {what}");
    }
    if c.dropped > 0 {
        let _ = writeln!(out, "  {:>7}  messages too many to show", c.dropped);
    }
    out
}

/// The JSON report: one object.
fn json(c: &Checked) -> String {
    let mut j = Json::new();
    j.item_object();
    j.uint("files", c.files as u64);
    j.object("rules");
    j.uint("loaded", c.loaded as u64);
    j.uint("failed", c.failed as u64);
    j.uint("set_aside", c.aside as u64);
    j.uint("skipped", c.skipped as u64);
    j.end_object();
    j.uint("errors", c.count(Level::Error) as u64);
    j.uint("warnings", c.count(Level::Warning) as u64);
    j.uint("dropped_messages", c.dropped);
    j.array("messages");
    for f in &c.findings {
        j.item_object();
        j.str("level", &f.level.name().replace(' ', "_"));
        j.str("file", &f.file);
        j.uint("line", u64::from(f.line));
        j.uint("column", u64::from(f.column));
        j.str("module", f.module);
        j.str("text", &f.text);
        j.end_object();
    }
    j.end_array();
    j.end_object();
    String::from_utf8_lossy(j.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, rules: &str) -> Checked {
        let path = std::env::temp_dir().join(format!("margay-rule-check-{}-{name}.rules", std::process::id()));
        std::fs::write(&path, rules).unwrap();
        let o = Options { files: vec![path.clone()], ..Options::default() };
        let checked = check(&o).unwrap();
        std::fs::remove_file(path).unwrap();
        checked
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let c = checked(
            "wrong",
            "alert tcp any any -> any any (content:\"a\"; sid:1;)\n\nalert tcp any any -> any any (content:\"a\"; depth:x; \
             sid:2;)\nalert tcp any any -> any any (requires:version >= 99; sid:3;)\n",
        );
        assert_eq!((c.files, c.loaded, c.failed, c.skipped), (1, 1, 1, 1));
        let f = c.findings.iter().find(|f| f.level == Level::Error).unwrap();
        assert_eq!((f.line, f.module), (3, "detect-depth"));
        let t = text(&c, false);
        assert!(t.contains(":3:") && t.contains("error") && t.contains("      1  load"), "{t}");
        assert!(text(&c, true).contains("skipped"));
        let j = json(&c);
        assert!(j.contains("\"failed\":1") && j.contains("\"level\":\"skipped\""), "{j}");
    }

    #[test]
    fn arguments() {
        let of = |a: &[&str]| parse(&a.iter().map(OsString::from).collect::<Vec<_>>());
        let o = of(&["check", "--json", "-c", "x.yaml", "a.rules", "--", "-b"]).unwrap().unwrap();
        assert!(o.json && !o.strict);
        assert_eq!((o.files.len(), o.config), (2, Some("x.yaml".into())));
        assert!(of(&["check", "--help"]).unwrap().is_none());
        for bad in [&["check"][..], &[], &["explain"], &["check", "--nonsense", "a"], &["check", "-c"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
