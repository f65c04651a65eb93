//! `outputs` except EVE, and `stats`.

use super::reasons::{ALWAYS, NO_OUTPUT, REMOVED};
use super::{Key, U32, flag, list, number, section, size, text, word};

pub(super) const ABOUT: &str = "Logs and their destinations. `outputs` is a list; an output that is missing or not enabled \
                                writes nothing.";

/// Values of `filetype`.
pub(super) const FILETYPES: &[&str] = &["regular", "unix_stream", "unix_dgram", "syslog", "redis", "kafka", "tcp"];

/// Values of `type`.
const OLD_TYPES: &[&str] = &["regular", "file", "unix_stream", "unix_dgram", "syslog", "redis", "kafka", "tcp"];

/// The test that shows the effect of settings of remote outputs.
const REMOTE: &str = "engine/src/settings/remote.rs::every_setting_acts";

/// Facilities of syslog.
const FACILITIES: &[&str] = &[
    "auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "security", "syslog", "user", "uucp",
    "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// Levels of syslog.
const LEVELS: &[&str] = &["Emergency", "Alert", "Critical", "Error", "Warning", "Notice", "Info", "Debug"];

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    flag("stats.enabled", "yes", "Whether counters are collected for the outputs `stats` and `eve-log: stats`."),
    number("stats.interval", "8", (1, U32), "seconds", "How often counters are written."),
    flag("stats.decoder-events", "yes", "Whether each event of the decoder is counted."),
    text("stats.decoder-events-prefix", "a name", "decoder.event", "Prefix of the names of these counters."),
    flag("stats.stream-events", "no", "Whether each event of the stream engine is counted."),
    flag("stats.exception-policy.global-stats", "yes", "Whether exception policies that took effect are counted.").ignored(ALWAYS),
    flag("stats.exception-policy.per-app-proto-errors", "no", "Whether parser errors are also counted per protocol."),
    number("heartbeat.output-flush-interval", "0", (0, 60), "seconds", "How often buffered outputs are flushed.").ignored("buffered outputs are flushed every second"),
    // Settings of all outputs that write lines.
    word("outputs.#.<written>.filetype", FILETYPES, "regular", "Destination: a file, a socket, or another machine."),
    word("outputs.#.<written>.type", OLD_TYPES, "regular", "The old name of `filetype`."),
    flag("outputs.#.<written>.append", "yes", "Whether to append to an existing file."),
    text("outputs.#.<written>.filemode", "permissions", "", "Permissions of a new file, less the umask.").like("640"),
    text("outputs.#.<written>.rotate-interval", "a time", "", "The next record after it opens a new file: `minute`, `hour`, `day` of the clock, or a number with s, m, h, d or w from the start on.").like("hour"),
    size("outputs.#.<written>.buffer-size", "0", "Bytes to buffer before writing; 0 writes after each batch."),
    text("outputs.#.<written>.identity", "a name", "suricata", "Program name in syslog messages (`filetype: syslog`)."),
    word("outputs.#.<written>.facility", FACILITIES, "local0", "Syslog facility (`filetype: syslog`)."),
    word("outputs.#.<written>.level", LEVELS, "Info", "Syslog level (`filetype: syslog`)."),
    // On another machine, or with a server that acknowledges.
    size("outputs.#.<written>.queue-size", "64mb", "Memory for events waiting for another machine.").shown_by(REMOTE),
    word("outputs.#.<written>.when-full", &["auto", "drop", "wait"], "auto", "When queue and spool are full: lose new events and count them, or make packets wait. `auto` waits when reading a capture file.").shown_by(REMOTE),
    text("outputs.#.<written>.spool.dir", "a folder", "", "Folder, below the log folder, for events that wait on disk while the peer is away; without it they wait only in memory.").like("spool").shown_by(REMOTE),
    size("outputs.#.<written>.spool.max-size", "1gb", "Size limit of the spool.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.server", "a host or socket", "127.0.0.1", "Redis server or socket (`filetype: redis`).").shown_by(REMOTE),
    number("outputs.#.<written>.redis.port", "6379", (0, 65535), "", "Port of the Redis server.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.user", "a name", "", "User name for Redis, if it has users.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.password", "a password", "", "Password for Redis.").shown_by(REMOTE),
    word("outputs.#.<written>.redis.mode", &["list", "lpush", "rpush", "channel", "publish", "stream", "xadd"], "list", "Redis type: a list (at head or tail), a channel, or a stream.").shown_by(REMOTE),
    text("outputs.#.<written>.redis.key", "a name", "suricata", "Name of the Redis list, channel or stream.").shown_by(REMOTE),
    flag("outputs.#.<written>.redis.async", "yes", "Whether packets wait for Redis.").ignored("events are always sent by a thread of their own"),
    number("outputs.#.<written>.redis.stream-maxlen", "100000", (0, i64::MAX), "entries", "Maximum length of a Redis stream; 0 is no limit.").shown_by(REMOTE),
    flag("outputs.#.<written>.redis.stream-trim-exact", "no", "Whether the stream is trimmed to exactly its maximum length.").shown_by(REMOTE),
    flag("outputs.#.<written>.redis.pipelining.enabled", "yes", "Whether events are sent to Redis in batches.").shown_by(REMOTE),
    number("outputs.#.<written>.redis.pipelining.batch-size", "10", (1, U32), "events", "Events per batch; without `pipelining`, 1000.").shown_by(REMOTE),
    text("outputs.#.<written>.kafka.brokers", "host:port, …", "", "Kafka brokers (`filetype: kafka`).").shown_by(REMOTE),
    text("outputs.#.<written>.kafka.topic", "a topic", "", "Kafka topic.").shown_by(REMOTE),
    word("outputs.#.<written>.kafka.key", &["community-id", "flow-id", "none"], "community-id", "Key that selects the partition: equal keys share one. Without a community identifier it is the flow's.").shown_by(REMOTE),
    list("outputs.#.<written>.kafka.properties", "name=value", "", "Properties of librdkafka: TLS, SASL, sizes.").shown_by(REMOTE),
    text("outputs.#.<written>.tcp.server", "host:port", "", "Server that receives lines (`filetype: tcp`).").shown_by(REMOTE),
    flag("outputs.#.<written>.tcp.tls.enabled", "no", "Whether to use TLS.").shown_by(REMOTE),
    text("outputs.#.<written>.syslog.server", "udp://, tcp:// or tls:// with host:port", "", "Syslog server (`filetype: syslog`), which gets RFC 5424 messages. Without it they go to /dev/log.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.ca", "a file", "", "Trusted certificates (PEM); default: the system's.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.certificate", "a file", "", "The sensor's own certificate, in PEM.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.key", "a file", "", "Private key of the sensor's certificate.").shown_by(REMOTE),
    text("outputs.#.<written>.<tls-peer>.tls.server-name", "a name", "", "Name expected in the server's certificate, if it differs from the address.").shown_by(REMOTE),
    // Alerts as lines.
    flag("outputs.#.fast.enabled", "no", "Whether to write one line per alert."),
    text("outputs.#.fast.filename", "a file or socket", "fast.log", "File name of the alert log, in the log folder."),
    flag("outputs.#.alert-debug.enabled", "no", "Whether to write all that is known of each packet with alerts."),
    text("outputs.#.alert-debug.filename", "a file or socket", "alert-debug.log", "File name of that log, in the log folder."),
    flag("outputs.#.syslog.enabled", "no", "Whether to send one line per alert to syslog."),
    text("outputs.#.syslog.identity", "a name", "suricata", "Program name in the messages."),
    word("outputs.#.syslog.facility", FACILITIES, "local0", "Facility of the messages."),
    word("outputs.#.syslog.level", LEVELS, "Info", "Level of the messages."),
    text("outputs.#.syslog.format", "a form", "", "Their form.").ignored("a line has one form"),
    // Requests and sessions as lines.
    flag("outputs.#.http-log.enabled", "no", "Whether to write one line per HTTP request."),
    text("outputs.#.http-log.filename", "a file or socket", "http.log", "File name of the request log, in the log folder."),
    flag("outputs.#.tls-log.enabled", "no", "Whether to write one line per TLS session."),
    text("outputs.#.tls-log.filename", "a file or socket", "tls.log", "File name of the session log, in the log folder."),
    flag("outputs.#.tls-log.session-resumption", "yes", "Whether resumed sessions are written."),
    flag("outputs.#.<line-log>.extended", "no", "Whether lines have more values."),
    flag("outputs.#.<line-log>.custom", "no", "Whether `customformat` says what is in a line."),
    text("outputs.#.<line-log>.customformat", "a format", "", "Text with `%` and a letter for each value; see [Line logs](outputs.md#line-logs).").like("%a"),
    // The bytes of streams and bodies.
    flag("outputs.#.tcp-data.enabled", "no", "Whether to write the reassembled data of TCP streams."),
    text("outputs.#.tcp-data.filename", "a file", "tcp-data.log", "File name of its dump, in the log folder."),
    flag("outputs.#.http-body-data.enabled", "no", "Whether to write HTTP bodies, without transfer and content encoding."),
    text("outputs.#.http-body-data.filename", "a file", "http-data.log", "File name of their dump, in the log folder."),
    word("outputs.#.<data-log>.type", &["file", "dir", "both"], "file", "`file` writes a dump, `dir` a file for each direction of a stream or transaction, in the folder `tcp` or `http` of the log folder."),
    flag("outputs.#.<data-log>.append", "yes", "Whether to append to an existing dump."),
    text("outputs.#.<data-log>.filemode", "permissions", "", "Permissions of a new dump, less the umask.").like("640"),
    text("outputs.#.<data-log>.rotate-interval", "a time", "", "When to begin a new dump, as for other files.").like("hour"),
    size("outputs.#.<data-log>.buffer-size", "0", "Bytes to buffer before writing; 0 writes after each batch."),
    // Counters.
    flag("outputs.#.stats.enabled", "no", "Whether to write counters as a table."),
    text("outputs.#.stats.filename", "a file or socket", "stats.log", "File name of the table, in the log folder."),
    flag("outputs.#.stats.totals", "yes", "Whether to write the sums over all threads."),
    flag("outputs.#.stats.threads", "no", "Whether to write counters per thread."),
    flag("outputs.#.stats.deltas", "no", "Whether to write the change since the last time."),
    flag("outputs.#.stats.null-values", "no", "Whether to write counters that are 0."),
    flag("outputs.#.stats.zero-valued-counters", "no", "Another name of `null-values`."),
    number("outputs.#.stats.interval", "*", (0, 0), "seconds", "The old place of `stats.interval`.").ignored(REMOVED),
    // Packets.
    flag("outputs.#.pcap-log.enabled", "no", "Whether to write a copy of the traffic."),
    text("outputs.#.pcap-log.filename", "a file", "log.pcap", "File name; a timestamp is appended."),
    text("outputs.#.pcap-log.dir", "a folder", "", "Folder for capture logs; default: the log folder.").like("copies"),
    size("outputs.#.pcap-log.limit", "100mb", "Size at which the next file starts. A number below 4096 counts megabytes; 0 is no limit."),
    number("outputs.#.pcap-log.max-files", "0", (0, U32), "files", "Number of files to keep; the oldest is removed. 0 is no limit."),
    word("outputs.#.pcap-log.mode", &["normal", "multi"], "normal", "One file, or one per worker."),
    word("outputs.#.pcap-log.compression", &["none", "lz4"], "none", "Compression of the files."),
    flag("outputs.#.pcap-log.lz4-checksum", "no", "Whether compressed files have checksums."),
    number("outputs.#.pcap-log.lz4-level", "", (0, 16), "", "How hard LZ4 tries.").ignored("the compressor has one level"),
    word("outputs.#.pcap-log.ts-format", &["usec", "sec"], "sec", "Precision of the timestamp in file names."),
    flag("outputs.#.pcap-log.use-stream-depth", "no", "Whether to omit packets beyond `stream.reassembly.depth`."),
    flag("outputs.#.pcap-log.honor-pass-rules", "no", "Whether to omit packets that a pass rule matched."),
    word("outputs.#.pcap-log.conditional", &["all", "alerts", "tag"], "all", "Which packets: all, those of flows with alerts, or tagged ones; the last two with the flow's TCP data before."),
    size("outputs.#.pcap-log.hold-memcap", "64mb", "With `conditional`: memory for packets with TCP data that may still lead to an alert, at most 64 KB of a flow. `pcap_log.not_held` counts packets beyond it; 0 is none."),
    text("outputs.#.pcap-log.bpf-filter", "a filter", "", "Only packets that match it.").like("tcp"),
    size("outputs.#.pcap-log.buffer-size", "", "How much is written at a time.").ignored("the writer sizes its buffer itself"),
    text("outputs.#.pcap-log.sguil-base-dir", "a folder", "*", "Folders for each day, for Sguil.").ignored(REMOVED),
    word("outputs.#.pcap-log.tcpdump-file-format", &["pcap"], "*", "The format of its files.").ignored(ALWAYS),
    // Files.
    flag("outputs.#.file-store.enabled", "no", "Whether to store files from the traffic, named by SHA-256."),
    number("outputs.#.file-store.version", "2", (2, 2), "", "Version of the store; required.").shown_by("engine/src/settings/files.rs::other_versions_are_refused"),
    text("outputs.#.file-store.dir", "a folder", "", "Folder of the store; default `filestore` in the log folder.").like("files"),
    flag("outputs.#.file-store.write-fileinfo", "no", "Whether to write a record beside each file."),
    flag("outputs.#.file-store.force-filestore", "no", "Whether to store all files, not only those selected by rules."),
    size("outputs.#.file-store.stream-depth", "no", "Bytes of a stream to follow for files, beyond `stream.reassembly.depth`; 0 is all, `no` keeps that depth.").like("0"),
    number("outputs.#.file-store.max-open-files", "0", (0, U32), "files", "Files open at a time; 0 is no limit."),
    size("outputs.#.file-store.quota", "0", "Size limit of the store; 0 is no limit.").like("1mb"),
    size("outputs.#.file-store.queue-size", "64mb", "Bytes that may wait for the thread that writes files.").like("1mb"),
    list("outputs.#.file-store.force-hash", "md5, sha1, sha256", "", "Hashes to compute for every file.").like("[md5]"),
    flag("outputs.#.file-store.force-magic", "no", "Whether to detect the type of every file."),
    flag("outputs.#.file-store.force-md5", "no", "The old form of `force-hash: [md5]`."),
    text("outputs.#.file-store.log-dir", "a folder", "*", "A folder of version 1.").ignored(REMOVED),
    text("outputs.#.file-store.waldo", "a file", "*", "A counter of version 1.").ignored(REMOVED),
    flag("outputs.#.file-store.include-pid", "*", "A name of version 1.").ignored(REMOVED),
    flag("outputs.#.file-store.xff.enabled", "no", "Whether file records show the client address from a proxy's header."),
    word("outputs.#.file-store.xff.mode", &["extra-data", "overwrite"], "extra-data", "Whether that address is added, or replaces the packet's.").lenient(),
    word("outputs.#.file-store.xff.deployment", &["reverse", "forward"], "reverse", "Which address of the header: the last (`reverse`) or the first (`forward`).").lenient(),
    text("outputs.#.file-store.xff.header", "a header", "X-Forwarded-For", "Name of the proxy's header."),
    // Certificates.
    flag("outputs.#.tls-store.enabled", "no", "Whether to store certificates selected by rules (`tls.store`)."),
    text("outputs.#.tls-store.certs-log-dir", "a folder", "", "Folder for certificates; default: the log folder.").like("certs"),
    // Scripts.
    flag("outputs.#.lua.enabled", "no", "Whether to run output scripts."),
    text("outputs.#.lua.scripts-dir", "a folder", "", "Folder of the scripts; default: `default-rule-path`.").like("/tmp/lua"),
    list("outputs.#.lua.scripts", "files", "", "File names of the scripts.").like("[a.lua]"),
    text("outputs.#.lua.path", "a pattern", "", "Search pattern for modules (`package.path`).").like("/tmp/?.lua"),
    text("outputs.#.lua.cpath", "a pattern", "", "Where they would look for modules in C.").ignored("scripts cannot load modules written in C"),
    // Outputs that Margay does not have.
    section("outputs.#.alert-syslog", "The old name of `syslog`.").ignored(NO_OUTPUT),
    section("outputs.#.unified2-alert", "Alerts for Barnyard.").ignored(REMOVED),
    section("outputs.#.alert-prelude", "Alerts for Prelude.").ignored(REMOVED),
    section("outputs.#.dns-log", "A line for each DNS message.").ignored(REMOVED),
    section("outputs.#.drop", "Dropped packets as lines.").ignored(REMOVED),
    section("outputs.#.file-log", "Files as lines.").ignored(REMOVED),
];
