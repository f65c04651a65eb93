//! Writes the dictionaries of the fuzz targets to a folder: `fuzz-dictionaries [fuzz/dictionaries]`.

use std::path::Path;

use margay_fuzz_replay::{TARGETS, dictionaries::dictionary};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "fuzz/dictionaries".into());
    std::fs::create_dir_all(&folder)?;
    for (target, _) in TARGETS {
        if let Some(text) = dictionary(target) {
            std::fs::write(Path::new(&folder).join(format!("{target}.dict")), text)?;
        }
    }
    Ok(())
}
