//! PostgreSQL's protocol, version 3: a client's queries and the rows of the answers.

use super::super::profile::Options;
use super::super::session::Session;
use super::super::template::Dir::{Client, Server};

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

pub(super) fn sql(s: &mut Session<'_>, o: &Options) {
    const TABLES: [&str; 6] = ["orders", "customers", "stock", "invoices", "shipments", "prices"];
    let mut t = s.open(0, o.port.unwrap_or(5432));
    let mut start = 196_608u32.to_be_bytes().to_vec();
    start.extend(b"user\0shop\0database\0shop\0application_name\0till\0client_encoding\0UTF8\0\0");
    let start = [&(start.len() as u32 + 4).to_be_bytes()[..], &start].concat();
    s.send(&mut t, Client, &start);
    let mut hello = message(b'R', &[0, 0, 0, 0]);
    for pair in [&b"server_version\x0015.6\0"[..], b"client_encoding\0UTF8\0", b"TimeZone\0Etc/UTC\0"] {
        hello.extend(message(b'S', pair));
    }
    let secret = s.rng.bytes(8);
    hello.extend(message(b'K', &secret));
    hello.extend(message(b'Z', b"I"));
    s.send(&mut t, Server, &hello);
    for n in 0..o.requests.unwrap_or(12) {
        if n > 0 {
            let think = s.rng.tailed(15_000_000, 500_000);
            s.wait(think);
        }
        let table = *s.rng.pick(&TABLES);
        let key = s.rng.below(1_000_000);
        if s.rng.chance(0.2) {
            let q = format!("UPDATE {table} SET amount = amount - 1 WHERE id = {key}\0");
            s.send(&mut t, Client, &message(b'Q', q.as_bytes()));
            s.wait(900_000);
            let mut done = message(b'C', b"UPDATE 1\0");
            done.extend(message(b'Z', b"I"));
            s.send(&mut t, Server, &done);
            continue;
        }
        let q = format!("SELECT id, name, note FROM {table} WHERE id > {key} ORDER BY id LIMIT 100\0");
        s.send(&mut t, Client, &message(b'Q', q.as_bytes()));
        let mut description = vec![0, 3];
        for (column, oid) in [("id", 23u32), ("name", 25), ("note", 25)] {
            description.extend(column.as_bytes());
            description.push(0);
            description.extend([0, 0, 0x40, 1, 0, 1]);
            description.extend(oid.to_be_bytes());
            description.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        }
        let mut rows = message(b'T', &description);
        let wanted = s.rng.tailed(o.bytes.unwrap_or(2_500), 80) as usize;
        let mut count = 0;
        while rows.len() < wanted {
            count += 1;
            let fields = [format!("{}", key + count), s.rng.word(9), s.rng.word(40)];
            let mut row = vec![0, 3];
            for f in &fields {
                row.extend((f.len() as u32).to_be_bytes());
                row.extend(f.as_bytes());
            }
            rows.extend(message(b'D', &row));
        }
        rows.extend(message(b'C', format!("SELECT {count}\0").as_bytes()));
        rows.extend(message(b'Z', b"I"));
        s.wait(1_200_000);
        s.send(&mut t, Server, &rows);
    }
    s.send(&mut t, Client, &message(b'X', &[]));
    s.close(&mut t, Client);
}
