//! Frames (RFC 9113, sections 4.1 and 6): the header, and names of codes.

/// Length of a frame header.
pub(super) const HEADER: usize = 9;
/// The connection preface of a client (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub(super) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Header {
    /// Length of the payload.
    pub length: u32,
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Stream identifier.
    pub stream: u32,
    /// Whether the reserved bit is set, which is invalid.
    pub reserved: bool,
}

impl Header {
    /// Reads a header from the front of `data`.
    pub(super) fn read(data: &[u8]) -> Option<Header> {
        let [a, b, c, kind, flags, s, t, u, v] = *data.first_chunk::<HEADER>()?;
        let stream = u32::from_be_bytes([s, t, u, v]);
        Some(Header {
            length: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: stream & 0x7fff_ffff,
            reserved: stream >> 31 != 0,
        })
    }

    /// Whether a flag is set.
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Error codes (RFC 9113, section 7), by number: their names in the log of a `GOAWAY`, and of a `RST_STREAM`.
const ERRORS: [(&str, &str); 14] = [
    ("NOERROR", "NoError"),
    ("PROTOCOLERROR", "ProtocolError"),
    ("INTERNALERROR", "InternalError"),
    ("FLOWCONTROLERROR", "FlowControlError"),
    ("SETTINGSTIMEOUT", "SettingsTimeout"),
    ("STREAMCLOSED", "StreamClosed"),
    ("FRAMESIZEERROR", "FrameSizeError"),
    ("REFUSEDSTREAM", "RefusedStream"),
    ("CANCEL", "Cancel"),
    ("COMPRESSIONERROR", "CompressionError"),
    ("CONNECTERROR", "ConnectError"),
    ("ENHANCEYOURCALM", "EnhanceYourCalm"),
    ("INADEQUATESECURITY", "InadequateSecurity"),
    ("HTTP11REQUIRED", "Http11Required"),
];

/// Log name of an error code; `goaway` selects the frame type. `None` if the code is not defined.
pub(super) fn error_name(code: u32, goaway: bool) -> Option<&'static str> {
    let names = ERRORS.get(usize::try_from(code).ok()?)?;
    Some(if goaway { names.0 } else { names.1 })
}

/// Log name of a setting (RFC 9113, section 6.5.2; RFC 8441, section 3; RFC 9218, section 2.1).
pub(super) const fn setting_name(id: u16) -> Option<&'static str> {
    Some(match id {
        1 => "SETTINGSHEADERTABLESIZE",
        2 => "SETTINGSENABLEPUSH",
        3 => "SETTINGSMAXCONCURRENTSTREAMS",
        4 => "SETTINGSINITIALWINDOWSIZE",
        5 => "SETTINGSMAXFRAMESIZE",
        6 => "SETTINGSMAXHEADERLISTSIZE",
        8 => "SETTINGSENABLECONNECTPROTOCOL",
        9 => "SETTINGSNORFC7540PRIORITIES",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header() {
        let h = Header::read(b"\x00\x01\x02\x01\x25\x80\x00\x00\x03rest").unwrap();
        assert_eq!(h, Header { length: 258, kind: kind::HEADERS, flags: 0x25, stream: 3, reserved: true });
        assert!(h.has(flag::END_STREAM) && h.has(flag::END_HEADERS) && h.has(flag::PRIORITY) && !h.has(flag::PADDED));
        assert_eq!(Header::read(b"\x00\x01\x02\x01\x25\x80\x00\x00"), None);
        assert_eq!(
            (error_name(2, true), error_name(8, false), error_name(14, true)),
            (Some("INTERNALERROR"), Some("Cancel"), None)
        );
    }
}
