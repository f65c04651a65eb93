//! One-line descriptions of keywords, for keyword lists. A keyword's own file has the text; for buffers and fields of protocols
//! it follows from their names.

use crate::info::{KeywordInfo, KeywordKind};

/// The one-line description of a keyword.
pub(crate) fn of(k: &KeywordInfo) -> String {
    match (k.kind, k.buffer, k.protocols.first()) {
        (KeywordKind::Transform, ..) => format!("transform of the selected buffer: {}", k.about),
        _ if !k.about.is_empty() => k.about.to_owned(),
        (KeywordKind::StickyBuffer, Some(b), _) => format!("sticky buffer: {}", b.description),
        (KeywordKind::Modifier, Some(b), _) => format!("the content before it is looked for in {}", b.name),
        (_, _, Some(protocol)) => {
            let field = k.name.split_once(['.', '_']).map_or(k.name, |n| n.1).replace(['.', '_'], " ");
            format!("{}: {field}", protocol.to_ascii_uppercase())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_says_what_it_does() {
        for k in crate::info::all_keywords() {
            assert!(!of(&k).is_empty(), "{} has no description", k.name);
            assert!(!of(&k).contains(';'), "{}: a semicolon divides the columns of lists", k.name);
        }
    }
}
