//! Captured sessions, and invalid ones.

use super::*;
use crate::testing::Talk;

fn pop3() -> Talk {
    Talk::tcp(AppProto::Pop3, 110)
}

#[test]
fn a_session() {
    let mut talk = pop3();
    talk.server(b"+OK POP server ready H mimap8\r\n").client(b"AUTH\r\n").server(b"-ERR 1 argument required\r\n");
    talk.client(b"CAPA\r\n")
        .server(b"+OK Capability list follows\r\nTOP\r\nSASL PL")
        .server(b"AIN\r\n.")
        .server(b"\r\n");
    talk.client(b"AUTH PLAIN\r\n").server(b"+ \r\n").client(b"AGRpZ2l0YWw=\r\n").server(b"+OK mailbox\r\n");
    talk.client(b"retr 1\r\n").server(b"+OK\r\nSubject: a\r\n\r\n..x\r\n.y\r\n.\r\n").client(b"QUIT\r\n");
    assert_eq!(
        talk.logs(),
        [
            r#"{"pop3":{"response":{"success":true,"status":"OK","header":"POP server ready H mimap8","data":[]}}}"#,
            r#"{"pop3":{"request":{"command":"AUTH","args":[]},"response":{"success":false,"status":"ERR","header":"1 argument required","data":[]}}}"#,
            r#"{"pop3":{"request":{"command":"CAPA","args":[]},"response":{"success":true,"status":"OK","header":"Capability list follows","data":["TOP","SASL PLAIN"]}}}"#,
            r#"{"pop3":{"request":{"command":"AUTH","args":["PLAIN"]},"response":{"success":true,"status":"OK","header":"","data":[]}}}"#,
            r#"{"pop3":{"request":{"command":"<SASL DATA>","args":[]},"response":{"success":true,"status":"OK","header":"mailbox","data":[]}}}"#,
            r#"{"pop3":{"request":{"command":"retr","args":["1"]},"response":{"success":true,"status":"OK","header":"","data":["Subject: a","",".x",".y"]}}}"#,
            r#"{"pop3":{"request":{"command":"QUIT","args":[]}}}"#,
        ]
    );
    assert_eq!(talk.events(), ["incorrect_argument_count", "unknown_command"]);
    assert_eq!(talk.complete()[5..], [[true, true], [true, false]]);
}

#[test]
fn commands_may_be_sent_ahead() {
    let mut talk = pop3();
    talk.server(b"+OK hello\r\n")
        .client(b"CAPA\r\nLIST 1\r\nQUIT\r\n")
        .server(b"+OK\r\nUSER\r\n.\r\n+OK 1 20\r\n+OK bye\r\n");
    let logs = talk.logs();
    assert!(logs[1].contains(r#""data":["USER"]"#) && logs[2].contains("1 20") && logs[3].contains("bye"), "{logs:?}");
    assert_eq!(talk.complete(), [[true, true]; 4]);
}

#[test]
fn any_cut_gives_the_same() {
    let bytes = b"+OK hi\r\n+OK x\r\n.\r\n-ERR no\r\n+OK\r\n.a\r\n\r\n.\r\n";
    let logs = |size: usize| {
        let mut talk = pop3();
        let mut chunks = bytes.chunks(size);
        talk.client(b"CAPA\r\nNOOP\r\nUIDL\r\n");
        chunks.by_ref().for_each(|c| {
            talk.server(c);
        });
        talk.logs()
    };
    for size in 1..bytes.len() {
        assert_eq!(logs(size), logs(bytes.len()), "{size}");
    }
}

#[test]
fn tls_follows_stls() {
    let mut talk = pop3();
    talk.server(b"+OK hi\r\n").client(b"STLS\r\n").client(b"\x16\x03\x01").server(b"+OK begin\r\n");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Change(Some(AppProto::Tls)), 2));
    let mut talk = pop3();
    talk.client(b"STLS\r\nQUIT\r\n");
    assert_eq!(talk.logs().len(), 2);
    talk.server(b"-ERR no\r\n");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Resume, 2));
    // Commands before the response do not hide the handshake.
    let mut talk = pop3();
    talk.client(b"STLS\r\nNOOP\r\n").client(b"\x16\x03\x01").server(b"+OK begin\r\n");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Change(Some(AppProto::Tls)), 2));
}

#[test]
fn what_is_too_long() {
    let mut talk = pop3();
    talk.client(b"TOP 1 9\r\nNOOP\r\n").server(b"+OK\r\n");
    for _ in 0..100 {
        talk.server(&[b"line\r\n".repeat(300), b"x".repeat(9000)].concat());
    }
    talk.gap(TC, 1 << 30).server(b".\r\n.\r\n+OK\r\n");
    assert_eq!(talk.events(), ["response_too_long"]);
    assert_eq!(talk.complete(), [[true, true]; 2]);
    assert!(talk.txs()[0].held() < 2 * DATA_MAX as u64);
    // An overlong line is still a command.
    talk.client(&[b"USER ".to_vec(), vec![b'x'; 3 * LINE_MAX]].concat()).client(b" y\r\nQUIT\r\n");
    assert_eq!(talk.logs().len(), 4);
    assert_eq!(talk.events(), ["response_too_long", "request_too_long"]);
}

#[test]
fn too_many() {
    let mut talk = pop3().set("max-tx", 3);
    talk.client(b"NOOP\r\nNOOP\r\nNOOP\r\n").client(b"NOOP\r\n");
    assert_eq!((talk.outcome, talk.events().len()), (Outcome::Full, 3));
    assert_eq!(talk.events()[0], "too_many_transactions");
}

#[test]
fn what_is_no_response() {
    let mut talk = pop3();
    talk.server(b"+OK hi\r\n").server(b"Return-Path: x\r\n");
    assert_eq!(talk.outcome, Outcome::Failed);
    let mut talk = pop3();
    talk.server(b"+OK hi\r\n").gap(TS, 5);
    assert_eq!(talk.outcome, Outcome::Failed);
}
