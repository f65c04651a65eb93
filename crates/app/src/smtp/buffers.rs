//! What SMTP offers to rules.

use margay_flow::Direction;

use crate::mime::Status;
use crate::tx::{BufferDef, BufferKind, Found};

use super::config::MailField;
use super::tx::SmtpTx;
use super::{COMPLETE, HEADER};

macro_rules! buffers {
    ($($id:ident $name:literal $kind:ident $progress:expr;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        enum Buffer { $($id),* }

        const ALL: &[Buffer] = &[$(Buffer::$id),*];

        /// Buffers for rules; numbers are those of [`ALL`].
        pub(super) static BUFFERS: &[BufferDef] = &[$(BufferDef {
            name: $name, id: Buffer::$id as u8, kind: BufferKind::$kind, progress: [Some($progress), None],
        }),*];
    };
}

buffers! {
    Helo "smtp.helo" Single 0;
    MailFrom "smtp.mail_from" Single 0;
    RcptTo "smtp.rcpt_to" Multi 0;
    From "email.from" Single HEADER;
    Subject "email.subject" Single HEADER;
    To "email.to" Single HEADER;
    Cc "email.cc" Single HEADER;
    Date "email.date" Single HEADER;
    MessageId "email.message_id" Single HEADER;
    XMailer "email.x_mailer" Single HEADER;
    Received "email.received" Multi HEADER;
    Url "email.url" Multi COMPLETE[0];
    BodyMd5 "email.body_md5" Single COMPLETE[0];
}

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer<'a>(
    tx: &'a SmtpTx,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let buffer = *ALL.get(usize::from(id))?;
    let def = BUFFERS.get(usize::from(id))?;
    let needed = def.progress.get(dir.index()).copied().flatten()?;
    if tx.base.progress.get(dir.index()).is_none_or(|&p| p < needed) {
        return None;
    }
    if index > 0 && def.kind != BufferKind::Multi {
        return None;
    }
    let field = |f: MailField| tx.mail.as_ref().and_then(|m| m.first(f));
    let data = match buffer {
        Buffer::Helo => tx.helo.as_deref(),
        Buffer::MailFrom => tx.mail_from.as_deref(),
        Buffer::RcptTo => tx.rcpt_to.get(index).map(Vec::as_slice),
        Buffer::From => field(MailField::From),
        Buffer::Subject => field(MailField::Subject),
        Buffer::To => field(MailField::To),
        Buffer::Cc => field(MailField::Cc),
        Buffer::Date => field(MailField::Date),
        Buffer::MessageId => field(MailField::MessageId),
        Buffer::XMailer => field(MailField::XMailer),
        Buffer::Received => tx.mail.as_ref().and_then(|m| m.all(MailField::Received).nth(index)),
        Buffer::Url => tx.mail.as_ref().and_then(|m| m.urls.get(index)).map(Vec::as_slice),
        Buffer::BodyMd5 => {
            let mail = tx.mail.as_ref().filter(|m| m.status() == Status::Done)?;
            let digest = mail.body_md5()?;
            for b in digest {
                scratch.extend_from_slice(format!("{b:02x}").as_bytes());
            }
            Some(scratch.as_slice())
        }
    };
    data.map(Found::whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (i, b) in BUFFERS.iter().enumerate() {
            assert_eq!(usize::from(b.id), i, "{}", b.name);
        }
    }
}
