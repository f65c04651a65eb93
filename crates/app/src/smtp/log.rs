//! The `smtp` and `email` members of events, in the form of Suricata 8.

use margay_json::Json;
use md5::{Digest, Md5};

use crate::config::AppLogOptions;
use crate::tx::LogFor;

use super::mail::Mail;
use super::tx::SmtpTx;
use crate::config::smtp::MailField;

/// Appends `"smtp":{...}` and `"email":{...}`. Only the transaction's own event has the members that `extended`, `custom` and
/// `md5` add.
pub(super) fn log(tx: &SmtpTx, json: &mut Json, options: &AppLogOptions, what: LogFor) {
    json.object("smtp");
    if let Some(helo) = &tx.helo {
        json.bytes("helo", helo);
    }
    if let Some(from) = &tx.mail_from {
        json.bytes("mail_from", from);
    }
    if !tx.rcpt_to.is_empty() {
        list(json, "rcpt_to", tx.rcpt_to.iter().map(Vec::as_slice));
    }
    json.end_object();
    if let Some(mail) = tx.mail.as_deref().filter(|m| m.is_parsed()) {
        email(mail, json, options, what);
    }
}

/// Appends `"email":{...}`. Like in Suricata, URLs and fields with the same name are in reverse order.
pub(crate) fn email(mail: &Mail, json: &mut Json, options: &AppLogOptions, what: LogFor) {
    json.object("email");
    json.str("status", mail.status().name());
    if let Some(from) = mail.first(MailField::From) {
        json.bytes("from", from);
    }
    for (key, field) in [("to", MailField::To), ("cc", MailField::Cc)] {
        if let Some(value) = mail.first(field) {
            list(json, key, addresses(value));
        }
    }
    if !mail.attachments.is_empty() {
        list(json, "attachment", mail.attachments.iter().map(Vec::as_slice));
    }
    if !mail.urls.is_empty() {
        list(json, "url", mail.urls.iter().rev().map(Vec::as_slice));
    }
    if what == LogFor::Event {
        own(mail, json, options);
    }
    json.end_object();
}

/// Appends the members of the mail's own event.
fn own(mail: &Mail, json: &mut Json, options: &AppLogOptions) {
    for field in MailField::ALL.iter().copied().filter(|f| options.smtp.fields.contains(f)) {
        let Some(value) = mail.first(field) else { continue };
        match field {
            MailField::From | MailField::To | MailField::Cc => {}
            MailField::Bcc => list(json, "bcc", addresses(value)),
            MailField::Received => list(json, "received", mail.all(field)),
            MailField::Relays => list(json, "relays", mail.all(field)),
            f => {
                json.name(&f.name().replace('-', "_"));
                json.item_bytes(value);
            }
        }
    }
    if options.smtp.md5_subject
        && let Some(subject) = mail.first(MailField::Subject)
    {
        json.hex("subject_md5", &Md5::digest(subject));
    }
    if options.smtp.md5_body
        && let Some(digest) = mail.body_md5()
    {
        json.hex("body_md5", &digest);
    }
}

fn list<'a>(json: &mut Json, key: &'static str, items: impl Iterator<Item = &'a [u8]>) {
    json.array(key);
    items.for_each(|i| json.item_bytes(i));
    json.end_array();
}

/// The addresses of a list (RFC 5322, section 3.4). A comma within quotes does not separate addresses.
fn addresses(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let comma = move |b: &u8| {
        let literal = std::mem::replace(&mut escaped, false);
        match *b {
            b'\\' => escaped = !literal && quoted,
            b'"' if !literal => quoted = !quoted,
            _ => {}
        }
        *b == b',' && !quoted
    };
    value.split(comma).map(<[u8]>::trim_ascii).filter(|a| !a.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_addresses() {
        let all = |v: &'static str| {
            addresses(v.as_bytes()).map(|a| String::from_utf8_lossy(a).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(all("a <b@c>,\"x,y\" <e@f> , g"), ["a <b@c>", "\"x,y\" <e@f>", "g"]);
        assert_eq!(all("\"a\\\",b\" <c@d>, e"), ["\"a\\\",b\" <c@d>", "e"]);
        assert_eq!(all(" , "), [""; 0]);
    }
}
