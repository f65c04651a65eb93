//! Test conversations and their results.

use std::net::IpAddr;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_json::Json;
use margay_packet::Time;

use super::events::Event;
use super::*;
use crate::config::AppConfig;
use crate::expect::Awaited;
use crate::file::FileState;
use crate::ftp_data::{Command, Transfer};
use crate::{AppLogOptions, AppSession, LogFor, Outcome, Parse, Parser, Shared, Transaction};

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [198, 51, 100, 1];

struct Talk {
    config: AppConfig,
    shared: Shared,
    flow: FlowCore,
    parser: Box<dyn Parser>,
    outcome: Outcome,
}

impl Talk {
    fn new(config: Config) -> Talk {
        let config = AppConfig { ftp: config, ..AppConfig::default() };
        let flow = FlowCore::new(7, 6, (IpAddr::from(CLIENT), 40_000), (IpAddr::from(SERVER), 21), Time(0));
        let parser = (PROTOCOL.parser)(&config, &flow);
        Talk { config, shared: Shared::default(), flow, parser, outcome: Outcome::More }
    }

    fn of(says: &[(Direction, &str)]) -> Talk {
        let mut t = Talk::new(Config::default());
        says.iter().for_each(|(dir, text)| t.say(*dir, text));
        t
    }

    fn feed(&mut self, dir: Direction, text: &str, end: bool) {
        let mut cx = Parse {
            config: &self.config,
            shared: &mut self.shared,
            flow: &self.flow,
            time: Time(0),
            end,
            inline: false,
        };
        let parsed = self.parser.data(&mut cx, dir, text.as_bytes());
        self.outcome = parsed.outcome;
        if parsed.outcome == Outcome::More {
            assert_eq!(parsed.consumed, text.len(), "{text}");
        }
    }

    /// Frees complete transactions.
    fn free(&mut self) {
        for id in self.parser.txs() {
            if self.parser.tx(id).is_some_and(|t| t.base().progress == [COMPLETE; 2]) {
                self.parser.free_tx(&mut self.shared, id);
            }
        }
    }

    fn say(&mut self, dir: Direction, text: &str) {
        self.feed(dir, text, false);
    }

    fn tx(&self, id: u64) -> &dyn Transaction {
        self.parser.tx(id).unwrap()
    }

    fn log(&self, id: u64) -> String {
        let mut json = Json::new();
        json.item_object();
        self.tx(id).log(&mut json, &AppLogOptions::default(), LogFor::Event);
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).unwrap()
    }

    /// The last announced connection: port, the peer that opens it, and purpose.
    fn last(&self) -> (u16, IpAddr, Awaited) {
        let e = self.shared.expected.last().unwrap();
        assert_eq!(e.parent, 7);
        (e.flow.port, e.flow.from, e.what.clone())
    }
}

fn file(command: Command, name: &str, by_opener: bool) -> Awaited {
    Awaited::Carries(Transfer { command, name: name.into() }.carried(by_opener))
}

#[test]
fn replies_are_those_of_their_commands() {
    let t = Talk::of(&[
        (ToClient, "220-Hello\r\n 220 not yet\r\n220 now\r\n"),
        (ToServer, "user a\r\nPASS\r\n"),
        (ToClient, "331 more\r\n230 in\r\n"),
        (ToServer, "NOOP\r\n"),
    ]);
    assert_eq!(t.parser.txs(), 0..4);
    assert_eq!(
        t.log(0),
        r#"{"ftp":{"completion_code":["220","220"],"reply":["Hello"," 220 not yet","now"],"reply_received":"yes","reply_truncated":false}}"#
    );
    assert_eq!(
        t.log(1),
        r#"{"ftp":{"command":"USER","command_data":"a","command_truncated":false,"completion_code":["331"],"reply":["more"],"reply_received":"yes","reply_truncated":false}}"#
    );
    assert!(t.log(2).starts_with(r#"{"ftp":{"command":"PASS","completion_code":["230"]"#));
    assert_eq!(t.log(3), r#"{"ftp":{"command":"NOOP","reply_received":"no","reply_truncated":false}}"#);
    assert_eq!([0, 1, 2, 3].map(|i| t.tx(i).base().progress), [[2, 2], [2, 2], [2, 2], [1, 0]]);
    // Rules do not inspect the greeting, because it answers no command.
    let reply = |i, id| t.tx(i).buffer(id, ToClient, 0, &mut Vec::new()).is_some();
    assert_eq!([0, 1].map(|i| [reply(i, REPLY), reply(i, COMPLETION_CODE)]), [[false; 2], [true; 2]]);
    let answered = |i, dir| t.tx(i).number(REPLY_RECEIVED, dir, 0);
    assert_eq!([answered(0, ToClient), answered(1, ToClient), answered(1, ToServer)], [None, Some(1), None]);
    // The greeting has no data to inspect towards the server.
    assert!(t.tx(0).base().detect[0].done && !t.tx(0).base().updated[0]);
}

/// A line without a code counts as a reply even if the connection ends with it. Outside of a reply of several lines, three
/// digits are a code, whatever follows them.
#[test]
fn unusual_reply_lines() {
    let t = Talk::of(&[(ToServer, "STAT\r\n"), (ToClient, "21 x\r\n")]);
    assert_eq!(
        t.log(0),
        r#"{"ftp":{"command":"STAT","reply":["21 x"],"reply_received":"yes","reply_truncated":false}}"#
    );
    let t = Talk::of(&[(ToServer, "STAT\r\n"), (ToClient, "211-a\r\n2111 b\r\n211\tc\r\n211 d\r\n211\te\r\n")]);
    assert!(
        t.log(0).contains(r#""completion_code":["211","211"],"reply":["a","2111 b","211\tc","d"]"#),
        "{}",
        t.log(0)
    );
    assert!(t.log(1).contains(r#""completion_code":["211"],"reply":["e"]"#), "{}", t.log(1));
}

/// IRC begins with commands of FTP.
#[test]
fn lines_that_are_no_reply_end_a_transaction() {
    let mut t = Talk::of(&[(ToServer, "USER a\r\nNICK b\r\n"), (ToClient, ":x NOTICE 1 \r\n:x NOTICE 2\r\n")]);
    t.say(ToClient, ":x 001\r\n");
    assert_ne!(t.tx(0).base().progress, [2, 2]);
    t.say(ToServer, "USERHOST b\r\n");
    assert_eq!(
        t.log(0),
        r#"{"ftp":{"command":"USER","command_data":"a","command_truncated":false,"reply":[":x NOTICE 1",":x NOTICE 2",":x 001"],"reply_received":"yes","reply_truncated":false}}"#
    );
    assert!(t.log(2).starts_with(r#"{"ftp":{"command":"USER","command_data":"OST b""#), "{}", t.log(2));
    assert_eq!(t.tx(0).base().progress, [2, 2]);
}

#[test]
fn a_preliminary_reply_is_not_the_last() {
    let mut t = Talk::of(&[(ToServer, "LIST\r\nPWD\r\n"), (ToClient, "150-a\r\n150 b\r\n")]);
    assert_eq!(t.tx(0).base().progress, [1, 1]);
    t.say(ToClient, "226 c\r\n257 /\r\n");
    assert!(t.log(0).contains(r#"["150","150","226"]"#));
    assert!(t.log(1).contains(r#"["257"]"#));
}

#[test]
fn active_mode() {
    let mut t = Talk::of(&[(ToServer, "PORT 192,0,2,1,4,1\r\n")]);
    assert_eq!(t.last(), (1025, SERVER.into(), Awaited::Pending));
    assert_eq!(t.tx(0).number(DYNAMIC_PORT, ToServer, 0), Some(1025));
    assert_eq!(t.tx(0).number(MODE, ToClient, 0), Some(ACTIVE));
    assert_eq!(t.tx(0).number(BOUNCE, ToServer, 0), Some(0));
    t.say(ToClient, "200 ok\r\n");
    t.say(ToServer, "RETR a b.txt\r\n");
    assert_eq!(t.last(), (1025, SERVER.into(), file(Command::Retr, "a b.txt", true)));
    t.say(ToClient, "150 go\r\n226 ok\r\n");
    // A port is valid for one transfer.
    t.say(ToServer, "STOR c\r\n");
    assert_eq!(t.shared.expected.len(), 2);
    assert!(t.tx(2).base().events.has(Event::FileBeforePort as u8));
}

#[test]
fn passive_mode() {
    let mut t = Talk::of(&[(ToServer, "PASV\r\n"), (ToClient, "227 Entering (10,9,9,9,4,2).\r\n")]);
    // Whatever address the reply has, the server's own counts.
    assert_eq!(t.last(), (1026, CLIENT.into(), Awaited::Pending));
    assert_eq!(t.tx(0).number(MODE, ToServer, 0), Some(PASSIVE));
    t.say(ToServer, "EPSV\r\nSTOU\r\n");
    t.say(ToClient, "229 Entering (|||1027|)\r\n");
    assert_eq!(t.last(), (1027, CLIENT.into(), Awaited::Pending));
    t.say(ToServer, "APPE x\r\n");
    assert_eq!(t.last(), (1027, CLIENT.into(), file(Command::Appe, "x", true)));
    t.say(ToClient, "550 no\r\n550 no\r\n");
    assert_eq!(t.last(), (1027, CLIENT.into(), Awaited::Nothing));
    // The client may use the port again.
    t.say(ToServer, "RETR x\r\n");
    assert_eq!(t.last(), (1027, CLIENT.into(), file(Command::Retr, "x", false)));
    t.say(ToClient, "226 ok\r\n");
    t.say(ToServer, "EPRT |1|192.0.2.9|1028|\r\nLIST\r\n");
    assert_eq!(t.last(), (1028, SERVER.into(), file(Command::List, "", true)));
    assert_eq!(t.tx(5).number(BOUNCE, ToServer, 0), Some(1));
}

#[test]
fn a_refused_port_is_none() {
    let mut t = Talk::of(&[(ToServer, "PORT 192,0,2,1,4,1\r\n"), (ToClient, "500 no\r\n"), (ToServer, "RETR a\r\n")]);
    assert_eq!(t.last().2, Awaited::Nothing);
    assert!(t.tx(1).base().events.has(Event::FileBeforePort as u8));
    t.say(ToServer, "PORT 1234\r\n");
    assert_eq!(t.tx(2).number(MODE, ToServer, 0), None);
}

#[test]
fn lines_that_are_too_long() {
    let mut t = Talk::new(Config { max_line: 10, ..Config::default() });
    t.say(ToServer, "RETR 0123456789");
    t.say(ToServer, "abc\r\nNOOP\r\n");
    t.say(ToClient, "550 0123456789\r\n200 ok\r\n");
    assert!(t.log(0).contains(r#""command_data":"01234","command_truncated":true"#), "{}", t.log(0));
    assert!(t.log(0).contains(r#""reply":["012345"],"reply_received":"yes","reply_truncated":true"#), "{}", t.log(0));
    let events = |id| t.tx(id).base().events.as_slice().to_vec();
    assert_eq!(events(0), [Event::RequestTooLong, Event::FileBeforePort, Event::ResponseTooLong].map(|e| e as u8));
    assert!(t.log(1).contains("NOOP") && events(1).is_empty());
}

#[test]
fn too_many_wait() {
    let mut t = Talk::new(Config { max_tx: 2, ..Config::default() });
    for _ in 0..5 {
        t.say(ToServer, "PWD\r\n");
        t.say(ToClient, "257 /\r\n");
        t.free();
    }
    t.say(ToServer, "PWD\r\nPWD\r\nPWD\r\nPWD\r\nPWD\r\n");
    // The third command is not parsed, nor is anything after it.
    assert_eq!((t.outcome, t.parser.txs()), (Outcome::Failed, 5..7));
    let events = |id| t.tx(id).base().events.as_slice();
    assert_eq!(events(5), [Event::TooManyTransactions as u8]);
    assert!(events(6).is_empty());
    assert_eq!(t.shared.counters.tx_limit[AppProto::Ftp as usize], 1);
}

/// Answered commands do not make the parser give up: it stops until they are inspected, and continues.
#[test]
fn answered_commands_that_were_not_yet_freed_only_delay() {
    let mut t = Talk::new(Config { max_tx: 1, ..Config::default() });
    for _ in 0..2 {
        t.say(ToServer, "PWD\r\n");
        t.say(ToClient, "257 /\r\n");
    }
    t.say(ToServer, "NOOP\r\n");
    assert_eq!((t.outcome, t.parser.txs()), (Outcome::Full, 0..2));
    t.free();
    t.say(ToServer, "NOOP\r\n");
    assert_eq!((t.outcome, t.parser.txs()), (Outcome::More, 2..3));
    assert!(t.tx(2).base().events.as_slice().is_empty());
    assert_eq!(t.shared.counters.tx_limit[AppProto::Ftp as usize], 0);
}

#[test]
fn little_memory() {
    let mut t = Talk::new(Config { memcap: 45, ..Config::default() });
    t.say(ToServer, "USER anonymous\r\nCWD /0123456789/0123456789/0123456789/0123456789\r\n");
    t.say(ToClient, "331 please\r\n");
    assert!(t.log(0).contains("anonymous"));
    assert!(t.log(1).contains(r#""command":"CWD","command_truncated":true"#), "{}", t.log(1));
    assert!(t.shared.counters.ftp_memory <= 45 && t.shared.counters.ftp_memcap == 2);
    for id in t.parser.txs() {
        t.parser.free_tx(&mut t.shared, id);
    }
    assert_eq!(t.shared.counters.ftp_memory, 0);
}

#[test]
fn a_server_cannot_make_a_transaction_large() {
    let mut t = Talk::new(Config::default());
    for _ in 0..100 {
        t.say(ToClient, &"220-0123456789012345678901234567890\r\n".repeat(1000));
    }
    assert_eq!(t.parser.txs(), 0..1);
    assert!(t.shared.counters.ftp_memory < 128 << 10, "{}", t.shared.counters.ftp_memory);
    assert!(t.log(0).ends_with(r#""reply_truncated":true}}"#));
    // Unsolicited replies become transactions, but only a few.
    for _ in 0..100 {
        t.say(ToClient, &"220 x\r\n".repeat(100));
    }
    assert_eq!(t.outcome, Outcome::Full);
    assert!(t.parser.txs().count() <= 2048);
}

#[test]
fn the_end() {
    let mut t = Talk::of(&[(ToServer, "PWD\r\nQUIT\r\n")]);
    // Lines without an end are ignored.
    t.feed(ToServer, "NOOP", true);
    t.feed(ToClient, "257 /\r\n221 ", true);
    assert!(t.log(0).contains(r#""reply":["/"]"#));
    assert_eq!((t.parser.txs().count(), [0, 1].map(|i| t.tx(i).base().progress)), (2, [[2, 2]; 2]));
    assert_eq!([0, 1].map(|i| t.tx(i).number(REPLY_RECEIVED, ToClient, 0)), [Some(1), Some(0)]);
}

/// A client may go on behind the end of a server whose last lines were not a reply: its commands count from there.
#[test]
fn commands_after_the_server_ended() {
    let mut t = Talk::new(Config { max_tx: 2, ..Config::default() });
    t.say(ToServer, "USER a\r\n");
    t.feed(ToClient, ":x NOTICE\r\n", true);
    t.say(ToServer, "PWD\r\nPWD\r\nPWD\r\n");
    assert_eq!((t.outcome, t.parser.txs()), (Outcome::Failed, 0..3));
    assert!(t.tx(1).base().events.has(Event::TooManyTransactions as u8));
}

#[test]
fn tls_follows() {
    let t = Talk::of(&[(ToClient, "220 x\r\n"), (ToServer, "AUTH TLS\r\n"), (ToClient, "234 go\r\n")]);
    assert_eq!(t.outcome, Outcome::Change(Some(AppProto::Tls)));
    assert!(t.log(1).contains(r#""command":"AUTH TLS","completion_code""#));
    for (command, reply, tls) in [
        ("AUTH SSL", "234 go", true),
        ("auth tls-c", "234 go", true),
        ("AUTH  TLS-P", "234 go", true),
        ("AUTH SSL", "504 unknown", false),
        ("AUTH GSSAPI", "334 go on", false),
        ("AUTH", "234 go", false),
    ] {
        let (command, reply) = (format!("{command}\r\n"), format!("{reply}\r\n"));
        let t = Talk::of(&[(ToClient, "220 x\r\n"), (ToServer, &command), (ToClient, &reply)]);
        assert_eq!(t.outcome == Outcome::Change(Some(AppProto::Tls)), tls, "{command}");
    }
    // The handshake need not wait for the reply, and commands before it do not hide it.
    let mut t = Talk::of(&[(ToClient, "220 x\r\n"), (ToServer, "AUTH SSL\r\nNOOP\r\nAUTH TLS\r\n")]);
    let hello = "\x16\x03\x01";
    let mut cx =
        Parse { config: &t.config, shared: &mut t.shared, flow: &t.flow, time: Time(0), end: false, inline: false };
    assert_eq!(t.parser.data(&mut cx, ToServer, hello.as_bytes()).consumed, 0);
    t.say(ToClient, "504 no\r\n");
    assert_eq!(t.outcome, Outcome::Resume);
    t.say(ToClient, "200 ok\r\n");
    t.say(ToClient, "234 go\r\n");
    assert_eq!(t.outcome, Outcome::Change(Some(AppProto::Tls)));
}

#[test]
fn what_the_server_said_first_is_first_on_any_port() {
    let config = AppConfig::default();
    let flow = FlowCore::new(1, 6, (IpAddr::from(CLIENT), 40_000), (IpAddr::from(SERVER), 2121), Time(0));
    let (mut session, mut shared) = (AppSession::default(), Shared::default());
    let mut data = |dir, text: &str| {
        let mut cx =
            Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
        let fed = session.data(&mut cx, dir, text.as_bytes());
        (fed.consumed, fed.again, session.tx_count())
    };
    let (hello, user) = ("220 a server that has a name\r\n", "USER a\r\n");
    assert_eq!(data(ToClient, hello), (0, false, 0));
    assert_eq!(data(ToServer, user), (0, true, 0));
    assert_eq!(data(ToServer, user), (0, false, 0));
    assert_eq!(data(ToClient, hello), (hello.len(), true, 1));
    assert_eq!(data(ToServer, user), (user.len(), false, 2));
}

#[test]
fn midstream_the_first_command_turns_a_flow_that_the_greeting_began() {
    let config = AppConfig::default();
    let flow = FlowCore::new(1, 6, (IpAddr::from(SERVER), 2121), (IpAddr::from(CLIENT), 40_000), Time(0));
    let (mut session, mut shared) = (AppSession::default(), Shared::default());
    session.set_midstream();
    for (dir, text, turns) in [(ToServer, "220 a server that has a name\r\n", false), (ToClient, "USER a\r\n", true)] {
        let mut cx =
            Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
        let text = format!("{text:4096}");
        session.data(&mut cx, dir, text.as_bytes());
        assert_eq!(session.wants_turn(), turns);
    }
    assert_eq!(session.tx_count(), 0);
}

/// A direction that detection gave up before the flow's protocol was known is not shown as failed, nor is one that it gave up
/// with data that the parser could not read either.
#[test]
fn which_direction_is_shown_as_failed() {
    let config = AppConfig::default();
    let flow = FlowCore::new(1, 6, (IpAddr::from(CLIENT), 40_000), (IpAddr::from(SERVER), 2121), Time(0));
    let nothing = vec![0xff; 4096];
    let greeting = b"SSH-2.0-x\r\n".to_vec();
    for first in [ToServer, ToClient] {
        let (mut session, mut shared) = (AppSession::default(), Shared::default());
        let mut cx =
            Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
        let mut acts = [(ToServer, &nothing), (ToClient, &greeting)];
        acts.sort_by_key(|(d, _)| *d != first);
        for (dir, bytes) in acts {
            session.data(&mut cx, dir, bytes);
        }
        assert_eq!(session.side, [AppProto::Failed, AppProto::Ssh], "{first:?} first");
        assert_eq!(session.sides_shown(), [AppProto::Unknown, AppProto::Ssh], "{first:?} first");
    }
}

/// The files that `dir` of a data connection carried, and whether the client opened it.
fn carried(
    command: Command,
    by_opener: bool,
    reversed: bool,
    dir: Direction,
    gap: bool,
) -> Vec<(bool, u64, FileState)> {
    let config = AppConfig::default();
    let flow = FlowCore::new(2, 6, (IpAddr::from(CLIENT), 40_001), (IpAddr::from(SERVER), 1025), Time(0));
    let (mut session, mut shared) = (AppSession::default(), Shared::default());
    let mut cx = Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
    let transfer = Transfer { command, name: b"a".to_vec() };
    session.begin(&mut cx, transfer.carried(by_opener), reversed);
    assert_eq!(session.data(&mut cx, dir, b"GET / HTTP/1.0\r\n\r\n").consumed, 18);
    if gap {
        session.gap(&mut cx, dir, 10);
    }
    cx.end = true;
    session.data(&mut cx, dir, b"more");
    assert_eq!(session.side, [AppProto::FtpData; 2]);
    let Some(tx) = session.parsers()[0].tx(0) else { return Vec::new() };
    let side = if command.is_upload() { ToServer } else { ToClient };
    assert_eq!(tx.number(0, side, 0), Some(command as u64));
    assert_eq!(tx.number(0, dir, 0), Some(command as u64));
    assert_eq!(tx.number(0, side.reverse(), 0), (dir != side).then_some(command as u64));
    tx.base().files.all().iter().map(|f| (f.to_client, f.size(), f.state)).collect()
}

#[test]
fn data_connections() {
    // Passive: the client opens it.
    assert_eq!(carried(Command::Retr, false, false, ToClient, false), [(true, 22, FileState::Closed)]);
    assert_eq!(carried(Command::Retr, false, false, ToServer, false), []);
    assert_eq!(carried(Command::Stor, true, false, ToServer, false), [(false, 22, FileState::Closed)]);
    // Active: the server opens it, so it is the client of this flow.
    assert_eq!(carried(Command::Retr, true, false, ToServer, false), [(false, 22, FileState::Closed)]);
    // A list is not a file.
    assert_eq!(carried(Command::Mlsd, true, false, ToServer, true), []);
    // The beginning of the flow was not seen.
    assert_eq!(carried(Command::Retr, true, true, ToClient, true), [(true, 32, FileState::Truncated)]);
}
