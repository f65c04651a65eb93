//! The guest of a virtual machine: one of the distribution's kernels, and an archive (initramfs) with drivers, the
//! engine and its files.

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Job, named_files, program};
use crate::command::quoted;
use crate::problem::{Outcome, Problem};

/// Names a folder with `boot/vmlinuz-*` and `lib/modules/*`, as in a kernel package. Without it, the machine's own
/// kernel is used.
pub(super) const KERNEL: &str = "MARGAY_LAB_GUEST";

/// The port that carries the engine's counters out of the guest.
pub(super) const PORT: &str = "/dev/vport0p1";

/// Drivers that a guest needs, in load order. Those built into a kernel are missing as modules.
const DRIVERS: [&str; 11] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "hvc_driver",
    "virtio_console",
    "af_packet",
];

/// A kernel for guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The newest kernel.
    ///
    /// # Errors
    /// A clause that says what is missing.
    pub(super) fn find() -> Result<Kernel, String> {
        let root = std::env::var_os(KERNEL).map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let mut found: Vec<Kernel> = Vec::new();
        for entry in std::fs::read_dir(root.join("boot")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(version) = name.strip_prefix("vmlinuz-") else { continue };
            let folder = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder).join(version));
            let modules = folder.into_iter().find(|folder| folder.is_dir());
            found.extend(modules.map(|modules| Kernel { image: entry.path(), modules }));
        }
        found.sort_by(|a, b| a.image.cmp(&b.image));
        found.pop().ok_or_else(|| {
            format!(
                "there is no kernel for a guest in {} ({KERNEL} names a folder with boot/vmlinuz-* and lib/modules/*)",
                root.join("boot").display()
            )
        })
    }

    /// The required drivers that are modules, in load order.
    fn drivers(&self) -> Vec<PathBuf> {
        let mut all = Vec::new();
        let mut folders = vec![self.modules.join("kernel")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    _ => all.push(entry.path()),
                }
            }
        }
        let stem = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().replace('-', "_");
            name.split('.').next().unwrap_or_default().to_owned()
        };
        DRIVERS.iter().filter_map(|name| all.iter().find(|path| stem(path) == *name).cloned()).collect()
    }
}

/// An archive in the kernel's format (cpio, "newc"; Documentation/driver-api/early-userspace/buffer-format.rst).
struct Archive<W: Write> {
    out: W,
    number: u32,
    folders: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    fn new(out: W) -> Archive<W> {
        Archive { out, number: 0, folders: BTreeSet::new() }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> std::io::Result<()> {
        self.number += 1;
        let size = u32::try_from(content.len()).map_err(|_| std::io::Error::other("a file is larger than 4 GiB"))?;
        // Inode, mode, owner, group, links, time, size, four device numbers, length of the name, checksum.
        let fields = [self.number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        let mut head = "070701".to_owned();
        head.extend(fields.map(|field| format!("{field:08x}")));
        let pad = |length: usize| [0u8; 4].into_iter().take((4 - length % 4) % 4).collect::<Vec<u8>>();
        let length = head.len() + path.len() + 1;
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        self.out.write_all(&pad(length))?;
        self.out.write_all(content)?;
        self.out.write_all(&pad(content.len()))
    }

    /// Adds a folder and its parents.
    fn folder(&mut self, path: &Path) -> std::io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().filter(|part| part.parent().is_some()).collect();
        above.reverse();
        for part in above {
            if self.folders.insert(part.to_owned()) {
                let name = part.to_string_lossy();
                self.entry(name.trim_start_matches('/'), 0o040_755, &[])?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, mode: u32, content: &[u8]) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            self.folder(folder)?;
        }
        self.entry(path.to_string_lossy().trim_start_matches('/'), 0o100_000 | mode, content)
    }

    /// Copies a file of this machine to the same path.
    fn copy(&mut self, path: &Path) -> std::io::Result<()> {
        let content = std::fs::read(path)?;
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
        self.file(path, mode, &content)
    }

    fn end(mut self) -> std::io::Result<()> {
        self.number = 0;
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()
    }
}

/// The libraries that a program loads, from `ldd`.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let said = Command::new("ldd").arg(program).output().map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .filter(|path| path.is_file())
        .collect()
}

/// A program without its debugging information: the archive and its unpacked files both lie in the guest's memory, and 512 MiB
/// have no room for it. `scratch` is a file that may be written. The program is unchanged if there is no `strip`.
fn stripped(own: &Path, scratch: &Path) -> std::io::Result<Vec<u8>> {
    let Some(strip) = program("strip") else { return std::fs::read(own) };
    let done = Command::new(strip).arg("--strip-debug").arg("-o").arg(scratch).arg(own).status()?;
    let content = std::fs::read(if done.success() { scratch } else { own });
    let _ = std::fs::remove_file(scratch);
    content
}

/// The script of the guest's first process.
fn script(job: &Job<'_>, program: &Path, folders: &BTreeSet<String>) -> String {
    let mut lines = vec!["#!/bin/busybox sh".to_owned()];
    let mut add = |line: String| lines.push(line);
    add("bb=/bin/busybox; $bb mount -t proc proc /proc; $bb mount -t sysfs sys /sys; $bb mount -t devtmpfs dev /dev"
        .into());
    add("for again in 1 2 3; do for m in /drivers/*; do $bb insmod $m 2>/dev/null && $bb rm $m; done; done".into());
    add("for m in /drivers/*; do [ -e $m ] && echo \"the guest's driver $m was not loaded\"; done".into());
    add("$bb ip link set lo up".into());
    if let Some((interface, _)) = job.interface {
        add(format!(
            "for n in /sys/class/net/*; do n=${{n##*/}}; [ $n = lo ] && continue; $bb ip link set $n name {interface}; \
             $bb ip link set {interface} promisc on up; done"
        ));
    }
    add(format!(
        "export PATH=/usr/sbin:/usr/bin:/sbin:/bin LD_LIBRARY_PATH={}",
        folders.iter().cloned().collect::<Vec<_>>().join(":")
    ));
    for (name, value) in job.environment {
        add(format!("export {}", quoted(&format!("{name}={value}"))));
    }
    if let Some(counters) = job.counters {
        // `tail -F` follows a file from its beginning, whenever the file appears.
        add(format!("$bb tail -n +1 -F {} > {PORT} 2>/dev/null &", quoted(&counters.to_string_lossy())));
    }
    add(format!("cd {}", quoted(&job.dir.to_string_lossy())));
    let words = job.words.iter().skip(1).map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    add(format!("{} {words}", quoted(&program.to_string_lossy())));
    add("echo \"in the guest it ended with status $?\"; $bb sleep 1; $bb poweroff -f".into());
    lines.join("\n") + "\n"
}

/// Writes the archive for `job` to `path`.
///
/// # Errors
/// If a file that it needs is missing.
pub(super) fn write(job: &Job<'_>, kernel: &Kernel, path: &Path) -> Outcome<()> {
    let missing = |what: &str| Problem::Failed(format!("isolation machine: there is no {what}"));
    let busybox = program("busybox").ok_or_else(|| missing("busybox"))?;
    let name = job.words.first().map_or("", String::as_str);
    let own = program(name).ok_or_else(|| missing(name))?;
    let wrong = |error: std::io::Error| Problem::file("write the guest's archive", path, error);
    let file = std::fs::File::create(path).map_err(wrong)?;
    let mut archive = Archive::new(BufWriter::new(file));
    let mut files: BTreeSet<PathBuf> = named_files(job.words).into_iter().collect();
    let libraries = libraries(&own);
    let folders =
        libraries.iter().filter_map(|path| path.parent()).map(|path| path.to_string_lossy().into_owned()).collect();
    files.extend(libraries);
    files.remove(&own);
    // Rules that a configuration names without a path.
    let rules = Path::new("/var/lib/suricata/rules");
    let listed = std::fs::read_dir(rules).into_iter().flatten().flatten().map(|entry| entry.path());
    files.extend(listed.filter(|path| path.is_file()));
    files.extend(["/etc/passwd", "/etc/group"].map(PathBuf::from).into_iter().filter(|path| path.exists()));
    (|| {
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run", "/var/log", "/var/run/suricata"] {
            archive.folder(Path::new(folder))?;
        }
        archive.folder(job.dir)?;
        archive.folder(job.short)?;
        for path in &files {
            archive.copy(path)?;
        }
        let mode = std::fs::metadata(&own)?.permissions().mode() & 0o777;
        archive.file(&own, mode, &stripped(&own, &path.with_extension("stripped"))?)?;
        archive.file(Path::new("/bin/busybox"), 0o755, &std::fs::read(&busybox)?)?;
        for (at, driver) in kernel.drivers().iter().enumerate() {
            let name = driver.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (plain, content) = match name.rsplit_once('.') {
                Some((plain, packer @ ("xz" | "zst"))) => {
                    let tool = if packer == "xz" { "xz" } else { "zstd" };
                    (plain.to_owned(), Command::new(tool).arg("-dc").arg(driver).output()?.stdout)
                }
                _ => (name, std::fs::read(driver)?),
            };
            archive.file(Path::new(&format!("/drivers/{at:02}-{plain}")), 0o644, &content)?;
        }
        archive.file(Path::new("/init"), 0o755, script(job, &own, &folders).as_bytes())?;
        archive.end()
    })()
    .map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_as_the_kernel_takes_them() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.file(Path::new("/a/b/c"), 0o755, b"hello").unwrap();
        archive.file(Path::new("/a/d"), 0o644, b"").unwrap();
        archive.end().unwrap();
        // Parse the archive according to the format.
        let (mut at, mut seen) = (0, Vec::new());
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * n..at + 14 + 8 * n]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, length) = (field(1), field(6), field(11));
            let name = String::from_utf8(bytes[at + 110..at + 110 + length - 1].to_vec()).unwrap();
            let data = (at + 110 + length).next_multiple_of(4);
            seen.push((name, mode, bytes[data..data + size].to_vec()));
            at = (data + size).next_multiple_of(4);
        }
        let names: Vec<&str> = seen.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/d", "TRAILER!!!"]);
        assert_eq!((seen[0].1, seen[2].1, seen[2].2.as_slice()), (0o040_755, 0o100_755, &b"hello"[..]));
    }
}
