//! Targets that are their own normalised form: most are, and need neither decoding nor memory.

use crate::config::http1::ServerConfig;

/// Whether the normalised form of a target is the target itself, since nothing in it has to be decoded: a path, and maybe a
/// query. Returns the length of its path. Most targets are like that.
pub(super) fn path_length(raw: &[u8], config: &ServerConfig) -> Option<usize> {
    let (path, query) = match memchr::memchr(b'?', raw) {
        Some(at) => raw.split_at_checked(at)?,
        None => (raw, &[][..]),
    };
    if path.first() != Some(&b'/') {
        return None;
    }
    let mut before = 0;
    for &b in path {
        match b {
            // Repeated slashes and dot segments.
            b'/' | b'.' if before == b'/' => return None,
            b'%' | b'\\' | b'#' | 0 | 0x80.. => return None,
            b'A'..=b'Z' if config.path.lowercase => return None,
            _ => before = b,
        }
    }
    if query.iter().any(|b| matches!(b, b'%' | b'+' | b'#')) { None } else { Some(path.len()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::http1::Personality;
    use crate::http1::uri::{UriFlags, normalise_parts, split};

    proptest! {
        /// A target that needs no normalisation is what normalisation would make of it, on every server.
        #[test]
        fn unchanged_targets_stay_as_they_are(raw in "/?[a.A/%\\\\\\x00?#+2Fé ]{0,12}") {
            for p in [Personality::Minimal, Personality::Ids, Personality::Iis40, Personality::Iis75, Personality::Apache2] {
                let mut config = ServerConfig::default();
                config.set_personality(p);
                let raw = raw.as_bytes();
                let mut out = Vec::new();
                let (flags, path) = normalise_parts(&split(raw), &config, &mut out);
                if let Some(len) = path_length(raw, &config) {
                    prop_assert_eq!((&out[..], path), (raw, 0..len));
                    prop_assert_eq!(flags, UriFlags::default());
                }
            }
        }
    }

    #[test]
    fn usual_targets_are_unchanged() {
        let config = ServerConfig::default();
        for (raw, path) in [(&b"/"[..], Some(1)), (b"/a/b.html?x=1&y=/../", Some(9)), (b"/a/../b", None), (b"*", None)]
        {
            assert_eq!(path_length(raw, &config), path);
        }
    }
}
