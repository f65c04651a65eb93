//! The target `datasets`: files of datasets.

use margay_detect::dataset::read_text;
use margay_rules::ast::{SetFormat, SetKind, SetOptions};

/// Memory limit of a dataset here.
const MEMCAP: u64 = 1 << 20;
const KINDS: [SetKind; 5] = [SetKind::String, SetKind::Md5, SetKind::Sha256, SetKind::Ipv4, SetKind::Ip];

/// Dataset files: the first byte selects type and format, the rest is the file. Writing the content and reading it again must give
/// the same content.
pub fn datasets(data: &[u8]) {
    let Some((&which, text)) = data.split_first() else { return };
    let kind = KINDS.get(usize::from(which) % KINDS.len()).copied();
    let format = [SetFormat::Csv, SetFormat::Json, SetFormat::NdJson][usize::from(which) / KINDS.len() % 3];
    let options = SetOptions {
        kind,
        format,
        value_key: Some("a.b".into()),
        array_key: (which & 0x80 != 0).then(|| "c.d".into()),
        context_key: Some("k".into()),
        remove_key: which & 0x40 != 0,
        ..SetOptions::default()
    };
    match read_text(&options, text, MEMCAP) {
        Ok((written, _)) => {
            let again = SetOptions { kind, ..SetOptions::default() };
            let (rewritten, said) = read_text(&again, &written, MEMCAP).expect("what was written");
            assert!(said.is_empty(), "{said:?}");
            assert_eq!(rewritten, written);
        }
        Err(e) => assert!(!e.is_empty()),
    }
}
