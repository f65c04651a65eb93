use std::path::PathBuf;

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_json::Json;
use proptest::prelude::*;

use super::*;

/// A directory that is removed with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("margay-files-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory");
        Dir(path)
    }

    fn store(&self) -> FileConfig {
        FileConfig { store: Some(StoreConfig::new(self.0.join("filestore"))), ..FileConfig::default() }
    }

    /// Stored files, relative to the store, sorted.
    fn found(&self) -> Vec<String> {
        let mut out = Vec::new();
        let root = self.0.join("filestore");
        for dir in std::fs::read_dir(&root).expect("a directory") {
            for f in std::fs::read_dir(dir.expect("an entry").path()).expect("a directory") {
                let path = f.expect("an entry").path();
                out.push(path.strip_prefix(&root).expect("inside").display().to_string());
            }
        }
        out.sort();
        out
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join("filestore").join(name)).expect("a file")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ABC: &str = "ba/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const EMPTY: &str = "e3/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct T {
    engine: FileEngine,
    config: FileConfig,
    files: Files,
    now: Time,
}

impl T {
    fn new(config: FileConfig, wants: FileWants) -> T {
        if let Some(store) = config.store.as_ref().filter(|s| s.dir != PathBuf::new()) {
            store.prepare().expect("prepared");
        }
        let engine = FileEngine::new(&config, wants).expect("an engine");
        T { engine, config, files: Files::default(), now: Time(0) }
    }

    fn open(&mut self, dir: Direction, name: &str) {
        self.files.open(&mut self.engine, &self.config, dir, name.as_bytes(), None);
    }

    fn append(&mut self, dir: Direction, data: &[u8]) {
        self.files.append(&mut self.engine, &self.config, dir, data);
    }

    fn close(&mut self, dir: Direction, truncated: bool) {
        self.files.close(&mut self.engine, &self.config, dir, truncated);
    }

    fn whole(&mut self, dir: Direction, name: &str, data: &[u8]) {
        self.open(dir, name);
        self.append(dir, data);
        self.close(dir, false);
    }

    fn flush(&mut self) {
        self.files.flush(&mut self.engine, &self.config);
        self.engine.sync();
    }

    /// A counter of the store.
    fn count(&self, name: &str) -> u64 {
        let mut found = None;
        self.engine.for_each_counter(&self.config, &mut |n, v| found = found.or((n == name).then_some(v)));
        found.expect("the counter is there")
    }

    fn log(&self, index: usize) -> String {
        let mut json = Json::new();
        json.item_object();
        log(&self.files.all()[index], 3, &mut json, &FileLogOptions::default());
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).expect("text")
    }
}

#[test]
fn a_file_is_counted_and_named() {
    let mut t = T::new(FileConfig::default(), FileWants::default());
    t.whole(ToClient, "a.tar.GZ", b"abc");
    let f = &t.files.all()[0];
    assert_eq!((f.name(), f.extension(), f.size(), f.size_known()), (&b"a.tar.GZ"[..], Some(&b"GZ"[..]), 3, true));
    assert!(f.has_extension(b"gz") && f.has_extension(b"TAR.gz") && !f.has_extension(b"ar.gz"));
    assert!(!f.has_extension(b"a.tar.gz") && !f.has_extension(b"x.a.tar.gz"));
    assert_eq!((f.md5(), f.sha256(), f.magic(&t.engine)), (None, None, None));
    assert_eq!(t.files.of(ToServer).count(), 0);
    assert_eq!(
        t.log(0),
        r#"{"fileinfo":{"filename":"a.tar.GZ","gaps":false,"state":"CLOSED","stored":false,"size":3,"tx_id":3}}"#
    );
}

#[test]
fn a_second_file_ends_the_first() {
    let mut t = T::new(FileConfig::default(), FileWants::default());
    t.open(ToServer, "one");
    t.open(ToClient, "other way");
    t.open(ToServer, "two");
    assert!(t.files.is_open(ToServer) && t.files.is_open(ToClient));
    t.append(ToServer, b"x");
    let states: Vec<_> = t.files.all().iter().map(|f| (f.state, f.size)).collect();
    assert_eq!(states, [(FileState::Truncated, 0), (FileState::Open, 0), (FileState::Open, 1)]);
    assert_eq!(t.files.due_for_log().collect::<Vec<_>>(), [0]);
    t.files.set_logged(0);
    t.files.finish(&mut t.engine, &t.config);
    assert_eq!(t.files.due_for_log().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn hashes_are_those_wanted() {
    let force = FileWants { md5: true, ..FileWants::NONE };
    let mut t = T::new(FileConfig { force, ..FileConfig::default() }, FileWants { sha1: true, ..FileWants::default() });
    t.open(ToClient, "");
    t.append(ToClient, b"ab");
    assert_eq!(t.files.all()[0].md5(), None);
    t.append(ToClient, b"c");
    t.close(ToClient, false);
    let f = &t.files.all()[0];
    assert_eq!(f.digest(HashKind::Md5).map(<[u8]>::len), Some(16));
    assert_eq!(f.sha256(), None);
    assert_eq!(
        t.log(0),
        concat!(
            r#"{"fileinfo":{"gaps":false,"state":"CLOSED","md5":"900150983cd24fb0d6963f7d28e17f72","#,
            r#""sha1":"a9993e364706816aba3e25717850c26c9cd0d89d","stored":false,"size":3,"tx_id":3}}"#
        )
    );
}

#[test]
fn a_truncated_file_has_no_digest_for_rules() {
    let mut t = T::new(FileConfig::default(), FileWants { md5: true, sha256: true, ..FileWants::default() });
    t.open(ToClient, "");
    t.append(ToClient, b"abc");
    t.close(ToClient, true);
    let f = &t.files.all()[0];
    assert_eq!((f.md5(), f.sha256()), (None, None));
    assert!(f.digests().md5.is_none() && f.digests().sha256.is_none() && !f.size_known() && f.ended());
    // A file that continues past the limit has a digest of the inspected data, for logs.
    t.open(ToClient, "");
    t.append(ToClient, b"abc");
    t.files.limit_reached(ToClient);
    t.close(ToClient, false);
    let f = &t.files.all()[1];
    assert_eq!((f.md5(), f.sha256()), (None, None));
    assert!(f.digests().md5.is_none() && f.digests().sha256.is_some() && !f.size_known() && f.ended());
}

#[test]
fn magic_is_asked_once_there_is_enough() {
    let mut t = T::new(FileConfig::default(), FileWants { magic: true, ..FileWants::default() });
    t.open(ToClient, "");
    t.append(ToClient, b"%PDF-1.5\n");
    assert_eq!(t.files.all()[0].magic(&t.engine), None);
    t.append(ToClient, &[b' '; 600]);
    assert!(t.files.all()[0].magic(&t.engine).is_some_and(|m| m.starts_with(b"PDF document")));
    t.append(ToClient, &vec![b'x'; 100_000]);
    assert!(t.files.all()[0].head.len() < 1000);
    t.close(ToClient, false);
    assert!(t.log(0).contains(r#""magic":"PDF document, version 1.5""#), "{}", t.log(0));
    t.whole(ToClient, "", b"short\n");
    assert_eq!(t.files.all()[1].magic(&t.engine), Some(&b"ASCII text"[..]));
}

#[test]
fn forced_magic_is_logged() {
    let force = FileWants { magic: true, ..FileWants::NONE };
    let mut t = T::new(FileConfig { force, ..FileConfig::default() }, FileWants::NONE);
    t.whole(ToClient, "", b"hello\n");
    assert!(t.log(0).contains(r#""magic":"ASCII text""#), "{}", t.log(0));
}

#[test]
fn data_waits_for_detection() {
    let mut t = T::new(FileConfig::default(), FileWants::default());
    let limits = WindowLimits { min: 4, window: 2, whole: 0 };
    t.open(ToClient, "");
    t.append(ToClient, b"abc");
    assert_eq!(t.files.all()[0].data(limits), None);
    t.append(ToClient, b"def");
    assert_eq!(t.files.all()[0].data(limits), Some(Found { data: b"abcdef", offset: 0, end: false, seen: 0 }));
    t.files.inspected(ToClient, limits);
    t.append(ToClient, b"g");
    t.close(ToClient, false);
    assert_eq!(t.files.all()[0].data(limits), Some(Found { data: b"efg", offset: 4, end: true, seen: 2 }));
    t.files.inspected(ToClient, limits);
    assert_eq!(t.files.all()[0].data(limits), None);
}

#[test]
fn waiting_data_is_bounded() {
    let config = FileConfig { window_limit: 1000, ..FileConfig::default() };
    let mut t = T::new(config, FileWants::default());
    t.open(ToClient, "");
    for _ in 0..100 {
        t.append(ToClient, &[b'x'; 300]);
    }
    assert!(t.files.all()[0].window.memory() <= 2000);
    assert_eq!(t.files.all()[0].window.total(), 30_000);
    assert!(t.engine.counters.over_window > 0);
    // Without any use, nothing waits.
    let mut t = T::new(FileConfig::default(), FileWants::NONE);
    t.open(ToClient, "");
    t.append(ToClient, &[b'x'; 300]);
    assert_eq!((t.files.all()[0].window.memory(), t.files.all()[0].size()), (0, 300));
}

#[test]
fn files_are_bounded() {
    let mut t = T::new(FileConfig { max_files: 2, ..FileConfig::default() }, FileWants::default());
    for _ in 0..5 {
        t.whole(ToServer, "f", b"x");
    }
    assert_eq!(t.files.all().len(), 2);
    assert!(t.files.all().iter().all(|f| f.size() == 1));
    assert_eq!(t.engine.counters.over_max_files, 3);
}

#[test]
fn forced_files_are_stored() {
    for max_open_files in [0, 1] {
        let dir = Dir::new(&format!("forced{max_open_files}"));
        let mut config = dir.store();
        if let Some(s) = &mut config.store {
            s.force = true;
            s.max_open_files = max_open_files;
            s.write_fileinfo = true;
        }
        let mut t = T::new(config, FileWants::NONE);
        t.open(ToClient, "abc");
        t.append(ToClient, b"ab");
        t.engine.sync();
        assert_eq!((dir.found(), dir.read("tmp/file.1")), (vec!["tmp/file.1".to_owned()], b"ab".to_vec()));
        let open = t.config.store.as_ref().map(|s| s.shared.open_files());
        assert_eq!(open, Some(u64::from(max_open_files)));
        t.append(ToClient, b"c");
        t.close(ToClient, false);
        assert!(t.log(0).contains(r#""stored":false,"storing":true,"size":3"#), "{}", t.log(0));
        t.flush();
        assert_eq!((dir.found(), dir.read(ABC)), (vec![ABC.to_owned()], b"abc".to_vec()));
        assert!(t.log(0).contains(r#""stored":true,"file_id":1,"size":3"#), "{}", t.log(0));
        let f = t.files.all()[0].clone();
        t.engine.write_record(&t.config, &f, Time(1_515_441_287_769_772), b"{}");
        t.engine.sync();
        assert_eq!(dir.read(&format!("{ABC}.1515441287.1.json")), b"{}\n");
        // The same file is not stored twice, and `tmp` is empty.
        t.whole(ToServer, "abc again", b"abc");
        t.whole(ToServer, "nothing", b"");
        t.flush();
        assert_eq!(dir.found(), [ABC.to_owned(), format!("{ABC}.1515441287.1.json"), EMPTY.to_owned()]);
        assert_eq!(t.files.all()[1].stored(), Some(2));
        assert_eq!((t.count("file_store.fs_errors"), t.count("file_store.files_lost")), (0, 0));
        drop(t.files);
        assert_eq!(t.config.store.map(|s| s.shared.open_files()), Some(0));
    }
}

#[test]
fn rules_ask_for_files() {
    let dir = Dir::new("rules");
    let mut t = T::new(dir.store(), FileWants { store: true, ..FileWants::default() });
    t.whole(ToClient, "abc", b"abc");
    t.whole(ToClient, "other", b"other");
    assert_eq!(t.engine.held(), 8);
    t.files.request_store([false, true], StoreScope::File(0), 7);
    t.files.request_store([true, true], StoreScope::File(0), 8);
    t.files.request_store([true, false], StoreScope::File(1), 9);
    t.flush();
    for i in 0..2 {
        t.files.set_logged(i);
    }
    assert_eq!(dir.found(), [ABC]);
    assert!(t.log(0).starts_with(r#"{"fileinfo":{"filename":"abc","sid":[7,8],"gaps""#), "{}", t.log(0));
    assert!(t.log(1).contains(r#""stored":false,"size""#), "{}", t.log(1));
    assert_eq!(t.engine.held(), 0);
}

#[test]
fn rules_ask_for_transactions_and_flows() {
    let dir = Dir::new("scope");
    let mut t = T::new(dir.store(), FileWants { store: true, ..FileWants::default() });
    t.files.request_store([false, true], StoreScope::Tx, 7);
    t.whole(ToServer, "request", b"other");
    t.whole(ToClient, "response", b"abc");
    t.flush();
    assert_eq!(dir.found(), [ABC]);
    t.files = Files::default();
    t.engine.flow = FlowFiles { store: [Some(4), None] };
    t.whole(ToServer, "", b"");
    t.flush();
    assert_eq!(dir.found(), [ABC, EMPTY]);
    assert_eq!(t.files.all()[0].sids(), [4]);
}

#[test]
fn a_gap_truncates_and_what_is_there_is_stored() {
    let dir = Dir::new("gap");
    let mut config = dir.store();
    if let Some(s) = &mut config.store {
        s.force = true;
    }
    let mut t = T::new(config, FileWants::NONE);
    t.open(ToClient, "a.js");
    t.files.gap(&mut t.engine, &t.config, ToClient, 733);
    t.close(ToClient, false);
    t.flush();
    assert_eq!(dir.found(), [EMPTY]);
    assert_eq!(
        t.log(0),
        concat!(
            r#"{"fileinfo":{"filename":"a.js","gaps":true,"state":"TRUNCATED","#,
            r#""sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","#,
            r#""stored":true,"file_id":1,"size":733,"tx_id":3}}"#
        )
    );
}

#[test]
fn held_data_is_bounded() {
    let dir = Dir::new("hold");
    let config = FileConfig { hold_limit: 10, ..dir.store() };
    let mut t = T::new(config, FileWants { store: true, ..FileWants::default() });
    t.whole(ToClient, "", b"12345678");
    t.whole(ToClient, "", b"abc");
    assert_eq!((t.engine.held(), t.engine.counters.over_hold), (8, 1));
    t.files.request_store([true, true], StoreScope::File(1), 1);
    t.flush();
    assert_eq!(dir.found(), Vec::<String>::new());
    assert!(t.files.all()[1].sids().is_empty());
}

#[test]
fn what_cannot_be_stored_is_counted_and_said_once() {
    let dir = Dir::new("errors");
    let mut config = dir.store();
    static SAID: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    if let Some(s) = &mut config.store {
        s.force = true;
        s.write_fileinfo = true;
        s.say[0] = |text| SAID.lock().unwrap().push(text.to_owned());
    }
    let mut t = T::new(config, FileWants::NONE);
    std::fs::remove_dir_all(dir.0.join("filestore/tmp")).unwrap();
    t.whole(ToClient, "", b"abc");
    t.whole(ToClient, "", b"abc");
    t.flush();
    let f = t.files.all()[0].clone();
    t.engine.write_record(&t.config, &f, Time(0), b"{}");
    t.engine.sync();
    assert_eq!(t.count("file_store.fs_errors"), 2);
    let said = SAID.lock().unwrap();
    assert!(said[0].starts_with("file-store: cannot make ") && said[0].contains("tmp/file.1: "), "{said:?}");
    assert_eq!((said.len(), dir.found()), (1, vec![]), "nor is there a record without a file");
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let dir = Dir::new("unfinished");
    let mut config = dir.store();
    if let Some(s) = &mut config.store {
        s.force = true;
    }
    let mut t = T::new(config, FileWants::NONE);
    t.open(ToClient, "");
    t.append(ToClient, b"abc");
    t.engine.sync();
    assert_eq!(dir.found().len(), 1);
    drop(t);
    assert_eq!(dir.found(), Vec::<String>::new());
}

#[test]
fn depth_is_that_of_the_store() {
    let mut config = FileConfig { stream_depth: 7, ..FileConfig::default() };
    for (depth, expected) in [(None, 7), (Some(0), 0), (Some(5), 5), (Some(9), 9)] {
        let store = StoreConfig::new(PathBuf::new());
        config.store = Some(StoreConfig { stream_depth: depth, ..store });
        assert_eq!(config.store_depth(), expected);
    }
    // Only stored files are followed to that depth.
    for (wants, force, expected) in [(false, false, 100), (true, false, 100), (false, true, 9)] {
        if let Some(s) = &mut config.store {
            s.force = force;
        }
        let mut t = T::new(config.clone(), FileWants { store: wants, ..FileWants::NONE });
        t.open(ToClient, "");
        assert_eq!(t.files.depth(&config, ToClient, 100), expected);
        assert_eq!(t.files.is_storing(), force);
        t.close(ToClient, false);
        assert!(!t.files.is_storing());
    }
}

impl T {
    /// A range of the file "whole" of `total` bytes, in a transaction of its own.
    fn range(&mut self, first: u64, total: u64, data: &[u8]) {
        self.files = Files::default();
        let range = Some((first, first + data.len() as u64 - 1));
        self.files.open(&mut self.engine, &self.config, ToClient, b"f", range);
        self.files.range_of(&mut self.engine, &self.config, ToClient, b"whole", total, self.now);
        for piece in data.chunks(2) {
            self.append(ToClient, piece);
        }
        self.close(ToClient, false);
    }

    fn sizes(&self) -> Vec<u64> {
        self.files.all().iter().map(File::size).collect()
    }
}

#[test]
fn ranges_are_put_together() {
    let config = FileConfig { force: FileWants { md5: true, ..FileWants::NONE }, ..FileConfig::default() };
    let mut t = T::new(config, FileWants::default());
    t.range(0, 10, b"0123");
    assert_eq!(t.sizes(), [4]);
    assert!(t.log(0).contains(r#""size":4,"start":0,"end":3,"tx_id""#), "{}", t.log(0));
    // Out of order, overlapping, and repeated.
    t.range(8, 10, b"89");
    t.range(2, 10, b"2345");
    t.range(0, 10, b"xxx");
    assert_eq!(t.sizes(), [3]);
    t.range(5, 10, b"567");
    assert_eq!(t.sizes(), [3, 10]);
    let limits = WindowLimits::default();
    let whole = &t.files.all()[1];
    assert_eq!(whole.data(limits), Some(Found { data: b"0123456789", offset: 0, end: true, seen: 0 }));
    assert!(t.log(1).contains(r#""md5":"781e5e245d69b566979b86e28d23f2c7","stored":false,"size":10,"tx_id""#));
    // It starts again.
    t.range(5, 10, b"56789");
    assert_eq!(t.sizes(), [5]);
    // A range with all of the file is a normal file.
    t.range(0, 4, b"0123");
    assert_eq!((t.sizes(), t.files.all()[0].range), (vec![4], None));
}

#[test]
fn the_path_names_a_file_from_ranges() {
    for (own, whole) in [("", "/b.bin"), ("c.bin", "c.bin")] {
        let mut t = T::new(FileConfig::default(), FileWants::default());
        for (first, last) in [(0, 1), (2, 3)] {
            t.files = Files::default();
            t.files.open(&mut t.engine, &t.config, ToClient, own.as_bytes(), Some((first, last)));
            t.files.range_of(&mut t.engine, &t.config, ToClient, b"host/a/b.bin", 4, t.now);
            t.append(ToClient, b"ab");
            t.close(ToClient, false);
        }
        let names: Vec<_> = t.files.all().iter().map(File::name).collect();
        assert_eq!(names, [own.as_bytes(), whole.as_bytes()]);
    }
}

#[test]
fn ranges_are_bounded_and_time_out() {
    let config = FileConfig { range_memcap: 1000, ..FileConfig::default() };
    let mut t = T::new(config, FileWants::default());
    for i in 0..100u64 {
        t.files = Files::default();
        let key = i.to_be_bytes();
        t.files.open(&mut t.engine, &t.config, ToClient, b"f", Some((50, 149)));
        t.files.range_of(&mut t.engine, &t.config, ToClient, &key, 200, t.now);
        t.append(ToClient, &[b'x'; 100]);
        t.close(ToClient, false);
    }
    assert!(t.engine.counters.over_range >= 89, "{:?}", t.engine.counters);
    let mut t = T::new(FileConfig::default(), FileWants::default());
    t.range(0, 4, b"01");
    t.now = Time(61_000_000);
    t.range(2, 4, b"23");
    assert_eq!(t.sizes(), [2]);
    t.now = Time(62_000_000);
    t.range(0, 4, b"01");
    assert_eq!(t.sizes(), [2, 4]);
}

#[test]
fn ranges_that_lie() {
    let config = FileConfig { range_max_size: u64::MAX, ..FileConfig::default() };
    let mut t = T::new(config, FileWants::default());
    for (range, total) in [((5, 2), 10), ((0, 10), 10), ((0, u64::MAX), 0), ((u64::MAX, u64::MAX), u64::MAX)] {
        t.files = Files::default();
        t.files.open(&mut t.engine, &t.config, ToClient, b"f", Some(range));
        t.files.range_of(&mut t.engine, &t.config, ToClient, b"whole", total, t.now);
        t.append(ToClient, b"abc");
        t.close(ToClient, false);
        assert_eq!(t.sizes(), [3]);
    }
    // More data than the range says, at the largest possible offset.
    t.files = Files::default();
    t.files.open(&mut t.engine, &t.config, ToClient, b"f", Some((u64::MAX - 2, u64::MAX - 1)));
    t.files.range_of(&mut t.engine, &t.config, ToClient, b"whole", u64::MAX, t.now);
    t.append(ToClient, b"abcdef");
    t.append(ToClient, b"abcdef");
    t.close(ToClient, false);
    assert_eq!(t.sizes(), [12]);
}

#[derive(Debug, Clone)]
enum Op {
    Open(bool, Option<(u64, u64)>),
    RangeOf(bool, u8, u64),
    Append(bool, Vec<u8>),
    Gap(bool, u64),
    Close(bool, bool),
    Request(usize, u32, u8),
    Inspected(bool),
    Log,
    Next,
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0u64..20, any::<u64>()];
    prop_oneof![
        3 => (any::<bool>(), prop::option::of((0u64..20, 0u64..20))).prop_map(|(d, r)| Op::Open(d, r)),
        3 => (any::<bool>(), 0u8..2, len.clone()).prop_map(|(d, k, t)| Op::RangeOf(d, k, t)),
        8 => (any::<bool>(), prop::collection::vec(any::<u8>(), 0..12)).prop_map(|(d, b)| Op::Append(d, b)),
        1 => (any::<bool>(), len).prop_map(|(d, n)| Op::Gap(d, n)),
        3 => any::<(bool, bool)>().prop_map(|(d, t)| Op::Close(d, t)),
        2 => (0usize..4, any::<u32>(), 0u8..3).prop_map(|(i, s, k)| Op::Request(i, s, k)),
        2 => any::<bool>().prop_map(Op::Inspected),
        2 => Just(Op::Log),
        1 => Just(Op::Next),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the operations, no data is held in the end, `tmp` is empty, and the limits hold.
    #[test]
    fn nothing_is_left(ops in prop::collection::vec(op(), 0..60), seed in any::<u64>()) {
        let dir = Dir::new(&format!("prop{seed}"));
        let config = FileConfig { hold_limit: 40, window_limit: 30, range_memcap: 60, max_files: 3, ..dir.store() };
        let wants = FileWants { store: true, sha256: true, ..FileWants::default() };
        let mut t = T::new(config, wants);
        let way = |c| if c { ToClient } else { ToServer };
        for op in ops {
            match op {
                Op::Open(d, range) => {
                    t.files.open(&mut t.engine, &t.config, way(d), b"f", range.map(|(a, n)| (a, a + n)));
                }
                Op::RangeOf(d, key, total) => {
                    t.now.0 += 1_000_000;
                    t.files.range_of(&mut t.engine, &t.config, way(d), &[key], total, t.now);
                }
                Op::Append(d, bytes) => t.append(way(d), &bytes),
                Op::Gap(d, n) => t.files.gap(&mut t.engine, &t.config, way(d), n),
                Op::Close(d, truncated) => t.close(way(d), truncated),
                Op::Request(i, sid, kind) => {
                    let scope = match kind { 0 => StoreScope::File(i), 1 => StoreScope::Tx, _ => StoreScope::Flow };
                    t.files.request_store([sid & 1 > 0, sid & 2 > 0], scope, sid);
                }
                Op::Inspected(d) => t.files.inspected(way(d), WindowLimits { min: 4, window: 4, whole: 0 }),
                Op::Log => {
                    t.flush();
                    for i in t.files.due_for_log().collect::<Vec<_>>() {
                        prop_assert!(!t.files.all()[i].storing());
                        t.log(i);
                        t.files.set_logged(i);
                    }
                }
                Op::Next => {
                    t.files.finish(&mut t.engine, &t.config);
                    t.flush();
                    t.files = Files::default();
                }
            }
            prop_assert!(t.engine.held() <= 40);
            prop_assert!(t.files.all().len() <= 3);
            prop_assert!(t.files.all().iter().all(|f| f.window.held().0.len() <= 42));
        }
        prop_assert_eq!(t.count("file_store.fs_errors"), 0);
        let held = std::sync::Arc::clone(&t.engine.held);
        drop(t);
        prop_assert_eq!(held.load(std::sync::atomic::Ordering::Relaxed), 0);
        prop_assert!(dir.found().iter().all(|f| !f.starts_with("tmp")));
    }
}
