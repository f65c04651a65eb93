//! Keywords of files and of application protocols other than HTTP: their buffers, and their other checks, which stay as
//! text until the protocol parses them.

use std::cmp::Ordering;

use super::{Buffer, Direction, Keyword, need_protocol, side};
use crate::ast::{
    Arrow, BufferCheck, BufferChecks, Check, Content, Effect, FileCheck, FileHash, FileScope, FileSide, Protocol,
};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::number::compare;
use crate::protocol;

pub(super) const SSH: &[&str] = &["ssh"];
pub(super) const DCE: &[&str] = &["dcerpc", "smb"];
const TEMPLATE: &[&str] = &["template"];
const FILE: &[&str] = &["http", "http1", "http2", "doh2", "smtp", "ftp", "ftp-data", "smb", "nfs", "pop3", "imap"];

macro_rules! buffers {
    ($($id:ident $name:literal $internal:literal $description:literal $protocols:ident $direction:ident $multi:literal $feature:literal;)*) => {
        $(pub(super) static $id: Buffer = Buffer {
            name: $name, internal: $internal, description: $description, protocols: $protocols,
            direction: Direction::$direction, multi: $multi, feature: $feature, ..Buffer::PLAIN
        };)*
    };
}

buffers! {
    DCERPC_STUB_DATA "dcerpc.stub_data" "dce_stub_data" "dcerpc stub data" DCE Both false "";
    TEMPLATE2 "template2" "template2" "template2" TEMPLATE Both false "";
    FILE_DATA "file.data" "file_data" "data from tracked files" FILE Both true "file";
    FILE_NAME "file.name" "file_name" "file name" FILE Both true "file";
    FILE_MAGIC "file.magic" "file_magic" "file magic" FILE Both true "file";
}

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::sticky(&["dcerpc.stub_data", "dce_stub_data"], &DCERPC_STUB_DATA),
    Keyword::sticky(&["template2"], &TEMPLATE2),
    Keyword::maybe(&["file.data", "file_data"], file_data)
        .needs("file")
        .about("sticky buffer of the contents of files, and of bodies of HTTP responses"),
    Keyword::sticky(&["file.name"], &FILE_NAME),
    Keyword::sticky(&["file.magic"], &FILE_MAGIC),
    Keyword::value(&["filesize"], filesize).or_unquoted().needs("file").about("the size of a file"),
    Keyword::value(&["fileext"], file_text)
        .or_unquoted()
        .negatable()
        .needs("file")
        .about("the extension of a file's name"),
    Keyword::value(&["filename"], file_text).or_unquoted().negatable().needs("file").about("the name of a file"),
    Keyword::value(&["filemagic"], file_text)
        .or_unquoted()
        .negatable()
        .needs("file")
        .about("what a file is recognised as"),
    Keyword::value(&["filemd5"], file_hash)
        .or_unquoted()
        .negatable()
        .needs("file")
        .about("a file's MD5 digest is in a list"),
    Keyword::value(&["filesha1"], file_hash)
        .or_unquoted()
        .negatable()
        .needs("file")
        .about("a file's SHA-1 digest is in a list"),
    Keyword::value(&["filesha256"], file_hash)
        .or_unquoted()
        .negatable()
        .needs("file")
        .about("a file's SHA-256 digest is in a list"),
    Keyword::maybe(&["filestore"], filestore).needs("file").about("store the file that matched"),
    Keyword::value(&["frame"], frame)
        .needs("frame")
        .about("sticky buffer of a frame that a parser marked in the stream"),
    Keyword::value(&["app-layer-state"], app_layer_state).needs("app-layer").about("how far the transaction has come"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::File(FileCheck::Name { .. }) => "filename",
        Check::File(FileCheck::Extension { .. }) => "fileext",
        Check::File(FileCheck::Magic { .. }) => "filemagic",
        Check::File(FileCheck::Hash { kind: FileHash::Md5, .. }) => "filemd5",
        Check::File(FileCheck::Hash { kind: FileHash::Sha1, .. }) => "filesha1",
        Check::File(FileCheck::Hash { kind: FileHash::Sha256, .. }) => "filesha256",
        Check::File(FileCheck::Size(_)) => "filesize",
        Check::AppState { .. } => "app-layer-state",
        _ => return None,
    })
}

/// A buffer of files, which all protocols with files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileBuffer {
    /// `file.data`: the content.
    Data,
    /// `file.name`: the name.
    Name,
    /// `file.magic`: the type.
    Magic,
}

impl FileBuffer {
    const ALL: [FileBuffer; 3] = [FileBuffer::Data, FileBuffer::Name, FileBuffer::Magic];

    /// Its name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            FileBuffer::Data => FILE_DATA.name,
            FileBuffer::Name => FILE_NAME.name,
            FileBuffer::Magic => FILE_MAGIC.name,
        }
    }

    /// The buffer with that name; `None` if it is not one of files.
    pub fn from_name(name: &str) -> Option<FileBuffer> {
        Self::ALL.into_iter().find(|b| b.name() == name)
    }
}

impl FileCheck {
    /// The check as a literal in a buffer of files: `filename`, `fileext` and `filemagic` ignore case. `None` for other checks.
    pub fn as_buffer(&self) -> Option<BufferChecks> {
        let (buffer, bytes, negated, ends_with) = match self {
            FileCheck::Name { text, negated } => (FileBuffer::Name, text.clone(), *negated, false),
            FileCheck::Extension { text, negated } => {
                (FileBuffer::Name, [b".", text.as_slice()].concat(), *negated, true)
            }
            FileCheck::Magic { text, negated } => (FileBuffer::Magic, text.clone(), *negated, false),
            FileCheck::Hash { .. } | FileCheck::Size(_) => return None,
        };
        let content = Content { bytes, negated, nocase: true, ends_with, ..Content::default() };
        Some(BufferChecks {
            buffer: buffer.name().to_owned(),
            app: true,
            side: None,
            transforms: Vec::new(),
            checks: vec![BufferCheck::Content(content)],
            absent: None,
        })
    }
}

/// `file.data`, with a direction in transaction rules and in old rules.
fn file_data(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    need_protocol(b, FILE, i.written);
    let side = side(b, i)?;
    b.select(&FILE_DATA, FILE_DATA.name, side)
}

fn file_keyword(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    need_protocol(b, FILE, i.written);
    b.restrict(FILE)
}

fn file_text(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    file_keyword(b, i)?;
    let (text, negated) = (super::content::decode(i.raw)?, i.negated);
    if text.is_empty() {
        return fail("detect-file", format!("{} is empty; give at least one character", i.name));
    }
    b.check(Check::File(match i.name {
        "filename" => FileCheck::Name { text, negated },
        "fileext" => FileCheck::Extension { text, negated },
        _ => FileCheck::Magic { text, negated },
    }));
    Ok(())
}

fn file_hash(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    file_keyword(b, i)?;
    let kind = match i.name {
        "filemd5" => FileHash::Md5,
        "filesha1" => FileHash::Sha1,
        _ => FileHash::Sha256,
    };
    let list = i.text.trim().to_owned();
    if list.is_empty() {
        return fail("detect-filehash", format!("{} names no file with a list of digests", i.name));
    }
    b.check(Check::File(FileCheck::Hash { kind, list, negated: i.negated }));
    Ok(())
}

fn filesize(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    file_keyword(b, i)?;
    let mut text = i.text.as_ref();
    if b.rule.arrow == Arrow::Transaction {
        // For these rules, files of the response are inspected.
        let Some(("to_client", size)) = text.split_once(',').map(|(side, size)| (side.trim(), size)) else {
            return fail("detect-filesize", "filesize in a rule on transactions: write filesize: to_client, SIZE");
        };
        b.exists(Direction::ToClient);
        text = size;
    }
    let Some(value) = compare(text, u64::MAX) else {
        return fail("detect-filesize", format!("invalid value for filesize: \"{}\"", i.text));
    };
    b.check(Check::File(FileCheck::Size(value)));
    Ok(())
}

fn filestore(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-filestore";
    file_keyword(b, i)?;
    let (mut side, mut scope) = (None, None);
    for w in i.text.split(',').map(str::trim) {
        match w {
            "" if i.text.trim().is_empty() => {}
            "request" | "to_server" => side = Some(FileSide::ToServer),
            "response" | "to_client" => side = Some(FileSide::ToClient),
            "both" => side = Some(FileSide::Both),
            "file" => scope = Some(FileScope::File),
            "tx" => scope = Some(FileScope::Transaction),
            "ssn" | "flow" | "session" => scope = Some(FileScope::Flow),
            _ => return fail(M, format!("invalid filestore option \"{w}\"")),
        }
    }
    // The file that matched has one side, so a side alone means the files of the transaction.
    let scope = scope.unwrap_or(if side.is_some() { FileScope::Transaction } else { FileScope::File });
    b.rule.effects.push(Effect::FileStore { side, scope });
    Ok(())
}

/// `frame:protocol.type`, or only the type if the header names the protocol.
fn frame(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-frame";
    let t = i.text.trim();
    if t.is_empty() || !t.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-')) {
        return fail(M, format!("invalid frame \"{t}\""));
    }
    if matches!(b.rule.protocol, Protocol::Icmp | Protocol::Icmpv4 | Protocol::Icmpv6 | Protocol::Sctp) {
        return fail(M, "frames need TCP or UDP");
    }
    if let Some((name, _)) = t.split_once('.')
        && let Some(group) = protocol::group(name)
    {
        need_protocol(b, group, "frame");
        b.restrict(group)?;
    } else if b.protocols.is_none() {
        return fail(M, format!("frame \"{t}\" names no protocol: write frame:protocol.{t}"));
    }
    b.select(&FRAME, &format!("frame:{t}"), None)
}

static FRAME: Buffer =
    Buffer { name: "frame", internal: "frame", description: "frame", multi: true, feature: "frame", ..Buffer::PLAIN };

fn app_layer_state(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let text = i.text.trim();
    let (order, state) = match text.as_bytes().first() {
        Some(b'<') => (Ordering::Less, &text[1..]),
        Some(b'>') => (Ordering::Greater, &text[1..]),
        _ => (Ordering::Equal, text),
    };
    let state = state.trim();
    if state.is_empty() || !state.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return fail("detect-app-layer-state", format!("app-layer-state names no state: \"{text}\""));
    }
    b.check(Check::AppState { state: state.to_owned(), order });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ast::{Effect, FileScope};
    use crate::{Context, load_str};

    #[test]
    fn a_side_of_filestore_means_the_files_of_the_transaction() {
        let available = ["app-layer", "http", "http1", "file"].map(str::to_owned).into();
        let ctx = Context { available, ..Context::default() };
        for (option, want) in [
            ("filestore", FileScope::File),
            ("filestore:both", FileScope::Transaction),
            ("filestore:request", FileScope::Transaction),
            ("filestore:both,file", FileScope::File),
            ("filestore:response,flow", FileScope::Flow),
        ] {
            let text = format!("alert http any any -> any any (http.uri; content:\"/a\"; {option}; sid:1;)");
            let rule = load_str(&text, "t", &ctx).rules.pop().expect(option);
            let scope = rule
                .effects
                .iter()
                .find_map(|e| if let Effect::FileStore { scope, .. } = e { Some(*scope) } else { None });
            assert_eq!(scope, Some(want), "{option}");
        }
    }
}
