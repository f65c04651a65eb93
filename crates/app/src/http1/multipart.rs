//! Multipart bodies (RFC 2046, section 5.1; RFC 7578): extracts their files as data arrives.
//!
//! The parser receives pieces of a body and reports each part that is a file through a callback. It stores only a part's
//! header; for a partial delimiter it stores the matched length. Like in Suricata, a delimiter after a line break ends a part
//! whatever follows on its line.
//!
//! Header lines are parsed here, because header parsers (`httparse` and others) stop at the first invalid line, and a file must
//! not hide behind such a line.

use memchr::memchr;

use crate::param;

/// The longest boundary, in bytes. RFC 2046 allows 70; servers accept more.
const MAX_BOUNDARY: usize = 199;
/// The longest part header, in bytes.
const MAX_HEADER: usize = 8 << 10;

/// An anomaly of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// `multipart_generic_error`: a part after the last one, or a header that is too long.
    Generic,
    /// `multipart_no_filedata`: a file's part ends before its data.
    NoFileData,
    /// `multipart_invalid_header`: a header line has no colon.
    InvalidHeader,
}

/// A callback of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// A file begins.
    Begin {
        /// Name of the form field; may be empty.
        name: &'a [u8],
        /// Raw name of the file; may be empty.
        filename: &'a [u8],
    },
    /// Data of the file.
    Data(&'a [u8]),
    /// The file ends.
    End,
    /// An anomaly.
    Problem(Problem),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// After a delimiter: the rest of its line, and the part's header.
    Header,
    /// In a part that is not a file.
    Skip,
    /// In a file.
    File,
    /// After the last delimiter.
    Epilogue,
    /// Parsing has stopped.
    Off,
}

/// The boundary in a `Content-Type`; `None` if the body is not multipart, or there is no boundary.
pub fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let value = content_type.trim_ascii();
    if !value.get(..10).is_some_and(|t| t.eq_ignore_ascii_case(b"multipart/")) {
        return None;
    }
    let mut rest = value;
    loop {
        rest = rest.get(rest.iter().position(|&b| b == b';')? + 1..)?.trim_ascii_start();
        if rest.get(..9).is_some_and(|k| k.eq_ignore_ascii_case(b"boundary=")) {
            break;
        }
    }
    let text = rest.get(9..)?;
    if text.first() == Some(&b'"') {
        return param::value(text, b"").map(|(quoted, _)| quoted);
    }
    // Blanks are part of it: only the end of the parameter ends it.
    let end = text.iter().position(|&b| b == b';').unwrap_or(text.len());
    text.get(..end).map(<[u8]>::trim_ascii).filter(|b| !b.is_empty())
}

/// A parser for one body.
#[derive(Debug, Clone)]
pub struct Multipart {
    state: State,
    /// Line break, two hyphens, boundary.
    delimiter: Box<[u8]>,
    /// Length of the partial delimiter at the end of the data so far.
    matched: usize,
    /// The line break of that match is implied, because the body, or a part's data, begins here.
    virtual_break: bool,
    /// The part's header so far.
    header: Vec<u8>,
    /// A file's names until its beginning is reported: name, file name.
    pending: Option<(Vec<u8>, Vec<u8>)>,
}

impl Multipart {
    /// A parser for a body with this boundary. It finds nothing if the boundary is longer than servers accept, or has line
    /// breaks.
    pub fn new(boundary: &[u8]) -> Multipart {
        let usable = boundary.len() <= MAX_BOUNDARY && !boundary.iter().any(|b| matches!(b, b'\r' | b'\n'));
        let mut delimiter = b"\r\n--".to_vec();
        if usable {
            delimiter.extend_from_slice(boundary);
        }
        Multipart {
            state: if usable { State::Preamble } else { State::Off },
            delimiter: delimiter.into_boxed_slice(),
            matched: 2,
            virtual_break: true,
            header: Vec::new(),
            pending: None,
        }
    }

    /// Whether the parser is in a file whose data it reports.
    pub const fn in_file(&self) -> bool {
        matches!(self.state, State::File)
    }

    /// Allocated memory in bytes.
    pub fn memory(&self) -> usize {
        let names = self.pending.as_ref().map_or(0, |(n, f)| n.capacity() + f.capacity());
        self.delimiter.len() + self.header.capacity() + names
    }

    /// Parses a piece of the body.
    pub fn push(&mut self, piece: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let used = match self.state {
                State::Off => return,
                State::Header => self.read_header(rest, sink),
                State::Preamble | State::Skip | State::File | State::Epilogue => match self.scan(rest, sink) {
                    None => return,
                    Some(used) => {
                        self.delimited(sink);
                        used
                    }
                },
            };
            rest = rest.get(used..).unwrap_or(&[]);
        }
    }

    /// Ends the body. An open file ends with it; a partial delimiter at the end does not become data.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        if self.state == State::File {
            self.begin(sink);
            sink(Part::End);
        }
        self.state = State::Off;
    }

    /// Handles a gap. A file continues; a header is dropped, and the parser looks for the next delimiter.
    pub fn gap(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        match self.state {
            State::File => self.begin(sink),
            State::Header => self.state = State::Skip,
            _ => {}
        }
        self.matched = 0;
        self.virtual_break = false;
        self.header.clear();
    }

    /// Looks for the delimiter, and reports the data before it. Returns the number of bytes up to the delimiter's end.
    fn scan(&mut self, piece: &[u8], sink: &mut dyn FnMut(Part<'_>)) -> Option<usize> {
        // The part of the delimiter from earlier pieces. If the match fails, it is data and comes from the delimiter.
        let mut carried = self.matched;
        let mut at = 0;
        loop {
            if self.matched == 0 {
                // Only the first byte of a delimiter is a carriage return, so no match can begin within another.
                let Some(found) = piece.get(at..).and_then(|p| memchr(b'\r', p)) else {
                    self.data(piece, sink);
                    return None;
                };
                at += found + 1;
                self.matched = 1;
            }
            while piece.get(at).is_some_and(|b| self.delimiter.get(self.matched) == Some(b)) {
                self.matched += 1;
                at += 1;
            }
            let whole = self.matched == self.delimiter.len();
            if whole || at == piece.len() {
                let before = at.saturating_sub(self.matched - carried);
                self.data(piece.get(..before).unwrap_or(&[]), sink);
                return whole.then_some(at);
            }
            if carried > 0 {
                let held = if self.virtual_break { 2 } else { 0 };
                self.virtual_break = false;
                if self.state == State::File {
                    self.begin(sink);
                    if let Some(data) = self.delimiter.get(held..carried).filter(|d| !d.is_empty()) {
                        sink(Part::Data(data));
                    }
                }
                carried = 0;
            }
            self.matched = 0;
        }
    }

    /// Handles data of a part.
    fn data(&mut self, data: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        if self.state == State::File && !data.is_empty() {
            self.begin(sink);
            sink(Part::Data(data));
        }
    }

    /// Reports a file's beginning, once.
    fn begin(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        if let Some((name, filename)) = self.pending.take() {
            sink(Part::Begin { name: &name, filename: &filename });
        }
    }

    /// Handles a delimiter.
    fn delimited(&mut self, sink: &mut dyn FnMut(Part<'_>)) {
        self.matched = 0;
        let at_start = std::mem::take(&mut self.virtual_break);
        match self.state {
            State::File if at_start => {
                self.pending = None;
                sink(Part::Problem(Problem::NoFileData));
            }
            State::File => {
                self.begin(sink);
                sink(Part::End);
            }
            State::Epilogue => {
                self.state = State::Off;
                sink(Part::Problem(Problem::Generic));
                return;
            }
            _ => {}
        }
        self.header.clear();
        self.state = State::Header;
    }

    /// Reads a part's header up to the empty line. Returns the number of bytes consumed.
    fn read_header(&mut self, piece: &[u8], sink: &mut dyn FnMut(Part<'_>)) -> usize {
        let had = self.header.len();
        let room = MAX_HEADER.saturating_sub(had);
        let taken = piece.get(..room).unwrap_or(piece);
        // Most headers are in one piece and need no copy.
        if had == 0
            && !taken.starts_with(b"--")
            && let Some(end) = find(taken, b"\r\n\r\n")
        {
            self.headed(taken.get(..end).unwrap_or(&[]), sink);
            return end + 4;
        }
        self.header.extend_from_slice(taken);
        if self.header.len() >= 2 && self.header.starts_with(b"--") {
            self.header = Vec::new();
            self.state = State::Epilogue;
            return 2usize.saturating_sub(had);
        }
        let from = had.saturating_sub(3);
        let end = self.header.get(from..).and_then(|h| find(h, b"\r\n\r\n")).map(|n| from + n);
        let Some(end) = end else {
            if taken.len() < piece.len() {
                self.header = Vec::new();
                self.state = State::Skip;
                sink(Part::Problem(Problem::Generic));
            }
            return taken.len();
        };
        let header = std::mem::take(&mut self.header);
        self.headed(header.get(..end).unwrap_or(&[]), sink);
        (end + 4).saturating_sub(had)
    }

    /// Handles a part's header, without the empty line.
    fn headed(&mut self, header: &[u8], sink: &mut dyn FnMut(Part<'_>)) {
        let file = parse_header(header, sink);
        self.state = if file.is_some() { State::File } else { State::Skip };
        self.pending = file.map(|(n, f)| (n.to_vec(), f.to_vec()));
        self.matched = 2;
        self.virtual_break = true;
    }
}

/// The place of `wanted`, which begins with a carriage return. In text of a few lines, preparing a search would cost more than
/// the search.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr(b'\r', text.get(at..)?)?;
        if text.get(at..)?.starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
}

/// Name and file name in a part's header, if it is a file.
fn parse_header<'a>(header: &'a [u8], sink: &mut dyn FnMut(Part<'_>)) -> Option<(&'a [u8], &'a [u8])> {
    let mut file = None;
    let mut invalid = false;
    let mut rest = Some(header);
    while let Some(text) = rest {
        let line = match find(text, b"\r\n") {
            Some(end) => {
                rest = text.get(end + 2..);
                text.get(..end).unwrap_or(&[])
            }
            None => {
                rest = None;
                text
            }
        };
        let Some(colon) = memchr(b':', line) else {
            invalid |= !line.is_empty();
            continue;
        };
        let (name, value) = line.split_at(colon);
        if file.is_none() && name.eq_ignore_ascii_case(b"content-disposition") {
            file = param::param(value, b"filename").map(|f| (param::param(value, b"name").unwrap_or(&[]), f));
        }
    }
    if invalid {
        sink(Part::Problem(Problem::InvalidHeader));
    }
    file
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str =
        "Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n";

    /// Files as (name, data, whether it ended), and anomalies.
    type Seen = (Vec<(String, String, bool)>, Vec<Problem>);

    fn run(boundary: &[u8], pieces: &[&[u8]]) -> Seen {
        let mut seen: Seen = Default::default();
        let mut parser = Multipart::new(boundary);
        let mut sink = |part: Part<'_>| match part {
            Part::Begin { filename, .. } => {
                assert!(seen.0.last().is_none_or(|f| f.2), "a file begins within another");
                seen.0.push((String::from_utf8_lossy(filename).into(), String::new(), false));
            }
            Part::Data(data) => seen.0.last_mut().unwrap().1.push_str(&data.escape_ascii().to_string()),
            Part::End => seen.0.last_mut().unwrap().2 = true,
            Part::Problem(problem) => seen.1.push(problem),
        };
        for piece in pieces {
            parser.push(piece, &mut sink);
            assert!(parser.memory() < 3 * MAX_HEADER);
        }
        parser.finish(&mut sink);
        assert!(seen.0.iter().all(|f| f.2), "a file does not end");
        seen
    }

    /// Results of Suricata 7.0.10, except for `inside`, where it reports nothing.
    #[test]
    fn parts() {
        use Problem::*;
        let cd = |rest: &str| format!("--BB\r\nContent-Disposition: {rest}\r\n\r\nhello\r\n--BB--\r\n");
        for (what, body, files, problems) in [
            ("plain", format!("--BB\r\n{FILE}hello\r\n--BB--\r\n"), vec![("a.txt", "hello")], vec![]),
            (
                "two",
                format!("--BB\r\n{FILE}hello\r\n--BB\r\n{FILE}second\r\n--BB--\r\n"),
                vec![("a.txt", "hello"), ("a.txt", "second")],
                vec![],
            ),
            ("field", cd("form-data; name=\"n\""), vec![], vec![]),
            ("no data", format!("--BB\r\n{FILE}\r\n--BB--\r\n"), vec![("a.txt", "")], vec![]),
            ("no data at all", format!("--BB\r\n{FILE}--BB--\r\n"), vec![], vec![NoFileData]),
            ("no end", format!("--BB\r\n{FILE}hello\r\n"), vec![("a.txt", "hello")], vec![]),
            ("preamble", format!("pre\r\n--BB\r\n{FILE}hello\r\n--BB--\r\n"), vec![("a.txt", "hello")], vec![]),
            ("no header", "--BB\r\n\r\nhello\r\n--BB--\r\n".into(), vec![], vec![]),
            ("bad header", "--BB\r\nfoo\r\n\r\nhello\r\n--BB--\r\n".into(), vec![], vec![InvalidHeader]),
            ("unquoted", cd("form-data; filename=a"), vec![("a", "hello")], vec![]),
            ("open quote", cd("form-data; filename=\"a"), vec![], vec![]),
            ("escapes", cd("form-data; filename=\"a\\\"b\\\\c\\d\""), vec![("a\\\"b\\\\c\\d", "hello")], vec![]),
            ("empty name", cd("form-data; filename=\"\""), vec![("", "hello")], vec![]),
            ("attachment", cd("attachment; filename=\"a\""), vec![("a", "hello")], vec![]),
            ("garbage", "garbage".into(), vec![], vec![]),
            ("inside", format!("--BB\r\n{FILE}he--BBx\r\n--B\r\n--BB--"), vec![("a.txt", "he--BBx\\r\\n--B")], vec![]),
            ("prefix", format!("--BB\r\n{FILE}he\r\n--BBx\r\nllo\r\n--BB--\r\n"), vec![("a.txt", "he")], vec![]),
            ("blanks", format!("--BB  \r\n{FILE}hello\r\n--BB--  \r\n"), vec![("a.txt", "hello")], vec![InvalidHeader]),
            (
                "epilogue",
                format!("--BB\r\n{FILE}x\r\n--BB--\r\nmore\r\n--BB\r\n{FILE}y"),
                vec![("a.txt", "x")],
                vec![Generic],
            ),
            (
                "line breaks",
                cd("x; filename=a").replace("hello", "\r\nhello\r\n"),
                vec![("a", "\\r\\nhello\\r\\n")],
                vec![],
            ),
            ("folded", cd("form-data;\r\n filename=\"a\""), vec![], vec![InvalidHeader]),
        ] {
            let want: Vec<_> = files.iter().map(|(n, d)| ((*n).to_owned(), (*d).to_owned(), true)).collect();
            assert_eq!(run(b"BB", &[body.as_bytes()]), (want, problems), "{what}");
        }
    }

    #[test]
    fn long_headers_are_given_up() {
        let body = format!("--BB\r\nX: {}\r\n{FILE}hello\r\n--BB\r\n{FILE}x\r\n--BB--", "x".repeat(MAX_HEADER));
        let (files, problems) = run(b"BB", &[body.as_bytes()]);
        assert_eq!((files.len(), problems), (1, vec![Problem::Generic]));
    }

    #[test]
    fn boundaries() {
        for (header, want) in [
            ("multipart/form-data; boundary=BB", Some("BB")),
            ("multipart/form-data; boundary=\"BB\"", Some("BB")),
            ("Multipart/Form-Data;Boundary=BB", Some("BB")),
            ("multipart/form-data; charset=x; boundary=BB; q=1", Some("BB")),
            ("multipart/form-data; boundary = BB", None),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"\"", Some("")),
            ("multipart/form-data; boundary=\"BB", None),
            ("multipart/mixed; boundary=BB", Some("BB")),
            ("multipart/form-data; boundary='BB'", Some("'BB'")),
            ("multipart/form-data; boundary=\"B;B\"", Some("B;B")),
            ("multipart/form-data; boundary=B B", Some("B B")),
            ("multipart/form-data boundary=BB", None),
            ("text/plain; boundary=BB", None),
        ] {
            assert_eq!(boundary(header.as_bytes()), want.map(str::as_bytes), "{header}");
        }
        let long = [b'B'; MAX_BOUNDARY + 1];
        assert_eq!(run(&long, &[b"--", &long, b"\r\n", FILE.as_bytes(), b"x"]).0, vec![]);
    }

    #[test]
    fn a_gap_in_a_file() {
        let mut parser = Multipart::new(b"BB");
        let mut ends = 0;
        let mut sink = |part: Part<'_>| ends += usize::from(part == Part::End);
        parser.push(format!("--BB\r\n{FILE}x\r\n--").as_bytes(), &mut sink);
        assert!(parser.in_file());
        parser.gap(&mut sink);
        parser.push(b"BB y\r\n--BB--", &mut sink);
        assert!(!parser.in_file());
        assert_eq!(ends, 1);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            tokens in proptest::collection::vec(0usize..12, 0..30),
            cuts in proptest::collection::vec(1usize..9, 1..40),
        ) {
            let words = ["--BB", "\r\n", "\r\n--BB\r\n", FILE, "\r", "\n", "-", "B", "x", "\r\n--BB--", "foo\r\n\r\n", "\r\n--B"];
            let body: String = tokens.iter().filter_map(|&t| words.get(t).copied()).collect();
            let mut pieces = Vec::new();
            let mut rest = body.as_bytes();
            for &cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(run(b"BB", &pieces), run(b"BB", &[body.as_bytes()]));
        }

        #[test]
        fn never_panics(body in proptest::collection::vec(any::<u8>(), 0..300), header in proptest::collection::vec(any::<u8>(), 0..60)) {
            run(b"B", &[&body]);
            let mut value = b"multipart/x; ".to_vec();
            value.extend_from_slice(&header);
            if let Some(b) = boundary(&value) {
                run(b, &[&body]);
            }
        }
    }
}
