//! `outputs:`: the enabled outputs, their targets and options.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_app::AppLogOptions;
use margay_config::{Config, ConfigError, Node};
use margay_output::data_log::DataKind;
use margay_output::event::{EventType, EventTypes};
use margay_output::fast::FastSettings;
use margay_output::lines::LineKind;
use margay_output::pcaplog::{Compression, Conditional, PcapLogSettings, PcapMode};
use margay_output::priority::{Facility, SyslogLevel};
use margay_output::remote::WhenFull;
use margay_output::settings::{
    AlertOptions, AnomalyOptions, DropOptions, EveSettings, FlowOptions, SYSLOG_SOCKET, SinkKind, SinkSettings,
    StatsLogSettings, StatsOptions, StreamOptions, Xff,
};
use margay_output::{OutputSettings, Outputs, info, warning};

use super::app_log::{AppLog, xff};
use super::remote::remote;
use super::{lines, now};
use crate::Failed;

/// Bytes of events that are written together when a capture file is read. A live capture writes them sooner, because its
/// viewers wait for them.
pub(crate) const WORTH: usize = 64 << 10;

/// The scripts' configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ScriptFiles {
    /// The scripts.
    pub(crate) files: Vec<PathBuf>,
    /// Search path for Lua modules (`path`).
    pub(crate) path: Option<String>,
}

/// The enabled outputs in order, and warnings about the rest.
#[derive(Debug)]
pub(crate) struct Specs {
    pub(crate) outputs: Vec<Box<dyn OutputSettings>>,
    /// Each `eve-log`'s options for the application layer, in order.
    pub(crate) app: Vec<AppLogOptions>,
    /// `xff` of the file store's records; `None` if it is off, or without a store.
    pub(crate) store_xff: Option<Xff>,
    /// Scripts that write logs.
    pub(crate) scripts: ScriptFiles,
    /// Warnings for the log.
    pub(crate) warnings: Vec<String>,
    /// An output writes anomalies.
    has_anomaly: bool,
    /// An output writes dropped packets.
    has_drop: bool,
}

/// Reads the section of an output.
type Read = fn(&Reading<'_>, &mut Specs) -> Result<(), ConfigError>;

/// The outputs that a configuration may name.
static OUTPUTS: &[(&str, Read)] = &[
    ("fast", read_fast),
    ("alert-debug", lines::read_alert_debug),
    ("tcp-data", |r, specs| lines::read_data(r, specs, DataKind::Tcp)),
    ("http-body-data", |r, specs| lines::read_data(r, specs, DataKind::HttpBody)),
    ("syslog", lines::read_syslog),
    ("http-log", |r, specs| lines::read(r, specs, LineKind::Http)),
    ("tls-log", |r, specs| lines::read(r, specs, LineKind::Tls)),
    ("eve-log", read_eve),
    ("stats", read_stats),
    ("pcap-log", read_pcap),
    ("file-store", read_file_store),
    // The settings of TLS include this output.
    ("tls-store", |_, _| Ok(())),
    ("lua", |r, specs| lua(r.config, r.node, specs)),
];

/// The section of an output.
pub(super) struct Reading<'a> {
    config: &'a Config,
    pub(super) node: Node<'a>,
    pub(super) dir: &'a Path,
}

fn read_fast(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    specs.outputs.push(Box::new(FastSettings { sink: sink(r.node, r.dir, "fast.log")? }));
    Ok(())
}

/// Reads how messages to syslog are marked.
pub(super) fn syslog(node: Node<'_>, s: &mut SinkSettings) -> Result<(), ConfigError> {
    let bad = |key: &str, value: &str| unknown_here(node, key, value);
    if let Some(identity) = node.get("identity") {
        s.identity = identity.into();
    }
    if let Some(f) = node.get("facility") {
        s.facility = Facility::from_name(f).ok_or_else(|| bad("facility", f))?;
    }
    if let Some(l) = node.get("level") {
        s.level = SyslogLevel::from_name(l).ok_or_else(|| bad("level", l))?;
    }
    Ok(())
}

fn unknown_here(node: Node<'_>, key: &str, value: &str) -> ConfigError {
    node.node(key).unwrap_or(node).error(format!("{key}: \"{value}\" is not known here; see etc/margay.yaml"))
}

fn read_eve(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    let (eve, app) = eve(r.config, r.node, r.dir, &mut specs.warnings)?;
    if eve.types.contains(EventType::Anomaly) && std::mem::replace(&mut specs.has_anomaly, true) {
        return Err(r.node.error("only one 'anomaly' logger can be enabled"));
    }
    if eve.types.contains(EventType::Drop) && std::mem::replace(&mut specs.has_drop, true) {
        return Err(r.node.error("only one 'drop' logger can be enabled"));
    }
    specs.outputs.push(Box::new(eve));
    specs.app.push(app.options);
    Ok(())
}

fn read_stats(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    let options = stats(Some(r.node), StatsOptions { null_values: false, ..StatsOptions::default() })?;
    specs.outputs.push(Box::new(StatsLogSettings { sink: sink(r.node, r.dir, "stats.log")?, options }));
    Ok(())
}

fn read_pcap(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    specs.outputs.push(Box::new(pcap(r.node, r.dir)?));
    Ok(())
}

/// The settings of files include the rest of this section.
fn read_file_store(r: &Reading<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    if let Some(section) = r.node.node("xff") {
        specs.store_xff = xff(section, &mut specs.warnings)?;
    }
    Ok(())
}

/// Reads `outputs:`.
///
/// # Errors
/// An invalid value, or a second output or logger that may exist only once.
pub(crate) fn outputs(config: &Config, dir: &Path) -> Result<Specs, ConfigError> {
    let mut specs = Specs {
        outputs: Vec::new(),
        app: Vec::new(),
        store_xff: None,
        scripts: ScriptFiles::default(),
        warnings: Vec::new(),
        has_anomaly: false,
        has_drop: false,
    };
    let Some(list) = config.node("outputs") else { return Ok(specs) };
    for item in list.children() {
        let (name, node) = item.entry();
        let Some(node) = node else { continue };
        let output = OUTPUTS.iter().find(|o| o.0 == name);
        if output.is_none() && !is_ignored(name) {
            // The table of settings has no row for its "enabled".
            let enabled = node.children().filter(|c| c.name() == "enabled").find_map(|c| c.value());
            if enabled.is_some_and(|v| margay_config::typed::parse_bool(v).unwrap_or(true)) {
                specs.warnings.push(format!("{}: there is no output named \"{name}\"", item.place()));
            }
            continue;
        }
        // The table of settings reports outputs that have no effect at the start.
        if let Some((_, read)) = output
            && node.bool("enabled")?.unwrap_or(false)
        {
            read(&Reading { config, node, dir }, &mut specs)?;
        }
    }
    Ok(specs)
}

/// Scripts that write logs: in `scripts-dir`, or else in the rules folder.
fn lua(config: &Config, node: Node<'_>, specs: &mut Specs) -> Result<(), ConfigError> {
    let folder = node.get("scripts-dir").unwrap_or_else(|| super::rule_folder(config));
    if let Some(list) = node.node("scripts") {
        specs.scripts.files.extend(list.values().filter(|f| !f.is_empty()).map(|f| Path::new(folder).join(f)));
    }
    specs.scripts.path = node.get("path").map(str::to_owned);
    Ok(())
}

/// Whether an output is known to have no effect.
fn is_ignored(name: &str) -> bool {
    let row = margay_config::keys::row(&format!("outputs.0.{name}"));
    row.is_some_and(|r| matches!(r.effect, margay_config::keys::Effect::Ignored(_)))
}

/// An output's `filename`: unchanged if absolute, or else in the log folder.
pub(crate) fn file(node: Node<'_>, dir: &Path, default: &str) -> PathBuf {
    dir.join(node.get("filename").unwrap_or(default))
}

/// Reads `outputs:`, logs its warnings, and opens the enabled outputs except scripts, for the first of `workers` workers.
/// `auto` is the automatic setting of outputs on other hosts.
///
/// # Errors
/// An invalid setting, or an output cannot be opened.
pub(crate) fn open_files(config: &Config, dir: &Path, workers: usize, auto: WhenFull) -> Result<Outputs, Failed> {
    let mut specs = outputs(config, dir).map_err(|e| Failed::new("runmodes", e.to_string()))?;
    for w in &specs.warnings {
        warning!("runmodes", "{w}");
    }
    for o in &mut specs.outputs {
        let name = o.name();
        if let Some(why) = o.for_workers(workers) {
            warning!("runmodes", "{name}: {why}; there are {workers}");
        }
        let place = match o.sink() {
            Some(SinkSettings { remote: Some(remote), .. }) => {
                Arc::make_mut(remote).when_full.get_or_insert(auto);
                remote.name()
            }
            Some(sink) => {
                sink.patient = auto == WhenFull::Wait;
                sink.path.display().to_string()
            }
            None => o.path().map(|p| p.display().to_string()).unwrap_or_default(),
        };
        info!("logopenfile", "{name} output initialized: {place}");
    }
    Outputs::new(specs.outputs, now(), u64::from(std::process::id()))
        .map_err(|e| Failed::new("logopenfile", e.to_string()))
}

/// For `-T`: reads `outputs:`, logs its warnings, and checks that outputs on other hosts could be opened.
///
/// # Errors
/// An invalid setting, or an output that could not be opened.
pub(crate) fn test_outputs(config: &Config, dir: &Path) -> Result<(), Failed> {
    let specs = outputs(config, dir).map_err(|e| Failed::new("runmodes", e.to_string()))?;
    for w in &specs.warnings {
        warning!("runmodes", "{w}");
    }
    for mut o in specs.outputs {
        if let Some(SinkSettings { remote: Some(remote), .. }) = o.sink() {
            remote.check().map_err(|e| Failed::new("logopenfile", format!("{}: {e}", remote.name())))?;
        }
    }
    Ok(())
}

/// `margay.writer-thread`: whether a separate thread writes the events of `workers` workers. With `auto`, there is one if it
/// need not share a worker's core.
///
/// # Errors
/// A value other than yes, no and auto.
pub(crate) fn writer_thread(config: &Config, workers: usize) -> Result<bool, Failed> {
    match config.get("margay.writer-thread") {
        None | Some("auto") => Ok(std::thread::available_parallelism().is_ok_and(|n| n.get() > workers)),
        Some(_) => Ok(super::flag(config, "margay.writer-thread", false)?),
    }
}

/// `margay.search-ahead`: whether idle workers search payloads for busy ones.
///
/// # Errors
/// A value other than yes and no.
pub(crate) fn search_ahead(config: &Config) -> Result<bool, ConfigError> {
    super::flag(config, "margay.search-ahead", true)
}

/// Whether an output shows JA4 fingerprints.
///
/// # Errors
/// An invalid value.
pub(crate) fn shows_ja4(config: &Config, dir: &Path) -> Result<bool, Failed> {
    let specs = outputs(config, dir).map_err(|e| Failed::new("runmodes", e.to_string()))?;
    Ok(specs.app.iter().any(|o| o.tls.asks_ja4))
}

/// Whether an output shows the Ethernet addresses of flows.
///
/// # Errors
/// An invalid value.
pub(crate) fn wants_ethernet(config: &Config) -> Result<bool, ConfigError> {
    for item in config.node("outputs").iter().flat_map(Node::children) {
        if let ("eve-log", Some(node)) = item.entry()
            && node.bool("ethernet")?.unwrap_or(false)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Below this number, the `limit` of `pcap-log` counts megabytes, as in old configurations.
const MEGABYTES_BELOW: u64 = 4096;
/// The smallest `limit` in bytes, as in Suricata; megabytes go down to one.
const LEAST_BYTES: u64 = 4 << 20;

fn pcap(node: Node<'_>, dir: &Path) -> Result<PcapLogSettings, ConfigError> {
    let dir = node.get("dir").map_or_else(|| dir.to_owned(), |d| dir.join(d));
    let mut s = PcapLogSettings::new(file(node, &dir, "log.pcap"));
    let bad = |key: &str, value: &str| node.node(key).unwrap_or(node).error(format!("{key}: \"{value}\" is not known"));
    if let Some(mode) = node.get("mode") {
        s.mode = PcapMode::from_name(mode).map_err(|e| node.node("mode").unwrap_or(node).error(e))?;
    }
    if let Some(limit) = node.size("limit")? {
        s.limit = if limit < MEGABYTES_BELOW { limit << 20 } else { limit };
        if (MEGABYTES_BELOW..LEAST_BYTES).contains(&limit) {
            return Err(bad("limit", &format!("{limit}, less than {LEAST_BYTES} bytes,")));
        }
    }
    if let Some(n) = node.int("max-files")? {
        s.max_files = u32::try_from(n).map_err(|_| bad("max-files", &n.to_string()))? as usize;
    }
    if let Some(format) = node.get("ts-format") {
        s.usec = match format {
            "usec" => true,
            "sec" => false,
            _ => return Err(bad("ts-format", format)),
        };
    }
    s.use_stream_depth = node.bool("use-stream-depth")?.unwrap_or(false);
    s.honor_pass_rules = node.bool("honor-pass-rules")?.unwrap_or(false);
    if let Some(c) = node.get("conditional") {
        s.conditional = match c {
            "all" => Conditional::All,
            "alerts" => Conditional::Alerts,
            "tag" => Conditional::Tag,
            _ => return Err(bad("conditional", c)),
        };
    }
    if let Some(memcap) = node.size("hold-memcap")? {
        s.hold_memcap = memcap;
    }
    s.compression = match node.get("compression") {
        None | Some("none" | "") => Compression::None,
        Some("lz4") => Compression::Lz4 { checksum: node.bool("lz4-checksum")?.unwrap_or(false) },
        Some(other) => return Err(bad("compression", other)),
    };
    s.filter = node.get("bpf-filter").map(str::to_owned);
    Ok(s)
}

/// Reads the settings of a regular file.
///
/// # Errors
/// An invalid value.
pub(super) fn regular(node: Node<'_>, dir: &Path, default: &str) -> Result<SinkSettings, ConfigError> {
    let mut s = SinkSettings::file(file(node, dir, default));
    let bad = |key: &str, value: &str| unknown_here(node, key, value);
    s.append = node.bool("append")?.unwrap_or(true);
    if let Some(mode) = node.get("filemode") {
        s.mode = u32::from_str_radix(mode, 8).map_err(|_| bad("filemode", mode))?;
    }
    if let Some(text) = node.get("rotate-interval") {
        s.rotate_interval = Some(interval(text).ok_or_else(|| bad("rotate-interval", text))?);
        // As in Suricata, `hour` is the clock's, and `60m` counts from the start.
        s.rotate_by_clock = !text.starts_with(|c: char| c.is_ascii_digit());
    }
    s.buffer_size = usize::try_from(node.size("buffer-size")?.unwrap_or(0)).unwrap_or(usize::MAX);
    Ok(s)
}

pub(super) fn sink(node: Node<'_>, dir: &Path, default: &str) -> Result<SinkSettings, ConfigError> {
    let mut s = regular(node, dir, default)?;
    let filetype = node.get("filetype").or_else(|| node.get("type")).unwrap_or_default().to_ascii_lowercase();
    if !filetype.is_empty() {
        s.kind = SinkKind::from_name(&filetype).map_err(|e| node.node("filetype").unwrap_or(node).error(e))?;
    }
    syslog(node, &mut s)?;
    if s.kind == SinkKind::Syslog {
        s.path = SYSLOG_SOCKET.into();
    }
    s.remote = remote(node, &filetype, &s, dir)?;
    if s.remote.is_some() {
        s.kind = SinkKind::Remote;
    }
    Ok(s)
}

/// Seconds of `minute`, `hour`, `day`, or a number with `s`, `m`, `h`, `d` or `w`.
fn interval(text: &str) -> Option<u64> {
    match text {
        "minute" => return Some(60),
        "hour" => return Some(3600),
        "day" => return Some(86400),
        _ => {}
    }
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        "w" => 7 * 86400,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|&s| s > 0)
}

fn eve(
    config: &Config,
    node: Node<'_>,
    dir: &Path,
    warnings: &mut Vec<String>,
) -> Result<(EveSettings, AppLog), ConfigError> {
    let mut eve = EveSettings::file(file(node, dir, "eve.json"), EventTypes::NONE);
    eve.sink = sink(node, dir, "eve.json")?;
    eve.threaded = node.bool("threaded")?.unwrap_or(false);
    eve.prefix = node.get("prefix").unwrap_or_default().into();
    eve.pcap_file = node.bool("pcap-file")?.unwrap_or(false);
    eve.community_id = node.bool("community-id")?.unwrap_or(false);
    if let Some(seed) = node.int("community-id-seed")? {
        eve.community_id_seed =
            u16::try_from(seed).map_err(|_| node.error("community-id-seed must be between 0 and 65535"))?;
    }
    eve.ethernet = node.bool("ethernet")?.unwrap_or(false);
    eve.metadata = node.bool("metadata")?.unwrap_or(true);
    eve.sensor_name = config.get("sensor-name").map(str::to_owned);
    if node.bool("suricata-version")?.unwrap_or(false) {
        // As for all tools that ask, the release that decides the form of the records.
        eve.version = Some(crate::COMPATIBLE.into());
    }
    let Some(types) = node.node("types") else { return Ok((eve, AppLog::default())) };
    let mut app = AppLog::default();
    let mut alert_tags = false;
    for item in types.children() {
        let (name, options) = item.entry();
        let Some(kind) = EventType::from_name(name) else {
            if is_ignored_type(name) {
                continue;
            }
            warnings.push(format!("{}: there is no event type called \"{name}\"", item.place()));
            continue;
        };
        if let Some(o) = options
            && o.get("enabled").is_some()
            && !o.bool("enabled")?.unwrap_or(true)
        {
            continue;
        }
        if eve.types.contains(kind) {
            warnings.push(format!(
                "{}: \"{name}\" is listed twice in this eve-log: it is written once, with the later options",
                item.place()
            ));
        }
        eve.types = eve.types.with(kind);
        // The type may include events of other protocols, such as data connections.
        for p in margay_app::PROTOCOLS {
            if p.logged_with.is_some_and(|with| kind == EventType::App(with)) {
                eve.types = eve.types.with(EventType::App(p.proto));
            }
        }
        app.read(kind, node, options, warnings)?;
        match kind {
            EventType::Alert => {
                eve.alert = alert(options)?;
                alert_tags = eve.alert.tagged_packets;
            }
            EventType::Anomaly => eve.anomaly = anomaly(options)?,
            EventType::Drop => {
                if let Some(o) = options {
                    eve.drop = DropOptions {
                        alerts: o.bool("alerts")?.unwrap_or(false),
                        all: match o.get("flows") {
                            None | Some("" | "start") => false,
                            Some("all") => true,
                            Some(other) => {
                                return Err(o.error(format!("drop: flows: \"{other}\" is neither all nor start")));
                            }
                        },
                        verdict: o.bool("verdict")?.unwrap_or(false),
                    };
                }
            }
            EventType::Flow => {
                // Suricata has a switch for the list of applied policies. Here the list is always shown, because it is short
                // and useful.
                eve.flow = FlowOptions { exception_policy: true };
            }
            EventType::Stream => {
                let on = |name: &str| options.map_or(Ok(None), |o| o.bool(name)).map(|on| on.unwrap_or(false));
                eve.stream = StreamOptions {
                    all: on("all")?,
                    event_set: on("event-set")?,
                    state_update: on("state-update")?,
                    spurious_retransmission: on("spurious-retransmission")?,
                };
            }
            EventType::Stats => eve.stats = stats(options, StatsOptions::default())?,
            _ => {}
        }
    }
    if alert_tags {
        eve.types = eve.types.with(EventType::Packet);
    }
    eve.xff = app.xff.clone();
    Ok((eve, app))
}

/// Whether an event type is known to have no effect.
fn is_ignored_type(name: &str) -> bool {
    margay_config::keys::row(&format!("outputs.0.eve-log.types.0.{name}")).is_some()
}

fn alert(node: Option<Node<'_>>) -> Result<AlertOptions, ConfigError> {
    let mut a = AlertOptions::default();
    let Some(n) = node else { return Ok(a) };
    a.payload = n.bool("payload")?.unwrap_or(a.payload);
    a.payload_printable = n.bool("payload-printable")?.unwrap_or(a.payload_printable);
    a.payload_length = n.bool("payload-length")?.unwrap_or(a.payload_length);
    a.payload_buffer_size = usize::try_from(n.size("payload-buffer-size")?.unwrap_or(4096)).unwrap_or(4096);
    a.packet = n.bool("packet")?.unwrap_or(a.packet);
    a.verdict = n.bool("verdict")?.unwrap_or(a.verdict);
    a.tagged_packets = n.bool("tagged-packets")?.unwrap_or(a.tagged_packets);
    if let Some(m) = n.node("metadata") {
        // Either one switch for everything, or a section.
        if m.children().next().is_none() {
            if !n.bool("metadata")?.unwrap_or(true) {
                (a.app_layer, a.flow, a.rule_metadata) = (false, false, false);
            }
        } else {
            a.app_layer = m.bool("app-layer")?.unwrap_or(a.app_layer);
            a.flow = m.bool("flow")?.unwrap_or(a.flow);
            if let Some(r) = m.node("rule") {
                a.rule_metadata = r.bool("metadata")?.unwrap_or(a.rule_metadata);
                a.rule_raw = r.bool("raw")?.unwrap_or(a.rule_raw);
                a.rule_reference = r.bool("reference")?.unwrap_or(a.rule_reference);
            }
        }
    }
    Ok(a)
}

fn anomaly(node: Option<Node<'_>>) -> Result<AnomalyOptions, ConfigError> {
    let mut a = AnomalyOptions::default();
    let Some(n) = node else { return Ok(a) };
    a.decode = n.bool("types.decode")?.unwrap_or(a.decode);
    a.stream = n.bool("types.stream")?.unwrap_or(a.stream);
    a.applayer = n.bool("types.applayer")?.unwrap_or(a.applayer);
    a.packethdr = n.bool("packethdr")?.unwrap_or(a.packethdr);
    Ok(a)
}

fn stats(node: Option<Node<'_>>, d: StatsOptions) -> Result<StatsOptions, ConfigError> {
    let Some(n) = node else { return Ok(d) };
    let s = StatsOptions {
        totals: n.bool("totals")?.unwrap_or(d.totals),
        threads: n.bool("threads")?.unwrap_or(d.threads),
        deltas: n.bool("deltas")?.unwrap_or(d.deltas),
        null_values: n.bool("null-values")?.or(n.bool("zero-valued-counters")?).unwrap_or(d.null_values),
    };
    (s.totals || s.threads).then_some(s).ok_or_else(|| n.error("totals and threads are both off: nothing is logged"))
}

#[cfg(test)]
mod tests {
    use margay_app::AppProto;

    use super::*;
    use margay_output::settings::XffMode;

    fn specs(text: &str) -> Result<usize, ConfigError> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t")?;
        outputs(&config, Path::new("logs")).map(|s| s.outputs.len())
    }

    #[test]
    fn reads_what_is_enabled() {
        let text = "outputs:\n  - fast:\n      enabled: yes\n  - eve-log:\n      enabled: yes\n      types:\n        - \
                    alert:\n            payload: yes\n        - flow\n  - stats:\n      enabled: no\n";
        assert_eq!(specs(text).unwrap(), 2);
        assert!(specs("outputs: [stats: {enabled: yes, totals: no}]").is_err());
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t").unwrap();
        let s = outputs(&config, Path::new("logs")).unwrap();
        assert_eq!(s.outputs[1].name(), "eve-log");
        let eve = eve_of(&s, 0);
        assert!(eve.alert.payload && eve.types.contains(EventType::Flow) && !eve.types.contains(EventType::Stats));
        assert_eq!(eve.sink.path, Path::new("logs/eve.json"));
    }

    #[test]
    fn low_limits_of_capture_logs_are_megabytes() {
        let limit = |limit: &str| {
            let text = format!("%YAML 1.1\n---\noutputs:\n  - pcap-log:\n      limit: {limit}\n");
            let config = Config::from_str(&text, "t").unwrap();
            let item = config.node("outputs").unwrap().children().next().unwrap();
            pcap(item.entry().1.unwrap(), Path::new("logs")).map(|s| s.limit).ok()
        };
        assert_eq!(["0", "1", "4095", "4mb"].map(limit), [0, 1 << 20, 4095 << 20, 4 << 20].map(Some));
        assert_eq!(["4096", "3mb"].map(limit), [None, None]);
    }

    fn read(text: &str) -> Specs {
        let config = Config::from_str(&format!("%YAML 1.1\n---\noutputs:\n{text}"), "t").unwrap();
        let specs = outputs(&config, Path::new("logs")).unwrap();
        assert_eq!(specs.app.len(), eves(&specs).count());
        specs
    }

    fn eves(specs: &Specs) -> impl Iterator<Item = &EveSettings> {
        specs.outputs.iter().filter_map(|o| (&**o as &dyn std::any::Any).downcast_ref())
    }

    fn eve_of(specs: &Specs, n: usize) -> &EveSettings {
        eves(specs).nth(n).expect("an eve-log")
    }

    #[test]
    fn what_protocols_declare_for_alerts_is_not_for_their_events() {
        let s = read(
            "  - eve-log:\n      enabled: yes\n      types:\n        - alert: {websocket-payload: yes}\n        - websocket: \
             {payload-printable: yes}\n",
        );
        let [a] = &s.app[..] else { panic!("{}", s.app.len()) };
        // Payload and printable payload: of events, then of alerts.
        assert_eq!([0, 1, 2, 3].map(|place| a.options.get(AppProto::Websocket, place)), [0, 1, 1, 0]);
    }

    #[test]
    fn options_of_protocols_are_each_outputs_own() {
        let s = read(
            "  - eve-log:\n      enabled: no\n      types: [http]\n  - eve-log:\n      enabled: yes\n      types:\n        \
             - http: {extended: yes, custom: [Accept-Encoding, content_length, foo, Date, date]}\n        - alert: \
             {http-body: yes}\n  - fast: {enabled: yes}\n  - eve-log:\n      enabled: yes\n      types:\n        - http: \
             {dump-all-headers: both, custom: [date]}\n        - alert: {http-body-printable: yes}\n  - eve-log:\n      \
             enabled: yes\n      types: [http, {http: {dump-all-headers: requests}}]\n",
        );
        let [a, b, c] = &s.app[..] else { panic!("{}", s.app.len()) };
        assert!(a.http.extended && !b.http.extended);
        assert_eq!(a.http.custom, ["accept-encoding", "content-length", "date"]);
        assert_eq!(
            (a.http.dump_headers, b.http.dump_headers, c.http.dump_headers),
            ([false; 2], [true; 2], [false; 2])
        );
        assert!(b.http.custom.is_empty());
        assert_eq!((a.http_body, a.http_body_printable), (true, false));
        assert_eq!((b.http_body, b.http_body_printable), (false, true));
        for (warning, says) in
            s.warnings.iter().zip(["\"foo\"", "no need for custom", "listed twice", "\"requests\" is none of"])
        {
            assert!(warning.contains(says), "{warning}");
        }
        assert_eq!(s.warnings.len(), 4);
    }

    #[test]
    fn xff_of_the_file_store() {
        let s = read(
            "  - file-store:\n      version: 2\n      enabled: yes\n      xff:\n        enabled: yes\n        mode: overwrite\n        \
             header: X-Real-IP\n",
        );
        assert_eq!(s.store_xff, Some(Xff { mode: XffMode::Overwrite, forward: false, header: "X-Real-IP".into() }));
    }

    #[test]
    fn xff_of_a_type_stands_before_that_of_the_output() {
        let s = read(
            "  - eve-log:\n      enabled: yes\n      xff: {enabled: yes, mode: overwrite, deployment: forward, header: X-Real}\n      \
             types:\n        - alert: {xff: {enabled: no}}\n        - http: {xff: {enabled: yes}}\n        - files\n  - \
             eve-log:\n      enabled: yes\n      types:\n        - alert: {xff: {enabled: yes, mode: more, deployment: \
             sideways, header: x}}\n        - http\n",
        );
        let (a, b) = (&eve_of(&s, 0).xff, &eve_of(&s, 1).xff);
        let xff = |mode, forward, header: &str| Some(Xff { mode, forward, header: header.into() });
        assert_eq!(a.alert, None);
        assert_eq!(a.http, xff(XffMode::ExtraData, false, "X-Forwarded-For"));
        assert_eq!(a.files, xff(XffMode::Overwrite, true, "X-Real"));
        assert_eq!(b.alert, xff(XffMode::ExtraData, false, "x"));
        assert_eq!((&b.http, &b.files), (&None, &None));
        assert_eq!(s.store_xff, None);
        let says: Vec<bool> = ["header", "XFF mode more", "XFF deployment sideways"]
            .iter()
            .zip(&s.warnings)
            .map(|(says, w)| w.contains(says))
            .collect();
        assert_eq!(says, [true; 3], "{:?}", s.warnings);
    }

    #[test]
    fn refuses_nonsense() {
        let unknown = read("  - feast:\n      enabled: yes\n").warnings.concat();
        assert!(unknown.contains("no output named \"feast\""), "{unknown}");
        for kind in ["anomaly", "drop"] {
            let one = format!("  - eve-log:\n      enabled: yes\n      types: [{kind}]\n");
            let e = specs(&format!("outputs:\n{one}{one}")).unwrap_err();
            assert!(e.to_string().contains(&format!("only one '{kind}' logger can be enabled")));
        }
    }

    #[test]
    fn intervals() {
        assert_eq!(interval("hour"), Some(3600));
        assert_eq!(interval("90s"), Some(90));
        assert_eq!(interval("30w"), Some(30 * 7 * 86400));
        assert_eq!(interval("0s"), None);
        assert_eq!(interval("fortnight"), None);
    }
}
