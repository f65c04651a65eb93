//! Findings: each counter that should stay at 0, with its meaning and the setting to change.

use crate::model::{Counters, Finding, Grade, Stage, value};

/// A counter that should stay at 0.
struct Sign {
    counter: &'static str,
    what: &'static str,
    advice: &'static str,
}

const fn sign(counter: &'static str, what: &'static str, advice: &'static str) -> Sign {
    Sign { counter, what, advice }
}

/// Counters of all workers together.
const SIGNS: &[Sign] = &[
    sign(
        "tcp.ssn_memcap_drop",
        "TCP connections are not followed: no memory for them",
        "raise stream.memcap, or give the engine more memory",
    ),
    sign(
        "tcp.segment_memcap_drop",
        "TCP data is not reassembled: no memory for it",
        "raise stream.reassembly.memcap, or lower stream.reassembly.depth",
    ),
    sign("flow.memcap", "flows are not kept: no memory for them", "raise flow.memcap, or shorten flow-timeouts"),
    sign(
        "flow.get_used",
        "flows are ended early to make room for new ones",
        "raise flow.memcap, or shorten flow-timeouts",
    ),
    sign(
        "flow.emerg_mode_entered",
        "the flow table was nearly full: flows end sooner",
        "raise flow.memcap, or shorten flow-timeouts",
    ),
    sign(
        "defrag.max_trackers_reached",
        "fragments are discarded: too many incomplete datagrams",
        "raise defrag.trackers",
    ),
    sign("defrag.max_frags_reached", "fragments are discarded: too many are held", "raise defrag.max-frags"),
    sign("defrag.memcap", "fragments are discarded: no memory for them", "raise defrag.memcap"),
    sign("app_layer.memcap", "protocols are not parsed further: no memory for it", "raise app-layer.memcap"),
    sign("http.memcap", "HTTP is not parsed further: no memory for it", "raise app-layer.protocols.http.memcap"),
    sign("ftp.memcap", "FTP is not parsed further: no memory for it", "raise app-layer.protocols.ftp.memcap"),
    sign(
        "detect.alert_queue_overflow",
        "alerts on a packet are lost: too many rules match it",
        "raise packet-alert-max, or look for rules that match too much",
    ),
    sign(
        "detect.threshold_memcap",
        "thresholds do not count all addresses: no memory for it",
        "raise detect.thresholds.memcap",
    ),
    sign("detect.host_memcap", "host bits are not set: no memory for them", "raise host.memcap"),
    sign(
        "detect.flowvar_memcap",
        "flow variables are not set: no memory for them",
        "look for rules that capture large values",
    ),
    sign(
        "detect.dataset_memcap",
        "datasets do not take more entries: no memory for them",
        "raise memcap of the dataset, or datasets.defaults.memcap",
    ),
    sign(
        "detect.lua.instruction_limit_errors",
        "Lua scripts are stopped: they take too long",
        "fix the script, or raise security.lua.max-instructions",
    ),
    sign(
        "detect.lua.memory_limit_errors",
        "Lua scripts are stopped: they take too much memory",
        "fix the script, or raise security.lua.max-bytes",
    ),
    sign(
        "file_store.files_lost",
        "files are not stored: the disk is too slow, or full",
        "store fewer files (filestore in rules), or on a faster disk",
    ),
    sign(
        "file_store.fs_errors",
        "files are not stored: they cannot be written",
        "look at the folder of file-store, and its disk",
    ),
    sign(
        "file_store.over_quota",
        "files are not stored: the store is full",
        "raise the quota of file-store, or clear its folder",
    ),
    sign(
        "file.range_memcap_hit",
        "files fetched in ranges are not joined: no memory for them",
        "raise app-layer.protocols.http.byterange.memcap",
    ),
    sign(
        "eve.lost",
        "events are lost: a file or socket did not take them",
        "look at the disk, and at the reader of the socket",
    ),
    sign(
        "eve.waits",
        "workers wait until events are written: the disk is too slow",
        "write fewer event types, or to a faster disk, or set buffer-size",
    ),
    sign("pcap_log.lost", "packets are missing in the capture log", "look at the disk of pcap-log"),
    sign("pcap_log.not_held", "data before alerts is missing in the capture log", "raise hold-memcap of pcap-log"),
    sign("engine.failed_threads", "a thread of the engine failed", "look at the engine's log, and report a bug"),
    sign("watchdog.stuck", "a worker was stuck", "look at the engine's log, and report a bug"),
];

/// The meaning of a stage's loss, and its remedy.
fn of_stage(stage: &str) -> (&'static str, &'static str) {
    match stage {
        "card" => (
            "the card has no room for packets: the host does not fetch them in time",
            "enlarge its rings (ethtool -G), or spread it over more queues; margay tune proposes both",
        ),
        "softnet" => (
            "the host's backlog is full: the kernel does not keep up before packets come to the engine",
            "raise net.core.netdev_max_backlog, and spread interrupts over processors; margay tune proposes both",
        ),
        "ring" => (
            "the ring is full: workers are slower than the packets",
            "raise threads, or ring-size of the interface; look for expensive rules (profiling.rules); bypass traffic that needs no inspection",
        ),
        "queue" => (
            "the queue of netfilter is full: the worker is slower than the packets",
            "raise the queue's length (nfq.queue-length) or use more queues (-q 0:3)",
        ),
        "engine" => ("packets from the ring could not be decoded", "report a bug with a capture"),
        _ => ("accepted packets were not forwarded", "look at the other interface: is it up, is its MTU as large?"),
    }
}

/// A worker above this share of one CPU is reported, in percent.
const BUSY: f64 = 95.0;

/// Problems now and since the start: current ones first, then past ones, then remarks. `before` has the counters of `seconds`
/// ago.
pub fn findings(
    totals: &Counters,
    before: &Counters,
    seconds: f64,
    stages: &[Stage],
    workers: &[crate::model::Worker],
) -> Vec<Finding> {
    let mut all = Vec::new();
    for s in stages.iter().filter(|s| s.lost > 0) {
        let (what, advice) = of_stage(&s.stage);
        let grade = if s.rate > 0.0 { Grade::Now } else { Grade::Past };
        all.push(Finding {
            grade,
            counter: format!("{} {}", s.interface, s.stage),
            count: s.lost,
            rate: s.rate,
            what: what.into(),
            advice: advice.into(),
        });
    }
    for s in SIGNS {
        let (now, then) = (value(totals, s.counter), value(before, s.counter));
        if now == 0 {
            continue;
        }
        let rate = now.saturating_sub(then) as f64 / seconds.max(0.001);
        all.push(Finding {
            grade: if rate > 0.0 { Grade::Now } else { Grade::Past },
            counter: s.counter.into(),
            count: now,
            rate,
            what: s.what.into(),
            advice: s.advice.into(),
        });
    }
    for w in workers.iter().filter(|w| w.cpu >= BUSY) {
        all.push(Finding {
            grade: Grade::Note,
            counter: w.name.clone(),
            count: w.cpu as u64,
            rate: 0.0,
            what: format!("{} uses all of a processor: packets are lost if more come", w.name),
            advice: "raise threads of the interface; where one worker alone is busy, look for one large flow (bypass)"
                .into(),
        });
    }
    all.sort_by_key(|f| std::cmp::Reverse(f.grade));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Worker;

    #[test]
    fn what_happens_now_comes_first() {
        let of = |list: &[(&str, u64)]| list.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Counters>();
        let (before, now) = (of(&[("eve.lost", 3), ("flow.memcap", 1)]), of(&[("eve.lost", 3), ("flow.memcap", 21)]));
        let ring = Stage { interface: "eth0".into(), stage: "ring".into(), lost: 9, ..Stage::default() };
        let idle = Stage { stage: "card".into(), ..Stage::default() };
        let busy = Worker { name: "W#01".into(), cpu: 99.5, ..Worker::default() };
        let f = findings(&now, &before, 2.0, &[idle, ring], &[busy, Worker::default()]);
        let seen: Vec<(Grade, &str, f64)> = f.iter().map(|f| (f.grade, f.counter.as_str(), f.rate)).collect();
        let want = [
            (Grade::Now, "flow.memcap", 10.0),
            (Grade::Past, "eth0 ring", 0.0),
            (Grade::Past, "eve.lost", 0.0),
            (Grade::Note, "W#01", 0.0),
        ];
        assert_eq!(seen, want);
        assert!(f.iter().all(|f| !f.what.is_empty() && !f.advice.is_empty()));
        assert!(findings(&Vec::new(), &Vec::new(), 1.0, &[], &[]).is_empty(), "nothing is counted");
    }
}
