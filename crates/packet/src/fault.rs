//! Faults for tests: a test can make a named place in the code panic. Only in debug builds; release builds contain
//! none.
//!
//! `MARGAY_FAULT=PLACE` in the environment makes the place of that name panic when it is first reached,
//! `MARGAY_FAULT=PLACE:N` when it is reached for the Nth time, `MARGAY_FAULT=PLACE:*` each time.
//! `MARGAY_FAULT=PLACE:N:abort` aborts the process there, as a kill would: nothing is unwound or cleaned up.

/// A place that may fail.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn point(_place: &str) {}

/// A place that may fail.
///
/// # Panics
/// If `MARGAY_FAULT` asks for it.
#[cfg(debug_assertions)]
pub fn point(place: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The place's name, the occurrence at which it fails (0: each), and whether the process aborts there.
    static WANTED: OnceLock<Option<(String, u64, bool)>> = OnceLock::new();
    static TIMES: AtomicU64 = AtomicU64::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("MARGAY_FAULT").ok()?;
        let (place, when) = text.split_once(':').unwrap_or((&text, "1"));
        let (when, how) = when.split_once(':').unwrap_or((when, "panic"));
        Some((place.to_owned(), if when == "*" { 0 } else { when.parse().ok()? }, how == "abort"))
    });
    if let Some((wanted, when, aborts)) = wanted
        && wanted == place
    {
        let nth = TIMES.fetch_add(1, Ordering::Relaxed) + 1;
        if *aborts && nth == *when {
            std::process::abort();
        }
        assert!(*when != 0 && nth != *when, "a fault that a test asked for at \"{place}\"");
    }
}
