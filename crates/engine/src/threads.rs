//! Handles panics of threads. No thread is supposed to panic. If one does, it is logged and counted
//! (`engine.failed_threads`), and the engine reacts:
//!
//! | thread | effect |
//! | --- | --- |
//! | a worker of a live capture | the engine stops with status 1; inline, no more packets are forwarded, or they pass if the queue says so (`live.md`) |
//! | a worker of a capture file | the other workers finish, the output is kept, and the engine ends with status 1 |
//! | the reader of a file | reading ends with an error |
//! | the event writer | workers write the events themselves; its unfinished lines are counted (`eve.lost`) |
//! | a sender of events to another host | its events are lost and counted (`output.remote.lost`) |
//! | the writer of stored files | no more files are stored (`file_store.files_lost`) |
//! | the reader of kernel bypass counts | restarts; after repeated failures, flows are bypassed only in user space |
//! | statistics | no more statistics are written; packets are still inspected |
//! | the loader of rules | the active rules stay |
//! | the unix socket, signals, the watchdog, the thread that drops old rules, live views, the live page | restarts; a client's connection ends |

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_output::{error, notice};

/// How often a thread restarts, and after which delay.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

static FAILED: AtomicU64 = AtomicU64::new(0);

/// The number of panics so far, of all threads.
pub(crate) fn failed() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

/// From now on, every panic is logged and counted.
pub(crate) fn tell_of_panics() {
    static ONCE: Once = Once::new();
    thread_local! {
        static TELLING: Cell<bool> = const { Cell::new(false) };
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            FAILED.fetch_add(1, Ordering::Relaxed);
            // The log itself may have panicked.
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

/// Runs `run`, and restarts it a few times if it panics. Returns `false` if every try failed.
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

/// Runs `run` once; `None` if it panicked.
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
