//! Finds the row of a setting.

use super::{Key, Kind, all, sets};
use std::collections::HashMap;
use std::sync::OnceLock;

/// A node of the table as a tree: the keys allowed below a name.
#[derive(Debug, Default)]
pub(crate) struct Level {
    below: HashMap<&'static str, Level>,
    /// The row of the name itself.
    pub(crate) row: Option<&'static Key>,
}

/// Settings with several places: each setting below the second path is also valid below the first.
const SHARED: &[(&str, &str)] = &[
    ("app-layer.protocols.http.libhtp.server-config.#.*", "app-layer.protocols.http.libhtp.default-config"),
    ("app-layer.protocols.http.libhtp.server-config.#", "app-layer.protocols.http.libhtp.default-config"),
    ("app-layer.protocols.http.libhtp.server-config.#", "app-layer.protocols.http.libhtp.server-config.#.*"),
    // Suricata 7 has a list of sets.
    ("threading.cpu-affinity.#", "threading.cpu-affinity"),
    // Older configurations have a list of datasets.
    ("datasets.#.*", "datasets.*"),
];

impl Level {
    fn add(&mut self, parts: &[&'static str], row: &'static Key) {
        let Some((first, rest)) = parts.split_first() else {
            // If several chapters have a row for the path, the first one counts.
            self.row = self.row.or(Some(row));
            return;
        };
        let set = first.strip_prefix('<').and_then(|name| name.strip_suffix('>'));
        match set.and_then(|name| sets().iter().find(|s| s.0 == name)) {
            Some((_, names)) => {
                for name in names {
                    self.below.entry(name).or_default().add(rest, row);
                }
            }
            None => self.below.entry(first).or_default().add(rest, row),
        }
    }

    fn at(&self, path: &str) -> Option<&Level> {
        path.split('.').try_fold(self, |level, part| level.below.get(part))
    }

    fn merge(&mut self, other: &Level) {
        self.row = self.row.or(other.row);
        for (name, level) in &other.below {
            self.below.entry(name).or_default().merge(level);
        }
    }

    /// The levels of a name below this one: the exact name, and the wildcard.
    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = &Level> {
        let index = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
        let kind = if index { "#" } else { "*" };
        [self.below.get(name), self.below.get(kind).filter(|_| name != kind)].into_iter().flatten()
    }

    /// Whether this is a section that counts as a whole, with everything below it.
    pub(crate) fn is_section(&self) -> bool {
        self.row.is_some_and(|r| r.kind == Kind::Section)
    }

    /// The names that are known here.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.below.keys().copied().filter(|n| !["*", "#"].contains(n))
    }
}

/// The table as a tree, built by the first call.
pub(crate) fn top() -> &'static Level {
    static TOP: OnceLock<Level> = OnceLock::new();
    TOP.get_or_init(|| {
        let mut top = Level::default();
        for row in all() {
            let parts: Vec<&'static str> = row.path.split('.').collect();
            top.add(&parts, row);
        }
        for (to, from) in SHARED {
            let mut shared = Level::default();
            if let Some(level) = top.at(from) {
                shared.merge(level);
            }
            let to = to.split('.').fold(&mut top, |level, part| level.below.entry(part).or_default());
            to.merge(&shared);
        }
        top
    })
}

/// The levels of a path; `None` if it leads into a section that counts as a whole.
fn levels(path: &str) -> Option<Vec<&'static Level>> {
    let mut levels = vec![top()];
    for part in path.split('.') {
        levels = levels.iter().flat_map(|l| l.of(part)).collect();
        if levels.iter().any(|l| l.is_section()) {
            return None;
        }
    }
    Some(levels)
}

/// Whether a row has this path or a path below it, or the path is in a section that counts as a whole.
pub fn is_known(path: &str) -> bool {
    levels(path).is_none_or(|l| !l.is_empty())
}

/// The row of a path in the form of a configuration (`outputs.0.fast.enabled`). Inside a section that counts as a whole, the
/// row of that section.
pub fn row(path: &str) -> Option<&'static Key> {
    let mut levels = vec![top()];
    for part in path.split('.') {
        levels = levels.iter().flat_map(|l| l.of(part)).collect();
        if let Some(section) = levels.iter().find(|l| l.is_section()) {
            return section.row;
        }
    }
    levels.iter().find_map(|l| l.row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Effect;

    #[test]
    fn paths_lead_to_their_rows() {
        for (path, of) in [
            ("stream.memcap", Some("stream.memcap")),
            ("outputs.3.fast.enabled", Some("outputs.#.fast.enabled")),
            ("vars.port-groups.HTTP_PORTS", Some("vars.port-groups.*")),
            ("app-layer.protocols.tls.enabled", Some("app-layer.protocols.<protocol>.enabled")),
            ("dpdk.interfaces.0.mtu", Some("dpdk")),
            ("datasets.defaults.memcap", Some("datasets.defaults.memcap")),
            ("datasets.ua.memcap", Some("datasets.*.memcap")),
            ("threading.cpu-affinity.1.worker-cpu-set.mode", Some("threading.cpu-affinity.<cpu-set>.mode")),
            ("app-layer.protocols.htpp.enabled", None),
            ("stream", None),
            ("stream.memkap", None),
        ] {
            assert_eq!(row(path).map(|r| r.path), of, "{path}");
        }
        let server = "app-layer.protocols.http.libhtp.server-config.0.apache";
        assert!(row(&format!("{server}.personality")).is_some() && row(&format!("{server}.address")).is_some());
        assert!(is_known("stream") && is_known("outputs.#.fast") && !is_known("stream.memkap"));
    }

    #[test]
    fn every_path_is_there_once() {
        let mut seen = std::collections::HashSet::new();
        for row in all() {
            assert!(seen.insert(row.path), "{} is there twice", row.path);
            assert!(!row.text.is_empty() || row.effect != Effect::Acts, "{} has no words", row.path);
        }
    }

    #[test]
    fn sets_are_there() {
        for row in all() {
            for part in row.path.split('.').filter(|p| p.starts_with('<')) {
                let name = part.trim_matches(['<', '>']);
                assert!(sets().iter().any(|s| s.0 == name), "{}", row.path);
            }
        }
    }
}
