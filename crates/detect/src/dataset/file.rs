//! Dataset files with one line for each entry: the data and, with reputations, a comma and a number from 0 to 65535.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use margay_rules::ast::{Base64Mode, SetKind};

use super::table::{NO_VALUE, Table};
use crate::base64;

/// Most messages about one file.
const MESSAGES_MAX: usize = 20;

/// Problems with a file's entries. If they are fatal, the first one stops the load.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) fatal: bool,
    pub(super) said: Vec<String>,
    more: u64,
}

impl Problems {
    pub(super) fn new(fatal: bool) -> Problems {
        Problems { fatal, ..Problems::default() }
    }

    /// Reports a skipped entry; an error if problems are fatal.
    pub(super) fn bad(&mut self, text: String) -> Result<(), String> {
        if self.fatal {
            return Err(text);
        }
        if self.said.len() < MESSAGES_MAX {
            self.said.push(text);
        } else {
            self.more += 1;
        }
        Ok(())
    }

    /// All messages.
    pub(super) fn finish(mut self, name: &str) -> Vec<String> {
        if self.more > 0 {
            self.said.push(format!("dataset {name}: {} more invalid entries are skipped", self.more));
        }
        self.said
    }
}

/// Start of the message about an entry that cannot be decoded.
pub(super) const BAD_BASE64: &str = "bad base64 encoding";

/// Decodes `text` in file format to the bytes that a dataset stores. The error says what would be valid.
pub(super) fn decode(kind: SetKind, text: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.clear();
    match kind {
        SetKind::String => {
            base64::decode(text, Base64Mode::Strict, usize::MAX, out);
            if out.is_empty() { Err("base64") } else { Ok(()) }
        }
        _ => plain(kind, text, out),
    }
}

/// Decodes text that is not in base64.
pub(super) fn plain(kind: SetKind, text: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.clear();
    let (digits, what) = match kind {
        SetKind::String => {
            out.extend_from_slice(text);
            return if text.is_empty() { Err("text") } else { Ok(()) };
        }
        SetKind::Md5 => (32, "32 hexadecimal digits"),
        SetKind::Sha256 => (64, "64 hexadecimal digits"),
        SetKind::Ipv4 => {
            let a: Option<Ipv4Addr> = std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok());
            out.extend_from_slice(&a.ok_or("an IPv4 address")?.octets());
            return Ok(());
        }
        SetKind::Ip => {
            let a: Option<IpAddr> = std::str::from_utf8(text).ok().and_then(|t| t.trim().parse().ok());
            let bytes = match a.ok_or("an address")? {
                IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
                IpAddr::V6(a) => a.octets(),
            };
            out.extend_from_slice(&bytes);
            return Ok(());
        }
    };
    if text.len() != digits {
        return Err(what);
    }
    for pair in text.chunks_exact(2) {
        let byte = pair.iter().try_fold(0, |n, &c| Some(n << 4 | char::from(c).to_digit(16)?));
        out.push(byte.ok_or(what)? as u8);
    }
    Ok(())
}

/// Encodes data in file format.
pub(super) fn encode(kind: SetKind, data: &[u8], out: &mut Vec<u8>) {
    match kind {
        SetKind::String => {
            const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            for group in data.chunks(3) {
                let mut bytes = [0u8; 4];
                bytes[1..=group.len()].copy_from_slice(group);
                let n = u32::from_be_bytes(bytes);
                for i in 0..4 {
                    let sextet = n >> (18 - 6 * i) & 63;
                    out.push(if i > group.len() { b'=' } else { ALPHABET[sextet as usize] });
                }
            }
        }
        SetKind::Md5 | SetKind::Sha256 => {
            let digit = |n: u8| char::from_digit(n.into(), 16).map_or(b'0', |c| c as u8);
            out.extend(data.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]));
        }
        SetKind::Ipv4 => {
            if let Ok(a) = <[u8; 4]>::try_from(data) {
                super::v4_text(a.into(), out);
            }
        }
        SetKind::Ip => {
            if let Ok(a) = data.try_into() {
                super::address(a, out);
            }
        }
    }
}

/// The error for a file that is too large.
pub(super) fn too_large(name: &str, shown: &str, memcap: u64) -> String {
    format!("dataset {name}: {shown} takes more than the memcap of {memcap} bytes; give it a larger one")
}

/// Opens a dataset's file, to read at most what can fit the memcap. The limit allows for base64 and line ends.
pub(super) fn open(path: &Path, memcap: u64) -> Result<BufReader<std::io::Take<File>>, String> {
    let file = File::open(path).map_err(|e| format!("fopen '{}' failed: {e}", path.display()))?;
    Ok(BufReader::new(file.take(memcap.saturating_mul(4).saturating_add(1 << 20))))
}

/// Reads a file, which messages call `shown`, into `table`.
///
/// # Errors
/// If the file cannot be used.
pub(super) fn load(
    name: &str,
    kind: SetKind,
    file: &mut dyn BufRead,
    shown: &str,
    table: &mut Table,
    memcap: u64,
    problems: &mut Problems,
) -> Result<(), String> {
    let (mut line, mut data) = (Vec::new(), Vec::new());
    let mut with_values = None;
    for number in 1u64.. {
        line.clear();
        let n = file.read_until(b'\n', &mut line).map_err(|e| format!("cannot read {shown}: {e}"))?;
        if n == 0 {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let at = || format!("in {shown} line {number}");
        let (text, value) = match text.iter().position(|&b| b == b',') {
            Some(comma) => (text.get(..comma).unwrap_or(&[]), text.get(comma + 1..)),
            None => (text, None),
        };
        if *with_values.get_or_insert(value.is_some()) != value.is_some() {
            problems.bad(format!("Cannot mix dataset and datarep values for set {name} {}", at()))?;
            continue;
        }
        let value = match value {
            None => NO_VALUE,
            Some(v) => match std::str::from_utf8(v).ok().and_then(|v| v.trim().parse::<u16>().ok()) {
                Some(v) => v.into(),
                None => {
                    let text = String::from_utf8_lossy(v.get(..v.len().min(32)).unwrap_or(&[]));
                    problems.bad(format!("invalid datarep value {name} {}: \"{text}\" is not 0 to 65535", at()))?;
                    continue;
                }
            },
        };
        if let Err(what) = decode(kind, text, &mut data) {
            let text = String::from_utf8_lossy(text.get(..text.len().min(64)).unwrap_or(&[]));
            problems.bad(match what {
                // Other tools look for this wording.
                "base64" => format!("{BAD_BASE64} {name}: \"{text}\" {}", at()),
                _ => format!("dataset {name}: \"{text}\" {} is not {what}", at()),
            })?;
            continue;
        }
        table.insert(&data, value);
        if number % 1024 == 0 && table.memory() > memcap {
            return Err(too_large(name, shown, memcap));
        }
    }
    if table.memory() > memcap {
        return Err(too_large(name, shown, memcap));
    }
    Ok(())
}
