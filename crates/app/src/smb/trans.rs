//! Transactions of SMB1: named pipe operations (MS-CIFS section 2.2.5.6), and setting of file properties (section 2.2.6).

use margay_flow::Direction;

use super::events::Event;
use super::header::{Smb1, Status};
use super::parser::{Smb, Turn};
use super::smb1::{Block, request_key};
use super::text;
use super::tx::{FileId, Set, SetInfo, What};
use crate::reader::Reader;

const TRANSACT_NAMED_PIPE: u16 = 0x26;
const SET_PATH_INFORMATION: u16 = 6;
const SET_FILE_INFORMATION: u16 = 8;

/// The content of a request.
#[derive(Debug)]
struct Trans<'a> {
    setup: Vec<u16>,
    parameters: &'a [u8],
    data: &'a [u8],
}

fn part<'a>(b: &Block<'a>, at: u16, len: u16) -> Option<&'a [u8]> {
    if len == 0 { Some(&[]) } else { b.message.get(usize::from(at)..)?.get(..usize::from(len)) }
}

/// Reads a `TRANS` or `TRANS2` request.
fn request<'a>(b: &Block<'a>) -> Option<Trans<'a>> {
    let mut r = Reader::little(b.words);
    r.take(18)?;
    let (plen, pat, dlen, dat) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
    let count = r.u8()?;
    r.u8()?;
    let mut setup = Vec::new();
    for _ in 0..count {
        setup.push(r.u16()?);
    }
    Some(Trans { setup, parameters: part(b, pat, plen)?, data: part(b, dat, dlen)? })
}

impl Smb {
    /// Handles a named pipe operation if it is DCE/RPC. Returns its transaction.
    pub(super) fn trans_request(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: &Block<'_>) -> Option<u64> {
        let Some(t) = request(b) else {
            self.report(turn, Direction::ToServer, 1, None, Event::MalformedData);
            return None;
        };
        let [TRANSACT_NAMED_PIPE, fid, ..] = *t.setup.as_slice() else { return None };
        let id = self.pipe_request(turn, Self::seed1(h), FileId::Smb1(fid), t.data)??;
        self.asked(turn, id, Some(request_key(h)));
        Some(id)
    }

    /// Handles the response to a named pipe operation.
    pub(super) fn trans_response(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: &Block<'_>, id: u64, status: Status) {
        let read = || {
            let mut r = Reader::little(b.words);
            r.take(12)?;
            let (len, at) = (r.u16()?, r.u16()?);
            part(b, at, len)
        };
        let works = status.is_success() || status == Status::BUFFER_OVERFLOW;
        match (turn.peek(id).and_then(|tx| tx.content.file).filter(|_| works), read()) {
            (Some(pipe), Some(data)) => {
                self.pipe_response(turn, Self::seed1(h), pipe, data, Some(id));
            }
            (Some(_), None) => {
                self.report(turn, Direction::ToClient, 1, Some(id), Event::MalformedData);
                self.answered(turn, id);
            }
            (None, _) => self.answered(turn, id),
        }
    }

    /// Reads the property that is set, if it is one that is logged.
    pub(super) fn trans2_request(&self, b: &Block<'_>, unicode: bool) -> Option<What> {
        let t = request(b)?;
        let mut r = Reader::little(t.parameters);
        let (subcommand, name, id, level) = match *t.setup.first()? {
            SET_FILE_INFORMATION => {
                let id = FileId::Smb1(r.u16()?);
                let name = self.names.get(&id).cloned().unwrap_or_else(|| b"<unknown>".to_vec());
                ("SET_FILE_INFO", name, Some(id), r.u16()?)
            }
            SET_PATH_INFORMATION => {
                let level = r.u16()?;
                r.u32()?;
                let name = if unicode { text::utf16(r.rest()) } else { text::bytes(r.rest()) };
                ("SET_PATH_INFO", name, None, level)
            }
            _ => return None,
        };
        let (level, what) = match level {
            // SMB_SET_FILE_DISPOSITION_INFO and its native counterpart.
            0x0102 | 1013 => ("Set Disposition Information", Set::Delete(t.data.first()? & 1 != 0)),
            // FileRenameInformation.
            1010 => {
                let mut r = Reader::little(t.data);
                r.take(8)?;
                let len = r.u32()? as usize;
                let to = r.take(len)?;
                ("SET_FILE_RENAME_INFO", Set::Rename(text::utf16(to)))
            }
            _ => return None,
        };
        let class = "";
        Some(What::SetInfo(Box::new(SetInfo { name, id, class, level, subcommand: Some(subcommand), what })))
    }
}
