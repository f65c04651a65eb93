//! Threads that fail. No thread is meant to panic; where one does it is told in the engine's log and counted (`engine.failed_threads`),
//! whichever it is, and the engine acts on it:
//!
//! | thread | what becomes of its work |
//! | --- | --- |
//! | a worker of a live capture | the engine stops with status 1: inline nothing more is sent on, or passes as the queue says (`live.md`) |
//! | a worker of a capture file | the others come to their end, what was written stays, and the engine ends with status 1 |
//! | who reads ahead in a file | reading ends there with an error |
//! | who writes events | workers write them themselves; lines that it was at are counted (`eve.lost`) |
//! | who sends events to another machine | they are lost and counted (`output.remote.lost`) |
//! | who writes stored files | no more files are stored (`file_store.files_lost`) |
//! | who reads what the kernel bypassed | begins anew; if it fails again and again flows are bypassed in user space from then on |
//! | statistics | none are written any more; packets are inspected |
//! | who loads rules | the rules in use stay |
//! | the unix socket, signals, the watchdog, who drops old rules, who watches the engine, the live page | begin anew; a client's connection ends |

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_output::{error, notice};

/// How often a thread begins anew, and after how long.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

static FAILED: AtomicU64 = AtomicU64::new(0);

/// Panics so far, of any thread.
pub(crate) fn failed() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

/// From here on every panic is told in the log and counted.
pub(crate) fn tell_of_panics() {
    static ONCE: Once = Once::new();
    thread_local! {
        static TELLING: Cell<bool> = const { Cell::new(false) };
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            FAILED.fetch_add(1, Ordering::Relaxed);
            // The log itself may be what failed.
            if TELLING.replace(true) {
                return before(info);
            }
            let thread = std::thread::current();
            let place = info.location().map(|l| format!(", {}:{}", l.file(), l.line())).unwrap_or_default();
            error!(
                "threads",
                "the thread \"{}\" failed: {}{place}; this is a fault of the engine, please report it",
                thread.name().unwrap_or("without a name"),
                message(info.payload())
            );
            TELLING.set(false);
            if std::env::var_os("RUST_BACKTRACE").is_some() {
                before(info);
            }
        }));
    });
}

/// Does `run`, and anew where it panics, a few times. `false` where it failed each time: then it is given up.
pub(crate) fn persist(what: &str, mut run: impl FnMut()) -> bool {
    for n in 1..=TRIES {
        if catch_unwind(AssertUnwindSafe(&mut run)).is_ok() {
            return true;
        }
        if n < TRIES {
            std::thread::sleep(PAUSE);
            notice!("threads", "{what}: begins anew");
        }
    }
    error!("threads", "{what}: failed {TRIES} times and is given up");
    false
}

/// Does `run` once; `None` where it panicked.
pub(crate) fn once<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_begins_anew_a_few_times() {
        let mut times = 0;
        assert!(persist("a test", || {
            times += 1;
            assert!(times == 3, "not yet");
        }));
        assert_eq!(times, 3);
        let mut times = 0;
        assert!(!persist("a test", || {
            times += 1;
            panic!("never");
        }));
        assert_eq!((times, once(|| 7), once(|| panic!("no")).map(|()| 7)), (TRIES, Some(7), None));
    }
}
