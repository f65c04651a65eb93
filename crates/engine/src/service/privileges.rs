//! The user, groups and capabilities of the process.
//!
//! The user changes before anything is opened or read that is needed again later. So missing permissions show at the start,
//! not at the first reload or rotation, and all files belong to the user. Later work that still needs privileges (sockets on
//! interfaces, priorities) uses capabilities of threads. All of these remain until the engine is ready. Then a worker keeps
//! what it needs to reopen its socket, the thread that maintains kernel bypass keeps what it needs to reattach its program,
//! and all other threads keep nothing. The bounding set is empty from the start, so that no program started later can regain
//! capabilities.
//!
//! A packet source may need kernel files that belong to root. They are opened with [`borrowing`], which enables the
//! capability only for that moment. Elsewhere, errors about files that the user may not read stay visible.
//!
//! Capabilities and, here, users belong to a thread; a new thread inherits those of its creator. So all of this happens in
//! the first thread before there are others, and each thread that needs less drops the rest itself ([`shed`], [`keep`]).

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use margay_config::{Capture, Config, RunOptions};
use nix::unistd::{Group, User, getgrouplist};
use rustix::process::{Gid, Uid, geteuid, getgid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::Failed;

/// To attach the bypass program to an interface. The program does arithmetic on packet pointers, which needs `CAP_PERFMON`.
const FOR_BYPASS: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF).union(CapabilitySet::PERFMON);

/// Whether threads drop the capabilities that they do not need, and what a worker keeps.
static DROPPING: AtomicBool = AtomicBool::new(false);
static KEPT: AtomicU64 = AtomicU64::new(0);

/// Capabilities that a run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Needs {
    /// Needed until the engine is ready.
    pub(super) start: CapabilitySet,
    /// Needed until the engine is ready, and in effect only while a packet source is opened.
    pub(super) borrowed: CapabilitySet,
    /// Needed by workers until the end.
    pub(super) kept: CapabilitySet,
}

impl Needs {
    /// The needs of a packet source. `bypasses` says whether the kernel bypasses flows. Files need nothing.
    ///
    /// An AF_PACKET socket is reopened when its interface reappears, which needs `CAP_NET_RAW`. With kernel bypass, workers
    /// add flows to a map. Before Linux 5.19, each use of a map needs `CAP_BPF` if `kernel.unprivileged_bpf_disabled` is set.
    /// Each NFQUEUE verdict needs `CAP_NET_ADMIN`. The sockets for its answers are opened once, and so is root's file with
    /// the kernel's counters. AF_XDP reloads its program, and its memory counts as locked; its interface settings are in
    /// root's files.
    pub(super) fn of(options: &RunOptions, config: &Config, bypasses: bool) -> Needs {
        let (kept, borrowed) = match &options.capture {
            Some(Capture::Interfaces(_) | Capture::AfPacket(_) | Capture::Pcap(_)) => {
                let bypass = if bypasses { CapabilitySet::BPF } else { CapabilitySet::empty() };
                (CapabilitySet::NET_RAW | bypass, CapabilitySet::empty())
            }
            Some(Capture::Nfqueue(_)) => (CapabilitySet::NET_ADMIN, CapabilitySet::DAC_OVERRIDE),
            Some(Capture::AfXdp(_)) => (
                CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::IPC_LOCK,
                CapabilitySet::DAC_OVERRIDE,
            ),
            _ => (CapabilitySet::empty(), CapabilitySet::empty()),
        };
        let mut start = kept;
        if !kept.is_empty() {
            // Thread priorities.
            if config.bool("threading.set-cpu-affinity").ok().flatten().unwrap_or(false) {
                start |= CapabilitySet::SYS_NICE;
            }
            // One-time changes to interfaces and the kernel; sockets for the answers to rejected packets.
            start |= CapabilitySet::NET_ADMIN | CapabilitySet::BPF | CapabilitySet::NET_RAW;
        }
        if bypasses {
            start |= FOR_BYPASS;
        }
        Needs { start, borrowed, kept }
    }
}

/// An account to run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// The configured name, for messages.
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) gid: Gid,
    /// Supplementary groups.
    groups: Vec<Gid>,
}

impl Account {
    /// The account of a user and a group, each a name or a number. Without a group, the user's own group; without a user, the
    /// current user.
    ///
    /// # Errors
    /// The user or group does not exist.
    pub(super) fn find(user: Option<&str>, group: Option<&str>) -> Result<Option<Account>, Failed> {
        let failed = |what: String| Failed::new("privs", what);
        let gid = match group {
            None => None,
            Some(g) => Some(group_of(g)?),
        };
        let Some(user) = user else {
            let of = |gid: Gid| Account {
                name: format!("group {}", group.unwrap_or_default()),
                uid: getuid(),
                gid,
                groups: vec![gid],
            };
            return Ok(gid.map(of));
        };
        let looked_up = |e| failed(format!("cannot look the user \"{user}\" up: {e}"));
        let mut entry = User::from_name(user).map_err(looked_up)?;
        let number = user.parse::<u32>().ok().filter(|n| *n != u32::MAX);
        if let (None, Some(n)) = (&entry, number) {
            entry = User::from_uid(nix::unistd::Uid::from_raw(n)).map_err(looked_up)?;
        }
        let (uid, gid, groups) = match (&entry, number, gid) {
            (Some(u), _, gid) => {
                let gid = gid.unwrap_or_else(|| Gid::from_raw(u.gid.as_raw()));
                let name = CString::new(u.name.as_str()).unwrap_or_default();
                let list = getgrouplist(&name, nix::unistd::Gid::from_raw(gid.as_raw()))
                    .map_err(|e| failed(format!("cannot look up the groups of the user \"{user}\": {e}")))?;
                (Uid::from_raw(u.uid.as_raw()), gid, list.iter().map(|g| Gid::from_raw(g.as_raw())).collect())
            }
            (None, Some(n), Some(gid)) => (Uid::from_raw(n), gid, vec![gid]),
            (None, Some(_), None) => {
                return Err(failed(format!(
                    "nobody has the number {user}: name the group too (--group, run-as.group)"
                )));
            }
            (None, None, _) => {
                return Err(failed(format!(
                    "there is no user \"{user}\" (--user, run-as.user); `useradd --system --no-create-home {user}` makes one"
                )));
            }
        };
        Ok(Some(Account { name: format!("user {user}"), uid, gid, groups }))
    }
}

fn group_of(name: &str) -> Result<Gid, Failed> {
    let found = Group::from_name(name)
        .map_err(|e| Failed::new("privs", format!("cannot look the group \"{name}\" up: {e}")))?
        .map(|g| g.gid.as_raw());
    let number = name.parse::<u32>().ok().filter(|n| *n != u32::MAX);
    found.or(number).map(Gid::from_raw).ok_or_else(|| {
        Failed::new(
            "privs",
            format!("there is no group \"{name}\" (--group, run-as.group); `groupadd --system {name}` makes one"),
        )
    })
}

/// Switches to that account. Keeps the capabilities that are needed, or all if none are to be dropped. The calling thread
/// must be the only one.
///
/// # Errors
/// The process may not do that.
pub(super) fn become_account(account: &Account, needs: Option<Needs>) -> Result<(), Failed> {
    let failed =
        |what: &str, e: rustix::io::Errno| Failed::new("privs", format!("cannot run as {}: {what}: {e}", account.name));
    let before = capabilities(None).map_err(|e| failed("capabilities", e))?;
    if !before.effective.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        if (getuid(), getgid()) == (account.uid, account.gid) {
            return Ok(());
        }
        return Err(Failed::new(
            "privs",
            format!(
                "cannot run as {}: only root can become another user; this is uid {}",
                account.name,
                getuid().as_raw()
            ),
        ));
    }
    set_keep_capabilities(true).map_err(|e| failed("capabilities cannot be kept", e))?;
    set_thread_groups(&account.groups).map_err(|e| failed("groups", e))?;
    set_thread_res_gid(account.gid, account.gid, account.gid).map_err(|e| failed("group", e))?;
    if account.uid != getuid() {
        set_thread_res_uid(account.uid, account.uid, account.uid).map_err(|e| failed("user", e))?;
    }
    set_keep_capabilities(false).map_err(|e| failed("capabilities", e))?;
    // The kernel cleared the effective set when the user changed.
    let effective = needs.map_or(before.effective, |n| n.start & before.effective);
    let permitted = needs.map_or(before.permitted, |n| (n.start | n.borrowed) & before.permitted);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
        .map_err(|e| failed("capabilities", e))
}

/// Clears the bounding and inheritable sets, so that no program started later can get capabilities. If that is not allowed,
/// nothing changes. That is safe, because only root could have any.
pub(super) fn bound() {
    for n in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << n);
        if capability_is_in_bounding_set(one).unwrap_or(false) {
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    let _ = clear_ambient_capability_set();
}

/// From now on, threads drop the capabilities that they do not need; workers keep `kept`.
pub(super) fn drop_from_here_on(kept: CapabilitySet) {
    KEPT.store(kept.bits(), Ordering::Relaxed);
    DROPPING.store(true, Ordering::Release);
}

/// Whether this process is exempt from the limit of locked memory, until it ends.
pub(super) fn lock_memory_without_limit() -> bool {
    !DROPPING.load(Ordering::Acquire) && capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::IPC_LOCK))
}

/// Whether the user is root.
pub(super) fn is_root() -> bool {
    geteuid().is_root()
}

/// Lowers the calling thread's capabilities to at most `to`.
///
/// # Errors
/// The kernel refuses, which should not happen.
pub(super) fn lower(to: CapabilitySet) -> Result<(), Failed> {
    lower_both(to, to)
}

/// Lowers them to those that the start needs.
///
/// # Errors
/// As [`lower`].
pub(super) fn lower_to_start(needs: Needs) -> Result<(), Failed> {
    lower_both(needs.start, needs.start | needs.borrowed)
}

fn lower_both(effective: CapabilitySet, permitted: CapabilitySet) -> Result<(), Failed> {
    let lowered = capabilities(None).and_then(|now| {
        let less = CapabilitySets {
            effective: now.effective & effective,
            permitted: now.permitted & permitted,
            inheritable: CapabilitySet::empty(),
        };
        if less == now { Ok(()) } else { set_capabilities(None, less) }
    });
    lowered.map_err(|e| Failed::new("privs", format!("a thread cannot give its capabilities up: {e}")))
}

/// Drops every capability of the calling thread, if capabilities are dropped at all.
///
/// # Errors
/// As [`lower`].
pub(crate) fn shed() -> Result<(), Failed> {
    if DROPPING.load(Ordering::Acquire) { lower(CapabilitySet::empty()) } else { Ok(()) }
}

/// Drops all capabilities except those that a worker always needs.
///
/// # Errors
/// As [`lower`].
pub(crate) fn keep() -> Result<(), Failed> {
    match DROPPING.load(Ordering::Acquire) {
        true => lower(CapabilitySet::from_bits_retain(KEPT.load(Ordering::Relaxed))),
        false => Ok(()),
    }
}

/// Drops all capabilities except those that reattach the bypass program and read its counts.
///
/// # Errors
/// As [`lower`].
pub(crate) fn keep_for_bypass() -> Result<(), Failed> {
    match DROPPING.load(Ordering::Acquire) {
        true => lower(FOR_BYPASS),
        false => Ok(()),
    }
}

/// Drops all capabilities except the one that switches an interface's offloads on again.
///
/// # Errors
/// As [`lower`].
pub(crate) fn keep_for_interfaces() -> Result<(), Failed> {
    match DROPPING.load(Ordering::Acquire) {
        true => lower(CapabilitySet::NET_ADMIN),
        false => Ok(()),
    }
}

/// Runs `open`, which opens a packet source, with access to root's files, if the calling thread may have that.
pub(crate) fn borrowing<T>(open: impl FnOnce() -> T) -> T {
    let before = capabilities(None).ok().filter(|_| DROPPING.load(Ordering::Acquire));
    let Some(before) = before else { return open() };
    let wider =
        CapabilitySets { effective: before.effective | (CapabilitySet::DAC_OVERRIDE & before.permitted), ..before };
    // If this fails, the source reports which access is missing.
    let widened = wider != before && set_capabilities(None, wider).is_ok();
    let opened = open();
    if widened {
        // Lowering capabilities is always allowed. The rest is dropped when the engine is ready.
        let _ = set_capabilities(None, before);
    }
    opened
}

/// Runs `run` in a thread without capabilities, so that threads that it starts have none.
pub(crate) fn without<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    if !DROPPING.load(Ordering::Acquire) {
        return run();
    }
    std::thread::scope(|scope| {
        let bare = scope.spawn(|| {
            if let Err(f) = shed() {
                margay_output::error!(f.module, "{}", f.message);
            }
            run()
        });
        bare.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts() {
        let root = Account::find(Some("root"), None).unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (Uid::ROOT, Gid::ROOT));
        assert_eq!(Account::find(Some("0"), None).unwrap().unwrap().uid, Uid::ROOT);
        let nobody = Account::find(Some("nobody"), Some("root")).unwrap().unwrap();
        assert_eq!((nobody.uid.is_root(), nobody.gid, nobody.groups.contains(&Gid::ROOT)), (false, Gid::ROOT, true));
        let number = Account::find(Some("54321"), Some("54322")).unwrap().unwrap();
        assert_eq!((number.uid.as_raw(), number.gid.as_raw(), number.groups.len()), (54321, 54322, 1));
        assert_eq!(Account::find(None, None).unwrap(), None);
        for (user, group, word) in [
            (Some("no such user"), None, "useradd"),
            (Some("54321"), None, "--group"),
            (Some("root"), Some("no such group"), "groupadd"),
            (Some("4294967295"), Some("0"), "no user"),
        ] {
            let e = Account::find(user, group).unwrap_err();
            assert!(e.message.contains(word), "{e}");
        }
    }

    #[test]
    fn needs() {
        let config = Config::from_str("%YAML 1.1\n---\na: b\n", "t").unwrap();
        let needs = |config: &Config, capture| {
            let options = RunOptions { capture, ..RunOptions::default() };
            Needs::of(&options, config, crate::live::access(config, &options).bypasses)
        };
        let of = |capture| needs(&config, capture);
        let file = of(Some(Capture::File("a".into())));
        assert!(file.start.is_empty() && file.kept.is_empty());
        assert!(of(Some(Capture::UnixSocket(None))).start.is_empty());
        assert_eq!(of(Some(Capture::AfPacket(Vec::new()))).kept, CapabilitySet::NET_RAW);
        let queue = of(Some(Capture::Nfqueue(vec![0])));
        assert!(queue.kept == CapabilitySet::NET_ADMIN && queue.start.contains(CapabilitySet::NET_RAW));
        let xdp = of(Some(Capture::AfXdp(Vec::new())));
        assert!(xdp.kept.contains(CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW));
        assert!(!(queue.start | xdp.start).contains(CapabilitySet::DAC_OVERRIDE));
        let text = "%YAML 1.1\n---\naf-packet:\n  - {interface: a, bypass: yes}\n  - {interface: b}\n";
        let config = Config::from_str(text, "t").unwrap();
        for (name, kept) in [("a", CapabilitySet::NET_RAW | CapabilitySet::BPF), ("b", CapabilitySet::NET_RAW)] {
            let capture = Some(Capture::AfPacket(vec![name.into()]));
            assert_eq!(needs(&config, capture).kept, kept);
        }
    }

    #[test]
    fn a_thread_gives_up_what_it_has() {
        std::thread::scope(|scope| {
            let had = scope.spawn(|| {
                lower(CapabilitySet::NET_RAW).unwrap();
                let left = capabilities(None).unwrap();
                assert!(CapabilitySet::NET_RAW.contains(left.permitted | left.effective));
                lower(CapabilitySet::empty()).unwrap();
                capabilities(None).unwrap()
            });
            let had = had.join().unwrap();
            assert!(had.permitted.is_empty() && had.effective.is_empty());
        });
    }
}
