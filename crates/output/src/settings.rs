//! Options of the outputs, with Suricata 8's defaults. The engine fills them in from the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use crate::event::EventTypes;
use crate::priority::{Facility, SyslogLevel};

pub mod remote;

use remote::RemoteSettings;

/// The default path of syslog's socket.
pub const SYSLOG_SOCKET: &str = "/dev/log";

/// Settings of a sink: a file, a socket and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSettings {
    /// The kind of sink.
    pub kind: SinkKind,
    /// Full path of the file or socket. It may contain conversions of strftime(3) for the time it is opened.
    pub path: PathBuf,
    /// `append`: keep the contents of a regular file. Otherwise the file is truncated.
    pub append: bool,
    /// `filemode`: permissions of a regular file, which `umask` restricts; 0 leaves the default.
    pub mode: u32,
    /// `rotate-interval` in seconds: the next line after it goes to a new file.
    pub rotate_interval: Option<u64>,
    /// Whether the interval ends at its multiples in local time, instead of counting from the start.
    pub rotate_by_clock: bool,
    /// A datagram socket without room is waited for: nothing is lost when a capture file is read.
    pub patient: bool,
    /// `buffer-size` in bytes: a line that does not fit flushes the buffer first. 0 writes each line at once.
    pub buffer_size: usize,
    /// Syslog: the sender's identity.
    pub identity: String,
    /// Syslog: the facility.
    pub facility: Facility,
    /// Syslog: the level of the messages.
    pub level: SyslogLevel,
    /// Settings of a remote output. `path` is unused then.
    pub remote: Option<Arc<RemoteSettings>>,
}

impl SinkSettings {
    /// A regular file, appended to, unbuffered.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        SinkSettings {
            kind: SinkKind::Regular,
            path: path.into(),
            append: true,
            mode: 0,
            rotate_interval: None,
            rotate_by_clock: false,
            patient: false,
            buffer_size: 0,
            identity: "suricata".into(),
            facility: Facility::Local0,
            level: SyslogLevel::Info,
            remote: None,
        }
    }
}

/// `filetype`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkKind {
    /// `regular`.
    Regular,
    /// `unix_stream`: connects to a stream socket that another program listens on.
    UnixStream,
    /// `unix_dgram`: the same with datagrams, one for each line.
    UnixDgram,
    /// `syslog`.
    Syslog,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Another machine, or a server that acknowledges: `redis`, `kafka`, `tcp`, and `syslog` with a server.
    Remote,
}

impl SinkKind {
    /// The kind that `filetype` names.
    ///
    /// # Errors
    /// A message for the user.
    pub fn from_name(name: &str) -> Result<SinkKind, String> {
        match name.to_ascii_lowercase().as_str() {
            "regular" | "file" => Ok(SinkKind::Regular),
            "unix_stream" => Ok(SinkKind::UnixStream),
            "unix_dgram" => Ok(SinkKind::UnixDgram),
            "syslog" => Ok(SinkKind::Syslog),
            "redis" | "kafka" | "tcp" => Ok(SinkKind::Remote),
            _ => Err(format!(
                "filetype {name} is none; there are regular, unix_stream, unix_dgram, syslog, redis, kafka and tcp"
            )),
        }
    }
}

/// One `eve-log`.
#[derive(Debug, Clone, PartialEq)]
pub struct EveSettings {
    /// The sink.
    pub sink: SinkSettings,
    /// `types`.
    pub types: EventTypes,
    /// `threaded`: a file for each worker, with its number from 1 before the extension (`eve.3.json`).
    pub threaded: bool,
    /// `prefix`: put before each line.
    pub prefix: String,
    /// `pcap-file`: name the capture file in each event.
    pub pcap_file: bool,
    /// `community-id`.
    pub community_id: bool,
    /// `community-id-seed`.
    pub community_id_seed: u16,
    /// `ethernet`: addresses of the link layer.
    pub ethernet: bool,
    /// `metadata`: flow and packet variables.
    pub metadata: bool,
    /// `suricata-version`, written as given.
    pub version: Option<String>,
    /// `sensor-name`, written as `host`.
    pub sensor_name: Option<String>,
    /// Interface that packets come from (`in_iface`), for events without one of their own.
    pub in_iface: Option<String>,
    /// Options of `alert`.
    pub alert: AlertOptions,
    /// Options of `anomaly`.
    pub anomaly: AnomalyOptions,
    /// Options of `drop`.
    pub drop: DropOptions,
    /// Options of `flow`.
    pub flow: FlowOptions,
    /// Options of `stats`.
    pub stats: StatsOptions,
    /// Options of `stream`.
    pub stream: StreamOptions,
    /// `xff` of `alert`, `http` and `files`.
    pub xff: XffSettings,
}

impl EveSettings {
    /// A regular file with Suricata's defaults, for the types given.
    pub fn file(path: impl Into<PathBuf>, types: EventTypes) -> Self {
        EveSettings {
            sink: SinkSettings { append: true, ..SinkSettings::file(path) },
            types,
            threaded: false,
            prefix: String::new(),
            pcap_file: false,
            community_id: false,
            community_id_seed: 0,
            ethernet: false,
            metadata: true,
            version: None,
            sensor_name: None,
            in_iface: None,
            alert: AlertOptions::default(),
            anomaly: AnomalyOptions::default(),
            drop: DropOptions::default(),
            flow: FlowOptions::default(),
            stats: StatsOptions::default(),
            stream: StreamOptions::default(),
            xff: XffSettings::default(),
        }
    }
}

/// `xff:`: how to use the client's address that a proxy's header names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xff {
    /// `mode`.
    pub mode: XffMode,
    /// `deployment: forward`: the first address of a list is the client's; with `reverse` it is the last one.
    pub forward: bool,
    /// `header`: the name of the header, in any case.
    pub header: Arc<str>,
}

/// `xff.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XffMode {
    /// `extra-data`: a further member, `xff`.
    ExtraData,
    /// `overwrite`: replaces the client's address.
    Overwrite,
}

/// `xff:` by event type: the type's own section, or else that of the `eve-log`; `None` if off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XffSettings {
    /// For `alert`.
    pub alert: Option<Xff>,
    /// For `http`.
    pub http: Option<Xff>,
    /// For `files`.
    pub files: Option<Xff>,
}

/// `alert:` of an `eve-log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlertOptions {
    /// `payload`: base64.
    pub payload: bool,
    /// `payload-printable`.
    pub payload_printable: bool,
    /// `payload-length`.
    pub payload_length: bool,
    /// `payload-buffer-size` in bytes: limit of the stream bytes that are shown.
    pub payload_buffer_size: usize,
    /// `packet`: the whole packet in base64, with `packet_info`.
    pub packet: bool,
    /// `metadata.app-layer`.
    pub app_layer: bool,
    /// `metadata.flow`.
    pub flow: bool,
    /// `metadata.rule.metadata`.
    pub rule_metadata: bool,
    /// `metadata.rule.raw`.
    pub rule_raw: bool,
    /// `metadata.rule.reference`.
    pub rule_reference: bool,
    /// `verdict`.
    pub verdict: bool,
    /// `tagged-packets`: write packets that a `tag` keeps.
    pub tagged_packets: bool,
}

impl AlertOptions {
    /// Limit of the stream bytes that an alert shows; 0 if no form of the payload is on.
    pub const fn stream_payload(&self) -> usize {
        if self.payload || self.payload_printable || self.payload_length { self.payload_buffer_size } else { 0 }
    }
}

impl Default for AlertOptions {
    fn default() -> Self {
        AlertOptions {
            payload: false,
            payload_printable: false,
            payload_length: false,
            payload_buffer_size: 4096,
            packet: false,
            app_layer: true,
            flow: true,
            rule_metadata: true,
            rule_raw: false,
            rule_reference: false,
            verdict: false,
            tagged_packets: false,
        }
    }
}

/// `anomaly:` of an `eve-log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnomalyOptions {
    /// `types.decode`.
    pub decode: bool,
    /// `types.stream`.
    pub stream: bool,
    /// `types.applayer`.
    pub applayer: bool,
    /// `packethdr`: the first bytes of packets with decoder events.
    pub packethdr: bool,
}

impl Default for AnomalyOptions {
    fn default() -> Self {
        AnomalyOptions { decode: false, stream: false, applayer: true, packethdr: false }
    }
}

/// `stream:` of an `eve-log`: selects TCP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// `all`.
    pub all: bool,
    /// `event-set`: packets with a decoder or stream event.
    pub event_set: bool,
    /// `state-update`: packets that change their session's state.
    pub state_update: bool,
    /// `spurious-retransmission`: packets that repeat acknowledged data.
    pub spurious_retransmission: bool,
}

/// `drop:` of an `eve-log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropOptions {
    /// `alerts`: the rule that dropped the packet.
    pub alerts: bool,
    /// `flows: all`: every dropped packet of a flow, not only the first.
    pub all: bool,
    /// `verdict`.
    pub verdict: bool,
}

/// `flow:` of an `eve-log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowOptions {
    /// `exception-policy`.
    pub exception_policy: bool,
}

/// `stats:` of an `eve-log`, and the `stats` output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsOptions {
    /// `totals`: sums over all threads.
    pub totals: bool,
    /// `threads`: each thread separately.
    pub threads: bool,
    /// `deltas`: for each counter, also the change since the last report (`eve-log` only).
    pub deltas: bool,
    /// `null-values`: include counters that are 0.
    pub null_values: bool,
}

impl Default for StatsOptions {
    fn default() -> Self {
        StatsOptions { totals: true, threads: false, deltas: false, null_values: true }
    }
}

/// The `stats` output (`stats.log`).
#[derive(Debug, Clone, PartialEq)]
pub struct StatsLogSettings {
    /// The sink.
    pub sink: SinkSettings,
    /// The options. By default, counters that are 0 are left out. `deltas` has no effect here.
    pub options: StatsOptions,
}

impl StatsLogSettings {
    /// A regular file with Suricata's defaults.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        StatsLogSettings {
            sink: SinkSettings::file(path),
            options: StatsOptions { null_values: false, ..StatsOptions::default() },
        }
    }
}
