//! `pcap:`: capture with libpcap.

use margay_capture::af_packet::{Interface, Trust};
use margay_capture::libpcap::{ANY, Libpcap, SNAPLEN, Settings};
use margay_capture::live::LiveSource;
use margay_config::{Capture, Config, RunOptions};

use super::cpus::Cpus;
use super::medium::{Groups, Medium, Opening};
use super::settings::{Device, Entries, Entry, RunMode};
use crate::Failed;

const SECTION: &str = "pcap";

/// The interfaces of the command line, or else all interfaces of the configuration, with one worker each.
///
/// # Errors
/// No interface, an interface that does not exist, or an invalid setting.
fn devices(config: &Config, options: &RunOptions, mode: RunMode) -> Result<Vec<Device>, Failed> {
    let entries = Entries::of(config, SECTION);
    let names = match &options.capture {
        Some(Capture::Pcap(names)) if !names.is_empty() => names.clone(),
        _ => entries.interfaces(),
    };
    if names.is_empty() {
        return Err(Failed::new(SECTION, "no interface: name one (--pcap=eth0), or list some under pcap"));
    }
    mode.check(&names)?;
    let filter = crate::settings::filter(options, SECTION)?;
    let mut devices: Vec<Device> = Vec::new();
    for name in names {
        if devices.iter().any(|d| d.name == name) {
            return Err(Failed::new(SECTION, format!("{name}: is named twice")));
        }
        if name != ANY {
            Interface::find(&name).map_err(|e| Failed::new(SECTION, e.to_string()))?;
        }
        let (settings, auto_trust) = entries.of_interface(&name).libpcap(filter.as_deref(), options)?;
        devices.push(Device { name, workers: 1, medium: Box::new(settings), auto_trust, bypass: None });
    }
    Ok(devices)
}

/// The devices, if the command line selects libpcap.
pub(super) fn chosen(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    _cpus: &Cpus,
) -> Option<Result<Vec<Device>, Failed>> {
    matches!(options.capture, Some(Capture::Pcap(_))).then(|| devices(config, options, mode))
}

impl Medium for Settings {
    fn section(&self) -> &'static str {
        SECTION
    }

    fn capture(&self) -> &'static str {
        "PCAP_DEV"
    }

    fn open(&self, at: &Opening<'_>, _groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed> {
        let source = Libpcap::open(&at.device.name, self.clone());
        Ok(Box::new(source.map_err(|e| Failed::new(SECTION, e.to_string()))?))
    }
}

impl Entry<'_> {
    /// The settings, and whether checksums must be judged automatically.
    fn libpcap(&self, filter: Option<&str>, options: &RunOptions) -> Result<(Settings, bool), Failed> {
        // libpcap does not report which checksums are incomplete.
        let (trust, auto_trust) = match self.text("checksum-checks") {
            None | Some("auto") => (Trust::Nobody, true),
            Some(_) => match self.flag("checksum-checks", true)? {
                true => (Trust::Nobody, false),
                false => (Trust::Everybody, false),
            },
        };
        let snaplen = match self.number::<u32>("snaplen")?.unwrap_or(0) {
            0 => SNAPLEN,
            n if n <= SNAPLEN => n,
            n => return Err(self.wrong("snaplen", &format!("{n} is not 0 to {SNAPLEN} bytes")).into()),
        };
        let buffer_size = match options.pcap_buffer_size {
            Some(bytes) => bytes,
            None => self.size("buffer-size")?.unwrap_or(0),
        };
        let settings = Settings {
            buffer_size: u32::try_from(buffer_size)
                .ok()
                .filter(|n| i32::try_from(*n).is_ok())
                .ok_or_else(|| self.wrong("buffer-size", &format!("{buffer_size} bytes are 2 GiB or more")))?,
            snaplen,
            promiscuous: self.flag("promisc", true)?,
            filter: filter.or_else(|| self.text("bpf-filter")).map(str::to_owned),
            trust,
        };
        Ok((settings, auto_trust))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, options: &RunOptions) -> Result<(Settings, bool), String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\npcap:\n{text}"), "t").unwrap();
        let options = RunOptions { capture: Some(Capture::Pcap(Vec::new())), ..options.clone() };
        let device = devices(&config, &options, RunMode::Workers).map_err(|f| f.message)?.remove(0);
        let settings = (&*device.medium as &dyn std::any::Any).downcast_ref::<Settings>().expect("libpcap").clone();
        Ok((settings, device.auto_trust))
    }

    #[test]
    fn an_interface_has_what_is_said_of_it_or_of_all() {
        let text = "  - interface: lo\n    snaplen: 1518\n    promisc: no\n    checksum-checks: no\n  - interface: default\n    \
                    buffer-size: 16mb\n    bpf-filter: tcp\n    promisc: yes\n";
        let none = RunOptions::default();
        let (s, auto) = read(text, &none).unwrap();
        assert_eq!((s.snaplen, s.promiscuous, s.trust, auto), (1518, false, Trust::Everybody, false));
        assert_eq!((s.buffer_size, s.filter.as_deref()), (16 << 20, Some("tcp")));
        let given = RunOptions { pcap_buffer_size: Some(4096), filter: Some("udp".into()), ..none.clone() };
        let (s, _) = read(text, &given).unwrap();
        assert_eq!((s.buffer_size, s.filter.as_deref()), (4096, Some("udp")), "the command line comes first");
        assert_eq!(read("  - interface: lo\n", &none).unwrap(), (Settings::default(), true));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, word) in [
            ("snaplen: 300000", "snaplen"),
            ("buffer-size: 2gb", "2 GiB"),
            ("checksum-checks: perhaps", "perhaps"),
            ("promisc: perhaps", "perhaps"),
        ] {
            let e = read(&format!("  - interface: lo\n    {text}\n"), &RunOptions::default()).unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
        assert!(read("  - interface: default\n", &RunOptions::default()).unwrap_err().contains("--pcap=eth0"));
        assert!(read("  - interface: no-such-card\n", &RunOptions::default()).unwrap_err().contains("no-such-card"));
    }
}
