//! TLS 1.2 (RFC 5246) with ECDHE (RFC 8422): a complete handshake that parses, then records that look encrypted.

use super::super::profile::Options;
use super::super::session::Session;
use super::super::template::Dir::{Client, Server};
use super::host;

/// A self-signed certificate for `www.lab.example`; nobody has its key.
const CERTIFICATE: &[u8] = include_bytes!("server.der");

pub(crate) fn record(kind: u8, version: [u8; 2], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 5);
    for piece in body.chunks(16_384) {
        out.extend([kind, version[0], version[1]]);
        out.extend((piece.len() as u16).to_be_bytes());
        out.extend(piece);
    }
    out
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    [&[kind, len[1], len[2], len[3]][..], body].concat()
}

fn vector16(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u16).to_be_bytes()[..], body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(body)].concat()
}

/// A client's first record, for a server name.
pub(crate) fn client_hello(s: &mut Session<'_>, name: &str) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend(s.rng.bytes(32));
    body.push(32);
    body.extend(s.rng.bytes(32));
    let ciphers: [u16; 8] = [0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0x009c, 0x002f];
    body.extend(vector16(&ciphers.map(u16::to_be_bytes).concat()));
    body.extend([1, 0]);
    let mut ext = Vec::new();
    let entry = [&[0][..], &vector16(name.as_bytes())].concat();
    ext.extend(extension(0, &vector16(&entry)));
    ext.extend(extension(23, &[]));
    ext.extend(extension(0xff01, &[0]));
    ext.extend(extension(10, &[0, 6, 0, 29, 0, 23, 0, 24]));
    ext.extend(extension(11, &[1, 0]));
    ext.extend(extension(35, &[]));
    ext.extend(extension(16, &[&[0, 9, 8][..], b"http/1.1"].concat()));
    ext.extend(extension(13, &[0, 8, 4, 3, 8, 4, 4, 1, 2, 1]));
    body.extend(vector16(&ext));
    record(22, [3, 1], &handshake(1, &body))
}

pub(super) fn tls(s: &mut Session<'_>, o: &Options) {
    const V: [u8; 2] = [3, 3];
    let name = host(s);
    let mut t = s.open(0, o.port.unwrap_or(443));
    let hello = client_hello(s, &name);
    s.send(&mut t, Client, &hello);
    let mut body = vec![3, 3];
    body.extend(s.rng.bytes(32));
    body.push(32);
    body.extend(s.rng.bytes(32));
    body.extend([0xc0, 0x2f, 0]);
    let ext = [extension(0xff01, &[0]), extension(23, &[]), extension(16, &[&[0, 9, 8][..], b"http/1.1"].concat())];
    body.extend(vector16(&ext.concat()));
    let mut flight = record(22, V, &handshake(2, &body));
    let len = |n: usize| [(n >> 16) as u8, (n >> 8) as u8, n as u8];
    let list = [&len(CERTIFICATE.len())[..], CERTIFICATE].concat();
    flight.extend(record(22, V, &handshake(11, &[&len(list.len())[..], &list].concat())));
    let mut exchange = vec![3, 0, 23, 65, 4];
    exchange.extend(s.rng.bytes(64));
    exchange.extend([4, 1]);
    exchange.extend(vector16(&s.rng.bytes(256)));
    flight.extend(record(22, V, &handshake(12, &exchange)));
    flight.extend(record(22, V, &handshake(14, &[])));
    s.wait(800_000);
    s.send(&mut t, Server, &flight);
    let mut key = vec![65, 4];
    key.extend(s.rng.bytes(64));
    let mut answer = record(22, V, &handshake(16, &key));
    answer.extend(record(20, V, &[1]));
    answer.extend(record(22, V, &sealed(s, 16)));
    s.wait(500_000);
    s.send(&mut t, Client, &answer);
    let mut last = record(20, V, &[1]);
    last.extend(record(22, V, &sealed(s, 16)));
    s.send(&mut t, Server, &last);
    for n in 0..o.requests.unwrap_or(3) {
        if n > 0 {
            let think = s.rng.tailed(40_000_000, 2_000_000);
            s.wait(think);
        }
        let (asked, answered) = (s.rng.range(300, 900), s.rng.tailed(o.bytes.unwrap_or(25_000), 200));
        let (asked, answered) = if s.rng.chance(o.upload) { (answered, asked) } else { (asked, answered) };
        for (who, size) in [(Client, asked), (Server, answered)] {
            let body = sealed(s, size as usize);
            s.send(&mut t, who, &record(23, V, &body));
            s.wait(500_000);
        }
    }
    let bye = record(21, V, &sealed(s, 2));
    s.send(&mut t, Client, &bye);
    s.close(&mut t, Client);
}

/// A record body like AES-GCM's: an explicit nonce, `n` random bytes, and a tag.
fn sealed(s: &mut Session<'_>, n: usize) -> Vec<u8> {
    s.rng.bytes(n + 24)
}
