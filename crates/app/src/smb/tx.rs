//! A transaction: a request with its response, or all reads or writes of a file.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::{Content, Tx};
use crate::dcerpc::call::Call;
use crate::tx::{Found, LogFor, TxBase};
use crate::window::{self, WindowLimits};

use super::auth::{Kerberos, Ntlmssp};
use super::events::Event;
use super::header::Status;
use crate::config::smb::kinds;
use crate::file::track::Track;

/// A file identifier: 16 bytes in SMB2, 2 in SMB1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FileId {
    Smb1(u16),
    Smb2([u8; 16]),
}

impl FileId {
    /// The file that the previous message of a chain opens.
    pub(super) const RELATED: FileId = FileId::Smb2([0xff; 16]);

    /// A placeholder for the file that the message with this number opens, until the response has its identifier.
    pub(super) fn opened_by(message: u64) -> FileId {
        let mut id = [0xff; 16];
        id[8..].copy_from_slice(&message.to_le_bytes());
        FileId::Smb2(id)
    }

    /// Whether it is a placeholder of [`FileId::opened_by`].
    pub(super) const fn is_placeholder(self) -> bool {
        matches!(self, FileId::Smb2([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..]))
    }
}

/// The negotiated parameters.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    pub dialects: Vec<Vec<u8>>,
    pub client_guid: Option<[u8; 16]>,
    pub server_guid: Option<[u8; 16]>,
    /// The maximum of a read and of a write.
    pub sizes: Option<(u32, u32)>,
}

/// The client's authentication.
#[derive(Debug, Default)]
pub(super) struct Setup {
    pub ntlmssp: Option<Ntlmssp>,
    pub kerberos: Option<Kerberos>,
    /// SMB1 client and server: operating system, and LAN manager.
    pub native: [Option<(Vec<u8>, Vec<u8>)>; 2],
    /// An NTLM token is malformed.
    pub malformed: bool,
}

/// A connection to a share.
#[derive(Debug, Default)]
pub(super) struct TreeConnect {
    pub share: Vec<u8>,
    /// The share is for named pipes.
    pub pipe: bool,
    /// SMB2 only.
    pub share_type: Option<u8>,
    /// SMB1 only: the requested service, and the server's answer.
    pub service: Option<(Vec<u8>, Vec<u8>)>,
}

/// Opening or creating a file or directory.
#[derive(Debug, Default)]
pub(super) struct Create {
    pub name: Vec<u8>,
    pub directory: bool,
    pub delete: bool,
    pub disposition: u32,
    /// Creation, access, write and change time, in seconds since 1970.
    pub times: [u64; 4],
    pub size: u64,
    pub id: Option<FileId>,
}

/// Reads or writes of a file.
#[derive(Debug)]
pub(super) struct FileAccess {
    pub name: Vec<u8>,
    pub share: Vec<u8>,
    pub id: FileId,
    pub dir: Direction,
    pub track: Track,
}

/// Setting a file property.
#[derive(Debug)]
pub(super) struct SetInfo {
    pub name: Vec<u8>,
    pub id: Option<FileId>,
    /// Its class and level; for SMB1, the subcommand.
    pub class: &'static str,
    pub level: &'static str,
    pub subcommand: Option<&'static str>,
    /// The new name, or whether to delete the file.
    pub what: Set,
}

/// See [`SetInfo::what`].
#[derive(Debug)]
pub(super) enum Set {
    Rename(Vec<u8>),
    Delete(bool),
}

/// The subject of a transaction.
#[derive(Debug, Default)]
pub(super) enum What {
    #[default]
    Generic,
    /// Only an anomaly, without a record of its own.
    Odd,
    Negotiate(Box<Negotiation>),
    SessionSetup(Box<Setup>),
    TreeConnect(Box<TreeConnect>),
    Create(Box<Create>),
    File(Box<FileAccess>),
    SetInfo(Box<SetInfo>),
    Ioctl(u32),
    Dcerpc(Box<Call>),
}

/// A transaction of SMB.
#[derive(Debug, Default)]
pub(super) struct SmbTx {
    /// Version of the request: 1 or 2.
    pub version: u8,
    pub command: u16,
    pub session: u64,
    pub tree: u32,
    /// The dialect; empty while unknown.
    pub dialect: String,
    pub status: Option<Status>,
    /// The key of the response.
    pub key: Option<(u8, u64)>,
    /// The named pipe of the request, or the file that it closes.
    pub file: Option<FileId>,
    pub what: What,
}

impl SmbTx {
    pub(super) fn call(&self) -> Option<&Call> {
        match &self.what {
            What::Dcerpc(call) => Some(call),
            _ => None,
        }
    }

    pub(super) fn file_mut(&mut self) -> Option<&mut FileAccess> {
        match &mut self.what {
            What::File(f) => Some(f),
            _ => None,
        }
    }

    /// Its kind in [`kinds`].
    fn kind(&self) -> u16 {
        match &self.what {
            What::Generic => kinds::GENERIC,
            What::Odd => 0,
            What::Negotiate(_) => kinds::NEGOTIATE,
            What::SessionSetup(_) => kinds::SESSION_SETUP,
            What::TreeConnect(_) => kinds::TREE_CONNECT,
            What::Create(_) => kinds::CREATE,
            What::File(_) => kinds::FILE,
            What::SetInfo(s) if matches!(s.what, Set::Rename(_)) => kinds::RENAME,
            What::SetInfo(_) => kinds::SET_FILE_PATH_INFO,
            What::Ioctl(_) => kinds::IOCTL,
            What::Dcerpc(_) => kinds::DCERPC,
        }
    }
}

/// Adds an event. Rules inspect it together with the transaction's next change.
pub(super) fn event(tx: &mut Tx<SmbTx>, event: Event) {
    tx.base.events.add(event as u8);
}

/// Completes both directions of a transaction.
pub(super) fn complete(tx: &mut Tx<SmbTx>) {
    tx.finish(Direction::ToServer);
    tx.finish(Direction::ToClient);
}

impl Content for SmbTx {
    fn held(&self) -> u64 {
        let texts = |list: &[Vec<u8>]| list.iter().map(|t| size_of::<Vec<u8>>() + t.capacity()).sum::<usize>();
        let pair = |p: &Option<(Vec<u8>, Vec<u8>)>| p.as_ref().map_or(0, |(a, b)| a.capacity() + b.capacity());
        let what = match &self.what {
            What::Generic | What::Odd | What::Ioctl(_) => 0,
            What::Negotiate(n) => size_of::<Negotiation>() + texts(&n.dialects),
            What::SessionSetup(s) => {
                let ntlm = |n: &Ntlmssp| n.domain.capacity() + n.user.capacity() + n.host.capacity();
                let kerberos = |k: &Kerberos| k.realm.capacity() + texts(&k.snames);
                let native: usize = s.native.iter().map(pair).sum();
                let who = s.ntlmssp.as_ref().map_or(0, ntlm) + s.kerberos.as_ref().map_or(0, kerberos);
                size_of::<Setup>() + native + who
            }
            What::TreeConnect(t) => size_of::<TreeConnect>() + t.share.capacity() + pair(&t.service),
            What::Create(c) => size_of::<Create>() + c.name.capacity(),
            What::File(f) => size_of::<FileAccess>() + f.name.capacity() + f.share.capacity() + f.track.held(),
            What::SetInfo(s) => {
                let new = if let Set::Rename(name) = &s.what { name.capacity() } else { 0 };
                size_of::<SetInfo>() + s.name.capacity() + new
            }
            What::Dcerpc(c) => size_of::<Call>() + c.held(),
        };
        (what + self.dialect.capacity()) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, dir, index, scratch)
    }

    fn number(&self, id: u8, _dir: Direction, index: usize) -> Option<u64> {
        super::buffers::number(self, id, index)
    }

    fn little_endian(&self, dir: Direction) -> bool {
        self.call().is_some_and(|c| c.side(dir).little)
    }

    fn file_window(&self, inline: bool) -> Option<WindowLimits> {
        Some(window::file_window(inline))
    }

    fn records(&self, options: &AppLogOptions) -> usize {
        usize::from(self.kind() & options.smb.kinds != 0)
    }

    fn log(&self, base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        super::log::log(base, self, json);
    }
}
