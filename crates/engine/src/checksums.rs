//! `pcap-file.checksum-checks`: whether the checksums of a capture file are trusted without a check.
//!
//! If a host leaves checksums to its network card, it captures its own packets before they have checksums. `auto` examines
//! the first packets of a file before the file is read. If more than a tenth of them have a wrong checksum, the file's
//! checksums are trusted without a check. The answer is the same for every worker, however many there are.

use std::fs::File;
use std::path::Path;

use margay_capture::Reader;
use margay_config::{Config, ConfigError, RunOptions};
use margay_output::notice;
use margay_packet::{DecodeConfig, Decoder, Packet, PacketSink};

use crate::settings::flag;

/// Packets that are examined. Shorter files are not judged.
const JUDGED: u64 = 1000;
/// A file's checksums are trusted if one packet in this many has a wrong one.
const RATIO: u64 = 10;
/// Frames read at a time.
const BATCH: usize = 256;

/// Whether checksums of capture files are trusted without a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileChecks {
    /// They are checked (`yes`, `-k all`). With `-k none` they are checked only for keywords, and no packet is excluded.
    Checked,
    /// They are trusted (`no`).
    Believed,
    /// Decided for each file (`auto`).
    Auto,
}

impl FileChecks {
    /// Reads the setting; `-k` takes precedence.
    ///
    /// # Errors
    /// A value other than yes, no and auto.
    pub(crate) fn of(config: &Config, options: &RunOptions) -> Result<FileChecks, ConfigError> {
        const PATH: &str = "pcap-file.checksum-checks";
        Ok(match (options.checksums, config.get(PATH)) {
            (Some(_), _) => FileChecks::Checked,
            (None, None | Some("" | "auto")) => FileChecks::Auto,
            (None, Some(_)) if flag(config, PATH, true)? => FileChecks::Checked,
            (None, Some(_)) => FileChecks::Believed,
        })
    }

    /// Whether the checksums of this file are trusted. Standard input and pipes cannot be examined in advance; with `auto`
    /// theirs are checked.
    pub(crate) fn believes(self, file: &Path) -> bool {
        match self {
            FileChecks::Checked => false,
            FileChecks::Believed => true,
            FileChecks::Auto => {
                let Some(wrong) = wrong(file).filter(|n| n * RATIO > JUDGED) else { return false };
                notice!(
                    "pcap",
                    "{}: {wrong} of the first {JUDGED} packets have a wrong checksum: taking it that they were captured where \
                     a card fills them in, and checking none (-k all checks them)",
                    file.display()
                );
                true
            }
        }
    }
}

/// Counts wrong checksums.
#[derive(Default)]
struct Count(u64);

impl PacketSink for Count {
    fn packet(&mut self, packet: &Packet<'_>) {
        self.0 += u64::from(packet.l4_checksum_ok() == Some(false));
    }
}

/// How many of a file's first packets have a wrong checksum; `None` if the file is shorter, or cannot be read.
fn wrong(file: &Path) -> Option<u64> {
    // Opening a pipe would consume its data.
    let source = File::open(file).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let mut reader = Reader::new(source, file).ok()?;
    let mut decoder = Decoder::new(DecodeConfig::default());
    let (mut seen, mut count) = (0, Count::default());
    while let Ok(Some(batch)) = reader.next_batch(BATCH) {
        for frame in batch.iter() {
            decoder.decode(&frame, &mut count);
            seen += 1;
            if seen == JUDGED {
                return Some(count.0);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use margay_capture::{PcapWriter, Resolution};
    use margay_packet::{LinkType, Time};

    use margay_config::Checksums;

    use super::*;

    /// A file of UDP datagrams. Each `nth` one has a wrong checksum.
    fn file(name: &str, packets: u16, nth: u16) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("margay-{name}-{}.pcap", std::process::id()));
        let out = File::create(&path).unwrap();
        let mut writer = PcapWriter::new(out, LinkType::ETHERNET, 65_535, Resolution::Micro).unwrap();
        for n in 0..packets {
            let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
            f.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
            // The sum of the pseudo-header, the header and the data.
            let mut sum: u32 = 17 + 12;
            for pair in f[26..].chunks(2) {
                sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
            }
            sum = (sum >> 16) + (sum & 0xffff);
            let mut checksum = !(sum as u16);
            if n % nth == 0 {
                checksum ^= 0x1234;
            }
            f[40..42].copy_from_slice(&checksum.to_be_bytes());
            writer.write(Time::new(1, i64::from(n)), &f, f.len() as u32).unwrap();
        }
        drop(writer);
        path
    }

    #[test]
    fn files_with_many_wrong_checksums_are_believed() {
        for (packets, nth, believed) in [(1200, 1, true), (1200, 9, true), (1200, 20, false), (900, 1, false)] {
            let path = file("checks", packets, nth);
            assert_eq!(FileChecks::Auto.believes(&path), believed, "each {nth}th of {packets}");
            assert!(!FileChecks::Checked.believes(&path) && FileChecks::Believed.believes(&path));
            std::fs::remove_file(path).unwrap();
        }
        assert!(!FileChecks::Auto.believes(Path::new("/no/such/file")));
    }

    #[test]
    fn the_command_line_comes_first() {
        let of = |text: &str, checksums| {
            let config =
                Config::from_str(&format!("%YAML 1.1\n---\npcap-file: {{checksum-checks: {text}}}\n"), "t").unwrap();
            FileChecks::of(&config, &RunOptions { checksums, ..RunOptions::default() })
        };
        assert_eq!(of("auto", None).unwrap(), FileChecks::Auto);
        assert_eq!((of("no", None).unwrap(), of("yes", None).unwrap()), (FileChecks::Believed, FileChecks::Checked));
        assert_eq!(of("no", Some(Checksums::All)).unwrap(), FileChecks::Checked);
        assert!(of("perhaps", None).is_err());
    }
}
