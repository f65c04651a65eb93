//! Buffers of SMTP for rules.

use crate::mime::Status;
use crate::tx::{BufferKind, Found};

use super::mail::Mail;
use super::tx::SmtpTx;
use super::{COMPLETE, HEADER};
use crate::config::smtp::MailField;

buffers! {
    Helo "smtp.helo" Single Some(0), None;
    MailFrom "smtp.mail_from" Single Some(0), None;
    RcptTo "smtp.rcpt_to" Multi Some(0), None;
    From "email.from" Multi Some(HEADER), None;
    Subject "email.subject" Multi Some(HEADER), None;
    To "email.to" Multi Some(HEADER), None;
    Cc "email.cc" Multi Some(HEADER), None;
    Date "email.date" Multi Some(HEADER), None;
    MessageId "email.message_id" Multi Some(HEADER), None;
    XMailer "email.x_mailer" Multi Some(HEADER), None;
    Received "email.received" Multi Some(HEADER), None;
    Url "email.url" Multi Some(COMPLETE[0]), None;
    BodyMd5 "email.body_md5" Single Some(COMPLETE[0]), None;
}

/// See [`crate::Transaction::buffer`].
pub(super) fn buffer<'a>(tx: &'a SmtpTx, id: u8, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
    let buffer = *ALL.get(usize::from(id))?;
    if index > 0 && !BUFFERS.get(usize::from(id))?.kind.is_several() {
        return None;
    }
    let data = match buffer {
        Buffer::Helo => tx.helo.as_deref(),
        Buffer::MailFrom => tx.mail_from.as_deref(),
        Buffer::RcptTo => tx.rcpt_to.get(index).map(Vec::as_slice),
        _ => email(tx.mail.as_ref()?, id.checked_sub(FIRST)?, index, scratch),
    };
    data.map(Found::whole)
}

/// Id of the first buffer that all mail protocols share.
const FIRST: u8 = Buffer::From as u8;

/// The buffers of a mail, whichever protocol carries it.
pub(crate) const EMAIL: [(&str, BufferKind); 10] = [
    ("email.from", BufferKind::Multi),
    ("email.subject", BufferKind::Multi),
    ("email.to", BufferKind::Multi),
    ("email.cc", BufferKind::Multi),
    ("email.date", BufferKind::Multi),
    ("email.message_id", BufferKind::Multi),
    ("email.x_mailer", BufferKind::Multi),
    ("email.received", BufferKind::Multi),
    ("email.url", BufferKind::Multi),
    ("email.body_md5", BufferKind::Single),
];

/// The buffer of a mail at an index of [`EMAIL`].
pub(crate) fn email<'a>(mail: &'a Mail, place: u8, index: usize, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let buffer = *ALL.get(usize::from(FIRST + place.min(EMAIL.len() as u8)))?;
    // Of a field that may occur once, programs show the first or the last one.
    let field = |f: MailField| mail.all(f).nth(index);
    match buffer {
        Buffer::Helo | Buffer::MailFrom | Buffer::RcptTo => None,
        Buffer::From => field(MailField::From),
        Buffer::Subject => field(MailField::Subject),
        Buffer::To => field(MailField::To),
        Buffer::Cc => field(MailField::Cc),
        Buffer::Date => field(MailField::Date),
        Buffer::MessageId => field(MailField::MessageId),
        Buffer::XMailer => field(MailField::XMailer),
        Buffer::Received => field(MailField::Received),
        Buffer::Url => mail.urls.get(index).map(Vec::as_slice),
        Buffer::BodyMd5 if index > 0 || mail.status() != Status::Done => None,
        Buffer::BodyMd5 => {
            for b in mail.body_md5()? {
                scratch.extend_from_slice(format!("{b:02x}").as_bytes());
            }
            Some(scratch.as_slice())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (i, b) in BUFFERS.iter().enumerate() {
            assert_eq!(usize::from(b.id), i, "{}", b.name);
            let of_mail = i.checked_sub(usize::from(FIRST)).map(|place| EMAIL[place]);
            assert!(of_mail.is_none_or(|e| e == (b.name, b.kind)), "{}", b.name);
        }
    }
}
