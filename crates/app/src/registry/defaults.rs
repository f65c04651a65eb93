//! Settings with the defaults of all declarations.

use super::{ALL, PROTOCOLS, protocol};
use crate::config::{AppConfig, AppLogOptions, Declared, Values};
use crate::declare::Protocol;
use crate::recognise::{Detectable, RecogniseSettings, Recogniser};

impl Values {
    /// The defaults of all settings.
    pub fn settings() -> Values {
        Values::new(ALL.iter().map(|p| p.settings.iter().map(|s| s.default).collect()))
    }

    /// The defaults of each protocol's event-type options, followed by those of its alert options.
    pub fn eve_options() -> Values {
        let of = |p: &&'static Protocol| p.eve_options.iter().chain(p.alert_options).map(|s| s.default).collect();
        Values::new(ALL.iter().map(of))
    }
}

impl AppConfig {
    /// The defaults. The caller passes the recogniser, because it is slow to build.
    pub fn new(recogniser: Recogniser) -> AppConfig {
        let declared = Declared::new(
            PROTOCOLS.iter().map(|p| (p.proto, p.complete())),
            ALL.iter().filter(|p| p.outlives_tls).map(|p| p.proto),
            ALL.iter().flat_map(|p| p.follows.iter().map(|h| (*h, p.proto, p.client_begins))),
        );
        AppConfig::with(recogniser, Values::settings(), declared)
    }
}

impl Default for AppConfig {
    fn default() -> AppConfig {
        AppConfig::new(Recogniser::default())
    }
}

impl Default for AppLogOptions {
    fn default() -> Self {
        AppLogOptions::with(Values::eve_options())
    }
}

impl Recogniser {
    /// Built from the declared protocols and the configuration.
    pub fn new(settings: &RecogniseSettings) -> Self {
        let of = |p: &&'static Protocol| Detectable {
            proto: p.proto,
            mode: p.mode,
            opening: p.opening,
            recognition: p.recognition,
            inline_probes: p.inline_probes,
            has_parser: protocol(p.proto).is_some(),
        };
        Recogniser::of(ALL.iter().map(of), settings)
    }
}

impl Default for Recogniser {
    fn default() -> Self {
        Recogniser::new(&RecogniseSettings::default())
    }
}
