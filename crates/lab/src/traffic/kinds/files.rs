//! FTP (RFC 959) with extended passive mode (RFC 2428).

use super::super::profile::Options;
use super::super::session::{Session, Stream};
use super::super::template::Dir::{Client, Server};
use super::prose;

fn ask(s: &mut Session<'_>, t: &mut Stream, question: &str, answer: &str) {
    s.send(t, Client, question.as_bytes());
    s.wait(300_000);
    s.send(t, Server, answer.as_bytes());
}

/// A transfer over its own data connection, which is the session's number `n`.
fn transfer(s: &mut Session<'_>, control: &mut Stream, n: u16, command: &str, data: &[u8], upload: bool) {
    let port = s.rng.range(20_000, 60_000) as u16;
    ask(s, control, "EPSV\r\n", &format!("229 Entering Extended Passive Mode (|||{port}|)\r\n"));
    let turn = s.turn();
    s.wait(turn);
    let mut d = s.open(n, port);
    ask(s, control, command, "150 Ok to send data.\r\n");
    let who = if upload { Client } else { Server };
    s.send(&mut d, who, data);
    s.close(&mut d, who);
    s.send(control, Server, b"226 Transfer complete.\r\n");
}

pub(super) fn ftp(s: &mut Session<'_>, o: &Options) {
    let mut t = s.open(0, o.port.unwrap_or(21));
    s.wait(500_000);
    s.send(&mut t, Server, b"220 FTP server ready.\r\n");
    ask(s, &mut t, "USER anonymous\r\n", "331 Please specify the password.\r\n");
    ask(s, &mut t, "PASS guest@example.net\r\n", "230 Login successful.\r\n");
    ask(s, &mut t, "TYPE I\r\n", "200 Switching to Binary mode.\r\n");
    ask(s, &mut t, "PWD\r\n", "257 \"/\" is the current directory\r\n");
    let mut list = String::new();
    for _ in 0..s.rng.range(3, 12) {
        let (size, name) = (s.rng.range(100, 9_000_000), s.rng.word(8));
        list += &format!("-rw-r--r--    1 0        0      {size:>10} Jun 01 10:00 {name}.dat\r\n");
    }
    transfer(s, &mut t, 1, "LIST\r\n", list.as_bytes(), false);
    let size = s.rng.tailed(o.bytes.unwrap_or(60_000), 1000) as usize;
    let name = s.rng.word(8);
    let upload = s.rng.chance(o.upload);
    if upload {
        let data = prose(s, size);
        transfer(s, &mut t, 2, &format!("STOR {name}.txt\r\n"), data.as_bytes(), true);
    } else {
        let data = s.rng.bytes(size);
        transfer(s, &mut t, 2, &format!("RETR {name}.dat\r\n"), &data, false);
    }
    ask(s, &mut t, "QUIT\r\n", "221 Goodbye.\r\n");
    s.close(&mut t, Server);
}
