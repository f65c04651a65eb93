//! Restricts the system calls that the engine may make once it runs (seccomp).
//!
//! There are three filters, and the strictest result counts. They are applied to all threads at once, when everything is
//! ready:
//!
//! - [`Filters::Processes`] (`security.limit-noproc`): no process is started, and no program is run. Suricata sets
//!   `RLIMIT_NPROC` to 0 for that. That limit counts threads too, which are needed here to serve clients and reloads.
//! - `clone3` returns `ENOSYS`, so that the C library starts threads with `clone`, whose arguments a filter can check.
//! - [`Filters::Engine`] (`security.seccomp`): only the system calls that the engine uses.
//!
//! Speculation stays as it is (`SECCOMP_FILTER_FLAG_SPEC_ALLOW`). Kernels before 5.16 would slow the process down otherwise,
//! and only our own code runs in it (scripts are interpreted).

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::settings::Refusal;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters to apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filters {
    /// Only the ban on other processes.
    Processes,
    /// The system calls that the engine uses. `live` adds those of live capture, and `remote` those of outputs to other
    /// hosts.
    Engine { refusal: Refusal, live: bool, remote: bool },
}

/// Applies the filters to all threads.
///
/// # Errors
/// The kernel or the filter compiler refuses them.
pub(super) fn restrict(filters: Filters) -> Result<(), String> {
    for program in programs(filters)? {
        install(&program)?;
    }
    Ok(())
}

fn programs(filters: Filters) -> Result<Vec<BpfProgram>, String> {
    let errno = |e: Errno| SeccompAction::Errno(e.raw_os_error().unsigned_abs());
    let mut all = vec![
        compile([(libc::SYS_clone3, Vec::new())].into(), SeccompAction::Allow, errno(Errno::NOSYS))?,
        compile(starts_processes()?, SeccompAction::Allow, errno(Errno::PERM))?,
    ];
    if let Filters::Engine { refusal, live, remote } = filters {
        let refused = match refusal {
            Refusal::Errno => errno(Errno::PERM),
            Refusal::Kill => SeccompAction::KillProcess,
            Refusal::Log => SeccompAction::Log,
        };
        all.push(compile(engine(live, remote)?, refused, SeccompAction::Allow)?);
    }
    Ok(all)
}

fn compile(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<BpfProgram, String> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(|e| format!("{e}"))?;
    let filter = SeccompFilter::new(rules, others, these, arch).map_err(|e| e.to_string())?;
    filter.try_into().map_err(|e: seccompiler::BackendError| e.to_string())
}

/// System calls that start a process or a program.
fn starts_processes() -> Result<Rules, String> {
    let mut rules = Rules::new();
    rules.insert(libc::SYS_clone, vec![rule(0, Op::MaskedEq(libc::CLONE_THREAD as u64), 0)?]);
    for call in [libc::SYS_execve, libc::SYS_execveat] {
        rules.insert(call, Vec::new());
    }
    #[cfg(target_arch = "x86_64")] // portable: others do not have these calls
    for call in [libc::SYS_fork, libc::SYS_vfork] {
        rules.insert(call, Vec::new());
    }
    Ok(rules)
}

fn rule(argument: u8, op: Op, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, Len::Dword, op, value).map_err(|e| e.to_string())?;
    SeccompRule::new(vec![condition]).map_err(|e| e.to_string())
}

/// Memory, including that of matchers compiled at run time (Hyperscan's is data; PCRE's is code).
const MEMORY: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_mincore,
];

/// Threads, signals and time.
const THREADS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    // The loader of rules lowers its own priority.
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getcpu,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrandom,
    // A thread may drop its capabilities.
    libc::SYS_capget,
    libc::SYS_capset,
];

const FILES: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_getdents64,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_utimensat,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_ioctl,
    libc::SYS_pipe2,
];

/// Older calls that some architectures have kept.
#[cfg(target_arch = "x86_64")] // portable: others do not have these calls
const OLDER: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))] // portable: see above
const OLDER: &[i64] = &[];

/// Sockets of clients and of logs, and waiting.
const SOCKETS: &[i64] = &[
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
];

/// Uses of `prctl`: names of threads and of memory, and the auxiliary vector of the process.
const PRCTL: [libc::c_int; 4] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA, PR_GET_AUXV];
const PR_GET_AUXV: libc::c_int = 0x4155_5856;

/// Every system call that the engine uses once it runs.
fn engine(live: bool, remote: bool) -> Result<Rules, String> {
    let mut rules: Rules =
        [MEMORY, THREADS, FILES, OLDER, SOCKETS].concat().into_iter().map(|call| (call, Vec::new())).collect();
    let only = |values: &[libc::c_int], argument| {
        values.iter().map(|v| rule(argument, Op::Eq, u64::from(v.unsigned_abs()))).collect::<Result<Vec<_>, _>>()
    };
    rules.insert(libc::SYS_prctl, only(&PRCTL, 0)?);
    // This process's limits may be read, but not set.
    let new = SeccompCondition::new(2, Len::Qword, Op::Eq, 0).map_err(|e| e.to_string())?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![new]).map_err(|e| e.to_string())?]);
    let mut families = vec![libc::AF_UNIX];
    if live {
        // An interface that reappears is opened again. The internet sockets of `reject` are created earlier.
        families.extend([libc::AF_PACKET, libc::AF_NETLINK, libc::AF_XDP]);
        // The kernel program may have to be loaded again. Without the capability, the call fails.
        rules.insert(libc::SYS_bpf, Vec::new());
    }
    if remote {
        // A broken connection is opened again. Name lookups also use a netlink socket.
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    rules.insert(libc::SYS_socket, only(&families, 0)?);
    Ok(rules)
}

#[allow(unsafe_code)]
fn install(program: &BpfProgram) -> Result<(), String> {
    let len = u16::try_from(program.len()).map_err(|_| "the filter is too long".to_owned())?;
    // Both types have the layout of the kernel's `struct sock_filter`.
    let fprog = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: `fprog` points to `len` instructions that live longer than the call, which reads them and keeps a copy.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const fprog) };
    match done {
        0 => Ok(()),
        // With TSYNC, the id of a thread with another filter.
        n if n > 0 => Err(format!("the thread {n} has a filter of its own")),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile() {
        for live in [false, true] {
            for refusal in [Refusal::Errno, Refusal::Kill, Refusal::Log] {
                let all = programs(Filters::Engine { refusal, live, remote: live }).unwrap();
                assert!(all.len() == 3 && all.iter().all(|p| p.len() < 4096));
            }
        }
        assert_eq!(programs(Filters::Processes).unwrap().len(), 2);
        let (file, live) = (engine(false, false).unwrap(), engine(true, false).unwrap());
        assert_eq!(file[&libc::SYS_socket].len(), 1);
        assert_eq!(engine(false, true).unwrap()[&libc::SYS_socket].len(), 4);
        assert!(live[&libc::SYS_socket].len() > 1 && live.contains_key(&libc::SYS_bpf));
        for never in [libc::SYS_execve, libc::SYS_ptrace, libc::SYS_mount, libc::SYS_setresuid, libc::SYS_kill] {
            assert!(!live.contains_key(&never));
        }
    }
}
