//! Settings with the defaults of all declarations.

use super::{ALL, PROTOCOLS};
use crate::config::{AppConfig, AppLogOptions, Declared, Values};
use crate::declare::Protocol;
use crate::recognise::{Detectable, RecogniseSettings, Recogniser};

impl AppConfig {
    /// The defaults. The caller passes the recogniser, because it is slow to build.
    pub fn new(recogniser: Recogniser) -> AppConfig {
        let settings = Values::new(ALL.iter().map(|p| p.settings.iter().map(|s| s.default).collect()));
        let declared = Declared::new(
            PROTOCOLS.iter().map(|p| (p.proto, p.complete())),
            ALL.iter().flat_map(|p| p.follows.iter().map(|h| (*h, p.proto))),
        );
        AppConfig::with(recogniser, settings, declared)
    }
}

impl Default for AppConfig {
    fn default() -> AppConfig {
        AppConfig::new(Recogniser::default())
    }
}

impl Default for AppLogOptions {
    fn default() -> Self {
        // The indexes of a protocol's alert options follow those of its event type.
        let of = |p: &&Protocol| p.eve_options.iter().chain(p.alert_options).map(|s| s.default).collect();
        AppLogOptions::with(Values::new(ALL.iter().map(of)))
    }
}

impl Recogniser {
    /// Built from the declared protocols and the configuration.
    pub fn new(settings: &RecogniseSettings) -> Self {
        let has_parser = |proto| PROTOCOLS.iter().any(|p| p.proto == proto);
        let of = |p: &&'static Protocol| Detectable {
            proto: p.proto,
            mode: p.mode,
            opening: p.opening,
            recognition: p.recognition,
            has_parser: has_parser(p.proto),
        };
        Recogniser::of(ALL.iter().map(of), settings)
    }
}

impl Default for Recogniser {
    fn default() -> Self {
        Recogniser::new(&RecogniseSettings::default())
    }
}
