//! Selects rules by their headers' protocol, port and server.

use std::io::Read;
use std::path::Path;

use crate::problem::{Outcome, Problem};

/// The selection criteria.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Choice {
    /// Protocols of rule headers. Every rule with one of them fits; `all` fits every rule.
    pub(crate) protocols: Vec<String>,
    /// Ports or port variables. A `tcp` rule fits if it names only these.
    pub(crate) ports: Vec<String>,
    /// Destinations. A rule with one of them as its destination fits.
    pub(crate) servers: Vec<String>,
    /// Ranges of sids that fit; empty for any. Rules of the first range come first.
    pub(crate) numbers: Vec<(u64, u64)>,
    /// Sids to leave out.
    pub(crate) except: Vec<u64>,
    /// Most rules to select: the first ones if there are ranges, otherwise evenly spaced by sid. 0 selects all.
    pub(crate) most: usize,
}

/// The text of a file, decompressed if its name ends with `.gz`.
pub(crate) fn text(path: &Path) -> Outcome<String> {
    let failed = |e| Problem::file("read", path, e);
    let data = std::fs::read(path).map_err(failed)?;
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::MultiGzDecoder::new(&data[..]).read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    String::from_utf8(data).map_err(|_| Problem::Usage(format!("{}: this is not text", path.display())))
}

/// The rules in `text` that fit, one on each line, in ascending order. Rules whose header negates a variable are left
/// out.
pub(crate) fn choose(text: &str, choice: &Choice) -> Vec<String> {
    let parts =
        |field: &str| field.split(['[', ']', ',']).filter(|p| !p.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    // A list that begins with `!` names excluded values.
    let listed = |field: &str, of: &[String]| !field.starts_with('!') && parts(field).iter().any(|p| of.contains(p));
    let only = |field: &str, of: &[String]| listed(field, of) && parts(field).iter().all(|p| of.contains(p));
    let fits = |line: &str| {
        let header = line.split('(').next().unwrap_or_default();
        // If every address is in the home network, a negated variable is empty.
        if header.contains("!$") || header.contains("![$") {
            return false;
        }
        let mut fields = header.split_whitespace().skip(1);
        let mut next = || fields.next().unwrap_or_default();
        let (proto, _, from_port, _, to, to_port) = (next(), next(), next(), next(), next(), next());
        choice.protocols.iter().any(|p| p == "all" || p == proto)
            || proto == "tcp" && (only(from_port, &choice.ports) || only(to_port, &choice.ports))
            || listed(to, &choice.servers)
    };
    let number = |line: &str| -> u64 {
        let digits = line.rsplit("sid:").next().unwrap_or_default();
        digits.split(';').next().and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    let rules = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    // The range of a rule's sid, and the sid.
    let place = |line: &str| {
        let number = number(line);
        if choice.except.contains(&number) {
            return None;
        }
        let range = choice.numbers.iter().position(|(first, last)| (*first..=*last).contains(&number));
        (if choice.numbers.is_empty() { Some(0) } else { range }).map(|range| (range, number))
    };
    let mut fitting: Vec<_> = rules.filter(|l| fits(l)).filter_map(|l| Some((place(l)?, l))).collect();
    fitting.sort_unstable();
    let all = fitting.len();
    let most = if choice.most == 0 { all } else { choice.most.min(all) };
    let of = if choice.numbers.is_empty() { all } else { most };
    (0..most).map(|n| fitting[n * of / most].1.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "\
        # alert tcp any any -> any 25 (msg:\"off\"; sid:1;)\n\
        alert tcp any any -> $HOME_NET [25,110] (msg:\"a (b) sid:9;\"; sid:30;)\n\
        alert tcp any 25 -> any any (msg:\"back\"; sid:20;)\n\
        alert smtp any any -> any any (msg:\"c\"; sid:10;)\n\
        alert http any any -> $HTTP_SERVERS any (msg:\"d\"; sid:40;)\n\
        alert tcp !$HOME_NET any -> $HOME_NET 25 (msg:\"f\"; sid:15;)\n\
        alert tcp any any -> any ![25,80] (msg:\"g\"; sid:16;)\n\
        alert udp any any -> any 25 (msg:\"e\"; sid:50;)\n";

    fn numbers(choice: &Choice) -> Vec<String> {
        let end = |l: &String| l.rsplit("sid:").next().unwrap().trim_end_matches(";)").to_owned();
        choose(RULES, choice).iter().map(end).collect()
    }

    #[test]
    fn by_protocol_port_and_server() {
        let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let mail = Choice { protocols: list(&["smtp"]), ports: list(&["25", "110"]), ..Choice::default() };
        assert_eq!(numbers(&mail), ["10", "20", "30"]);
        assert_eq!(numbers(&Choice { most: 2, ..mail.clone() }), ["10", "20"]);
        let ranges = Choice { numbers: vec![(30, 39), (5, 25)], ..mail.clone() };
        assert_eq!(numbers(&ranges), ["30", "10", "20"]);
        assert_eq!(numbers(&Choice { except: vec![10], ..ranges.clone() }), ["30", "20"]);
        assert_eq!(numbers(&Choice { most: 2, ..ranges }), ["30", "10"]);
        // A rule with another port as well is not a mail rule.
        assert_eq!(numbers(&Choice { ports: list(&["25"]), ..mail }), ["10", "20"]);
        assert_eq!(numbers(&Choice { servers: list(&["$HTTP_SERVERS"]), ..Choice::default() }), ["40"]);
        assert!(numbers(&Choice::default()).is_empty());
    }
}
