//! Conversations through the SMTP parser: the result, and that it does not depend on the segmentation.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

use std::net::IpAddr;

use margay_app::file::FileWants;
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;
use proptest::prelude::*;

/// A parser with its context, fed as a session does.
struct Talk {
    config: AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    waiting: [Vec<u8>; 2],
    outcome: Outcome,
}

impl Talk {
    fn with(mut config: AppConfig) -> Talk {
        config.files.force = FileWants { sha256: true, ..FileWants::NONE };
        let flow = FlowCore {
            state: FlowState::Established,
            ..FlowCore::new(1, 6, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), 25), Time(0))
        };
        let parser = (protocol(AppProto::Smtp).expect("SMTP has a parser").parser)(&config, &flow);
        let shared = Shared::default();
        Talk { config, flow, shared, parser, waiting: Default::default(), outcome: Outcome::More }
    }

    fn feed(&mut self, dir: Direction, data: &[u8], end: bool) {
        self.offer(dir, data, end);
        while self.outcome == Outcome::Resume {
            // The other direction's waiting data comes before the rest of this one.
            self.outcome = Outcome::More;
            self.offer(dir.reverse(), b"", false);
            self.offer(dir, b"", end);
        }
    }

    fn offer(&mut self, dir: Direction, data: &[u8], end: bool) {
        if self.outcome != Outcome::More {
            return;
        }
        let waiting = &mut self.waiting[dir.index()];
        waiting.extend_from_slice(data);
        let (config, shared, flow) = (&self.config, &mut self.shared, &self.flow);
        let mut cx = Parse { config, shared, flow, time: Time(0), end, inline: false };
        let parsed = self.parser.data(&mut cx, dir, waiting);
        waiting.drain(..parsed.consumed);
        self.outcome = parsed.outcome;
    }

    fn gap(&mut self, dir: Direction, len: u64) {
        let (config, shared, flow) = (&self.config, &mut self.shared, &self.flow);
        let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
        self.outcome = self.parser.gap(&mut cx, dir, len);
    }

    /// Lines of a script: `> ` for the client, `< ` for the server. A line break is added to each.
    fn say(&mut self, script: &str, piece: usize) {
        for line in script.lines() {
            let (dir, text) = match line.split_at(2) {
                ("> ", text) => (ToServer, text),
                ("< ", text) => (ToClient, text),
                other => panic!("{other:?}"),
            };
            for piece in format!("{text}\r\n").as_bytes().chunks(piece) {
                self.feed(dir, piece, false);
            }
        }
    }

    fn end(&mut self) {
        self.feed(ToServer, b"", true);
        self.feed(ToClient, b"", true);
    }

    fn events(&self, id: u64) -> Vec<&'static str> {
        let names = protocol(AppProto::Smtp).map_or(&[][..], |p| p.events);
        let tx = self.parser.tx(id).expect("a transaction");
        let mut events: Vec<_> = tx.base().events.as_slice().iter().map(|&e| names[usize::from(e)]).collect();
        events.sort_unstable();
        events
    }

    fn log(&self, id: u64) -> String {
        let mut json = Json::new();
        json.item_object();
        self.parser.tx(id).expect("a transaction").log(&mut json, &AppLogOptions::default(), LogFor::Event);
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).expect("a log is UTF-8")
    }

    fn buffer(&self, id: u64, name: &str, index: usize) -> Option<String> {
        let def = protocol(AppProto::Smtp)?.buffers.iter().find(|b| b.name == name)?;
        let mut scratch = Vec::new();
        let found = self.parser.tx(id)?.buffer(def.id, ToServer, index, &mut scratch)?;
        Some(String::from_utf8_lossy(found.data).into_owned())
    }

    /// Files with their sizes.
    fn files(&self, id: u64) -> Vec<(String, u64)> {
        let files = self.parser.tx(id).expect("a transaction").base().files.all();
        files.iter().map(|f| (String::from_utf8_lossy(f.name()).into_owned(), f.size())).collect()
    }

    fn seen(&self) -> Vec<String> {
        let mut out = vec![format!("{:?}", self.outcome)];
        for id in self.parser.txs() {
            let progress = self.parser.tx(id).map(|t| t.base().progress);
            out.push(format!("{id} {progress:?} {:?} {} {:?}", self.events(id), self.log(id), self.files(id)));
        }
        out
    }
}

const BEGIN: &str = "< 220 mx ESMTP\n> EHLO me\n< 250-mx\n< 250 PIPELINING\n";
const MAIL: &str = "> MAIL FROM:<a@b>\n< 250 ok\n> RCPT TO:<c@d>\n< 250 ok\n> DATA\n< 354 go\n";

fn talk(script: &str) -> Talk {
    let mut t = Talk::with(AppConfig::default());
    t.say(script, usize::MAX);
    t
}

fn mail(message: &str) -> Talk {
    let lines: String = message.lines().map(|l| format!("> {l}\n")).collect();
    talk(&format!("{BEGIN}{MAIL}{lines}> .\n< 250 ok\n"))
}

/// Rules on the raw stream look at a command with its reply, as in Suricata 8.
#[test]
fn a_reply_makes_both_directions_due() {
    let mut t = Talk::with(AppConfig::default());
    t.say("< 220 mx\n> EHLO a\n< 250-mx", 99);
    assert_eq!(t.shared.whole, [false; 2]);
    t.say("< 250 b", 99);
    assert_eq!(t.shared.whole, [true; 2]);
}

#[test]
fn a_mail() {
    let t = talk(&format!(
        "{BEGIN}{MAIL}> From: a <a@b>\n> To: \"x,y\" <c@d>,\n> \te@f\n> Subject: s\n> \n> see http://A.com/b\n> ..dot\n> .\n< 250 ok\n> QUIT\n< 221 bye\n"
    ));
    assert_eq!(
        t.log(0),
        r#"{"smtp":{"helo":"me","mail_from":"<a@b>","rcpt_to":["<c@d>"]},"email":{"status":"PARSE_DONE","from":"a <a@b>","to":["\"x,y\" <c@d>","e@f"],"url":["a.com/b"]}}"#
    );
    assert_eq!(t.log(1), r#"{"smtp":{"helo":"me"}}"#);
    assert!(t.events(0).is_empty() && t.events(1).is_empty());
    for (name, want) in [("smtp.helo", "me"), ("email.subject", "s"), ("email.url", "a.com/b")] {
        assert_eq!(t.buffer(0, name, 0).as_deref(), Some(want), "{name}");
    }
    assert_eq!(t.buffer(0, "smtp.rcpt_to", 1), None);
}

/// RFC 5322 allows one of each, but programs show the first or the last.
#[test]
fn repeated_fields_are_all_seen() {
    let t = mail("Subject: one\nFrom: a@b\nSubject: two\n and more\n\nx\n");
    let subjects: Vec<_> = (0..3).map_while(|n| t.buffer(0, "email.subject", n)).collect();
    assert_eq!(subjects, ["one", "two and more"]);
    assert_eq!(t.buffer(0, "email.from", 1), None);
}

#[test]
fn parts_that_are_files() {
    let head = "Subject: x\nContent-Type: multipart/mixed; boundary=BB\n\npreamble\n--BB\n";
    for (part, want) in [
        (
            "Content-Type: x/y; name=\"a\"\nContent-Transfer-Encoding: base64\n\nSGVsbG8gV29ybGQ=\n\n--BB--",
            vec![("a", 11)],
        ),
        ("Content-Disposition: x; filename=a\n\nabc\n\n--BB--\nepilogue", vec![("a", 5)]),
        ("Content-Disposition: x; filename=a\n\n--BB--", vec![("a", 0)]),
        (
            "Content-Disposition: x; filename=a\n\nabc\n--BBx\nContent-Disposition: x; filename*=''%62\n\nd\n--BB--",
            vec![("a", 3), ("b", 1)],
        ),
        (
            "Content-Type: multipart/x; boundary=CC\n\n--CC\nContent-Type: x/y; name=i\n\nin\n--CC--\n--BB--",
            vec![("i", 2)],
        ),
        ("Content-Type: message/rfc822; name=m\n\nContent-Type: x/y; name=i\n\nin\n--BB--", vec![("i", 2)]),
        ("Content-Type: message/partial; number=1; id=a\n\nContent-Type: x/y; name=i\n\nin\n--BB--", vec![("i", 2)]),
        ("Content-Type: message/partial; number=2; id=a\n\nContent-Type: x/y; name=i\n\nin\n--BB--", vec![]),
        ("Content-Type: x/y; name=a\nContent-Transfer-Encoding: quoted-printable\n\na=3D=\nb\n--BB--", vec![("a", 3)]),
        ("Content-Type: text/plain\n\nnone\n--BB--", vec![]),
    ] {
        let t = mail(&format!("{head}{part}"));
        let want: Vec<(String, u64)> = want.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
        assert_eq!((t.files(0), t.events(0)), (want, vec![]), "{part}");
    }
}

/// A nested message may have a transfer coding, and mail programs decode it (though RFC 2046 section 5.2.1 forbids that).
#[test]
fn messages_within_in_a_coding() {
    use base64::Engine;
    let base64 = |text: &str, width: usize| {
        let code = base64::engine::general_purpose::STANDARD.encode(text.replace('\n', "\r\n"));
        code.as_bytes().chunks(width).map(|l| String::from_utf8_lossy(l).into_owned() + "\n").collect::<String>()
    };
    let inner = "Subject: inner\nContent-Type: multipart/mixed; boundary=CC\n\n--CC\nContent-Type: x/y; name=hidden.exe\n\
                 Content-Transfer-Encoding: base64\n\nTVqQAA==\n--CC\nContent-Type: text/plain\n\nhttp://in.example/a\n--CC--\n";
    let head = "Subject: outer\nContent-Type: multipart/mixed; boundary=BB\n\n--BB\n";
    let of = |coding: &str, body: &str| {
        format!("{head}Content-Type: message/rfc822\nContent-Transfer-Encoding: {coding}\n\n{body}\n--BB--")
    };
    let twice = format!("Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{}", base64(inner, 60));
    for (what, message) in [
        ("base64", of("base64", &base64(inner, 76))),
        ("in lines of any length", of("BASE64", &base64(inner, 1))),
        ("behind empty lines", of("base64", &format!("\n\n{}", base64(inner, 72)))),
        ("quoted-printable", of("quoted-printable", &inner.replace('=', "=3D"))),
        ("only said to be", of("base64", inner)),
        ("twice", of("base64", &base64(&twice, 76))),
    ] {
        let t = mail(&message);
        assert_eq!(t.files(0), [("hidden.exe".to_owned(), 4)], "{what}: {:?}", t.events(0));
        assert_eq!(t.buffer(0, "email.url", 0).as_deref(), Some("in.example/a"), "{what}");
        assert_eq!(t.buffer(0, "email.subject", 0).as_deref(), Some("outer"), "{what}");
    }
    // Nesting is limited.
    let mut deep = inner.to_owned();
    for _ in 0..12 {
        deep = format!("Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{}", base64(&deep, 76));
    }
    assert!(mail(&deep).events(0).contains(&"mime_parse_failed"));
}

#[test]
fn what_is_odd_about_a_message() {
    let long = "x".repeat(999);
    for (message, want) in [
        (format!("A: b\n\n{long}"), "mime_long_line"),
        (format!("{}: b\n\nc", "N".repeat(76)), "mime_long_header_name"),
        (format!("A: {}\n {long}\n {long}\n\nc", "v".repeat(100)), "mime_long_header_value"),
        (format!("Content-Type: multipart/x; boundary={}\n\nc", "b".repeat(255)), "mime_long_boundary"),
        (format!("Content-Type: x/y; name={}\n\nc", "n".repeat(256)), "mime_long_filename"),
        (
            format!("Content-Type: x/y; name=n\nContent-Transfer-Encoding: base64\n\n{}", "A".repeat(80)),
            "mime_long_enc_line",
        ),
        ("Content-Type: x/y; name=n\nContent-Transfer-Encoding: base64\n\nAA*A".into(), "mime_invalid_base64"),
        ("Content-Type: x/y; name=n\nContent-Transfer-Encoding: quoted-printable\n\na=zz".into(), "mime_invalid_qp"),
        ("Content-Type: multipart/x; boundary=B\n\n--B\n\nno end".into(), "mime_malformed_msg"),
    ] {
        let t = mail(&message);
        assert!(t.events(0).contains(&want), "{want} {:?}", t.events(0));
        assert!(t.log(0).contains("PARSE_DONE"));
    }
}

#[test]
fn depth() {
    let deep = |n: usize| {
        let parts =
            (0..n).map(|i| format!("Content-Type: multipart/x; boundary=b{i:02}\n\n--b{i:02}\n")).collect::<String>();
        let ends = (0..n).rev().map(|i| format!("\n--b{i:02}--")).collect::<String>();
        mail(&format!("{parts}Content-Type: x/y; name=n\n\nabc{ends}"))
    };
    assert_eq!((deep(32).files(0), deep(32).events(0)), (vec![("n".to_owned(), 3)], vec![]));
    assert_eq!(deep(33).events(0), ["mime_parse_failed"]);
    let digest = "--BB\nContent-Type: message/rfc822\n\nContent-Type: x/y; name=n\n\nabc\n".repeat(40);
    assert_eq!(mail(&format!("Content-Type: multipart/digest; boundary=BB\n\n{digest}--BB--")).files(0).len(), 40);
}

#[test]
fn replies() {
    for (script, want) in [
        ("< 250 hi\n> EHLO me\n< 250 mx\n".into(), vec!["no_server_welcome_message"]),
        ("< \n< 220 hi\n> EHLO me\n< 250 mx\n".into(), vec![]),
        ("> EHLO me\n< 220 hi\n< 250 mx\n".into(), vec!["no_server_welcome_message"]),
        ("> EHLO me\n< what\n".into(), vec!["invalid_reply", "no_server_welcome_message"]),
        (format!("{BEGIN}< 250 what\n> NOOP\n< 250 ok\n"), vec!["unable_to_match_reply_with_request"]),
        (format!("{BEGIN}> NOOP\n< 250 ok\n< 421 bye\n"), vec![]),
        (format!("{BEGIN}> NOOP\n< what\n"), vec!["invalid_reply"]),
        (format!("{BEGIN}> STARTTLS\n< 454 no\n"), vec!["tls_rejected"]),
        (format!("{BEGIN}> NOOP\n< 250 {}\n", "x".repeat(5000)), vec!["max_reply_line_len_exceeded", "truncated_line"]),
        (
            format!("{BEGIN}> VRFY {}\n< 250 ok\n", "x".repeat(5000)),
            vec!["max_command_line_len_exceeded", "truncated_line"],
        ),
        (format!("{BEGIN}> HELO again\n< 250 ok\n> MAIL FROM:<a>\n> MAIL FROM:<b>\n"), vec!["duplicate_fields"]),
        (format!("{BEGIN}> DATA\n> early\n< 250 ok\n"), vec!["data_command_rejected", "invalid_pipelined_sequence"]),
    ] {
        let mut t = talk(&script);
        t.end();
        assert_eq!(t.events(0), want, "{script}");
    }
}

/// The end of the connection cuts a server's line off: only a whole line is an invalid reply.
#[test]
fn the_end_of_a_connection_is_no_reply() {
    for (answer, want) in [
        (&b"25"[..], &[][..]),
        (b"\x05\0\x0c\x03\x10", &[]),
        (b"hello", &[]),
        (b"250 o", &[]),
        (b"hello\r\n", &["invalid_reply"]),
        (b"hello\n25", &["invalid_reply"]),
    ] {
        let mut t = talk(&format!("{BEGIN}> NOOP\n"));
        t.feed(ToClient, answer, false);
        t.end();
        let seen = (t.events(0), t.outcome == Outcome::Failed);
        assert_eq!(seen, (want.to_vec(), !want.is_empty()), "{}", answer.escape_ascii());
    }
}

#[test]
fn a_rejected_mail_leaves_commands() {
    let t = talk(&format!(
        "{BEGIN}> MAIL FROM:<a@b>\n> RCPT TO:<c@d>\n> DATA\n< 553 no\n< 503 no\n< 503 no\n> RSET\n> MAIL FROM:<e@f>\n< 250 ok\n< 250 ok\n> DATA\n< 354 go\n> Subject: s\n> \n> b\n> .\n"
    ));
    assert_eq!(t.events(0), ["data_command_rejected"]);
    assert_eq!(t.log(0), r#"{"smtp":{"helo":"me","mail_from":"<a@b>","rcpt_to":["<c@d>"]}}"#);
    assert_eq!(t.log(1), r#"{"smtp":{"helo":"me","mail_from":"<e@f>"},"email":{"status":"PARSE_DONE"}}"#);
}

/// Data that a client sends without waiting is parsed as commands if the server refused the mail.
#[test]
fn commands_behind_a_refused_mail_are_read() {
    let hidden = "> MAIL FROM:<evil@b>\n> RCPT TO:<c@d>\n> DATA\n> Subject: hidden\n> \n> http://evil.example/x\n> .\n";
    let granted = "< 250 ok\n< 250 ok\n< 354 go\n< 250 ok\n";
    for (refused, reply) in [
        ("> DATA\n", "< 503 no recipients\n"),
        ("> DATA\n", "< 421 too busy\n"),
        ("> BDAT 400 LAST\n", "< 500 what\n"),
        ("> BDAT 400 LAST\n", "< 502 not here\n"),
        ("> AUTH LOGIN\n> DATA\n", "< 334 VXNlcm5hbWU6\n< 535 no\n"),
        ("> AUTH LOGIN\n> BDAT 400 LAST\n", "< 334 VXNlcm5hbWU6\n< 535 no\n"),
        ("> AUTH LOGIN\n> STARTTLS\n", "< 334 VXNlcm5hbWU6\n< 535 no\n"),
        ("> STARTTLS\n", "< 454 not now\n"),
    ] {
        for piece in [usize::MAX, 1, 5] {
            let mut t = Talk::with(AppConfig::default());
            t.say(BEGIN, piece);
            t.say("< 250 ok\n", piece);
            // All of it comes before the first reply.
            t.say(&format!("{refused}{hidden}{reply}{granted}"), piece);
            assert_eq!(t.outcome, Outcome::More);
            let found = t.parser.txs().any(|id| {
                t.buffer(id, "email.subject", 0).as_deref() == Some("hidden")
                    && t.buffer(id, "smtp.mail_from", 0).as_deref() == Some("<evil@b>")
                    && t.buffer(id, "email.url", 0).as_deref() == Some("evil.example/x")
            });
            assert!(found, "{refused} {reply} in pieces of {piece}: {:#?}", t.seen());
        }
    }
}

/// A step of an authentication may look like a command.
#[test]
fn credentials_are_no_commands() {
    for step in ["DATA", "STARTTLS", "BDAT 100 LAST", "QUIT"] {
        let t = talk(&format!(
            "{BEGIN}> AUTH LOGIN\n< 334 VXNlcm5hbWU6\n> {step}\n< 334 UGFzc3dvcmQ6\n> {step}\n< 235 ok\n{MAIL}> Subject: s\n> .\n< 250 ok\n"
        ));
        assert_eq!(t.buffer(0, "email.subject", 0).as_deref(), Some("s"), "{step}: {:#?}", t.seen());
        assert!(t.events(0).is_empty(), "{step}: {:?}", t.events(0));
    }
}

/// A server with CHUNKING reads a refused chunk as a chunk.
#[test]
fn a_refused_chunk_is_passed_over() {
    let t = talk(&format!("{BEGIN}> BDAT 16 LAST\n< 503 first MAIL\n> MAIL FROM:<x@y>\n< 250 ok\n"));
    assert!(t.parser.txs().all(|id| t.buffer(id, "smtp.mail_from", 0).is_none()), "{:#?}", t.seen());
}

/// After a refused mail, more data arrives than the parser keeps until a reply comes.
#[test]
fn a_flood_behind_a_refused_mail() {
    let flood = "> 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n".repeat(2000);
    let t = talk(&format!("{BEGIN}> DATA\n{flood}< 503 no\n{MAIL}> Subject: s\n> .\n< 250 ok\n"));
    let subjects: Vec<_> = t.parser.txs().filter_map(|id| t.buffer(id, "email.subject", 0)).collect();
    assert_eq!(subjects, ["s"], "{:?}", t.seen());
}

#[test]
fn starttls() {
    let mut t = talk(&format!("{BEGIN}> STARTTLS\n"));
    t.feed(ToServer, b"\x16\x03\x01", false);
    t.feed(ToClient, b"220 go\r\n", false);
    assert_eq!(t.outcome, Outcome::Change(Some(AppProto::Tls)));
    assert_eq!(t.waiting[0], b"\x16\x03\x01");
}

/// A client's commands behind STARTTLS do not hide the handshake behind them.
#[test]
fn commands_before_the_reply_to_starttls() {
    for (commands, want) in [
        ("", &[][..]),
        ("NOOP\r\n", &["invalid_pipelined_sequence"]),
        ("MAIL FROM:<a>\r\nNO", &["invalid_pipelined_sequence"]),
    ] {
        for (early, piece) in [(true, 1), (true, 100), (false, 1), (false, 100)] {
            let mut t = talk(BEGIN);
            let hello = &b"\x16\x03\x01"[..];
            let sent = [
                &b"STARTTLS\r\n"[..],
                commands.as_bytes(),
                if early && !commands.ends_with('O') { hello } else { b"" },
            ]
            .concat();
            for bytes in sent.chunks(piece) {
                t.feed(ToServer, bytes, false);
            }
            t.feed(ToClient, b"220 go\r\n", false);
            assert_eq!(t.outcome, Outcome::Change(Some(AppProto::Tls)), "{commands}");
            let is_early = sent.ends_with(hello);
            let want = if is_early { &["invalid_pipelined_sequence"][..] } else { want };
            assert_eq!(t.events(0), want, "{commands} {early}");
            if is_early {
                assert_eq!(t.waiting[0], hello);
            }
        }
    }
}

/// Commands that the client sent behind a refused STARTTLS come before the server's next reply, however the replies are divided.
#[test]
fn commands_behind_a_refused_starttls() {
    for size in [1, 9, usize::MAX] {
        let mut t = talk(BEGIN);
        t.feed(ToServer, b"STARTTLS\r\nNOOP\r\n", false);
        for piece in b"454 no\r\n250 ok\r\n".chunks(size) {
            t.feed(ToClient, piece, false);
        }
        assert_eq!(t.events(0), ["invalid_pipelined_sequence", "tls_rejected"], "in pieces of {size}");
    }
}

#[test]
fn chunks() {
    let begin = format!("{BEGIN}> MAIL FROM:<a@b>\n< 250 ok\n");
    for piece in [1, 7, 1000] {
        let mut t = talk(&begin);
        for bytes in b"BDAT 9\r\nA: b\r\n\r\ncBDAT 3\r\nd\re\r\nBDAT 14 LAST\r\n\r\nhttp://x.com".chunks(piece) {
            t.feed(ToServer, bytes, false);
        }
        assert_eq!(t.events(0), ["bdat_chunk_len_exceeded"], "what follows the second chunk is no command");
        assert!(t.log(0).contains(r#""url":["x.com"]"#), "{}", t.log(0));
        assert!(!t.parser.txs().is_empty());
    }
    assert_eq!(talk(&format!("{begin}> BDAT x\n")).events(0), ["bdat_chunk_len_exceeded"]);
}

#[test]
fn gaps() {
    let mut t = talk(&format!("{BEGIN}{MAIL}> Content-Type: x/y; name=n\n> \n> abc\n"));
    t.gap(ToServer, 100);
    t.say("> rest\n> .\n> QUIT\n", usize::MAX);
    assert_eq!(t.files(0).first().map(|f| f.1), Some(3 + 100 + 4));
    let mut t = talk(BEGIN);
    t.gap(ToServer, 5);
    t.say("> OM:<x>\n> RCPT TO:<c>\n< 250 ok\n< 250 ok\n< 250 ok\n", usize::MAX);
    assert_eq!((t.log(0).as_str(), t.events(0)), (r#"{"smtp":{"helo":"me","rcpt_to":["<c>"]}}"#, vec![]));
}

#[test]
fn too_many_transactions() {
    let mut config = AppConfig::default();
    config.smtp.max_tx = 2;
    let mut t = Talk::with(config);
    t.say(&format!("{BEGIN}{}", format!("{MAIL}> A: b\n> \n> c\n> .\n< 250 ok\n").repeat(3)), usize::MAX);
    assert_eq!((t.outcome, t.parser.txs()), (Outcome::Full, 0..2));
    assert_eq!(t.shared.counters.tx_limit[AppProto::Smtp as usize], 1);
    // The waiting data is parsed once the transactions are freed.
    t.outcome = Outcome::More;
    (0..2).for_each(|id| t.parser.free_tx(&mut t.shared, id));
    t.say(&format!("{MAIL}> A: b\n> \n> c\n> .\n< 250 ok\n"), usize::MAX);
    assert_eq!((t.outcome, t.parser.txs()), (Outcome::More, 2..4));
}

/// A refused mail of which nothing came is no mail, even if replies were lost before.
#[test]
fn a_refused_mail_after_a_gap() {
    let mut t = talk(BEGIN);
    t.gap(ToClient, 5);
    t.say("< lost\n> DATA\n< 554 no\n", 99);
    assert_eq!((t.events(0), t.log(0).as_str()), (vec!["data_command_rejected"], r#"{"smtp":{"helo":"me"}}"#));
}

/// The unfinished line of a chunk is part of the mail, whatever follows the chunk, and so are the bytes up to the stream depth.
#[test]
fn the_last_line_of_a_chunk() {
    for (rest, begins) in [(&b"DATA\r\nb\r\n.\r\n"[..], 14), (b"", 14), (b"", 20)] {
        let mut t = talk(&format!("{BEGIN}> MAIL FROM:<a@b>\n< 250 ok\n"));
        t.feed(ToServer, format!("BDAT {begins}\r\n\r\nhttp://x.com").as_bytes(), false);
        t.feed(ToServer, rest, false);
        t.end();
        assert_eq!(t.buffer(0, "email.url", 0).is_some(), begins == 20 || !rest.is_empty(), "{rest:?} {begins}");
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(tokens in proptest::collection::vec(0usize..28, 0..40), piece in 1usize..20) {
        let words = ["> EHLO x", "> MAIL FROM:<a>", "> RCPT TO:<b>", "> DATA", "> RSET", "> QUIT", "> STARTTLS", "> BDAT 12",
            "> BDAT 30 LAST", "> .", "> ..", "> --B", "> --B--", "> Content-Type: multipart/x; boundary=B",
            "> Content-Type: x/y; name=n", "> Content-Transfer-Encoding: base64",
            "> Content-Transfer-Encoding: quoted-printable", "> ", "> \tx=", "> QUJD", "> =41 =", "> http://a.b", "< 220 hi",
            "< 250 ok", "< 354 go", "< 554 no", "< 250-x", "> Content-Type: message/rfc822"];
        let script: String = tokens.iter().filter_map(|&t| words.get(t)).map(|w| format!("{w}\n")).collect();
        let run = |piece| {
            let mut t = Talk::with(AppConfig::default());
            t.say(&script, piece);
            t.end();
            t.seen()
        };
        prop_assert_eq!(run(usize::MAX), run(piece));
    }
}

/// Files as Python's `email` sees them.
#[test]
fn odd_parts_that_are_files() {
    let start = "Content-Type: multipart/mixed; boundary=\"b\"\n\n--b\n";
    let fields = "Content-Disposition: attachment; filename=\"f\"\nContent-Transfer-Encoding: base64\n";
    for message in [
        // A boundary with an open quote, a blank at its end, an escape; a very long one.
        format!("Content-Type: multipart/mixed; boundary=\"b\n\n--b\n{fields}\nYWJj\n--b--"),
        format!("Content-Type: multipart/mixed; boundary=\"b \"\n\n--b\n{fields}\nYWJj\n--b--"),
        format!("Content-Type: multipart/mixed; boundary=\"\\b\"\n\n--b\n{fields}\nYWJj\n--b--"),
        format!("Content-Type: multipart/mixed; boundary=\"{0}\"\n\n--{0}\n{fields}\nYWJj\n--{0}--", "b".repeat(300)),
        // A header without an empty line after it.
        format!("{start}{fields}YWJj\n--b--"),
        // After a line that only begins like the last delimiter.
        format!("{start}\nx\n--b--x\n{fields}\nYWJj\n--b--"),
        // Of repeated fields, the first one counts.
        format!("{start}{fields}Content-Disposition: inline\nContent-Transfer-Encoding: 7bit\n\nYWJj\n--b--"),
        // A name without a disposition before it, and one after a comment.
        format!("{start}Content-Transfer-Encoding: base64\nContent-Disposition: filename=f\n\nYWJj\n--b--"),
        format!("{start}Content-Transfer-Encoding: base64\nContent-Disposition: x; (c) filename=f\n\nYWJj\n--b--"),
    ] {
        assert_eq!(mail(&message).files(0), [("f".to_owned(), 3)], "{message}");
    }
}
