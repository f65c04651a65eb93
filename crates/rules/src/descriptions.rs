//! What each keyword does, in a line, for lists of keywords.

use crate::info::{KeywordInfo, KeywordKind};

/// Keywords that neither select a buffer nor check a field of one protocol, by name.
const PLAIN: &[(&str, &str)] = &[
    ("absent", "the selected buffer must not be there (or_else: or else its other checks must hold)"),
    ("alert", "write an alert, also where the action writes none"),
    ("app-layer-event", "an event of an application parser or of protocol detection happened"),
    ("app-layer-protocol", "the application protocol that was detected"),
    ("app-layer-state", "how far the transaction has come"),
    ("asn1", "malformed or oversized ASN.1 in the payload"),
    ("base64_data", "the keywords after it look at what base64_decode decoded"),
    ("base64_decode", "decode base64 in the buffer"),
    ("bsize", "the length of the selected buffer"),
    ("bypass", "let the rest of the flow bypass inspection once the rule matched"),
    ("byte_extract", "read a number from the buffer into a variable"),
    ("byte_jump", "read a number from the buffer and move on by that many bytes"),
    ("byte_math", "calculate with a number from the buffer, into a variable"),
    ("byte_test", "compare a number in the buffer"),
    ("classtype", "the class of the rule, which gives its priority"),
    ("config", "turn off logging or tracking of the transaction or flow"),
    ("content", "bytes that the buffer holds"),
    ("dataset", "the buffer is in a set, or is added to it"),
    ("datarep", "the reputation of the buffer in a list"),
    ("dcerpc.iface", "the interface of DCE/RPC that a call or a binding is for"),
    ("decode-event", "an event of the packet decoder happened"),
    ("depth", "how far into the buffer the content before it may end"),
    ("detection_filter", "match only after a number of matches within a time"),
    ("distance", "how far behind the last match the content before it begins at least"),
    ("dsize", "the size of the packet's payload"),
    ("endswith", "the content before it ends the buffer"),
    ("entropy", "the entropy of the buffer, or of a part of it"),
    ("fast_pattern", "the prefilter looks for the content before it"),
    ("fileext", "the extension of a file's name"),
    ("filemagic", "what a file is recognised as"),
    ("filemd5", "a file's MD5 digest is in a list"),
    ("filename", "the name of a file"),
    ("filesha1", "a file's SHA-1 digest is in a list"),
    ("filesha256", "a file's SHA-256 digest is in a list"),
    ("filesize", "the size of a file"),
    ("filestore", "store the file that matched"),
    ("file.data", "sticky buffer of the contents of files, and of bodies of HTTP responses"),
    ("flow", "direction and state of the flow"),
    ("flow.age", "the age of the flow in seconds"),
    ("flow.bytes", "how many bytes the flow had, in one direction or both"),
    ("flow.bytes_toclient", "how many bytes the flow had to the client"),
    ("flow.bytes_toserver", "how many bytes the flow had to the server"),
    ("flow.elephant", "the flow is marked as an elephant"),
    ("flow.pkts", "how many packets the flow had, in one direction or both"),
    ("flow.pkts_toclient", "how many packets the flow had to the client"),
    ("flow.pkts_toserver", "how many packets the flow had to the server"),
    ("flowbits", "set, unset, toggle or ask for a bit of the flow"),
    ("flowint", "change or compare an integer of the flow"),
    ("flowvar", "the value of a variable of the flow"),
    ("fragbits", "the bits of the IPv4 header about fragments"),
    ("fragoffset", "the offset of the fragment, in units of 8 bytes"),
    ("frame", "sticky buffer of a frame that a parser marked in the stream"),
    ("geoip", "the country of an address"),
    ("gid", "the group that the signature's number belongs to"),
    ("hostbits", "set, unset, toggle or ask for a bit of a host"),
    ("icmp_id", "the identifier of an ICMP message"),
    ("icmp_seq", "the sequence number of an ICMP message"),
    ("icmpv4-csum", "whether the checksum of an ICMPv4 message is valid"),
    ("icmpv6-csum", "whether the checksum of an ICMPv6 message is valid"),
    ("icmpv6.mtu", "the MTU in an ICMPv6 message"),
    ("icode", "the code of an ICMP message"),
    ("id", "the identification of the IPv4 header"),
    ("igmp.type", "the type of an IGMP message"),
    ("ip_proto", "the protocol of the IP header"),
    ("ipopts", "an option of the IPv4 header is there"),
    ("iprep", "the reputation of an address"),
    ("ipv4-csum", "whether the checksum of the IPv4 header is valid"),
    ("isdataat", "there is data at a place of the buffer"),
    ("itype", "the type of an ICMP message"),
    ("l3_proto", "the version of IP"),
    ("lua", "a Lua script decides"),
    ("metadata", "keys and values that alerts show"),
    ("msg", "what alerts say"),
    ("nfq_set_mark", "mark the packet in its netfilter queue"),
    ("noalert", "match and act, but write no alert"),
    ("nocase", "the content before it matches letters in either case"),
    ("offset", "how far into the buffer the content before it begins at least"),
    ("pcre", "a regular expression"),
    ("pkt_data", "the keywords after it look at the payload again"),
    ("pktvar", "the value of a variable of the packet"),
    ("prefilter", "the prefilter stands for the keyword before it"),
    ("priority", "the priority, in place of that of the class"),
    ("rawbytes", "accepted, without effect"),
    ("reference", "where more is to be read about what the rule finds"),
    ("replace", "put these bytes in the place of the content before it, inline"),
    ("requires", "load the rule only in this version or with this feature"),
    ("rev", "the revision of the rule"),
    ("rpc", "program, version and procedure of a call of Sun RPC"),
    ("sameip", "source and destination are the same address"),
    ("sid", "the number of the signature"),
    ("ssh.protoversion", "the version of SSH, as ssh.proto"),
    ("ssh.softwareversion", "the software of an SSH banner, as ssh.software"),
    ("startswith", "the content before it begins the buffer"),
    ("stream-event", "an event of stream reassembly happened"),
    ("stream_size", "how many bytes of the stream there were"),
    ("tag", "log further packets of the flow or host once the rule matched"),
    ("target", "which end is the target of the attack"),
    ("tcp.ack", "the acknowledgement number of the TCP header"),
    ("tcp.flags", "the flags of the TCP header"),
    ("tcp.mss", "the maximum segment size option of the TCP header"),
    ("tcp.seq", "the sequence number of the TCP header"),
    ("tcp.window", "the window of the TCP header"),
    ("tcp.wscale", "the window scale option of the TCP header"),
    ("tcpv4-csum", "whether the checksum of TCP over IPv4 is valid"),
    ("tcpv6-csum", "whether the checksum of TCP over IPv6 is valid"),
    ("threshold", "how many alerts are written within a time"),
    ("tls.fingerprint", "the SHA-1 fingerprint of the certificate, as tls.cert_fingerprint"),
    ("tls.issuerdn", "the issuer of the certificate, as tls.cert_issuer"),
    ("tls.store", "store the certificates"),
    ("tls.subject", "the subject of the certificate, as tls.cert_subject"),
    ("tos", "the type of service of the IPv4 header"),
    ("ttl", "the time to live of the IP header"),
    ("udpv4-csum", "whether the checksum of UDP over IPv4 is valid"),
    ("udpv6-csum", "whether the checksum of UDP over IPv6 is valid"),
    ("uricontent", "bytes that the URI holds, as content with http.uri"),
    ("urilen", "the length of the URI"),
    ("vlan.id", "the identifier of a VLAN tag"),
    ("vlan.layers", "how many VLAN tags the packet has"),
    ("within", "how far behind the last match the content before it ends at most"),
    ("xbits", "set, unset, toggle or ask for a bit of a host or of a pair of hosts"),
    ("compress_whitespace", "make one blank of white space in a row"),
    ("domain", "only the registered domain of a name"),
    ("dotprefix", "put a dot before the buffer"),
    ("from_base64", "decode base64"),
    ("gunzip", "decompress gzip"),
    ("header_lowercase", "names of headers in lower case"),
    ("luaxform", "a Lua script transforms the buffer"),
    ("pcrexform", "only what a regular expression captures"),
    ("strip_pseudo_headers", "without the pseudo headers of HTTP/2"),
    ("strip_whitespace", "without white space"),
    ("tld", "only the public suffix of a name"),
    ("to_lowercase", "letters in lower case"),
    ("to_md5", "the MD5 digest of the buffer"),
    ("to_sha1", "the SHA-1 digest of the buffer"),
    ("to_sha256", "the SHA-256 digest of the buffer"),
    ("to_uppercase", "letters in upper case"),
    ("url_decode", "decode the %xx of URLs"),
    ("xor", "decode with a key by exclusive or"),
    ("zlib_deflate", "decompress zlib"),
];

/// What a keyword does, in a line.
pub(crate) fn of(k: &KeywordInfo) -> String {
    if let Some(p) = PLAIN.iter().find(|p| p.0 == k.name) {
        return match k.kind {
            KeywordKind::Transform => format!("transform of the selected buffer: {}", p.1),
            _ => p.1.to_owned(),
        };
    }
    match (k.kind, k.buffer, k.protocols.first()) {
        (KeywordKind::StickyBuffer, Some(b), _) => format!("sticky buffer: {}", b.description),
        (KeywordKind::Modifier, Some(b), _) => format!("the content before it is looked for in {}", b.name),
        (_, _, Some(protocol)) => {
            let field = k.name.split_once(['.', '_']).map_or(k.name, |n| n.1).replace(['.', '_'], " ");
            format!("{}: {field}", protocol.to_ascii_uppercase())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_says_what_it_does() {
        for k in crate::info::all_keywords() {
            assert!(!of(&k).is_empty(), "{} has no description", k.name);
            assert!(!of(&k).contains(';'), "{}: a semicolon divides the columns of lists", k.name);
        }
        for (name, _) in PLAIN {
            assert!(crate::info::keyword(name).is_some(), "{name} is no keyword");
        }
    }
}
