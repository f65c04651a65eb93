use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};

use super::file::{cut, write_lines};
use super::*;
use crate::count;
use crate::settings::SinkKind;

fn sink(settings: SinkSettings) -> Sink {
    Sink::open(settings, Time::new(86_400, 0)).unwrap()
}

#[test]
fn a_listener_that_does_not_accept_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let settings = SinkSettings { kind: SinkKind::UnixStream, ..SinkSettings::file(&path) };
    let sinks: Vec<Sink> = (0..300).map(|_| sink(settings.clone())).collect();
    drop(sinks);
}

#[test]
fn files_are_appended_to_or_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/eve.json");
    for (append, want) in [(true, "a\n"), (true, "a\na\n"), (false, "a\n")] {
        let mut s = sink(SinkSettings { append, mode: 0o640, ..SinkSettings::file(&path) });
        s.line(b"a\n");
        s.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(Sink::open(SinkSettings::file(dir.path()), Time(0)).unwrap_err().to_string().contains("cannot be"));
}

#[test]
fn a_buffer_holds_lines_back_until_it_is_full_or_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let mut s = sink(SinkSettings { buffer_size: 10, ..SinkSettings::file(&path) });
    let read = || std::fs::read_to_string(&path).unwrap();
    s.line(b"1234\n");
    s.hand_over();
    assert_eq!(read(), "");
    s.line(b"5678\n");
    s.line(b"9\n");
    s.hand_over();
    assert_eq!(read(), "1234\n5678\n");
    s.line(b"longer than the buffer\n");
    s.hand_over();
    assert_eq!(read(), "1234\n5678\n9\nlonger than the buffer\n");
    s.line(b"x\n");
    s.tick(Time(0));
    assert!(read().ends_with("buffer\nx\n"));
}

#[test]
fn workers_share_a_file_and_write_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let first = sink(SinkSettings::file(&path));
    std::thread::scope(|scope| {
        for t in 0..4 {
            let mut s = first.share();
            scope.spawn(move || {
                for i in 0..500 {
                    s.line(format!("{t} {i} {}\n", "x".repeat(i)).as_bytes());
                    if i % 7 == 0 {
                        s.hand_over();
                    }
                }
                s.finish();
            });
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2000);
    assert!(text.lines().all(|l| {
        let mut w = l.split(' ');
        let n: usize = w.nth(1).unwrap().parse().unwrap();
        w.next().unwrap().len() == n
    }));
}

#[test]
fn a_thread_writes_and_order_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("f"), dir.path().join("f.1"));
    let mut s = sink(SinkSettings::file(&path));
    s.line(b"0\n");
    let writer = Arc::new(Writer::start().unwrap());
    s.write_aside(&writer, 1000);
    let mut want = String::from("0\n");
    let line = |i: usize| format!("{i} {}\n", "x".repeat(i % 300));
    for i in 1..5000 {
        s.line(line(i).as_bytes());
        want += &line(i);
        if i % 10 == 0 {
            s.end_batch();
        }
    }
    // A few bytes stay in the buffer; a flush writes them.
    s.flush();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    s.line(b"a\n");
    s.end_batch();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    std::fs::rename(&path, &moved).unwrap();
    s.reopen(Time(0));
    s.line(b"b\n");
    s.tick(Time(0));
    writer.drain();
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), want + "a\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\n");
    let mut full = sink(SinkSettings::file("/dev/full"));
    full.write_aside(&writer, 0);
    full.line(b"{}\n{}\n");
    full.finish();
    assert_eq!(full.lost(), 2);
}

#[test]
fn a_full_disk_loses_lines_and_says_so_once() {
    let mut s = sink(SinkSettings::file("/dev/full"));
    for _ in 0..3 {
        s.line(b"{}\n{}\n");
        s.flush();
    }
    assert_eq!(s.lost(), 6);
    s.finish();
    assert_eq!(s.lost(), 6);
}

#[test]
fn half_lines_are_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, "whole\nhal").unwrap();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    cut(&file, 3).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\n");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert!(cut(&full, 1).is_err());
}

/// A disk with limited room.
struct Disk(Vec<u8>, usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.1 - self.0.len());
        self.0.extend_from_slice(&bytes[..n]);
        if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_fills_up_within_a_line() {
    let lines = b"first\nsecond\nthird\n";
    for room in 0..lines.len() {
        let whole = lines[..room].iter().filter(|&&b| b == b'\n').count() as u64;
        let mut disk = Disk(Vec::new(), room);
        let mut taken = 0;
        let failed = write_lines(&mut disk, lines, false, |half| {
            taken = half as usize;
            Ok(())
        });
        let failed = failed.err().unwrap();
        assert_eq!((failed.lost, failed.broken), (3 - whole, false));
        disk.0.truncate(disk.0.len() - taken);
        assert!(disk.0.is_empty() || disk.0.ends_with(b"\n"));
        assert_eq!(count::lines(&disk.0), whole);
    }
    // If nothing can be cut, the next write ends the partial line.
    let mut disk = Disk(Vec::new(), 8);
    let cannot = |_| Err(io::ErrorKind::InvalidInput.into());
    assert!(write_lines(&mut disk, lines, false, cannot).err().unwrap().broken);
    disk.1 = 100;
    assert!(write_lines(&mut disk, b"next\n", true, cannot).is_ok());
    assert_eq!(disk.0, b"first\nse\nnext\n");
}

#[test]
fn half_a_line_of_another_process_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    for (there, want) in [("whole\nhal", "whole\nhal\nnext\n"), ("whole\n", "whole\nnext\n"), ("", "next\n")] {
        std::fs::write(&path, there).unwrap();
        let mut s = sink(SinkSettings::file(&path));
        s.line(b"next\n");
        s.finish();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
    }
}

#[test]
fn a_moved_file_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("f"), dir.path().join("f.1"));
    let mut s = sink(SinkSettings::file(&path));
    s.line(b"1\n");
    s.flush();
    std::fs::rename(&path, &moved).unwrap();
    s.line(b"2\n");
    s.reopen(Time(0));
    s.line(b"3\n");
    s.flush();
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "1\n2\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "3\n");
}

#[test]
fn rotation_by_time_gives_new_names() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SinkSettings { rotate_interval: Some(60), ..SinkSettings::file(dir.path().join("eve-%s.json")) };
    let mut s = Sink::open(settings, Time::new(600, 0)).unwrap();
    s.line(b"1\n");
    s.tick(Time::new(659, 0));
    s.line(b"2\n");
    s.tick(Time::new(660, 5));
    s.line(b"3\n");
    s.tick(Time::new(661, 0));
    let read = |n: &str| std::fs::read_to_string(dir.path().join(n)).unwrap();
    assert_eq!(read("eve-600.json"), "1\n2\n");
    assert_eq!(read("eve-660.json"), "3\n");
    // The interval counts from the start, and nothing is made while nothing is written.
    let settings = SinkSettings { rotate_interval: Some(60), ..SinkSettings::file(dir.path().join("log-%s.json")) };
    let mut s = Sink::open(settings, Time::new(690, 0)).unwrap();
    s.line(b"1\n");
    for second in [720, 750, 810] {
        s.tick(Time::new(second, 0));
    }
    s.line(b"2\n");
    s.tick(Time::new(811, 0));
    assert_eq!((read("log-690.json"), read("log-810.json")), ("1\n".into(), "2\n".into()));
    assert!(!dir.path().join("log-750.json").exists());
}

#[test]
fn stream_sockets_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let settings = SinkSettings { kind: SinkKind::UnixStream, ..SinkSettings::file(&path) };
    // The socket has no listener yet.
    let mut s = sink(settings);
    s.line(b"lost\n");
    s.flush();
    assert_eq!(s.lost(), 1);
    let listener = UnixListener::bind(&path).unwrap();
    s.tick(Time(0));
    s.line(b"1\n");
    s.flush();
    let (mut peer, _) = listener.accept().unwrap();
    let mut two = [0; 2];
    peer.read_exact(&mut two).unwrap();
    assert_eq!(&two, b"1\n");
    // The reader leaves and returns: the new one gets the line.
    drop(peer);
    s.line(b"2\n");
    s.flush();
    let (mut peer, _) = listener.accept().unwrap();
    peer.read_exact(&mut two).unwrap();
    assert_eq!(&two, b"2\n");
    // The reader leaves for good.
    drop((peer, listener));
    s.line(b"3\n");
    s.flush();
    assert_eq!(s.lost(), 2);
}

#[test]
fn a_slow_stream_gets_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let mut s = sink(SinkSettings { kind: SinkKind::UnixStream, ..SinkSettings::file(&path) });
    let (mut peer, _) = listener.accept().unwrap();
    let line = [&[b'x'; 9999][..], b"\n"].concat();
    for _ in 0..200 {
        s.line(&line);
        s.hand_over();
    }
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    s.finish();
    let lost = s.lost();
    assert!(lost > 0);
    drop(s);
    let all = reader.join().unwrap();
    assert_eq!(all.len() % line.len(), 0);
    assert_eq!((all.len() / line.len()) as u64 + lost, 200);
}

#[test]
fn datagrams_and_syslog_are_one_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let server = UnixDatagram::bind(&path).unwrap();
    let mut buf = [0u8; 200];
    let mut s = sink(SinkSettings { kind: SinkKind::UnixDgram, ..SinkSettings::file(&path) });
    s.line(b"{\"a\":1}\n");
    s.line(b"{\"b\":2}\n");
    s.flush();
    for want in ["{\"a\":1}\n", "{\"b\":2}\n"] {
        let n = server.recv(&mut buf).unwrap();
        assert_eq!(&buf[..n], want.as_bytes());
    }
    let mut s = sink(SinkSettings { kind: SinkKind::Syslog, ..SinkSettings::file(&path) });
    s.line(b"{}\n");
    s.flush();
    let n = server.recv(&mut buf).unwrap();
    let want = format!("<134>suricata[{}]: {{}}", std::process::id());
    assert_eq!(&buf[..n], want.as_bytes());
    drop(server);
    s.line(b"{}\n");
    s.flush();
    assert_eq!(s.lost(), 1);
}
