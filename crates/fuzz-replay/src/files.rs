//! Targets for files that the engine reads in addition to rules: `include`, `matcher_cache`, `geoip`.

use std::net::{IpAddr, Ipv4Addr};

use margay_config::Config;
use margay_detect::geoip::Countries;
use margay_detect::mpm::{replay, replay_written};

use crate::folder::folder;

/// A configuration in files that include one another. The first one is the main file, and a line `=== NAME` begins each other
/// file. Names cannot lead to other files.
pub fn include(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Skip paths that lead outside, and input that makes files large.
    if text.contains(['/', '\\', '~', '%']) || data.len() > 16 << 10 {
        return;
    }
    let folder = folder("include");
    let mut parts = text.split("\n=== ");
    let main = folder.join("main.yaml");
    std::fs::write(&main, parts.next().unwrap_or("")).expect("a file in memory");
    for part in parts.take(8) {
        let (name, text) = part.split_once('\n').unwrap_or((part, ""));
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
        if plain && (1..32).contains(&name.len()) && !name.starts_with('.') && name != "main.yaml" {
            std::fs::write(folder.join(name), text).expect("a file in memory");
        }
    }
    match Config::load(&main) {
        Ok(c) => {
            let mut out = Vec::new();
            c.dump(&mut out).expect("memory");
            for note in c.notes().iter().chain(&c.unknown_keys()) {
                assert!(!note.to_string().is_empty());
            }
            // Files may include one another many times over, up to the limits on depth, files and nodes.
            assert!(out.len() <= 64 << 20, "{} bytes of settings from {}", out.len(), data.len());
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// A file of the pattern cache: unchanged, or with a correct checksum if the first byte is odd. Reading it must give exactly the
/// content that was written, or nothing.
pub fn matcher_cache(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let folder = folder("matcher-cache");
    let mut file = bytes.to_vec();
    if first & 1 != 0 {
        file.extend_from_slice(&sha2(&file));
    }
    let read = replay(&folder, &file).expect("a folder in memory");
    if let Some(database) = read {
        let written = replay_written(&folder, &database).expect("a folder in memory");
        assert!(written == file, "a file that was not written so is taken");
    }
    if first & 2 != 0 {
        let written = replay_written(&folder, bytes).expect("a folder in memory");
        let read = replay(&folder, &written).expect("a folder in memory");
        assert!(read.as_deref() == Some(bytes), "what was written is not read");
    }
}

fn sha2(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}

/// A country database in MaxMind's format.
pub fn geoip(data: &[u8]) {
    if data.len() > 64 << 10 {
        return;
    }
    let Ok(countries) = Countries::from_bytes(data.to_vec()) else { return };
    for a in [0, 0x0a00_0001, 0x7f00_0001, 0xc000_0201, u32::MAX] {
        let country = countries.country(IpAddr::V4(Ipv4Addr::from(a)));
        assert!(country.is_none_or(|c| c.len() <= data.len()), "more than there is");
    }
    assert_eq!(countries.country(IpAddr::from([1; 16])), None, "a country of an IPv6 address");
}
