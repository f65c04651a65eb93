//! Maps keywords to pages of Suricata's manual (release 8).

/// Pages by the prefix of a keyword's name, or by the whole name if the pattern ends with `$`. The first match counts.
/// Keywords without a match have the page of their table.
const PAGES: &[(&[&str], &str)] = &[
    (&["http2.", "grpc."], "rules/http2-keywords.html"),
    (&["http.", "http_"], "rules/http-keywords.html"),
    (&["file.data$", "file_data$"], "rules/http-keywords.html"),
    (&["file"], "rules/file-keywords.html"),
    (&["mdns."], "rules/mdns-keywords.html"),
    (&["ja3", "ja4"], "rules/ja-keywords.html"),
    (&["modbus"], "rules/modbus-keyword.html"),
    (&["dcerpc.", "dce_"], "rules/dcerpc-keywords.html"),
    (&["dhcp."], "rules/dhcp-keywords.html"),
    (&["dnp3"], "rules/dnp3-keywords.html"),
    (&["enip", "cip_service"], "rules/enip-keyword.html"),
    (&["krb5"], "rules/kerberos-keywords.html"),
    (&["snmp."], "rules/snmp-keywords.html"),
    (&["base64_"], "rules/base64-keywords.html"),
    (&["sip."], "rules/sip-keywords.html"),
    (&["sdp."], "rules/sdp-keywords.html"),
    (&["rfb."], "rules/rfb-keywords.html"),
    (&["mqtt."], "rules/mqtt-keywords.html"),
    (&["ike."], "rules/ike-keywords.html"),
    (&["quic."], "rules/quic-keywords.html"),
    (&["nfs"], "rules/nfs-keywords.html"),
    (&["smtp."], "rules/smtp-keywords.html"),
    (&["websocket."], "rules/websocket-keywords.html"),
    (&["ldap."], "rules/ldap-keywords.html"),
    (&["pgsql."], "rules/pgsql-keywords.html"),
    (&["email."], "rules/email-keywords.html"),
    (&["dns."], "rules/dns-keywords.html"),
    (&["ftp"], "rules/ftp-keywords.html"),
    (&["smb."], "rules/smb-keywords.html"),
    (&["ssh"], "rules/ssh-keywords.html"),
    (&["tls", "ssl_"], "rules/tls-keywords.html"),
    (&["vlan."], "rules/vlan-keywords.html"),
    (&["app-layer"], "rules/app-layer.html"),
    (&["decode-event$", "stream-event$"], "rules/decode-layer.html"),
    (&["xbits$", "hostbits$"], "rules/xbits.html"),
    (&["noalert$", "alert$"], "rules/noalert.html"),
    (&["iprep$"], "rules/ip-reputation-rules.html"),
    (&["ip.src$", "ip.dst$"], "rules/ipaddr.html"),
    (&["config$"], "rules/config.html"),
    (&["lua$", "luajit$"], "rules/lua-detection.html"),
    (&["luaxform$"], "rules/transforms.html"),
    (&["tag$"], "rules/tag.html"),
    (&["bypass$"], "rules/bypass-keyword.html"),
    (&["prefilter$", "fast_pattern$"], "rules/prefilter-keywords.html"),
    (&["dsize$", "rpc$", "entropy$"], "rules/payload-keywords.html"),
    (&["flow", "stream_size$"], "rules/flow-keywords.html"),
    (&["pcre$"], "rules/payload-keywords.html#pcre-perl-compatible-regular-expressions"),
];

/// The page of a keyword; `table` is its table's page.
pub(super) fn page(name: &str, table: &'static str) -> &'static str {
    let fits = |pattern: &&str| match pattern.strip_suffix('$') {
        Some(whole) => whole == name,
        None => name.starts_with(pattern),
    };
    PAGES.iter().find(|(names, _)| names.iter().any(&fits)).map_or(table, |p| p.1)
}

#[cfg(test)]
mod tests {
    use crate::keywords::all;

    #[test]
    fn each_keyword_is_on_the_page_of_its_family() {
        for (name, page) in [
            ("msg", "meta"),
            ("content", "payload-keywords"),
            ("dataset", "datasets"),
            ("ttl", "header-keywords"),
            ("flowbits", "flow-keywords"),
            ("threshold", "thresholding"),
            ("tag", "tag"),
            ("to_md5", "transforms"),
            ("http.uri", "http-keywords"),
            ("urilen", "http-keywords"),
            ("http2.frametype", "http2-keywords"),
            ("dns.opcode", "dns-keywords"),
            ("ftp.mode", "ftp-keywords"),
            ("ssh.softwareversion", "ssh-keywords"),
            ("tls.subject", "tls-keywords"),
            ("smb.version", "smb-keywords"),
            ("dcerpc.opnum", "dcerpc-keywords"),
            ("mqtt.type", "mqtt-keywords"),
            ("filemd5", "file-keywords"),
            ("geoip", "header-keywords"),
            ("app-layer-event", "app-layer"),
        ] {
            let (_, found) = all().find(|(k, _)| k.names.contains(&name)).expect(name);
            assert_eq!(found, format!("rules/{page}.html"), "{name}");
        }
        // Every page belongs to some keyword.
        for (names, page) in super::PAGES.iter().filter(|p| !["sdp."].contains(&p.0[0])) {
            assert!(all().any(|(_, p)| p == *page), "{names:?}");
        }
    }
}
