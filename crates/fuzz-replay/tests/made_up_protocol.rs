//! A protocol that is unknown to the rest of the workspace. With only the declaration here, it is recognised, parsed, matched by
//! its own keywords, logged, counted, listed and fuzzed.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

use margay_app::config::{AppConfig, AppLogOptions};
use margay_app::conversation::{Content, Conversation, Framing, Turn, parser};
use margay_app::declare::{EveOption, Keyword, KeywordDirection, Setting, Unit};
use margay_app::recognise::{Pattern, Recognition, TCP, UDP};
use margay_app::{AppProto, Found, LogFor, Outcome, Protocol, TxBase};
use margay_flow::{Direction, FlowCore};
use margay_json::Json;

mod events {
    //! The parser's events.

    margay_app::events! {
        "greetings";
        NoName "no_name";
    }
}

margay_app::keywords! {
    Name Keyword::buffer(&["greeting.name"], KeywordDirection::ToServer);
    Warmth Keyword::words(&["greeting.warmth"], 9, &[("cold", 1), ("warm", 7)], KeywordDirection::ToClient);
}

const LONGEST: usize = 0;
const SHOW_WARMTH: usize = 0;

const fn greets(transport: u8) -> Pattern {
    Pattern { transport, ..Pattern::tcp(Direction::ToServer, b"GREET ") }
}

/// A client greets with its name and a line feed, and the server answers with a digit and a line feed.
static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[greets(TCP), greets(UDP)], probes: &[] },
    parser: parser::<Greetings>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    settings: &[Setting { key: "longest", unit: Unit::Bytes, default: 100, about: "Longest name." }],
    eve_options: &[EveOption {
        key: "show-warmth",
        unit: Unit::Flag,
        default: 0,
        about: "Whether the answer is shown.",
    }],
    ..Protocol::new(AppProto::Added1, "greeting").logged()
};

#[derive(Debug)]
struct Greetings {
    longest: usize,
    waits: Option<u64>,
}

#[derive(Debug, Default)]
struct Greeting {
    name: Vec<u8>,
    warmth: Option<u8>,
}

impl Conversation for Greetings {
    type Tx = Greeting;
    const PROTO: AppProto = AppProto::Added1;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Greetings { longest: config.settings.get(Self::PROTO, LONGEST) as usize, waits: None }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        match data.iter().position(|b| *b == b'\n') {
            Some(at) => Framing::Message(at + 1),
            None if end => Framing::Skip(data.len()),
            None => Framing::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Greeting>, dir: Direction, message: &[u8]) -> Outcome {
        match (dir, message.trim_ascii_end()) {
            (Direction::ToServer, [b'G', b'R', b'E', b'E', b'T', name @ ..]) => {
                let name = name.trim_ascii_start();
                let name = name.get(..self.longest).unwrap_or(name);
                let tx = turn.open(Greeting { name: name.to_vec(), warmth: None });
                if name.is_empty() {
                    tx.event(events::Event::NoName as u8);
                }
                tx.finish(dir);
                self.waits = Some(tx.base.id);
            }
            (Direction::ToClient, [digit @ b'0'..=b'9']) => {
                if let Some(tx) = self.waits.take().and_then(|id| turn.tx(id)) {
                    tx.content.warmth = Some(digit - b'0');
                    tx.finish(dir);
                }
            }
            _ => return Outcome::Failed,
        }
        Outcome::More
    }
}

impl Content for Greeting {
    fn held(&self) -> u64 {
        self.name.capacity() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        (Id::of(id)? == Id::Name && dir == Direction::ToServer && index == 0).then(|| Found::whole(&self.name))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let warmth = self.warmth.filter(|_| dir == Direction::ToClient && index == 0)?;
        (Id::of(id)? == Id::Warmth).then_some(u64::from(warmth))
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        json.object("greeting");
        json.bytes("name", &self.name);
        if let Some(warmth) = self.warmth.filter(|_| options.options.get(AppProto::Added1, SHOW_WARMTH) != 0) {
            json.uint("warmth", u64::from(warmth));
        }
        json.end_object();
    }
}

/// The environment variable with the command's arguments, one on each line, if this program runs as the command.
const ARGUMENTS: &str = "MADE_UP_PROTOCOL_ARGUMENTS";

/// The command in a separate process, which knows the protocol after it is added.
#[test]
fn as_the_command() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    margay_app::add(&PROTOCOL).expect("it is added before anything else");
    let status = margay_engine::run(arguments.lines().map(Into::into).collect::<Vec<_>>());
    assert_eq!(format!("{status:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
}

/// The command's output with these arguments.
fn margay(arguments: &[&str]) -> String {
    let program = std::env::current_exe().expect("this program");
    let ran = Command::new(program)
        .args(["--exact", "as_the_command", "--nocapture"])
        .env(ARGUMENTS, arguments.join("\n"))
        .output()
        .expect("the program runs");
    let said = [ran.stdout, ran.stderr].map(|s| String::from_utf8_lossy(&s).into_owned()).concat();
    assert!(ran.status.success(), "{said}");
    said
}

/// An Ethernet frame with IPv4 and UDP, between a client's port and port 7777 of a server.
fn datagram(dir: Direction, data: &[u8]) -> Vec<u8> {
    let (client, server) = (([192, 0, 2, 1], 40_000u16), ([198, 51, 100, 1], 7777u16));
    let (from, to) = if dir == Direction::ToServer { (client, server) } else { (server, client) };
    let len = data.len() as u16;
    let mut ip = [&[0x45, 0][..], &(28 + len).to_be_bytes(), &[0, 0, 0, 0, 64, 17, 0, 0], &from.0, &to.0].concat();
    let sum: u32 = ip.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [from.1.to_be_bytes(), to.1.to_be_bytes(), (8 + len).to_be_bytes(), [0, 0]].concat();
    [&[0; 12][..], &[8, 0], &ip, &udp, data].concat()
}

fn capture(path: &Path, datagrams: &[(Direction, &[u8])]) {
    let mut file = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
    for (n, (dir, data)) in datagrams.iter().enumerate() {
        let frame = datagram(*dir, data);
        let len = (frame.len() as u32).to_le_bytes();
        file.extend([&(n as u32 + 1).to_le_bytes()[..], &[0; 4], &len, &len, &frame].concat());
    }
    std::fs::write(path, file).expect("the capture is written");
}

const RULES: &str = "\
    alert greeting any any -> any any (msg:\"by name\"; greeting.name; content:\"Ada\"; startswith; sid:1;)\n\
    alert greeting any any -> any any (msg:\"by warmth\"; greeting.warmth:warm; sid:2;)\n\
    alert greeting any any -> any any (msg:\"no name\"; flow:to_server; app-layer-event:greeting.no_name; sid:3;)\n\
    alert udp any any -> any any (msg:\"another\"; app-layer-protocol:!greeting,to_server; sid:4;)\n\
    alert greeting any any -> any any (msg:\"cold\"; greeting.warmth:<3; sid:5;)\n";

const CONFIGURATION: &str = "%YAML 1.1\n---\n\
    app-layer: {protocols: {greeting: {enabled: yes, longest: 12}}}\n\
    outputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types:\n        - alert\n        - anomaly\n        \
    - stats\n        - flow\n        - greeting: {show-warmth: yes}\n";

#[test]
fn from_packets_to_events() {
    let dir = std::env::temp_dir().join(format!("margay-made-up-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let (client, server) = (Direction::ToServer, Direction::ToClient);
    capture(
        Path::new(&path("a.pcap")),
        &[(client, b"GREET Ada Lovelace of London\n"), (server, b"7\n"), (client, b"GREET \n"), (server, b"5\n")],
    );
    std::fs::write(path("a.rules"), RULES).expect("rules");
    std::fs::write(path("a.yaml"), CONFIGURATION).expect("a configuration");
    margay(&["-r", &path("a.pcap"), "-c", &path("a.yaml"), "-S", &path("a.rules"), "-l", &path(""), "-k", "none"]);

    let text = std::fs::read_to_string(path("eve.json")).expect("events");
    let events: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("each line is JSON")).collect();
    let of = |kind: &str| events.iter().filter(|e| e["event_type"] == kind).collect::<Vec<_>>();
    let mut sids: Vec<u64> = of("alert").iter().filter_map(|e| e["alert"]["signature_id"].as_u64()).collect();
    sids.sort_unstable();
    assert_eq!(sids, [1, 2, 3], "{text}");
    // The name is as long as the setting allows, and the option shows the answer.
    let logged: Vec<_> = of("greeting").iter().map(|e| e["greeting"].to_string()).collect();
    assert_eq!(logged, [r#"{"name":"Ada Lovelace","warmth":7}"#, r#"{"name":"","warmth":5}"#]);
    assert!(of("alert").iter().any(|e| e["greeting"]["name"] == "Ada Lovelace"), "{text}");
    assert_eq!(of("anomaly").first().map(|e| e["anomaly"]["event"].clone()), Some("no_name".into()), "{text}");
    assert_eq!(of("flow").first().map(|e| e["app_proto"].clone()), Some("greeting".into()));
    let stats = of("stats").last().map(|e| e["stats"]["app_layer"].clone()).expect("counters");
    // One counter for each transport.
    let counted = |what: &str| -> u64 {
        let all = stats[what].as_object().into_iter().flatten();
        all.filter(|(k, _)| k.starts_with("greeting")).filter_map(|(_, n)| n.as_u64()).sum()
    };
    assert_eq!((counted("flow"), counted("tx")), (1, 2), "{stats}");
    std::fs::remove_dir_all(&dir).expect("the folder goes");
}

#[test]
fn listings() {
    assert!(margay(&["--list-app-layer-protos"]).contains("\ngreeting\n"));
    let keywords = margay(&["--list-keywords"]);
    assert!(keywords.contains("- greeting.name\n") && keywords.contains("- greeting.warmth\n"), "{keywords}");
    assert!(margay(&["--list-keywords=greeting.name"]).contains("sticky buffer"));
    assert!(margay(&["--list-rule-protos"]).contains("\ngreeting\n"));
    assert!(margay(&["--list-app-layer-hooks"]).contains("\ngreeting\n\ttoserver\n"));
}

/// The target `messages` and its property that the sizes of pieces do not matter.
#[test]
fn fuzzing() {
    if std::env::var_os(ARGUMENTS).is_some() {
        return;
    }
    // No other test in this process may use the list of protocols before this.
    margay_app::add(&PROTOCOL).expect("it is added before anything else");
    for script in [
        &b"\xff>GREET Ada\n\xff<7\n\xff>GREET \n\xff<5\n"[..],
        b"\xff>GREET Ada\nGREET Eve\n\xff<12\n\xff<3\n",
        b"\xff>GREET \xff<\xff{\x09\n\xff>GREET",
    ] {
        for options in 0..4u8 {
            for size in [0, 1, 5] {
                margay_fuzz_replay::messages(&[b"greeting\n", &[options, size][..], script].concat());
            }
        }
    }
    assert!(margay_app::add(&PROTOCOL).is_err_and(|e| e.contains("too late")));
}
