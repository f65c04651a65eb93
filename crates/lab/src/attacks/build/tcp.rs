//! TCP connections, and segments without a connection.

use super::{Message, Sample};
use crate::traffic::session::{ACK, Bare, FIN, PSH, RST, SYN, Session};
use crate::traffic::template::Dir;

const URG: u8 = 32;
/// Nanoseconds between segments.
const APART: u64 = 50_000;

/// Parses flags from their letters.
pub(in super::super) fn flags(text: &str) -> Result<u8, String> {
    text.chars().try_fold(0, |flags, letter| {
        Ok(flags
            | match letter {
                'F' => FIN,
                'S' => SYN,
                'R' => RST,
                'P' => PSH,
                'A' => ACK,
                'U' => URG,
                _ => return Err(format!("'{letter}' is no flag of TCP: F, S, R, P, A and U are")),
            })
    })
}

/// A connection with these messages, each in separate segments.
pub(super) fn connection(s: &mut Session<'_>, client: u16, server: u16, say: &[Message]) {
    let mut stream = s.open(client, server);
    for message in say {
        s.send(&mut stream, message.dir(), &message.data);
    }
    s.close(&mut stream, Dir::Client);
}

/// Sends one segment for each of `flags`.
pub(super) fn bare(s: &mut Session<'_>, sample: &Sample, client: u16, flags: &[u8]) {
    let data = sample.say.first().map_or(&[][..], |message| &message.data);
    for &flags in flags {
        s.bare(Dir::Client, &Bare { ports: [client, sample.port], seq: 100, flags, window: sample.window }, data);
        s.wait(APART);
    }
}
