//! Names of application protocols.

/// An application protocol, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum AppProto {
    /// Not known yet.
    #[default]
    Unknown,
    /// Looked for and not found.
    Failed,
    Http1,
    Http2,
    Doh2,
    Dns,
    Mdns,
    Tls,
    Ssh,
    Smtp,
    Imap,
    Pop3,
    Ftp,
    FtpData,
    Smb,
    Dcerpc,
    Irc,
    Jabber,
    Modbus,
    Enip,
    Dnp3,
    Nfs,
    Ntp,
    Tftp,
    Ike,
    Krb5,
    Quic,
    Dhcp,
    Snmp,
    Sip,
    Rfb,
    Mqtt,
    Pgsql,
    Telnet,
    Websocket,
    Ldap,
    Template,
    Rdp,
    BittorrentDht,
}

/// Each protocol with its name in events and its name in rules.
const NAMES: &[(AppProto, &str, &str)] = &[
    (AppProto::Failed, "failed", "failed"),
    (AppProto::Unknown, "unknown", "unknown"),
    (AppProto::Http1, "http", "http1"),
    (AppProto::Http2, "http2", "http2"),
    (AppProto::Doh2, "doh2", "doh2"),
    (AppProto::Dns, "dns", "dns"),
    (AppProto::Mdns, "mdns", "mdns"),
    (AppProto::Tls, "tls", "tls"),
    (AppProto::Ssh, "ssh", "ssh"),
    (AppProto::Smtp, "smtp", "smtp"),
    (AppProto::Imap, "imap", "imap"),
    (AppProto::Pop3, "pop3", "pop3"),
    (AppProto::Ftp, "ftp", "ftp"),
    (AppProto::FtpData, "ftp-data", "ftp-data"),
    (AppProto::Smb, "smb", "smb"),
    (AppProto::Dcerpc, "dcerpc", "dcerpc"),
    (AppProto::Irc, "irc", "irc"),
    (AppProto::Jabber, "jabber", "jabber"),
    (AppProto::Modbus, "modbus", "modbus"),
    (AppProto::Enip, "enip", "enip"),
    (AppProto::Dnp3, "dnp3", "dnp3"),
    (AppProto::Nfs, "nfs", "nfs"),
    (AppProto::Ntp, "ntp", "ntp"),
    (AppProto::Tftp, "tftp", "tftp"),
    (AppProto::Ike, "ike", "ike"),
    (AppProto::Krb5, "krb5", "krb5"),
    (AppProto::Quic, "quic", "quic"),
    (AppProto::Dhcp, "dhcp", "dhcp"),
    (AppProto::Snmp, "snmp", "snmp"),
    (AppProto::Sip, "sip", "sip"),
    (AppProto::Rfb, "rfb", "rfb"),
    (AppProto::Mqtt, "mqtt", "mqtt"),
    (AppProto::Pgsql, "pgsql", "pgsql"),
    (AppProto::Telnet, "telnet", "telnet"),
    (AppProto::Websocket, "websocket", "websocket"),
    (AppProto::Ldap, "ldap", "ldap"),
    (AppProto::Template, "template", "template"),
    (AppProto::Rdp, "rdp", "rdp"),
    (AppProto::BittorrentDht, "bittorrent-dht", "bittorrent-dht"),
];

impl AppProto {
    /// All of them; the number of each (`as u8`) is below 64.
    pub fn all() -> impl Iterator<Item = AppProto> {
        NAMES.iter().map(|n| n.0)
    }

    /// Its name in events and counters: HTTP/1 is `http` there.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|n| n.0 == self).map_or("unknown", |n| n.1)
    }

    /// Its name in rules: HTTP/1 is `http1` there.
    pub fn rule_name(self) -> &'static str {
        NAMES.iter().find(|n| n.0 == self).map_or("unknown", |n| n.2)
    }

    /// How anomalies name an event of it: in capitals for the protocols whose events are the oldest, else as rules do.
    pub fn anomaly_name(self, event: &str) -> std::borrow::Cow<'_, str> {
        match self {
            AppProto::Http1 | AppProto::Smtp | AppProto::Tls => event.to_ascii_uppercase().into(),
            _ => event.into(),
        }
    }

    /// Whether its events have the transaction's number (`tx_id`) beside their own member, rather than within.
    pub const fn shows_tx(self) -> bool {
        !matches!(self, AppProto::Dns | AppProto::Mdns | AppProto::Tls)
    }

    /// Whether it is a protocol, as opposed to not known or not found.
    pub const fn is_known(self) -> bool {
        !matches!(self, AppProto::Unknown | AppProto::Failed)
    }

    /// Whether a name in a rule means it: `http` means HTTP of either version, `dns` also DNS over HTTP/2, `dcerpc` also
    /// SMB, which carries it.
    pub fn is_meant_by(self, name: &str) -> bool {
        match name {
            "http" => matches!(self, AppProto::Http1 | AppProto::Http2 | AppProto::Doh2),
            "http2" => matches!(self, AppProto::Http2 | AppProto::Doh2),
            "dns" => matches!(self, AppProto::Dns | AppProto::Doh2),
            "dcerpc" => matches!(self, AppProto::Dcerpc | AppProto::Smb),
            n => self.rule_name() == n,
        }
    }
}
