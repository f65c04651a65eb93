//! Messages of the application layer (clause 20.1): the parts that rules and events need.

use crate::bytes::{be16, be32};

/// Services whose request or acknowledgement begins with an object and a property.
const ABOUT_PROPERTIES: [u8; 2] = [12, 15];
/// I-Am and I-Have begin with the device.
const ABOUT_DEVICES: [u8; 2] = [0, 1];

/// A service number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    Confirmed(u8),
    Unconfirmed(u8),
}

/// The parts of a message that rules and events need.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Apdu {
    pub(super) kind: u8,
    pub(super) invoke_id: Option<u8>,
    pub(super) service: Option<Service>,
    /// The reason for a refused request.
    pub(super) reason: Option<u8>,
    /// Type and instance.
    pub(super) object: Option<(u16, u32)>,
    pub(super) property: Option<u32>,
}

impl Apdu {
    /// Reads a message; `None` if it is truncated or has an unknown type.
    pub(super) fn read(data: &[u8]) -> Option<Apdu> {
        let first = *data.first()?;
        let kind = first >> 4;
        let is_divided = first & 8 != 0;
        let mut apdu = Apdu { kind, invoke_id: None, service: None, reason: None, object: None, property: None };
        // The offset of the request's number.
        let id_at = match kind {
            0 => 2,
            1 => {
                let service = *data.get(1)?;
                apdu.service = Some(Service::Unconfirmed(service));
                if ABOUT_DEVICES.contains(&service) {
                    // The application tag of an object identifier.
                    apdu.object = data.get(2..).and_then(|d| object(d, 0xc4));
                }
                return Some(apdu);
            }
            2..=7 => 1,
            _ => return None,
        };
        apdu.invoke_id = Some(*data.get(id_at)?);
        // A segmented message has a sequence number and a window before the service.
        let at = id_at + if matches!(kind, 0 | 3) && is_divided { 3 } else { 1 };
        match kind {
            0 | 2 | 3 | 5 => {
                let service = *data.get(at)?;
                apdu.service = Some(Service::Confirmed(service));
                if matches!(kind, 0 | 3) && ABOUT_PROPERTIES.contains(&service) {
                    let arguments = data.get(at + 1..).unwrap_or(&[]);
                    apdu.object = object(arguments, 0x0c);
                    apdu.property = apdu.object.and(arguments.get(5..)).and_then(property);
                }
            }
            6 | 7 => apdu.reason = Some(*data.get(at)?),
            // An acknowledgement of a segment.
            _ => {}
        }
        Some(apdu)
    }
}

/// Reads an object identifier after this tag: ten bits of type, the rest is the instance (clause 20.2.14).
fn object(data: &[u8], tag: u8) -> Option<(u16, u32)> {
    let n = be32(data, 1).filter(|_| data.first() == Some(&tag))?;
    Some(((n >> 22) as u16, n & 0x3f_ffff))
}

/// Reads a property number with context tag 1, of one to three bytes.
fn property(data: &[u8]) -> Option<u32> {
    match data.first()? {
        0x19 => data.get(1).map(|n| u32::from(*n)),
        0x1a => be16(data, 1).map(u32::from),
        0x1b => be32(data, 0).map(|n| n & 0xff_ffff),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties() {
        assert_eq!(property(b"\x19\x55"), Some(85));
        assert_eq!(property(b"\x1a\x02\x00"), Some(512));
        assert_eq!(property(b"\x1b\x01\x00\x01"), Some(0x1_0001));
        assert_eq!((property(b"\x1a\x02"), property(b"\x29\x55"), property(b"")), (None, None, None));
    }

    #[test]
    fn divided_requests() {
        let apdu = Apdu::read(b"\x08\x05\x09\0\x04\x0f\x0c\0\x80\0\x01\x19\x55").unwrap();
        assert_eq!((apdu.invoke_id, apdu.service), (Some(9), Some(Service::Confirmed(15))));
        assert_eq!((apdu.object, apdu.property), (Some((2, 1)), Some(85)));
    }
}
