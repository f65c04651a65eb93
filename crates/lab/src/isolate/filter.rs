//! System calls that a container may not make: those that container runtimes block by default.
#![allow(unsafe_code)]

/// These fail with EPERM.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

#[cfg(target_arch = "x86_64")] // portable: the number of the kernel's interface
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")] // portable: the number of the kernel's interface
const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))] // portable: the number of the kernel's interface
const ARCHITECTURE: u32 = 0;
/// Whether the filter knows this architecture's system call numbers.
pub(super) const AVAILABLE: bool = ARCHITECTURE != 0;

/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// The filter program: calls of another architecture kill the process, those in [`REFUSED`] fail, all others pass.
fn program() -> Vec<libc::sock_filter> {
    let line = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: u32| line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equal = |value: u32, jt: u8, jf: u8| line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, value);
    let answer = |value: u32| line(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let mut lines = vec![load(ARCHITECTURE_AT), equal(ARCHITECTURE, 1, 0), answer(libc::SECCOMP_RET_KILL_PROCESS)];
    lines.push(load(NUMBER_AT));
    for (at, number) in REFUSED.iter().enumerate() {
        // Jump to the last line: past the following checks and the line that lets a call pass.
        lines.push(equal(*number as u32, (REFUSED.len() - at) as u8, 0));
    }
    lines.push(answer(libc::SECCOMP_RET_ALLOW));
    lines.push(answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    lines
}

/// Installs the filter for this process and its children.
///
/// # Errors
/// If the kernel rejects it.
pub(super) fn install() -> std::io::Result<()> {
    let lines = program();
    let filter = libc::sock_fprog { len: lines.len() as u16, filter: lines.as_ptr().cast_mut() };
    // SAFETY: prctl reads the structure and the lines it points to, which live until it returns, and writes to neither.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program's result for a call.
    fn answer(architecture: u32, number: u32) -> u32 {
        let lines = program();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let line = &lines[at];
            at += 1;
            match u32::from(line.code) & 7 {
                libc::BPF_LD => loaded = if line.k == NUMBER_AT { number } else { architecture },
                libc::BPF_JMP => at += usize::from(if loaded == line.k { line.jt } else { line.jf }),
                _ => return line.k,
            }
        }
    }

    #[test]
    fn only_what_is_named_is_refused() {
        for number in 0..600 {
            let refused = REFUSED.contains(&libc::c_long::from(number));
            let expected = if refused { libc::SECCOMP_RET_ERRNO | 1 } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(ARCHITECTURE, number as u32), expected, "{number}");
        }
        assert_eq!(answer(3, 1), libc::SECCOMP_RET_KILL_PROCESS);
    }
}
