//! Settings and options of event types that protocols declare ([`margay_app::declare`]).

use margay_app::declare::{Unit, Values};
use margay_app::{ALL, AppProto, PROTOCOLS};
use margay_config::{Config, ConfigError, Node};

/// Reads the section below `app-layer.protocols` of each protocol with a parser. Settings of other protocols have no effect.
///
/// # Errors
/// An invalid value.
pub(super) fn settings(config: &Config, values: &mut Values) -> Result<(), ConfigError> {
    for p in PROTOCOLS.iter().filter(|p| !p.settings.is_empty()) {
        let Some(node) = config.node(&format!("app-layer.protocols.{}", p.config)) else { continue };
        for (place, setting) in p.settings.iter().enumerate() {
            if let Some(value) = value(node, setting.key, setting.unit)? {
                values.set(p.proto, place, value);
            }
        }
    }
    Ok(())
}

/// Reads the options of a protocol's event type.
///
/// # Errors
/// An invalid value.
pub(super) fn eve_options(proto: AppProto, node: Node<'_>, values: &mut Values) -> Result<(), ConfigError> {
    for (place, option) in ALL.iter().filter(|p| p.proto == proto).flat_map(|p| p.eve_options).enumerate() {
        if let Some(value) = value(node, option.key, option.unit)? {
            values.set(proto, place, value);
        }
    }
    Ok(())
}

/// Reads the options of alerts that protocols declare.
///
/// # Errors
/// An invalid value.
pub(super) fn alert_options(node: Node<'_>, values: &mut Values) -> Result<(), ConfigError> {
    for p in PROTOCOLS {
        for (i, option) in p.alert_options.iter().enumerate() {
            if let Some(value) = value(node, option.key, option.unit)? {
                values.set(p.proto, p.eve_options.len() + i, value);
            }
        }
    }
    Ok(())
}

fn value(node: Node<'_>, key: &str, unit: Unit) -> Result<Option<u64>, ConfigError> {
    Ok(match unit {
        Unit::Flag => node.bool(key)?.map(u64::from),
        Unit::Bytes => node.size(key)?,
        Unit::Count => match node.int(key)? {
            Some(n) => {
                let n =
                    u32::try_from(n).map_err(|_| node.error(format!("{key}: {n} is not from 0 to {}", u32::MAX)))?;
                Some(n.into())
            }
            None => None,
        },
    })
}
