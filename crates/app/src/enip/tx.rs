//! The state of a transaction, and its values for rules and events.

use margay_flow::Direction;
use margay_json::Json;

use super::message::{Body, Identity, Message, Service};
use super::{Id, cip, names};
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::tx::{Found, LogFor, TxBase};

/// A request with its response, or one of them alone.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// By [`Direction::index`].
    pub(super) messages: [Option<Message>; 2],
}

impl Exchange {
    pub(super) fn of(dir: Direction, message: Message) -> Exchange {
        let mut exchange = Exchange::default();
        exchange.messages[dir.index()] = Some(message);
        exchange
    }

    fn message(&self, dir: Direction) -> Option<&Message> {
        self.messages[dir.index()].as_ref()
    }
}

impl Message {
    fn identity(&self, index: usize) -> Option<&Identity> {
        match &self.body {
            Body::Identities(all) => all.get(index),
            _ => None,
        }
    }

    fn service(&self, index: usize) -> Option<&Service> {
        match &self.body {
            Body::Services(all) => all.get(index),
            _ => None,
        }
    }

    fn summary(&self) -> Option<&cip::Summary> {
        match &self.body {
            Body::Cip { summary, .. } => Some(summary),
            _ => None,
        }
    }

    fn protocol_version(&self, index: usize) -> Option<u16> {
        match &self.body {
            Body::Session(version, _) => (index == 0).then_some(*version),
            Body::Identities(all) => all.get(index).map(|i| i.protocol_version),
            Body::Services(all) => all.get(index).map(|s| s.protocol_version),
            Body::Nothing | Body::Cip { .. } => None,
        }
    }

    fn number(&self, id: Id, index: usize) -> Option<u64> {
        let single = |n: u64| (index == 0).then_some(n);
        let identity = |of: fn(&Identity) -> u64| self.identity(index).map(of);
        match id {
            Id::Command => single(u64::from(self.command)),
            Id::Status => single(u64::from(self.status)),
            Id::ProtocolVersion => self.protocol_version(index).map(u64::from),
            Id::Revision => identity(|i| u64::from(u16::from_be_bytes(i.revision))),
            Id::IdentityStatus => identity(|i| u64::from(i.status)),
            Id::State => identity(|i| u64::from(i.state)),
            Id::Serial => identity(|i| u64::from(i.serial)),
            Id::ProductCode => identity(|i| u64::from(i.product)),
            Id::DeviceType => identity(|i| u64::from(i.device)),
            Id::VendorId => identity(|i| u64::from(i.vendor)),
            Id::Capabilities => self.service(index).map(|s| u64::from(s.capabilities)),
            Id::CipService => self.summary()?.services.get(index).copied(),
            Id::CipAttribute => self.summary()?.attributes.get(index).copied().map(u64::from),
            Id::CipClass => self.summary()?.classes.get(index).copied().map(u64::from),
            Id::CipInstance => self.summary()?.instances.get(index).copied().map(u64::from),
            Id::CipStatus => self.summary()?.statuses.get(index).copied().map(u64::from),
            Id::CipExtendedStatus => self.summary()?.extended.get(index).copied().map(u64::from),
            Id::ProductName | Id::ServiceName => None,
        }
    }

    fn log(&self, json: &mut Json) {
        match names::word(names::COMMANDS, u32::from(self.command)) {
            Some(word) => json.word("command", word),
            None => json.str("command", &format!("unknown (0x{:04x})", self.command)),
        }
        match names::word(names::STATUSES, self.status) {
            Some(word) => json.word("status", word),
            None => json.str("status", &format!("unknown (0x{:08x})", self.status)),
        }
        match &self.body {
            Body::Nothing => {}
            Body::Session(version, options) => {
                json.object("register_session");
                json.uint("protocol_version", u64::from(*version));
                json.uint("options", u64::from(*options));
                json.end_object();
            }
            // A device answers for itself.
            Body::Identities(all) => {
                if let Some(identity) = all.first() {
                    identity.log(json);
                }
            }
            Body::Services(all) => {
                if let Some(service) = all.first() {
                    json.object("list_services");
                    json.uint("protocol_version", u64::from(service.protocol_version));
                    json.uint("capabilities", u64::from(service.capabilities));
                    json.bytes("service_name", &service.name);
                    json.end_object();
                }
            }
            Body::Cip { data, .. } => {
                json.object("cip");
                cip::log(data, json);
                json.end_object();
            }
        }
    }
}

impl Identity {
    fn log(&self, json: &mut Json) {
        let named = |json: &mut Json, key: &'static str, name: Option<&'static str>, code: u16| match name {
            Some(name) => json.str(key, name),
            None => json.str(key, &format!("Unknown ({code})")),
        };
        json.object("identity");
        json.uint("protocol_version", u64::from(self.protocol_version));
        json.str("revision", &format!("{}.{}", self.revision[0], self.revision[1]));
        named(json, "vendor_id", names::vendor(self.vendor), self.vendor);
        named(json, "device_type", names::device(self.device), self.device);
        json.uint("product_code", u64::from(self.product));
        json.uint("status", u64::from(self.status));
        json.uint("serial", u64::from(self.serial));
        json.bytes("product_name", &self.name);
        json.uint("state", u64::from(self.state));
        json.end_object();
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        self.messages.iter().flatten().map(|m| m.body.held()).sum::<usize>() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let message = self.message(dir)?;
        let name = match Id::of(id)? {
            Id::ProductName => &message.identity(index)?.name,
            Id::ServiceName => &message.service(index)?.name,
            _ => return None,
        };
        Some(Found::whole(name))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        self.message(dir)?.number(Id::of(id)?, index)
    }

    fn direction(&self, only: Option<Direction>) -> Direction {
        only.unwrap_or(Direction::ToServer)
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("enip");
        for (dir, key) in [(Direction::ToServer, "request"), (Direction::ToClient, "response")] {
            if let Some(message) = self.message(dir) {
                json.object(key);
                message.log(json);
                json.end_object();
            }
        }
        json.end_object();
    }
}
