//! A virtual machine: QEMU, with KVM if a guest boots with it. Otherwise it is emulated (TCG), and its name says so.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::guest::{self, Kernel};
use super::{Isolation, Job, MACHINE_MEMORY, program};
use crate::problem::{Outcome, Problem};

/// Executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's emulation, ten or more times slower.
    Tcg,
}

impl Accelerator {
    /// The isolation's name with this accelerator, as part of an engine's name.
    pub(super) fn called(self) -> &'static str {
        match self {
            Accelerator::Kvm => "virtual machine (KVM)",
            Accelerator::Tcg => "emulated machine (TCG)",
        }
    }

    fn words(self) -> [&'static str; 4] {
        match self {
            // Some hosts offer registers to a guest that they then refuse to set.
            Accelerator::Kvm => ["-accel", "kvm", "-cpu", "host,-arch-capabilities"],
            Accelerator::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

#[cfg(target_arch = "aarch64")] // portable: the name of another program
const QEMU: (&str, &[&str], &str) = ("qemu-system-aarch64", &["-M", "virt"], "ttyAMA0");
#[cfg(not(target_arch = "aarch64"))] // portable: the name of another program
const QEMU: (&str, &[&str], &str) = ("qemu-system-x86_64", &["-M", "q35"], "ttyS0");

/// Time limit for booting a guest with KVM; it normally takes two seconds.
const BOOT: Duration = Duration::from_secs(20);

/// KVM if a guest boots with it here, which is tested once.
pub(crate) fn accelerator() -> Accelerator {
    static FOUND: OnceLock<Accelerator> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let usable = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        if usable && Kernel::find().is_ok_and(|kernel| boots(Accelerator::Kvm, &kernel)) {
            return Accelerator::Kvm;
        }
        Accelerator::Tcg
    })
}

/// Whether a guest's kernel reports that it has no program to start.
fn boots(with: Accelerator, kernel: &Kernel) -> bool {
    let mut command = Command::new(QEMU.0);
    command.args(with.words()).args(QEMU.1).args(["-nodefaults", "-display", "none", "-serial", "stdio", "-m", "256"]);
    command.args(["-no-reboot", "-append", &format!("console={} panic=-1", QEMU.2)]).arg("-kernel").arg(&kernel.image);
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    // Without a program to start, it panics and, with `-no-reboot`, ends QEMU.
    let begun = Instant::now();
    while begun.elapsed() < BOOT {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(50)),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// See the module.
pub(super) struct Machine;

impl Isolation for Machine {
    fn wrap(&self, job: &Job<'_>) -> Outcome<Vec<String>> {
        if job.capture.is_some() {
            return Err(Problem::Usage(
                "isolation machine: captures are not read offline in a virtual machine".to_owned(),
            ));
        }
        let kernel = Kernel::find().map_err(|why| Problem::Failed(format!("isolation machine: {why}")))?;
        let archive = job.short.join("guest.cpio");
        guest::write(job, &kernel, &archive)?;
        let mut words = vec![QEMU.0.to_owned()];
        let mut add = |all: &[&str]| words.extend(all.iter().map(|word| (*word).to_owned()));
        add(&accelerator().words());
        add(QEMU.1);
        let memory = job.memory.unwrap_or(MACHINE_MEMORY) >> 20;
        add(&["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
        add(&["-m", &memory.to_string(), "-smp", &job.cpus.max(1).to_string()]);
        add(&["-kernel", &kernel.image.to_string_lossy(), "-initrd", &archive.to_string_lossy()]);
        add(&["-append", &format!("console={} quiet panic=-1 rdinit=/init", QEMU.2)]);
        if let Some(counters) = job.counters {
            add(&["-device", "virtio-serial-pci", "-chardev", &format!("file,id=counters,path={}", option(counters))]);
            add(&["-device", "virtserialport,chardev=counters,name=counters"]);
        }
        if let Some((_, Some(tap))) = job.interface {
            add(&["-netdev", &format!("tap,id=wire,ifname={tap},script=no,downscript=no")]);
            add(&["-device", "virtio-net-pci,netdev=wire,mac=02:00:00:00:00:01,romfile="]);
        }
        Ok(words)
    }

    fn missing(&self, _: Option<u64>) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("it needs root".to_owned());
        }
        for (name, package) in [(QEMU.0, "qemu-system"), ("busybox", "busybox-static"), ("ldd", "libc-bin")] {
            if program(name).is_none() {
                return Some(format!("there is no {name} ({package})"));
            }
        }
        Kernel::find().err()
    }
}

/// Escapes a path for QEMU's options, where a comma ends a value.
fn option(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
