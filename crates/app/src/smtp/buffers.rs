//! What SMTP offers to rules.

use margay_flow::Direction;

use crate::mime::Status;
use crate::tx::Found;

use super::config::MailField;
use super::tx::SmtpTx;
use super::{COMPLETE, HEADER};

buffers! {
    Helo "smtp.helo" Single Some(0), None;
    MailFrom "smtp.mail_from" Single Some(0), None;
    RcptTo "smtp.rcpt_to" Multi Some(0), None;
    From "email.from" Single Some(HEADER), None;
    Subject "email.subject" Single Some(HEADER), None;
    To "email.to" Single Some(HEADER), None;
    Cc "email.cc" Single Some(HEADER), None;
    Date "email.date" Single Some(HEADER), None;
    MessageId "email.message_id" Single Some(HEADER), None;
    XMailer "email.x_mailer" Single Some(HEADER), None;
    Received "email.received" Multi Some(HEADER), None;
    Url "email.url" Multi Some(COMPLETE[0]), None;
    BodyMd5 "email.body_md5" Single Some(COMPLETE[0]), None;
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
    if index > 0 && !def.kind.is_several() {
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
