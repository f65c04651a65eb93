//! Decoder events: anomalies of a packet, by the names of Suricata's rules, statistics and anomaly events.

macro_rules! events {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// One thing wrong with a packet. [`DecodeEvent::name`] is its name in rules (`decode-event:`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum DecodeEvent { $($variant),* }

        impl DecodeEvent {
            /// Every event, in the order of their numbers.
            pub const ALL: &'static [DecodeEvent] = &[$(DecodeEvent::$variant),*];

            /// Its name: `ipv4.pkt_too_small`. Events and rules may put `decoder.` before it.
            pub const fn name(self) -> &'static str {
                match self { $(DecodeEvent::$variant => $name),* }
            }

            /// The event of that name, with or without `decoder.` before it.
            pub fn from_name(name: &str) -> Option<DecodeEvent> {
                match name.strip_prefix("decoder.").unwrap_or(name) {
                    $($name => Some(DecodeEvent::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

events! {
    AfpacketTruncPkt "afpacket.trunc_pkt",
    Ipv4PktTooSmall "ipv4.pkt_too_small",
    Ipv4HlenTooSmall "ipv4.hlen_too_small",
    Ipv4IplenSmallerThanHlen "ipv4.iplen_smaller_than_hlen",
    Ipv4TruncPkt "ipv4.trunc_pkt",
    Ipv4OptInvalid "ipv4.opt_invalid",
    Ipv4OptInvalidLen "ipv4.opt_invalid_len",
    Ipv4OptMalformed "ipv4.opt_malformed",
    Ipv4OptPadRequired "ipv4.opt_pad_required",
    Ipv4OptEolRequired "ipv4.opt_eol_required",
    Ipv4OptDuplicate "ipv4.opt_duplicate",
    Ipv4OptUnknown "ipv4.opt_unknown",
    Ipv4WrongIpVersion "ipv4.wrong_ip_version",
    Ipv4Icmpv6 "ipv4.icmpv6",
    Ipv4FragPktTooLarge "ipv4.frag_pkt_too_large",
    Ipv4FragOverlap "ipv4.frag_overlap",
    Ipv4FragIgnored "ipv4.frag_ignored",
    Ipv4FragLate "ipv4.frag_late",
    Ipv4FragAgain "ipv4.frag_again",
    Icmpv4PktTooSmall "icmpv4.pkt_too_small",
    Icmpv4UnknownType "icmpv4.unknown_type",
    Icmpv4UnknownCode "icmpv4.unknown_code",
    Icmpv4Ipv4TruncPkt "icmpv4.ipv4_trunc_pkt",
    Icmpv4Ipv4UnknownVer "icmpv4.ipv4_unknown_ver",
    Icmpv6UnknownType "icmpv6.unknown_type",
    Icmpv6UnknownCode "icmpv6.unknown_code",
    Icmpv6PktTooSmall "icmpv6.pkt_too_small",
    Icmpv6Ipv6UnknownVersion "icmpv6.ipv6_unknown_version",
    Icmpv6Ipv6TruncPkt "icmpv6.ipv6_trunc_pkt",
    Icmpv6MldMessageWithInvalidHl "icmpv6.mld_message_with_invalid_hl",
    Icmpv6UnassignedType "icmpv6.unassigned_type",
    Icmpv6ExperimentationType "icmpv6.experimentation_type",
    Ipv6PktTooSmall "ipv6.pkt_too_small",
    Ipv6TruncPkt "ipv6.trunc_pkt",
    Ipv6TruncExthdr "ipv6.trunc_exthdr",
    Ipv6ExthdrDuplFh "ipv6.exthdr_dupl_fh",
    Ipv6ExthdrUselessFh "ipv6.exthdr_useless_fh",
    Ipv6ExthdrDuplRh "ipv6.exthdr_dupl_rh",
    Ipv6ExthdrDuplHh "ipv6.exthdr_dupl_hh",
    Ipv6ExthdrDuplDh "ipv6.exthdr_dupl_dh",
    Ipv6ExthdrDuplAh "ipv6.exthdr_dupl_ah",
    Ipv6ExthdrDuplEh "ipv6.exthdr_dupl_eh",
    Ipv6ExthdrInvalidOptlen "ipv6.exthdr_invalid_optlen",
    Ipv6WrongIpVersion "ipv6.wrong_ip_version",
    Ipv6ExthdrAhResNotNull "ipv6.exthdr_ah_res_not_null",
    Ipv6HopoptsUnknownOpt "ipv6.hopopts_unknown_opt",
    Ipv6HopoptsOnlyPadding "ipv6.hopopts_only_padding",
    Ipv6DstoptsUnknownOpt "ipv6.dstopts_unknown_opt",
    Ipv6DstoptsOnlyPadding "ipv6.dstopts_only_padding",
    Ipv6RhType0 "ipv6.rh_type_0",
    Ipv6ZeroLenPadn "ipv6.zero_len_padn",
    Ipv6FhNonZeroReservedField "ipv6.fh_non_zero_reserved_field",
    Ipv6DataAfterNoneHeader "ipv6.data_after_none_header",
    Ipv6UnknownNextHeader "ipv6.unknown_next_header",
    Ipv6Icmpv4 "ipv6.icmpv4",
    Ipv6FragPktTooLarge "ipv6.frag_pkt_too_large",
    Ipv6FragOverlap "ipv6.frag_overlap",
    Ipv6FragInvalidLength "ipv6.frag_invalid_length",
    Ipv6FragIgnored "ipv6.frag_ignored",
    Ipv6FragLate "ipv6.frag_late",
    Ipv6FragAgain "ipv6.frag_again",
    Ipv6Ipv4InIpv6TooSmall "ipv6.ipv4_in_ipv6_too_small",
    Ipv6Ipv4InIpv6WrongVersion "ipv6.ipv4_in_ipv6_wrong_version",
    Ipv6Ipv6InIpv6TooSmall "ipv6.ipv6_in_ipv6_too_small",
    Ipv6Ipv6InIpv6WrongVersion "ipv6.ipv6_in_ipv6_wrong_version",
    TcpPktTooSmall "tcp.pkt_too_small",
    TcpHlenTooSmall "tcp.hlen_too_small",
    TcpInvalidOptlen "tcp.invalid_optlen",
    TcpOptInvalidLen "tcp.opt_invalid_len",
    TcpOptDuplicate "tcp.opt_duplicate",
    UdpPktTooSmall "udp.pkt_too_small",
    UdpHlenTooSmall "udp.hlen_too_small",
    UdpHlenInvalid "udp.hlen_invalid",
    UdpLenInvalid "udp.len_invalid",
    SllPktTooSmall "sll.pkt_too_small",
    Sll2PktTooSmall "sll2.pkt_too_small",
    EthernetPktTooSmall "ethernet.pkt_too_small",
    EthernetUnknownEthertype "ethernet.unknown_ethertype",
    PppPktTooSmall "ppp.pkt_too_small",
    PppVjuPktTooSmall "ppp.vju_pkt_too_small",
    PppIp4PktTooSmall "ppp.ip4_pkt_too_small",
    PppIp6PktTooSmall "ppp.ip6_pkt_too_small",
    PppWrongType "ppp.wrong_type",
    PppUnsupProto "ppp.unsup_proto",
    PppoePktTooSmall "pppoe.pkt_too_small",
    PppoeWrongCode "pppoe.wrong_code",
    PppoeMalformedTags "pppoe.malformed_tags",
    GrePktTooSmall "gre.pkt_too_small",
    GreWrongVersion "gre.wrong_version",
    GreVersion0Recur "gre.version0_recur",
    GreVersion0Flags "gre.version0_flags",
    GreVersion0HdrTooBig "gre.version0_hdr_too_big",
    GreVersion0MalformedSreHdr "gre.version0_malformed_sre_hdr",
    GreVersion1Chksum "gre.version1_chksum",
    GreVersion1Route "gre.version1_route",
    GreVersion1Ssr "gre.version1_ssr",
    GreVersion1Recur "gre.version1_recur",
    GreVersion1Flags "gre.version1_flags",
    GreVersion1NoKey "gre.version1_no_key",
    GreVersion1WrongProtocol "gre.version1_wrong_protocol",
    GreVersion1MalformedSreHdr "gre.version1_malformed_sre_hdr",
    GreVersion1HdrTooBig "gre.version1_hdr_too_big",
    VlanHeaderTooSmall "vlan.header_too_small",
    VlanUnknownType "vlan.unknown_type",
    VlanTooManyLayers "vlan.too_many_layers",
    Ieee8021ahHeaderTooSmall "ieee8021ah.header_too_small",
    EtagHeaderTooSmall "etag.header_too_small",
    EtagUnknownType "etag.unknown_type",
    VntagHeaderTooSmall "vntag.header_too_small",
    VntagUnknownType "vntag.unknown_type",
    IprawInvalidIpVersion "ipraw.invalid_ip_version",
    LtnullPktTooSmall "ltnull.pkt_too_small",
    LtnullUnsupportedType "ltnull.unsupported_type",
    ArpPktTooSmall "arp.pkt_too_small",
    ArpUnsupportedHardware "arp.unsupported_hardware",
    ArpUnsupportedProtocol "arp.unsupported_protocol",
    ArpInvalidPkt "arp.invalid_pkt",
    ArpInvalidHardwareSize "arp.invalid_hardware_size",
    ArpInvalidProtocolSize "arp.invalid_protocol_size",
    ArpUnsupportedOpcode "arp.unsupported_opcode",
    SctpPktTooSmall "sctp.pkt_too_small",
    EspPktTooSmall "esp.pkt_too_small",
    IgmpPktTooSmall "igmp.pkt_too_small",
    MplsHeaderTooSmall "mpls.header_too_small",
    MplsPktTooSmall "mpls.pkt_too_small",
    MplsBadLabelRouterAlert "mpls.bad_label_router_alert",
    MplsBadLabelImplicitNull "mpls.bad_label_implicit_null",
    MplsBadLabelReserved "mpls.bad_label_reserved",
    MplsUnknownPayloadType "mpls.unknown_payload_type",
    VxlanUnknownPayloadType "vxlan.unknown_payload_type",
    GeneveUnknownPayloadType "geneve.unknown_payload_type",
    ErspanHeaderTooSmall "erspan.header_too_small",
    ErspanUnsupportedVersion "erspan.unsupported_version",
    ErspanTooManyVlanLayers "erspan.too_many_vlan_layers",
    DcePktTooSmall "dce.pkt_too_small",
    ChdlcPktTooSmall "chdlc.pkt_too_small",
    NshHeaderTooSmall "nsh.header_too_small",
    NshUnsupportedVersion "nsh.unsupported_version",
    NshBadHeaderLength "nsh.bad_header_length",
    NshReservedType "nsh.reserved_type",
    NshUnsupportedType "nsh.unsupported_type",
    NshUnknownPayload "nsh.unknown_payload",
    TooManyLayers "too_many_layers",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &e in DecodeEvent::ALL {
            assert_eq!(DecodeEvent::from_name(e.name()), Some(e));
            assert_eq!(DecodeEvent::from_name(&format!("decoder.{}", e.name())), Some(e));
        }
        assert_eq!(DecodeEvent::from_name("decoder.no_such"), None);
    }
}
