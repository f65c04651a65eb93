//! Settings of the application layer and of its outputs.
//!
//! A protocol's settings are declared ([`crate::Protocol::settings`]). Protocols whose settings are more than numbers have a
//! file here, which only the protocol and [`AppConfig`] use.

mod declared;
pub(crate) mod dns;
pub(crate) mod ftp;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod smb;
pub(crate) mod smtp;
pub(crate) mod ssh;
pub(crate) mod tls;
mod values;

use crate::collectors::Collectors;
use crate::recognise::Recogniser;
use margay_meaning::args::ArgLimits;

pub(crate) use declared::Securing;
pub use declared::{Declared, Handover};
pub use values::Values;

/// Settings that all flows share.
#[derive(Debug)]
pub struct AppConfig {
    /// Memory limit for the parsers and transactions of one worker (`app-layer.memcap`, divided among the workers); 0 for none.
    pub memcap: u64,
    /// Protocol detection.
    pub recogniser: Recogniser,
    /// Limits on HTTP request arguments; `None` if no rule inspects them.
    pub arguments: Option<ArgLimits>,
    /// The limits that apply if a rule inspects arguments (`app-layer.protocols.http.arguments`).
    pub argument_limits: ArgLimits,
    /// Servers whose requests have no arguments in their bodies (`app-layer.protocols.http.arguments.collectors`).
    pub collectors: Collectors,
    /// HTTP/1.
    pub http1: http1::Config,
    /// HTTP/2.
    pub http2: http2::Config,
    /// DNS and multicast DNS.
    pub dns: dns::Config,
    /// FTP.
    pub ftp: ftp::Config,
    /// SMB.
    pub smb: smb::Config,
    /// SMTP.
    pub smtp: smtp::Config,
    /// SSH.
    pub ssh: ssh::Config,
    /// TLS.
    pub tls: tls::Config,
    /// Files.
    pub files: crate::file::FileConfig,
    /// Settings that protocols declare ([`crate::Protocol::settings`]).
    pub settings: Values,
    /// Facts from the declarations of all protocols.
    pub declared: Declared,
}

impl AppConfig {
    /// The defaults, with the values of declarations.
    pub(crate) fn with(recogniser: Recogniser, settings: Values, declared: Declared) -> AppConfig {
        AppConfig {
            memcap: 0,
            recogniser,
            arguments: None,
            argument_limits: Default::default(),
            collectors: Default::default(),
            http1: Default::default(),
            http2: Default::default(),
            dns: Default::default(),
            ftp: Default::default(),
            smb: Default::default(),
            smtp: Default::default(),
            ssh: Default::default(),
            tls: Default::default(),
            files: Default::default(),
            settings,
            declared,
        }
    }
}

/// Options of an output's application-layer events.
#[derive(Debug, Clone)]
pub struct AppLogOptions {
    /// HTTP.
    pub http: http1::LogOptions,
    /// DNS.
    pub dns: dns::LogOptions,
    /// SMB.
    pub smb: smb::LogOptions,
    /// SMTP.
    pub smtp: smtp::LogOptions,
    /// TLS.
    pub tls: tls::LogOptions,
    /// Files.
    pub files: crate::file::FileLogOptions,
    /// Alerts: bodies in base64 (`http-body`), as `http_request_body` and `http_response_body`.
    pub http_body: bool,
    /// Alerts: bodies as printable text (`http-body-printable`), as `http_request_body_printable` and
    /// `http_response_body_printable`. Both come before those in base64.
    pub http_body_printable: bool,
    /// Frames: the limit of bytes that events show (`frame: payload-buffer-size`, less one byte, as in Suricata).
    pub frame_payload: usize,
    /// The same for the frames of alerts, whose setting is that of the alert's payload.
    pub alert_frame_payload: usize,
    /// Options that protocols declare ([`crate::Protocol::eve_options`]).
    pub options: Values,
}

impl AppLogOptions {
    /// The defaults, with the values of declared options.
    pub(crate) fn with(options: Values) -> AppLogOptions {
        AppLogOptions {
            http: Default::default(),
            dns: Default::default(),
            smb: Default::default(),
            smtp: Default::default(),
            tls: Default::default(),
            files: Default::default(),
            http_body: false,
            http_body_printable: false,
            frame_payload: 4095,
            alert_frame_payload: 4095,
            options,
        }
    }
}
