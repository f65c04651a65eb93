//! A call: a request with its response, each in one or more fragments; and the state that binds agreed on.
//!
//! TCP, UDP and the named pipes of SMB share this code.

use margay_flow::Direction;
use margay_json::Json;

use super::pdu::{self, Header, Interface, kind};
use crate::reader::Uuid;

/// The limit of stub data kept for one side of a call; the rest is only counted.
const STUB_MAX: usize = 1 << 20;
/// The limit of interfaces in a connection; the oldest are dropped.
const BOUND_MAX: usize = 256;

/// One side of a call.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Message type.
    pub kind: Option<u8>,
    pub stub: Vec<u8>,
    /// Total bytes of stub data, including those that were not kept.
    pub size: u64,
    pub fragments: u32,
    /// Whether integers are little endian.
    pub little: bool,
    /// The side is complete.
    pub done: bool,
}

impl Side {
    /// Adds a fragment. Returns the number of bytes that were kept.
    pub(crate) fn add(&mut self, stub: &[u8]) -> usize {
        let kept = stub.get(..STUB_MAX.saturating_sub(self.stub.len())).unwrap_or(stub);
        self.stub.extend_from_slice(kept);
        self.size = self.size.saturating_add(stub.len() as u64);
        self.fragments = self.fragments.saturating_add(1);
        kept.len()
    }
}

/// The interfaces that client and server agreed on, by context.
#[derive(Debug, Default)]
pub(crate) struct Association {
    bound: Vec<Interface>,
}

impl Association {
    /// Heap memory in bytes, without the size of the value itself.
    pub(crate) fn held(&self) -> usize {
        self.bound.capacity() * size_of::<Interface>()
    }

    fn set(&mut self, interface: Interface) {
        if let Some(b) = self.bound.iter_mut().find(|b| b.context == interface.context) {
            *b = interface;
            return;
        }
        if self.bound.len() >= BOUND_MAX {
            self.bound.remove(0);
        }
        self.bound.push(interface);
    }

    /// The interface of a context, unless the server refused it.
    fn get(&self, context: u16) -> Option<&Interface> {
        self.bound.iter().find(|b| b.context == context && b.result.is_none_or(|result| result == 0))
    }
}

/// A call or a bind, with its result.
#[derive(Debug, Default)]
pub(crate) struct Call {
    pub id: u32,
    /// Minor version of the protocol.
    pub minor: u8,
    /// Request and response.
    pub sides: [Side; 2],
    pub opnum: Option<u16>,
    /// For a bind, the requested interfaces; for a request, the interface of its context.
    pub interfaces: Vec<Interface>,
    /// Whether the first fragment of the request was seen.
    pub first: bool,
    /// Whether SMB carries it.
    pub carried: bool,
}

impl Call {
    pub(crate) fn new(h: Header, carried: bool) -> Self {
        Call { id: h.call, minor: h.minor, carried, ..Call::default() }
    }

    /// Heap memory in bytes, without the size of the value itself.
    pub(crate) fn held(&self) -> usize {
        self.sides.iter().map(|s| s.stub.capacity()).sum::<usize>()
            + self.interfaces.capacity() * size_of::<Interface>()
    }

    pub(crate) const fn side(&self, dir: Direction) -> &Side {
        let [request, response] = &self.sides;
        match dir {
            Direction::ToServer => request,
            Direction::ToClient => response,
        }
    }

    pub(crate) const fn side_mut(&mut self, dir: Direction) -> &mut Side {
        let [request, response] = &mut self.sides;
        match dir {
            Direction::ToServer => request,
            Direction::ToClient => response,
        }
    }

    /// Adds a message of a direction, without its header. `None` if it is too short; it is counted nevertheless.
    pub(crate) fn message(&mut self, with: &mut Association, dir: Direction, h: Header, body: &[u8]) -> Option<()> {
        if !self.carried {
            // As in Suricata, the last message's version.
            self.minor = h.minor;
        }
        let side = self.side_mut(dir);
        side.kind = Some(h.kind);
        side.little = h.little;
        side.done = h.is_last() || !matches!(h.kind, kind::REQUEST | kind::RESPONSE);
        match h.kind {
            kind::REQUEST => {
                let request = pdu::request(h, body)?;
                side.add(request.stub);
                self.opnum = Some(request.opnum);
                self.first |= h.is_first();
                self.interfaces.clear();
                self.interfaces.extend(with.get(request.context));
            }
            kind::RESPONSE | kind::FAULT => {
                let stub = pdu::response(body, self.carried)?;
                self.side_mut(dir).add(stub);
            }
            kind::BIND | kind::ALTER_CONTEXT => {
                self.interfaces = pdu::bind(h, body)?;
                self.first |= h.is_first();
                // A fragment without the beginning does not bind an interface.
                if h.is_first() {
                    self.interfaces.iter().for_each(|i| with.set(*i));
                }
            }
            kind::BIND_ACK | kind::ALTER_CONTEXT_RESP => {
                let results = pdu::bind_ack(h, body)?;
                for (i, result) in self.interfaces.iter_mut().zip(results) {
                    i.result = Some(result);
                    if self.first {
                        with.set(*i);
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    /// The value at an index for `dcerpc.iface`: the UUID, the major version, and whether the beginning of the request was
    /// seen. Only requests have interfaces.
    pub(crate) fn interface(&self, index: usize) -> Option<(Uuid, u16, bool)> {
        let i = self.interfaces.get(index).filter(|_| self.side(Direction::ToServer).kind == Some(kind::REQUEST))?;
        Some((i.uuid, i.version.0, self.first))
    }

    /// Stub data of a direction, once it is complete.
    pub(crate) fn stub(&self, dir: Direction) -> Option<&[u8]> {
        let side = self.side(dir);
        (side.done && side.fragments > 0).then_some(&*side.stub)
    }

    /// Appends its members to an event.
    pub(crate) fn log(&self, json: &mut Json) {
        let carried = self.carried;
        let [request, response] = &self.sides;
        json.str("request", request.kind.map_or("REQUEST_LOST", pdu::name));
        json.str("response", response.kind.map_or("UNREPLIED", pdu::name));
        if carried && let Some(opnum) = self.opnum {
            json.uint("opnum", u64::from(opnum));
        }
        if request.kind == Some(kind::REQUEST) {
            json.object("req");
            if !carried && let Some(opnum) = self.opnum {
                json.uint("opnum", u64::from(opnum));
            }
            fragments(json, request);
            json.end_object();
        }
        if !self.interfaces.is_empty() {
            json.array("interfaces");
            for i in &self.interfaces {
                json.item_object();
                json.str("uuid", &i.uuid.to_string());
                json.str("version", &format!("{}.{}", i.version.0, i.version.1));
                // A request implies that the server accepted the interface. Without an answer, Suricata shows 0.
                let result = if carried { i.result } else { Some(i.result.unwrap_or(0)) };
                if let Some(result) = result.filter(|_| request.kind != Some(kind::REQUEST)) {
                    let [low, high] = result.to_le_bytes();
                    json.uint("ack_result", u64::from(if carried { u16::from(low) } else { result }));
                    // Suricata uses this name for the result's upper byte, and does not show the reason.
                    if carried {
                        json.uint("ack_reason", u64::from(high));
                    }
                }
                json.end_object();
            }
            json.end_array();
        }
        if response.kind == Some(kind::RESPONSE) {
            json.object("res");
            fragments(json, response);
            json.end_object();
        }
        json.uint("call_id", u64::from(self.id));
    }
}

/// Appends a side's size and fragment count.
pub(crate) fn fragments(json: &mut Json, side: &Side) {
    json.uint("frag_cnt", u64::from(side.fragments));
    json.uint("stub_data_size", side.size);
}
