//! Test conversations: bytes in, and the view of rules and logs out.

use std::net::IpAddr;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;

use crate::config::{AppConfig, AppLogOptions};
use crate::declare::Protocol;
use crate::parser::{Outcome, Parse, Parser, Shared};
use crate::proto::AppProto;
use crate::recognise::Recogniser;
use crate::registry::protocol;
use crate::tx::{LogFor, Transaction};

/// A conversation of one flow with a protocol's parser.
pub(crate) struct Talk {
    pub(crate) config: AppConfig,
    pub(crate) options: AppLogOptions,
    pub(crate) shared: Shared,
    pub(crate) inline: bool,
    flow: FlowCore,
    parser: Option<Box<dyn Parser>>,
    protocol: &'static Protocol,
    /// Unconsumed data by direction.
    left: [Vec<u8>; 2],
    /// The result of the last call.
    pub(crate) outcome: Outcome,
}

impl Talk {
    /// Over TCP.
    pub(crate) fn tcp(proto: AppProto, port: u16) -> Talk {
        Talk::over(6, proto, port)
    }

    /// Over UDP.
    pub(crate) fn udp(proto: AppProto, port: u16) -> Talk {
        Talk::over(17, proto, port)
    }

    fn over(transport: u8, proto: AppProto, port: u16) -> Talk {
        let ends = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([198, 51, 100, 1])];
        Talk {
            config: AppConfig::new(Recogniser::new(&Default::default())),
            options: AppLogOptions::default(),
            shared: Shared::default(),
            inline: false,
            flow: FlowCore {
                pkts: [1, 1],
                state: FlowState::Established,
                ..FlowCore::new(1, transport, (ends[0], 40_000), (ends[1], port), Time(0))
            },
            parser: None,
            protocol: protocol(proto).expect("the protocol has a parser"),
            left: Default::default(),
            outcome: Outcome::More,
        }
    }

    /// Sets a setting of the protocol by its key.
    pub(crate) fn set(mut self, key: &str, value: u64) -> Talk {
        let place = self.protocol.settings.iter().position(|s| s.key == key).expect("the setting is declared");
        self.config.settings.set(self.protocol.proto, place, value);
        self
    }

    /// The client sends bytes.
    pub(crate) fn client(&mut self, data: &[u8]) -> &mut Talk {
        self.send(ToServer, data, false)
    }

    /// The server sends bytes.
    pub(crate) fn server(&mut self, data: &[u8]) -> &mut Talk {
        self.send(ToClient, data, false)
    }

    /// Both sides close.
    pub(crate) fn end(&mut self) -> &mut Talk {
        self.send(ToServer, b"", true).send(ToClient, b"", true)
    }

    /// Bytes of a direction are missing.
    pub(crate) fn gap(&mut self, dir: Direction, len: u64) -> &mut Talk {
        self.with_parser(|parser, cx, outcome, _| *outcome = parser.gap(cx, dir, len), false);
        self
    }

    /// Sends data in a direction. While the parser asks for it ([`Outcome::Resume`]), the rest of the other direction is offered
    /// again, then that of this one.
    fn send(&mut self, dir: Direction, data: &[u8], end: bool) -> &mut Talk {
        self.left[dir.index()].extend_from_slice(data);
        let mut resume = self.offer(dir, end);
        while resume {
            resume = false;
            for d in [dir.reverse(), dir] {
                resume |= !self.left[d.index()].is_empty() && self.offer(d, end);
            }
        }
        self
    }

    /// Offers the rest of a direction. Returns whether the parser asks for another round.
    fn offer(&mut self, dir: Direction, end: bool) -> bool {
        let stream = self.flow.proto == 6;
        self.with_parser(
            |parser, cx, outcome, left| {
                let left = &mut left[dir.index()];
                let parsed = parser.data(cx, dir, left);
                assert!(parsed.consumed <= left.len(), "more is consumed than there is");
                left.drain(..if stream { parsed.consumed } else { left.len() });
                *outcome = parsed.outcome;
            },
            end,
        );
        self.outcome == Outcome::Resume
    }

    fn with_parser(
        &mut self,
        run: impl FnOnce(&mut dyn Parser, &mut Parse<'_>, &mut Outcome, &mut [Vec<u8>; 2]),
        end: bool,
    ) {
        let Talk { config, shared, inline, flow, parser, protocol, left, outcome, .. } = self;
        let parser = parser.get_or_insert_with(|| (protocol.parser)(config, flow));
        let mut cx = Parse { config, shared, flow, time: Time(0), end, inline: *inline };
        run(&mut **parser, &mut cx, outcome, left);
    }

    /// The transactions, in order.
    pub(crate) fn txs(&self) -> Vec<&dyn Transaction> {
        let Some(parser) = &self.parser else { return Vec::new() };
        parser.txs().filter_map(|id| parser.tx(id)).collect()
    }

    /// Whether each transaction is complete, to the server and to the client.
    pub(crate) fn complete(&self) -> Vec<[bool; 2]> {
        let of = self.protocol.complete();
        self.txs().iter().map(|t| [0, 1].map(|d| t.base().progress[d] >= of[d])).collect()
    }

    /// Memory of the parser and its transactions.
    pub(crate) fn held(&mut self) -> u64 {
        self.parser.as_mut().map_or(0, |p| p.memory())
    }

    /// Each transaction's event.
    pub(crate) fn logs(&self) -> Vec<String> {
        let mut out = Vec::new();
        for tx in self.txs() {
            for record in 0..tx.records(&self.options) {
                let mut json = Json::new();
                json.item_object();
                tx.log_record(record, &mut json, &self.options);
                json.end_object();
                out.push(String::from_utf8_lossy(json.as_bytes()).into_owned());
            }
            // The form for alerts must not fail either.
            tx.log(&mut Json::new(), &self.options, LogFor::Alert);
        }
        out
    }

    /// Names of the events of all transactions.
    pub(crate) fn events(&self) -> Vec<&'static str> {
        let of = |n: &u8| self.protocol.events.get(usize::from(*n)).copied().unwrap_or("without a name");
        self.txs().iter().flat_map(|t| t.base().events.as_slice().iter().map(of)).collect()
    }

    /// A buffer of all transactions, escaped.
    pub(crate) fn buffers(&self, name: &str, dir: Direction) -> Vec<String> {
        let def = self.protocol.buffers.iter().find(|b| b.name == name).expect("the buffer is declared");
        let mut out = Vec::new();
        for tx in self.txs() {
            for index in 0.. {
                let mut scratch = Vec::new();
                let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                out.push(found.data.escape_ascii().to_string());
                if !def.kind.is_several() {
                    break;
                }
            }
        }
        out
    }

    /// A number of all transactions.
    pub(crate) fn numbers(&self, name: &str, dir: Direction) -> Vec<u64> {
        let def = self.protocol.numbers.iter().find(|n| n.name == name).expect("the number is declared");
        self.txs().iter().flat_map(|tx| (0..).map_while(|i| tx.number(def.id, dir, i))).collect()
    }
}
