//! The state of a transaction, and its values for rules and events.

use margay_flow::Direction;
use margay_json::Json;

use super::message::{self, ACCESSES, Body, FLAWS, Message};
use super::{Fields, Id};
use crate::bytes::be16;
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::tx::{LogFor, TxBase};

/// A request with its response, or one of them alone.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) request: Option<Message>,
    pub(super) response: Option<Message>,
}

/// The names of the set bits, for events.
fn names(bits: u8, of: &[(u8, &str)]) -> String {
    let set: Vec<&str> = of.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "NONE".to_owned() } else { set.join(" | ") }
}

impl Message {
    /// The values for rules: one number for each address that is read or written, or one for a function without addresses.
    fn fields(&self, index: usize) -> Option<Fields> {
        let access = message::access(self.function);
        let fields = Fields { access, ..Fields::of(self) };
        let value = |values: &[u8], i: usize| {
            if access & message::COILS != 0 {
                values.get(i / 8).map(|b| u16::from(b >> (i % 8) & 1))
            } else {
                be16(values, 2 * i)
            }
        };
        let at = |address: u16, count: u16| {
            let i = u16::try_from(index).ok().filter(|i| *i < count.max(1))?;
            Some(u32::from(address) + u32::from(i))
        };
        Some(match &self.body {
            Body::Read { address, quantity } => Fields { address: Some(at(*address, *quantity)?), ..fields },
            Body::Write { address, value } => {
                // A coil that is on is 1 for rules, not the 0xff00 on the wire (section 6.5).
                let value = if access & message::COILS != 0 { u16::from(*value != 0) } else { *value };
                Fields { address: Some(at(*address, 1)?), value: Some(value), ..fields }
            }
            Body::WriteMany { address, quantity, values } => {
                Fields { address: Some(at(*address, *quantity)?), value: value(values, index), ..fields }
            }
            Body::Mask { address, .. } => Fields { address: Some(at(*address, 1)?), ..fields },
            Body::ReadWrite { address, quantity, to, count, values } => {
                let read = access & !message::WRITE;
                match at(*address, *quantity) {
                    Some(address) => Fields { access: read, address: Some(address), ..fields },
                    None => {
                        let i = index.checked_sub(usize::from((*quantity).max(1)))?;
                        let step = u16::try_from(i).ok().filter(|i| i < count)?;
                        Fields {
                            access: access & !message::READ,
                            address: Some(u32::from(*to) + u32::from(step)),
                            value: value(values, i),
                            ..fields
                        }
                    }
                }
            }
            Body::Diagnostic(sub, _) if index == 0 => Fields { subfunction: Some(*sub), ..fields },
            Body::Mei(sub, _) if index == 0 => Fields { subfunction: Some(u16::from(*sub)), ..fields },
            _ if index == 0 => fields,
            _ => return None,
        })
    }

    fn log(&self, json: &mut Json) {
        json.uint("transaction_id", u64::from(self.transaction));
        json.uint("protocol_id", u64::from(self.protocol));
        json.uint("unit_id", u64::from(self.unit));
        json.uint("function_raw", u64::from(self.function));
        json.word("function_code", message::function_name(self.function));
        json.str("access_type", &names(message::access(self.function), ACCESSES));
        json.word("category", self.category.name());
        json.str("error_flags", &names(self.flaws, FLAWS));
        match &self.body {
            Body::Read { address, quantity } => {
                json.object("read");
                json.uint("address", u64::from(*address));
                json.uint("quantity", u64::from(*quantity));
            }
            Body::Values(values) => {
                json.object("read");
                json.bytes("data", values);
            }
            Body::Write { address, value } => {
                json.object("write");
                json.uint("address", u64::from(*address));
                json.uint("data", u64::from(*value));
            }
            Body::WriteMany { address, quantity, values } => write(json, *address, *quantity, values),
            Body::Mask { address, and, or } => {
                json.object("write");
                json.uint("address", u64::from(*address));
                json.uint("and_mask", u64::from(*and));
                json.uint("or_mask", u64::from(*or));
            }
            Body::ReadWrite { address, quantity, to, count, values } => {
                json.object("read");
                json.uint("address", u64::from(*address));
                json.uint("quantity", u64::from(*quantity));
                json.end_object();
                write(json, *to, *count, values);
            }
            Body::Diagnostic(code, data) => {
                json.object("diagnostic");
                json.uint("raw", u64::from(*code));
                json.word("code", message::diagnostic_name(*code));
                json.bytes("data", data);
            }
            Body::Mei(code, data) => {
                json.object("mei");
                json.uint("raw", u64::from(*code));
                json.word("code", message::mei_name(*code));
                json.bytes("data", data);
            }
            Body::Exception(code) => {
                json.object("exception");
                json.uint("raw", u64::from(*code));
                json.word("code", message::exception_name(*code).0);
            }
            Body::Data(data) => {
                if !data.is_empty() {
                    json.bytes("data", data);
                }
                return;
            }
        }
        json.end_object();
    }
}

/// Begins the member for a write.
fn write(json: &mut Json, address: u16, quantity: u16, values: &[u8]) {
    json.object("write");
    json.uint("address", u64::from(address));
    json.uint("quantity", u64::from(quantity));
    json.bytes("data", values);
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        [&self.request, &self.response].into_iter().flatten().map(Message::held).sum::<usize>() as u64
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        match Id::of(id)? {
            Id::Request if dir == Direction::ToServer => Some(self.request.as_ref()?.fields(index)?.number()),
            Id::Request => None,
        }
    }

    fn log(&self, base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("modbus");
        json.uint("id", base.id + 1);
        for (key, message) in [("request", &self.request), ("response", &self.response)] {
            if let Some(message) = message {
                json.object(key);
                message.log(json);
                json.end_object();
            }
        }
        json.end_object();
    }
}
