//! `outputs` but for EVE, and `stats`.

use super::reasons::{ALWAYS, NO_OUTPUT, REMOVED};
use super::{Key, U32, flag, list, number, section, size, text, word};

pub(super) const ABOUT: &str = "What is written, and where to. `outputs` is a list; an output that is not in it, or not \
                                enabled, writes nothing.";

/// Where lines go.
pub(super) const FILETYPES: &[&str] = &["regular", "unix_stream", "unix_dgram", "syslog", "redis", "kafka", "tcp"];

/// The test that shows what settings of outputs on other machines do.
const REMOTE: &str = "engine/src/settings/remote.rs::every_setting_acts";

/// Facilities of syslog.
const FACILITIES: &[&str] = &[
    "auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "security", "syslog", "user", "uucp",
    "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    flag("stats.enabled", "yes", "Whether counters are collected for the outputs `stats` and `eve-log: stats`."),
    number("stats.interval", "8", (1, U32), "seconds", "How often counters are written."),
    flag("stats.decoder-events", "yes", "Whether each event of the decoder is counted."),
    text("stats.decoder-events-prefix", "a name", "decoder.event", "What the names of these counters begin with."),
    flag("stats.stream-events", "no", "Whether each event of the stream engine is counted."),
    flag("stats.exception-policy.global-stats", "yes", "Whether exception policies that took effect are counted.").ignored(ALWAYS),
    flag("stats.exception-policy.per-app-proto-errors", "no", "Whether those of parsers are counted for each protocol as well."),
    number("heartbeat.output-flush-interval", "0", (0, 60), "seconds", "How often buffered outputs are flushed.").ignored("buffered outputs are flushed every second"),
    // What all outputs of lines have.
    word("outputs.#.<written>.filetype", FILETYPES, "regular", "What kind of file it is."),
    word("outputs.#.<written>.type", FILETYPES, "regular", "The old name of `filetype`."),
    flag("outputs.#.<written>.append", "yes", "Whether a file that is there is kept."),
    text("outputs.#.<written>.filemode", "permissions", "", "Permissions of a new file, less the umask.").like("640"),
    text("outputs.#.<written>.rotate-interval", "a time", "", "`minute`, `hour`, `day` or a number with s, m, h or d: how often it is opened anew.").like("hour"),
    size("outputs.#.<written>.buffer-size", "0", "How much is gathered before it is written; 0 writes each batch."),
    text("outputs.#.<written>.identity", "a name", "suricata", "Who speaks, with `filetype: syslog`."),
    word("outputs.#.<written>.facility", FACILITIES, "local0", "The facility, with `filetype: syslog`."),
    word("outputs.#.<written>.level", &["Emergency", "Alert", "Critical", "Error", "Warning", "Notice", "Info", "Debug"], "Info", "The level, with `filetype: syslog`."),
    // On another machine, or with a server that acknowledges.
    size("outputs.#.<written>.queue-size", "64mb", "What waits in memory for another machine, at most.").shown_by(REMOTE),
    word("outputs.#.<written>.when-full", &["auto", "drop", "wait"], "auto", "Whether events for which there is no room are lost and counted, or packets wait; `auto` waits where a capture file is read.").shown_by(REMOTE),
    text("outputs.#.<written>.spool.dir", "a folder", "", "Where events wait on disk while the peer is away, in the folder of logs; without it they wait in memory alone.").like("spool").shown_by(REMOTE),
    size("outputs.#.<written>.spool.max-size", "1gb", "How much may wait there.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.server", "a host or socket", "127.0.0.1", "Where Redis is, with `filetype: redis`.").shown_by(REMOTE),
    number("outputs.#.<written>.redis.port", "6379", (0, 65535), "", "Its port.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.user", "a name", "", "Who logs in, where Redis has users.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.password", "a password", "", "What it logs in with.").shown_by(REMOTE),
    word("outputs.#.<written>.redis.mode", &["list", "lpush", "rpush", "channel", "publish", "stream", "xadd"], "list", "A list, at its head or tail, a channel or a stream.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.key", "a name", "suricata", "What it is called.").shown_by(REMOTE),
    flag("outputs.#.<written>.redis.async", "yes", "Whether packets wait for Redis.").ignored("events are always sent by a thread of their own"),
    number("outputs.#.<written>.redis.stream-maxlen", "100000", (0, i64::MAX), "entries", "How long a stream becomes; 0 is no limit.").shown_by(REMOTE),
    flag("outputs.#.<written>.redis.stream-trim-exact", "no", "Whether it is cut to exactly that.").shown_by(REMOTE),
    flag("outputs.#.<written>.redis.pipelining.enabled", "yes", "Whether events are sent together.").shown_by(REMOTE),
    number("outputs.#.<written>.redis.pipelining.batch-size", "10", (1, U32), "events", "How many at a time; without `pipelining`, 1000.").shown_by(REMOTE),
    text("outputs.#.<written>.kafka.brokers", "host:port, …", "", "Where Kafka is, with `filetype: kafka`.").shown_by(REMOTE),
    text("outputs.#.<written>.kafka.topic", "a topic", "", "Where events go.").shown_by(REMOTE),
    word("outputs.#.<written>.kafka.key", &["community-id", "flow-id", "none"], "community-id", "What decides the partition: equal keys meet in one. Without a community identifier it is the flow's.").shown_by(REMOTE),
    list("outputs.#.<written>.kafka.properties", "name=value", "", "Settings of librdkafka: TLS, SASL, sizes.").shown_by(REMOTE),
    text("outputs.#.<written>.tcp.server", "host:port", "", "Who takes lines, with `filetype: tcp`.").shown_by(REMOTE),
    flag("outputs.#.<written>.tcp.tls.enabled", "no", "Whether it is spoken to with TLS.").shown_by(REMOTE),
    text("outputs.#.<written>.syslog.server", "udp://, tcp:// or tls:// with host:port", "", "A syslog server, with `filetype: syslog`: it gets RFC 5424. Without it messages go to /dev/log.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.ca", "a file", "", "Certificates that are trusted, in PEM; without it the system's.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.certificate", "a file", "", "The sensor's own certificate, in PEM.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.key", "a file", "", "Its key.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.server-name", "a name", "", "The name in the server's certificate, where it is not that of the address.").shown_by(REMOTE),
    // Alerts as lines.
    flag("outputs.#.fast.enabled", "no", "A line for each alert."),
    text("outputs.#.fast.filename", "a file or socket", "fast.log", "Its name, in the folder of logs."),
    // Counters.
    flag("outputs.#.stats.enabled", "no", "The counters as a table."),
    text("outputs.#.stats.filename", "a file or socket", "stats.log", "Its name, in the folder of logs."),
    flag("outputs.#.stats.totals", "yes", "Counters of all threads together."),
    flag("outputs.#.stats.threads", "no", "Counters of each thread."),
    flag("outputs.#.stats.deltas", "no", "How much they changed since the last time."),
    flag("outputs.#.stats.null-values", "no", "Counters that are 0 as well."),
    flag("outputs.#.stats.zero-valued-counters", "no", "The same, by another name."),
    number("outputs.#.stats.interval", "*", (0, 0), "seconds", "The old place of `stats.interval`.").ignored(REMOVED),
    // Packets.
    flag("outputs.#.pcap-log.enabled", "no", "A copy of the traffic."),
    text("outputs.#.pcap-log.filename", "a file", "log.pcap", "What its files are called; a time is added."),
    text("outputs.#.pcap-log.dir", "a folder", "", "Where they are, instead of the folder of logs.").like("copies"),
    size("outputs.#.pcap-log.limit", "100mb", "How large a file becomes before the next one; 0 is no limit.").within(4 << 20, u64::MAX),
    number("outputs.#.pcap-log.max-files", "0", (0, U32), "files", "How many there are; the oldest is removed. 0 is no limit."),
    word("outputs.#.pcap-log.mode", &["normal", "multi"], "normal", "One file, or one for each worker."),
    word("outputs.#.pcap-log.compression", &["none", "lz4"], "none", "How files are compressed."),
    flag("outputs.#.pcap-log.lz4-checksum", "no", "Whether compressed files carry checksums."),
    number("outputs.#.pcap-log.lz4-level", "*", (0, 16), "", "How hard LZ4 tries.").ignored("the compressor has one level"),
    word("outputs.#.pcap-log.ts-format", &["usec", "sec"], "sec", "The time in their names."),
    flag("outputs.#.pcap-log.use-stream-depth", "no", "Whether what lies beyond `stream.reassembly.depth` is left out."),
    flag("outputs.#.pcap-log.honor-pass-rules", "no", "Whether what a pass rule matched is left out."),
    word("outputs.#.pcap-log.conditional", &["all", "alerts", "tag"], "all", "All packets, those of flows with alerts, or tagged ones."),
    text("outputs.#.pcap-log.bpf-filter", "a filter", "", "Only packets that match it.").like("tcp"),
    size("outputs.#.pcap-log.buffer-size", "*", "How much is written at a time.").ignored("the writer sizes its buffer itself"),
    text("outputs.#.pcap-log.sguil-base-dir", "a folder", "*", "Folders for each day, for Sguil.").ignored(REMOVED),
    word("outputs.#.pcap-log.tcpdump-file-format", &["pcap"], "*", "The format of its files.").ignored(ALWAYS),
    // Files.
    flag("outputs.#.file-store.enabled", "no", "Files of the traffic, each under its SHA-256."),
    number("outputs.#.file-store.version", "2", (2, 2), "", "The store's version; it has to be there.").shown_by("engine/src/settings/files.rs::other_versions_are_refused"),
    text("outputs.#.file-store.dir", "a folder", "", "Where they are kept; without it in `filestore`, in the folder of logs.").like("files"),
    flag("outputs.#.file-store.write-fileinfo", "no", "A record beside each file."),
    flag("outputs.#.file-store.force-filestore", "no", "All files, not only those that rules ask for."),
    size("outputs.#.file-store.stream-depth", "no", "How much of a stream is followed for files: more than `stream.reassembly.depth`; 0 is all, `no` leaves it.").like("0"),
    number("outputs.#.file-store.max-open-files", "0", (0, U32), "files", "How many are open at a time; 0 is no limit."),
    size("outputs.#.file-store.quota", "0", "Most bytes that are stored; 0 is no limit.").like("1mb"),
    size("outputs.#.file-store.queue-size", "64mb", "Most bytes that wait for the thread that writes files.").like("1mb"),
    list("outputs.#.file-store.force-hash", "md5, sha1, sha256", "", "Digests of every file.").like("[md5]"),
    flag("outputs.#.file-store.force-magic", "no", "The type of every file."),
    flag("outputs.#.file-store.force-md5", "no", "The old form of `force-hash: [md5]`."),
    text("outputs.#.file-store.log-dir", "a folder", "*", "A folder of version 1.").ignored(REMOVED),
    text("outputs.#.file-store.waldo", "a file", "*", "A counter of version 1.").ignored(REMOVED),
    flag("outputs.#.file-store.include-pid", "*", "A name of version 1.").ignored(REMOVED),
    flag("outputs.#.file-store.xff.enabled", "no", "The client's address from a proxy's header in the records of files."),
    word("outputs.#.file-store.xff.mode", &["extra-data", "overwrite"], "extra-data", "Besides the address of the packet, or instead.").lenient(),
    word("outputs.#.file-store.xff.deployment", &["reverse", "forward"], "reverse", "The last address of the header, or the first.").lenient(),
    text("outputs.#.file-store.xff.header", "a header", "X-Forwarded-For", "The header."),
    // Certificates.
    flag("outputs.#.tls-store.enabled", "no", "Certificates that rules ask for (`tls.store`)."),
    text("outputs.#.tls-store.certs-log-dir", "a folder", "", "Where they are kept, instead of the folder of logs.").like("certs"),
    // Scripts.
    flag("outputs.#.lua.enabled", "no", "Scripts that write logs."),
    text("outputs.#.lua.scripts-dir", "a folder", "", "Where they are, instead of `default-rule-path`.").like("/tmp/lua"),
    list("outputs.#.lua.scripts", "files", "", "Their names.").like("[a.lua]"),
    text("outputs.#.lua.path", "a pattern", "", "Where they look for modules (`package.path`).").like("/tmp/?.lua"),
    text("outputs.#.lua.cpath", "a pattern", "", "Where they would look for modules in C.").ignored("scripts cannot load modules written in C"),
    // Not here.
    section("outputs.#.http-log", "A line for each HTTP request.").ignored(NO_OUTPUT),
    section("outputs.#.tls-log", "A line for each TLS handshake.").ignored(NO_OUTPUT),
    section("outputs.#.tcp-data", "The data of streams.").ignored(NO_OUTPUT),
    section("outputs.#.http-body-data", "The bodies of HTTP.").ignored(NO_OUTPUT),
    section("outputs.#.alert-debug", "All about each alert.").ignored(NO_OUTPUT),
    section("outputs.#.syslog", "Alerts to syslog; `eve-log` with `filetype: syslog` does it.").ignored(NO_OUTPUT),
    section("outputs.#.alert-syslog", "The same by another name.").ignored(NO_OUTPUT),
    section("outputs.#.unified2-alert", "Alerts for Barnyard.").ignored(REMOVED),
    section("outputs.#.alert-prelude", "Alerts for Prelude.").ignored(REMOVED),
    section("outputs.#.dns-log", "A line for each DNS message.").ignored(REMOVED),
    section("outputs.#.drop", "Dropped packets as lines.").ignored(REMOVED),
    section("outputs.#.file-log", "Files as lines.").ignored(REMOVED),
];
