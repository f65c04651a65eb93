//! The table of all settings: path, type, default and effect. The start, the tests and the reference use the same table.
//!
//! A row of the table is a [`Key`]. Its path has parts separated by dots; `#` stands for any item of a list, `*` for any one
//! name, `**` for everything from there on, and a word in angle brackets (`<protocol>`) for any name of a named list
//! ([`sets`]).
//!
//! At the start, the engine checks the configuration with [`crate::Config::unknown_keys`] and
//! [`crate::Config::ignored_keys`]. A setting without a row causes a warning, and a setting whose row says that it has no
//! effect causes a notice. `docs/configuration.md` is [`crate::reference::reference`]. The engine's tests change the value of
//! every row with [`Effect::Acts`], and compare the typed settings. The getters of [`crate::Config`] record each path that is read, so a
//! setting that is read but has no row fails a test.

mod app_layer;
mod capture;
mod declared;
mod eve;
mod flow;
mod general;
mod http;
mod lookup;
mod outputs;
mod process;
mod reasons;
mod rules;

use std::sync::LazyLock;

pub use lookup::{is_known, row};

pub(crate) use lookup::{Level, top};

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name from the top of the configuration.
    pub path: &'static str,
    /// Its allowed values.
    pub kind: Kind,
    /// Its default, written as in a configuration; empty if there is none. For a setting without effect, this is the value
    /// that causes no notice at the start: that of Suricata's installed configuration, or `*` for any value.
    pub default: &'static str,
    /// Its effect.
    pub effect: Effect,
    /// Its purpose, in one sentence.
    pub text: &'static str,
    /// A valid value other than the default, for tests, if the kind alone does not determine one.
    pub example: Option<&'static str>,
    /// Whether an invalid value only causes a warning, and the default applies. Otherwise an invalid value ends the start.
    pub lenient: bool,
    /// The test that shows its effect, as `crate/tests/file.rs::name`, if the typed settings do not show it.
    pub shown_by: Option<&'static str>,
}

/// Allowed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `yes` or `no`.
    Flag,
    /// `yes`, `no` or one of these words.
    FlagOr(&'static [&'static str]),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number from `least` to `most`, of `unit` (which may be empty).
    Number {
        /// The smallest one.
        least: i64,
        /// The largest one.
        most: i64,
        /// The unit of the number.
        unit: &'static str,
    },
    /// Bytes, from `least` to `most`; with a unit (`kb`, `mb`, `gb`) or without.
    Size {
        /// The smallest one.
        least: u64,
        /// The largest one.
        most: u64,
    },
    /// A number with a fraction.
    Fraction,
    /// A percentage.
    Percent,
    /// Text: its meaning.
    Text(&'static str),
    /// A list: the meaning of its items.
    List(&'static str),
    /// A section that counts as a whole, with everything in it.
    Section,
}

/// The effect of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes what the engine does.
    Acts,
    /// It is accepted and changes nothing, for this reason; the start reports it if its value is not the default.
    Ignored(&'static str),
    /// A value other than the default ends the start, for this reason.
    Refused(&'static str),
}

impl Key {
    const fn new(path: &'static str, kind: Kind, default: &'static str, text: &'static str) -> Key {
        Key { path, kind, default, effect: Effect::Acts, text, example: None, lenient: false, shown_by: None }
    }

    /// Marks the setting as without effect, for this reason.
    const fn ignored(mut self, why: &'static str) -> Key {
        self.effect = Effect::Ignored(why);
        self
    }

    /// Marks the setting as refused, for this reason.
    const fn refused(mut self, why: &'static str) -> Key {
        self.effect = Effect::Refused(why);
        self
    }

    /// Sets the example.
    const fn like(mut self, example: &'static str) -> Key {
        self.example = Some(example);
        self
    }

    /// Makes an invalid value a warning.
    const fn lenient(mut self) -> Key {
        self.lenient = true;
        self
    }

    /// Names the test that shows the effect.
    const fn shown_by(mut self, test: &'static str) -> Key {
        self.shown_by = Some(test);
        self
    }

    /// Limits a size to the range from `least` to `most` bytes.
    const fn within(mut self, least: u64, most: u64) -> Key {
        self.kind = Kind::Size { least, most };
        self
    }

    /// Whether `value` is the default.
    pub fn is_default(&self, value: &str) -> bool {
        let (value, default) = (value.trim(), self.default.trim());
        if default == "*" || value.is_empty() || value.eq_ignore_ascii_case(default) {
            return true;
        }
        let same = |read: fn(&str) -> Option<f64>| read(value).is_some_and(|v| read(default) == Some(v));
        match self.kind {
            Kind::Flag | Kind::FlagOr(_) => same(|t| crate::typed::parse_bool(t).ok().map(|b| f64::from(u8::from(b)))),
            Kind::Size { .. } => same(|t| crate::typed::parse_size(t).ok().map(|n| n as f64)),
            Kind::Number { .. } => same(|t| crate::typed::parse_int(t).ok().map(|n| n as f64)),
            Kind::Fraction => same(|t| crate::typed::parse_float(t).ok()),
            Kind::Percent => same(|t| crate::typed::parse_percent(t).ok()),
            Kind::Word(_) | Kind::Text(_) | Kind::List(_) | Kind::Section => false,
        }
    }
}

/// `yes` or `no`.
const fn flag(path: &'static str, default: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::Flag, default, text)
}

/// `yes`, `no`, or a word.
const fn flag_or(path: &'static str, words: &'static [&'static str], default: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::FlagOr(words), default, text)
}

/// One of several words.
const fn word(path: &'static str, words: &'static [&'static str], default: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::Word(words), default, text)
}

/// A whole number.
const fn number(
    path: &'static str,
    default: &'static str,
    range: (i64, i64),
    unit: &'static str,
    text: &'static str,
) -> Key {
    Key::new(path, Kind::Number { least: range.0, most: range.1, unit }, default, text)
}

/// A size, which 64 bits can hold.
const fn size(path: &'static str, default: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::Size { least: 0, most: u64::MAX }, default, text)
}

/// A text; `what` describes it.
const fn text(path: &'static str, what: &'static str, default: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::Text(what), default, text)
}

/// A list; `what` describes its items.
const fn list(path: &'static str, what: &'static str, default: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::List(what), default, text)
}

/// A section that counts as a whole.
const fn section(path: &'static str, text: &'static str) -> Key {
    Key::new(path, Kind::Section, "", text)
}

/// The largest number of 32 bits.
const U32: i64 = u32::MAX as i64;

/// The named lists: for each word in angle brackets, the names that it stands for.
pub fn sets() -> &'static [(&'static str, Vec<&'static str>)] {
    static SETS: LazyLock<Vec<(&str, Vec<&str>)>> = LazyLock::new(|| {
        vec![
            ("protocol", declared::protocols()),
            ("transport", vec!["tcp", "udp"]),
            ("timeouts", vec!["default", "tcp", "udp", "icmp"]),
            ("os", flow::SYSTEMS.to_vec()),
            ("cpu-set", vec!["management-cpu-set", "worker-cpu-set"]),
            (
                "other-cpu-set",
                vec![
                    "receive-cpu-set",
                    "verdict-cpu-set",
                    "detect-cpu-set",
                    "stream-cpu-set",
                    "decode-cpu-set",
                    "output-cpu-set",
                    "reject-cpu-set",
                ],
            ),
            ("written", vec!["fast", "alert-debug", "http-log", "tls-log", "eve-log", "stats"]),
            ("data-log", vec!["tcp-data", "http-body-data"]),
            ("line-log", vec!["http-log", "tls-log"]),
            ("tls-peer", vec!["tcp", "syslog"]),
            ("type", declared::written_types()),
            ("unwritten-type", declared::unwritten_types()),
        ]
    });
    &SETS
}

/// The table, with a part for each chapter of the reference: its name, a short description, and its settings.
const TABLES: &[(&str, &str, &[Key])] = &[
    ("Networks and folders", general::ABOUT, general::KEYS),
    ("Outputs", outputs::ABOUT, outputs::KEYS),
    ("EVE", eve::ABOUT, eve::KEYS),
    ("Packets", capture::ABOUT, capture::KEYS),
    ("Protocols", app_layer::ABOUT, app_layer::KEYS),
    ("HTTP", http::ABOUT, http::KEYS),
    ("Rules", rules::ABOUT, rules::KEYS),
    ("Flows, streams, fragments", flow::ABOUT, flow::KEYS),
    ("The process", process::ABOUT, process::KEYS),
];

/// The table with the settings that protocols declare.
pub fn chapters() -> &'static [(&'static str, &'static str, Vec<Key>)] {
    static CHAPTERS: LazyLock<Vec<(&str, &str, Vec<Key>)>> = LazyLock::new(|| {
        let with = |title: &str, keys: &[Key]| match title {
            "EVE" => keys.iter().copied().chain(declared::eve_options()).collect(),
            "Protocols" => keys.iter().copied().chain(declared::settings()).collect(),
            _ => keys.to_vec(),
        };
        TABLES.iter().map(|(title, about, keys)| (*title, *about, with(title, keys))).collect()
    });
    &CHAPTERS
}

/// Every setting.
pub fn all() -> impl Iterator<Item = &'static Key> {
    chapters().iter().flat_map(|c| &c.2)
}
