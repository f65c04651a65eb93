//! What the configuration says of remote outputs.

use std::path::PathBuf;

use crate::settings::{Facility, SyslogLevel};

/// An output of another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Who the peer is.
    pub kind: RemoteKind,
    /// `queue-size`: most bytes that wait in memory.
    pub queue: usize,
    /// `when-full`; `None` leaves it to the engine: packets of an interface do not wait, capture files do.
    pub when_full: Option<WhenFull>,
    /// `spool`.
    pub spool: Option<SpoolSettings>,
}

impl RemoteSettings {
    /// The peer, for messages.
    pub fn name(&self) -> String {
        match &self.kind {
            RemoteKind::Redis(s) => format!("redis {}:{}", s.server, s.port),
            RemoteKind::Kafka(s) => format!("kafka {} topic {}", s.brokers, s.topic),
            RemoteKind::Stream(s) => format!("{}://{}", s.scheme(), s.address),
        }
    }
}

/// Who the peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteKind {
    /// `filetype: redis`.
    Redis(RedisSettings),
    /// `filetype: kafka`.
    Kafka(KafkaSettings),
    /// `filetype: tcp`, and `filetype: syslog` with a server.
    Stream(StreamSettings),
}

/// What happens to lines for which there is no room, neither in memory nor on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// They are lost and counted: packets do not wait.
    Drop,
    /// Whoever writes waits: for capture files, which can.
    Wait,
}

/// `spool`: where lines are kept on disk while the peer is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSettings {
    /// `dir`: a folder of its own.
    pub dir: PathBuf,
    /// `max-size` in bytes.
    pub max_size: u64,
}

/// `redis`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// `server`: a name or an address, or the path of a unix socket.
    pub server: String,
    /// `port`.
    pub port: u16,
    /// `mode`.
    pub mode: RedisMode,
    /// `key`: list, channel or stream.
    pub key: String,
    /// `password`, and `user` where there are several.
    pub login: Option<(Option<String>, String)>,
    /// `pipelining.batch-size`: events sent before an answer is waited for.
    pub batch: usize,
}

/// How events are put into Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisMode {
    /// `list`, `lpush`: at the head of a list.
    LeftPush,
    /// `rpush`: at its tail.
    RightPush,
    /// `channel`, `publish`.
    Publish,
    /// `stream`, `xadd`: an entry with the field `eve`.
    Stream {
        /// `stream-maxlen`: how long the stream may become; 0 is no limit.
        maxlen: u64,
        /// `stream-trim-exact`: exactly so long, instead of about.
        exact: bool,
    },
}

/// `kafka`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSettings {
    /// `brokers`: `host:port`, separated by commas.
    pub brokers: String,
    /// `topic`.
    pub topic: String,
    /// `key`.
    pub key: PartitionKey,
    /// `properties`: settings of librdkafka, as TLS and SASL.
    pub properties: Vec<(String, String)>,
}

/// Which member of an event is its key, so that equal ones meet in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKey {
    /// `community-id`, or `flow_id` where there is none.
    CommunityId,
    /// `flow-id`.
    FlowId,
    /// `none`: partitions in turn.
    None,
}

/// A connection that carries lines or syslog messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// `host:port`.
    pub address: String,
    /// UDP: a message a datagram.
    pub datagrams: bool,
    /// With TLS.
    pub tls: Option<TlsSettings>,
    /// How a line is framed.
    pub framing: StreamFraming,
}

impl StreamSettings {
    fn scheme(&self) -> &'static str {
        match (self.datagrams, &self.tls) {
            (true, _) => "udp",
            (_, Some(_)) => "tls",
            _ => "tcp",
        }
    }
}

/// How a line is framed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamFraming {
    /// As it is, with its line feed.
    Lines,
    /// RFC 5424; over TCP and TLS with its length before it (RFC 6587 section 3.4.1, RFC 5425 section 4.3).
    Syslog {
        /// Who speaks.
        identity: String,
        /// Facility and level: the priority.
        facility: Facility,
        /// See there.
        level: SyslogLevel,
    },
}

/// TLS of a connection. The server's certificate is always checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// `ca`: certificates that are trusted, in PEM; the system's where none is given.
    pub ca: Option<PathBuf>,
    /// `certificate` and `key`: what the sensor shows of itself, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// `server-name`, where the certificate has another name than the address.
    pub server_name: Option<String>,
}
