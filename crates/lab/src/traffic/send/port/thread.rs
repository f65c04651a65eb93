//! What a thread asks of the scheduler so that packets leave in time.

use std::io;
use std::mem::size_of;

/// Asks the kernel to wake this thread to the microsecond when it sleeps, instead of within 50.
pub(crate) fn sleep_exactly() {
    // SAFETY: no memory is passed.
    unsafe {
        libc::prctl(
            libc::PR_SET_TIMERSLACK,
            1 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        );
    }
}

/// Puts this thread before others by its nice value, as far as the user may; gives whether that worked.
pub(crate) fn first() -> bool {
    // SAFETY: no memory is passed; 0 is this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) == 0 }
}

/// `struct sched_attr` of sched_setattr(2).
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Reserves most of a processor for this thread (`SCHED_DEADLINE`): 0.94 ms of every millisecond, so that it never waits
/// longer than the rest of one. (`SCHED_FIFO` would be stopped for 50 ms of every second.)
///
/// # Errors
/// The user may not, or the processors' time is promised already.
pub(crate) fn realtime() -> io::Result<()> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: 6,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: 940_000,
        deadline: 1_000_000,
        period: 1_000_000,
    };
    // SAFETY: the attributes are of the size that they tell, and are read during the call; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
