//! Settings of remote outputs.

use std::path::PathBuf;

use crate::priority::{Facility, SyslogLevel};

/// The settings of one remote output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSettings {
    /// The peer.
    pub kind: RemoteKind,
    /// `queue-size`: most bytes that wait in memory.
    pub queue: usize,
    /// `when-full`. `None` lets the engine decide: live captures do not wait, capture files do.
    pub when_full: Option<WhenFull>,
    /// `spool`.
    pub spool: Option<SpoolSettings>,
}

impl RemoteSettings {
    /// The peer's name in messages.
    pub fn name(&self) -> String {
        match &self.kind {
            RemoteKind::Redis(s) => format!("redis {}:{}", s.server, s.port),
            RemoteKind::Kafka(s) => format!("kafka {} topic {}", s.brokers, s.topic),
            RemoteKind::Stream(s) => format!("{}://{}", s.scheme(), s.address),
        }
    }
}

/// The kind of peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteKind {
    /// `filetype: redis`.
    Redis(RedisSettings),
    /// `filetype: kafka`.
    Kafka(KafkaSettings),
    /// `filetype: tcp`, and `filetype: syslog` with a server.
    Stream(StreamSettings),
}

/// Policy for lines that fit neither in memory nor on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The lines are lost and counted, so that packets do not wait.
    Drop,
    /// The worker waits. This suits capture files.
    Wait,
}

/// `spool`: keeps lines on disk while the peer is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSettings {
    /// `dir`: a folder that nothing else uses.
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
    /// `password`, and `user` if the server has several.
    pub login: Option<(Option<String>, String)>,
    /// `pipelining.batch-size`: events sent before the replies are read.
    pub batch: usize,
}

/// The Redis command that adds events.
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
        /// `stream-maxlen`: maximum length of the stream; 0 is no limit.
        maxlen: u64,
        /// `stream-trim-exact`: trim to exactly this length instead of approximately.
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
    /// `properties`: librdkafka settings, for example for TLS and SASL.
    pub properties: Vec<(String, String)>,
}

/// The member of an event that is its key. Events with equal keys go to the same partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionKey {
    /// `community-id`, or `flow_id` for events without one.
    CommunityId,
    /// `flow-id`.
    FlowId,
    /// `none`: round robin over the partitions.
    None,
}

/// A connection that carries lines or syslog messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// `host:port`.
    pub address: String,
    /// UDP: one message in each datagram.
    pub datagrams: bool,
    /// TLS settings, if the connection uses TLS.
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
    /// RFC 5424. Over TCP and TLS the length precedes the message (RFC 6587 section 3.4.1, RFC 5425 section 4.3).
    Syslog {
        /// The sender's identity.
        identity: String,
        /// Facility, which with the level forms the priority.
        facility: Facility,
        /// Level.
        level: SyslogLevel,
    },
}

/// TLS settings of a connection. The server's certificate is always checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// `ca`: trusted certificates in PEM; the system's if none are given.
    pub ca: Option<PathBuf>,
    /// `certificate` and `key`: the sensor's own certificate and key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// `server-name`, if the certificate has another name than the address.
    pub server_name: Option<String>,
}
