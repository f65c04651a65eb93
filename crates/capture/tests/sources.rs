//! Files, folders and standard input as one stream of events.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use margay_capture::{
    CaptureSource, DeletePolicy, DirOptions, Error, Event, FilterSet, PcapWriter, Resolution, SkipReason, delete,
};
use margay_packet::{LinkType, Time};

/// Writes a capture of `frames` frames, last written to `age` seconds after some day.
fn capture(file: &Path, frames: u8, age: u64) {
    let mut w = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 65535, Resolution::Micro).unwrap();
    for i in 0..frames {
        w.write(Time::new(1, 0), &[i; 20], 20).unwrap();
    }
    put(file, &w.into_inner(), age);
}

fn put(file: &Path, bytes: &[u8], age: u64) {
    let mut f = File::create(file).unwrap();
    f.write_all(bytes).unwrap();
    f.set_modified(day(age)).unwrap();
}

fn day(age: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + age)
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// The events, one line each, until `Done` or `Wait`. `now` is seconds after the day.
fn run(source: &mut CaptureSource, now: u64) -> Vec<String> {
    let mut log = Vec::new();
    loop {
        log.push(match source.next_event(2, || day(now)) {
            Event::FileStart(s) => format!("start {} {:?}", name(&s.file), s.link.map(|l| l.0)),
            Event::Batch(b) => format!("frames {:?}", b.iter().map(|f| f.number).collect::<Vec<_>>()),
            Event::FileEnd(e) => {
                let error = e.error.map(|e| matches!(e, Error::Truncated { .. }));
                format!("end {} {} {error:?}", name(&e.file), e.counters.frames)
            }
            Event::Failed { file, error } => {
                assert!(error.to_string().contains(&name(&file)), "{error}");
                format!("failed {}", name(&file))
            }
            Event::Skipped { file, reason } => {
                assert_eq!(reason, SkipReason::NotAFile);
                format!("skipped {}", name(&file))
            }
            Event::Wait(time) => {
                log.push(format!("wait {}", time.as_secs()));
                return log;
            }
            Event::Done => return log,
            other => panic!("{other:?}"),
        });
    }
}

fn open(path: &Path, options: DirOptions) -> CaptureSource {
    CaptureSource::open(path, options, None).unwrap()
}

#[test]
fn one_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    capture(&file, 3, 0);
    let mut source = open(&file, DirOptions { continuous: true, ..DirOptions::default() });
    assert_eq!(source.progress().fraction(), Some(0.0));
    assert_eq!(run(&mut source, 0), ["start a.pcap Some(1)", "frames [1, 2]", "frames [3]", "end a.pcap 3 None"]);
    let p = source.progress();
    assert_eq!((p.bytes_read, p.total, p.packets, p.packet_bytes), (132, Some(132), 3, 60));
    assert_eq!((source.files(), source.counters().frames), (1, 3));
}

#[test]
fn a_missing_file_is_told_at_once() {
    let error = CaptureSource::open(Path::new("no-such.pcap"), DirOptions::default(), None).unwrap_err().to_string();
    assert!(error.starts_with("no-such.pcap: cannot be opened: No such file"), "{error}");
}

#[test]
fn a_folder_oldest_first_with_what_is_broken_reported() {
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n);
    capture(&at("z.pcap"), 1, 10);
    capture(&at("b.pcap"), 1, 30);
    capture(&at("a.pcap"), 1, 30);
    capture(&at("cut.pcap"), 2, 20);
    let bytes = fs::read(at("cut.pcap")).unwrap();
    put(&at("cut.pcap"), &bytes[..bytes.len() - 1], 20);
    put(&at("notes.txt"), b"nothing of interest", 25);
    put(&at("empty"), b"", 26);
    fs::create_dir(at("sub")).unwrap();
    capture(&at("sub/s.pcap"), 1, 5);
    #[cfg(unix)]
    std::os::unix::fs::symlink(at("a.pcap"), at("link.pcap")).unwrap();

    let plain = [
        "skipped link.pcap",
        "start z.pcap Some(1)",
        "frames [1]",
        "end z.pcap 1 None",
        "start cut.pcap Some(1)",
        "frames [2]",
        "end cut.pcap 1 Some(true)",
        "failed notes.txt",
        "failed empty",
        "start a.pcap Some(1)",
        "frames [3]",
        "end a.pcap 1 None",
        "start b.pcap Some(1)",
        "frames [4]",
        "end b.pcap 1 None",
    ];
    let mut source = open(dir.path(), DirOptions::default());
    assert_eq!(run(&mut source, 0), plain);
    assert_eq!(source.files(), 3);
    assert_eq!(source.progress().fraction(), Some(1.0));

    let mut source = open(dir.path(), DirOptions { recursive: true, ..DirOptions::default() });
    let log = run(&mut source, 0);
    assert_eq!(log[1..4], ["start s.pcap Some(1)", "frames [1]", "end s.pcap 1 None"]);
    assert_eq!(log.len(), plain.len() + 3);
    assert_eq!(log.last().unwrap(), "end b.pcap 1 None");
    assert!(log.contains(&"frames [5]".to_owned()));
}

#[test]
fn a_folder_is_watched() {
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n);
    let options = DirOptions {
        continuous: true,
        delay: Duration::from_secs(30),
        poll_interval: Duration::from_secs(7),
        ..DirOptions::default()
    };
    let mut source = open(dir.path(), options);
    assert_eq!(run(&mut source, 0), ["wait 7"]);
    capture(&at("a.pcap"), 1, 100);
    put(&at("text"), b"text", 101);
    assert_eq!(run(&mut source, 129), ["wait 7"], "may still be written to");
    assert_eq!(run(&mut source, 130), ["start a.pcap Some(1)", "frames [1]", "end a.pcap 1 None", "wait 7"]);
    assert_eq!(run(&mut source, 200), ["failed text", "wait 7"]);
    assert_eq!(run(&mut source, 300), ["wait 7"], "each file once, each failure told once");
    // A file of the same second as the last one read, with a name that sorts before it; and an older file.
    capture(&at("b.pcap"), 1, 101);
    capture(&at("0.pcap"), 1, 99);
    assert_eq!(run(&mut source, 400), ["start b.pcap Some(1)", "frames [2]", "end b.pcap 1 None", "wait 7"]);
    assert_eq!(run(&mut source, 500), ["wait 7"]);
    fs::remove_dir_all(dir.path()).unwrap();
    let log = run(&mut source, 600);
    assert!(log[0].starts_with("failed ") && log[1] == "wait 7" && log.len() == 2, "{log:?}");
    assert_eq!(run(&mut source, 700), ["wait 7"]);
}

#[test]
fn options_that_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let options = DirOptions { recursive: true, continuous: true, ..DirOptions::default() };
    let error = CaptureSource::open(dir.path(), options, None).unwrap_err();
    assert_eq!(error.to_string(), "--pcap-file-continuous and --pcap-file-recursive cannot be used together");
}

#[test]
fn the_filter_goes_from_file_to_file() {
    let dir = tempfile::tempdir().unwrap();
    capture(&dir.path().join("a"), 10, 1);
    capture(&dir.path().join("b"), 10, 2);
    let filter = Some(FilterSet::new("ether[0] & 1 = 1"));
    let mut source = CaptureSource::open(dir.path(), DirOptions::default(), filter).unwrap();
    let log = run(&mut source, 0).join("; ");
    let (c, p) = (source.counters(), source.progress());
    assert_eq!((c.frames, c.filtered, p.packets), (10, 10, 20), "{log}");
    assert!(log.contains("frames [10]"), "{log}");

    let filter = Some(FilterSet::new("no such filter"));
    let mut source = CaptureSource::open(dir.path(), DirOptions::default(), filter).unwrap();
    assert_eq!(
        run(&mut source, 0),
        ["start a Some(1)", "end a 0 Some(false)", "start b Some(1)", "end b 0 Some(false)"]
    );
}

#[test]
fn deleting_is_the_callers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    capture(&file, 1, 1);
    assert!(DeletePolicy::from_name("True").unwrap().applies(5));
    assert!(DeletePolicy::from_name("always").unwrap().applies(0));
    assert!(!DeletePolicy::from_name("no").unwrap().applies(0));
    let policy = DeletePolicy::from_name("non-alerts").unwrap();
    assert!(policy.applies(0) && !policy.applies(1));
    assert!(DeletePolicy::from_name("perhaps").is_none());
    run(&mut open(&file, DirOptions::default()), 0);
    assert!(file.exists());
    delete(&file).unwrap();
    assert!(!file.exists());
    assert!(delete(&file).unwrap_err().to_string().contains("cannot be deleted"));
}

/// Runs itself again with a capture as standard input.
#[test]
fn standard_input() {
    const CHILD: &str = "MARGAY_TEST_STDIN";
    if std::env::var_os(CHILD).is_some() {
        let mut source = open(Path::new("-"), DirOptions::default());
        assert_eq!(run(&mut source, 0), ["start - Some(1)", "frames [1, 2]", "frames [3]", "end - 3 None"]);
        assert_eq!(source.progress().total, None);
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file: PathBuf = dir.path().join("a.pcap");
    capture(&file, 3, 0);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "standard_input"])
        .env(CHILD, "1")
        .stdin(File::open(&file).unwrap())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

/// The bytes of a capture of three frames, and a pipe for them.
fn through_a_pipe(dir: &Path) -> (Vec<u8>, PathBuf) {
    let (file, pipe) = (dir.join("a.pcap"), dir.join("pipe"));
    capture(&file, 3, 0);
    margay_testing::named_pipe(&pipe);
    (fs::read(&file).unwrap(), pipe)
}

/// A pipe without data does not hold up the caller, at any byte of the capture.
#[test]
fn a_pipe_that_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, pipe) = through_a_pipe(dir.path());
    for preload in [false, true] {
        let mut source = open(&pipe, DirOptions::default()).preloading(preload);
        // Nobody writes to it yet.
        assert_eq!(run(&mut source, 0), ["wait 0"]);
        assert_eq!(run(&mut source, 0), ["wait 0"]);
        let mut to = File::options().write(true).open(&pipe).unwrap();
        let mut log = Vec::new();
        for byte in &bytes {
            log.extend(run(&mut source, 0).into_iter().filter(|l| l != "wait 0"));
            to.write_all(&[*byte]).unwrap();
        }
        drop(to);
        // The last wait may come before the end of the pipe is seen.
        while log.last().is_none_or(|l| !l.starts_with("end")) {
            log.extend(run(&mut source, 0).into_iter().filter(|l| l != "wait 0"));
        }
        let frames: &[&str] = match preload {
            false => &["frames [1]", "frames [2]", "frames [3]"],
            true => &["frames [1, 2]", "frames [3]"],
        };
        let expected = [&["start pipe Some(1)"], frames, &["end pipe 3 None"]].concat();
        assert_eq!(log, expected, "{preload}");
    }
}

/// A capture whose writer leaves in the middle is truncated, and one without a byte is none.
#[test]
fn a_pipe_that_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, pipe) = through_a_pipe(dir.path());
    for (written, expected) in [
        (bytes.len() - 1, &["start pipe Some(1)", "frames [1, 2]", "end pipe 2 Some(true)"][..]),
        (10, &["failed pipe"]),
        (0, &["failed pipe"]),
    ] {
        let mut source = open(&pipe, DirOptions::default());
        assert_eq!(run(&mut source, 0), ["wait 0"]);
        let mut to = File::options().write(true).open(&pipe).unwrap();
        to.write_all(&bytes[..written]).unwrap();
        drop(to);
        assert_eq!(run(&mut source, 0), expected);
    }
}
