//! `app-layer.protocols`: the protocols to detect, and their ports.

use margay_app::configurable;
use margay_app::recognise::{Mode, Ports, ProtocolSettings, RecogniseSettings, TCP, UDP};
use margay_config::{Config, ConfigError};

use super::{all_items, wrong};

/// The settings of protocol detection.
///
/// # Errors
/// `enabled` is neither a boolean nor `detection-only`, or a port is invalid.
pub(crate) fn recogniser(config: &Config) -> Result<RecogniseSettings, ConfigError> {
    let mut settings = RecogniseSettings::default();
    for (proto, key) in configurable() {
        for (transport, name) in [(TCP, "tcp"), (UDP, "udp")] {
            // A setting of the protocol takes precedence over that of one transport, as in Suricata.
            let own = format!("app-layer.protocols.{key}.{name}");
            let both = format!("app-layer.protocols.{key}");
            let set = ProtocolSettings {
                mode: mode(config, &both)?.or(mode(config, &own)?),
                dp: detection_ports(config, &both, "dp")?.or(detection_ports(config, &own, "dp")?),
                sp: detection_ports(config, &both, "sp")?.or(detection_ports(config, &own, "sp")?),
            };
            if set != ProtocolSettings::default() {
                settings.set(proto, transport, set);
            }
        }
    }
    Ok(settings)
}

fn mode(config: &Config, path: &str) -> Result<Option<Mode>, ConfigError> {
    let path = format!("{path}.enabled");
    if config.get(&path) == Some("detection-only") {
        return Ok(Some(Mode::DetectionOnly));
    }
    Ok(config.bool(&path)?.map(|on| if on { Mode::On } else { Mode::Off }))
}

/// Ports as a list: `139, 445`, `[139, 445]`, `5900:5909`, `any`.
fn detection_ports(config: &Config, path: &str, which: &str) -> Result<Option<Ports>, ConfigError> {
    let path = format!("{path}.detection-ports.{which}");
    let Some(node) = config.node(&path) else { return Ok(None) };
    let mut ports = Ports::default();
    let mut some = false;
    for text in all_items(node, &path)? {
        let (first, last) = match text.split_once([':', '-']) {
            None if text == "any" => (Some(0), Some(u16::MAX)),
            None => (text.parse().ok(), text.parse().ok()),
            Some((a, b)) => (a.trim().parse().ok(), b.trim().parse().ok()),
        };
        match (first, last) {
            (Some(a), Some(b)) if a <= b => ports.add(a, b),
            _ => return Err(wrong(config, &path, &format!("\"{text}\" is no port; write numbers, as in 139, 445"))),
        }
        some = true;
    }
    Ok(some.then_some(ports))
}

/// `--list-app-layer-protos`: the protocols that this configuration can detect, under the names that rules use.
pub(crate) fn list_app_protos(settings: &RecogniseSettings) -> String {
    let recogniser = margay_app::recognise::Recogniser::new(settings);
    let mut out = String::from("=========Supported App Layer Protocols=========\n");
    for (proto, _) in configurable().filter(|(p, _)| recogniser.mode(*p) != Mode::Off) {
        out.push_str(proto.name());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_app::AppProto;

    fn read(text: &str) -> Result<RecogniseSettings, ConfigError> {
        recogniser(&Config::from_str(&format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n{text}"), "t").unwrap())
    }

    #[test]
    fn modes_and_ports() {
        let s = read(
            "    ssh: {enabled: yes, tcp: {enabled: no}}\n    imap: {enabled: detection-only}\n    tls: {enabled: no, detection-ports: {dp: 443, sp: \"1-9\"}}\n    \
             dns: {udp: {enabled: no}, tcp: {detection-ports: {dp: \"53, 5300:5303\"}}}\n",
        )
        .unwrap();
        assert_eq!(s.of(AppProto::Imap, TCP).mode, Some(Mode::DetectionOnly));
        assert_eq!(s.of(AppProto::Tls, TCP).mode, Some(Mode::Off));
        assert!(s.of(AppProto::Tls, TCP).sp.unwrap().contains(9));
        assert_eq!(s.of(AppProto::Dns, UDP).mode, Some(Mode::Off));
        let dns = s.of(AppProto::Dns, TCP);
        assert_eq!(dns.mode, None);
        let dp = dns.dp.unwrap();
        assert!(dp.contains(53) && dp.contains(5302) && !dp.contains(54));
        assert_eq!(s.of(AppProto::Ssh, TCP).mode, Some(Mode::On));
        assert_eq!(s.of(AppProto::Smtp, TCP), ProtocolSettings::default());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, what) in [
            ("    tls: {enabled: perhaps}\n", "app-layer.protocols.tls.enabled"),
            ("    tls: {detection-ports: {dp: 99999}}\n", "\"99999\" is no port"),
            ("    tls: {detection-ports: {dp: 9-1}}\n", "\"9-1\" is no port"),
            ("    tls: {detection-ports: {dp: \"[80\"}}\n", "\"[80\" has one bracket without the other"),
        ] {
            let e = read(text).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        }
    }

    #[test]
    fn the_list_leaves_out_what_is_off() {
        let list = list_app_protos(&read("    tls: {enabled: no}\n").unwrap());
        assert!(list.contains("\nhttp\n") && list.contains("\nssh\n"), "{list}");
        assert!(!list.contains("\ntls\n") && !list.contains("\nmodbus\n"), "{list}");
    }
}
