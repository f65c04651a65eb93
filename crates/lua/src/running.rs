//! Tells other threads which script a thread is running: each script has one number that is written at the start and the end
//! of a call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number for the calling thread while it lives; never 0.
pub fn thread_mark() -> usize {
    MARK.with(|m| std::ptr::from_ref(m).addr())
}

/// The file of the script that a thread with this mark is running. Checks every script, so it is for rare use.
pub fn running(thread: usize) -> Option<String> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let there = all.scripts.iter().filter_map(Weak::upgrade).find(|c| c.thread.load(Ordering::Relaxed) == thread);
    there.map(|c| c.name.clone())
}

static ALL: Mutex<All> = Mutex::new(All { scripts: Vec::new(), tidy: 64 });

struct All {
    scripts: Vec<Weak<Call>>,
    /// The number of entries at which dead ones are removed.
    tidy: usize,
}

/// A script, and the thread that runs it; 0 for none.
#[derive(Debug)]
pub(crate) struct Call {
    thread: AtomicUsize,
    name: String,
}

impl Call {
    /// The entry of a script with that file.
    pub(crate) fn of(name: &str) -> Arc<Call> {
        let call = Arc::new(Call { thread: AtomicUsize::new(0), name: name.to_owned() });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if all.scripts.len() >= all.tidy {
            all.scripts.retain(|w| w.strong_count() > 0);
            all.tidy = (all.scripts.len() * 2).max(64);
        }
        all.scripts.push(Arc::downgrade(&call));
        call
    }

    /// Marks the script as running on the calling thread, until the return value is dropped.
    pub(crate) fn begin(&self) -> InCall<'_> {
        self.thread.store(thread_mark(), Ordering::Relaxed);
        InCall(self)
    }
}

/// A running script.
pub(crate) struct InCall<'a>(&'a Call);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_a_script() {
        let (a, _b) = (Call::of("a.lua"), Call::of("b.lua"));
        let me = thread_mark();
        assert_ne!(me, std::thread::spawn(thread_mark).join().unwrap());
        assert_eq!(running(me), None);
        let call = a.begin();
        let seen = std::thread::spawn(move || (running(me), running(thread_mark()))).join().unwrap();
        assert_eq!(seen, (Some("a.lua".to_owned()), None));
        drop(call);
        assert_eq!(running(me), None);
    }

    #[test]
    fn scripts_that_are_gone_are_let_go() {
        for n in 0..10_000 {
            drop(Call::of(&n.to_string()));
        }
        assert!(ALL.lock().unwrap().scripts.len() <= 256);
    }
}
