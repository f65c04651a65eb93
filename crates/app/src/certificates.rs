//! `tls-store`: writes the certificates of sessions that rules select (`tls.store`) to a PEM file (RFC 7468), with a second
//! file about their origin.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use margay_flow::{Direction, FlowCore};
use margay_json::time::Clock;
use margay_packet::Time;

/// The certificate store; without a folder it stores nothing.
#[derive(Debug, Default)]
pub struct CertificateStore {
    /// The folder.
    pub dir: Option<PathBuf>,
    /// Number of chains written.
    pub written: u64,
    /// Number of chains that could not be written.
    pub failed: u64,
    /// The last file number, shared by all workers.
    last: Arc<AtomicU32>,
    clock: Option<Clock>,
}

/// The certificates of a sender.
#[derive(Debug)]
pub(crate) struct Certificates<'a> {
    /// All of the chain, as they came.
    pub chain: Vec<&'a [u8]>,
    /// Subject and issuer of the first one, if it is valid.
    pub names: Option<[&'a [u8]; 2]>,
    /// Fingerprint of the first one.
    pub fingerprint: Option<&'a str>,
}

/// The packet that triggered the rule.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'a> {
    /// Its flow.
    pub flow: &'a FlowCore,
    /// Its time.
    pub time: Time,
    /// Its number in the capture file, if it is from one.
    pub number: Option<u64>,
}

impl CertificateStore {
    /// Opens a store in a folder, which is created if necessary.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(dir: PathBuf) -> std::io::Result<CertificateStore> {
        std::fs::create_dir_all(&dir)?;
        Ok(CertificateStore { dir: Some(dir), ..CertificateStore::default() })
    }

    /// Writes the chain of a direction's sender. Errors are counted and do not affect traffic.
    pub(crate) fn store(&mut self, of: &Certificates<'_>, dir: Direction, occasion: &Occasion<'_>) {
        let Some(folder) = self.dir.clone() else { return };
        let number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let of_client = if dir == Direction::ToServer { "client-" } else { "" };
        let micros = occasion.time.0.rem_euclid(1_000_000);
        let name = format!("{of_client}{}.{micros:06}-{number}", occasion.time.secs());
        let about = about(of, occasion, self.clock.get_or_insert_with(Clock::system));
        let done = write(&folder.join(format!("{name}.pem")), pem(&of.chain).as_bytes())
            .and_then(|()| write(&folder.join(format!("{name}.meta")), &about));
        match done {
            Ok(()) => self.written += 1,
            Err(_) => self.failed += 1,
        }
    }
}

fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(text)
}

/// All certificates of a chain, in lines of 64 characters.
fn pem(chain: &[&[u8]]) -> String {
    use base64::Engine as _;
    let mut out = String::new();
    for der in chain {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            out.push_str(line);
            out.push('\n');
            rest = more;
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    out
}

fn about(of: &Certificates<'_>, occasion: &Occasion<'_>, clock: &mut Clock) -> Vec<u8> {
    let mut out = b"TIME:              ".to_vec();
    clock.fast(&mut out, occasion.time);
    out.push(b'\n');
    let mut line = |key: &str, value: &[u8]| {
        out.extend_from_slice(format!("{key:<19}").as_bytes());
        // Escape control characters, which could end the line.
        out.extend(value.iter().map(|b| if b.is_ascii_control() { b'?' } else { *b }));
        out.push(b'\n');
    };
    if let Some(n) = occasion.number {
        line("PCAP PKT NUM:", n.to_string().as_bytes());
    }
    let flow = occasion.flow;
    for (key, address) in [("SRC IP:", flow.src), ("DST IP:", flow.dst)] {
        let mut text = Vec::new();
        margay_json::ip(&mut text, address);
        line(key, &text);
    }
    line("PROTO:", flow.proto.to_string().as_bytes());
    line("SRC PORT:", flow.sport.to_string().as_bytes());
    line("DST PORT:", flow.dport.to_string().as_bytes());
    if let Some([subject, issuer]) = of.names {
        line("TLS SUBJECT:", subject);
        line("TLS ISSUERDN:", issuer);
    }
    if let Some(f) = of.fingerprint {
        line("TLS FINGERPRINT:", f.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn what_is_written() {
        let of = Certificates { chain: vec![&[1; 60]], names: None, fingerprint: None };
        let text = pem(&of.chain);
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----\nAQEB"), "{text}");
        assert!(text.lines().all(|l| l.len() <= 64) && text.ends_with("-----END CERTIFICATE-----\n"));
        let flow =
            FlowCore::new(1, 6, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([10, 0, 0, 2]), 443), Time(0));
        let occasion = Occasion { flow: &flow, time: Time(1_523_912_382_000_074), number: Some(7) };
        let text = String::from_utf8(about(&of, &occasion, &mut Clock::utc())).unwrap();
        let want =
            "TIME:              04/16/2018-20:59:42.000074\nPCAP PKT NUM:      7\nSRC IP:            192.0.2.1\n";
        assert!(text.starts_with(want), "{text}");
        let folder = std::env::temp_dir().join(format!("margay-tls-store-{}", std::process::id()));
        let mut store = CertificateStore::new(folder.clone()).unwrap();
        store.store(&of, Direction::ToServer, &occasion);
        assert!(folder.join("client-1523912382.000074-1.meta").exists());
        std::fs::remove_dir_all(&folder).unwrap();
        store.store(&of, Direction::ToClient, &occasion);
        assert_eq!((store.written, store.failed), (1, 1));
    }
}
