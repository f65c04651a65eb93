//! Every file of the corpora through its target.

use std::path::Path;

#[test]
fn corpus_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for &(name, target) in margay_fuzz_replay::TARGETS {
        let mut files = 0;
        for entry in std::fs::read_dir(root.join(name)).unwrap_or_else(|e| panic!("corpus of {name}: {e}")) {
            let path = entry.expect("a folder entry").path();
            let data = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            target(&data);
            files += 1;
        }
        assert!(files > 0, "the corpus of {name} is empty");
    }
}
