//! `xff`: the client's address, taken from a proxy's header.

use std::net::IpAddr;

use margay_app::protocol;

use crate::event::{Direction, EventType, Forwarded, Header};
use crate::json::Json;
use crate::settings::XffMode;

use super::Out;

/// The client behind a proxy, as an output shows it.
pub(super) struct Client {
    found: Option<(IpAddr, XffMode, Direction)>,
}

impl Out<'_> {
    /// Looks up the client behind a proxy, if this output asks for it in events of this type.
    pub(super) fn client(&self, kind: EventType, forwarded: Option<&Forwarded<'_>>) -> Client {
        let settings = &self.settings.xff;
        let wanted = match kind {
            EventType::Alert => &settings.alert,
            EventType::App(p) if protocol(p).is_some_and(|p| p.shows_forwarded) => &settings.http,
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
    /// The address that replaces the client's own, if any.
    pub(super) fn overwrites(&self) -> Option<IpAddr> {
        self.found.filter(|f| f.1 == XffMode::Overwrite).map(|f| f.0)
    }

    /// The header with the client's address replaced; `None` if nothing changes. The community identifier stays the
    /// flow's.
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

    /// Writes `xff`. IPv6 addresses are in their short form (RFC 5952), as in HTTP headers.
    pub(super) fn member(&self, json: &mut Json) {
        if let Some((ip, ..)) = self.found {
            json.str("xff", &ip.to_string());
        }
    }
}
