//! A message (RFC 2131 section 2): a header and options (RFC 2132).

use std::net::Ipv4Addr;

use crate::bytes::be32;

/// Length of the header, including the cookie before the options.
pub const HEADER: usize = 240;

/// The limit of options; further ones are ignored.
const OPTIONS_MAX: usize = 128;

/// Options that are parsed.
#[allow(missing_docs)]
pub mod option {
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS_SERVER: u8 = 6;
    pub const HOSTNAME: u8 = 12;
    pub const REQUESTED_IP: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const PARAMETERS: u8 = 55;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const END: u8 = 255;
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// `op`: 1 from a client, 2 from a server.
    pub op: u8,
    /// Transaction identifier.
    pub id: u32,
    /// The client's address (`ciaddr`).
    pub client: Ipv4Addr,
    /// The address assigned to the client (`yiaddr`).
    pub assigned: Ipv4Addr,
    /// The next server to contact (`siaddr`).
    pub next_server: Ipv4Addr,
    /// The relay (`giaddr`).
    pub relay: Ipv4Addr,
    /// The client's hardware address, up to 16 bytes.
    pub hardware: Vec<u8>,
    /// Options in order: number and content.
    pub options: Vec<(u8, Vec<u8>)>,
    /// The cookie before the options is wrong.
    pub malformed: bool,
    /// The options are truncated.
    pub truncated: bool,
}

fn address(data: &[u8], at: usize) -> Ipv4Addr {
    data.get(at..).and_then(|d| d.first_chunk::<4>()).map_or(Ipv4Addr::UNSPECIFIED, |b| Ipv4Addr::from(*b))
}

impl Message {
    /// Reads a datagram; `None` if it is shorter than a header.
    pub fn read(data: &[u8]) -> Option<Message> {
        let head = data.first_chunk::<HEADER>()?;
        let mut m = Message {
            op: head[0],
            id: be32(head, 4)?,
            client: address(head, 12),
            assigned: address(head, 16),
            next_server: address(head, 20),
            relay: address(head, 24),
            hardware: head.get(28..28 + usize::from(head[2]).min(16)).unwrap_or(&[]).to_vec(),
            options: Vec::new(),
            malformed: head.get(236..) != Some(&[0x63, 0x82, 0x53, 0x63]),
            truncated: false,
        };
        m.truncated = m.read_options(data.get(HEADER..).unwrap_or(&[])).is_none();
        Some(m)
    }

    fn read_options(&mut self, mut rest: &[u8]) -> Option<()> {
        while self.options.len() < OPTIONS_MAX {
            let (&code, tail) = rest.split_first()?;
            rest = match code {
                option::PAD => tail,
                option::END => return Some(()),
                _ => {
                    let (&len, tail) = tail.split_first()?;
                    let (content, behind) = tail.split_at_checked(usize::from(len))?;
                    // As in Suricata, an option that is too short or too long for its value ends the list.
                    // A time that is too long counts with its first bytes.
                    let value = match code {
                        option::LEASE_TIME | option::RENEWAL_TIME | option::REBINDING_TIME => content.get(..4)?,
                        option::CLIENT_ID if content.len() < 2 => return None,
                        _ => content,
                    };
                    self.options.push((code, value.to_vec()));
                    (value.len() == content.len()).then_some(())?;
                    behind
                }
            };
        }
        Some(())
    }

    /// The content of an option.
    pub fn option(&self, code: u8) -> Option<&[u8]> {
        self.options.iter().find(|o| o.0 == code).map(|o| o.1.as_slice())
    }

    /// The content of an option as a 32-bit number.
    pub fn number(&self, code: u8) -> Option<u32> {
        be32(self.option(code)?, 0)
    }

    /// The name of the message type (RFC 2132 section 9.6), if the message has one.
    pub fn kind(&self) -> Option<&'static str> {
        Some(match self.option(option::MESSAGE_TYPE)?.first()? {
            1 => "discover",
            2 => "offer",
            3 => "request",
            4 => "decline",
            5 => "ack",
            6 => "nak",
            7 => "release",
            8 => "inform",
            _ => "unknown",
        })
    }
}
