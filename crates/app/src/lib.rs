//! Application protocols: detection, parsing, the values that rules match, and events.
//!
//! A flow has an [`AppSession`]. It receives stream data in order from [`margay_stream`](../margay_stream/index.html), or
//! datagrams, detects the protocol ([`recognise`]), and passes the data to that protocol's [`Parser`]. A parser makes
//! *transactions* ([`Transaction`]): a request with its response. Detection inspects their buffers as they fill, logging writes
//! them once they are complete, and then they are freed.
//!
//! Each protocol has a folder: detection, parser, rule buffers, events, log, tests. The rest of the engine knows a protocol
//! only by its [`Protocol`] declaration; [`PROTOCOLS`] lists them. A parser knows nothing of rules or outputs, and never reads
//! a clock.
//!
//! A parser returns how many bytes it consumed. The rest stays in the stream's buffer and comes again with more data after it,
//! so waiting needs no copy. [`AppConfig`] has the limits. Anomalies in the traffic are events of the transaction
//! ([`AppEvents`]), never errors that stop the engine.

#[macro_use]
mod proto;
#[macro_use]
mod tables;
#[macro_use]
mod http_buffers;

mod answer;
mod arguments;

pub mod bacnet;
mod ber;
pub mod bittorrent_dht;
mod buffer;
pub mod bytes;
mod cache;
pub mod certificates;
mod collectors;
mod condition;
pub mod config;
pub mod conversation;
pub mod dcerpc;
pub mod declare;
pub mod decompress;
pub mod dhcp;
pub mod dnp3;
pub mod dns;
pub mod enip;
pub mod event;
mod exchange;
pub mod expect;
pub mod file;
mod first_data;
pub mod frame;
pub mod ftp;
pub mod ftp_data;
pub mod http1;
pub mod http2;
pub mod iec104;
pub mod ike;
pub mod imap;
pub mod krb5;
pub mod ldap;
pub mod mime;
pub mod modbus;
pub mod mqtt;
mod named;
pub mod nfs;
pub mod ntp;
pub mod opcua;
pub mod openvpn;
pub mod param;
pub mod parser;
pub mod pgsql;
pub mod pop3;
pub mod quic;
pub mod radius;
mod rare;
pub mod rdp;
mod reader;
pub mod recognise;
mod registry;
pub mod rfb;
pub mod s7comm;
pub mod script;
pub mod session;
pub mod sip;
pub mod smb;
pub mod smtp;
pub mod snmp;
pub mod ssh;
pub mod stun;
pub mod syslog;
pub mod telnet;
pub mod template;
#[cfg(test)]
mod testing;
pub mod tftp;
pub mod tls;
pub mod tx;
mod tx_list;
pub mod websocket;
pub mod window;
pub mod wireguard;

pub use collectors::Collectors;
pub use config::{AppConfig, AppLogOptions};
pub use declare::{Handover, Opening, Protocol};
pub use event::AppEvents;
pub use margay_meaning::args::ArgLimits;
pub use parser::{AppCounters, FlowRequests, Outcome, Parse, Parsed, Parser, Shared, Upgrade};
pub use proto::AppProto;
pub use rare::RareVec;
pub use registry::{ALL, List, PROTOCOLS, add, configurable, header_transports, protocol};
pub use session::AppSession;
pub use tx::{
    ABSENT, BufferDef, BufferKind, Extra, Form, Found, LogFor, NumberDef, Transaction, TxBase, TxDetect, TxFirewall,
};
