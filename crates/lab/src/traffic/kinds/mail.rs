//! SMTP (RFC 5321) and POP3 (RFC 1939).

use super::super::profile::Options;
use super::super::session::{Session, Stream};
use super::super::template::Dir::{Client, Server};
use super::{base64, prose};

const PEOPLE: [&str; 8] = ["anna", "bjorn", "clara", "david", "edda", "felix", "greta", "henrik"];

fn person(s: &mut Session<'_>) -> String {
    let name = *s.rng.pick(&PEOPLE);
    let tld = *s.rng.pick(&["com", "net", "org"]);
    format!("{name}@example.{tld}")
}

/// Sends one or more lines, and the answer to them.
fn ask(s: &mut Session<'_>, t: &mut Stream, question: &str, answer: &str) {
    s.send(t, Client, question.as_bytes());
    s.wait(300_000);
    s.send(t, Server, answer.as_bytes());
}

/// A mail with a text and an attachment of about `bytes` bytes, without the final dot.
pub(crate) fn mail(s: &mut Session<'_>, from: &str, to: &str, bytes: usize) -> String {
    let id = s.rng.word(12);
    let text = prose(s, 400);
    let file = base64(s, bytes);
    let name = s.rng.word(6);
    format!(
        "From: <{from}>\r\nTo: <{to}>\r\nSubject: Report {name}\r\nDate: Sat, 01 Jun 2024 10:00:00 +0000\r\nMessage-ID: <{id}@example.com>\r\n\
         MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"part-{id}\"\r\n\r\n--part-{id}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
         {text}\r\n--part-{id}\r\nContent-Type: application/octet-stream; name=\"{name}.bin\"\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Disposition: attachment; filename=\"{name}.bin\"\r\n\r\n{file}\r\n--part-{id}--\r\n"
    )
}

pub(super) fn smtp(s: &mut Session<'_>, o: &Options) {
    let (from, to) = (person(s), person(s));
    let size = s.rng.tailed(o.bytes.unwrap_or(12_000), 500) as usize;
    let mut t = s.open(0, o.port.unwrap_or(25));
    s.wait(1_000_000);
    s.send(&mut t, Server, b"220 mx1.example.com ESMTP Postfix\r\n");
    ask(
        s,
        &mut t,
        "EHLO client.example.net\r\n",
        "250-mx1.example.com\r\n250-PIPELINING\r\n250-SIZE 52428800\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n",
    );
    ask(s, &mut t, &format!("MAIL FROM:<{from}>\r\n"), "250 2.1.0 Ok\r\n");
    ask(s, &mut t, &format!("RCPT TO:<{to}>\r\n"), "250 2.1.5 Ok\r\n");
    ask(s, &mut t, "DATA\r\n", "354 End data with <CR><LF>.<CR><LF>\r\n");
    let body = mail(s, &from, &to, size);
    let queue = s.rng.word(10).to_ascii_uppercase();
    ask(s, &mut t, &format!("{body}.\r\n"), &format!("250 2.0.0 Ok: queued as {queue}\r\n"));
    ask(s, &mut t, "QUIT\r\n", "221 2.0.0 Bye\r\n");
    s.close(&mut t, Server);
}

pub(super) fn pop3(s: &mut Session<'_>, o: &Options) {
    let count = o.requests.unwrap_or(3);
    let user = person(s);
    let mails: Vec<String> = (0..count)
        .map(|_| {
            let size = s.rng.tailed(o.bytes.unwrap_or(8_000), 500) as usize;
            let from = person(s);
            mail(s, &from, &user, size)
        })
        .collect();
    let total: usize = mails.iter().map(String::len).sum();
    let mut t = s.open(0, o.port.unwrap_or(110));
    s.wait(500_000);
    s.send(&mut t, Server, b"+OK POP3 server ready\r\n");
    let name = user.split('@').next().unwrap_or("anna").to_owned();
    ask(s, &mut t, &format!("USER {name}\r\n"), "+OK\r\n");
    let password = s.rng.word(10);
    ask(s, &mut t, &format!("PASS {password}\r\n"), "+OK logged in\r\n");
    ask(s, &mut t, "STAT\r\n", &format!("+OK {count} {total}\r\n"));
    let list: String = mails.iter().enumerate().map(|(n, m)| format!("{} {}\r\n", n + 1, m.len())).collect();
    ask(s, &mut t, "LIST\r\n", &format!("+OK {count} messages\r\n{list}.\r\n"));
    for (n, mail) in mails.iter().enumerate() {
        ask(s, &mut t, &format!("RETR {}\r\n", n + 1), &format!("+OK {} octets\r\n{mail}.\r\n", mail.len()));
        ask(s, &mut t, &format!("DELE {}\r\n", n + 1), "+OK marked\r\n");
    }
    ask(s, &mut t, "QUIT\r\n", "+OK bye\r\n");
    s.close(&mut t, Server);
}
