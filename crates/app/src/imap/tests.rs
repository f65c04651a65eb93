//! Conversations: complete, in pieces, and invalid.

use super::*;
use crate::testing::Talk;

fn imap() -> Talk {
    Talk::tcp(AppProto::Imap, 143)
}

const MAIL: &[u8] = b"From: Ann <ann@example.org>\r\nSubject: plans\r\nMIME-Version: 1.0\r\n\
Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b\r\n\
Content-Type: application/octet-stream; name=\"plan.bin\"\r\nContent-Transfer-Encoding: base64\r\n\r\n\
UExBTi1CWVRFUw==\r\n--b--\r\n";

/// A session in turns: the client's bytes, then the server's.
fn session() -> Vec<(Direction, Vec<u8>)> {
    let literal = |before: &str, after: &str| [before.as_bytes(), MAIL, after.as_bytes()].concat();
    let len = MAIL.len();
    let text = |t: &str| t.as_bytes().to_vec();
    vec![
        (TC, text("* OK [CAPABILITY IMAP4rev1] ready\r\n")),
        (TS, text("a1 login ann {6}\r\n")),
        (TC, text("+ go on\r\n")),
        (TS, text("secret\r\n")),
        (TC, text("a1 OK LOGIN completed\r\n")),
        (TS, text("a2 SELECT \"In box\"\r\n")),
        (TC, text("* 2 EXISTS\r\n* FLAGS (\\Seen)\r\na2 OK [READ-WRITE] done\r\n")),
        (TS, text("a3 UID FETCH 7 (FLAGS BODY.PEEK[])\r\n")),
        (TC, literal(&format!("* 2 FETCH (UID 7 FLAGS () BODY[] {{{len}}}\r\n"), ")\r\na3 OK done\r\n")),
        (TS, text(&format!("a4 APPEND Sent (\\Seen) {{{len}}}\r\n"))),
        (TC, text("+ go on\r\n")),
        (TS, literal("", "\r\n")),
        (TC, text("a4 OK APPEND completed\r\n")),
        (TS, text("a5 IDLE\r\n")),
        (TC, text("+ idling\r\n* 3 EXISTS\r\n")),
        (TS, text("DONE\r\n")),
        (TC, text("a5 OK done\r\n")),
        (TS, text("a6 LOGOUT\r\n")),
        (TC, text("* BYE see you\r\na6 OK done\r\n")),
    ]
}

fn run(size: usize) -> Talk {
    let mut talk = imap();
    for (dir, bytes) in session() {
        for piece in bytes.chunks(size) {
            if dir == TS {
                talk.client(piece)
            } else {
                talk.server(piece)
            };
        }
    }
    talk
}

#[test]
fn a_session() {
    let talk = run(usize::MAX);
    let email = r#""email":{"status":"PARSE_DONE","from":"Ann <ann@example.org>","attachment":["plan.bin"]}}"#;
    assert_eq!(
        talk.logs(),
        [
            r#"{"imap":{"response":{"status":"OK","text":"[CAPABILITY IMAP4rev1] ready"}}}"#.to_owned(),
            r#"{"imap":{"request":{"tag":"a1","command":"LOGIN","user":"ann"},"response":{"status":"OK","text":"LOGIN completed","lines":["+ go on"]}}}"#.to_owned(),
            r#"{"imap":{"request":{"tag":"a2","command":"SELECT","mailbox":"In box"},"response":{"status":"OK","text":"[READ-WRITE] done","lines":["* 2 EXISTS","* FLAGS (\\Seen)"]}}}"#.to_owned(),
            format!(r#"{{"imap":{{"request":{{"tag":"a3","command":"UID FETCH","arguments":["7","(FLAGS","BODY.PEEK[])"]}},"response":{{"status":"OK","text":"done","lines":["* 2 FETCH (UID 7 FLAGS () BODY[] {{{}}}"]}}}}}}"#, MAIL.len()),
            format!(r#"{{"imap":{{"request":{{"tag":"a3","command":"UID FETCH"}},"fetched":"2"}},{email}"#),
            format!(r#"{{"imap":{{"request":{{"tag":"a4","command":"APPEND","mailbox":"Sent"}},"response":{{"status":"OK","text":"APPEND completed","lines":["+ go on"]}}}},{email}"#),
            r#"{"imap":{"request":{"tag":"a5","command":"IDLE"},"response":{"status":"OK","text":"done","lines":["+ idling","* 3 EXISTS"]}}}"#.to_owned(),
            r#"{"imap":{"request":{"tag":"a6","command":"LOGOUT"},"response":{"status":"OK","text":"done","lines":["* BYE see you"]}}}"#.to_owned(),
        ]
    );
    assert_eq!(talk.events(), [""; 0]);
    assert_eq!(talk.complete(), [[true, true]; 8]);
    assert_eq!(
        talk.buffers("imap.command", TS),
        ["LOGIN", "SELECT", "UID FETCH", "UID FETCH", "APPEND", "IDLE", "LOGOUT"]
    );
    assert_eq!(talk.buffers("imap.user", TS), ["ann"]);
    assert_eq!(talk.buffers("imap.mailbox", TS), ["In box", "Sent"]);
    assert_eq!(talk.buffers("imap.response", TC)[1..3], ["+ go on", "OK LOGIN completed"]);
    assert_eq!(
        (talk.buffers("email.subject", TS), talk.buffers("email.subject", TC)),
        (vec!["plans".into()], vec!["plans".into()])
    );
    let files: Vec<_> = talk
        .txs()
        .iter()
        .flat_map(|t| t.base().files.all())
        .map(|f| (f.to_client, f.name(), f.size(), f.ended()))
        .collect();
    assert_eq!(files, [(true, &b"plan.bin"[..], 10, true), (false, b"plan.bin", 10, true)]);
    assert!(!talk.logs().concat().contains("secret"));
}

#[test]
fn any_cut_gives_the_same() {
    let whole = run(usize::MAX).logs();
    for size in 1..80 {
        assert_eq!(run(size).logs(), whole, "{size}");
    }
}

#[test]
fn users() {
    let mut talk = imap();
    talk.client(b"1 AUTHENTICATE PLAIN\r\n").server(b"+ \r\n").client(b"AGFubgBzZWNyZXQ=\r\n").server(b"1 OK in\r\n");
    talk.client(b"2 authenticate plain AGJvYgBzZWNyZXQ=\r\n").server(b"2 NO no\r\n");
    talk.client(b"3 LOGIN \"c d\" \"secret\"\r\n4 NOOP\r\n").server(b"3 OK in\r\n4 OK\r\n");
    assert_eq!(talk.buffers("imap.user", TS), ["ann", "bob", "c d"]);
    assert_eq!(talk.complete(), [[true, true]; 4]);
    let logs = talk.logs().concat();
    assert!(!logs.contains("secret") && !logs.contains("AGFubgBz") && !logs.contains("AGJvYgBz"), "{logs}");
    assert!(logs.contains(r#""user":"bob","mechanism":"plain"}"#), "{logs}");
}

#[test]
fn tls_follows_starttls() {
    let mut talk = imap();
    talk.server(b"* OK hi\r\n").client(b"a STARTTLS\r\n").client(b"\x16\x03\x01").server(b"a OK begin\r\n");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Change(Some(AppProto::Tls)), 2));
    let mut talk = imap();
    talk.client(b"a STARTTLS\r\nb NOOP\r\n");
    assert_eq!(talk.logs().len(), 2);
    talk.server(b"a BAD no\r\n");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Resume, 2));
    // Commands before the response do not hide the handshake.
    let mut talk = imap();
    talk.client(b"a STARTTLS\r\nb NOOP\r\nc STARTTLS\r\n\x16\x03\x01").server(b"a OK begin\r\n");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Change(Some(AppProto::Tls)), 3));
}

#[test]
fn compressed_data_follows() {
    let mut talk = imap();
    talk.client(b"a COMPRESS DEFLATE\r\n").server(b"a OK begin\r\n");
    assert_eq!(talk.outcome, Outcome::Done);
    assert!(talk.logs()[0].contains(r#""compressed":true"#));
}

#[test]
fn a_literal_that_is_not_wanted() {
    let mut talk = imap();
    talk.client(b"a APPEND x {1000}\r\n").server(b"a NO too big\r\n").client(b"b NOOP\r\n").server(b"b OK\r\n");
    assert_eq!(talk.buffers("imap.command", TS), ["APPEND", "NOOP"]);
    assert_eq!(talk.complete(), [[true, true]; 2]);
    // A literal that needs no confirmation is sent at once, and an empty one has no bytes.
    let mut talk = imap();
    talk.client(b"a LOGIN {3+}\r\nann {0+}\r\n\r\nb SELECT {5+}\r\nINBOX\r\n");
    assert_eq!(
        (talk.buffers("imap.user", TS), talk.buffers("imap.mailbox", TS)),
        (vec!["ann".into()], vec!["INBOX".into()])
    );
}

/// A server that refuses a literal reads the bytes behind it as commands, if the client sent them without its consent.
#[test]
fn commands_behind_a_refused_literal() {
    for command in ["a APPEND x {1000}", "a LOGIN {1000}", "a SELECT {9}"] {
        for size in [1, 7, 1000] {
            let mut talk = imap();
            talk.server(b"* OK hi\r\n");
            let hidden =
                [format!("{command}\r\nb NOOP\r\nc APPEND y {{{}+}}\r\n", MAIL.len()).as_bytes(), MAIL].concat();
            for piece in [&hidden[..], b"\r\nd NO"].concat().chunks(size) {
                talk.client(piece);
            }
            talk.server(b"a NO too big\r\nb OK\r\nc OK\r\n").client(b"OP\r\n").server(b"d OK\r\n");
            assert_eq!(talk.buffers("imap.command", TS).last().map(String::as_str), Some("NOOP"), "{command}");
            assert!(talk.buffers("imap.command", TS).contains(&"APPEND".to_owned()));
            // The mail that the literal seemed to be has the same line.
            assert_eq!(talk.buffers("email.subject", TS).last().map(String::as_str), Some("plans"), "{command} {size}");
            assert!(talk.complete().iter().all(|c| *c == [true; 2]) && talk.events().is_empty(), "{:?}", talk.events());
        }
    }
    // The server consented, and refuses the whole.
    let mut talk = imap();
    talk.server(b"* OK hi\r\n").client(b"a APPEND x {9}\r\n").server(b"+ go\r\n");
    talk.client(b"b NOOP\r\n\n\r\n").server(b"a NO full\r\n");
    assert_eq!(talk.buffers("imap.command", TS), ["APPEND"]);
}

/// The end of the connection truncates a mail.
#[test]
fn a_mail_without_its_end() {
    let mut talk = imap();
    talk.client(b"a APPEND x {1000+}\r\n").client(&MAIL[..MAIL.len() - 7]);
    assert!(!talk.txs()[0].base().files.all()[0].ended());
    talk.end();
    assert!(talk.txs()[0].base().files.all()[0].ended());
    assert!(talk.logs()[0].contains("plan.bin"), "{:?}", talk.logs());
}

#[test]
fn several_mails() {
    let mut talk = imap();
    let one = |n: usize| [format!("* {n} FETCH (RFC822 {{{}}}\r\n", MAIL.len()).as_bytes(), MAIL, b")\r\n"].concat();
    talk.client(b"a FETCH 1:2 RFC822\r\n").server(&[one(1), one(2)].concat()).server(b"a OK done\r\n");
    assert_eq!(talk.buffers("email.from", TC), ["Ann <ann@example.org>"; 2]);
    let mut talk = imap();
    let more = [
        format!("a APPEND x {{{}+}}\r\n", MAIL.len()).as_bytes(),
        MAIL,
        format!(" {{{}+}}\r\n", MAIL.len()).as_bytes(),
        MAIL,
        b"\r\n",
    ]
    .concat();
    talk.client(&more).server(b"a OK done\r\n");
    assert_eq!(talk.buffers("email.from", TS), ["Ann <ann@example.org>"; 2]);
    assert_eq!(talk.complete(), [[true, true]; 2]);
}

#[test]
fn holes() {
    // Within a mail.
    let mut talk = imap();
    talk.client(b"a FETCH 1 BODY[]\r\n").server(&[&b"* 1 FETCH (BODY[] {5000}\r\n"[..], MAIL].concat());
    let left = 5000 - MAIL.len() as u64;
    talk.gap(TC, left - 4).server(b"end\n)\r\na OK done\r\n");
    assert_eq!(talk.complete(), [[true, true]; 2]);
    assert_eq!(talk.buffers("email.subject", TC), ["plans"]);
    // Within a line of it, whose two parts do not make a line.
    let mut talk = imap();
    let (before, after) = (&b"From: a@example.net\r\n\r\nsee http://exam"[..], &b"ple.org/x \r\n"[..]);
    let announced = format!("* 1 FETCH (BODY[] {{{}}}\r\n", before.len() + 4 + after.len());
    talk.client(b"a FETCH 1 BODY[]\r\n").server(&[announced.as_bytes(), before].concat());
    talk.gap(TC, 4).server(&[after, b")\r\na OK done\r\n"].concat());
    assert_eq!(talk.complete(), [[true, true]; 2]);
    assert_eq!(talk.buffers("email.from", TC), ["a@example.net"]);
    assert!(!talk.buffers("email.url", TC).iter().any(|url| url.contains("example.org")));
    // Past its end, and among lines: the parser continues with the next line.
    let mut talk = imap();
    talk.client(b"a FETCH 1 BODY[]\r\nb NO").server(&[&b"* 1 FETCH (BODY[] {5000}\r\n"[..], MAIL].concat());
    talk.gap(TC, 6000).gap(TS, 10).server(b"x\r\na OK done\r\n").client(b"x\r\nc NOOP\r\n").server(b"c OK\r\n");
    assert_eq!((talk.outcome, talk.complete()), (Outcome::More, vec![[true, true]; 3]));
}

#[test]
fn what_is_wrong() {
    let mut talk = imap();
    talk.client(b"NOOP\r\n(\r\na NOOP\r\na NOOP\r\n").server(b"garbage\r\nz OK\r\n");
    assert_eq!(
        talk.events(),
        ["malformed_command", "malformed_command", "duplicate_tag", "malformed_response", "unsolicited_response"]
    );
    for _ in 0..MALFORMED_MAX + 1 {
        talk.server(b"garbage\r\n");
    }
    assert_eq!(talk.outcome, Outcome::Failed);
    let mut talk = imap();
    talk.client(&[b"a SEARCH ".to_vec(), vec![b'x'; 3 * LINE_MAX], b"{3+}\r\nabc\r\nb NOOP\r\n".to_vec()].concat());
    assert_eq!((talk.events(), talk.buffers("imap.command", TS).len()), (vec!["line_too_long"], 2));
}

#[test]
fn what_is_much() {
    let mut talk = imap();
    talk.client(b"a SEARCH ALL\r\n");
    for _ in 0..1000 {
        talk.server(&[&b"* SEARCH "[..], &[b'1'; 500], b"\r\n"].concat());
    }
    talk.client(b"b X {100000000}\r\n");
    for _ in 0..100 {
        talk.client(&[b'x'; 1000]);
    }
    assert!(talk.held() < 64 << 10, "{}", talk.held());
    let mut talk = imap();
    for n in 0..2 * PENDING_MAX {
        talk.client(format!("{n} NOOP\r\n").as_bytes());
    }
    assert_eq!((talk.outcome, talk.complete()[0], talk.complete()[200]), (Outcome::More, [true, true], [true, false]));
    let mut talk = imap().set("max-tx", 3);
    talk.client(b"a NOOP\r\nb NOOP\r\nc NOOP\r\nd NOOP\r\n");
    assert_eq!((talk.outcome, talk.events()[0]), (Outcome::Full, "too_many_transactions"));
}
