//! Dictionaries of the targets: words that a fuzzer inserts (`fuzz/dictionaries`).
//!
//! They come from the engine's own tables where possible: keywords, names of events and buffers, protocol detection
//! patterns, settings, status numbers. `fuzz-dictionaries` writes the files; a test compares them with its output.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use margay_app::{ALL, AppProto, PROTOCOLS, protocol};

/// The longest word that libFuzzer accepts.
const WORD_MAX: usize = 64;

/// The words of a dictionary.
type Words = BTreeSet<Vec<u8>>;

/// The start of a step in a conversation's script.
const MARKS: [&[u8]; 4] = [b"\xff>", b"\xff<", b"\xff{", b"\xff}"];
/// The libraries and functions of scripts.
const PRELUDE: &str = include_str!("../../lua/src/prelude.lua");
/// SMB status codes: a number and a name on each line. There are so many that a part of them suffices.
const NT_STATUS: &str = include_str!("../../app/src/smb/ntstatus.txt");
/// FSCTL codes of SMB, in the same format.
const FSCTL: &str = include_str!("../../app/src/smb/fsctl.txt");

const METHODS: &str = "GET POST HEAD PUT DELETE OPTIONS TRACE CONNECT PATCH PROPFIND SEARCH";
const FIELDS: &str = "Host: Content-Length: Content-Type: Content-Encoding: Transfer-Encoding: chunked Connection: keep-alive close \
    Cookie: Set-Cookie: Location: Range: Content-Range: Authorization: Basic Digest Bearer Expect: 100-continue Upgrade: h2c \
    HTTP2-Settings: X-Forwarded-For: User-Agent: Accept-Encoding: gzip deflate br lzma identity multipart/form-data; boundary= \
    Content-Disposition: form-data; name= filename= filename*=UTF-8'' bytes application/x-www-form-urlencoded HTTP/1.1 HTTP/1.0 \
    HTTP/0.9 application/dns-message";
const SMTP: &str = "EHLO HELO MAIL FROM:< RCPT TO:< DATA BDAT LAST QUIT RSET STARTTLS AUTH LOGIN PLAIN VRFY EXPN NOOP HELP \
    BODY=8BITMIME SIZE= 220 250 250- 354 221 235 334 500 503";
const MIME: &str = "Content-Type: multipart/mixed; multipart/ message/rfc822 text/plain text/html boundary= boundary=\" --b1 --b1-- \
    Content-Transfer-Encoding: base64 quoted-printable Content-Disposition: attachment; filename= filename*0= name= =?utf-8?B? =?utf-8?Q? \
    ?= Subject: From: To: Received: Message-ID: http:// https:// mailto: ftp://";
const FTP: &str = "USER PASS ACCT CWD CDUP SMNT QUIT REIN PORT PASV TYPE STRU MODE RETR STOR STOU APPE ALLO REST RNFR RNTO ABOR DELE \
    RMD MKD PWD LIST NLST SITE SYST STAT HELP NOOP AUTH TLS EPRT EPSV |1|192.0.2.1|1024| |2|::1|1024| (|||1024|) \
    227 229 200 220 226 230 331 234 (192,0,2,1,4,0) 192,0,2,1,4,0";
const SSH: &str = "SSH-2.0- SSH-1.99- SSH-1.5- OpenSSH_9.6 curve25519-sha256 diffie-hellman-group14-sha256 ext-info-c ssh-ed25519 \
    rsa-sha2-512 aes128-ctr chacha20-poly1305@openssh.com hmac-sha2-256 none zlib@openssh.com kex-strict-c-v00@openssh.com";
const DNS: &str = "example org com in-addr arpa ip6 _tcp local www";
const DATASETS: &str = "ip,value a.b c.d k {\"a\":{\"b\":\" \"k\": 1.2.3.4 2001:db8::1 YWJj \"c\":{\"d\":[ ]} },{";
const LISTS: &str = "config classification: reference: suppress gen_id sig_id threshold event_filter detection_filter rate_filter type \
    limit both track by_src by_dst by_rule by_both by_flow count seconds new_action timeout drop alert pass reject $HOME_NET 10.0.0.0/8 \
    ip [ ] ! , 0 1 -- 1,Bad,Bad 10.0.0.1,1,100 2001:db8::/32,1,127";
const CONFIG: &str = "%YAML 1.1 --- !include include: &a *a <<: - { } [ ] | > ~ yes no true false null 1kb 2mb 3gb 10% $HOME_NET \" ' # === \
    main.yaml b.yaml c.yaml ? : !!str !!map %TAG";
const CONTROL: &str = "version 0.1 0.2 command arguments uptime shutdown reload-rules ruleset-reload-rules ruleset-stats command-list \
    running-mode capture-mode conf-get variable dump-counters pcap-file filename output-dir tenant iface-stat iface iface-list \
    register-tenant id dataset-add setname settype datavalue memcap-set memcap-show config memcap get-flow-stats-by-id add-hostbit \
    ipaddress hostbit expire true false null 1e9 -1 {\" \":\" \"} },{ \\u0000 \\ud800 \\\\";
const LUA: &str = "and break do else elseif end false for function goto if in local nil not or repeat return then true until while \
    init match transform setup log deinit args needs payload packet http.uri flowvar flowint bytevar string. table. math. utf8. \
    string.rep string.find string.gsub string.gmatch string.format string.byte string.char string.sub string.pack string.unpack \
    table.concat table.insert table.remove table.sort table.unpack select tostring tonumber type pairs ipairs next rawget rawset \
    setmetatable getmetatable pcall error assert coroutine os io load require %s %q %d %x %5.1f .. // ~= == << >> ::a:: 0x7fffffffffffffff \
    -9223372036854775808 1e308 math.huge math.mininteger #";
const PATTERNS: &str =
    "%a %d %s %w %p %c %l %u %x %A %D %S %W %b() %f[%w] %1 %2 ( ) () .- .* .+ .? [^ [] [^]] [%a-z] ^ $ %% %[ -";
const RULES: &str = "alert drop pass reject config tcp udp ip icmp any -> <> $HOME_NET !$HOME_NET [1.2.3.4,!10.0.0.0/8] 80 1:65535 ( ; ) \
    content:\" |00| |ff fe| !\" relative from_beginning post_offset multiplier little big bytes offset oper rvalue result string hex dec \
    startswith endswith fast_pattern:only fast_pattern:0,4 /i\" /R\" pcre:\"/ isset set unset toggle isnotset threshold: type track by_src \
    count seconds to_server to_client established stateless no_stream only_stream >10 <10 10<>20 0-5 & | + * / << >>";

fn bytes_of<'a>(words: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    words.split_whitespace().map(|w| w.as_bytes().to_vec())
}

/// Encodes numbers in two bytes, big-endian.
fn halves(list: &[u16]) -> impl Iterator<Item = Vec<u8>> + '_ {
    list.iter().map(|n| n.to_be_bytes().to_vec())
}

/// The hexadecimal numbers that begin the lines of a table, in four bytes, little-endian.
fn numbers(table: &str) -> impl Iterator<Item = Vec<u8>> + '_ {
    let numbers = table.lines().filter_map(|line| u32::from_str_radix(line.split(' ').next()?, 16).ok());
    numbers.map(|n| n.to_le_bytes().to_vec())
}

/// The detection patterns of a protocol.
fn recognised(proto: AppProto) -> impl Iterator<Item = Vec<u8>> {
    protocol(proto).into_iter().flat_map(|p| p.recognition.patterns).map(|p| p.bytes.to_vec())
}

/// Words of the rule language.
fn rule_words(words: &mut Words) {
    words.extend(margay_rules::keyword_names().into_iter().map(|k| [k.as_bytes(), b":"].concat()));
    words.extend(margay_rules::keyword_names().into_iter().map(|k| [k.as_bytes(), b"; "].concat()));
    words.extend(bytes_of(RULES));
    for p in PROTOCOLS {
        words.insert(p.proto.rule_name().as_bytes().to_vec());
        words.extend(p.states.iter().flat_map(|s| s.iter()).map(|s| s.as_bytes().to_vec()));
        words.extend(p.events.iter().map(|e| [p.proto.rule_name().as_bytes(), b".", e.as_bytes()].concat()));
        words.extend(p.frames.iter().map(|f| f.as_bytes().to_vec()));
    }
    let events = [margay_rules::DECODER_EVENTS, margay_rules::STREAM_EVENTS, &margay_rules::APP_LAYER_EVENTS];
    words.extend(events.into_iter().flatten().map(|e| e.as_bytes().to_vec()));
}

/// The words of a target; empty for some targets.
fn words(target: &str) -> Words {
    let mut w = Words::new();
    let conversation = [
        "http1",
        "http2",
        "hpack",
        "ftp",
        "smb",
        "dcerpc",
        "token",
        "smtp",
        "ssh",
        "dns",
        "tls",
        "certificate",
        "quic",
    ];
    if conversation.contains(&target) {
        w.extend(MARKS.map(<[u8]>::to_vec));
    }
    match target {
        "rules" | "inspect" => rule_words(&mut w),
        "lists" => w.extend(bytes_of(LISTS)),
        "config" | "include" => {
            w.extend(bytes_of(CONFIG));
            let names = margay_config::keys::all().flat_map(|key| key.path.split('.'));
            let names: BTreeSet<&str> = names.filter(|n| n.len() > 2 && !n.starts_with(['#', '*', '<'])).collect();
            w.extend(names.into_iter().map(|n| [n.as_bytes(), b":"].concat()));
        }
        "control" => w.extend(bytes_of(CONTROL)),
        "datasets" => w.extend(bytes_of(DATASETS)),
        "http1" => {
            w.extend(bytes_of(METHODS).chain(bytes_of(FIELDS)));
            w.extend(
                ["\r\n\r\n", "\r\n", "\n", "0\r\n\r\n", "%u0041", "%2e%2e%2f", ": ", "; "]
                    .map(|s| s.as_bytes().to_vec()),
            );
            w.extend(recognised(AppProto::Http1));
            w.extend(
                [&b"\x1f\x8b\x08"[..], b"FWS", b"CWS", b"ZWS", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].map(<[u8]>::to_vec),
            );
        }
        "http2" | "hpack" => {
            w.extend(
                [":authority", ":method", ":path", ":scheme", ":status", "content-length", "cookie", "host", "grpc"]
                    .map(|s| s.as_bytes().to_vec()),
            );
            w.extend(bytes_of("GET CONNECT 200 http https application/dns-message accept gzip"));
            if target == "http2" {
                w.insert(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec());
                // Headers of empty frames.
                w.extend((0u8..10).map(|kind| vec![0, 0, 0, kind, 0, 0, 0, 0, 1]));
                w.extend((1u8..10).map(|setting| vec![0, setting, 0, 0, 0, 0]));
            } else {
                // Indexed, literal with and without indexing, never indexed, another size of the table (RFC 7541, section 6).
                w.extend(
                    [
                        &[0x82u8][..],
                        &[0x40, 1],
                        &[0x00, 1],
                        &[0x10, 1],
                        &[0x3f, 0xe1, 0x1f],
                        &[0x20],
                        &[0xbe],
                        &[0xff, 0x80],
                        &[0x7f],
                    ]
                    .map(<[u8]>::to_vec),
                );
            }
        }
        "ftp" => w.extend(bytes_of(FTP).chain(recognised(AppProto::Ftp)).chain([b"\r\n".to_vec()])),
        "smtp" => {
            w.extend(bytes_of(SMTP).chain(bytes_of(MIME)).chain(recognised(AppProto::Smtp)));
            w.extend([b"\r\n".to_vec(), b"\r\n.\r\n".to_vec(), b"\r\n\r\n".to_vec(), b"..".to_vec()]);
        }
        "mime" => w.extend(bytes_of(MIME).chain([b"\r\n\r\n".to_vec(), b"\r\n".to_vec(), b"\n ".to_vec()])),
        "ssh" => w.extend(bytes_of(SSH).chain([b"\r\n".to_vec(), vec![20], vec![0, 0, 1, 0]])),
        "smb" => {
            w.extend(recognised(AppProto::Smb).chain(numbers(NT_STATUS).step_by(16)).chain(numbers(FSCTL)));
            w.extend(
                [
                    &b"\xffSMB"[..],
                    b"\xfeSMB",
                    b"\xfcSMB",
                    b"\xfdSMB",
                    b"NT LM 0.12\0",
                    b"SMB 2.002\0",
                    b"SMB 2.???\0",
                    b"\\PIPE\\",
                    b"IPC$",
                    b"\\\0s\0r\0v\0s\0v\0c\0",
                    b"NTLMSSP\0",
                ]
                .map(<[u8]>::to_vec),
            );
            w.extend([0x0202u16, 0x0210, 0x0300, 0x0302, 0x0311].map(|d| d.to_le_bytes().to_vec()));
            w.extend((0u8..0x13).map(|command| vec![command, 0]));
        }
        "token" => w.extend(
            [
                &b"NTLMSSP\0"[..],
                b"NTLMSSP\0\x01\0\0\0",
                b"NTLMSSP\0\x03\0\0\0",
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2],
                &[0x2b, 6, 1, 5, 5, 2],
                &[0x60, 0x82],
                &[0xa0, 0x30],
                &[0x6e, 0x82],
                &[0x61, 0x81],
                &[0x1b],
            ]
            .map(<[u8]>::to_vec),
        ),
        "dcerpc" => {
            w.extend(recognised(AppProto::Dcerpc));
            w.extend((0u8..20).map(|kind| vec![5, 0, kind, 3, 0x10, 0, 0, 0]));
            // Interfaces: the endpoint mapper, SAMR, SRVSVC; transfer syntax NDR.
            let uuids: [u128; 4] = [
                0xe1af8308_5d1f_11c9_91a4_08002b14a0fa,
                0x12345778_1234_abcd_ef00_0123456789ac,
                0x4b324fc8_1670_01d3_1278_5a47bf6ee188,
                0x8a885d04_1ceb_11c9_9fe8_08002b104860,
            ];
            w.extend(uuids.map(|u| {
                let mut b = u.to_be_bytes().to_vec();
                b[..4].reverse();
                b[4..6].reverse();
                b[6..8].reverse();
                b
            }));
        }
        "dns" => {
            w.extend(bytes_of(DNS).map(|l| [&[l.len() as u8][..], &l].concat()));
            // Types: A to CAA; class IN, and with multicast's bit; a pointer.
            w.extend((1u16..=65).chain([250, 251, 252, 255, 257]).map(|t| [&t.to_be_bytes()[..], &[0, 1]].concat()));
            w.extend([vec![0xc0, 0x0c], vec![0xc0, 0], vec![0x80, 1], vec![0, 0, 0x29, 0x10, 0], vec![0x81, 0x80]]);
        }
        "tls" => {
            w.extend(recognised(AppProto::Tls));
            w.extend(
                [20u8, 21, 22, 23, 24].into_iter().flat_map(|kind| [[kind, 3, 1], [kind, 3, 3]]).map(|r| r.to_vec()),
            );
            w.extend([0u8, 1, 2, 4, 8, 11, 12, 13, 14, 15, 16, 20, 22].map(|kind| vec![kind, 0, 0]));
            // Extensions, cipher suites, groups, versions.
            w.extend(halves(&[0, 5, 10, 11, 13, 16, 21, 23, 35, 41, 43, 45, 51, 0xfe0d, 0xff01, 0x0a0a]));
            w.extend(halves(&[
                0x1301, 0x1302, 0xc02f, 0xc030, 0x009c, 0x002f, 0x00ff, 0x0300, 0x0301, 0x0303, 0x0304, 0x0002,
            ]));
            w.extend(bytes_of("h2 http/1.1 www.example.org"));
        }
        "certificate" => w.extend(
            [
                &[0x30u8, 0x82][..],
                &[0x30, 0x81],
                &[0x30, 0x80],
                &[0x06, 3, 0x55, 4, 3],
                &[0x06, 3, 0x55, 4, 10],
                &[0x06, 3, 0x55, 0x1d, 0x11],
                &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
                &[0x17, 0x0d],
                &[0x18, 0x0f],
                &[0x0c],
                &[0x13],
                &[0x1e],
                &[0xa0, 3, 2, 1, 2],
                &[0x82],
                b"991231235959Z",
                b"20501231235959Z",
            ]
            .map(<[u8]>::to_vec),
        ),
        "quic" => {
            w.extend(
                [1u32, 0, 0x6b33_43cf, 0xff00_001d, 0xff00_0018, 0x5130_3436, 0x5130_3530, 0x0a1a_2a3a]
                    .map(|v| v.to_be_bytes().to_vec()),
            );
            w.extend(["CHLO", "SNI\0", "UAID", "PAD\0", "VER\0"].map(|t| t.as_bytes().to_vec()));
            w.extend([vec![0xc0], vec![0xd0], vec![0xe0], vec![0xf0], vec![6, 0, 0x40]]);
        }
        "dhcp" => {
            w.insert(vec![0x63, 0x82, 0x53, 0x63]);
            w.extend((1u8..9).map(|kind| vec![53, 1, kind]));
            w.extend(
                [1u8, 3, 6, 12, 15, 50, 51, 52, 54, 55, 58, 59, 60, 61, 81, 82, 121].map(|option| vec![option, 4]),
            );
            w.extend([vec![0xff], vec![0], vec![1, 1, 6, 0], vec![2, 1, 6, 0]]);
        }
        "tftp" => {
            w.extend(bytes_of("netascii octet mail blksize tsize timeout").map(|o| [&o[..], b"\0"].concat()));
            w.extend((0u8..7).map(|code| vec![0, code]));
        }
        "decode" | "defrag" | "ring" | "nfqueue" => {
            w.extend(halves(&[
                0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x9100, 0x8847, 0x8864, 0x893f, 0x22f3, 0x8926, 0x6558, 0x88be,
                0x880b, 0x8909,
            ]));
            w.extend([vec![0x45, 0], vec![0x46], vec![0x4f], vec![0x60, 0, 0, 0], vec![0x20, 0], vec![0x40, 0]]);
            w.extend([0u8, 1, 2, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 60, 132, 135].map(|p| vec![64, p]));
            // Teredo, VXLAN, Geneve.
            w.extend(halves(&[3544, 4789, 6081]));
            if target == "nfqueue" {
                w.extend([1u16, 3, 10, 13, 14].map(|kind| [&[8, 0][..], &kind.to_ne_bytes()].concat()));
                w.extend([[0, 3], [2, 0]].map(|kind| kind.to_vec()));
            }
            if target == "ring" {
                w.extend([1u32, 0x11, 0x51, 9, 48, 86, 0xffff_ffff].map(|n| n.to_ne_bytes().to_vec()));
            }
        }
        "capture" => {
            w.extend(
                [0xa1b2_c3d4u32, 0xa1b2_3c4d, 0x0a0d_0d0a, 0x1a2b_3c4d, 1, 2, 3, 6, 10]
                    .into_iter()
                    .flat_map(|m| [m.to_be_bytes().to_vec(), m.to_le_bytes().to_vec()]),
            );
        }
        "layers" => w.extend(bytes_of("gzip deflate br lzma identity x-gzip , FWS CWS ZWS")),
        "gzip" => w.extend([vec![0x1f, 0x8b, 8, 0], vec![0x1f, 0x8b, 8, 0x1e]]),
        "lzma" => w.extend([vec![0x5d, 0, 0, 0x80, 0], vec![0xff; 8]]),
        "recognise" => {
            let lists = ALL.iter().map(|p| p.recognition.patterns);
            w.extend(lists.flatten().map(|p| p.bytes.to_vec()));
        }
        "matcher_cache" => w.extend([b"margay-matcher 1".to_vec(), vec![7; 32]]),
        "geoip" => {
            w.extend(bytes_of(
                "node_count record_size ip_version database_type country iso_code languages description build_epoch",
            ));
            w.insert(b"\xab\xcd\xefMaxMind.com".to_vec());
        }
        "lua" => {
            w.extend(bytes_of(LUA));
            let quoted = PRELUDE.split('"').skip(1).step_by(2).filter(|t| t.bytes().all(|b| b.is_ascii_graphic()));
            w.extend(quoted.filter(|t| t.len() > 2).map(|t| t.as_bytes().to_vec()));
            w.extend(
                ["require(\"suricata.", "\")", "function init(args)\n", "function match(args)\n", "return {} end\n"]
                    .map(|t| t.as_bytes().to_vec()),
            );
        }
        "lua_pattern" => w.extend(bytes_of(PATTERNS).chain([vec![0]])),
        "meaning" => w.extend(bytes_of(
            "%27 &lt; \\u003c union select or 1=1 -- sleep( <script onerror= javascript: ;cat /etc/passwd $( ` ../ {\" \":\" <![CDATA[ --b name=\"",
        )),
        "transforms" => w.extend(bytes_of("%41 %u0041 YWJj a= .co.uk :method:")),
        _ => {}
    }
    w.retain(|word| !word.is_empty() && word.len() <= WORD_MAX);
    w
}

/// A target's dictionary in libFuzzer's format; `None` if it has no words.
pub fn dictionary(target: &str) -> Option<String> {
    let words = words(target);
    if words.is_empty() {
        return None;
    }
    let mut out = String::from("# Written by fuzz-dictionaries (crates/fuzz-replay/src/dictionaries.rs).\n");
    for word in words {
        out.push('"');
        for b in word {
            let _ = match b {
                b'"' | b'\\' => write!(out, "\\{}", char::from(b)),
                0x20..=0x7e => write!(out, "{}", char::from(b)),
                _ => write!(out, "\\x{b:02X}"),
            };
        }
        out.push_str("\"\n");
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files in `fuzz/dictionaries` equal the output of `fuzz-dictionaries`.
    #[test]
    fn files_are_up_to_date() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/dictionaries");
        for (target, _) in crate::TARGETS {
            let path = folder.join(format!("{target}.dict"));
            let text = std::fs::read_to_string(&path).ok();
            assert!(
                text == dictionary(target),
                "{target}.dict is not up to date: cargo run -p margay-fuzz-replay --features tools --bin fuzz-dictionaries"
            );
        }
        let files = std::fs::read_dir(&folder).expect("fuzz/dictionaries").count();
        let wanted = crate::TARGETS.iter().filter(|t| dictionary(t.0).is_some()).count();
        assert_eq!(files, wanted, "a dictionary of no target");
    }

    /// Words come from the engine's tables, not only from this file.
    #[test]
    fn tables_are_in_them() {
        assert!(words("rules").contains(&b"content:"[..]) && words("rules").contains(&b"ipv4.pkt_too_small"[..]));
        assert!(words("config").contains(&b"max-pending-packets:"[..]));
        assert!(words("lua").contains(&b"suricata.packet"[..]));
        assert!(words("smb").contains(&0x0006_0194u32.to_le_bytes()[..]), "FSCTL_DFS_GET_REFERRALS");
        assert!(words("recognise").contains(&b"SSH-"[..]));
    }
}
