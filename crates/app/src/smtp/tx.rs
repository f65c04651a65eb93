//! A mail, with the commands that send it.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::{Content, Tx};
use crate::script::Answer;
use crate::tx::{Found, LogFor, TxBase};
use crate::window::WindowLimits;

use super::events::Event;
use super::mail::Mail;

/// The limit of recipients; further ones are dropped (RFC 5321, section 4.5.3.1.8 requires 100).
const MAX_RECIPIENTS: usize = 1000;
/// The limit of recipients in bytes.
const MAX_RECIPIENT_BYTES: usize = 64 << 10;

/// A transaction of SMTP.
#[derive(Debug, Default)]
pub(super) struct SmtpTx {
    /// Name of the client, from this transaction or an earlier one.
    pub(super) helo: Option<Vec<u8>>,
    /// The client gave its name in this transaction.
    pub(super) said_hello: bool,
    pub(super) mail_from: Option<Vec<u8>>,
    pub(super) rcpt_to: Vec<Vec<u8>>,
    pub(super) recipient_bytes: usize,
    pub(super) mail: Option<Box<Mail>>,
    /// The server replied to one of its commands.
    pub(super) answered: bool,
    /// The server refused the mail.
    pub(super) rejected: bool,
    pub(super) window: WindowLimits,
}

/// Adds an event of a direction: rules on the other one do not inspect the transaction because of it.
pub(super) fn event(tx: &mut Tx<SmtpTx>, event: Event, dir: Direction) {
    tx.base.events.add(event as u8);
    tx.touch(dir);
}

impl SmtpTx {
    /// Adds a recipient.
    pub(super) fn recipient(&mut self, path: &[u8]) {
        let bytes = self.recipient_bytes.saturating_add(path.len());
        if self.rcpt_to.len() < MAX_RECIPIENTS && bytes <= MAX_RECIPIENT_BYTES {
            self.recipient_bytes = bytes;
            self.rcpt_to.push(path.to_vec());
        }
    }
}

impl Content for SmtpTx {
    fn held(&self) -> u64 {
        let text = |t: &Option<Vec<u8>>| t.as_ref().map_or(0, Vec::capacity);
        let own = text(&self.helo)
            + text(&self.mail_from)
            + self.rcpt_to.capacity() * size_of::<Vec<u8>>()
            + self.recipient_bytes
            + self.mail.as_ref().map_or(0, |m| m.memory());
        own as u64
    }

    fn buffer<'a>(&'a self, id: u8, _dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        super::buffers::buffer(self, id, index, scratch)
    }

    fn file_window(&self, _inline: bool) -> Option<WindowLimits> {
        Some(self.window)
    }

    fn records(&self, _options: &AppLogOptions) -> usize {
        // A QUIT after a mail, without a reply, needs no event.
        let own = self.said_hello || self.mail_from.is_some() || !self.rcpt_to.is_empty() || self.mail.is_some();
        usize::from(own || self.answered)
    }

    fn ask(&self, _base: &TxBase, protocol: &str, what: &str, arg: Option<&[u8]>) -> Option<Answer> {
        if protocol != "smtp" {
            return None;
        }
        Some(match what {
            "get" => Answer::Bool(true),
            "get_mail_from" => Answer::bytes(self.mail_from.as_deref()),
            "get_rcpt_list" if self.rcpt_to.is_empty() => Answer::Nothing,
            "get_rcpt_list" => Answer::List(self.rcpt_to.iter().map(|r| Answer::Bytes(r.clone())).collect()),
            "get_mime_field" => Answer::bytes(self.mail.as_deref()?.named(arg?)),
            "get_mime_list" => {
                let names = self.mail.as_deref()?.names();
                let list: Vec<Answer> = names.into_iter().map(|n| Answer::Bytes(n.to_ascii_lowercase())).collect();
                if list.is_empty() { Answer::Nothing } else { Answer::List(list) }
            }
            _ => return None,
        })
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        super::log::log(self, json, options, what);
    }
}
