//! SSH (RFC 4253): banners and key exchange in clear, then packets that look encrypted.

use super::super::profile::Options;
use super::super::session::Session;
use super::super::template::Dir::{Client, Server};

/// A binary packet without encryption (RFC 4253 section 6).
fn packet(s: &mut Session<'_>, payload: &[u8]) -> Vec<u8> {
    let mut pad = 8 - (payload.len() + 5) % 8;
    if pad < 4 {
        pad += 8;
    }
    let mut out = ((payload.len() + pad + 1) as u32).to_be_bytes().to_vec();
    out.push(pad as u8);
    out.extend(payload);
    out.extend(s.rng.bytes(pad));
    out
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// The algorithms that one side offers (`SSH_MSG_KEXINIT`).
fn offer(s: &mut Session<'_>) -> Vec<u8> {
    let mut m = vec![20];
    m.extend(s.rng.bytes(16));
    for list in [
        "curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256",
        "ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512,rsa-sha2-256",
        "chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr,aes128-gcm@openssh.com",
        "chacha20-poly1305@openssh.com,aes128-ctr,aes256-ctr,aes128-gcm@openssh.com",
        "umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-256",
        "umac-128-etm@openssh.com,hmac-sha2-256-etm@openssh.com,hmac-sha2-256",
        "none,zlib@openssh.com",
        "none,zlib@openssh.com",
        "",
        "",
    ] {
        m.extend(string(list.as_bytes()));
    }
    m.extend([0; 5]);
    packet(s, &m)
}

pub(super) fn ssh(s: &mut Session<'_>, o: &Options) {
    let mut t = s.open(0, o.port.unwrap_or(22));
    let version = s.rng.range(7, 9);
    s.send(&mut t, Client, format!("SSH-2.0-OpenSSH_{version}.6p1 Debian-1\r\n").as_bytes());
    s.send(&mut t, Server, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
    let mine = offer(s);
    s.send(&mut t, Client, &mine);
    let theirs = offer(s);
    s.send(&mut t, Server, &theirs);
    let point = s.rng.bytes(32);
    let init = packet(s, &[&[30][..], &string(&point)].concat());
    s.send(&mut t, Client, &init);
    let host_key = [string(b"ssh-ed25519"), string(&s.rng.bytes(32))].concat();
    let signature = [string(b"ssh-ed25519"), string(&s.rng.bytes(64))].concat();
    let point = s.rng.bytes(32);
    let reply = [&[31][..], &string(&host_key), &string(&point), &string(&signature)].concat();
    let mut flight = packet(s, &reply);
    flight.extend(packet(s, &[21]));
    s.send(&mut t, Server, &flight);
    let new_keys = packet(s, &[21]);
    s.send(&mut t, Client, &new_keys);
    for n in 0..o.requests.unwrap_or(20) {
        if n > 3 {
            let think = s.rng.tailed(120_000_000, 20_000_000);
            s.wait(think);
        }
        let key = s.rng.range(1, 4) as usize * 16 + 20;
        let keys = s.rng.bytes(key);
        s.send(&mut t, Client, &keys);
        let size = s.rng.tailed(o.bytes.unwrap_or(400), 36) as usize;
        let answer = s.rng.bytes(size);
        s.send(&mut t, Server, &answer);
    }
    s.close(&mut t, Client);
}
