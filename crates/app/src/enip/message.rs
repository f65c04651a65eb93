//! Messages of the encapsulation (CIP volume 2, chapter 2), with their items in the common packet format.

use super::cip::{self, Summary};
use crate::bytes::{le16, le32};

/// Length of the encapsulation's header.
pub(super) const HEADER: usize = 24;

/// Commands with a layout.
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
/// The limit of items in a message: known messages have at most four, and one for each service of a device.
const ITEMS_MAX: usize = 64;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) command: u16,
    /// Length of the data.
    pub(super) len: usize,
    pub(super) status: u32,
    /// Sender context: chosen by the requester and repeated in the response.
    pub(super) context: [u8; 8],
    /// Reserved: receivers must discard a message that sets any of them.
    pub(super) options: u32,
}

impl Header {
    /// Reads the header; `None` if it is truncated.
    pub(super) fn read(data: &[u8]) -> Option<Header> {
        Some(Header {
            command: le16(data, 0)?,
            len: usize::from(le16(data, 2)?),
            status: le32(data, 8)?,
            context: *data.get(12..)?.first_chunk()?,
            options: le32(data, 20)?,
        })
    }

    /// Whether it is a valid header: a known command and allowed options.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.command, 0x00 | 0x04 | 0x63..=0x66 | 0x6f | 0x70 | 0x72 | 0x73) && self.options == 0
    }
}

/// A device in a List Identity response (CIP volume 2, table 2-4.4).
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
        // The device's socket address follows the version.
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

/// A service in a List Services response (CIP volume 2, table 2-4.7).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) protocol_version: u16,
    pub(super) capabilities: u16,
    /// The name up to its first zero.
    pub(super) name: Box<[u8]>,
}

impl Service {
    fn read(item: &[u8]) -> Option<Service> {
        let name = item.get(4..20)?;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(Service { protocol_version: le16(item, 0)?, capabilities: le16(item, 2)?, name: name.get(..end)?.into() })
    }
}

/// The content of a message.
#[derive(Debug, Default)]
pub(super) enum Body {
    /// Not parsed.
    #[default]
    Nothing,
    /// Protocol version and options.
    Session(u16, u16),
    Identities(Vec<Identity>),
    Services(Vec<Service>),
    /// A message of CIP.
    Cip {
        /// The message.
        data: Box<[u8]>,
        /// The values for rules.
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

/// A parsed message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) command: u16,
    pub(super) status: u32,
    pub(super) body: Body,
}

/// Further results of parsing: ranges for frames, and data that identifies the transaction.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Offset and length of each item in the message.
    pub(super) items: Vec<(usize, usize)>,
    /// Offset and length of the CIP message, and of those nested in it.
    pub(super) cip: Vec<(usize, usize)>,
    /// Sequence number on a CIP connection, which the response repeats.
    pub(super) sequence: Option<u16>,
    /// A part is truncated, or exceeds its container.
    pub(super) broken: bool,
}

impl Message {
    /// Reads a complete message. `wanted` requests the ranges of items.
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
            // An error response may have no data.
            SEND_RR_DATA | SEND_UNIT_DATA if data.is_empty() && header.status != 0 => Some(Body::Nothing),
            SEND_RR_DATA | SEND_UNIT_DATA => read_cip(data, &mut layout, wanted),
            _ => Some(Body::Nothing),
        };
        layout.broken |= read.is_none();
        (Message { command: header.command, status: header.status, body: read.unwrap_or_default() }, layout)
    }
}

/// Reads data with a CIP message: interface handle, timeout, and items.
fn read_cip(data: &[u8], layout: &mut Layout, wanted: bool) -> Option<Body> {
    // Interfaces other than 0 do not carry CIP (CIP volume 2, section 2-4.7).
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

/// Iterates over the items of the common packet format (CIP volume 2, section 2-6): a count, and for each item a type, a length
/// and data. Calls `read` with the type, the offset in the message, and the data. `None` if something is truncated.
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
