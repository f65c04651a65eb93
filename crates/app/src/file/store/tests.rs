//! The store with its thread: links, the quota, a full queue.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Mutex;

use super::*;

/// A folder of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("margay-store-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn store(&self) -> StoreConfig {
        StoreConfig::new(self.0.join("store"))
    }

    /// The number of stored files, and of files in `tmp`.
    fn stored(&self) -> (usize, usize) {
        let all = |dir: PathBuf| std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        let (mut stored, mut tmp) = (0, 0);
        for dir in all(self.0.join("store")) {
            let sum = if dir.ends_with("tmp") { &mut tmp } else { &mut stored };
            *sum += if dir.is_dir() { all(dir).count() } else { 0 };
        }
        (stored, tmp)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn digest(n: u8) -> [u8; 32] {
    [n; 32]
}

/// Stores a file. Returns whether it was handed over completely.
fn put(batch: &mut Batch, config: &StoreConfig, n: u8, data: &[u8]) -> bool {
    let Some(file) = batch.begin(config) else { return false };
    let whole = batch.append(config, &file, data);
    if whole {
        batch.place(&file, &digest(n));
    }
    whole
}

fn count(config: &StoreConfig, name: &str) -> u64 {
    let mut found = None;
    config.shared.for_each_counter(config.quota, &mut |n, v| found = found.or((n == name).then_some(v)));
    found.unwrap()
}

#[test]
fn links_are_not_followed() {
    let folder = Folder::new("links");
    let (config, outside) = (folder.store(), folder.0.join("outside"));
    std::fs::create_dir_all(outside.join("dir")).unwrap();
    std::fs::write(outside.join("victim"), "as it was").unwrap();
    let name = |n: u8| format!("{n:02x}/{}", format!("{n:02x}").repeat(32));
    std::fs::create_dir_all(config.dir.join("tmp")).unwrap();
    std::fs::create_dir_all(config.dir.join("03")).unwrap();
    // A temporary file, a folder of stored files and a stored file that are links out of the store; also a hard link.
    symlink(outside.join("victim"), config.dir.join("tmp/file.1")).unwrap();
    std::fs::hard_link(outside.join("victim"), config.dir.join("tmp/file.2")).unwrap();
    symlink(outside.join("dir"), config.dir.join("02")).unwrap();
    symlink(outside.join("victim"), config.dir.join(name(3))).unwrap();
    let time = std::fs::metadata(outside.join("victim")).unwrap().modified().unwrap();
    config.prepare().unwrap();
    let mut batch = Batch::default();
    for n in 1..=4 {
        assert!(put(&mut batch, &config, n, b"data"));
    }
    batch.sync();
    assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"as it was");
    assert_eq!(std::fs::metadata(outside.join("victim")).unwrap().modified().unwrap(), time);
    assert_eq!(std::fs::read_dir(outside.join("dir")).unwrap().count(), 0);
    assert_eq!(count(&config, "file_store.fs_errors"), 2, "02 and 03");
    assert_eq!(std::fs::read(config.dir.join(name(1))).unwrap(), b"data");
    assert_eq!(std::fs::read(config.dir.join(name(4))).unwrap(), b"data");
    assert_eq!(std::fs::read_dir(config.dir.join("tmp")).unwrap().count(), 0);
    // `tmp` itself must not be a link either.
    let folder = Folder::new("links-tmp");
    let config = folder.store();
    std::fs::create_dir_all(&config.dir).unwrap();
    symlink(&folder.0, config.dir.join("tmp")).unwrap();
    assert!(config.prepare().unwrap_err().to_string().contains("/tmp: "));
}

#[test]
fn the_quota_holds() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder = Folder::new("quota");
    let mut config = folder.store();
    config.quota = 1000;
    config.say = [|text| SAID.lock().unwrap().push(text.to_owned()); 2];
    // Files of an earlier run count.
    std::fs::create_dir_all(config.dir.join("aa")).unwrap();
    std::fs::write(config.dir.join("aa/earlier"), [0; 300]).unwrap();
    config.prepare().unwrap();
    let mut batch = Batch::default();
    assert!(put(&mut batch, &config, 1, &[1; 300]));
    batch.sync();
    assert_eq!(count(&config, "file_store.quota_used"), 600);
    // A second copy takes no space.
    assert!(put(&mut batch, &config, 1, &[1; 300]));
    batch.sync();
    assert_eq!((count(&config, "file_store.quota_used"), folder.stored()), (600, (2, 0)));
    assert!(put(&mut batch, &config, 2, &[2; 500]), "it does not fit, which the thread finds");
    batch.sync();
    assert_eq!((count(&config, "file_store.quota_used"), folder.stored()), (600, (2, 0)));
    assert!(!put(&mut batch, &config, 3, b"x") && !put(&mut batch, &config, 4, b"x"), "none begins");
    batch.sync();
    assert_eq!((count(&config, "file_store.over_quota"), folder.stored()), (3, (2, 0)));
    assert_eq!(SAID.lock().unwrap().len(), 1, "{:?}", SAID.lock());
    assert!(SAID.lock().unwrap()[0].contains("quota of 1000 bytes"));
    // A run that starts at the quota stores nothing.
    let mut next = folder.store();
    next.quota = 600;
    next.prepare().unwrap();
    let mut batch = Batch::default();
    for _ in 0..1000 {
        if next.shared.inner.is_full.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!put(&mut batch, &next, 5, b"x"));
    drop(batch);
    // A user makes room.
    std::fs::remove_file(config.dir.join("aa/earlier")).unwrap();
    let mut disk = Disk::open(&next).unwrap();
    disk.look_for_room(&next.shared.inner);
    assert!(!next.shared.inner.is_full.load(std::sync::atomic::Ordering::Relaxed));
}

/// While the test holds it, the thread blocks in the log function of an error.
static GATE: Mutex<()> = Mutex::new(());

/// A store with a queue of this size whose thread blocks while the gate is held.
fn standing(folder: &Folder, queue: u64, waits: bool) -> StoreConfig {
    let mut config = folder.store();
    (config.queue, config.waits) = (queue, waits);
    config.say[0] = |_| drop(GATE.lock().unwrap());
    config.prepare().unwrap();
    // Blocks the folder of the first stored file, which causes an error.
    std::fs::write(config.dir.join("ff"), "").unwrap();
    config
}

#[test]
fn what_has_no_room_is_lost_or_waited_for() {
    for waits in [false, true] {
        let folder = Folder::new(&format!("queue-{waits}"));
        let config = standing(&folder, 1 << 20, waits);
        let gate = GATE.lock().unwrap();
        let mut batch = Batch::default();
        assert!(put(&mut batch, &config, 0xff, b"x"));
        batch.hand_over();
        let (mut lost, mut most) = (0, 0);
        std::thread::scope(|scope| {
            let store = &config;
            let stored = scope.spawn(move || {
                for n in 0..200u8 {
                    lost += usize::from(!put(&mut batch, store, n, &vec![n; 20_000]));
                    most = most.max(store.shared.waiting());
                }
                batch.sync();
                (lost, most)
            });
            if waits {
                // The worker blocks too, once the queue is full.
                let mut before = 0;
                while config.shared.waiting() < 900_000 || config.shared.waiting() != before {
                    before = config.shared.waiting();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                assert!(!stored.is_finished());
            } else {
                while !stored.is_finished() && count(&config, "file_store.files_lost") == 0 {
                    std::thread::yield_now();
                }
            }
            drop(gate);
            (lost, most) = stored.join().unwrap();
        });
        assert!(most <= 1 << 20, "{most}");
        assert_eq!(lost as u64, count(&config, "file_store.files_lost"));
        if waits {
            assert_eq!((lost, folder.stored()), (0, (200, 0)));
        } else {
            assert!(lost > 0 && folder.stored() == (200 - lost, 0), "{lost} of 200: {:?}", folder.stored());
        }
        assert_eq!((count(&config, "file_store.fs_errors"), config.shared.waiting()), (1, 0));
    }
}

#[test]
fn all_is_written_when_the_last_lets_go() {
    let folder = Folder::new("end");
    let config = folder.store();
    config.prepare().unwrap();
    let mut workers: Vec<Batch> = (0..4).map(|_| Batch::default()).collect();
    for n in 0..100u8 {
        assert!(put(&mut workers[usize::from(n) % 4], &config, n, &[n; 1000]));
    }
    // One file is left unfinished.
    let unfinished = workers[0].begin(&config);
    assert!(unfinished.is_some());
    drop(unfinished);
    drop(workers);
    drop(config);
    // 0xff is blocked by a file only in the other test.
    assert_eq!(folder.stored(), (100, 0));
}

#[test]
fn a_file_that_is_discarded_before_it_begins_leaves_nothing() {
    let folder = Folder::new("early");
    let config = folder.store();
    config.prepare().unwrap();
    let mut batch = Batch::default();
    let file = batch.begin(&config).unwrap();
    assert!(batch.append(&config, &file, b"data"));
    // The discarding step overtakes the batch.
    drop(file);
    config.shared.inner.drain();
    batch.sync();
    assert_eq!((folder.stored(), count(&config, "file_store.fs_errors")), ((0, 0), 0));
}
