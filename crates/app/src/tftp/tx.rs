//! A transaction: a request.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::datagram::Datagram;
use crate::registry::AppProto;
use crate::tx::{Found, LogFor, Transaction, TxBase};

use super::COMPLETE;

/// Modes of transfer (RFC 1350 section 5).
const MODES: [&str; 3] = ["netascii", "octet", "mail"];

/// A request to read or write a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whether it is to be written.
    pub write: bool,
    /// Its name.
    pub file: Vec<u8>,
    /// The mode: `netascii`, `octet` or `mail`.
    pub mode: &'static str,
}

impl Request {
    /// Reads one; `None` of any other datagram, or one without a mode that there is.
    pub fn read(data: &[u8]) -> Option<Request> {
        let (op, rest) = data.split_first_chunk::<2>()?;
        let write = match op {
            [0, 1] => false,
            [0, 2] => true,
            _ => return None,
        };
        let mut parts = rest.split(|b| *b == 0);
        let (file, mode) = (parts.next()?, parts.next()?);
        let mode = MODES.into_iter().find(|m| mode.eq_ignore_ascii_case(m.as_bytes()))?;
        Some(Request { write, file: file.to_vec(), mode })
    }
}

/// A request, as a transaction.
#[derive(Debug)]
pub struct TftpTx {
    pub(super) base: TxBase,
    /// The request.
    pub request: Request,
}

impl TftpTx {
    pub(super) fn new(id: u64, dir: Direction, request: Request) -> Self {
        let mut base = TxBase { id, ..TxBase::default() };
        base.one_sided(dir.reverse(), COMPLETE);
        base.advance(dir, COMPLETE);
        TftpTx { base, request }
    }
}

impl Datagram for TftpTx {
    const PROTO: AppProto = AppProto::Tftp;

    fn read(id: u64, dir: Direction, data: &[u8]) -> Option<Self> {
        Request::read(data).map(|request| TftpTx::new(id, dir, request))
    }
}

impl Transaction for TftpTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        self.base.held() + self.request.file.capacity() as u64
    }

    fn buffer<'a>(&'a self, _: u8, _: Direction, _: usize, _: &'a mut Vec<u8>) -> Option<Found<'a>> {
        None
    }

    fn direction(&self, _options: &AppLogOptions) -> Direction {
        self.base.only.unwrap_or(Direction::ToServer)
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn log(&self, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("tftp");
        json.str("packet", if self.request.write { "write" } else { "read" });
        json.bytes("file", &self.request.file);
        json.str("mode", self.request.mode);
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let of = |data: &[u8]| Request::read(data).map(|r| (r.write, String::from_utf8(r.file).unwrap(), r.mode));
        assert_eq!(of(b"\0\x01rfc1350.txt\0octet\0"), Some((false, "rfc1350.txt".into(), "octet")));
        assert_eq!(of(b"\0\x02zz.bin\0NetASCII\0blksize\x001428\0"), Some((true, "zz.bin".into(), "netascii")));
        assert_eq!(of(b"\0\x01\0octet"), Some((false, String::new(), "octet")));
        for none in [&b"\0\x01\0\0"[..], b"\0\x01file\0octets\0", b"\0\x03\0\x01data", b"\0\x01file", b"\0", b""] {
            assert_eq!(of(none), None, "{}", none.escape_ascii());
        }
    }

    #[test]
    fn the_log() {
        let request = Request::read(b"\0\x02a\xffb\0octet\0").unwrap();
        let tx = TftpTx::new(0, Direction::ToServer, request);
        let mut json = Json::new();
        json.item_object();
        tx.log(&mut json, &AppLogOptions::default(), LogFor::Event);
        json.end_object();
        let text = String::from_utf8(json.as_bytes().to_vec()).unwrap();
        assert!(
            text.starts_with("{\"tftp\":{\"packet\":\"write\",\"file\":\"a") && text.ends_with("\"mode\":\"octet\"}}"),
            "{text}"
        );
    }
}
