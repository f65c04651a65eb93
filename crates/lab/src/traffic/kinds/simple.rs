//! Sessions that exercise packet handling; their content does not matter.

use super::super::profile::Options;
use super::super::session::{ACK, PSH, SYN, Session};
use super::super::template::Dir::{Client, Server};
use super::web;

/// A random payload for a frame of `frame` bytes: the rest after the Ethernet, IP and transport headers.
fn payload(s: &mut Session<'_>, frame: u64, transport: u64) -> Vec<u8> {
    let head = 14 + if s.place.client.is_ipv6() { 40 } else { 20 } + transport;
    let n = frame.saturating_sub(head).min(65_000);
    s.rng.bytes(n as usize)
}

pub(super) fn udp(s: &mut Session<'_>, o: &Options) {
    // 64 bytes on the wire include the 4 bytes of the frame check sequence, which captures do not have.
    let data = payload(s, o.bytes.unwrap_or(60), 8);
    let port = o.port.unwrap_or(9);
    s.udp(Client, 0, port, &data);
    if o.answer {
        let turn = s.turn();
        s.wait(turn);
        s.udp(Server, 0, port, &data);
    }
}

pub(super) fn ping(s: &mut Session<'_>, o: &Options) {
    let data = payload(s, o.bytes.unwrap_or(98), 8);
    for n in 0..o.requests.unwrap_or(3) {
        s.echo(Client, n as u16 + 1, &data);
        let turn = s.turn();
        s.wait(turn);
        s.echo(Server, n as u16 + 1, &data);
        s.wait(100_000_000);
    }
}

pub(super) fn short(s: &mut Session<'_>, o: &Options) {
    let n = o.bytes.unwrap_or(64) as usize;
    let mut t = s.open(0, o.port.unwrap_or(7));
    let data = s.rng.bytes(n);
    s.send(&mut t, Client, &data);
    s.send(&mut t, Server, &data);
    s.close(&mut t, Client);
}

pub(super) fn syn(s: &mut Session<'_>, o: &Options) {
    let mut t = s.stream(0, o.port.unwrap_or(80));
    s.segment(0, &mut t, Client, SYN, &[]);
}

/// Number of segments in one lap of an elephant.
pub(crate) const LAP: u64 = 64;

/// Number of laps for a response of `bytes` bytes, at least one.
pub(crate) fn laps(bytes: u64, mss: u64) -> u64 {
    bytes.div_ceil(LAP * mss).max(1)
}

pub(super) fn elephant(s: &mut Session<'_>, o: &Options) {
    let mss: u64 = if s.place.client.is_ipv6() { 1440 } else { 1460 };
    let times = laps(o.bytes.unwrap_or(1_000_000_000), mss);
    let mut t = s.open(0, o.port.unwrap_or(80));
    let head = web::request(s, "GET", "/backup/image.bin", "files.harbor.example.com", "");
    s.send(&mut t, Client, head.as_bytes());
    let answer = format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.26.1\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        times * LAP * mss
    );
    s.send(&mut t, Server, answer.as_bytes());
    // The segments and acknowledgements of this loop are one lap, which the template repeats.
    s.mark_lap_start();
    let begin = s.now;
    for n in 0..LAP {
        let data = s.rng.bytes(mss as usize);
        let at = begin + n * (mss + 78) * 8;
        s.segment(at, &mut t, Server, if n + 1 == LAP { PSH | ACK } else { ACK }, &data);
        if n % 2 == 1 {
            s.segment(at + 1_000, &mut t, Client, ACK, &[]);
        }
    }
    s.now = begin + LAP * (mss + 78) * 8;
    s.mark_lap_end(times, s.now - begin, [0, (LAP * mss) as u32]);
    s.close(&mut t, Client);
}
