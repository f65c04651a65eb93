//! A folder for this process alone, in memory if possible, for targets that read files.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// An empty folder for a target. Each call in this process returns the same one. A killed fuzzer leaves a few kilobytes
/// there.
pub(crate) fn folder(target: &str) -> PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let root = base.join(format!("margay-fuzz-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&root).expect("a folder for files");
        root
    });
    let folder = root.join(target);
    if folder.is_dir() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder).expect("a folder for files");
    folder
}
