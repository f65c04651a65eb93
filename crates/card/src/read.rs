//! Reads numbers with units from YAML, and rejects unknown keys.

use margay_config::Node;

use crate::Bad;

/// Reads a value such as `52 ns`, and applies the unit's factor from `units`.
pub(crate) fn quantity(node: &Node<'_>, units: &[(&str, f64)]) -> Result<f64, Bad> {
    let text = node.value().unwrap_or_default().trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text[..split].parse::<f64>(), text[split..].trim());
    let factor = units.iter().find(|(name, _)| *name == unit).map(|u| u.1);
    match (number, factor) {
        (Ok(number), Some(factor)) if number.is_finite() => Ok(number * factor),
        _ => {
            let names: Vec<_> = units.iter().map(|u| if u.0.is_empty() { "no unit" } else { u.0 }).collect();
            Err(node.error(format!("`{text}` is not a number with a unit ({})", names.join(", "))).into())
        }
    }
}

/// Reads a number within a range.
pub(crate) fn count(node: &Node<'_>, least: u32, most: u32) -> Result<u32, Bad> {
    let text = node.value().unwrap_or_default().trim();
    match text.parse::<u32>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(node.error(format!("`{text}` is not a whole number from {least} to {most}")).into()),
    }
}

/// Reads one of several words.
pub(crate) fn word<T: Copy>(node: &Node<'_>, words: &[(&str, T)]) -> Result<T, Bad> {
    let text = node.value().unwrap_or_default().trim();
    words.iter().find(|w| w.0 == text).map(|w| w.1).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|w| w.0).collect();
        node.error(format!("`{text}` is not one of {}", names.join(", "))).into()
    })
}

/// The error for an unknown key.
pub(crate) fn unknown(node: &Node<'_>) -> Bad {
    node.error(format!("there is no parameter `{}`", node.name())).into()
}
