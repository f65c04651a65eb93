//! The engine's configuration for capture, threads and memory.

use margay_config::Config;

use crate::tune::facts::{Engine, Missing};
use crate::tune::tree::Tree;

/// The usual paths of configurations.
const PLACES: [&str; 2] = ["/etc/margay/margay.yaml", "/etc/suricata/suricata.yaml"];
/// Sections that plans read.
const SECTIONS: [&str; 11] = [
    "af-packet.",
    "af-xdp.",
    "threading.",
    "flow.",
    "stream.",
    "defrag.",
    "margay.",
    "detect.profile",
    "max-pending-packets",
    "default-packet-size",
    "runmode",
];

pub(super) fn engine(tree: &dyn Tree, named: Option<&str>, missing: &mut Vec<Missing>) -> Option<Engine> {
    let file = match named {
        Some(file) => file,
        None => PLACES.into_iter().find(|file| tree.exists(file))?,
    };
    let text = match tree.read(file) {
        Ok(text) => text,
        Err(why) => {
            missing.push(Missing { what: format!("the engine's configuration {file}"), why: why.to_string() });
            return None;
        }
    };
    // Included files lie beside it, and exist only on this machine.
    let includes = text.lines().any(|line| line.trim_start().starts_with("include:"));
    let config = if includes { Config::load(file) } else { Config::from_str(&text, file) };
    let mut dump = Vec::new();
    match config {
        Ok(config) => drop(config.dump(&mut dump)),
        Err(why) => {
            missing.push(Missing { what: format!("the engine's configuration {file}"), why: why.to_string() });
            return None;
        }
    }
    let dump = String::from_utf8_lossy(&dump);
    let settings = dump.lines().filter_map(|line| line.split_once(" = "));
    let settings =
        settings.filter(|(name, value)| *value != "(null)" && SECTIONS.iter().any(|section| name.starts_with(section)));
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Some(Engine { file: file.to_owned(), settings })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::recorded;

    #[test]
    fn a_configuration_is_read() {
        let text = "/etc/suricata/suricata.yaml <<\n  %YAML 1.1\n  ---\n  af-packet:\n    - interface: eth1\n      threads: 4\n  \
                    flow:\n    memcap: 1gb\n  outputs:\n    - fast:\n        enabled: yes\n";
        let m = recorded::read(text).unwrap();
        let mut missing = Vec::new();
        let engine = engine(&m.tree, None, &mut missing).unwrap();
        assert_eq!((engine.file.as_str(), missing.len()), (PLACES[1], 0));
        assert_eq!(engine.settings["af-packet.0.threads"], "4");
        assert_eq!(engine.settings["flow.memcap"], "1gb");
        assert!(!engine.settings.keys().any(|name| name.starts_with("outputs")));
        assert!(super::engine(&m.tree, Some("/etc/none.yaml"), &mut missing).is_none());
        assert!(missing[0].what.contains("/etc/none.yaml"));
        m.tree.set("/etc/bad.yaml", "no yaml\n");
        assert!(super::engine(&m.tree, Some("/etc/bad.yaml"), &mut missing).is_none() && missing.len() == 2);
    }
}
