//! The target `mime`: a mail message, fed in whole lines and in pieces of lines.

use margay_app::mime::{Message, Part, Settings};

use crate::talk::same;

/// The first piece of a line must be at least this long, because a delimiter must fit into it.
const FIRST: usize = 300;
/// Most memory of a message: a field, 32 boundaries, the state of a decoder.
const MEMORY_MAX: usize = 128 << 10;

/// Records the callbacks for a message.
#[derive(Default)]
struct Findings {
    /// Its parts in order. Consecutive data are joined.
    parts: Vec<String>,
    data: Vec<u8>,
    /// Its kinds of problems. Their positions, numbers and order depend on the pieces; a transaction records each kind once.
    problems: Vec<String>,
    /// Total bytes of files.
    total: usize,
}

impl Findings {
    fn note(&mut self, part: Part<'_>) {
        match part {
            Part::Data(piece) => {
                self.data.extend_from_slice(piece);
                self.total += piece.len();
            }
            Part::Problem(_) => {
                let problem = format!("{part:?}");
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
            other => {
                self.flush();
                self.parts.push(format!("{other:?}"));
            }
        }
    }

    fn flush(&mut self) {
        if !self.data.is_empty() {
            self.parts.push(std::mem::take(&mut self.data).escape_ascii().to_string());
        }
    }

    fn lines(mut self) -> Vec<String> {
        self.flush();
        self.problems.sort_unstable();
        self.parts.append(&mut self.problems);
        self.parts
    }
}

/// Splits a text into lines and their line breaks: `\r\n` or `\n`. The last line may have none.
fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split_inclusive(|&b| b == b'\n').map(|line| {
        let cut = [&b"\r\n"[..], b"\n"].iter().find(|e| line.ends_with(e)).map_or(0, |e| e.len());
        line.split_at(line.len() - cut)
    })
}

/// Parses a message whose lines arrive in pieces of `size` after their first piece.
fn run(settings: &Settings, text: &[u8], size: usize, truncated: bool) -> Vec<String> {
    let (mut message, mut findings) = (Message::new(settings), Findings::default());
    for (line, ending) in lines(text) {
        let (start, rest) = line.split_at(line.len().min(FIRST));
        let mut pieces = vec![start];
        pieces.extend(rest.chunks(size));
        let last = pieces.len() - 1;
        for (n, piece) in pieces.into_iter().enumerate() {
            let ending = if n == last { ending } else { b"" };
            message.line(settings, piece, n == 0, ending, &mut |p| findings.note(p));
            assert!(message.memory() <= MEMORY_MAX, "{} bytes held", message.memory());
        }
    }
    message.finish(settings, truncated, &mut |p| findings.note(p));
    assert!(findings.total <= text.len() + 8, "{} bytes of files of {}", findings.total, text.len());
    let mut lines = findings.lines();
    lines.push(format!("{:?} {:?}", message.status(), message.body_md5()));
    lines
}

/// Mail messages: a byte of options (1: no base64, 2: no quoted-printable, 4: short values, 8: truncated), the size of pieces,
/// the message.
pub fn mime(data: &[u8]) {
    let [options, size, text @ ..] = data else { return };
    let settings = Settings {
        base64: options & 1 == 0,
        quoted_printable: options & 2 == 0,
        value_depth: if options & 4 != 0 { 12 } else { 0 },
        schemes: vec![b"http://".to_vec(), b"mailto:".to_vec()],
        body_md5: true,
    };
    let whole = run(&settings, text, usize::MAX, options & 8 != 0);
    for size in [1, usize::from(*size) + 1] {
        let split = run(&settings, text, size, options & 8 != 0);
        same(&whole, &split, size);
    }
}
