//! Built-in kinds of session: the messages of client and server, written in code instead of copied from a capture.
//!
//! A kind is a function that writes a [`Session`]. Most kinds are built several times before traffic is made (variants), and
//! instances are copies of those. Kinds whose text names addresses or ports are built for each instance.

mod files;
mod mail;
mod simple;
mod sip;
mod sql;
mod ssh;
mod tls;
pub(crate) use tls::client_hello;
pub(crate) mod web;

use super::profile::Options;
use super::session::Session;

/// A kind of session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Http,
    Tls,
    Dns,
    Smtp,
    Pop3,
    Ftp,
    Ssh,
    Sip,
    Sql,
    /// A UDP datagram of a given size, optionally with an answer.
    Udp,
    /// ICMP echo requests and their answers.
    Ping,
    /// A TCP connection with a few bytes.
    Short,
    /// One SYN packet, without an answer.
    Syn,
    /// One connection with a very long response.
    Elephant,
}

/// Every kind, with its name in profiles and a description.
pub(crate) const KINDS: &[(Kind, &str, &str)] = &[
    (Kind::Http, "http", "HTTP/1.1: requests over a kept connection (options: requests, bytes of a body, upload)"),
    (Kind::Tls, "tls", "TLS 1.2: a handshake with certificate, then records (options: requests, bytes)"),
    (
        Kind::Dns,
        "dns",
        "DNS over UDP: a query and its answer (A, AAAA, MX, TXT, PTR, some for names that do not exist)",
    ),
    (Kind::Smtp, "smtp", "SMTP: a mail with a text and an attachment (option: bytes of the attachment)"),
    (Kind::Pop3, "pop3", "POP3: a mailbox read (options: requests for the number of mails, bytes of one)"),
    (Kind::Ftp, "ftp", "FTP: control connection, a listing and a file over passive data connections (option: bytes)"),
    (Kind::Ssh, "ssh", "SSH: banners, key exchange, then encrypted packets (options: requests, bytes)"),
    (Kind::Sip, "sip", "SIP with RTP: a call of G.711 in both directions (option: seconds)"),
    (
        Kind::Sql,
        "sql",
        "PostgreSQL: a client's queries and the rows that answer them (options: requests, bytes of an answer)",
    ),
    (Kind::Udp, "udp", "one UDP datagram (options: bytes of the frame, answer)"),
    (Kind::Ping, "ping", "ICMP echo (options: requests, bytes of the frame)"),
    (Kind::Short, "short", "TCP: a connection with one short question and answer (option: bytes)"),
    (Kind::Syn, "syn", "TCP: one SYN that is not answered"),
    (Kind::Elephant, "elephant", "HTTP/1.1: one response of any length, which needs no memory (option: bytes)"),
];

impl Kind {
    pub(crate) fn parse(text: &str) -> Result<Kind, String> {
        KINDS.iter().find(|(_, name, _)| *name == text).map(|(kind, ..)| *kind).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|(_, name, _)| *name).collect();
            format!("'{text}' is no kind of session; there are {}", names.join(", "))
        })
    }

    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("?", |(_, name, _)| name)
    }

    /// Whether each instance is built separately, because its text names addresses and ports.
    pub(crate) fn per_instance(self) -> bool {
        matches!(self, Kind::Sip | Kind::Ftp)
    }

    /// Number of variants if the profile does not set it.
    pub(crate) fn variants(self) -> u64 {
        match self {
            Kind::Dns => 256,
            Kind::Syn | Kind::Udp | Kind::Elephant => 1,
            _ => 32,
        }
    }

    /// Writes a session.
    pub(crate) fn build(self, s: &mut Session<'_>, o: &Options) {
        match self {
            Kind::Http => web::http(s, o),
            Kind::Tls => tls::tls(s, o),
            Kind::Dns => web::dns(s, o),
            Kind::Smtp => mail::smtp(s, o),
            Kind::Pop3 => mail::pop3(s, o),
            Kind::Ftp => files::ftp(s, o),
            Kind::Ssh => ssh::ssh(s, o),
            Kind::Sip => sip::sip(s, o),
            Kind::Sql => sql::sql(s, o),
            Kind::Udp => simple::udp(s, o),
            Kind::Ping => simple::ping(s, o),
            Kind::Short => simple::short(s, o),
            Kind::Syn => simple::syn(s, o),
            Kind::Elephant => simple::elephant(s, o),
        }
    }
}

/// A host name in a domain that is reserved for examples (RFC 2606).
pub(crate) fn host(s: &mut Session<'_>) -> String {
    const FIRST: [&str; 12] =
        ["www", "mail", "cdn", "api", "shop", "news", "static", "login", "files", "img", "app", "docs"];
    const SECOND: [&str; 10] =
        ["acorn", "birch", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island", "juniper"];
    const LAST: [&str; 3] = ["example.com", "example.net", "example.org"];
    format!("{}.{}.{}", s.rng.pick(&FIRST), s.rng.pick(&SECOND), s.rng.pick(&LAST))
}

/// Text of `n` bytes in words and lines.
pub(crate) fn prose(s: &mut Session<'_>, n: usize) -> String {
    const WORDS: [&str; 24] = [
        "the", "report", "of", "a", "quiet", "morning", "was", "sent", "to", "every", "office", "and", "nobody",
        "read", "it", "until", "late", "in", "evening", "when", "lights", "went", "out", "again",
    ];
    let mut text = String::with_capacity(n + 16);
    let mut column = 0;
    while text.len() < n {
        let word = *s.rng.pick(&WORDS);
        text.push_str(word);
        column += word.len() + 1;
        if column > 66 {
            text.push_str("\r\n");
            column = 0;
        } else {
            text.push(' ');
        }
    }
    text.truncate(n);
    text
}

/// Random bytes as lines of base64 (RFC 2045 section 6.8), about `n` characters.
pub(crate) fn base64(s: &mut Session<'_>, n: usize) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(n + n / 38 + 2);
    for k in 0..n.next_multiple_of(4) {
        text.push(char::from(LETTERS[s.rng.below(64) as usize]));
        if k % 76 == 75 {
            text.push_str("\r\n");
        }
    }
    text
}
