//! Messages of the encapsulation (CIP volume 2, chapter 2), and the items of the common packet format that they carry.

use super::cip::{self, Summary};
use crate::bytes::{le16, le32};

/// Length of the encapsulation's header.
pub(super) const HEADER: usize = 24;

/// Commands that have a layout.
pub(super) const LIST_SERVICES: u16 = 0x04;
pub(super) const LIST_IDENTITY: u16 = 0x63;
pub(super) const REGISTER_SESSION: u16 = 0x65;
pub(super) const SEND_RR_DATA: u16 = 0x6f;
pub(super) const SEND_UNIT_DATA: u16 = 0x70;

/// Types of items (CIP volume 2, table 2-6.3).
const ITEM_IDENTITY: u16 = 0x0c;
const ITEM_CONNECTED: u16 = 0xb1;
const ITEM_UNCONNECTED: u16 = 0xb2;
const ITEM_SERVICE: u16 = 0x100;
/// Most items of a message that are read: those that are known to be sent are at most four, and one for each service of a device.
const ITEMS_MAX: usize = 64;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) command: u16,
    /// Bytes behind the header.
    pub(super) len: usize,
    pub(super) status: u32,
    /// Sender context: the requester chooses it, and the response repeats it.
    pub(super) context: [u8; 8],
    /// Reserved: a message with any of them is to be discarded.
    pub(super) options: u32,
}

impl Header {
    /// Reads the header; `None` where it is cut short.
    pub(super) fn read(data: &[u8]) -> Option<Header> {
        Some(Header {
            command: le16(data, 0)?,
            len: usize::from(le16(data, 2)?),
            status: le32(data, 8)?,
            context: *data.get(12..)?.first_chunk()?,
            options: le32(data, 20)?,
        })
    }

    /// Whether its command is known, and its options are those that are allowed: that it is a header at all.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.command, 0x00 | 0x04 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73) && self.options == 0
    }
}

/// A device, as it answers List Identity (CIP volume 2, table 2-4.4).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) protocol_version: u16,
    pub(super) vendor: u16,
    pub(super) device: u16,
    pub(super) product: u16,
    /// Major and minor.
    pub(super) revision: [u8; 2],
    pub(super) status: u16,
    pub(super) serial: u32,
    pub(super) name: Box<[u8]>,
    pub(super) state: u8,
}

impl Identity {
    fn read(item: &[u8]) -> Option<Identity> {
        // Behind the version there is the device's socket address.
        let fixed = item.get(18..)?;
        let len = usize::from(*fixed.get(14)?);
        Some(Identity {
            protocol_version: le16(item, 0)?,
            vendor: le16(fixed, 0)?,
            device: le16(fixed, 2)?,
            product: le16(fixed, 4)?,
            revision: *fixed.get(6..)?.first_chunk()?,
            status: le16(fixed, 8)?,
            serial: le32(fixed, 10)?,
            name: fixed.get(15..15 + len)?.into(),
            state: *fixed.get(15 + len)?,
        })
    }
}

/// A service of a device, as it answers List Services (CIP volume 2, table 2-4.7).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) protocol_version: u16,
    pub(super) capabilities: u16,
    /// Up to its first zero.
    pub(super) name: Box<[u8]>,
}

impl Service {
    fn read(item: &[u8]) -> Option<Service> {
        let name = item.get(4..20)?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(Service { protocol_version: le16(item, 0)?, capabilities: le16(item, 2)?, name: name.get(..end)?.into() })
    }
}

/// What a message says behind its header.
#[derive(Debug, Default)]
pub(super) enum Body {
    /// Nothing that is looked at.
    #[default]
    Nothing,
    /// Version of the protocol, and options.
    Session(u16, u16),
    Identities(Vec<Identity>),
    Services(Vec<Service>),
    /// A message of CIP.
    Cip {
        /// The message.
        data: Box<[u8]>,
        /// What rules ask of it.
        summary: Summary,
    },
}

impl Body {
    /// Heap memory in bytes.
    pub(super) fn held(&self) -> usize {
        match self {
            Body::Nothing | Body::Session(..) => 0,
            Body::Identities(all) => {
                all.capacity() * size_of::<Identity>() + all.iter().map(|i| i.name.len()).sum::<usize>()
            }
            Body::Services(all) => {
                all.capacity() * size_of::<Service>() + all.iter().map(|s| s.name.len()).sum::<usize>()
            }
            Body::Cip { data, summary } => data.len() + summary.held(),
        }
    }
}

/// A message, read.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) command: u16,
    pub(super) status: u32,
    pub(super) body: Body,
}

/// What reading a message tells besides: for frames, and for the transaction that it belongs to.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Where items begin in the message, and how long they are.
    pub(super) items: Vec<(usize, usize)>,
    /// The same of the message of CIP, and of those within it.
    pub(super) cip: Vec<(usize, usize)>,
    /// Number of a message on a connection of CIP, which its answer repeats.
    pub(super) sequence: Option<u16>,
    /// Something is cut short, or is longer than what it is in.
    pub(super) broken: bool,
}

impl Message {
    /// Reads a whole message. `wanted` asks for the places of items.
    pub(super) fn read(header: Header, message: &[u8], wanted: bool) -> (Message, Layout) {
        let data = message.get(HEADER..).unwrap_or(&[]);
        let data = data.get(..header.len).unwrap_or(data);
        let mut layout = Layout { broken: data.len() < header.len, ..Layout::default() };
        let read = match header.command {
            REGISTER_SESSION => {
                le16(data, 0).zip(le16(data, 2)).map(|(version, options)| Body::Session(version, options))
            }
            // A request has no data.
            LIST_IDENTITY | LIST_SERVICES if data.is_empty() => Some(Body::Nothing),
            LIST_IDENTITY => {
                let mut all = Vec::new();
                let whole = items(data, HEADER, &mut layout, wanted, |of, _, item| {
                    if of == ITEM_IDENTITY {
                        all.push(Identity::read(item)?);
                    }
                    Some(())
                });
                whole.map(|()| Body::Identities(all))
            }
            LIST_SERVICES => {
                let mut all = Vec::new();
                let whole = items(data, HEADER, &mut layout, wanted, |of, _, item| {
                    if of == ITEM_SERVICE {
                        all.push(Service::read(item)?);
                    }
                    Some(())
                });
                whole.map(|()| Body::Services(all))
            }
            // An answer that refuses may be without data.
            SEND_RR_DATA | SEND_UNIT_DATA if data.is_empty() && header.status != 0 => Some(Body::Nothing),
            SEND_RR_DATA | SEND_UNIT_DATA => read_cip(data, &mut layout, wanted),
            _ => Some(Body::Nothing),
        };
        layout.broken |= read.is_none();
        (Message { command: header.command, status: header.status, body: read.unwrap_or_default() }, layout)
    }
}

/// Data with a message of CIP: an interface's handle, a time limit, and items.
fn read_cip(data: &[u8], layout: &mut Layout, wanted: bool) -> Option<Body> {
    // Another interface than 0 carries no CIP (CIP volume 2, section 2-4.7).
    if le32(data, 0)? != 0 {
        return Some(Body::Nothing);
    }
    let (mut place, mut sequence) = (None, None);
    items(data.get(6..)?, HEADER + 6, layout, wanted, |of, at, item| {
        match of {
            ITEM_CONNECTED => {
                sequence = Some(le16(item, 0)?);
                place = Some((at + 2, item.get(2..)?));
            }
            ITEM_UNCONNECTED => place = Some((at, item)),
            _ => {}
        }
        Some(())
    })?;
    layout.sequence = sequence;
    let Some((at, message)) = place.filter(|p| !p.1.is_empty()) else { return Some(Body::Nothing) };
    if wanted {
        cip::places(message, at, &mut layout.cip);
    }
    let summary = Summary::of(message)?;
    Some(Body::Cip { data: message.into(), summary })
}

/// Goes through the items of the common packet format (CIP volume 2, section 2-6): a count, and for each a type, a length and data. `read`
/// is given the type, where the data begins in the message, and the data. `None` where something is cut short.
fn items<'a>(
    data: &'a [u8],
    at: usize,
    layout: &mut Layout,
    wanted: bool,
    mut read: impl FnMut(u16, usize, &'a [u8]) -> Option<()>,
) -> Option<()> {
    let mut from = 2;
    for _ in 0..usize::from(le16(data, 0)?).min(ITEMS_MAX) {
        let (of, len) = (le16(data, from)?, usize::from(le16(data, from + 2)?));
        let item = data.get(from + 4..from + 4 + len)?;
        if wanted {
            layout.items.push((at + from, 4 + len));
        }
        read(of, at + from + 4, item)?;
        from += 4 + len;
    }
    Some(())
}
