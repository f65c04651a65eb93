//! Cache of compiled databases on disk, so that a start need not compile them again.
//!
//! Each database has its own file, named by a hash of everything that affects its content (this format, the versions of
//! engine and library, the CPU, the expressions in order with their flags). So a slightly changed rule set still finds
//! most of its databases. A missing or invalid database is compiled and written again. Files that no start used for a
//! while are removed.
//!
//! A file has a mark, its key, the database's length, the database, and a SHA-256 of all that. It is written under
//! another name and then renamed, so that engines starting at the same time see all of it or nothing. Reading verifies
//! every part. But an attacker who can write a file can also write a correct checksum, and the library trusts the
//! content: a database is a program. So only this user and root may be able to write to a file, the folder, or any
//! folder above it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Start of every file, with the format's version.
const MARK: &[u8; 16] = b"margay-matcher 1";
/// Size of a file without the database: mark, key, length, and the checksum at the end.
const HEADER: usize = MARK.len() + 32 + 8;
const CHECKSUM: usize = 32;
/// A larger cache file is treated as corrupt and ignored.
const FILE_MAX: u64 = 1 << 30;
/// Suffix of file names.
const ENDING: &str = ".matcher";
/// A temporary file older than this was left by a process that died.
const TEMPORARY_AGE: Duration = Duration::from_secs(3600);
/// A file in use gets a new modification time when its time is older than this.
const TOUCH_AFTER: Duration = Duration::from_secs(600);

/// Where and for how long compiled databases are cached (`detect.sgh-mpm-caching-path`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    /// The folder, created if missing.
    pub folder: PathBuf,
    /// Files that no start used for this long are removed; with `None`, no file is.
    pub max_age: Option<Duration>,
}

/// How the cache was used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Databases requested.
    pub asked: usize,
    /// Databases found.
    pub found: usize,
    /// Databases compiled and written.
    pub written: usize,
    /// Old files removed.
    pub removed: usize,
    /// Problems as text; the rules work regardless.
    pub problems: Vec<String>,
}

/// Most problems in the report.
const PROBLEMS_MAX: usize = 5;

/// A hash of everything that affects a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key([u8; 32]);

impl Key {
    fn hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// Computes a [`Key`]; each part is preceded by its length.
pub(super) struct KeyBuilder(Sha256);

impl KeyBuilder {
    pub(super) fn new() -> KeyBuilder {
        let mut key = KeyBuilder(Sha256::new());
        key.add(MARK).add(env!("CARGO_PKG_VERSION").as_bytes());
        key
    }

    pub(super) fn add(&mut self, part: &[u8]) -> &mut KeyBuilder {
        self.number(part.len() as u64);
        self.0.update(part);
        self
    }

    pub(super) fn number(&mut self, n: u64) -> &mut KeyBuilder {
        self.0.update(n.to_le_bytes());
        self
    }

    pub(super) fn finish(self) -> Key {
        Key(self.0.finalize().into())
    }
}

/// A folder of compiled databases.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    max_age: Option<Duration>,
    /// The only user besides root who may own a file that is read.
    user: u32,
    asked: AtomicUsize,
    found: AtomicUsize,
    written: AtomicUsize,
    problems: Mutex<Vec<String>>,
}

impl Store {
    /// Opens the folder, and creates it if missing.
    ///
    /// # Errors
    /// A text: the folder cannot be created, or other users can write to it.
    pub(super) fn open(settings: &CacheSettings) -> Result<Store, String> {
        Self::open_as(settings, user())
    }

    fn open_as(settings: &CacheSettings, user: u32) -> Result<Store, String> {
        let shown = settings.folder.display();
        let fail = |e: io::Error| format!("the folder {shown} cannot be used: {e}");
        DirBuilder::new().recursive(true).mode(0o700).create(&settings.folder).map_err(fail)?;
        let folder = settings.folder.canonicalize().map_err(fail)?;
        for (n, dir) in folder.ancestors().enumerate() {
            let m = fs::symlink_metadata(dir).map_err(fail)?;
            let dir = dir.display();
            if !m.is_dir() {
                return Err(format!("{dir} is no folder"));
            }
            if ![0, user].contains(&m.uid()) {
                return Err(format!(
                    "the folder {dir} belongs to user {}, who could put anything in it; it must be root's or user {user}'s",
                    m.uid()
                ));
            }
            // In a sticky folder nobody can rename another user's files.
            if m.mode() & 0o022 != 0 && (n == 0 || m.mode() & 0o1000 == 0) {
                return Err(format!(
                    "others may write to the folder {dir} (mode {:o}), and could put anything in it; take that from them \
                     (chmod go-w), or name another folder with detect.sgh-mpm-caching-path",
                    m.mode() & 0o7777
                ));
            }
        }
        Ok(Store {
            folder,
            max_age: settings.max_age,
            user,
            asked: AtomicUsize::new(0),
            found: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            problems: Mutex::default(),
        })
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.hex() + ENDING)
    }

    fn problem(&self, text: String) {
        if let Ok(mut list) = self.problems.lock()
            && list.len() < PROBLEMS_MAX
        {
            list.push(text);
        }
    }

    /// The database of `key`, if it exists and is intact.
    pub(super) fn read(&self, key: &Key) -> Option<Vec<u8>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let path = self.path(key);
        match self.contents(&path, key) {
            Ok(bytes) => Some(bytes),
            Err(Unread::Absent) => None,
            Err(Unread::Wrong(why)) => {
                self.problem(format!("{}: {why}; it is compiled again", path.display()));
                None
            }
        }
    }

    /// Counts a database that was read and used.
    pub(super) fn found(&self) {
        self.found.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports that the library does not accept the file's content.
    pub(super) fn refused(&self, key: &Key) {
        self.problem(format!("{}: Hyperscan does not accept it; it is compiled again", self.path(key).display()));
    }

    fn contents(&self, path: &Path, key: &Key) -> Result<Vec<u8>, Unread> {
        let wrong = |e: io::Error| Unread::Wrong(format!("it cannot be read: {e}"));
        let mut file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
            Ok(f) => f,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Unread::Absent),
            Err(e) => return Err(wrong(e)),
        };
        let m = file.metadata().map_err(wrong)?;
        if !m.is_file() || ![0, self.user].contains(&m.uid()) || m.mode() & 0o022 != 0 {
            return Err(Unread::Wrong("others may have written it".into()));
        }
        if m.len() < (HEADER + CHECKSUM) as u64 || m.len() > FILE_MAX {
            return Err(Unread::Wrong(format!("it is {} bytes long", m.len())));
        }
        let mut bytes = Vec::with_capacity(m.len() as usize);
        (&mut file).take(FILE_MAX).read_to_end(&mut bytes).map_err(wrong)?;
        let database = check(&bytes, key).map_err(|e| Unread::Wrong(e.into()))?;
        // Update the time of a file in use, so that it is not removed.
        let now = SystemTime::now();
        if m.modified().is_ok_and(|t| now.duration_since(t).is_ok_and(|age| age > TOUCH_AFTER)) {
            touch(path, now);
        }
        bytes.truncate(database.end);
        bytes.drain(..database.start);
        Ok(bytes)
    }

    /// Stores `database` under `key`.
    pub(super) fn write(&self, key: &Key, database: &[u8]) {
        let path = self.path(key);
        match self.put(&path, key, database) {
            Ok(()) => {
                self.written.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => self.problem(format!("{}: it cannot be written: {e}", path.display())),
        }
    }

    fn put(&self, path: &Path, key: &Key, database: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!(".{}.{}.{number}.tmp", key.hex(), std::process::id()));
        let mut header = [MARK.as_slice(), &key.0].concat();
        header.extend((database.len() as u64).to_le_bytes());
        let checksum = Sha256::new().chain_update(&header).chain_update(database).finalize();
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let all = file.write_all(&header).and_then(|()| file.write_all(database));
        let written = all.and_then(|()| file.write_all(&checksum)).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes old files and returns how the cache was used.
    pub(super) fn finish(self) -> CacheUse {
        let removed = self.prune(SystemTime::now());
        CacheUse {
            asked: self.asked.into_inner(),
            found: self.found.into_inner(),
            written: self.written.into_inner(),
            removed,
            problems: self.problems.into_inner().unwrap_or_default(),
        }
    }

    fn prune(&self, now: SystemTime) -> usize {
        let Ok(entries) = fs::read_dir(&self.folder) else { return 0 };
        let old = |e: &fs::DirEntry| {
            let name = e.file_name();
            let Some(name) = name.to_str() else { return false };
            let hex = |s: &str| s.len() == 64 && s.bytes().all(|b| b.is_ascii_hexdigit());
            let age = if name.strip_suffix(ENDING).is_some_and(hex) {
                self.max_age
            } else if name.starts_with('.') && name.ends_with(".tmp") && name.get(1..65).is_some_and(hex) {
                Some(TEMPORARY_AGE)
            } else {
                None
            };
            let modified = e.metadata().ok().filter(fs::Metadata::is_file).and_then(|m| m.modified().ok());
            let since = modified.and_then(|t| now.duration_since(t).ok());
            age.zip(since).is_some_and(|(max, is)| is > max)
        };
        entries.flatten().filter(old).filter(|e| fs::remove_file(e.path()).is_ok()).count()
    }
}

/// For the fuzz targets: what a store in `folder`, which only this user can write to, reads if the file of a fixed key
/// has these bytes.
///
/// # Errors
/// If the folder or file cannot be used.
#[doc(hidden)]
pub fn replay(folder: &Path, file: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let settings = CacheSettings { folder: folder.to_owned(), max_age: None };
    let (store, key) = (Store::open(&settings)?, replay_key());
    let path = store.path(&key);
    fs::write(&path, file)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
        .map_err(|e| e.to_string())?;
    Ok(store.read(&key))
}

/// For the fuzz targets: the file in which a store in `folder` saves `database` under the key of [`replay`].
///
/// # Errors
/// If the folder or file cannot be used.
#[doc(hidden)]
pub fn replay_written(folder: &Path, database: &[u8]) -> Result<Vec<u8>, String> {
    let settings = CacheSettings { folder: folder.to_owned(), max_age: None };
    let (store, key) = (Store::open(&settings)?, replay_key());
    store.write(&key, database);
    fs::read(store.path(&key)).map_err(|e| e.to_string())
}

fn replay_key() -> Key {
    Key([7; 32])
}

/// Why a database could not be read.
enum Unread {
    Absent,
    Wrong(String),
}

/// The effective user id of this process.
fn user() -> u32 {
    #[cfg(have_hs)]
    return super::hs::user();
    #[cfg(not(have_hs))]
    return 0;
}

/// The range of the database of `key` in a file.
fn check(file: &[u8], key: &Key) -> Result<std::ops::Range<usize>, &'static str> {
    let (rest, checksum) = file.split_last_chunk::<CHECKSUM>().ok_or("it is too short")?;
    if Sha256::digest(rest)[..] != checksum[..] {
        return Err("its checksum is wrong");
    }
    let rest = rest.strip_prefix(MARK).ok_or("it is no file of this version")?;
    let rest = rest.strip_prefix(&key.0).ok_or("it is another one's")?;
    let (length, database) = rest.split_first_chunk::<8>().ok_or("it is too short")?;
    if u64::from_le_bytes(*length) != database.len() as u64 {
        return Err("its length is wrong");
    }
    Ok(HEADER..HEADER + database.len())
}

/// Sets the file's time of last use.
fn touch(path: &Path, now: SystemTime) {
    if let Ok(f) = File::options().write(true).open(path) {
        let _ = f.set_modified(now);
    }
}

#[cfg(test)]
#[cfg(have_hs)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::mpm::{Matcher, MatcherCache, MpmAlgo, Pattern, Regex, Scratch};

    /// A folder that is removed when the test ends.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            static N: AtomicUsize = AtomicUsize::new(0);
            let n = N.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("margay-store-{}-{name}-{n}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Folder(path)
        }

        fn settings(&self) -> CacheSettings {
            CacheSettings { folder: self.0.join("cache"), max_age: Some(Duration::from_secs(86_400)) }
        }

        fn files(&self) -> Vec<PathBuf> {
            let mut all: Vec<_> = fs::read_dir(self.0.join("cache")).unwrap().map(|e| e.unwrap().path()).collect();
            all.sort();
            all
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn patterns(n: usize) -> Vec<Pattern> {
        let mut list: Vec<_> =
            (0..n).map(|i| Pattern { bytes: format!("word{i:04}").into_bytes(), nocase: i % 2 == 0 }).collect();
        list.sort_unstable();
        list
    }

    /// Patterns for which every place is reported.
    fn all(list: Vec<Pattern>) -> Vec<(Pattern, bool)> {
        list.into_iter().map(|p| (p, false)).collect()
    }

    fn found(m: &Matcher, data: &[u8]) -> Vec<u32> {
        let mut s = Scratch::default();
        s.prepare(m).unwrap();
        let mut hits = Vec::new();
        s.scan(m, data, |id, _, _| hits.push(id)).expect("the pattern is looked for");
        hits.sort_unstable();
        hits.dedup();
        hits
    }

    /// Builds two sets of literals and one of expressions, checks their matches, and returns how the cache was used.
    fn load(settings: &CacheSettings) -> CacheUse {
        let mut cache = MatcherCache::new(MpmAlgo::Hyperscan).with_store(settings).storing_from(0);
        let list = patterns(50);
        let a = cache.get(all(list.clone()));
        let b = cache.get(all(patterns(30)));
        let few = cache.get(all(patterns(3)));
        let r = cache.regexes(vec![Regex::new("x[0-9]{3}y", "").unwrap()]);
        let (made, used) = cache.finish().unwrap();
        assert_eq!(made.len(), 4);
        let at = |w: &[u8]| list.iter().position(|p| p.bytes == w).unwrap() as u32;
        assert_eq!(found(&a, b"... WORD0042 word0041 ..."), [at(b"word0041"), at(b"word0042")]);
        assert_eq!(found(&b, b"... word0042 word0007 word0001").len(), 2);
        assert_eq!(found(&few, b"word0001").len(), 1);
        assert_eq!(found(&r, b".. x123y"), [0]);
        used
    }

    fn numbers(u: &CacheUse) -> (usize, usize, usize) {
        (u.asked, u.found, u.written)
    }

    #[test]
    fn what_was_compiled_is_there_the_next_time() {
        let dir = Folder::new("hit");
        let used = load(&dir.settings());
        assert_eq!((numbers(&used), &used.problems), ((3, 0, 3), &vec![]));
        assert_eq!(dir.files().len(), 3);
        for f in dir.files() {
            assert_eq!(fs::metadata(f).unwrap().permissions().mode() & 0o777, 0o600);
        }
        let used = load(&dir.settings());
        assert_eq!((numbers(&used), used.problems), ((3, 3, 0), vec![]));
        // Other patterns have other files.
        let mut cache = MatcherCache::new(MpmAlgo::Hyperscan).with_store(&dir.settings()).storing_from(0);
        let m = cache.get(all(patterns(51)));
        let (_, used) = cache.finish().unwrap();
        assert_eq!(numbers(&used), (1, 0, 1));
        assert_eq!(found(&m, b"word0050").len(), 1);
        // If there is little to build, the cache is not used.
        let mut cache = MatcherCache::new(MpmAlgo::Hyperscan).with_store(&dir.settings());
        cache.get(all(patterns(50)));
        assert_eq!(numbers(&cache.finish().unwrap().1), (0, 0, 0));
        // The portable engine does not use the cache.
        let mut cache = MatcherCache::new(MpmAlgo::AhoCorasick).with_store(&dir.settings()).storing_from(0);
        cache.get(all(patterns(50)));
        assert_eq!(numbers(&cache.finish().unwrap().1), (0, 0, 0));
    }

    /// Damages one file after the other in a given way, and checks each time that the problem is reported, the database
    /// rebuilt, and the file valid again.
    fn spoiled(name: &str, change: impl Fn(&mut Vec<u8>)) {
        let dir = Folder::new(name);
        load(&dir.settings());
        for file in dir.files() {
            let good = fs::read(&file).unwrap();
            let mut bad = good.clone();
            change(&mut bad);
            fs::write(&file, &bad).unwrap();
            let used = load(&dir.settings());
            assert_eq!(numbers(&used), (3, 2, 1), "{name}");
            assert_eq!(used.problems.len(), 1, "{name}: {:?}", used.problems);
            let whose = file.file_name().unwrap().to_str().unwrap();
            assert!(
                used.problems[0].contains(whose) && used.problems[0].contains("compiled again"),
                "{:?}",
                used.problems
            );
            assert_eq!(fs::read(&file).unwrap().len(), good.len(), "{name}");
            assert_eq!(numbers(&load(&dir.settings())), (3, 3, 0), "{name}");
        }
    }

    #[test]
    fn truncated_files_are_made_anew() {
        for keep in [0, 1, 15, 16, 17, 47, 48, 55, 56, 57, 87, 88, 100, 500] {
            spoiled(&format!("cut{keep}"), |b| b.truncate(keep));
        }
        spoiled("cutend", |b| b.truncate(b.len() - 1));
        spoiled("cuthash", |b| b.truncate(b.len() - CHECKSUM));
        spoiled("longer", |b| b.push(0));
        spoiled("twice", |b| b.extend_from_within(..));
    }

    #[test]
    fn flipped_bits_are_seen() {
        for at in [0, 15, 16, 47, 48, 55, 56, 60, 64, 72, 100, 200, 400] {
            spoiled(&format!("flip{at}"), |b| b[at] ^= 1 << (at % 8));
        }
        spoiled("fliplast", |b| *b.last_mut().unwrap() ^= 0x80);
        spoiled("flipmiddle", |b| {
            let at = b.len() / 2;
            b[at] ^= 4;
        });
    }

    /// Restores a file's checksum.
    fn sign(b: &mut Vec<u8>) {
        b.truncate(b.len() - CHECKSUM);
        let sum = Sha256::digest(&*b);
        b.extend(sum);
    }

    #[test]
    fn foreign_files_are_refused() {
        let resigned = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
            spoiled(name, |b| {
                change(b);
                sign(b);
            })
        };
        resigned("format", &|b| b[15] = b'2');
        resigned("key", &|b| b[16] ^= 0xff);
        resigned("length", &|b| b[48] ^= 0xff);
        // The library checks its mark and its version itself.
        resigned("library", &|b| b[56] ^= 0xff);
        resigned("version", &|b| b[60] ^= 0xff);
        resigned("body", &|b| {
            let at = b.len() / 2;
            b[at] ^= 0xff;
        });
    }

    /// A file with the database of another key.
    #[test]
    fn names_do_not_count() {
        let dir = Folder::new("names");
        load(&dir.settings());
        let files = dir.files();
        fs::copy(&files[0], &files[1]).unwrap();
        let used = load(&dir.settings());
        assert_eq!(numbers(&used), (3, 2, 1));
        assert!(used.problems[0].contains("another one's"), "{:?}", used.problems);
    }

    #[test]
    fn what_others_can_write_is_refused() {
        let chmod = |p: &Path, mode| fs::set_permissions(p, fs::Permissions::from_mode(mode)).unwrap();
        let dir = Folder::new("others");
        load(&dir.settings());
        let cache = dir.0.join("cache");
        // The folder's mode.
        for mode in [0o777, 0o770, 0o702, 0o1777] {
            chmod(&cache, mode);
            let used = load(&dir.settings());
            assert_eq!(numbers(&used), (0, 0, 0), "{mode:o}");
            assert!(used.problems[0].contains("others may write to the folder"), "{:?}", used.problems);
        }
        chmod(&cache, 0o755);
        assert_eq!(numbers(&load(&dir.settings())), (3, 3, 0));
        // The mode of the folder above; a sticky one is safe.
        chmod(&dir.0, 0o777);
        assert!(load(&dir.settings()).problems[0].contains("others may write"));
        chmod(&dir.0, 0o1777);
        assert_eq!(numbers(&load(&dir.settings())), (3, 3, 0));
        // The file's mode.
        let file = dir.files().remove(0);
        chmod(&file, 0o666);
        let used = load(&dir.settings());
        assert_eq!(numbers(&used), (3, 2, 1));
        assert!(used.problems[0].contains("others may have written it"), "{:?}", used.problems);
        // A symbolic link.
        let elsewhere = dir.0.join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        let used = load(&dir.settings());
        assert_eq!((numbers(&used), used.problems.len()), ((3, 2, 1), 1));
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        // Another user's file.
        let e = Store::open_as(&dir.settings(), 4_000_000_000).map(drop);
        let mine = fs::metadata(&cache).unwrap().uid();
        assert!(mine == 0 || e.is_err_and(|e| e.contains("belongs to user")));
    }

    #[test]
    fn a_folder_that_is_none_is_told() {
        let dir = Folder::new("none");
        fs::write(dir.0.join("cache"), b"").unwrap();
        let used = load(&dir.settings());
        assert_eq!((numbers(&used), used.problems.len()), ((0, 0, 0), 1));
        assert!(used.problems[0].contains("cannot be used"), "{:?}", used.problems);
    }

    /// The rules work if nothing can be written; the problem is reported only a few times.
    #[test]
    fn a_folder_that_cannot_be_written_to() {
        let dir = Folder::new("gone");
        let store = Store::open(&dir.settings()).unwrap();
        fs::remove_dir(dir.0.join("cache")).unwrap();
        for n in 0..20 {
            let mut key = KeyBuilder::new();
            key.number(n);
            let key = key.finish();
            assert_eq!(store.read(&key), None);
            store.write(&key, b"database");
        }
        let used = store.finish();
        assert_eq!(numbers(&used), (20, 0, 0));
        assert!(used.problems[0].contains("cannot be written"), "{:?}", used.problems);
        assert_eq!(used.problems.len(), PROBLEMS_MAX);
        // Existing files are read although none can be added.
        let dir = Folder::new("read-only");
        load(&dir.settings());
        let folder = dir.0.join("cache");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o500)).unwrap();
        let used = load(&dir.settings());
        assert_eq!((numbers(&used), used.problems.len()), ((3, 3, 0), 0));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn engines_that_start_together() {
        let dir = Folder::new("together");
        std::thread::scope(|s| {
            let all: Vec<_> = (0..6).map(|_| s.spawn(|| load(&dir.settings()))).collect();
            for t in all {
                let used = t.join().unwrap();
                assert_eq!((used.found + used.written, used.problems), (3, vec![]));
            }
        });
        assert_eq!(dir.files().len(), 3);
        assert_eq!(numbers(&load(&dir.settings())), (3, 3, 0));
    }

    #[test]
    fn what_is_old_is_removed() {
        let dir = Folder::new("old");
        load(&dir.settings());
        let cache = dir.0.join("cache");
        let ago = |path: &Path, hours: u64| {
            let t = SystemTime::now() - Duration::from_secs(hours * 3600);
            File::options().write(true).open(path).unwrap().set_modified(t).unwrap();
        };
        let put = |name: &str, hours| {
            let path = cache.join(name);
            fs::write(&path, b"x").unwrap();
            ago(&path, hours);
            path
        };
        let hex = "0123456789abcdef".repeat(4);
        let gone = [put(&format!("{hex}.matcher"), 25), put(&format!(".{hex}.1.0.tmp"), 2)];
        let stays = [
            put(&format!("{}.matcher", "a".repeat(64)), 23),
            put(&format!(".{hex}.2.0.tmp"), 0),
            put("notes.txt", 1000),
            put("x.matcher", 1000),
        ];
        // An old file that is in use.
        let used_file = dir.files().into_iter().find(|f| fs::metadata(f).unwrap().len() > 100).unwrap();
        ago(&used_file, 1000);
        let used = load(&dir.settings());
        assert_eq!((numbers(&used), used.removed), ((3, 3, 0), 2));
        assert!(gone.iter().all(|f| !f.exists()) && stays.iter().all(|f| f.exists()) && used_file.exists());
        let forever = CacheSettings { max_age: None, ..dir.settings() };
        ago(&stays[0], 100_000);
        assert_eq!(load(&forever).removed, 0);
    }
}
