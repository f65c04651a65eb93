//! The state of a transaction, and its values for rules and events.

use margay_flow::Direction;
use margay_json::Json;

use super::rpc::Auth;
use super::{Id, names};
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::file::track::Track;
use crate::tx::{LogFor, TxBase};

/// The limit of operations kept from a compound.
pub(super) const OPERATIONS_MAX: usize = 64;

/// The additional state of a file's transaction.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Direction of the data.
    pub(super) dir: Direction,
    pub(super) handle: Box<[u8]>,
    /// Number of reads or writes, for events.
    pub(super) chunks: u32,
    /// The file has ended, with the message of this number.
    pub(super) last: Option<u32>,
    pub(super) track: Track,
}

/// A call with its reply, or the reads or writes of a file.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) version: u32,
    /// The procedure, or in version 4 the operation that represents the compound.
    pub(super) procedure: u32,
    /// Operations of a compound.
    pub(super) operations: Vec<u32>,
    pub(super) xid: u32,
    pub(super) auth: Auth,
    pub(super) denied: bool,
    pub(super) status: u32,
    pub(super) name: Box<[u8]>,
    /// The handle whose hash is logged; empty if there is none.
    pub(super) handle: Box<[u8]>,
    /// The new name of a file.
    pub(super) renamed: Option<Box<[u8]>>,
    pub(super) transfer: Option<Box<Transfer>>,
}

impl Exchange {
    pub(super) fn new(version: u32, procedure: u32, xid: u32, auth: Auth) -> Exchange {
        Exchange {
            version,
            procedure,
            operations: Vec::new(),
            xid,
            auth,
            denied: false,
            status: 0,
            name: Box::default(),
            handle: Box::default(),
            renamed: None,
            transfer: None,
        }
    }

    fn procedure_name(&self) -> Option<&'static str> {
        names::procedure(self.version, self.procedure)
    }

    /// The procedure that reads attributes, which clients call constantly: it has no event.
    fn is_noise(&self) -> bool {
        match self.version {
            4 => !self.operations.iter().any(|op| matches!(op, 6 | 11 | 18 | 28 | 29 | 34)),
            _ => self.procedure == 1,
        }
    }
}

/// CRC-32 (IEEE 802.3), which identifies handles in events.
pub(super) fn hash(handle: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for b in handle {
        crc ^= u32::from(*b);
        for _ in 0..8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        let transfer = self.transfer.as_ref().map_or(0, |t| size_of::<Transfer>() + t.handle.len() + t.track.held());
        let own = self.name.len()
            + self.handle.len()
            + self.renamed.as_ref().map_or(0, |n| n.len())
            + self.operations.capacity() * size_of::<u32>()
            + self.auth.held();
        (own + transfer) as u64
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != Direction::ToServer {
            return None;
        }
        match Id::of(id)? {
            Id::Version => (index == 0).then_some(u64::from(self.version)),
            // Each procedure has its own number, and the number of its name, which is the same in all versions.
            Id::Procedure => {
                let of =
                    if self.operations.is_empty() { std::slice::from_ref(&self.procedure) } else { &self.operations };
                let number = *of.get(index / 2)?;
                Some(match index % 2 {
                    0 => u64::from(number),
                    _ => names::named(self.version, number).map_or(crate::tx::ABSENT, |n| super::NAMED | n),
                })
            }
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.transfer.as_ref().map_or(Direction::ToClient, |t| t.dir)
    }

    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(self.transfer.is_some() || !self.is_noise())
    }

    fn log(&self, base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("rpc");
        json.uint("xid", u64::from(self.xid));
        json.word("status", if self.denied { "DENIED" } else { "ACCEPTED" });
        json.word("auth_type", names::flavor(self.auth.flavor));
        if let Some(creds) = &self.auth.creds {
            json.object("creds");
            json.bytes("machine_name", &creds.machine);
            json.uint("uid", u64::from(creds.uid));
            json.uint("gid", u64::from(creds.gid));
            json.end_object();
        }
        json.end_object();

        json.object("nfs");
        json.uint("version", u64::from(self.version));
        match self.procedure_name() {
            Some(name) => json.str("procedure", name),
            None => json.str("procedure", &self.procedure.to_string()),
        }
        json.bytes("filename", &self.name);
        if !self.handle.is_empty() {
            json.str("hhash", &format!("{:x}", hash(&self.handle)));
        }
        json.uint("id", base.id + 1);
        json.bool("file_tx", self.transfer.is_some());
        json.word("type", "response");
        match names::state(self.status) {
            Some(name) => json.str("status", name),
            None => json.str("status", &format!("ERR_{}", self.status)),
        }
        let access = match (self.procedure_name(), &self.transfer) {
            (_, Some(t)) if t.dir == Direction::ToClient => Some("read"),
            (Some("READ"), None) => Some("read"),
            (_, Some(_)) | (Some("WRITE"), None) => Some("write"),
            _ => None,
        };
        if let Some(key) = access {
            json.object(key);
            json.bool("first", self.transfer.is_some());
            json.bool("last", self.transfer.as_ref().is_some_and(|t| t.last.is_some()));
            if let Some(t) = &self.transfer {
                json.uint("last_xid", u64::from(t.last.unwrap_or(0)));
                json.uint("chunks", u64::from(t.chunks));
            }
            json.end_object();
        }
        if self.procedure_name() == Some("RENAME") && self.transfer.is_none() {
            json.object("rename");
            json.bytes("from", &self.name);
            json.bytes("to", self.renamed.as_deref().unwrap_or_default());
            json.end_object();
        }
        json.end_object();
    }
}
