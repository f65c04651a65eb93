//! Outputs to other hosts: `filetype` redis, kafka and tcp, and syslog with a server.

use std::path::Path;
use std::sync::Arc;

use margay_config::{Config, ConfigError, Node};
use margay_output::remote::{
    KafkaSettings, PartitionKey, RedisMode, RedisSettings, RemoteKind, RemoteSettings, SpoolSettings, StreamFraming,
    StreamSettings, TlsSettings, WhenFull,
};
use margay_output::settings::SinkSettings;

/// Default of `queue-size`: limit of the bytes that wait in memory.
const QUEUE: u64 = 64 << 20;
/// Default of `spool.max-size`.
const SPOOL: u64 = 1 << 30;
/// Default of `pipelining`: events sent to Redis together.
const TOGETHER: usize = 1000;

/// The server that `filetype` and the sections of an output name; `None` for a local output.
///
/// # Errors
/// A missing or invalid setting.
pub(super) fn remote(
    node: Node<'_>,
    filetype: &str,
    sink: &SinkSettings,
    dir: &Path,
) -> Result<Option<Arc<RemoteSettings>>, ConfigError> {
    let kind = match filetype {
        "redis" => RemoteKind::Redis(redis(node)?),
        "kafka" => RemoteKind::Kafka(kafka(node)?),
        "tcp" => RemoteKind::Stream(tcp(node)?),
        "syslog" => match syslog(node, sink)? {
            Some(s) => RemoteKind::Stream(s),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let queue = node.size("queue-size")?.unwrap_or(QUEUE);
    let when_full = match node.get("when-full") {
        None | Some("auto" | "") => None,
        Some("drop") => Some(WhenFull::Drop),
        Some("wait") => Some(WhenFull::Wait),
        Some(other) => return Err(bad(node, "when-full", other, "auto, drop or wait")),
    };
    let spool = match node.node("spool") {
        Some(s) => {
            let Some(folder) = s.get("dir").filter(|d| !d.is_empty()) else {
                return Err(s.error("spool: a folder is missing: dir"));
            };
            Some(SpoolSettings { dir: dir.join(folder), max_size: s.size("max-size")?.unwrap_or(SPOOL) })
        }
        None => None,
    };
    let queue = usize::try_from(queue).unwrap_or(usize::MAX).max(1);
    Ok(Some(Arc::new(RemoteSettings { kind, queue, when_full, spool })))
}

fn bad(node: Node<'_>, key: &str, value: &str, known: &str) -> ConfigError {
    node.node(key).unwrap_or(node).error(format!("{key}: \"{value}\" is none of {known}"))
}

/// A required value of a section.
fn wanted<'a>(node: Node<'a>, section: &str, key: &str) -> Result<&'a str, ConfigError> {
    let place = node.node(section).unwrap_or(node);
    let value = node.node(section).and_then(|s| s.get(key)).filter(|v| !v.is_empty());
    value.ok_or_else(|| place.error(format!("{section}.{key} is missing")))
}

fn redis(node: Node<'_>) -> Result<RedisSettings, ConfigError> {
    let section = node.node("redis");
    let get = |key: &str| section.and_then(|s| s.get(key)).filter(|v| !v.is_empty());
    let number = |key: &str| section.map_or(Ok(None), |s| s.int(key));
    let at = section.unwrap_or(node);
    let port = number("port")?.unwrap_or(6379);
    let port = u16::try_from(port).map_err(|_| bad(at, "port", &port.to_string(), "1 to 65535"))?;
    let mode = match get("mode").unwrap_or("list") {
        "list" | "lpush" => RedisMode::LeftPush,
        "rpush" => RedisMode::RightPush,
        "channel" | "publish" => RedisMode::Publish,
        "stream" | "xadd" => {
            let most = number("stream-maxlen")?.unwrap_or(100_000);
            RedisMode::Stream {
                maxlen: u64::try_from(most).map_err(|_| bad(at, "stream-maxlen", &most.to_string(), "0 and more"))?,
                exact: section.map_or(Ok(None), |s| s.bool("stream-trim-exact"))?.unwrap_or(false),
            }
        }
        other => return Err(bad(at, "mode", other, "list, lpush, rpush, channel, publish, stream and xadd")),
    };
    let pipelining = section.and_then(|s| s.node("pipelining"));
    let batch = match pipelining {
        None => TOGETHER,
        Some(p) if !p.bool("enabled")?.unwrap_or(true) => 1,
        Some(p) => {
            let n = p.int("batch-size")?.unwrap_or(10);
            usize::try_from(n)
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| bad(p, "batch-size", &n.to_string(), "1 and more"))?
        }
    };
    let login = get("password").map(|p| (get("user").map(str::to_owned), p.to_owned()));
    if login.is_none() && get("user").is_some() {
        return Err(at.error("redis.user without redis.password"));
    }
    Ok(RedisSettings {
        server: get("server").unwrap_or("127.0.0.1").to_owned(),
        port,
        mode,
        key: get("key").unwrap_or("suricata").to_owned(),
        login,
        batch,
    })
}

fn kafka(node: Node<'_>) -> Result<KafkaSettings, ConfigError> {
    let section = node.node("kafka");
    let key = match section.and_then(|s| s.get("key")).unwrap_or("community-id") {
        "community-id" => PartitionKey::CommunityId,
        "flow-id" => PartitionKey::FlowId,
        "none" => PartitionKey::None,
        other => return Err(bad(node.node("kafka").unwrap_or(node), "key", other, "community-id, flow-id and none")),
    };
    let mut properties = Vec::new();
    if let Some(list) = section.and_then(|s| s.node("properties")) {
        for text in list.values() {
            let Some((name, value)) = text.split_once('=') else {
                return Err(list.error(format!("properties: \"{text}\" is no name=value of librdkafka")));
            };
            properties.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    Ok(KafkaSettings {
        brokers: wanted(node, "kafka", "brokers")?.to_owned(),
        topic: wanted(node, "kafka", "topic")?.to_owned(),
        key,
        properties,
    })
}

/// `host:port`.
fn address(node: Node<'_>, text: &str) -> Result<String, ConfigError> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0) => Ok(text.to_owned()),
        _ => Err(node.error(format!("\"{text}\" is no host:port"))),
    }
}

fn tls(section: Node<'_>) -> Result<TlsSettings, ConfigError> {
    let Some(tls) = section.node("tls") else { return Ok(TlsSettings::default()) };
    let get = |key: &str| tls.get(key).filter(|v| !v.is_empty());
    let identity = match (get("certificate"), get("key")) {
        (Some(c), Some(k)) => Some((c.into(), k.into())),
        (None, None) => None,
        _ => return Err(tls.error("tls: certificate and key belong together")),
    };
    Ok(TlsSettings { ca: get("ca").map(Into::into), identity, server_name: get("server-name").map(str::to_owned) })
}

fn tcp(node: Node<'_>) -> Result<StreamSettings, ConfigError> {
    let section = node.node("tcp").unwrap_or(node);
    let server = address(section, wanted(node, "tcp", "server")?)?;
    let on = section.node("tls").map_or(Ok(None), |t| t.bool("enabled"))?.unwrap_or(false);
    let tls = if on { Some(tls(section)?) } else { None };
    Ok(StreamSettings { address: server, datagrams: false, tls, framing: StreamFraming::Lines })
}

/// A syslog server; `None` for the local syslog.
fn syslog(node: Node<'_>, sink: &SinkSettings) -> Result<Option<StreamSettings>, ConfigError> {
    let Some(section) = node.node("syslog") else { return Ok(None) };
    let Some(server) = section.get("server").filter(|v| !v.is_empty()) else { return Ok(None) };
    let (datagrams, encrypted, rest) = match server.split_once("://") {
        Some(("udp", rest)) => (true, false, rest),
        Some(("tcp", rest)) => (false, false, rest),
        Some(("tls", rest)) => (false, true, rest),
        _ => return Err(bad(section, "server", server, "udp://host:port, tcp://host:port and tls://host:port")),
    };
    let (identity, facility, level) = (sink.identity.clone(), sink.facility, sink.level);
    Ok(Some(StreamSettings {
        address: address(section, rest)?,
        datagrams,
        tls: if encrypted { Some(tls(section)?) } else { None },
        framing: StreamFraming::Syslog { identity, facility, level },
    }))
}

/// Network access that outputs need, for restricting the process.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Whether an output connects to another host.
    pub(crate) any: bool,
    /// TCP ports; `None` if they are unknown, because a Kafka cluster names its brokers itself.
    pub(crate) ports: Option<Vec<u16>>,
    /// Spool folders, and certificate files.
    pub(crate) write: Vec<std::path::PathBuf>,
    pub(crate) read: Vec<std::path::PathBuf>,
}

/// The needs of the enabled outputs.
///
/// # Errors
/// An invalid setting.
pub(crate) fn reach(config: &Config, dir: &Path) -> Result<Reach, ConfigError> {
    let mut reach = Reach { ports: Some(Vec::new()), ..Reach::default() };
    for (name, node) in config.node("outputs").iter().flat_map(Node::children).map(|i| i.entry()) {
        let (Some(node), "fast" | "eve-log" | "stats") = (node, name) else { continue };
        if !node.bool("enabled")?.unwrap_or(false) {
            continue;
        }
        let Some(remote) = super::outputs::sink(node, dir, name)?.remote else { continue };
        reach.write.extend(remote.spool.as_ref().map(|s| s.dir.clone()));
        let port = match &remote.kind {
            RemoteKind::Redis(r) if r.server.starts_with('/') => {
                reach.write.extend(Path::new(&r.server).parent().map(Path::to_owned));
                continue;
            }
            RemoteKind::Redis(r) => Some(r.port),
            RemoteKind::Kafka(_) => None,
            RemoteKind::Stream(s) => {
                let tls = s.tls.iter();
                reach
                    .read
                    .extend(tls.flat_map(|t| t.ca.iter().chain(t.identity.iter().flat_map(|(c, k)| [c, k]))).cloned());
                s.address.rsplit_once(':').and_then(|(_, p)| p.parse().ok())
            }
        };
        reach.any = true;
        match (port, &mut reach.ports) {
            (Some(port), Some(ports)) => ports.push(port),
            _ => reach.ports = None,
        }
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(body: &str) -> Config {
        let text = format!("%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n{body}");
        Config::from_str(&text, "t").unwrap()
    }

    fn read(body: &str) -> Result<Option<Arc<RemoteSettings>>, String> {
        let config = config(body);
        let node = config.node("outputs.0.eve-log").unwrap();
        super::super::outputs::sink(node, Path::new("/log"), "eve.json").map(|s| s.remote).map_err(|e| e.to_string())
    }

    /// Every key of these sections changes the settings, and an invalid value is refused with its name.
    #[test]
    fn every_setting_acts() {
        let peers = [
            (
                "redis",
                "      redis:\n        server: a\n",
                vec![
                    ("redis.server", "b", ""),
                    ("redis.port", "7", "70000"),
                    ("redis.mode", "rpush", "push"),
                    ("redis.mode", "publish", ""),
                    ("redis.key", "k", ""),
                    ("redis.password", "p", ""),
                    ("redis.pipelining.enabled", "no", ""),
                    ("redis.pipelining.batch-size", "7", "0"),
                ],
            ),
            (
                "redis",
                "      redis: {mode: stream, password: p}\n",
                vec![
                    ("redis.stream-maxlen", "5", "-1"),
                    ("redis.stream-trim-exact", "yes", ""),
                    ("redis.user", "u", ""),
                ],
            ),
            (
                "kafka",
                "      kafka: {brokers: \"a:9092\", topic: t}\n",
                vec![
                    ("kafka.brokers", "b:1", ""),
                    ("kafka.topic", "u", ""),
                    ("kafka.key", "flow-id", "port"),
                    ("kafka.properties.0", "acks=1", "acks"),
                ],
            ),
            ("tcp", "      tcp: {server: \"a:1\"}\n", vec![("tcp.server", "b:2", "b"), ("tcp.tls.enabled", "yes", "")]),
            (
                "tcp",
                "      tcp: {server: \"a:1\", tls: {enabled: yes, certificate: c, key: k}}\n",
                vec![
                    ("tcp.tls.ca", "x", ""),
                    ("tcp.tls.certificate", "x", ""),
                    ("tcp.tls.key", "x", ""),
                    ("tcp.tls.server-name", "x", ""),
                ],
            ),
            (
                "syslog",
                "      syslog: {server: \"udp://a:1\"}\n",
                vec![
                    ("syslog.server", "tcp://a:1", "a:1"),
                    ("identity", "x", ""),
                    ("facility", "kern", "nobody"),
                    ("level", "Error", "loud"),
                ],
            ),
            (
                "syslog",
                "      syslog: {server: \"tls://a:1\", tls: {certificate: c, key: k}}\n",
                vec![
                    ("syslog.tls.ca", "x", ""),
                    ("syslog.tls.certificate", "x", ""),
                    ("syslog.tls.key", "x", ""),
                    ("syslog.tls.server-name", "x", ""),
                ],
            ),
            ("redis", "", vec![("queue-size", "7mb", "some"), ("when-full", "wait", "never"), ("spool.dir", "x", "")]),
            ("redis", "      spool: {dir: x}\n", vec![("spool.max-size", "5mb", "much")]),
        ];
        for (filetype, body, rows) in peers {
            let body = format!("      filetype: {filetype}\n{body}");
            let before = read(&body).unwrap().unwrap();
            for (key, value, wrong) in rows {
                let with = |value: &str| {
                    let mut config = config(&body);
                    config.set(&format!("outputs.0.eve-log.{key}={value}")).unwrap();
                    let node = config.node("outputs.0.eve-log").unwrap();
                    super::super::outputs::sink(node, Path::new("/log"), "eve.json").map(|s| s.remote)
                };
                assert_ne!(with(value).unwrap().unwrap(), before, "{key}={value} changes nothing");
                if !wrong.is_empty() {
                    let said = with(wrong).unwrap_err().to_string();
                    assert!(said.contains(key.rsplit('.').next().unwrap()) || said.contains(wrong), "{key}: {said}");
                }
            }
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (body, says) in [
            ("      filetype: kafka\n", "kafka.brokers is missing"),
            ("      filetype: kafka\n      kafka: {brokers: \"a:1\"}\n", "kafka.topic is missing"),
            ("      filetype: tcp\n", "tcp.server is missing"),
            ("      filetype: redis\n      redis: {user: a}\n", "redis.user without redis.password"),
            ("      filetype: redis\n      spool: {max-size: 1mb}\n", "a folder is missing"),
            ("      filetype: tcp\n      tcp: {server: \"a:1\", tls: {enabled: yes, key: k}}\n", "belong together"),
            ("      filetype: carrier-pigeon\n", "carrier-pigeon"),
        ] {
            let said = read(body).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
        assert_eq!(read("      filetype: syslog\n").unwrap(), None);
    }

    #[test]
    fn what_the_process_needs() {
        let of = |body: &str| reach(&config(body), Path::new("/log")).unwrap();
        assert!(!of("      filetype: regular\n").any);
        let redis = of("      filetype: redis\n      spool: {dir: s}\n");
        assert!(redis.any && redis.ports == Some(vec![6379]) && redis.write == [Path::new("/log/s")]);
        assert!(!of("      filetype: redis\n      redis: {server: /run/r/s.sock}\n").any);
        assert_eq!(of("      filetype: kafka\n      kafka: {brokers: \"a:1\", topic: t}\n").ports, None);
        let tls = of("      filetype: tcp\n      tcp: {server: \"[::1]:9\", tls: {enabled: yes, ca: /c.pem}}\n");
        assert!(tls.ports == Some(vec![9]) && tls.read == [Path::new("/c.pem")]);
    }
}
