//! `margay-hosts`: plays random conversations with the kernel behind the engine (`docs/hosts.md`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_hosts::conversation::Conversation;
use margay_hosts::generate;
use margay_hosts::host::Host;
use margay_hosts::play::{Bench, Mode, Outcome};
use margay_hosts::report::{Report, Verdict};
use margay_hosts::shrink::shrink;
use margay_hosts::undecidable;

const USAGE: &str = "usage: margay-hosts [options]\n\
    \n\
    Holds random conversations with the kernel's TCP/IP stack behind the engine, and compares what the host reads with what was inspected.\n\
    \n\
      --mode inline|passive     one of them; both by default\n\
      --count N                 conversations in each mode (20000)\n\
      --seed N                  which ones (1)\n\
      --from N                  the number of the first (0)\n\
      --class NAME              of one class\n\
      --jobs N                  threads, each with a host of its own (as many as processors)\n\
      --without REASON          what cannot be decided for this reason counts as slipped past; repeatable\n\
      --keep N                  conversations of a class that get past and are made small, at most (3)\n\
      -o DIR                    where these are written (out/hosts)\n\
      --replay FILE             holds the conversation of a file, and tells what happens; repeatable\n\
      --show N                  prints conversation number N\n\
      --list                    prints the classes\n";

/// Conversations in a batch: those that need real time to pass wait for it together. In a run of one class, all of them
/// may, so batches are smaller: the host has no room for that many.
const BATCH: usize = 20_000;
const BATCH_OF_CLASS: usize = 2000;
/// Time limit for minimising a conversation.
const SHRINKING: std::time::Duration = std::time::Duration::from_secs(20);

struct Wanted {
    modes: Vec<Mode>,
    count: u64,
    seed: u64,
    from: u64,
    class: Option<String>,
    jobs: usize,
    without: Vec<String>,
    keep: usize,
    out: PathBuf,
    replay: Vec<PathBuf>,
    show: Option<u64>,
    list: bool,
}

fn wanted(mut args: impl Iterator<Item = String>) -> Result<Option<Wanted>, String> {
    let mut w = Wanted {
        modes: vec![Mode::Inline, Mode::Passive],
        count: 20_000,
        seed: 1,
        from: 0,
        class: None,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        without: Vec::new(),
        keep: 3,
        out: PathBuf::from("out/hosts"),
        replay: Vec::new(),
        show: None,
        list: false,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("\"{text}\" is no number"));
        match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--mode" => {
                let name = value()?;
                w.modes =
                    vec![Mode::from_name(&name).ok_or_else(|| format!("\"{name}\" is no mode: inline, passive"))?];
            }
            "--count" => w.count = number(value()?)?,
            "--seed" => w.seed = number(value()?)?,
            "--from" => w.from = number(value()?)?,
            "--class" => {
                let name = value()?;
                if !generate::classes().any(|c| c == name) {
                    let all: Vec<&str> = generate::classes().collect();
                    return Err(format!("\"{name}\" is no class: {}", all.join(", ")));
                }
                w.class = Some(name);
            }
            "--jobs" => w.jobs = usize::try_from(number(value()?)?).unwrap_or(1).clamp(1, 64),
            "--without" => {
                let reason = value()?;
                if !undecidable::REASONS.contains(&reason.as_str()) {
                    return Err(format!("\"{reason}\" is no reason: {}", undecidable::REASONS.join(", ")));
                }
                w.without.push(reason);
            }
            "--keep" => w.keep = usize::try_from(number(value()?)?).unwrap_or(usize::MAX),
            "-o" => w.out = PathBuf::from(value()?),
            "--replay" => w.replay.push(PathBuf::from(value()?)),
            "--show" => w.show = Some(number(value()?)?),
            "--list" => w.list = true,
            _ => return Err(format!("{arg}: there is no such option")),
        }
    }
    Ok(Some(w))
}

fn main() -> ExitCode {
    let w = match wanted(std::env::args().skip(1)) {
        Ok(Some(w)) => w,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprint!("margay-hosts: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&w) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("margay-hosts: {why}");
            ExitCode::from(2)
        }
    }
}

/// Does what the options ask for. Returns whether nothing slipped past.
fn run(w: &Wanted) -> Result<bool, String> {
    if w.list {
        generate::classes().for_each(|c| println!("{c}"));
        return Ok(true);
    }
    if let Some(n) = w.show {
        print!("{}", generate::conversation(w.seed, n, w.class.as_deref()));
        return Ok(true);
    }
    let mut fine = true;
    for mode in &w.modes {
        fine &= if w.replay.is_empty() { hold(w, *mode)? } else { replay(w, *mode)? };
    }
    Ok(fine)
}

fn bench(mode: Mode, nth: usize) -> Result<Bench, String> {
    let host = Host::new().map_err(|e| e.to_string())?;
    let dir = std::env::temp_dir().join(format!("margay-hosts-{}-{nth}", std::process::id()));
    let made = Bench::new(mode, host, &dir);
    // The engine has read its rules, and writes nothing.
    let _ = std::fs::remove_dir_all(&dir);
    made
}

/// The findings of a thread.
#[derive(Default)]
struct Found {
    report: Report,
    kept: Vec<(PathBuf, Conversation)>,
    kept_of: std::collections::BTreeMap<String, usize>,
}

fn hold(w: &Wanted, mode: Mode) -> Result<bool, String> {
    let began = std::time::Instant::now();
    let jobs = w.jobs;
    let (held, past) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let all: Vec<Result<Found, String>> = std::thread::scope(|scope| {
        let start = |nth: usize| {
            scope.spawn(move || -> Result<Found, String> {
                let mut b = bench(mode, nth)?;
                let mut found = Found::default();
                let numbers: Vec<u64> = (w.from..w.from + w.count).skip(nth).step_by(jobs).collect();
                for numbers in numbers.chunks(if w.class.is_some() { BATCH_OF_CLASS } else { BATCH }) {
                    let all: Vec<Conversation> =
                        numbers.iter().map(|i| generate::conversation(w.seed, *i, w.class.as_deref())).collect();
                    for ((i, c), out) in numbers.iter().zip(&all).zip(b.play_all(&all).map_err(|e| e.to_string())?) {
                        let verdict = verdict(w, mode, &out);
                        found.report.add(&c.class, &out, &verdict);
                        let kept = found.kept_of.entry(c.class.clone()).or_default();
                        if matches!(verdict, Verdict::Slipped(_)) && *kept < w.keep {
                            *kept += 1;
                            // If the conversation needs real time to pass, each attempt takes a second.
                            let until = std::time::Instant::now() + SHRINKING;
                            let in_time = || std::time::Instant::now() < until;
                            let small = shrink(c, &mut |c| in_time() && slips(w, &mut b, c));
                            found.kept.push((keep(&w.out, mode, w.seed, *i, &small)?, small));
                        }
                        past.fetch_add(u64::from(matches!(verdict, Verdict::Slipped(_))), Ordering::Relaxed);
                    }
                    let n = held.fetch_add(numbers.len() as u64, Ordering::Relaxed) + numbers.len() as u64;
                    let (past, seconds) = (past.load(Ordering::Relaxed), began.elapsed().as_secs());
                    eprintln!("{}: {n} of {} held, {past} slipped past, {seconds} s", mode.name(), w.count);
                }
                Ok(found)
            })
        };
        let threads: Vec<_> = (0..jobs).map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread failed".to_owned()))).collect()
    });
    let mut report = Report::default();
    let mut kept = Vec::new();
    for found in all {
        let found = found?;
        report.merge(found.report);
        kept.extend(found.kept);
    }
    let seconds = began.elapsed().as_secs_f64();
    print!("{}", report.table(mode));
    let n = report.conversations();
    println!("{n} conversations, seed {}, {seconds:.1} s, {:.0} a second\n", w.seed, n as f64 / seconds);
    for (path, c) in &kept {
        println!("slipped past: {}\n{c}", path.display());
    }
    Ok(report.slipped() == 0)
}

fn slips(w: &Wanted, b: &mut Bench, c: &Conversation) -> bool {
    let mode = b.mode();
    b.play(c).is_ok_and(|out| matches!(verdict(w, mode, &out), Verdict::Slipped(_)))
}

/// The verdict on a conversation, if the reasons in `without` do not count.
fn verdict(w: &Wanted, mode: Mode, out: &Outcome) -> Verdict {
    match (Verdict::of(mode, out), &out.difference) {
        (Verdict::Undecidable(why), Some(d)) if w.without.iter().any(|reason| reason == why) => {
            Verdict::Slipped(d.clone())
        }
        (verdict, _) => verdict,
    }
}

fn keep(dir: &Path, mode: Mode, seed: u64, n: u64, c: &Conversation) -> Result<PathBuf, String> {
    let path = dir.join(format!("{}-{}-{seed}-{n}.txt", mode.name(), c.class));
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::create_dir_all(dir).map_err(failed)?;
    std::fs::write(&path, format!("# {}\n{c}", mode.name())).map_err(failed)?;
    Ok(path)
}

fn replay(w: &Wanted, mode: Mode) -> Result<bool, String> {
    let mut b = bench(mode, 0)?;
    let mut fine = true;
    for path in &w.replay {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let c = Conversation::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        b.trace = true;
        let out = b.play(&c).map_err(|e| e.to_string())?;
        let verdict = verdict(w, mode, &out);
        tell(&c, mode, &out, &verdict);
        fine &= !matches!(verdict, Verdict::Slipped(_));
    }
    Ok(fine)
}

fn tell(c: &Conversation, mode: Mode, out: &Outcome, verdict: &Verdict) {
    println!("{}, {}:", mode.name(), c.class);
    println!("host read {} bytes: {}", out.read.len(), out.read.escape_ascii());
    println!(
        "inspected {} bytes; dropped {:?}; replaced {}; events {:?}",
        out.inspected, out.dropped, out.replaced, out.events
    );
    match verdict {
        Verdict::Fine => println!("all of it was inspected\n"),
        Verdict::Undecidable(why) => println!("not all of it was inspected: {why}\n"),
        Verdict::Slipped(d) => println!("byte {} {}\n", d.at, d.how.text()),
    }
}
