//! The state of a transaction, and its values for rules and events.

use margay_flow::Direction;
use margay_json::Json;

use super::Id;
use super::message::{Connect, Kind, Message, Part, Type};
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::tx::{Found, LogFor, TxBase};

/// The limit of messages in a transaction: four are usual, and retransmissions add more.
const MESSAGES_MAX: usize = 16;

/// A request with its responses.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Direction of the first message.
    pub(super) dir: Direction,
    /// Protocol version; 0 without a CONNECT.
    pub(super) version: u8,
    /// The limit of topics in SUBSCRIBE and UNSUBSCRIBE for rules.
    pub(super) topics: [usize; 2],
    /// Messages in order of arrival; empty if the data is malformed.
    pub(super) messages: Vec<Message>,
}

impl Exchange {
    pub(super) fn add(&mut self, message: Message) {
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push(message);
        }
    }

    fn connect(&self) -> Option<(&Message, &Connect)> {
        let m = self.messages.first()?;
        if let Kind::Connect(c) = &m.kind { Some((m, c)) } else { None }
    }

    fn topic(&self, of: Type, index: usize) -> Option<&[u8]> {
        let m = self.messages.first().filter(|m| m.of() == of)?;
        let limit = self.topics[usize::from(of == Type::UNSUBSCRIBE)];
        let Kind::Topics { topics, .. } = &m.kind else { return None };
        topics.iter().take(limit).map(|at| m.topic(*at).0).filter(|t| !t.is_empty()).nth(index)
    }

    fn code(&self, mut index: usize) -> Option<u8> {
        for m in &self.messages {
            let codes = m.codes();
            if let Some(code) = codes.get(index) {
                return Some(*code);
            }
            index -= codes.len();
        }
        None
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        let own = self.messages.capacity() * size_of::<Message>();
        own as u64 + self.messages.iter().map(Message::held).sum::<u64>()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        if dir != self.dir {
            return None;
        }
        let of_connect = |part: fn(&Connect) -> Option<&Part>| {
            let (m, c) = self.connect()?;
            Some(m.part(part(c)?))
        };
        let first = self.messages.first()?;
        let data = match Id::of(id)? {
            Id::ProtocolString => of_connect(|c| Some(&c.protocol)),
            Id::ClientId => of_connect(|c| Some(&c.client_id)),
            Id::Username => of_connect(|c| c.username.as_ref()),
            Id::Password => of_connect(|c| c.password.as_ref()),
            Id::WillTopic => of_connect(|c| c.will.as_ref().map(|w| &w.1)),
            Id::WillMessage => of_connect(|c| c.will.as_ref().map(|w| &w.2)),
            Id::PublishTopic | Id::PublishMessage => {
                let Kind::Publish { topic, message, .. } = &first.kind else { return None };
                Some(first.part(if Id::of(id) == Some(Id::PublishTopic) { topic } else { message }))
            }
            Id::SubscribeTopic => self.topic(Type::SUBSCRIBE, index),
            Id::UnsubscribeTopic => self.topic(Type::UNSUBSCRIBE, index),
            _ => None,
        };
        data.and_then(Found::filled)
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        if dir != self.dir {
            return None;
        }
        let message = self.messages.get(index);
        let n = match Id::of(id)? {
            Id::Type => message?.of().0,
            Id::Flags => message?.first & 0x0f,
            Id::Qos => message?.qos(),
            Id::Version => (index == 0 && self.version != 0).then_some(self.version)?,
            Id::ReasonCode => self.code(index)?,
            Id::ConnectFlags => (index == 0).then(|| self.connect())??.1.flags,
            Id::SessionPresent => {
                let connack = self.messages.iter().find_map(|m| match &m.kind {
                    Kind::Connack { session_present, .. } => Some(*session_present),
                    _ => None,
                });
                u8::from(connack.filter(|_| index == 0)?)
            }
            _ => return None,
        };
        Some(u64::from(n))
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        super::log::exchange(self, json, options);
    }
}
