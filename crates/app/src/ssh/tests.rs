//! Conversations, whole and in pieces.

use margay_flow::Direction::{self, ToClient, ToServer};

use super::kex::tests::message;
use super::{BANNER_DONE, Config, DATA_FRAME, EncryptionHandling, FINISHED, HEADER_FRAME, PDU_FRAME};
use crate::parser::{FlowRequests, Outcome};
use crate::proto::AppProto;
use crate::testing::Talk;

const KEXINIT: u8 = 20;
const NEWKEYS: u8 = 21;

const HASSH: Config = Config { hassh: true, encryption: EncryptionHandling::TrackOnly };

fn packet(message: u8, body: &[u8], padding: u8) -> Vec<u8> {
    let length = (2 + body.len() + usize::from(padding)) as u32;
    let mut p = length.to_be_bytes().to_vec();
    p.extend_from_slice(&[padding, message]);
    p.extend_from_slice(body);
    p.resize(p.len() + usize::from(padding), 0);
    p
}

fn kexinit(list: &str) -> Vec<u8> {
    packet(KEXINIT, &message(&[list; 10]), 6)
}

fn talk(ssh: Config) -> Talk {
    let mut t = Talk::tcp(AppProto::Ssh, 22);
    t.config.ssh = ssh;
    t
}

impl Talk {
    /// Sends bytes in pieces of `size`, as long as the parser asks for more.
    fn pieces(&mut self, dir: Direction, bytes: &[u8], size: usize) -> &mut Talk {
        for piece in bytes.chunks(size) {
            if self.outcome == Outcome::More {
                match dir {
                    ToServer => self.client(piece),
                    ToClient => self.server(piece),
                };
            }
        }
        self
    }

    fn progress(&self) -> [u8; 2] {
        self.txs()[0].base().progress
    }

    /// The result of the parser, and its requests.
    fn result(&self) -> (Outcome, FlowRequests) {
        (self.outcome, self.shared.wishes)
    }
}

/// The result of a conversation in pieces of `size`.
fn run(config: Config, said: &[(Direction, Vec<u8>)], size: usize) -> String {
    let mut t = talk(config);
    for (dir, bytes) in said {
        t.pieces(*dir, bytes, size);
    }
    let open = t.txs()[0].is_loggable(false);
    if t.outcome == Outcome::More {
        t.end();
    }
    format!("{open} {:?} {:?} {:?} {}", t.progress(), t.result(), t.events(), t.logs().concat())
}

fn whole(config: Config, said: &[(Direction, Vec<u8>)]) -> String {
    let whole = run(config, said, usize::MAX);
    for size in 1..12 {
        assert_eq!(run(config, said, size), whole, "in pieces of {size}");
    }
    whole
}

#[test]
fn a_session() {
    let said = [
        (ToServer, [&b"SSH-2.0-client comment\r\n"[..], &kexinit("a,b")].concat()),
        (ToClient, [&b"SSH-1.99-server\r\n"[..], &kexinit("c")].concat()),
        (ToServer, [packet(30, &[1; 32], 4), packet(NEWKEYS, b"", 10), vec![0; 70]].concat()),
        (ToClient, [packet(31, &[1; 99], 4), packet(NEWKEYS, b"", 10), vec![0xff; 70]].concat()),
    ];
    let seen = whole(HASSH, &said);
    assert!(seen.starts_with("true [3, 3] (Done, FlowRequests { no_payload: true, bypass: false"), "{seen}");
    assert!(seen.contains(r#""string":"a,b;a,b;a,b;a,b""#) && seen.contains(r#""string":"c;c;c;c""#), "{seen}");
    let seen = whole(Config { hassh: false, encryption: EncryptionHandling::Bypass }, &said);
    assert!(seen.contains("no_payload: false, bypass: true"), "{seen}");
    let want = r#"{"ssh":{"client":{"proto_version":"2.0","software_version":"client"},"server":{"proto_version":"1.99","software_version":"server"}}}"#;
    assert!(seen.ends_with(want), "{seen}");
    let seen = whole(Config { hassh: false, encryption: EncryptionHandling::Full }, &said);
    assert!(seen.contains("(Done, FlowRequests { no_payload: false, bypass: false, stream_depth: None })"), "{seen}");
}

#[test]
fn banners() {
    let long = |n: usize| [&b"SSH-2.0-"[..], &vec![b'a'; n - 8]].concat();
    let cases = [
        (b"SSH-2.0-x\n".to_vec(), "", true),
        (b"SSH-2.0-x\r".to_vec(), "", false),
        (b"SSH-2.0\r\n".to_vec(), "invalid_banner", false),
        (b"ssh-2.0-x\r\n".to_vec(), "invalid_banner", false),
        (b"hello\r\nSSH-2.0-x\r\n".to_vec(), "invalid_banner", false),
        ([long(255), b"\r\n".to_vec()].concat(), "", true),
        ([long(256), b"\n".to_vec()].concat(), "long_banner", true),
        (long(256), "", false),
        ([b"SSH-2.0-x\r".to_vec(), vec![0; 300], b"\n".to_vec()].concat(), "long_banner", true),
        (long(257), "long_banner", true),
        ([long(5000), b"\n".to_vec(), packet(2, b"abc", 4)].concat(), "long_banner", true),
    ];
    for (bytes, event, known) in cases {
        let seen = whole(HASSH, &[(ToServer, bytes.clone())]);
        let events = if event.is_empty() { "[]".to_owned() } else { format!("[{event:?}]") };
        assert!(seen.contains(&events), "{} {seen}", bytes.escape_ascii());
        assert_eq!(seen.contains("proto_version"), known, "{} {seen}", bytes.escape_ascii());
    }
    let seen = whole(HASSH, &[(ToClient, b"hello\r\nyou\nSSH-2.0-x\r\n".to_vec())]);
    assert!(seen.contains(r#"["invalid_banner"]"#) && seen.contains(r#""software_version":"x""#), "{seen}");
    let seen = whole(HASSH, &[(ToClient, b"\n".repeat(100)), (ToClient, b"SSH-2.0-x\r\n".to_vec())]);
    assert!(seen.contains(r#"["invalid_banner"]"#) && seen.contains(r#""software_version":"x""#), "{seen}");
    // Whatever the server sends, the client's side is read.
    for lines in [b"a\n".repeat(1100), vec![b'a'; 2000]] {
        let said = [(ToClient, lines), (ToClient, b"\nSSH-2.0-x\r\n".to_vec()), (ToServer, b"SSH-2.0-y\r\n".to_vec())];
        let seen = whole(HASSH, &said);
        assert!(seen.contains(r#"["invalid_banner"]"#) && !seen.contains("Failed"), "{seen}");
        assert!(seen.contains(r#""software_version":"y""#) && !seen.contains(r#""software_version":"x""#), "{seen}");
    }
}

/// The parser refuses a line that cannot become a banner at its first wrong byte, before the line ends.
#[test]
fn a_banner_is_refused_early() {
    let mut t = talk(HASSH);
    t.client(b"SSx");
    assert_eq!((t.outcome, t.events(), t.progress()), (Outcome::Failed, vec!["invalid_banner"], [FINISHED; 2]));
}

#[test]
fn packets() {
    let with = |bytes: Vec<u8>| whole(HASSH, &[(ToServer, [&b"SSH-2.0-x\n"[..], &bytes, &kexinit("a")].concat())]);
    for short in [vec![0; 6], vec![0, 0, 0, 1, 0, 20]] {
        let seen = with(short);
        assert!(seen.contains(r#"["invalid_record"]"#) && seen.contains("Failed") && !seen.contains("hash"), "{seen}");
    }
    // An empty KEXINIT, and an invalid one.
    assert!(with(packet(2, b"", 0)).contains("hash"));
    assert!(with(packet(KEXINIT, b"", 0)).contains("hash"));
    let long = packet(KEXINIT, &vec![0; 65_535], 4);
    let mut t = talk(HASSH);
    t.pieces(ToServer, &[b"SSH-2.0-x\n".to_vec(), long, kexinit("a")].concat(), 1400);
    assert_eq!(t.events(), ["long_kex_record"]);
    assert!(t.logs()[0].contains(r#""string":"a;a;a;a""#), "{:?}", t.logs());
    // With two of them, the first counts.
    let twice = with(kexinit("first"));
    assert!(twice.contains("first;first") && !twice.contains("a;a"), "{twice}");
    // One of which only padding is missing when the stream ends is not read.
    let cut = kexinit("a");
    let seen = whole(HASSH, &[(ToServer, [b"SSH-2.0-x\n", &cut[..cut.len() - 1]].concat())]);
    assert!(seen.contains("proto_version") && !seen.contains("hash"), "{seen}");
}

#[test]
fn holes() {
    let mut t = talk(HASSH);
    let start = packet(2, &[0; 100], 4);
    t.client(b"SSH-2.0-x\n").client(&start[..50]).gap(ToServer, 40).client(&start[90..]).client(&kexinit("a"));
    assert!(t.logs()[0].contains("a;a;a;a"), "{:?}", t.logs());
    t.gap(ToServer, 1);
    assert_eq!((t.progress(), t.outcome), ([FINISHED, 0], Outcome::More));
    t.server(b"SSH-2.0-y\n");
    assert_eq!(t.progress(), [FINISHED, BANNER_DONE]);
    t.server(&packet(NEWKEYS, b"", 10));
    assert_eq!(t.result(), (Outcome::Done, FlowRequests::default()));
}

/// A gap that hides the end of a packet hides the beginning of the next one; one in NEWKEYS, when encryption begins.
#[test]
fn holes_that_end_a_direction() {
    let other = packet(2, &[0; 100], 4);
    for (start, len) in [(&other[..50], 60), (&other[..50], 61), (&packet(NEWKEYS, b"", 10)[..8], 2)] {
        let mut t = talk(HASSH);
        t.server(&[&b"SSH-2.0-y\n"[..], &packet(NEWKEYS, b"", 10)].concat());
        t.client(b"SSH-2.0-x\n").client(start);
        assert_eq!((t.progress(), t.outcome), ([BANNER_DONE, FINISHED], Outcome::More));
        t.gap(ToServer, len);
        assert_eq!((t.progress(), t.result()), ([FINISHED; 2], (Outcome::Done, FlowRequests::default())));
    }
}

#[test]
fn inline_the_last_message_is_inspected() {
    for encryption in [EncryptionHandling::TrackOnly, EncryptionHandling::Bypass, EncryptionHandling::Full] {
        for inline in [false, true] {
            let mut t = talk(Config { encryption, ..HASSH });
            t.inline = inline;
            let last = [&b"SSH-2.0-x\n"[..], &packet(NEWKEYS, b"", 10)].concat();
            t.client(&last).server(&last);
            if inline || encryption == EncryptionHandling::TrackOnly {
                assert_eq!(t.result(), (Outcome::More, FlowRequests::default()));
                t.client(b"x");
            }
            let wishes = FlowRequests {
                no_payload: encryption == EncryptionHandling::TrackOnly,
                bypass: encryption == EncryptionHandling::Bypass,
                stream_depth: None,
            };
            assert_eq!(t.result(), (Outcome::Done, wishes));
        }
    }
}

#[test]
fn frames() {
    let mut t = talk(HASSH);
    t.shared.frames.wanted = true;
    t.client(&[&b"SSH-2.0-x\n"[..], &packet(30, b"abcd", 4), &packet(2, b"", 0)].concat());
    let seen: Vec<_> = t.shared.frames.flow.of(ToServer).iter().map(|f| (f.kind, f.offset, f.end)).collect();
    let first = [(PDU_FRAME, 10, Some(24)), (HEADER_FRAME, 10, Some(16)), (DATA_FRAME, 16, Some(24))];
    let second = [(PDU_FRAME, 24, Some(30)), (HEADER_FRAME, 24, Some(30))];
    assert_eq!(seen, [&first[..], &second].concat());
    // A KEXINIT waits for its end; its frames have begun.
    let kex = kexinit("a");
    t.client(&kex[..9]);
    let open = |t: &Talk| t.shared.frames.flow.of(ToServer).iter().filter(|f| f.end.is_none()).count();
    assert_eq!(open(&t), 2);
    t.shared.frames.at = 36;
    t.client(&kex[9..]);
    assert_eq!((open(&t), t.shared.frames.flow.of(ToServer)[5].end), (0, Some(30 + kex.len() as u64)));
}
