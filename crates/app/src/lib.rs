//! Application protocols: how they are recognised, parsed, what they offer to rules, and what they write to the log.
//!
//! A flow has an [`AppSession`]. It is fed with what [`margay_stream`](../margay_stream/index.html) put in order (or with
//! datagrams), finds out which protocol is spoken ([`recognise`]), and hands the bytes to that protocol's [`Parser`].
//! A parser makes *transactions* ([`Transaction`]): a request with its response. Detection looks at their buffers as they
//! fill, logging writes them when they are complete, and then they are freed.
//!
//! Everything about one protocol is in its folder: recognition, parser, buffers for rules, events, log, tests. The folder's
//! [`Protocol`] description is what the rest of the engine knows of it; the list of them is [`PROTOCOLS`]. A parser is
//! never told of rules or outputs, and never reads a clock.
//!
//! What a parser returns is how many bytes it is done with: what it could not use yet stays in the stream's own buffer and
//! comes again with more behind it, so nothing is copied to wait. Limits are in [`AppConfig`]; what was wrong with the
//! traffic is an event of the transaction ([`AppEvents`]), never an error that stops the engine.

#[macro_use]
mod tables;

mod arguments;

pub mod bacnet;
mod ber;
pub mod bittorrent_dht;
pub mod bytes;
mod cache;
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
pub mod nfs;
pub mod ntp;
pub mod opcua;
pub mod openvpn;
pub mod parser;
pub mod pgsql;
pub mod pop3;
pub mod quic;
pub mod radius;
pub mod rdp;
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

pub use config::{AppConfig, AppLogOptions};
pub use event::AppEvents;
pub use margay_meaning::args::ArgLimits;
pub use parser::{AppCounters, Outcome, Parse, Parsed, Parser, Shared, Upgrade, Wishes};
pub use registry::{ALL, AppProto, List, Opening, PROTOCOLS, Protocol, add, protocol};
pub use session::AppSession;
pub use tx::{ABSENT, BufferDef, BufferKind, Found, LogFor, NumberDef, Transaction, TxBase, TxDetect, TxFirewall};
