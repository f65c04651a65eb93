//! The list of protocols, and their numbers.
//!
//! The list names the declarations without using them: here it makes [`AppProto`], which every protocol uses, and the registry
//! collects the declarations.

/// The list: first the protocols with a parser, then those that are only detected or named. Each has its number and the place
/// of its declaration in this crate.
macro_rules! protocols {
    ($made:ident) => {
        $made! {
            parsed {
                Http1 http1::PROTOCOL;
                Http2 http2::PROTOCOL;
                Doh2 http2::DOH2;
                Dns dns::PROTOCOL;
                Mdns dns::MDNS;
                Ftp ftp::PROTOCOL;
                FtpData ftp_data::PROTOCOL;
                Smb smb::PROTOCOL;
                Dcerpc dcerpc::PROTOCOL;
                Smtp smtp::PROTOCOL;
                Ssh ssh::PROTOCOL;
                Tls tls::PROTOCOL;
                Quic quic::PROTOCOL;
                Dhcp dhcp::PROTOCOL;
                Tftp tftp::PROTOCOL;
                Ntp ntp::PROTOCOL;
                BittorrentDht bittorrent_dht::PROTOCOL;
                Sip sip::PROTOCOL;
                Pop3 pop3::PROTOCOL;
                Ike ike::PROTOCOL;
                Rfb rfb::PROTOCOL;
                Snmp snmp::PROTOCOL;
                Krb5 krb5::PROTOCOL;
                Ldap ldap::PROTOCOL;
                Rdp rdp::PROTOCOL;
                Mqtt mqtt::PROTOCOL;
                Telnet telnet::PROTOCOL;
                Pgsql pgsql::PROTOCOL;
                Dnp3 dnp3::PROTOCOL;
                Websocket websocket::PROTOCOL;
                Enip enip::PROTOCOL;
                Nfs nfs::PROTOCOL;
                Modbus modbus::PROTOCOL;
                Stun stun::PROTOCOL;
                Wireguard wireguard::PROTOCOL;
                Openvpn openvpn::PROTOCOL;
                Radius radius::PROTOCOL;
                Syslog syslog::PROTOCOL;
                S7comm s7comm::PROTOCOL;
                Bacnet bacnet::PROTOCOL;
                Iec104 iec104::PROTOCOL;
                Opcua opcua::PROTOCOL;
                Imap imap::PROTOCOL;
                Template template::PROTOCOL;
            }
            named {
                Irc named::IRC;
                Jabber named::JABBER;
            }
        }
    };
}

macro_rules! numbers {
    (parsed { $($parsed:ident $($_parsed_at:ident)::+;)* } named { $($named:ident $($_named_at:ident)::+;)* }) => {
        /// An application protocol, or its absence.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum AppProto {
            /// Not known yet.
            #[default]
            Unknown,
            /// Detection found no protocol.
            Failed,
            $($parsed,)*
            $($named,)*
            /// The first protocol that another crate [added](crate::add).
            Added1,
            /// The second protocol of another crate.
            Added2,
            /// The third protocol of another crate.
            Added3,
            /// The fourth protocol of another crate.
            Added4,
        }

        pub(crate) const VARIANTS: &[AppProto] = &[
            AppProto::Unknown, AppProto::Failed, $(AppProto::$parsed,)* $(AppProto::$named,)*
            AppProto::Added1, AppProto::Added2, AppProto::Added3, AppProto::Added4,
        ];
    };
}

protocols!(numbers);

impl AppProto {
    /// Whether it is a protocol, not `Unknown` or `Failed`.
    pub const fn is_known(self) -> bool {
        !matches!(self, AppProto::Unknown | AppProto::Failed)
    }
}
