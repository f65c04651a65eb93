//! Chooses rules by protocol, port and server of their headers.

use std::io::Read;
use std::path::Path;

use crate::problem::{Outcome, Problem};

/// Which rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Choice {
    /// Protocols of rule headers; every rule of them fits, and every rule at all with `all`.
    pub(crate) protocols: Vec<String>,
    /// Ports or port variables; a rule on `tcp` that names them and no other ones fits.
    pub(crate) ports: Vec<String>,
    /// Destinations; a rule to one of them fits.
    pub(crate) servers: Vec<String>,
    /// First and last number of rules that fit; any where there is none. Those of the first range come first.
    pub(crate) numbers: Vec<(u64, u64)>,
    /// Numbers of rules that are left out.
    pub(crate) except: Vec<u64>,
    /// No more than so many: the first ones where there are ranges of numbers, else evenly by their numbers. 0 for all.
    pub(crate) most: usize,
}

/// Text of a file, unpacked where its name ends with `.gz`.
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

/// The rules of `text` that fit, by rising number, a line each. Rules whose header negates a variable are left out.
pub(crate) fn choose(text: &str, choice: &Choice) -> Vec<String> {
    let parts =
        |field: &str| field.split(['[', ']', ',']).filter(|p| !p.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    // A list that begins with `!` names what is not meant.
    let listed = |field: &str, of: &[String]| !field.starts_with('!') && parts(field).iter().any(|p| of.contains(p));
    let only = |field: &str, of: &[String]| listed(field, of) && parts(field).iter().all(|p| of.contains(p));
    let fits = |line: &str| {
        let header = line.split('(').next().unwrap_or_default();
        // Where every address is one of the home network, nothing is left of those that are not.
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
    // The range of a rule's number, and the number.
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
        // A rule with another port beside is not one of mail.
        assert_eq!(numbers(&Choice { ports: list(&["25"]), ..mail }), ["10", "20"]);
        assert_eq!(numbers(&Choice { servers: list(&["$HTTP_SERVERS"]), ..Choice::default() }), ["40"]);
        assert!(numbers(&Choice::default()).is_empty());
    }
}
