//! Hyperscan: bindings to the few functions of `libhs` that block mode needs, and the engine that uses them.
//!
//! Literals are compiled as expressions with every byte escaped. The interface for literals (`hs_compile_lit_multi`) is
//! not used: with 5.4.0 it misses some matches (see the test with a short pattern beside a long one). This module has
//! the only `unsafe` code for multi-pattern matching, and nothing unsafe leaves it.
//!
//! Besides the automaton for long buffers, the library builds one for buffers of up to 70 bytes. It takes most of the
//! compile time and memory, and long buffers never use it. The library omits it for a set in which one expression asks
//! for the start of its match; [`LONG`] is such an expression, which never occurs in traffic.
//!
//! The code relies on these facts from the library's developer reference. A compiled database is immutable, and any
//! number of threads may use it at once. One scan at a time may use a scratch, and `hs_alloc_scratch` on an existing
//! scratch makes it large enough for one more database. Expressions are C strings, in which `\xhh` stands for a byte.
//! Without the UTF-8 flag, caseless concerns only ASCII letters. The callback runs on the scanning thread, before
//! `hs_scan` returns.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use super::store::{Key, KeyBuilder, Store};
use super::{EngineScratch, Mpm, MpmError, OnHit, Pattern, Regex, ScanError};

#[repr(C)]
struct HsDatabase {
    _opaque: [u8; 0],
}

#[repr(C)]
struct HsScratchRaw {
    _opaque: [u8; 0],
}

#[repr(C)]
struct HsCompileError {
    message: *mut c_char,
    expression: c_int,
}

/// The platform that databases are compiled for.
#[repr(C)]
struct HsPlatform {
    tune: c_uint,
    cpu_features: c_ulonglong,
    reserved: [c_ulonglong; 2],
}

type MatchHandler = unsafe extern "C" fn(c_uint, c_ulonglong, c_ulonglong, c_uint, *mut c_void) -> c_int;

const HS_SUCCESS: c_int = 0;
/// An invalid argument: the scratch is null, or not prepared for the database.
const HS_INVALID: c_int = -1;
const HS_FLAG_CASELESS: c_uint = 1;
const HS_FLAG_DOTALL: c_uint = 2;
const HS_FLAG_MULTILINE: c_uint = 4;
const HS_FLAG_SINGLEMATCH: c_uint = 8;
const HS_FLAG_PREFILTER: c_uint = 128;
const HS_FLAG_SOM_LEFTMOST: c_uint = 256;
const HS_MODE_BLOCK: c_uint = 1;

unsafe extern "C" {
    fn hs_compile_multi(
        expressions: *const *const c_char,
        flags: *const c_uint,
        ids: *const c_uint,
        elements: c_uint,
        mode: c_uint,
        platform: *const c_void,
        db: *mut *mut HsDatabase,
        error: *mut *mut HsCompileError,
    ) -> c_int;
    fn hs_free_compile_error(error: *mut HsCompileError) -> c_int;
    fn hs_free_database(db: *mut HsDatabase) -> c_int;
    fn hs_serialize_database(db: *const HsDatabase, bytes: *mut *mut c_char, length: *mut usize) -> c_int;
    fn hs_deserialize_database(bytes: *const c_char, length: usize, db: *mut *mut HsDatabase) -> c_int;
    fn hs_version() -> *const c_char;
    fn hs_populate_platform(platform: *mut HsPlatform) -> c_int;
    fn hs_database_size(db: *const HsDatabase, size: *mut usize) -> c_int;
    fn hs_alloc_scratch(db: *const HsDatabase, scratch: *mut *mut HsScratchRaw) -> c_int;
    fn hs_free_scratch(scratch: *mut HsScratchRaw) -> c_int;
    fn hs_scan(
        db: *const HsDatabase,
        data: *const c_char,
        length: c_uint,
        flags: c_uint,
        scratch: *mut HsScratchRaw,
        on_event: Option<MatchHandler>,
        context: *mut c_void,
    ) -> c_int;
    fn hs_valid_platform() -> c_int;
}

/// Whether the library runs on this CPU: it needs SSSE3, Vectorscan SSE4.2 or NEON.
pub(super) fn runs_here() -> bool {
    // CPUID is slow in a virtual machine, and every matcher asks.
    static RUNS: OnceLock<bool> = OnceLock::new();
    // SAFETY: the function takes no argument and only inspects the CPU.
    *RUNS.get_or_init(|| unsafe { hs_valid_platform() == HS_SUCCESS })
}

/// Name and version of the loaded library. Both libraries call themselves `libhs`. Of the releases with this interface,
/// those from 5.4.3 to the last 5.4 are Vectorscan's.
pub(super) fn library() -> String {
    // SAFETY: the function takes no argument and returns a C string that lives as long as the program.
    let text = unsafe { CStr::from_ptr(hs_version()) }.to_string_lossy();
    let version = text.split_whitespace().next().unwrap_or("?");
    let patch = version.strip_prefix("5.4.").and_then(|p| p.parse::<u32>().ok()).unwrap_or(0);
    format!("{} {version}", if patch >= 3 { "Vectorscan" } else { "Hyperscan" })
}

/// An expression that keeps the library from building the automaton for short buffers (5.4.0). Its matches are ignored.
const LONG: &CStr = c"\\x00\\xfe\\x01\\xfd\\x02\\xfc\\x03[\\xfb\\xfa]";
/// With fewer patterns, compilation is faster without [`LONG`].
const LONG_MIN: usize = 8;

/// A worker's scratch space; empty until it is prepared for a first database.
pub(super) struct HsScratch(*mut HsScratchRaw);

// SAFETY: this value alone owns the scratch, which is plain memory that the library ties to no thread. The library only
// forbids two scans with it at once, which `&mut` on every use excludes.
unsafe impl Send for HsScratch {}

impl Default for HsScratch {
    fn default() -> Self {
        HsScratch(ptr::null_mut())
    }
}

impl Drop for HsScratch {
    fn drop(&mut self) {
        // SAFETY: the pointer is null, which the library allows, or came from hs_alloc_scratch and is freed once.
        unsafe { hs_free_scratch(self.0) };
    }
}

/// A compiled database.
pub(super) struct Hyperscan {
    db: NonNull<HsDatabase>,
}

// SAFETY: nothing writes to a compiled database; the library documents that threads may share it.
unsafe impl Send for Hyperscan {}
// SAFETY: as above; every function called with it takes it as a pointer to const.
unsafe impl Sync for Hyperscan {}

impl Drop for Hyperscan {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a successful compilation and is freed once; no scan outlives `&self`.
        unsafe { hs_free_database(self.db.as_ptr()) };
    }
}

/// The library calls this for each match.
///
/// # Safety
/// `context` is the `OnHit` that `scan` passed to `hs_scan`, and nothing else borrows it meanwhile.
unsafe extern "C" fn on_match(id: c_uint, _: c_ulonglong, to: c_ulonglong, _: c_uint, context: *mut c_void) -> c_int {
    // SAFETY: see above; a panic in it aborts the process and does not unwind into the library.
    let hit = unsafe { &mut *context.cast::<OnHit<'_>>() };
    hit(id, to as usize);
    0
}

/// The input of a database.
pub(super) struct Source {
    texts: Vec<CString>,
    flags: Vec<c_uint>,
    /// The number reported for each expression's match.
    ids: Vec<c_uint>,
}

impl Source {
    /// Literals for mostly long buffers, each with whether one reported place is enough.
    pub(super) fn literals(patterns: &[(Pattern, bool)]) -> Result<Source, MpmError> {
        if patterns.iter().any(|(p, _)| p.bytes.is_empty()) {
            return Err(MpmError::Build("empty pattern".into()));
        }
        let flags = |p: &Pattern, once: bool| {
            (if once { HS_FLAG_SINGLEMATCH } else { 0 }) | if p.nocase { HS_FLAG_CASELESS } else { 0 }
        };
        let (mut texts, mut flags): (Vec<_>, Vec<_>) =
            patterns.iter().map(|(p, once)| (escape(&p.bytes), flags(p, *once))).unzip();
        // Sets of common literals are small and run fastest without it.
        if patterns.len() >= LONG_MIN && patterns.iter().any(|p| !p.1) {
            texts.push(LONG.to_owned());
            flags.push(HS_FLAG_SOM_LEFTMOST);
        }
        let ids = (0..).take(texts.len()).collect();
        Ok(Source { texts, flags, ids })
    }

    /// Expressions with their numbers. If the library cannot match one exactly, it reports too many matches.
    pub(super) fn regexes<'r>(list: impl Iterator<Item = (u32, &'r Regex)>) -> Source {
        let flags = |r: &Regex| {
            [(r.caseless, HS_FLAG_CASELESS), (r.dot_all, HS_FLAG_DOTALL), (r.multi_line, HS_FLAG_MULTILINE)]
                .iter()
                .filter(|f| f.0)
                .fold(HS_FLAG_SINGLEMATCH | HS_FLAG_PREFILTER, |all, f| all | f.1)
        };
        let mut s = Source { texts: Vec::new(), flags: Vec::new(), ids: Vec::new() };
        for (id, r) in list {
            // The text has no zero byte.
            s.texts.push(CString::new(r.pattern.as_str()).unwrap_or_default());
            s.flags.push(flags(r));
            s.ids.push(id);
        }
        s
    }

    /// The database from `store` if it has one. Otherwise it is compiled and stored.
    pub(super) fn compile_with(&self, store: Option<&Store>) -> Result<Hyperscan, MpmError> {
        let Some(store) = store else { return self.compile() };
        let key = self.key();
        if let Some(bytes) = store.read(&key) {
            match Hyperscan::deserialize(&bytes) {
                Some(found) => {
                    store.found();
                    return Ok(found);
                }
                None => store.refused(&key),
            }
        }
        let made = self.compile()?;
        if let Some(bytes) = made.serialize() {
            store.write(&key, bytes.bytes());
        }
        Ok(made)
    }

    /// Hashes everything that affects compilation: the library, the CPU and the expressions.
    fn key(&self) -> Key {
        let mut key = KeyBuilder::new();
        // SAFETY: the library returns a C string that lives as long as the library is loaded.
        key.add(unsafe { CStr::from_ptr(hs_version()) }.to_bytes());
        let (rc, tune, features) = platform();
        key.number(rc as u64).number(tune.into()).number(features);
        key.number(HS_MODE_BLOCK.into()).number(self.texts.len() as u64);
        for ((text, flags), id) in self.texts.iter().zip(&self.flags).zip(&self.ids) {
            key.number((*flags).into()).number((*id).into()).add(text.to_bytes());
        }
        key.finish()
    }

    pub(super) fn compile(&self) -> Result<Hyperscan, MpmError> {
        let expressions: Vec<*const c_char> = self.texts.iter().map(|e| e.as_ptr()).collect();
        let n = c_uint::try_from(expressions.len()).map_err(|_| MpmError::Build("too many patterns".into()))?;
        let mut db = ptr::null_mut();
        let mut error: *mut HsCompileError = ptr::null_mut();
        // SAFETY: the three arrays have `n` elements each and live until the call returns; each expression points to a
        // C string that `self.texts` keeps as long; `db` and `error` are valid places for the results.
        let rc = unsafe {
            hs_compile_multi(
                expressions.as_ptr(),
                self.flags.as_ptr(),
                self.ids.as_ptr(),
                n,
                HS_MODE_BLOCK,
                ptr::null(),
                &mut db,
                &mut error,
            )
        };
        match NonNull::new(db) {
            Some(db) if rc == HS_SUCCESS => Ok(Hyperscan { db }),
            _ => Err(MpmError::Build(take_error(error, rc))),
        }
    }
}

/// The CPU and its features, as the library reports them. Queried once, since this is slow in a virtual machine.
fn platform() -> (c_int, c_uint, c_ulonglong) {
    static PLATFORM: OnceLock<(c_int, c_uint, c_ulonglong)> = OnceLock::new();
    *PLATFORM.get_or_init(|| {
        let mut p = HsPlatform { tune: 0, cpu_features: 0, reserved: [0; 2] };
        // SAFETY: `p` is a valid place for the result, and has the type from hs_compile.h.
        let rc = unsafe { hs_populate_platform(&mut p) };
        (rc, p.tune, p.cpu_features)
    })
}

impl Hyperscan {
    /// The database as bytes, for the same library version and a CPU with at least the same features.
    fn serialize(&self) -> Option<Serialized> {
        let mut bytes = ptr::null_mut();
        let mut length = 0;
        // SAFETY: the database is valid; the other two are valid places for the results.
        let rc = unsafe { hs_serialize_database(self.db.as_ptr(), &mut bytes, &mut length) };
        let bytes = NonNull::new(bytes).filter(|_| rc == HS_SUCCESS)?;
        Some(Serialized { bytes: bytes.cast(), length })
    }

    /// Restores a database from the output of [`Self::serialize`]. The library checks version, CPU, length and a
    /// checksum, and trusts the rest: the caller must know where the bytes come from.
    fn deserialize(bytes: &[u8]) -> Option<Hyperscan> {
        let mut db = ptr::null_mut();
        // SAFETY: the bytes are readable for their length; `db` is a valid place for the result, which the library allocates.
        let rc = unsafe { hs_deserialize_database(bytes.as_ptr().cast(), bytes.len(), &mut db) };
        NonNull::new(db).filter(|_| rc == HS_SUCCESS).map(|db| Hyperscan { db })
    }
}

/// Bytes that the library allocated.
struct Serialized {
    bytes: NonNull<u8>,
    length: usize,
}

impl Serialized {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the library guarantees that many bytes; they live as long as `self`, and nothing writes to them
        // meanwhile.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.length) }
    }
}

impl Drop for Serialized {
    fn drop(&mut self) {
        // SAFETY: no custom allocator is ever set, so the library uses malloc and requires free.
        unsafe { libc::free(self.bytes.as_ptr().cast()) };
    }
}

/// Returns the memory that compilation freed to the system. Otherwise the C library keeps some tens of megabytes that
/// are not used again.
pub(super) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes any number and only returns unused memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The effective user id of this process.
pub(super) fn user() -> u32 {
    // SAFETY: it has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// An expression that matches exactly these bytes.
fn escape(bytes: &[u8]) -> CString {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let text = bytes
        .iter()
        .flat_map(|b| [b'\\', b'x', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]])
        .collect::<Vec<u8>>();
    // The text has no zero byte.
    CString::new(text).unwrap_or_default()
}

/// Takes the text of a compile error and frees the error.
fn take_error(error: *mut HsCompileError, rc: c_int) -> String {
    if error.is_null() {
        return format!("Hyperscan error {rc}");
    }
    // SAFETY: the library set `error` to a valid structure whose message is a C string or null. The message is read
    // before it is freed, and freed once.
    unsafe {
        let e = &*error;
        let text = if e.message.is_null() {
            format!("Hyperscan error {rc}")
        } else {
            format!("Hyperscan, pattern {}: {}", e.expression, CStr::from_ptr(e.message).to_string_lossy())
        };
        hs_free_compile_error(error);
        text
    }
}

impl Mpm for Hyperscan {
    fn prepare(&self, scratch: &mut EngineScratch) -> Result<(), MpmError> {
        // SAFETY: the database is valid. The scratch is null or valid, and the mutable borrow keeps it unused elsewhere.
        // On failure the library leaves a pointer that is null or can still be freed.
        let rc = unsafe { hs_alloc_scratch(self.db.as_ptr(), &mut scratch.hs.0) };
        if rc == HS_SUCCESS { Ok(()) } else { Err(MpmError::Build(format!("Hyperscan scratch: error {rc}"))) }
    }

    fn scan(&self, data: &[u8], scratch: &mut EngineScratch, mut hit: OnHit<'_>) -> Result<(), ScanError> {
        // Without a scratch the library would return the same error. It does not accept buffers over 4 GiB.
        let Some(length) = c_uint::try_from(data.len()).ok().filter(|_| !scratch.hs.0.is_null()) else {
            return Err(ScanError(HS_INVALID));
        };
        let context: *mut OnHit<'_> = &mut hit;
        // SAFETY: `data` is readable for `length` bytes. The scratch is not null, was prepared by `prepare`, and only
        // this scan uses it. `on_match` gets what `context` points to, which nothing else touches until the call
        // returns. With a scratch not prepared for this database, the library returns an error.
        let rc = unsafe {
            hs_scan(self.db.as_ptr(), data.as_ptr().cast(), length, 0, scratch.hs.0, Some(on_match), context.cast())
        };
        if rc == HS_SUCCESS { Ok(()) } else { Err(ScanError(rc)) }
    }

    fn memory(&self) -> usize {
        let mut size = 0;
        // SAFETY: the database is valid and `size` is a valid place.
        let rc = unsafe { hs_database_size(self.db.as_ptr(), &mut size) };
        if rc == HS_SUCCESS { size } else { 0 }
    }
}
