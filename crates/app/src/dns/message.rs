//! A message (RFC 1035 section 4), parsed once: the header, and the records of the four sections.
//!
//! Names are decompressed while they are read, with dots between the labels and none at the end. One buffer holds all data of a
//! message; records refer to it by [`Text`]. An error raises an event and keeps what was read before it: a record with invalid
//! data is kept without the data, and a record that exceeds the message ends the parsing.
//!
//! The cost of a message is bounded. A name has at most [`NAME_MAX`] bytes and [`STEPS_MAX`] labels and pointers. All names of
//! a message together may cost [`BUDGET`] (one for each byte, label or pointer) and follow two pointers for each byte of the
//! message plus 512. Names beyond the first limit are cut after their first label, names beyond the second at a pointer.

use super::events::{Event, EventSet};
use super::rdata;

/// Length of a header.
pub const HEADER: usize = 12;
/// The limit of bytes in a name, including its dots. RFC 1035 has 255; some implementations send more.
pub const NAME_MAX: usize = 1025;
/// The limit of labels and pointers in a name.
pub const STEPS_MAX: usize = 255;
/// The cost limit of all names in a message.
pub const BUDGET: usize = 256 << 10;

/// The limit of pointers followed in all names of a message of `len` bytes. The smallest record with a compressed name has 12
/// bytes; without the limit, chains of pointers would cost the square of the length.
const fn jumps(len: usize) -> usize {
    512 + 2 * len
}

/// A range of a message's buffer ([`Message::text`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Text {
    at: u32,
    len: u16,
    /// Whether it is a name that was cut at the limit.
    pub cut: bool,
}

/// A section of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Section {
    Queries,
    Answers,
    Authorities,
    Additionals,
}

/// The data kept from a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rdata {
    /// None: the type is not parsed, or the data is invalid.
    None,
    /// A name: CNAME, NS, PTR, MX.
    Name(Text),
    /// Raw data: A, AAAA, NULL, TXT, SSHFP, OPT.
    Bytes(Text),
    /// SOA; `numbers` are the five integers after the names.
    Soa {
        /// Primary server.
        mname: Text,
        /// Mailbox.
        rname: Text,
        /// Serial, refresh, retry, expire and minimum, four bytes each.
        numbers: Text,
    },
    /// SRV; `head` is the part before the name.
    Srv {
        /// Priority, weight and port, two bytes each.
        head: Text,
        /// Target.
        name: Text,
    },
}

impl Rdata {
    /// The name in the data, if it is or begins with one.
    const fn name(&self) -> Option<Text> {
        match *self {
            Rdata::Name(name) => Some(name),
            Rdata::Soa { mname, .. } => Some(mname),
            _ => None,
        }
    }
}

/// A query or a resource record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Owner.
    pub name: Text,
    /// Type.
    pub rrtype: u16,
    /// Class.
    pub class: u16,
    /// Time to live, in seconds; 0 for a query.
    pub ttl: u32,
    /// Data.
    pub rdata: Rdata,
}

/// A message.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Identifier.
    pub id: u16,
    /// Flags, as in the header.
    pub flags: u16,
    /// Anomalies.
    pub faults: EventSet,
    /// Whether the header and all queries are complete.
    pub readable: bool,
    records: Vec<Record>,
    /// Names in the data of records, in order.
    data_names: Vec<Text>,
    /// The end of each section in `records`.
    ends: [u16; 4],
    text: Vec<u8>,
}

impl Message {
    /// Heap memory in bytes, without the size of the value itself.
    pub(super) fn held(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
            + self.data_names.capacity() * size_of::<Text>()
            + self.text.capacity()
    }

    /// Reads a message.
    pub fn read(data: &[u8]) -> Message {
        let mut message = Message::default();
        let Some(head) = data.first_chunk::<HEADER>() else {
            message.faults.add(Event::MalformedData);
            return message;
        };
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        (message.id, message.flags) = (word(0), word(2));
        if message.flags & 0x0040 != 0 {
            message.faults.add(Event::ZFlagSet);
        }
        if message.opcode() >= 7 {
            message.faults.add(Event::InvalidOpcode);
        }
        let counts = [word(4), word(6), word(8), word(10)];
        // At most what fits: a query has five bytes, a record eleven.
        let fit = data.len() / 11 + 1;
        message.records.reserve(counts.iter().map(|&c| usize::from(c)).sum::<usize>().min(fit));
        let mut reader = Reader {
            data,
            at: HEADER,
            text: Vec::with_capacity(data.len().min(512)),
            known: [(0, Text::default()); 8],
            next: 0,
            left: BUDGET,
            jumps: jumps(data.len()),
            faults: message.faults,
        };
        message.readable = reader.sections(counts, &mut message.records, &mut message.ends);
        message.data_names = message.records.iter().filter_map(|r| r.rdata.name()).collect();
        (message.text, message.faults) = (reader.text, reader.faults);
        message
    }

    /// The bytes of a range.
    pub fn text(&self, text: Text) -> &[u8] {
        let at = text.at as usize;
        self.text.get(at..at + usize::from(text.len)).unwrap_or(&[])
    }

    /// The records of a section.
    pub fn section(&self, section: Section) -> &[Record] {
        let i = section as usize;
        let from = i.checked_sub(1).and_then(|p| self.ends.get(p)).map_or(0, |&e| usize::from(e));
        let to = self.ends.get(i).map_or(0, |&e| usize::from(e));
        self.records.get(from..to).unwrap_or(&[])
    }

    /// The records of all sections.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The owner names of all records by number, followed by the names in the data of records.
    pub fn name(&self, index: usize) -> Option<Text> {
        let owner = self.records.get(index).map(|r| r.name);
        owner.or_else(|| self.data_names.get(index.checked_sub(self.records.len())?).copied())
    }

    /// Whether it is a response.
    pub const fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// Operation code.
    pub const fn opcode(&self) -> u8 {
        (self.flags >> 11) as u8 & 15
    }

    /// Response code.
    pub const fn rcode(&self) -> u8 {
        self.flags as u8 & 15
    }
}

/// The limits that are left for reading the names of a message.
struct Budget {
    /// As [`Reader::left`].
    left: usize,
    /// As [`Reader::jumps`].
    jumps: usize,
}

/// Reads the names and records of a message.
pub(super) struct Reader<'m> {
    data: &'m [u8],
    /// The read position in `data`.
    at: usize,
    text: Vec<u8>,
    /// Names that consist of a pointer, by its target: most records use one of a few.
    known: [(u16, Text); 8],
    next: usize,
    /// The rest of [`BUDGET`].
    left: usize,
    /// The number of pointers that may still be followed.
    jumps: usize,
    faults: EventSet,
}

impl<'m> Reader<'m> {
    /// Reads all sections. Returns whether the queries are complete.
    fn sections(&mut self, counts: [u16; 4], records: &mut Vec<Record>, ends: &mut [u16; 4]) -> bool {
        const FAULT: [Event; 4] =
            [Event::MalformedData, Event::MalformedData, Event::InvalidAuthorities, Event::InvalidAdditionals];
        let mut queries = false;
        for (section, (count, fault)) in counts.into_iter().zip(FAULT).enumerate() {
            for _ in 0..count {
                let record = if section == 0 { self.query() } else { self.record(fault) };
                // A DNS message has less than 65,536 bytes, and each record takes several.
                let room = records.len() < usize::from(u16::MAX);
                let Some(record) = record.filter(|_| room) else {
                    self.faults.add(fault);
                    let n = records.len() as u16;
                    ends.iter_mut().skip(section).for_each(|e| *e = n);
                    return queries;
                };
                records.push(record);
            }
            queries = true;
            ends.iter_mut().skip(section).for_each(|e| *e = records.len() as u16);
        }
        true
    }

    fn word(&mut self) -> Option<u16> {
        let bytes = self.data.get(self.at..)?.first_chunk::<2>()?;
        self.at += 2;
        Some(u16::from_be_bytes(*bytes))
    }

    fn query(&mut self) -> Option<Record> {
        let name = self.name(self.data.len())?;
        let (rrtype, class) = (self.word()?, self.word()?);
        Some(Record { name, rrtype, class, ttl: 0, rdata: Rdata::None })
    }

    fn record(&mut self, fault: Event) -> Option<Record> {
        let name = self.name(self.data.len())?;
        let (rrtype, class) = (self.word()?, self.word()?);
        let ttl = u32::from(self.word()?) << 16 | u32::from(self.word()?);
        let len = usize::from(self.word()?);
        let end = self.at + len;
        if end > self.data.len() {
            return None;
        }
        let rdata = rdata::read(self, rrtype, end).unwrap_or_else(|| {
            self.faults.add(fault);
            Rdata::None
        });
        self.at = end;
        Some(Record { name, rrtype, class, ttl, rdata })
    }

    /// The bytes from the read position to `end`.
    pub(super) fn rest(&self, end: usize) -> &'m [u8] {
        self.data.get(self.at..end).unwrap_or(&[])
    }

    /// Keeps the next `len` bytes if they end by `end`.
    pub(super) fn take(&mut self, len: usize, end: usize) -> Option<Text> {
        let bytes = self.rest(end).get(..len)?;
        let text = Text { at: u32::try_from(self.text.len()).ok()?, len: u16::try_from(len).ok()?, cut: false };
        self.text.extend_from_slice(bytes);
        self.at += len;
        Some(text)
    }

    /// Reads a name (RFC 1035 section 4.1.4) whose own bytes end by `end`. `None` if it is invalid.
    pub(super) fn name(&mut self, end: usize) -> Option<Text> {
        let from = self.at;
        let target = self.pointer(from, end);
        if let Some(target) = target
            && let Some(&(_, text)) = self.known.iter().find(|k| k.0 == target && target != 0)
        {
            self.at += 2;
            return Some(self.spend(usize::from(text.len) + 1, text));
        }
        // A copy stays in registers while a name follows hundreds of pointers.
        let mut budget = Budget { left: self.left, jumps: self.jumps };
        let text = self.labels(from, end, &mut budget);
        (self.left, self.jumps) = (budget.left, budget.jumps);
        let text = text?;
        if let Some(target) = target {
            if let Some(known) = self.known.get_mut(self.next) {
                *known = (target, text);
            }
            self.next = (self.next + 1) % self.known.len();
        }
        Some(text)
    }

    /// Reads the labels of a name at `from`.
    // It stays whole: one loop over the labels, whose limits all of it shares.
    #[inline(always)]
    fn labels(&mut self, from: usize, end: usize, budget: &mut Budget) -> Option<Text> {
        let start = self.text.len();
        let (mut steps, mut jumps, mut cut) = (0, 0u32, false);
        // The end of its own bytes, once it has followed a pointer.
        let mut behind = None;
        // A pointer target that is compared with later ones to detect a loop. It is replaced each time the number of pointers
        // doubles.
        let (mut anchor, mut round, mut next_anchor) = (usize::MAX, false, 1);
        // It has more pointers than may be followed.
        let mut spent = false;
        let mut at = from;
        loop {
            let limit = if behind.is_none() { end } else { self.data.len() };
            let len = usize::from(*self.data.get(at).filter(|_| at < limit)?);
            steps += 1;
            budget.left = budget.left.saturating_sub(1);
            match len {
                0 => {
                    at += 1;
                    break;
                }
                1..=63 => {
                    let label = self.data.get(at + 1..at + 1 + len).filter(|_| at + 1 + len <= limit)?;
                    at += 1 + len;
                    // Past the limit, follow the name without keeping it.
                    if !cut {
                        if self.text.len() > start {
                            self.text.push(b'.');
                        }
                        self.text.extend_from_slice(label);
                        budget.left = budget.left.saturating_sub(len + 1);
                    }
                    if self.text.len() > start + NAME_MAX {
                        self.text.truncate(start + NAME_MAX);
                        cut = true;
                        self.faults.add(Event::NameTooLong);
                    }
                }
                0xc0..=0xff => {
                    let low = *self.data.get(at + 1).filter(|_| at + 1 < limit)?;
                    behind.get_or_insert(at + 2);
                    at = (len & 0x3f) << 8 | usize::from(low);
                    round |= anchor == at;
                    jumps += 1;
                    spent = budget.jumps == 0;
                    budget.jumps = budget.jumps.saturating_sub(1);
                    if jumps == next_anchor {
                        (anchor, next_anchor) = (at, 2 * next_anchor);
                    }
                }
                // RFC 6891 section 5: no other label types are in use.
                _ => return None,
            }
            if steps > STEPS_MAX {
                self.faults.add(Event::TooManyLabels);
                if round {
                    self.faults.add(Event::InfiniteLoop);
                }
            }
            if steps > STEPS_MAX || budget.left == 0 || spent {
                cut = true;
                self.faults.add(Event::NameTooLong);
                if behind.is_none() {
                    behind = Some(self.behind_name(at, end)?);
                }
                break;
            }
        }
        self.at = behind.unwrap_or(at);
        let len = u16::try_from(self.text.len().saturating_sub(start)).ok()?;
        Some(Text { at: u32::try_from(start).ok()?, len, cut })
    }

    /// Charges a name's `steps` to the budget; the name becomes empty if the budget is exceeded.
    fn spend(&mut self, steps: usize, text: Text) -> Text {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                text
            }
            None => {
                self.left = 0;
                self.faults.add(Event::NameTooLong);
                Text { len: 0, cut: true, ..text }
            }
        }
    }

    /// The target of the pointer at `at`.
    fn pointer(&self, at: usize, end: usize) -> Option<u16> {
        let bytes = self.data.get(at..end)?.first_chunk::<2>()?;
        (bytes[0] >= 0xc0).then(|| u16::from_be_bytes([bytes[0] & 0x3f, bytes[1]]))
    }

    /// The end of a name whose rest, from `at` on, is not needed.
    fn behind_name(&self, mut at: usize, end: usize) -> Option<usize> {
        loop {
            match *self.data.get(at).filter(|_| at < end)? {
                0 => return Some(at + 1),
                len @ 1..=63 => at += 1 + usize::from(len),
                0xc0..=0xff => return (at + 2 <= end).then_some(at + 2),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
