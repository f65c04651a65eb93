//! FTP keywords on numbers: the data connection's port and mode, whether a reply came, bounce attacks, and the command
//! of a data connection.

use super::{Direction, Keyword, Takes, number};
use crate::ast::{Compare, NumberTest, Which};
use crate::builder::Input;
use crate::error::{Fail, fail};

const FTP: &[&str] = &["ftp"];
const FTPDATA: &[&str] = &["ftp-data"];

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::number(&["ftpdata_command"], Takes::Value, FTPDATA, ftpdata_command),
    Keyword::number(&["ftp.dynamic_port"], Takes::Value, FTP, dynamic_port),
    Keyword::number(&["ftp.mode"], Takes::Value, FTP, mode),
    Keyword::number(&["ftp.reply_received"], Takes::Value, FTP, reply_received),
    Keyword::number(&["ftpbounce"], Takes::Nothing, FTP, ftpbounce).only(Direction::ToServer),
];

/// Converts a word to a condition on one value.
fn word(i: &Input<'_>, module: &'static str, values: &[(&[&str], u64)]) -> Result<(NumberTest, Which), Fail> {
    let argument = i.text.trim().to_ascii_lowercase();
    match values.iter().find(|v| v.0.contains(&argument.as_str())) {
        Some((_, value)) => Ok((NumberTest::Compare(Compare::Equal(*value)), Which::Any)),
        None => {
            let all: Vec<&str> = values.iter().flat_map(|v| v.0).copied().collect();
            fail(
                module,
                format!("invalid value for {}: \"{}\"; there are {}", i.written, i.text.trim(), all.join(", ")),
            )
        }
    }
}

fn ftpdata_command(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    let values: [(&[&str], u64); 7] = [
        (&["retr"], 1),
        (&["stor"], 2),
        (&["stou"], 3),
        (&["appe"], 4),
        (&["list"], 5),
        (&["nlst"], 6),
        (&["mlsd"], 7),
    ];
    word(i, "detect-ftpdata", &values)
}

fn dynamic_port(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u16::MAX), &|_| None)
}

fn mode(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    word(i, "detect-ftp-mode", &[(&["passive"], 0), (&["active"], 1)])
}

fn reply_received(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    word(i, "detect-ftp-reply-received", &[(&["yes", "true", "on", "1"], 1), (&["no", "false", "off", "0"], 0)])
}

#[allow(clippy::unnecessary_wraps)]
fn ftpbounce(_: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    Ok((NumberTest::Compare(Compare::Equal(1)), Which::Any))
}
