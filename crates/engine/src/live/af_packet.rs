//! AF_PACKET as a source: one passive interface, or two that are bridged. `settings` reads its section.

use margay_capture::af_packet::{AfPacket, Agreement, Bridge, BridgeEnd, Settings};
use margay_capture::live::LiveSource;
use margay_config::{Config, RunOptions};

use super::cpus::Cpus;
use super::medium::{Groups, Medium, Opening};
use super::settings::{Device, RunMode};
use crate::Failed;

const SECTION: &str = "af-packet";

/// The interfaces of the command line, or else all interfaces of the configuration.
pub(super) fn chosen(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    cpus: &Cpus,
) -> Option<Result<Vec<Device>, Failed>> {
    Some(super::settings::af_packet_devices(config, options, mode, cpus))
}

impl Medium for Settings {
    fn section(&self) -> &'static str {
        SECTION
    }

    fn capture(&self) -> &'static str {
        "AF_PACKET_DEV"
    }

    fn groups(&self) -> Groups {
        [self.fanout.and_then(|f| f.id), None]
    }

    fn open(&self, at: &Opening<'_>, groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed> {
        let mut settings = self.clone();
        if let Some(f) = &mut settings.fanout {
            f.id = groups[0].or(f.id);
        }
        let source = AfPacket::open(&at.device.name, settings).map_err(|e| Failed::new(SECTION, e.to_string()))?;
        groups[0] = source.group();
        Ok(Box::new(source))
    }
}

/// Two bridged interfaces, inline.
#[derive(Debug)]
pub(super) struct Bridged {
    pub(super) ends: [BridgeEnd; 2],
    /// Settings that all its workers must agree on.
    pub(super) agreement: Agreement,
}

impl Medium for Bridged {
    fn section(&self) -> &'static str {
        SECTION
    }

    fn capture(&self) -> &'static str {
        "AF_PACKET_DEV"
    }

    fn drops(&self) -> bool {
        self.ends.iter().any(|e| e.drops)
    }

    fn interfaces<'a>(&'a self, _name: &'a str) -> [Option<&'a str>; 2] {
        self.ends.each_ref().map(|e| Some(e.name.as_str()))
    }

    fn groups(&self) -> Groups {
        self.ends.each_ref().map(|e| e.settings.fanout.and_then(|f| f.id))
    }

    fn open(&self, at: &Opening<'_>, _groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed> {
        let mut source = Bridge::open(self.ends.clone(), &self.agreement, at.device.workers)
            .map_err(|e| Failed::new(SECTION, e.to_string()))?;
        if let Some(table) = at.bypass {
            source.leave_out(table.kernel());
        }
        Ok(Box::new(source))
    }
}
