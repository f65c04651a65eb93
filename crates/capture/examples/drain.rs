//! Reads the first argument (a file, `-` or a folder) with the second as filter, and prints the speed.

use std::path::Path;
use std::time::{Instant, SystemTime};

use margay_capture::{CaptureSource, DirOptions, Event, FilterSet, ProgressDisplay, Style};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: drain FILE|FOLDER|- [FILTER]")?;
    let filter = arguments.next().map(|f| FilterSet::new(&f));
    let start = Instant::now();
    let mut source = CaptureSource::open(Path::new(&path), DirOptions::default(), filter)?;
    let mut display = ProgressDisplay::new(std::io::stderr(), Style::of(&std::io::stderr()), start);
    let mut sum = 0u64;
    loop {
        match source.next_event(256, SystemTime::now) {
            Event::Batch(batch) => {
                for frame in batch.iter() {
                    // Touch the bytes that a decoder would read.
                    sum += frame.data.get(12..40).unwrap_or(frame.data).iter().map(|&b| u64::from(b)).sum::<u64>();
                }
                display.update(&source.progress(), Instant::now())?;
            }
            Event::FileStart(start) => eprintln!("{}: {}", start.file.display(), start.format.name()),
            Event::FileEnd(end) => {
                if let Some(error) = end.error {
                    eprintln!("{error}");
                }
            }
            Event::Failed { error, .. } => eprintln!("{error}"),
            Event::Skipped { file, reason } => eprintln!("{}: {reason}", file.display()),
            Event::Wait(time) => std::thread::sleep(time),
            Event::Done => break,
            _ => {}
        }
    }
    display.finish(&source.progress(), Instant::now())?;
    println!("{:?}, sum {sum:x}, {:.3} s", source.counters(), start.elapsed().as_secs_f64());
    Ok(())
}
