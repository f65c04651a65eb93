//! `xff`: the client's address as a proxy gives it.

use margay_app::AppProto;
use std::net::IpAddr;

use crate::event::{Direction, EventType, Forwarded, Header};
use crate::json::Json;
use crate::settings::XffMode;

use super::Out;

/// The client behind a proxy, as far as an output wants to know.
pub(super) struct Client {
    found: Option<(IpAddr, XffMode, Direction)>,
}

impl Out<'_> {
    /// Looks for the client behind a proxy, where this output wants that of events of this type.
    pub(super) fn client(&self, kind: EventType, forwarded: Option<&Forwarded<'_>>) -> Client {
        let settings = &self.settings.xff;
        let wanted = match kind {
            EventType::Alert => &settings.alert,
            EventType::App(AppProto::Http1) => &settings.http,
            EventType::Fileinfo => &settings.files,
            _ => &None,
        };
        let found = match (wanted, forwarded) {
            (Some(x), Some(f)) => (f.find)(&x.header, x.forward).map(|ip| (ip, x.mode, f.direction)),
            _ => None,
        };
        Client { found }
    }
}

impl Client {
    /// The address, where it stands in place of the client's own.
    pub(super) fn overwrites(&self) -> Option<IpAddr> {
        self.found.filter(|f| f.1 == XffMode::Overwrite).map(|f| f.0)
    }

    /// The header as it is to be shown, where that is another one than it was. The community identifier stays that of the
    /// flow.
    pub(super) fn header<'a>(&self, header: &Header<'a>) -> Option<Header<'a>> {
        let (ip, _, direction) = self.found.filter(|f| f.1 == XffMode::Overwrite)?;
        let mut h = *header;
        let a = h.addresses.as_mut()?;
        match direction {
            Direction::ToServer => a.src = ip,
            Direction::ToClient => a.dst = ip,
        }
        Some(h)
    }

    /// Writes `xff`, IPv6 in its short form (RFC 5952), as headers have it.
    pub(super) fn member(&self, json: &mut Json) {
        if let Some((ip, ..)) = self.found {
            json.str("xff", &ip.to_string());
        }
    }
}
