//! SIP (RFC 3261) with SDP (RFC 8866) and the RTP (RFC 3550) of the call that it sets up.

use super::super::profile::Options;
use super::super::session::Session;
use super::super::template::Dir::{Client, Server};
use super::super::template::port;

pub(super) fn sip(s: &mut Session<'_>, o: &Options) {
    let sip_port = o.port.unwrap_or(5060);
    let (client, server) = (s.place.client, s.place.server);
    // An IPv6 address has brackets in a URI or Via, but not in SDP.
    let bare = |a: std::net::IpAddr| a.to_string();
    let uri = |a: std::net::IpAddr| if a.is_ipv6() { format!("[{a}]") } else { a.to_string() };
    let family = if client.is_ipv6() { "IP6" } else { "IP4" };
    let (my_port, my_media) = (port(s.place.port, 0), port(s.place.port, 1));
    let media = (s.rng.range(5_000, 15_000) * 2) as u16;
    let (call, branch, tag, other) = (s.rng.word(16), s.rng.word(12), s.rng.word(8), s.rng.word(8));
    let (from, to) = (s.rng.range(1000, 9999), s.rng.range(1000, 9999));
    let sdp = |who: std::net::IpAddr, port: u16| {
        let a = bare(who);
        format!(
            "v=0\r\no=- 1 1 IN {family} {a}\r\ns=call\r\nc=IN {family} {a}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\na=ptime:20\r\n"
        )
    };
    let (cu, su) = (uri(client), uri(server));
    let request = |method: &str, seq: u32, branch: &str, to_tag: &str, body: &str| {
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        format!(
            "{method} sip:{to}@{su}:{sip_port} SIP/2.0\r\nVia: SIP/2.0/UDP {cu}:{my_port};branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
             From: <sip:{from}@{su}>;tag={tag}\r\nTo: <sip:{to}@{su}>{to_tag}\r\nCall-ID: {call}@{cu}\r\nCSeq: {seq} {method}\r\n\
             Contact: <sip:{from}@{cu}:{my_port}>\r\nUser-Agent: Softphone 3.2\r\n{kind}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = |status: &str, method: &str, seq: u32, branch: &str, to_tag: &str, body: &str| {
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        format!(
            "SIP/2.0 {status}\r\nVia: SIP/2.0/UDP {cu}:{my_port};branch=z9hG4bK{branch}\r\nFrom: <sip:{from}@{su}>;tag={tag}\r\n\
             To: <sip:{to}@{su}>{to_tag}\r\nCall-ID: {call}@{cu}\r\nCSeq: {seq} {method}\r\nContact: <sip:{to}@{su}:{sip_port}>\r\n\
             {kind}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let to_tag = format!(";tag={other}");
    let half = s.rtt / 2;
    s.udp(Client, 0, sip_port, request("INVITE", 1, &branch, "", &sdp(client, my_media)).as_bytes());
    s.wait(half);
    s.udp(Server, 0, sip_port, answer("100 Trying", "INVITE", 1, &branch, "", "").as_bytes());
    s.wait(30_000_000);
    s.udp(Server, 0, sip_port, answer("180 Ringing", "INVITE", 1, &branch, &to_tag, "").as_bytes());
    let ring = s.rng.range(300_000_000, 1_500_000_000);
    s.wait(ring);
    s.udp(Server, 0, sip_port, answer("200 OK", "INVITE", 1, &branch, &to_tag, &sdp(server, media)).as_bytes());
    s.wait(half);
    let second = s.rng.word(12);
    s.udp(Client, 0, sip_port, request("ACK", 1, &second, &to_tag, "").as_bytes());
    // G.711 in packets of 20 ms, in both directions.
    let frames = ((o.seconds.unwrap_or(10.0) * 50.0) as u64).clamp(1, 180_000);
    let begin = s.now + 5_000_000;
    let (mut sequence, mut stamp) = ([s.rng.next() as u16, s.rng.next() as u16], [s.rng.next() as u32; 2]);
    let source = [s.rng.next() as u32, s.rng.next() as u32];
    for n in 0..frames {
        for (k, dir) in [Client, Server].into_iter().enumerate() {
            let jitter = s.rng.below(1_000_000);
            s.now = begin + n * 20_000_000 + k as u64 * 7_000_000 + jitter;
            let mut p = vec![0x80, if n == 0 { 0x80 } else { 0 }];
            p.extend(sequence[k].to_be_bytes());
            p.extend(stamp[k].to_be_bytes());
            p.extend(source[k].to_be_bytes());
            p.extend(s.rng.bytes(160));
            s.udp(dir, 1, media, &p);
            sequence[k] = sequence[k].wrapping_add(1);
            stamp[k] = stamp[k].wrapping_add(160);
        }
    }
    s.wait(40_000_000);
    let third = s.rng.word(12);
    s.udp(Client, 0, sip_port, request("BYE", 2, &third, &to_tag, "").as_bytes());
    s.wait(half);
    s.udp(Server, 0, sip_port, answer("200 OK", "BYE", 2, &third, &to_tag, "").as_bytes());
}
