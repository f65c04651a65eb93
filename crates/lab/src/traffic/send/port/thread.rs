//! Scheduler settings of a sending thread, so that packets leave on time.

use std::io;
use std::mem::size_of;

/// Asks the kernel to end this thread's sleeps without slack; the default slack is 50 µs.
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

/// Gives this thread the highest nice priority, if the user may. Returns whether that worked.
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

/// Reserves most of a processor for this thread (`SCHED_DEADLINE`): 0.94 ms of every millisecond, so that it never waits longer
/// than the remaining 0.06 ms. (The kernel would throttle `SCHED_FIFO` for 50 ms of every second.)
///
/// # Errors
/// The user lacks the permission, or the processors' time is already reserved.
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
    // SAFETY: the attributes have the size that they state, and are read during the call; 0 is this thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
