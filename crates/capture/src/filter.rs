//! Packet filters in libpcap's language (pcap-filter(7)).

use std::path::Path;

use margay_packet::LinkType;

use crate::batch::{Counters, Meta};
use crate::bpf::{Family, Program, Raw};
use crate::error::FilterError;

/// An expression compiled for one link type.
#[derive(Debug, Clone)]
pub struct Filter {
    program: Program,
}

impl Filter {
    /// Compiles `expression` for captures of link type `link`. An empty expression accepts everything.
    ///
    /// # Errors
    /// [`FilterError::Compile`] with libpcap's message.
    pub fn compile(expression: &str, link: LinkType) -> Result<Filter, FilterError> {
        Self::compile_for(expression, link, false)
    }

    /// As [`Filter::compile`], for a file of the given byte order. It matters only for [`LinkType::NULL`], whose header is in the
    /// byte order of the host that wrote the file. `link[0:4]` is then the address family in either order.
    ///
    /// # Errors
    /// [`FilterError::Compile`].
    pub fn compile_for(expression: &str, link: LinkType, big_endian: bool) -> Result<Filter, FilterError> {
        let family = match link {
            LinkType::NULL if !big_endian => Some(Family::LittleEndian),
            LinkType::NULL | LinkType::LOOP => Some(Family::BigEndian),
            _ => None,
        };
        let fail = |message: String| FilterError::Compile { expression: expression.to_owned(), link, message };
        let handle = i32::try_from(dlt(link)).map_err(|e| fail(e.to_string()))?;
        let handle = pcap::Capture::dead(pcap::Linktype(handle)).map_err(|e| fail(message(&e)))?;
        let raw = instructions(&handle, expression).map_err(fail)?;
        Ok(Filter { program: Program::new(&raw, family).map_err(fail)? })
    }

    /// Compiles `expression` for the kernel, which runs it on packets of the interface `name`. There, VLAN tags are beside the
    /// packet, not in it. If the expression uses tags, libpcap compiles it for a socket of that interface, which accounts for that.
    pub(crate) fn kernel_program(expression: &str, link: LinkType, name: &str) -> Result<Vec<Raw>, FilterError> {
        let fail = |message: String| FilterError::Compile { expression: expression.to_owned(), link, message };
        if expression.split(|c: char| !c.is_ascii_alphanumeric()).any(|w| w == "vlan") {
            let handle = pcap::Capture::from_device(name).map_err(|e| fail(message(&e)))?;
            let handle = handle.snaplen(64).buffer_size(1 << 16).open().map_err(|e| fail(message(&e)))?;
            return instructions(&handle, expression).map_err(fail);
        }
        let handle = i32::try_from(dlt(link)).map_err(|e| fail(e.to_string()))?;
        let handle = pcap::Capture::dead(pcap::Linktype(handle)).map_err(|e| fail(message(&e)))?;
        instructions(&handle, expression).map_err(fail)
    }

    /// Whether a packet matches that had `wire_len` bytes, of which `data` was captured.
    pub fn matches(&self, data: &[u8], wire_len: u32) -> bool {
        self.program.run(data, wire_len) != 0
    }

    /// Reads the expression in the file at `path`. Line breaks count as spaces, and `#` starts a comment. `None` if nothing
    /// remains: then there is no filter, as in Suricata.
    ///
    /// # Errors
    /// [`FilterError::File`].
    pub fn from_file(path: &Path) -> Result<Option<String>, FilterError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| FilterError::File { file: path.to_owned(), source })?;
        Ok(strip(&text))
    }
}

fn message(error: &pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The program that libpcap compiles from an expression.
fn instructions<T: pcap::Activated + ?Sized>(handle: &pcap::Capture<T>, expression: &str) -> Result<Vec<Raw>, String> {
    let compiled = handle.compile(expression, true).map_err(|e| message(&e))?;
    // The binding shows an instruction's fields only as text, like `tcpdump -ddd`.
    let raw: Option<Vec<Raw>> = compiled.get_instructions().iter().map(|i| parse(&i.to_string())).collect();
    raw.ok_or_else(|| "its compiled form cannot be read".into())
}

fn parse(text: &str) -> Option<Raw> {
    let mut parts = text.split_ascii_whitespace();
    let mut next = || parts.next()?.parse::<u32>().ok();
    let (code, jt, jf, k) = (next()?, next()?, next()?, next()?);
    Some(Raw { code: code.try_into().ok()?, jt: jt.try_into().ok()?, jf: jf.try_into().ok()?, k })
}

fn strip(text: &str) -> Option<String> {
    let words: Vec<&str> =
        text.lines().flat_map(|l| l.split('#').next().unwrap_or_default().split_ascii_whitespace()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// libpcap's number for a file's link type (`DLT_`), which differs from the file's for some types on Linux.
fn dlt(link: LinkType) -> u32 {
    match link.0 {
        // Use LOOP, which is NULL in network byte order.
        0 => 108,
        100 => 11,
        101 => 12,
        102 => 15,
        103 => 16,
        106 => 19,
        other => other,
    }
}

/// Most link types for which one run compiles filters.
const MAX_LINKS: usize = 64;

/// The target of a compiled filter: link type, and whether the file is big endian.
type Key = (LinkType, bool);

/// One expression, which is compiled for each link type at that type's first frame.
#[derive(Debug, Clone)]
pub struct FilterSet {
    expression: String,
    compiled: Vec<(Key, Filter)>,
}

impl FilterSet {
    /// A set for `expression`; nothing is compiled yet.
    pub fn new(expression: &str) -> Self {
        FilterSet { expression: expression.to_owned(), compiled: Vec::new() }
    }

    /// The expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The filter for `link` in a file of the given byte order, compiled on first use.
    ///
    /// # Errors
    /// [`FilterError::Compile`], [`FilterError::TooManyLinks`].
    pub fn get(&mut self, link: LinkType, big_endian: bool) -> Result<&Filter, FilterError> {
        let key = (link, big_endian);
        let at = match self.compiled.iter().position(|(k, _)| *k == key) {
            Some(at) => at,
            None if self.compiled.len() >= MAX_LINKS => return Err(FilterError::TooManyLinks(MAX_LINKS)),
            None => {
                self.compiled.push((key, Filter::compile_for(&self.expression, link, big_endian)?));
                self.compiled.len() - 1
            }
        };
        Ok(&self.compiled[at].1)
    }

    /// Removes from `metas` frames that do not match, and those after a link type for which the expression is invalid.
    pub(crate) fn retain(
        &mut self,
        data: &[u8],
        big_endian: bool,
        metas: &mut Vec<Meta>,
        counters: &mut Counters,
    ) -> Result<(), FilterError> {
        let mut failed = None;
        metas.retain(|m| {
            if failed.is_some() {
                return false;
            }
            let bytes = data.get(m.start as usize..m.start as usize + m.len as usize).unwrap_or(&[]);
            match self.get(m.link, big_endian) {
                Ok(filter) if filter.matches(bytes, m.wire_len) => return true,
                Ok(_) => {}
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            }
            counters.filtered += 1;
            counters.filtered_bytes += u64::from(m.len);
            false
        });
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4, UDP from 10.0.0.1:1000 to 10.0.0.2:53, 18 bytes of data.
    fn dns_query() -> Vec<u8> {
        let mut f = vec![2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0];
        f.extend([0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        f.extend([0x03, 0xe8, 0, 53, 0, 26, 0, 0]);
        f.extend([b'A'; 18]);
        f
    }

    fn check(expression: &str, link: LinkType, data: &[u8], wire: u32) -> bool {
        Filter::compile(expression, link).unwrap().matches(data, wire)
    }

    #[test]
    fn expressions_match_what_they_say() {
        let f = dns_query();
        for (expression, yes) in [
            ("udp", true),
            ("tcp", false),
            ("udp port 53 and host 10.0.0.2", true),
            ("udp port 54", false),
            ("net 10.0.0.0/8 and not net 10.0.1.0/24", true),
            ("udp[8] = 0x41 and udp[4:2] = 26", true),
            ("ip[2:2] / 2 = 23 and ip[8] % 7 = 1 and (ip[9] << 2) = 68", true),
            ("ether[0] & 1 = 0 and ether src 04:04:04:04:04:04", true),
            ("vlan", false),
            ("portrange 50-60", true),
            ("greater 100", false),
            ("", true),
        ] {
            assert_eq!(check(expression, LinkType::ETHERNET, &f, 60), yes, "{expression}");
        }
        assert!(check("greater 100", LinkType::ETHERNET, &f, 1500), "len is that on the wire");
        assert!(!check("udp[8] = 0x41", LinkType::ETHERNET, &f[..42], 60), "what was not captured does not match");
    }

    #[test]
    fn the_link_type_decides_where_headers_are() {
        let f = dns_query();
        assert!(check("udp dst port 53", LinkType::RAW, &f[14..], 46));
        assert!(check("udp dst port 53", LinkType::IPV4, &f[14..], 46));
        assert!(!check("udp dst port 53", LinkType::ETHERNET, &f[14..], 46));
        // The same address family, written by hosts of either byte order.
        let null = |family: [u8; 4]| [&family[..], &f[14..]].concat();
        let big = Filter::compile_for("udp dst port 53", LinkType::NULL, true).unwrap();
        assert!(check("udp dst port 53", LinkType::NULL, &null([2, 0, 0, 0]), 50));
        assert!(!big.matches(&null([2, 0, 0, 0]), 50));
        assert!(big.matches(&null([0, 0, 0, 2]), 50));
        for inet6 in [10, 24, 28, 30] {
            assert!(check("ip6", LinkType::NULL, &[inet6, 0, 0, 0], 44));
            assert!(check("ip6", LinkType::LOOP, &[0, 0, 0, inet6], 44));
        }
        assert!(!check("ip6", LinkType::NULL, &[2, 0, 0, 0], 44));
        let mut sll = vec![0u8; 14];
        sll.extend([8, 0]);
        sll.extend(&f[14..]);
        assert!(check("udp dst port 53", LinkType::LINUX_SLL, &sll, 62));
    }

    #[test]
    fn libpcap_says_what_is_wrong() {
        let error = Filter::compile("udp and and", LinkType::ETHERNET).unwrap_err().to_string();
        assert!(error.contains("udp and and") && error.contains("syntax error"), "{error}");
        assert!(Filter::compile("foo bar baz", LinkType::ETHERNET).is_err());
        assert!(Filter::compile("udp\0", LinkType::ETHERNET).is_err());
        assert!(Filter::compile("udp", LinkType(0x7fff_ffff)).is_err());
        assert!(Filter::compile("udp", LinkType(u32::MAX)).is_err());
    }

    #[test]
    fn filter_files_have_comments() {
        assert_eq!(strip("# DNS only\nudp # not TCP\nport 53\n").as_deref(), Some("udp port 53"));
        assert_eq!(strip("# nothing\n\n"), None);
        assert_eq!(strip(""), None);
        let error = Filter::from_file(Path::new("no-such-file.bpf")).unwrap_err().to_string();
        assert!(error.contains("no-such-file.bpf"));
    }
}
