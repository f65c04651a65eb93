//! A command with its replies.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::tx::{Found, LogFor, TxBase};

use super::parser::Verb;
use super::{
    ACTIVE, BOUNCE, COMMAND, COMMAND_DATA, COMPLETION_CODE, DYNAMIC_PORT, MODE, PASSIVE, REPLY, REPLY_RECEIVED,
};

/// The limit of reply lines in a transaction; further ones are dropped, and the reply is truncated.
const LINES_MAX: usize = 1024;
/// The limit of reply lines in bytes, unless the line limit is higher.
pub(super) const BYTES_MAX: usize = 64 << 10;
/// The overhead of a line in bytes.
const LINE: usize = size_of::<Vec<u8>>() + size_of::<[u8; 3]>();
/// Bytes of a command's name that are kept even above the memory limit.
const NAME_MIN: usize = 8;

/// The protocol's part of a transaction.
#[derive(Debug, Default)]
pub(super) struct FtpTx {
    /// The command in capitals; empty for an unknown command, or if the server sent data on its own.
    pub(super) command: Vec<u8>,
    /// The command's meaning for the parser.
    pub(super) verb: Verb,
    /// The command's argument.
    pub(super) data: Vec<u8>,
    pub(super) command_truncated: bool,
    /// Reply codes, one for each line that has one.
    pub(super) codes: Vec<[u8; 3]>,
    /// Reply texts, one for each line that has one.
    pub(super) replies: Vec<Vec<u8>>,
    pub(super) reply_truncated: bool,
    /// The announced data port.
    pub(super) port: Option<u16>,
    /// Whether the server connects to it.
    pub(super) active: bool,
    /// The announced address is not the client's.
    pub(super) bounce: bool,
    /// Whether a reply came.
    pub(super) answered: bool,
    pub(super) reply_bytes: usize,
    /// Memory at the last count.
    pub(super) counted: u64,
}

/// The memory that is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Memory used by the transactions of all flows, and the limit (0: none).
    pub used: u64,
    pub memcap: u64,
}

impl Room {
    fn fits(self, more: usize) -> bool {
        self.memcap == 0 || self.used.saturating_add(more as u64) <= self.memcap
    }
}

impl FtpTx {
    /// Stores the command. Returns whether there was memory for it.
    pub(super) fn set_command(&mut self, name: &[u8], data: &[u8], room: Room) -> bool {
        let fits = room.fits(name.len() + data.len());
        let keep = if fits { name } else { name.get(..NAME_MIN).unwrap_or(name) };
        self.command = keep.to_ascii_uppercase();
        if fits {
            self.data = data.to_vec();
        } else {
            self.command_truncated = true;
        }
        fits
    }

    /// Stores a reply line, up to `limit` bytes. Returns whether there was memory for it.
    pub(super) fn add_reply(&mut self, code: Option<[u8; 3]>, text: &[u8], limit: usize, room: Room) -> bool {
        self.answered = true;
        let fits = room.fits(text.len() + LINE);
        if !fits || self.lines() >= LINES_MAX || self.reply_bytes + text.len() > limit.max(BYTES_MAX) {
            self.reply_truncated = true;
            return fits;
        }
        self.reply_bytes += text.len();
        self.codes.extend(code);
        if code.is_none() || !text.is_empty() {
            self.replies.push(text.to_vec());
        }
        true
    }

    fn lines(&self) -> usize {
        self.codes.len().max(self.replies.len())
    }

    /// Updates the memory count of its texts.
    pub(super) fn count(&mut self, total: &mut u64) {
        let now = (self.command.len() + self.data.len() + self.reply_bytes + self.lines() * LINE) as u64;
        *total = total.saturating_sub(self.counted).saturating_add(now);
        self.counted = now;
    }

    /// Removes its memory from the count.
    pub(super) fn uncount(&mut self, total: &mut u64) {
        *total = total.saturating_sub(std::mem::take(&mut self.counted));
    }
}

impl Content for FtpTx {
    fn counted(&self) -> u64 {
        self.counted
    }

    fn held(&self) -> u64 {
        let replies: usize = self.replies.capacity() * size_of::<Vec<u8>>() + self.reply_bytes;
        let codes = self.codes.capacity() * size_of::<[u8; 3]>();
        (self.command.capacity() + self.data.capacity() + replies + codes) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let to_server = dir == Direction::ToServer;
        // Rules do not inspect a greeting, because it answers no command (observed).
        let asked = !self.command.is_empty();
        let data: &[u8] = match id {
            COMMAND if to_server && index == 0 => &self.command,
            COMMAND_DATA if to_server && index == 0 => &self.data,
            REPLY if !to_server && asked => return Some(Found::whole(self.replies.get(index)?)),
            COMPLETION_CODE if !to_server && asked => self.codes.get(index)?,
            _ => return None,
        };
        (!data.is_empty()).then_some(Found::whole(data))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if index > 0 {
            return None;
        }
        match id {
            DYNAMIC_PORT => self.port.map(u64::from),
            MODE => self.port.map(|_| if self.active { ACTIVE } else { PASSIVE }),
            REPLY_RECEIVED if dir == Direction::ToClient && !self.command.is_empty() => Some(u64::from(self.answered)),
            BOUNCE if dir == Direction::ToServer => Some(u64::from(self.bounce)),
            _ => None,
        }
    }

    fn log(&self, _: &TxBase, json: &mut Json, _: &AppLogOptions, what: LogFor) {
        if what != LogFor::File {
            super::log::log(self, json);
        }
    }
}
