//! Cuts seeds for the fuzz targets: `fuzz-seeds OUT FILE...`, or `fuzz-seeds --list OUT FILE` where each line of FILE is a name. It
//! writes each seed to the folder of `OUT` with the target's name. The seed's name is a hash of its contents. `tools/fuzz-seeds`
//! calls this program with the available files.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use margay_fuzz_replay::seeds::Cutter;

fn run(out: &Path, files: &[String]) -> std::io::Result<()> {
    let mut cutter = Cutter::default();
    let mut written: BTreeMap<&str, usize> = BTreeMap::new();
    for name in files {
        let path = Path::new(name);
        let bytes = std::fs::read(path).map_err(|e| std::io::Error::new(e.kind(), format!("{name}: {e}")))?;
        let last = path.file_name().unwrap_or_default().to_string_lossy();
        let is_capture = [".pcap", ".pcapng", ".cap"].iter().any(|e| last.ends_with(e));
        let seeds = if is_capture { cutter.capture(&bytes) } else { cutter.text(&last, &bytes) };
        for (target, seed) in seeds {
            let mut h = DefaultHasher::new();
            h.write(&seed);
            let folder = out.join(target);
            std::fs::create_dir_all(&folder)?;
            let path = folder.join(format!("{:016x}", h.finish()));
            if !path.exists() {
                std::fs::write(path, seed)?;
                *written.entry(target).or_default() += 1;
            }
        }
    }
    let mut stdout = std::io::stdout().lock();
    for (target, n) in written {
        writeln!(stdout, "{n:6} {target}")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = std::env::args().skip(1);
    let mut words: Vec<String> = args.collect();
    let listed = words.first().is_some_and(|w| w == "--list");
    words.drain(..usize::from(listed));
    let Some((out, mut files)) = words.split_first().map(|(out, files)| (out, files.to_vec())) else {
        eprintln!("usage: fuzz-seeds OUT FILE... | fuzz-seeds --list OUT FILE");
        return ExitCode::from(2);
    };
    if listed {
        let Some(Ok(text)) = files.first().map(std::fs::read_to_string) else {
            eprintln!("fuzz-seeds: the list of files cannot be read");
            return ExitCode::FAILURE;
        };
        files = text.lines().map(str::to_owned).collect();
    }
    match run(Path::new(out), &files) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("fuzz-seeds: {e}");
            ExitCode::FAILURE
        }
    }
}
