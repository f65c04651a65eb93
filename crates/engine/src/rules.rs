//! Reads rules and the files that belong to them, and reports errors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_config::{Config, Node, RuleFiles, RunOptions, Strict, built_in};
use margay_detect::dataset::{Datasets, DatasetsBuilder, SetLevel};
use margay_detect::geoip::Countries;
use margay_detect::iprep::{IpReputation, IpReputationBuilder};
use margay_detect::mpm::CacheUse;
use margay_detect::{CompileReport, Detect, DetectConfig, Environment};
use margay_output::log::{Level, log};
use margay_output::{error, info, notice, warning};
use margay_packet::Time;
use margay_rules::ast::{GlobalThreshold, Place};
use margay_rules::{ConfigProblem, Context, Loader, Message, RuleError, Severity, StrictKeywords};
use margay_stream::StreamEvent;

use crate::analysis::GroupSettings;
use crate::{Failed, settings};

mod glob;
mod report;
mod texts;

pub(crate) use texts::RuleTexts;

use report::{check_firewall, failed_rules, say_missing, say_problems, say_set_aside, write_reports};

/// Numbers of rules by result.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) loaded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

/// A refused rule.
#[derive(Debug, Clone)]
pub(crate) struct FailedRule {
    pub(crate) text: Arc<str>,
    /// The reason, in one line.
    pub(crate) reason: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// Limit of the refused rules that are kept for display.
const FAILED_MAX: usize = 10_000;

/// Rules that are ready to match.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// `None` if detection is off.
    pub(crate) detect: Option<Arc<Detect>>,
    /// The texts of rules for events, by the rule's number in `detect`.
    pub(crate) texts: Arc<RuleTexts>,
    pub(crate) counts: Counts,
    /// Refused rules, up to the limit.
    pub(crate) failed: Vec<FailedRule>,
    /// The time of loading.
    pub(crate) at: Time,
}

impl FailedRule {
    fn new(text: &Arc<str>, reason: String, place: &Place) -> FailedRule {
        FailedRule { text: Arc::clone(text), reason, file: place.file.to_string(), line: place.line }
    }

    /// Describes a rule that the loader refused, without its last message, which only repeats the place and the text.
    fn of(error: &RuleError) -> FailedRule {
        let said = error.messages.iter().map(|m| m.text.as_str());
        let reasons: Vec<&str> = said.filter(|text| !text.starts_with("error parsing signature")).collect();
        FailedRule::new(&error.text, reasons.join("; "), &error.place)
    }
}

/// Which rules to load, and how.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The engine's configuration.
    pub(crate) config: &'a Config,
    /// The configuration that names rule files, variables, classes, references and thresholds: the engine's, or a tenant's.
    pub(crate) rules: &'a Config,
    pub(crate) options: &'a RunOptions,
    pub(crate) ips: bool,
    pub(crate) settings: &'a DetectConfig,
    /// The folder of reports.
    pub(crate) dir: &'a Path,
    /// Whether the rules belong to a tenant.
    pub(crate) tenant: bool,
    /// The rules that they replace.
    pub(crate) previous: Option<&'a Loaded>,
    /// Active datasets.
    pub(crate) sets: Option<&'a Datasets>,
    /// Whether the run explains rules.
    pub(crate) explain: bool,
}

fn say(message: &Message) {
    match message.severity {
        Severity::Error => error!(message.module, "{}", message.text),
        Severity::Warning => warning!(message.module, "{}", message.text),
    }
}

/// Logs the problems of a file that belongs to the rules. Returns whether there are any.
fn problems(list: &[ConfigProblem]) -> bool {
    for p in list {
        say(&p.message);
    }
    !list.is_empty()
}

/// Reads a file that belongs to the rules. A configured file that cannot be read causes a warning; the rules work without it.
fn read(config: &Config, key: &str, module: &'static str) -> Option<(String, String)> {
    let path = config.get(key).filter(|p| !p.is_empty())?;
    match std::fs::read(path) {
        Ok(bytes) => Some((String::from_utf8_lossy(&bytes).into_owned(), path.to_owned())),
        Err(e) => {
            warning!(module, "Error opening file: \"{path}\": {e}");
            None
        }
    }
}

/// A lookup table of rules: its setting, its name, and the built-in version.
struct Table {
    key: &'static str,
    module: &'static str,
    file: &'static str,
    built_in: &'static str,
}

const CLASSES: Table = Table {
    key: "classification-file",
    module: "classification-config",
    file: "classification.config",
    built_in: built_in::CLASSIFICATION,
};
const REFERENCES: Table = Table {
    key: "reference-config-file",
    module: "reference-config",
    file: "reference.config",
    built_in: built_in::REFERENCES,
};

impl Table {
    /// Its text and file name: of the configured file, or else of the file beside the configuration, or else built in. A
    /// configured file that cannot be read causes a warning.
    fn read(&self, config: &Config) -> (String, String) {
        let named = config.get(self.key).filter(|p| !p.is_empty());
        let text = |path: &Path| std::fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned());
        let mut refused = None;
        if let Some(path) = named {
            match text(Path::new(path)) {
                Ok(t) => return (t, path.to_owned()),
                Err(e) => refused = Some(format!("Error opening file: \"{path}\": {e}")),
            }
        }
        let name = named.and_then(|n| Path::new(n).file_name()).map_or(Path::new(self.file), Path::new);
        let beside = config.folder().map(|f| f.join(name));
        if let Some((path, text)) = beside.and_then(|p| text(&p).ok().map(|t| (p, t))) {
            let path = path.display().to_string();
            if let Some(refused) = refused {
                info!(self.module, "{refused}: using {path}, which is beside the configuration");
            }
            return (text, path);
        }
        if let Some(refused) = refused {
            warning!(self.module, "{refused}: using the built-in table");
        }
        (self.built_in.to_owned(), format!("built-in {}", self.file))
    }
}

/// Reads the classes and references of rules into `ctx`. Returns the problems of their files.
pub(crate) fn classes_and_references(classes: &Config, references: &Config, ctx: &mut Context) -> Vec<ConfigProblem> {
    let (text, name) = CLASSES.read(classes);
    let (classes, mut bad) = margay_rules::parse_classification(&text, &name);
    ctx.classes = classes.into_iter().map(|c| (c.name.to_ascii_lowercase(), c)).collect();
    let (text, name) = REFERENCES.read(references);
    let (references, wrong) = margay_rules::parse_references(&text, &name);
    ctx.references = references.into_iter().map(|r| (r.system.to_ascii_lowercase(), r.prefix)).collect();
    bad.extend(wrong);
    bad
}

/// The context of rules: variables, classes and references.
///
/// # Errors
/// With `fatal`, anything invalid in them. Always, an invalid limit of rules, and an invalid variable of the engine.
fn rule_context(source: &Source<'_>, fatal: bool) -> Result<Context, Failed> {
    let Source { config, rules: named_in, options, ips, .. } = *source;
    let mut ctx = context(named_in, options, ips);
    ctx.max_rules = max_rules(config, ctx.max_rules)?;
    // A tenant without classes or references uses the engine's.
    let of = |key: &str| if named_in.get(key).is_some() { named_in } else { config };
    let bad = classes_and_references(of("classification-file"), of("reference-config-file"), &mut ctx);
    let broken = problems(&bad);
    if let Some(name) =
        of("classification-file").get("classification-file").filter(|n| bad.iter().any(|p| &*p.place.file == *n))
    {
        warning!("classification-config", "Error loading classification configuration from {name}");
    }
    let wrong = ctx.wrong_variables();
    wrong.iter().for_each(say);
    if !wrong.is_empty() && !source.tenant {
        return Err(Failed::new("suricata", "vars: an address or port variable is not valid"));
    }
    if (broken || !wrong.is_empty()) && fatal {
        return Err(Failed::new("suricata", "initializing detection engine failed."));
    }
    Ok(ctx)
}

/// Loads the rules of a run or of a tenant, with everything that belongs to them. `previous` rules make it a reload.
///
/// # Errors
/// With `--init-errors-fatal` and `-T`, anything that could not be loaded. Always, a pattern matcher that is not available.
/// In a reload, also a file that cannot be read, or a result without rules: that is a mistake, or a file that is still being
/// written, and the active rules are better.
pub(crate) fn load(source: &Source<'_>) -> Result<Loaded, Failed> {
    let Source { config, rules: named_in, options, settings, dir, tenant, previous, sets, explain, .. } = *source;
    let fatal = options.init_errors_fatal || options.test;
    let mut ctx = rule_context(source, fatal)?;
    let (paths, missing) = if tenant { tenant_files(named_in) } else { files(config, options) };
    say_missing(&missing, fatal);
    let named = paths.len() + missing.len();
    let mut datasets = datasets(config, options, fatal, sets)?;
    let mut loader = Loader::new(&ctx).with_check(|rule| match datasets.rule(rule) {
        true => {
            errors(&mut datasets);
            Ok(())
        }
        false => Err(errors(&mut datasets)),
    });
    let policies = match !tenant && settings::is_firewall(config, options)? {
        true => {
            load_firewall(&mut loader, config, options)?;
            Some(settings::firewall_policies(config)?)
        }
        false => None,
    };
    let mut unread = 0;
    for path in &paths {
        if let Err(e) = loader.load_file(path) {
            error!("detect", "opening rule file {}: {e}", path.display());
            unread += 1;
        }
    }
    let mut set = loader.finish();
    say_problems(&set);
    let failed = set.failed();
    check_firewall(&set, policies.is_some())?;
    let aside = set.set_aside.len();
    if fatal && (failed > 0 || unread > 0 || !missing.is_empty()) {
        processed(named, set.rules.len(), failed, set.skipped.len(), aside);
        return Err(Failed::new("suricata", "Loading signatures failed."));
    }
    if previous.is_some() && unread > 0 {
        return Err(Failed::new("detect", format!("{unread} rule files cannot be read")));
    }
    let had = previous.is_some_and(|p| p.counts.loaded > 0);
    if had && named > 0 && set.accepted() == 0 {
        return Err(Failed::new("detect", format!("{named} rule files are named, and no rule of them loads")));
    }
    say_set_aside(&set);
    let global = thresholds(config, named_in, &ctx, fatal)?;
    let reputation = reputation(config)?;
    let countries = countries(config, fatal)?;
    let rules = std::mem::take(&mut set.rules);
    // For reports, in evaluation order. They include the rules that were set aside.
    let mut reported = Vec::new();
    if options.engine_analysis && !tenant {
        reported.extend(rules.iter().chain(&set.set_aside).cloned());
        margay_detect::sort_rules(&mut reported, &settings.action_order);
    }
    let groups = GroupSettings::of(config)?;
    let environment = Environment {
        keep_trees: explain || (groups.dump && !tenant),
        thresholds: &global,
        reputation,
        countries,
        datasets: Arc::new(datasets.finish()),
        stream_event: &|name| StreamEvent::from_name(name).map(|e| e as u8),
        previous: previous.and_then(|p| p.detect.as_deref()),
        firewall: policies,
        rule_folder: named_in.get("default-rule-path").map(Path::new),
        scripts: crate::scripts::environment(dir),
    };
    let (detect, report) =
        Detect::compile(rules, &environment, settings).map_err(|e| Failed::new("detect", e.to_string()))?;
    let aside = aside + report.set_aside.len();
    processed(named, report.loaded, failed + report.errors.len(), set.skipped.len(), aside);
    compiled(&report, settings);
    if report.firewall_errors > 0 {
        let n = report.firewall_errors;
        return Err(Failed::new("firewall", format!("{n} firewall rules cannot be loaded: {FAIL_CLOSED}")));
    }
    if fatal && !report.errors.is_empty() {
        return Err(Failed::new("suricata", "Loading signatures failed."));
    }
    if !tenant {
        reported.retain(|r| !report.errors.iter().any(|(place, _)| *place == r.place));
        write_reports(source, &groups, &detect, &reported)?;
    }
    if aside > 0 {
        notice!("rules", "{aside} rules need protocols or features that are not in this release and are set aside");
    }
    let texts = RuleTexts::new(detect.rules().len(), std::mem::take(&mut ctx.references));
    Ok(Loaded {
        failed: failed_rules(&set, &report),
        at: settings::now(),
        counts: Counts {
            loaded: report.loaded as u64,
            failed: (failed + report.errors.len()) as u64,
            skipped: set.skipped.len() as u64,
        },
        detect: Some(Arc::new(detect)),
        texts: Arc::new(texts),
    })
}

/// Why one invalid firewall rule is fatal.
const FAIL_CLOSED: &str = "without one of its rules a firewall would let through, or block, what it should not";

/// Reads the firewall rules.
///
/// # Errors
/// A file is missing: its rules must not be left out.
fn load_firewall(loader: &mut Loader<'_>, config: &Config, options: &RunOptions) -> Result<(), Failed> {
    let files = settings::firewall_files(config, options);
    if files.is_empty() {
        warning!("firewall", "there are no firewall rules: only the policies decide (firewall.rule-files)");
    }
    for path in &files {
        loader
            .load_firewall_file(path)
            .map_err(|e| Failed::new("firewall", format!("opening firewall rule file {}: {e}", path.display())))?;
    }
    Ok(())
}

/// Logs the numbers of rules by result. Rules that were set aside are not loaded.
fn processed(files: usize, loaded: usize, failed: usize, skipped: usize, aside: usize) {
    if files == 0 {
        info!("rules", "No signatures supplied.");
    } else if loaded == 0 {
        warning!("detect", "{files} rule files specified, but no rules were loaded!");
    } else {
        let aside = if aside == 0 { String::new() } else { format!(", {aside} rules set aside") };
        info!(
            "rules",
            "{files} rule files processed. {loaded} rules successfully loaded, {failed} rules failed, {skipped} rules skipped{aside}"
        );
    }
}

fn compiled(report: &CompileReport, config: &DetectConfig) {
    for ((Place { file, line, .. }, reason), text) in report.errors.iter().zip(&report.error_texts) {
        error!("detect", "{reason}");
        // As the loader says it, so that tools count each refused rule.
        error!("detect", "error parsing signature \"{text}\" from file {file} at line {line}");
    }
    for (place, reason) in &report.set_aside {
        info!("rules", "{}: line {}: set aside: {reason}", place.file, place.line);
    }
    for (place, reason) in &report.idle_thresholds {
        warning!("threshold-config", "{}: line {}: {reason}", place.file, place.line);
    }
    for problem in &report.list_problems {
        warning!("detect-filehash", "{problem}");
    }
    info!(
        "detect",
        "{} signatures processed. {} are IP-only rules, {} are found by a pattern",
        report.loaded,
        report.ip_only,
        report.prefiltered
    );
    info!("mpm", "{} patterns in {} matchers, {} KiB", report.patterns, report.matchers, report.matcher_memory / 1024);
    for problem in &report.cache.problems {
        warning!("mpm", "cache of compiled patterns: {problem}");
    }
    if config.cache.is_some() {
        let CacheUse { found, written, removed, .. } = &report.cache;
        info!(
            "mpm",
            "cache of compiled patterns: {found} of {} large matchers were there, {written} were written, {removed} old ones \
             removed",
            report.cache.asked
        );
    }
}

/// The entries of `threshold-file`, or else of `threshold.config` beside the engine's configuration.
fn thresholds(config: &Config, named_in: &Config, ctx: &Context, fatal: bool) -> Result<Vec<GlobalThreshold>, Failed> {
    const KEY: &str = "threshold-file";
    let set = |c: &Config| c.get(KEY).is_some_and(|p| !p.is_empty());
    let found = match set(named_in) || set(config) {
        true => read(named_in, KEY, "threshold-config"),
        false => config.folder().map(|f| f.join("threshold.config")).and_then(|path| {
            let text = std::fs::read(&path).ok()?;
            Some((String::from_utf8_lossy(&text).into_owned(), path.display().to_string()))
        }),
    };
    let Some((text, name)) = found else { return Ok(Vec::new()) };
    let (entries, bad) = margay_rules::parse_thresholds(&text, &name, &ctx.addresses);
    if problems(&bad) {
        warning!("threshold-config", "Error loading threshold configuration from {name}");
        if fatal {
            return Err(Failed::new("suricata", "Loading signatures failed."));
        }
    }
    info!("threshold-config", "Threshold config parsed: {} rule(s) found in {name}", entries.len());
    Ok(entries)
}

/// `detect.max-rules`.
///
/// # Errors
/// Not a number.
pub(crate) fn max_rules<T: TryFrom<i64>>(config: &Config, default: T) -> Result<T, margay_config::ConfigError> {
    settings::number(config, "detect.max-rules", default)
}

/// Builds the configured datasets.
fn datasets<'p>(
    config: &Config,
    options: &RunOptions,
    fatal: bool,
    in_use: Option<&'p Datasets>,
) -> Result<DatasetsBuilder<'p>, Failed> {
    let mut builder = DatasetsBuilder::new(settings::datasets(config, options, fatal)?, in_use);
    for (name, options) in settings::configured_sets(config)? {
        let usable = builder.configured(&name, &options);
        errors(&mut builder).iter().for_each(say);
        if !usable && fatal {
            return Err(Failed::new("datasets", format!("failed to set up dataset '{name}'.")));
        }
    }
    Ok(builder)
}

/// Logs the warnings and notes about datasets, and returns the errors.
fn errors(builder: &mut DatasetsBuilder<'_>) -> Vec<Message> {
    let mut errors = Vec::new();
    for m in builder.messages() {
        match m.level {
            SetLevel::Error => errors.push(Message { severity: Severity::Error, module: m.module, text: m.text }),
            SetLevel::Warning => warning!(m.module, "{}", m.text),
            SetLevel::Config => log(Level::Config, m.module, format_args!("{}", m.text)),
        }
    }
    errors
}

/// `reputation-categories-file`, and `reputation-files` in `default-reputation-path`.
fn reputation(config: &Config) -> Result<Arc<IpReputation>, Failed> {
    let mut builder = IpReputationBuilder::default();
    if let Some((categories, lists, dir)) = reputation_files(config) {
        for list in &lists {
            info!("reputation", "Loading reputation file: {}", dir.map_or(list.clone(), |d| d.join(list)).display());
        }
        for (place, reason) in builder.files(categories, &lists, dir) {
            error!("reputation", "{}: line {}: {reason}", place.file, place.line);
        }
    }
    Ok(Arc::new(builder.build()))
}

/// The category file, the lists, and their folder if it is set; `None` unless both the category file and the lists are set.
fn reputation_files(config: &Config) -> Option<(&Path, Vec<PathBuf>, Option<&Path>)> {
    let (categories, lists) = (config.get("reputation-categories-file")?, config.node("reputation-files")?);
    let folder = config.get("default-reputation-path").map(Path::new);
    Some((Path::new(categories), lists.values().map(PathBuf::from).collect(), folder))
}

/// `geoip-database`.
fn countries(config: &Config, fatal: bool) -> Result<Option<Arc<Countries>>, Failed> {
    let Some(path) = config.get("geoip-database").filter(|p| !p.is_empty()) else { return Ok(None) };
    match Countries::open(Path::new(path)) {
        Ok(c) => Ok(Some(Arc::new(c))),
        Err(e) if fatal => Err(Failed::new("detect-geoip", e)),
        Err(e) => {
            error!("detect-geoip", "{e}");
            Ok(None)
        }
    }
}

/// The rule files of a tenant. Without a folder, they are looked up in the engine's working directory.
fn tenant_files(config: &Config) -> (Vec<PathBuf>, Vec<String>) {
    let named = config.node("rule-files");
    let named = named.iter().flat_map(Node::values).map(|v| (v.to_owned(), true)).collect();
    find(named, config.get("default-rule-path").unwrap_or("."))
}

/// The rule files of a run: those of `-S`, or those of the configuration and of `-s`.
///
/// A name without a folder is looked up in `default-rule-path`; a pattern (`*/[a-f]*.rules`) stands for every matching file. The
/// second list has the names and patterns without a file.
pub(crate) fn files(config: &Config, options: &RunOptions) -> (Vec<PathBuf>, Vec<String>) {
    let mut named: Vec<(String, bool)> = Vec::new();
    // --firewall-rules-exclusive uses only firewall rules; -S and -s add to them.
    if !matches!(options.rules, RuleFiles::Exclusive(_))
        && options.firewall_rules.is_none()
        && let Some(list) = config.node("rule-files")
    {
        named.extend(list.values().map(|v| (v.to_owned(), true)));
    }
    match &options.rules {
        RuleFiles::Configured => {}
        RuleFiles::Added(f) | RuleFiles::Exclusive(f) => named.push((f.clone(), false)),
    }
    let mut found = find(named, settings::rule_folder(config));
    // Without the setting, a name may also be meant from the working directory, as in Suricata.
    if config.get("default-rule-path").is_none_or(str::is_empty) {
        let folder = format!("{}/", settings::rule_folder(config));
        let (files, missing) = &mut found;
        missing.retain(|name| match name.strip_prefix(&folder) {
            Some(rest) => {
                let (mut more, none) = find(vec![(rest.to_owned(), true)], "");
                files.append(&mut more);
                !none.is_empty()
            }
            None => true,
        });
    }
    found
}

/// The named files, those of a configuration in `folder`; and the names and patterns without a file.
fn find(named: Vec<(String, bool)>, folder: &str) -> (Vec<PathBuf>, Vec<String>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (name, configured) in named {
        let path = if configured && !Path::new(&name).is_absolute() {
            Path::new(folder).join(&name)
        } else {
            PathBuf::from(&name)
        };
        let before = found.len();
        if path.exists() {
            found.push(path);
        } else {
            glob::expand(&path, &mut found);
            if found.len() == before {
                missing.push(path.display().to_string());
            }
        }
    }
    (found, missing)
}

/// The keywords that this build supports: [`Context::available`].
pub(crate) fn available() -> HashSet<String> {
    let recognised = margay_app::configurable().map(|(p, _)| format!("app-layer:{}", p.rule_name()));
    let parsed = margay_app::PROTOCOLS.iter().map(|p| p.proto.rule_name().to_owned());
    let features = ["app-layer", "dataset", "file", "frame", "geoip", "http", "iprep", "lua", "nfq"]
        .into_iter()
        .map(str::to_owned);
    features.chain(parsed).chain(recognised).collect()
}

/// Features that rules may require by name (`requires: feature …`, `--dump-features`).
pub(crate) const FEATURES: [&str; 2] = ["ja3", "ja4"];

/// The context that rules refer to, from the configuration and the command line. Classes and references are added later.
pub(crate) fn context(config: &Config, options: &RunOptions, ips: bool) -> Context {
    let strict = match &options.strict_rule_keywords {
        None => StrictKeywords::None,
        Some(Strict::All) => StrictKeywords::All,
        Some(Strict::Keywords(k)) => StrictKeywords::List(k.iter().cloned().collect()),
    };
    // An invalid value is an error of the protocol's settings.
    let disabled =
        |family: &str| matches!(settings::fingerprints(config, &format!("{family}-fingerprints"), true), Ok(false));
    let hassh_off = matches!(config.bool("app-layer.protocols.ssh.hassh"), Ok(Some(false))).then_some("hassh");
    Context {
        off: FEATURES.into_iter().filter(|f| disabled(f)).chain(hassh_off).collect(),
        addresses: config.address_groups().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        ports: config.port_groups().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
        strict,
        available: available(),
        // A rule that requires what a setting turns off is skipped instead of refused.
        features: FEATURES.iter().filter(|f| !disabled(f)).map(|f| (*f).to_owned()).collect(),
        inline: ips,
        check_events: true,
        ..Context::default()
    }
}

/// The settings of rules, for the test that checks all settings.
#[cfg(test)]
pub(crate) fn shown(config: &Config, options: &RunOptions, out: &mut String) -> Result<(), String> {
    use std::fmt::Write;

    let mut ctx = context(config, options, false);
    let (addresses, ports) = (ctx.addresses.clone(), ctx.ports.clone());
    let sorted =
        |map: std::collections::HashMap<String, String>| map.into_iter().collect::<std::collections::BTreeMap<_, _>>();
    let bad = classes_and_references(config, config, &mut ctx);
    let thresholds = thresholds(config, config, &ctx, true).map_err(|f| f.message);
    let reputation: Vec<String> = match reputation_files(config) {
        Some((categories, lists, folder)) => vec![format!("{categories:?} {lists:?} {folder:?}")],
        None => Vec::new(),
    };
    let countries = countries(config, true).map(|c| c.is_some()).map_err(|f| f.message);
    writeln!(
        out,
        "variables: {:?} {:?}\ntables: {:?}\nclasses: {} {} {}\nstrict: {:?}\nthresholds: {thresholds:?}\nreputation: {reputation:?}\n\
         countries: {countries:?}\nfiles: {:?}",
        sorted(addresses),
        sorted(ports),
        [CLASSES, REFERENCES].map(|t| (config.get(t.key).map(str::to_owned), t.read(config).1)),
        ctx.classes.len(),
        ctx.references.len(),
        bad.len(),
        ctx.strict,
        files(config, options),
    )
    .map_err(|e| e.to_string())
}
