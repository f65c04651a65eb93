//! Queue, spool and thread with simulated peers. The command's tests use real servers.

#[cfg(feature = "kafka")]
mod kafka;

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;

/// A simulated peer that may be away, and that takes a given number of lines before it fails.
#[derive(Clone, Default)]
struct Peer(Arc<PeerState>);

#[derive(Default)]
struct PeerState {
    away: AtomicBool,
    got: Mutex<Vec<u8>>,
    /// Number of lines after which the connection breaks, once for each batch.
    breaks: Mutex<Vec<usize>>,
}

impl Transport for Peer {
    fn connect(&mut self) -> Result<(), String> {
        if self.0.away.load(Ordering::SeqCst) { Err("nobody there".into()) } else { Ok(()) }
    }

    fn send(&mut self, lines: &[u8]) -> Outcome {
        if self.0.away.load(Ordering::SeqCst) {
            return Outcome::Failed { rest: lines.to_vec(), why: "gone".into() };
        }
        let take = self.0.breaks.lock().unwrap().pop();
        let all: Vec<&[u8]> = lines.split_inclusive(|&b| b == b'\n').collect();
        let n = take.unwrap_or(all.len()).min(all.len());
        self.0.got.lock().unwrap().extend(all[..n].concat());
        if n < all.len() || take.is_some() {
            return Outcome::Failed { rest: all[n..].concat(), why: "broke".into() };
        }
        Outcome::Done { refused: 0, why: None }
    }
}

impl Peer {
    fn got(&self) -> Vec<u8> {
        self.0.got.lock().unwrap().clone()
    }
}

fn settings(queue: usize, when_full: WhenFull, spool: Option<(&std::path::Path, u64)>) -> Arc<RemoteSettings> {
    let stream =
        StreamSettings { address: "peer:1".into(), datagrams: false, tls: None, framing: StreamFraming::Lines };
    let spool = spool.map(|(dir, max_size)| SpoolSettings { dir: dir.to_owned(), max_size });
    Arc::new(RemoteSettings { kind: RemoteKind::Stream(stream), queue, when_full: Some(when_full), spool })
}

fn start(peer: &Peer, settings: &Arc<RemoteSettings>) -> Remote {
    Remote::with(settings, Box::new(peer.clone())).unwrap()
}

fn line(n: usize) -> Vec<u8> {
    format!("{{\"event\":{n}}}\n").into_bytes()
}

#[test]
fn everything_arrives_in_order() {
    let peer = Peer::default();
    let remote = start(&peer, &settings(1 << 20, WhenFull::Drop, None));
    let want: Vec<u8> = (0..1000).flat_map(line).collect();
    for n in 0..1000 {
        assert_eq!(remote.put(&line(n)), 0);
    }
    remote.finish();
    assert_eq!(peer.got(), want);
    let c = remote.counters();
    assert_eq!((c.sent, c.lost, c.queued), (1000, 0, 0));
    // Another worker finishes later.
    assert_eq!(remote.put(b"late\n"), 0);
    remote.finish();
    assert_eq!(remote.counters().sent, 1001);
}

#[test]
fn a_broken_connection_neither_loses_nor_doubles_whole_lines() {
    let peer = Peer::default();
    peer.0.breaks.lock().unwrap().extend([3, 0, 1]);
    let remote = start(&peer, &settings(1 << 20, WhenFull::Drop, None));
    let all: Vec<u8> = (0..10).flat_map(line).collect();
    remote.put(&all);
    remote.finish();
    assert_eq!(peer.got(), all);
    let c = remote.counters();
    assert_eq!((c.sent, c.lost), (10, 0));
    assert!(c.reconnects >= 3, "{c:?}");
}

#[test]
fn a_full_queue_loses_and_counts() {
    let peer = Peer::default();
    peer.0.away.store(true, Ordering::SeqCst);
    let remote = start(&peer, &settings(100, WhenFull::Drop, None));
    let mut lost = 0;
    for n in 100..200 {
        lost += remote.put(&line(n));
    }
    assert!(lost > 80, "{lost}");
    peer.0.away.store(false, Ordering::SeqCst);
    remote.finish();
    let c = remote.counters();
    assert_eq!((c.sent + c.lost, c.lost), (100, lost));
    let got = peer.got();
    assert!(got.starts_with(&line(100)) && count::lines(&got) == c.sent);
}

#[test]
fn with_wait_nothing_is_lost() {
    let peer = Peer::default();
    peer.0.away.store(true, Ordering::SeqCst);
    let remote = start(&peer, &settings(100, WhenFull::Wait, None));
    let want: Vec<u8> = (0..200).flat_map(line).collect();
    std::thread::scope(|s| {
        let writer = s.spawn(|| (0..200).map(|n| remote.put(&line(n))).sum::<u64>());
        while remote.counters().queued < 80 {
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        peer.0.away.store(false, Ordering::SeqCst);
        assert_eq!(writer.join().unwrap(), 0);
    });
    remote.finish();
    assert_eq!(peer.got(), want);
}

#[test]
fn what_the_spool_has_is_sent_in_order_once_the_peer_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::default();
    peer.0.away.store(true, Ordering::SeqCst);
    let settings = settings(200, WhenFull::Wait, Some((dir.path(), 1 << 20)));
    let remote = start(&peer, &settings);
    let mut want = Vec::new();
    for n in 0..500 {
        want.extend(line(n));
        assert_eq!(remote.put(&line(n)), 0);
    }
    while remote.counters().spooled == 0 {
        std::thread::yield_now();
    }
    peer.0.away.store(false, Ordering::SeqCst);
    for n in 500..1000 {
        want.extend(line(n));
        remote.put(&line(n));
    }
    while count::lines(&peer.got()) < 1000 {
        std::thread::yield_now();
    }
    assert!(peer.got() == want);
    remote.finish();
    let c = remote.counters();
    assert_eq!((c.sent, c.lost, c.queued, c.spooled), (1000, 0, 0, 0));
}

#[test]
fn a_run_that_ends_while_the_peer_is_away_leaves_the_rest_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let peer = Peer::default();
    peer.0.away.store(true, Ordering::SeqCst);
    let settings = settings(1 << 20, WhenFull::Drop, Some((dir.path(), 1 << 20)));
    let began = Instant::now();
    let remote = start(&peer, &settings);
    for n in 0..50 {
        remote.put(&line(n));
    }
    remote.finish();
    let c = remote.counters();
    assert!(began.elapsed() < LAST_WAIT, "with a spool the end waits for nobody");
    assert_eq!((c.lost, c.sent, c.queued), (0, 0, 0));
    assert!(c.spooled > 0);
    drop(remote);
    peer.0.away.store(false, Ordering::SeqCst);
    let remote = start(&peer, &settings);
    remote.put(b"new\n");
    while count::lines(&peer.got()) < 51 {
        std::thread::yield_now();
    }
    drop(remote);
    let want: Vec<u8> = (0..50).flat_map(line).chain(*b"new\n").collect();
    assert_eq!(peer.got(), want);
}

#[test]
fn a_thread_that_panics_is_counted() {
    struct Bad;
    impl Transport for Bad {
        fn connect(&mut self) -> Result<(), String> {
            Ok(())
        }
        fn send(&mut self, _: &[u8]) -> Outcome {
            panic!("made up");
        }
    }
    let remote = Remote::with(&settings(1 << 20, WhenFull::Wait, None), Box::new(Bad)).unwrap();
    remote.put(b"one\n");
    while !remote.inner.lock().gone {
        std::thread::yield_now();
    }
    assert_eq!(remote.put(b"two\nthree\n"), 2);
    remote.finish();
    assert_eq!(remote.counters().lost, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whenever the connection breaks or the peer is away: with a spool every line arrives once, in order.
    #[test]
    fn any_outage(
        steps in proptest::collection::vec((0..3u8, 1..40usize), 1..30),
        breaks in proptest::collection::vec(0..20usize, 0..6),
        queue in 50..2000usize,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let peer = Peer::default();
        *peer.0.breaks.lock().unwrap() = breaks;
        let settings = settings(queue, WhenFull::Wait, Some((dir.path(), 1 << 24)));
        let mut want = Vec::new();
        let mut n = 0;
        let mut remote = start(&peer, &settings);
        for (what, many) in steps {
            match what {
                0 => peer.0.away.store(true, Ordering::SeqCst),
                1 => peer.0.away.store(false, Ordering::SeqCst),
                _ => {
                    // A new run opens the spool.
                    drop(remote);
                    remote = start(&peer, &settings);
                }
            }
            for _ in 0..many {
                want.extend(line(n));
                prop_assert_eq!(remote.put(&line(n)), 0);
                n += 1;
            }
        }
        peer.0.away.store(false, Ordering::SeqCst);
        drop(remote);
        let remote = start(&peer, &settings);
        let until = Instant::now() + Duration::from_secs(60);
        while count::lines(&peer.got()) < n as u64 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(remote);
        prop_assert_eq!(String::from_utf8(peer.got()).unwrap(), String::from_utf8(want).unwrap());
    }
}
