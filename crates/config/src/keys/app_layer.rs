//! `app-layer`, except HTTP/1.

use super::reasons::REMOVED;
use super::{Key, U32, flag, flag_or, list, number, section, size, text, word};

pub(super) const ABOUT: &str = "`enabled` is yes, no, or `detection-only`: the protocol is detected and not parsed. A protocol \
                                without a parser is only detected.";

/// Values of `encryption-handling`.
const ENCRYPTION: &[&str] = &["track-only", "bypass", "full"];
/// The same for TLS, with the old name of `track-only`.
const TLS_ENCRYPTION: &[&str] = &["track-only", "bypass", "full", "default"];

const POLICIES: &[&str] =
    &["auto", "ignore", "drop-flow", "pass-flow", "bypass", "drop-packet", "pass-packet", "reject"];

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    word("app-layer.error-policy", POLICIES, "auto", "Action on a flow whose parser gave up."),
    size("app-layer.memcap", "512mb", "Memory of all parsers and transactions. A flow that grows beyond it loses its parser, and `app-layer.error-policy` applies; 0 is no limit."),
    flag_or("app-layer.protocols.<protocol>.enabled", &["detection-only"], "", "Whether to detect and parse the protocol: yes, except for `dnp3`, `enip`, `modbus`, `pgsql` and Margay's own protocols (docs/own-protocols.md); `imap` is detected only."),
    flag_or("app-layer.protocols.<protocol>.<transport>.enabled", &["detection-only"], "", "The same for one transport."),
    text("app-layer.protocols.<protocol>.detection-ports.dp", "ports", "", "Server ports on which to look for the protocol first.").like("4444"),
    text("app-layer.protocols.<protocol>.detection-ports.sp", "ports", "", "Client ports on which to look for the protocol first.").like("4444"),
    text("app-layer.protocols.<protocol>.<transport>.detection-ports.dp", "ports", "", "Server ports, for one transport.").like("4444"),
    text("app-layer.protocols.<protocol>.<transport>.detection-ports.sp", "ports", "", "Client ports, for one transport.").like("4444"),
    // FTP
    size("app-layer.protocols.ftp.memcap", "64mb", "Memory of all FTP sessions; 0 is no limit.").lenient(),
    size("app-layer.protocols.ftp.max-line-length", "4kb", "Longer lines are cut and raise an event.").lenient(),
    number("app-layer.protocols.ftp.max-tx", "1024", (0, U32), "transactions", "Open transactions of a flow.").lenient(),
    // HTTP/2
    size("app-layer.protocols.http2.max-streams", "4096", "Open streams of a flow."),
    size("app-layer.protocols.http2.max-table-size", "65536", "Bytes of the HPACK table."),
    size("app-layer.protocols.http2.max-reassembly-size", "102400", "Bytes of a header block in several frames."),
    size("app-layer.protocols.http2.max-frames", "65536", "Frames to keep of a stream."),
    flag("app-layer.protocols.http2.http1-rules", "", "Whether rules on `http` look at HTTP/2.").ignored("rules on http always look at both versions"),
    // SMB and DCE/RPC
    size("app-layer.protocols.smb.stream-depth", "0", "Bytes of a stream to follow, whatever `stream.reassembly.depth` says; 0 is all."),
    number("app-layer.protocols.smb.max-tx", "1024", (1, U32), "transactions", "Open transactions of a flow."),
    size("app-layer.protocols.smb.max-read-size", "16mb", "Larger reads are an event; 0 is no limit.").within(0, U32 as u64),
    size("app-layer.protocols.smb.max-write-size", "16mb", "Larger writes are an event; 0 is no limit.").within(0, U32 as u64),
    size("app-layer.protocols.smb.max-read-queue-size", "64mb", "Bytes of out-of-order reads to hold.").within(0, U32 as u64),
    number("app-layer.protocols.smb.max-read-queue-cnt", "64", (0, U32), "pieces", "Number of out-of-order reads to hold."),
    size("app-layer.protocols.smb.max-write-queue-size", "64mb", "Bytes of out-of-order writes to hold.").within(0, U32 as u64),
    number("app-layer.protocols.smb.max-write-queue-cnt", "64", (0, U32), "pieces", "Number of out-of-order writes to hold."),
    number("app-layer.protocols.smb.max-guid-cache-size", "1024", (1, U32), "files", "Open files to remember, per flow."),
    number("app-layer.protocols.smb.max-rec-offset-cache-size", "128", (1, U32), "reads", "Reads and writes to remember, per flow."),
    number("app-layer.protocols.smb.max-tree-cache-size", "512", (1, U32), "shares", "Shares to remember, per flow."),
    number("app-layer.protocols.smb.max-dcerpc-frag-cache-size", "128", (1, U32), "pipes", "Pipes to remember, per flow."),
    number("app-layer.protocols.smb.max-session-cache-size", "512", (1, U32), "requests", "Requests to remember, per flow."),
    size("app-layer.protocols.smb.max-dcerpc-stub-size", "", "Most bytes of a call over a pipe.").ignored("calls over pipes have the limits of DCE/RPC"),
    size("app-layer.protocols.dcerpc.max-stub-size", "", "Most bytes of a call.").ignored("a call's bytes have a fixed limit"),
    // SMTP
    flag("app-layer.protocols.smtp.raw-extraction", "no", "Whether a whole mail is also a file.").shown_by("engine/src/settings/smtp.rs::reads"),
    number("app-layer.protocols.smtp.max-tx", "256", (0, U32), "transactions", "Open transactions of a flow."),
    flag("app-layer.protocols.smtp.mime.decode-mime", "yes", "Whether mails are parsed."),
    flag("app-layer.protocols.smtp.mime.decode-base64", "yes", "Whether attachments in Base64 are decoded."),
    flag("app-layer.protocols.smtp.mime.decode-quoted-printable", "yes", "Whether quoted-printable text is decoded."),
    size("app-layer.protocols.smtp.mime.header-value-depth", "2000", "Bytes to keep of a header's value."),
    flag("app-layer.protocols.smtp.mime.extract-urls", "yes", "Whether to extract URLs."),
    list("app-layer.protocols.smtp.mime.extract-urls-schemes", "schemes", "[http]", "Schemes of URLs to extract.").like("[ftp]"),
    flag("app-layer.protocols.smtp.mime.log-url-scheme", "no", "Whether URLs are logged with their scheme."),
    flag_or("app-layer.protocols.smtp.mime.body-md5", &["auto"], "no", "Whether to compute the MD5 of a body; `auto` is yes."),
    size("app-layer.protocols.smtp.inspected-tracker.content-limit", "100000", "Bytes of a file to inspect.").within(0, U32 as u64),
    size("app-layer.protocols.smtp.inspected-tracker.content-inspect-min-size", "32768", "Bytes of a file to gather before the first inspection.").within(0, U32 as u64),
    size("app-layer.protocols.smtp.inspected-tracker.content-inspect-window", "4096", "Inspected bytes to inspect again together with new ones.").within(0, U32 as u64),
    // SSH and TLS
    flag_or("app-layer.protocols.ssh.hassh", &["auto"], "auto", "HASSH: always, never, or if a rule needs it."),
    word("app-layer.protocols.ssh.encryption-handling", ENCRYPTION, "track-only", "What to do with a flow once it is encrypted."),
    flag_or("app-layer.protocols.tls.ja3-fingerprints", &["auto"], "auto", "JA3 and JA3S: always, never, or if a rule needs them."),
    flag_or("app-layer.protocols.tls.ja4-fingerprints", &["auto"], "auto", "JA4: always, never, or if a rule or log needs it."),
    word("app-layer.protocols.tls.encryption-handling", TLS_ENCRYPTION, "track-only", "What to do with a flow once it is encrypted."),
    flag("app-layer.protocols.tls.no-reassemble", "*", "The old form of `encryption-handling`.").ignored(REMOVED),
    number("app-layer.protocols.tls.subjectaltname-limit", "", (0, U32), "names", "Most alternative names of a certificate.").ignored("all that a certificate has are kept, in the limit of the handshake"),
    size("app-layer.protocols.tls.handshake-limit", "", "Most bytes of a handshake.").ignored("a handshake has a fixed limit"),
    size("app-layer.protocols.tls.certificate-limit", "", "Most bytes of a certificate.").ignored("a handshake has a fixed limit"),
    // Settings without effect.
    number("app-layer.protocols.dns.request-flood", "", (0, U32), "requests", "Requests without a response.").ignored("requests do not wait for their responses"),
    size("app-layer.protocols.dns.state-memcap", "", "Memory of a flow's messages.").ignored("messages are freed as soon as they are inspected and logged"),
    size("app-layer.protocols.dns.global-memcap", "", "Memory of all messages.").ignored("messages are freed as soon as they are inspected and logged"),
    section("app-layer.protocols.sdp", "SDP.").ignored("this release does not know the protocol"),
    section("app-layer.protocols.ikev2", "The old name of `ike`.").ignored(REMOVED),
    section("app-layer.protocols.msn", "MSN.").ignored(REMOVED),
    section("app-layer.protocols.irc", "IRC.").ignored(REMOVED),
    section("app-layer.protocols.jabber", "Jabber.").ignored(REMOVED),
    number("asn1-max-frames", "256", (0, U32), "frames", "Frames that the keyword `asn1` decodes, at most."),
];
