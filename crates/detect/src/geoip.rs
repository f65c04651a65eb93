//! Countries of addresses (`geoip`), from a database in MaxMind format (`geoip-database`).

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use margay_rules::ast::{GeoIp, GeoSide};
use maxminddb::{PathElement, Reader};

/// A country database. Read-only; all workers share one.
#[derive(Debug)]
pub struct Countries(Reader<Vec<u8>>);

impl Countries {
    /// Reads a database.
    ///
    /// # Errors
    /// If the file cannot be read or is not a database.
    pub fn open(path: &Path) -> Result<Countries, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        Self::from_bytes(bytes).map_err(|e| format!("{} is not a GeoIP2 database: {e}", path.display()))
    }

    /// Reads a database from a file's bytes.
    ///
    /// # Errors
    /// If the bytes are not a database.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Countries, String> {
        Reader::from_source(bytes).map(Countries).map_err(|e| e.to_string())
    }

    /// The ISO 3166-1 code of an IPv4 address's country. As documented, other addresses have no country.
    pub fn country(&self, address: IpAddr) -> Option<&str> {
        if !address.is_ipv4() {
            return None;
        }
        let found = self.0.lookup(address).ok()?;
        found.decode_path(&[PathElement::Key("country"), PathElement::Key("iso_code")]).ok()?
    }

    /// Whether a rule's condition holds. No condition holds for an address without a country.
    pub(crate) fn holds(&self, rule: &GeoIp, src: IpAddr, dst: IpAddr) -> bool {
        let one = |a| {
            self.country(a).is_some_and(|c| rule.countries.iter().any(|r| r.as_slice() == c.as_bytes()) != rule.negated)
        };
        match rule.side {
            GeoSide::Source => one(src),
            GeoSide::Destination => one(dst),
            GeoSide::Any => one(src) || one(dst),
            GeoSide::Both => one(src) && one(dst),
        }
    }
}

/// A rule's condition and the database for it.
#[derive(Debug, Clone)]
pub(crate) struct GeoCheck {
    pub(crate) rule: GeoIp,
    pub(crate) countries: Arc<Countries>,
}

impl GeoCheck {
    pub(crate) fn holds(&self, src: IpAddr, dst: IpAddr) -> bool {
        self.countries.holds(&self.rule, src, dst)
    }
}

impl PartialEq for GeoCheck {
    fn eq(&self, other: &Self) -> bool {
        self.rule == other.rule && Arc::ptr_eq(&self.countries, &other.countries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rules::ast::Check;
    use margay_rules::{Context, load_str};

    /// Encodes a string of the format's data section.
    fn s(text: &str) -> Vec<u8> {
        [&[0x40 | text.len() as u8], text.as_bytes()].concat()
    }

    fn map(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut m = vec![0xe0 | members.len() as u8];
        for (key, value) in members {
            m.extend(s(key));
            m.extend_from_slice(value);
        }
        m
    }

    /// A database with 0.0.0.0/1 in `low` and the rest in `high` ("" for nowhere).
    fn database(low: &str, high: &str) -> Vec<u8> {
        let mut data = Vec::new();
        let mut tree = Vec::new();
        for country in [low, high] {
            let value = if country.is_empty() { 1 } else { 1 + 16 + data.len() as u32 };
            tree.extend_from_slice(&value.to_be_bytes()[1..]);
            if !country.is_empty() {
                let inner = map(&[("iso_code", s(country))]);
                data.extend(map(&[("country", inner)]));
            }
        }
        let metadata = map(&[
            ("node_count", vec![0xc1, 1]),
            ("record_size", vec![0xa1, 24]),
            ("ip_version", vec![0xa1, 4]),
            ("database_type", s("Test")),
            ("languages", vec![0, 4]),
            ("binary_format_major_version", vec![0xa1, 2]),
            ("binary_format_minor_version", vec![0xa0]),
            ("build_epoch", vec![1, 2, 1]),
            ("description", vec![0xe0]),
        ]);
        [tree, vec![0; 16], data, b"\xab\xcd\xefMaxMind.com".to_vec(), metadata].concat()
    }

    fn rule(text: &str) -> GeoIp {
        let mut ctx = Context::default();
        ctx.available.insert("geoip".to_owned());
        let loaded = load_str(&format!("alert ip any any -> any any (geoip:{text}; sid:1;)"), "t.rules", &ctx);
        assert!(loaded.errors.is_empty(), "{:?}", loaded.errors);
        match loaded.rules[0].checks.first() {
            Some(Check::GeoIp(g)) => g.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The expected results are Suricata's.
    #[test]
    fn sides_and_negation() {
        let db = Countries::from_bytes(database("US", "DE")).expect("a database");
        let (us, de): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [200, 0, 0, 1].into());
        for (text, there, back) in [
            ("src,US", true, false),
            ("dst,DE", true, false),
            ("dest,DE", true, false),
            ("any,DE", true, true),
            ("DE", true, true),
            ("both,US,DE", true, true),
            ("both,US", false, false),
            ("src,!US", false, true),
            ("src,!DE,!US", false, false),
            ("src,US,!DE", false, false),
            ("both,!FR", true, true),
            ("both,!FR,!US", false, false),
            ("any,!DE", true, true),
            ("src,FR", false, false),
        ] {
            let rule = rule(text);
            assert_eq!((db.holds(&rule, us, de), db.holds(&rule, de, us)), (there, back), "{text}");
        }
    }

    #[test]
    fn nothing_is_known_of_some() {
        let db = Countries::from_bytes(database("US", "")).expect("a database");
        let nowhere: IpAddr = [200, 0, 0, 1].into();
        assert!(!db.holds(&rule("src,US"), nowhere, nowhere) && !db.holds(&rule("src,!US"), nowhere, nowhere));
        let six: IpAddr = "::1".parse().expect("an address");
        assert!(!db.holds(&rule("src,!US"), six, six));
    }

    #[test]
    fn what_is_no_database_is_refused() {
        assert!(Countries::from_bytes(b"not a database".to_vec()).is_err());
        let whole = database("US", "DE");
        for n in 0..whole.len() {
            // A truncated database never panics.
            if let Ok(db) = Countries::from_bytes(whole[n..].to_vec()) {
                let a: IpAddr = [10, 0, 0, 1].into();
                let _ = db.holds(&rule("src,US"), a, a);
            }
        }
        assert!(Countries::open(Path::new("nowhere.mmdb")).is_err());
    }
}
