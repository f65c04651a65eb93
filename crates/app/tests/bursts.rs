//! More data at once than the limit of transactions: all of it is inspected within the limit, and responses match their
//! requests.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::net::IpAddr;

use margay_app::session::ParserError;
use margay_app::{AppConfig, AppProto, AppSession, Parse, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_packet::Time;

/// A session, and the values of its transactions before they were freed.
struct Flow {
    config: AppConfig,
    core: FlowCore,
    shared: Shared,
    session: AppSession,
    waiting: [Vec<u8>; 2],
    /// Name of the buffer, direction and content.
    shown: Vec<(&'static str, Direction, String)>,
    /// Event names, one for each transaction that had it.
    events: Vec<&'static str>,
    /// The largest number of transactions at a time.
    most: usize,
    /// How often the parser stopped at the limit.
    pauses: usize,
    error: Option<ParserError>,
}

impl Flow {
    fn new(port: u16, config: AppConfig) -> Flow {
        let ends = ((IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), port));
        Flow {
            config,
            core: FlowCore { state: FlowState::Established, ..FlowCore::new(1, 6, ends.0, ends.1, Time(0)) },
            shared: Shared::default(),
            session: AppSession::default(),
            waiting: Default::default(),
            shown: Vec::new(),
            events: Vec::new(),
            most: 0,
            pauses: 0,
            error: None,
        }
    }

    fn offer(&mut self, dir: Direction) -> bool {
        let mut again = false;
        for _ in 0..8 {
            let held = &mut self.waiting[dir.index()];
            let (config, shared, flow) = (&self.config, &mut self.shared, &self.core);
            let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
            let fed = self.session.data(&mut cx, dir, held);
            held.drain(..fed.consumed);
            again |= fed.again;
            if !fed.again || held.is_empty() {
                break;
            }
        }
        again
    }

    /// Like the engine: parses, inspects and frees a direction's data, in rounds if there is too much.
    fn say(&mut self, dir: Direction, bytes: &[u8]) {
        self.waiting[dir.index()].extend_from_slice(bytes);
        if self.offer(dir) {
            self.offer(dir.reverse());
        }
        loop {
            let full = self.session.take_full();
            self.error = self.error.or(self.session.take_error());
            self.look(false);
            if !full {
                return;
            }
            self.pauses += 1;
            self.offer(dir.reverse());
            self.offer(dir);
        }
    }

    /// Inspects transactions, and frees those that are complete, or all.
    fn look(&mut self, all: bool) {
        let (shown, events) = (&mut self.shown, &mut self.events);
        let mut live = 0;
        for parser in self.session.parsers_mut() {
            let of = protocol(parser.proto()).expect("it has a parser");
            let mut from = 0;
            while let Some(id) = parser.next_tx(from) {
                from = id + 1;
                live += 1;
                let tx = parser.tx(id).expect("it is there");
                let complete = (0..2).all(|d| tx.base().progress[d] >= of.complete()[d]);
                if !complete && !all {
                    continue;
                }
                events.extend(tx.base().events.as_slice().iter().map(|e| of.events[usize::from(*e)]));
                for def in of.buffers {
                    for d in [ToServer, ToClient] {
                        for index in 0.. {
                            let mut scratch = Vec::new();
                            let Some(found) = tx.buffer(def.id, d, index, &mut scratch) else { break };
                            shown.push((def.name, d, String::from_utf8_lossy(found.data).into_owned()));
                            if !def.kind.is_several() {
                                break;
                            }
                        }
                    }
                }
                parser.free_tx(&mut self.shared, id);
            }
        }
        self.most = self.most.max(live);
    }

    fn all(&self, name: &str, dir: Direction) -> Vec<&str> {
        self.shown.iter().filter(|s| (s.0, s.1) == (name, dir)).map(|s| s.2.as_str()).collect()
    }
}

fn numbered(from: usize, to: usize, f: impl Fn(usize) -> String) -> Vec<u8> {
    (from..to).map(f).collect::<String>().into_bytes()
}

#[test]
fn requests_of_http() {
    const MAX: usize = 10;
    let mut config = AppConfig::default();
    config.http1.default.max_tx = MAX as u32;
    let mut f = Flow::new(80, config);
    f.say(ToServer, &numbered(0, 1000, |n| format!("GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n")));
    // Some of the responses, then more requests, then the other responses.
    let response = |n: usize| format!("HTTP/1.1 200 OK\r\nX-Number: {n}\r\nContent-Length: 3\r\n\r\nabc");
    f.say(ToClient, &numbered(0, 700, response));
    f.say(ToServer, &numbered(1000, 1500, |n| format!("GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n")));
    f.say(ToClient, &numbered(700, 1500, response));
    f.look(true);
    assert_eq!(f.error, None);
    let uris: Vec<String> = (0..1500).map(|n| format!("/{n}")).collect();
    assert_eq!(
        f.all("http.uri", ToServer).iter().filter(|u| !u.contains("not_seen")).collect::<Vec<_>>(),
        uris.iter().collect::<Vec<_>>()
    );
    let numbers = f.all("http.header", ToClient).join(" ");
    for n in [0, 1, 9, 10, 699, 700, 999, 1000, 1499] {
        assert!(numbers.contains(&format!("X-Number: {n}\r\n")), "{n}");
    }
    assert_eq!(f.all("http.header", ToClient).len(), 1500);
    assert!(f.most <= 2 * MAX && f.pauses > 0, "{} {}", f.most, f.pauses);
    assert!(f.events.contains(&"too_many_transactions"));
    assert!(!f.events.contains(&"unable_to_match_response_to_request"), "each response has its request");
    assert!(f.shared.counters.tx_limit[AppProto::Http1 as usize] > 900);
}

/// A response is parsed according to its request, even if the request's transaction is gone.
#[test]
fn responses_to_requests_that_are_gone() {
    let mut config = AppConfig::default();
    config.http1.default.max_tx = 4;
    let mut f = Flow::new(80, config);
    let head =
        |n: usize| format!("{} /{n} HTTP/1.1\r\nHost: h\r\n\r\n", if n.is_multiple_of(3) { "HEAD" } else { "GET" });
    f.say(ToServer, &numbered(0, 100, head));
    let response = |n: usize| {
        let body = if n.is_multiple_of(3) { "" } else { "abc" };
        format!("HTTP/1.1 200 OK\r\nX-Number: {n}\r\nContent-Length: 3\r\n\r\n{body}")
    };
    f.say(ToClient, &numbered(0, 100, response));
    f.look(true);
    assert_eq!((f.error, f.all("http.header", ToClient).len()), (None, 100));
    let all = f.all("http.header", ToClient).join(" ");
    assert!((0..100).all(|n| all.contains(&format!("X-Number: {n}\r\n"))), "each was read to its end");
}

#[test]
fn a_server_that_nobody_asked() {
    let mut config = AppConfig::default();
    config.http1.default.max_tx = 4;
    let mut f = Flow::new(80, config);
    f.say(ToServer, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    f.say(ToClient, &numbered(0, 100, |n| format!("HTTP/1.1 200 OK\r\nX-Number: {n}\r\nContent-Length: 0\r\n\r\n")));
    f.look(true);
    assert_eq!((f.error, f.all("http.header", ToClient).len()), (None, 100));
    assert!(f.most <= 8);
}

#[test]
fn mails() {
    const MAX: usize = 5;
    let mut config = AppConfig::default();
    config.smtp.max_tx = MAX as u32;
    let mut f = Flow::new(25, config);
    f.say(ToClient, b"220 mx ESMTP\r\n");
    f.say(ToServer, b"EHLO me\r\n");
    f.say(ToClient, b"250 mx\r\n");
    // The client does not wait for replies.
    let mail = |n: usize| format!("MAIL FROM:<{n}@a>\r\nRCPT TO:<b@c>\r\nBDAT 19 LAST\r\nSubject: s{n:05}\r\n\r\n");
    f.say(ToServer, &numbered(0, 300, mail));
    f.look(true);
    let subjects: Vec<String> = (0..300).map(|n| format!("s{n:05}")).collect();
    assert_eq!(f.all("email.subject", ToServer), subjects);
    assert_eq!(f.error, None);
    assert!(f.most <= 2 * MAX && f.pauses > 50, "{} {}", f.most, f.pauses);
    // Mails that are abandoned before their data, one after the other.
    f.say(ToServer, &numbered(0, 300, |n| format!("MAIL FROM:<x{n}@a>\r\nRSET\r\n")));
    f.look(true);
    assert!(f.all("smtp.mail_from", ToServer).contains(&"<x299@a>"), "{:?}", f.shown);
    assert!(f.most <= 2 * MAX, "{}", f.most);
}

/// At the limit of commands without a reply, the parser gives up. Rules still see the commands before that.
#[test]
fn commands_of_ftp() {
    const MAX: usize = 8;
    let mut config = AppConfig::default();
    config.ftp.max_tx = MAX as u32;
    let mut f = Flow::new(21, config);
    f.say(ToClient, b"220 x FTP\r\n");
    // The number of answered commands is not limited.
    for n in 0..5 * MAX {
        f.say(ToServer, format!("CWD /{n}\r\n").as_bytes());
        f.say(ToClient, b"250-several\r\n250 done\r\n");
    }
    assert_eq!((f.error, f.events.len()), (None, 0));
    f.say(ToServer, &numbered(0, 500, |n| format!("CWD /burst{n}\r\n")));
    f.look(true);
    assert_eq!((f.error, &f.events[..]), (Some(ParserError::Parser), &["too_many_transactions"][..]));
    let commands = f.all("ftp.command_data", ToServer);
    assert_eq!((commands.len(), commands[6 * MAX - 1]), (6 * MAX, "/burst7"));
    assert!(f.most <= 2 * MAX);
}

/// Unsolicited replies of a server are handled in rounds.
#[test]
fn replies_of_ftp() {
    const MAX: usize = 8;
    let mut config = AppConfig::default();
    config.ftp.max_tx = MAX as u32;
    let mut f = Flow::new(21, config);
    f.say(ToClient, b"220 x FTP\r\n");
    f.say(ToClient, &numbered(0, 500, |n| format!("250-several\r\n250 reply {n}\r\n")));
    assert_eq!(f.error, None);
    // Rules do not inspect unsolicited replies.
    assert!(f.all("ftp.reply", ToClient).is_empty());
    assert!(f.most <= 2 * MAX && f.pauses > 0, "{} {}", f.most, f.pauses);
}

#[test]
fn messages_of_dns() {
    let mut config = AppConfig::default();
    config.dns.max_tx = 16;
    let mut f = Flow::new(53, config);
    let query = |n: usize| {
        let name = format!("n{n:04}");
        let mut q = vec![0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
        q.extend(name.as_bytes());
        q.extend([0, 0, 1, 0, 1]);
        q[1] = (q.len() - 2) as u8;
        q
    };
    f.say(ToServer, &(0..600).flat_map(query).collect::<Vec<u8>>());
    f.look(true);
    let names = f.all("dns.query", ToServer);
    assert_eq!((names.len(), names[599], f.most), (600, "n0599", 16));
}

#[test]
fn streams_of_http2() {
    const MAX: usize = 6;
    let mut config = AppConfig::default();
    config.http2.max_streams = MAX as u32;
    let mut f = Flow::new(80, config);
    let request = |n: u32| {
        let path = format!("/{n:04}");
        // GET, http, and a path that is not stored in the table.
        let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
        block.extend(path.as_bytes());
        let mut frame = vec![0, 0, block.len() as u8, 1, 5];
        frame.extend((2 * n + 1).to_be_bytes());
        [frame, block].concat()
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    f.say(ToServer, &[preface, (0..400).flat_map(request).collect()].concat());
    f.look(true);
    let paths = f.all("http.uri", ToServer);
    assert_eq!((paths.len(), paths[399], f.error), (400, "/0399", None));
    assert!(f.most <= 2 * MAX + 4 && f.pauses > 0, "{}", f.most);
}

#[test]
fn calls_of_dcerpc() {
    const MAX: usize = 6;
    let mut config = AppConfig::default();
    config.settings.set(AppProto::Dcerpc, 0, MAX as u64);
    let mut f = Flow::new(135, config);
    let bind = b"\x05\0\x0b\x03\x10\0\0\0\x48\0\0\0\x01\0\0\0\xd0\x16\xd0\x16\0\0\0\0\x01\0\0\0\0\0\x01\0\xe1\xaf\x83\x08\
        \x5d\x1f\xc9\x11\x91\xa4\x08\0\x2b\x14\xa0\xfa\x03\0\0\0\x04\x5d\x88\x8a\xeb\x1c\xc9\x11\x9f\xe8\x08\0\x2b\x10\x48\x60\x02\0\0\0";
    f.say(ToServer, bind);
    let request = |n: u32| {
        let stub = format!("stub{n:04}");
        let mut pdu = b"\x05\0\0\x03\x10\0\0\0\x20\0\0\0".to_vec();
        pdu.extend((n + 2).to_le_bytes());
        pdu.extend([8, 0, 0, 0, 0, 0, 9, 0]);
        pdu.extend(stub.as_bytes());
        pdu
    };
    f.say(ToServer, &(0..500).flat_map(request).collect::<Vec<u8>>());
    f.look(true);
    let stubs = f.all("dcerpc.stub_data", ToServer);
    assert_eq!((stubs.len(), stubs[499], f.error), (500, "stub0499", None));
    assert!(f.most <= 2 * MAX && f.pauses > 0, "{}", f.most);
}

/// Requests are handled in rounds once the server was seen; before that the parser gives up at the limit.
#[test]
fn messages_of_smb() {
    const MAX: usize = 6;
    let config = || {
        let mut config = AppConfig::default();
        config.smb.max_tx = MAX as u32;
        config
    };
    let header = |flags: u8, n: u64| {
        let mut m = b"\xfeSMB\x40\0\0\0\0\0\0\0\x03\0\x01\0".to_vec();
        m.extend([flags, 0, 0, 0, 0, 0, 0, 0]);
        m.extend(n.to_le_bytes());
        m.extend([0; 32]);
        m
    };
    let message = |m: &[u8]| [&[0, 0, 0, m.len() as u8][..], m].concat();
    let connect = |n: u64| {
        let share: Vec<u8> = format!("\\\\srv\\share{n:04}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut m = header(0, n);
        m.extend([9, 0, 0, 0, 72, 0, share.len() as u8, 0]);
        m.extend(&share);
        message(&m)
    };
    let connected = |n: u64| {
        let mut m = header(1, n);
        m.extend([16, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        message(&m)
    };
    let mut f = Flow::new(445, config());
    f.say(ToServer, &connect(0));
    f.say(ToClient, &connected(0));
    f.say(ToServer, &(1..400).flat_map(connect).collect::<Vec<u8>>());
    f.look(true);
    let shares = f.all("smb.share", ToServer);
    assert_eq!((shares.len(), shares[399], f.error), (400, "\\\\srv\\share0399", None), "{shares:?}");
    assert!(f.most <= 2 * MAX + 2 && f.pauses > 0, "{}", f.most);
    // The server was never seen. Rules still see the requests before the limit.
    let mut f = Flow::new(445, config());
    f.say(ToServer, &(0..400).flat_map(connect).collect::<Vec<u8>>());
    f.look(true);
    assert_eq!((f.error, f.all("smb.share", ToServer).len()), (Some(ParserError::Parser), MAX));
    assert_eq!(f.events, ["too_many_transactions"]);
}

/// A flow's memory includes the parser itself, while it exists.
#[test]
fn memory_has_the_parser_itself_in_it() {
    let mut flow = Flow::new(80, AppConfig::default());
    flow.say(ToServer, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    flow.say(ToClient, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let parser: usize = flow.session.parsers().iter().map(|p| size_of_val(&**p)).sum();
    assert!(parser > 0);
    let held: u64 = flow.session.parsers_mut().iter_mut().map(|p| p.memory()).sum();
    let all = flow.session.memory();
    assert!(all >= held + parser as u64, "{all} bytes for {parser} and {held} that it holds");
    let Flow { config, core, shared, session, .. } = &mut flow;
    let mut cx = Parse { config, shared, flow: core, time: Time(0), end: false, inline: false };
    session.fail(&mut cx, ParserError::Alloc);
    assert!(session.tidy() && !session.tidy());
    assert!(session.memory() < parser as u64, "{}", session.memory());
}
