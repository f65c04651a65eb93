//! A message (IEC 62541-6, clauses 6.7 and 7.1): its type, and its content unless that is encrypted.

use margay_flow::Direction;

use crate::bytes::{le16, le32};

/// Length of the header: three bytes of type, one for the chunk, and the total length.
pub(super) const HEADER: usize = 8;
/// The end of the URI for the policy without security.
pub(super) const NO_SECURITY: &[u8] = b"#None";
/// The longest URL and URI that is kept.
const TEXT_MAX: usize = 1024;

/// The type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Hello,
    Acknowledge,
    Error,
    Open,
    Message,
    Close,
    ReverseHello,
}

impl Kind {
    /// The type of the message at the front of `data`; `None` if more data is needed, `Some(None)` if it is not a message.
    pub(super) fn of(data: &[u8]) -> Option<Option<Kind>> {
        Some(match data.first_chunk::<4>()? {
            b"HELF" => Some(Kind::Hello),
            b"ACKF" => Some(Kind::Acknowledge),
            b"ERRF" => Some(Kind::Error),
            b"OPNF" => Some(Kind::Open),
            b"RHEF" => Some(Kind::ReverseHello),
            b"MSGF" | b"MSGC" | b"MSGA" => Some(Kind::Message),
            b"CLOF" => Some(Kind::Close),
            _ => None,
        })
    }
}

/// The parts of a message that rules and events need.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) version: Option<u32>,
    pub(super) channel: Option<u32>,
    /// Request number; 0 for a greeting.
    pub(super) request: u32,
    pub(super) endpoint: Option<Box<[u8]>>,
    pub(super) policy: Option<Box<[u8]>>,
    /// The type number of the content, in the standard namespace.
    pub(super) service: Option<u32>,
    pub(super) status: Option<u32>,
    pub(super) reason: Option<Box<[u8]>>,
}

impl Message {
    /// Reads the beginning of a message; `None` if it is truncated. With `is_open`, the channel's content is readable.
    pub(super) fn read(kind: Kind, dir: Direction, data: &[u8], is_open: bool) -> Option<Message> {
        let mut m = Message {
            kind,
            version: None,
            channel: None,
            request: 0,
            endpoint: None,
            policy: None,
            service: None,
            status: None,
            reason: None,
        };
        let mut at = HEADER;
        match kind {
            Kind::Hello => {
                m.version = Some(le32(data, at)?);
                at += 5 * 4;
                m.endpoint = text(data, &mut at)?.map(Into::into);
            }
            Kind::ReverseHello => {
                text(data, &mut at)?;
                m.endpoint = text(data, &mut at)?.map(Into::into);
            }
            Kind::Acknowledge => m.version = Some(le32(data, at)?),
            Kind::Error => {
                m.status = Some(le32(data, at)?);
                at += 4;
                m.reason = text(data, &mut at)?.map(Into::into);
            }
            Kind::Open | Kind::Message | Kind::Close => {
                m.channel = Some(le32(data, at)?);
                at += 4;
                let mut can_read = is_open;
                if kind == Kind::Open {
                    m.policy = text(data, &mut at)?.map(Into::into);
                    can_read = m.policy.as_deref().is_some_and(|p| p.ends_with(NO_SECURITY));
                    // The sender's certificate, and the receiver's thumbprint.
                    text(data, &mut at)?;
                    text(data, &mut at)?;
                } else {
                    // The token of the channel.
                    at += 4;
                }
                m.request = le32(data, at + 4)?;
                at += 8;
                if can_read {
                    m.body(dir, data, at);
                }
            }
        }
        Some(m)
    }

    /// Reads the content's type as a node id, and the result of a response.
    fn body(&mut self, dir: Direction, data: &[u8], at: usize) {
        let (service, at) = match data.get(at) {
            Some(0) => (data.get(at + 1).map(|n| u32::from(*n)), at + 2),
            // Namespace 0 is the standard one.
            Some(1) if data.get(at + 1) == Some(&0) => (le16(data, at + 2).map(u32::from), at + 4),
            Some(2) if le16(data, at + 1) == Some(0) => (le32(data, at + 3), at + 7),
            _ => return,
        };
        self.service = service;
        if dir == Direction::ToClient {
            // A time, and the client's request handle.
            self.status = le32(data, at + 8 + 4);
        }
    }

    /// Heap memory in bytes.
    pub(super) fn held(&self) -> u64 {
        [&self.endpoint, &self.policy, &self.reason].into_iter().flatten().map(|t| t.len() as u64).sum()
    }
}

/// Reads bytes with a length prefix, which is -1 for a null value. `None` if they are truncated; long ones are cut.
fn text<'a>(data: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let len = le32(data, *at)?;
    *at += 4;
    if len == u32::MAX {
        return Some(None);
    }
    let bytes = data.get(*at..)?.get(..usize::try_from(len).ok()?)?;
    *at += bytes.len();
    Some(Some(bytes.get(..TEXT_MAX).unwrap_or(bytes)))
}
