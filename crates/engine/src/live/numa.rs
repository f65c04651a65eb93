//! `margay.numa`: whether a worker may use memory of other NUMA nodes than those of its CPUs.
//!
//! A worker allocates its memory and its ring itself, on its CPU, so that the kernel prefers near memory (`local`). With
//! `bind` it uses only near memory: if a node is full, its worker fails instead of becoming slower.

use std::fs;

use margay_config::{Config, ConfigError};

const NODES: &str = "/sys/devices/system/node";
/// `MPOL_BIND` of `set_mempolicy(2)`.
const BIND: libc::c_int = 2;
/// Nodes that a mask has room for: Linux's maximum.
const MOST: usize = 1024;
const WORD: usize = libc::c_ulong::BITS as usize;

/// Reads the setting: whether memory is bound.
///
/// # Errors
/// The value is neither `local` nor `bind`.
pub(super) fn wanted(config: &Config) -> Result<bool, ConfigError> {
    let Some(node) = config.node("margay.numa") else { return Ok(false) };
    match node.text() {
        "" | "local" => Ok(false),
        "bind" => Ok(true),
        other => Err(node.error(format!("margay.numa: \"{other}\" is neither local nor bind"))),
    }
}

/// The NUMA nodes of some CPUs, from the kernel's lists; empty on a kernel without NUMA.
fn nodes(folder: &str, cpus: &[usize]) -> Vec<usize> {
    let has = |list: &str| {
        list.trim().split(',').any(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = first.parse::<usize>().ok().zip(last.parse::<usize>().ok());
            range.is_some_and(|(first, last)| cpus.iter().any(|cpu| (first..=last).contains(cpu)))
        })
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let node = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.strip_prefix("node")?.parse::<usize>().ok()?;
        has(&fs::read_to_string(entry.path().join("cpulist")).ok()?).then_some(id)
    };
    let mut out: Vec<usize> = entries.filter_map(node).filter(|node| *node < MOST).collect();
    out.sort_unstable();
    out
}

/// From now on, allocates memory of the calling thread only on the nodes of these CPUs. Returns the nodes.
///
/// # Errors
/// The kernel's error. In a container, this may need `CAP_SYS_NICE`.
pub(super) fn bind(cpus: &[usize]) -> std::io::Result<Vec<usize>> {
    let nodes = nodes(NODES, cpus);
    if nodes.is_empty() {
        return Ok(nodes);
    }
    let mut mask = [0 as libc::c_ulong; MOST / WORD];
    for node in &nodes {
        mask[node / WORD] |= 1 << (node % WORD);
    }
    set_policy(BIND, &mask)?;
    Ok(nodes)
}

#[allow(unsafe_code)]
fn set_policy(mode: libc::c_int, mask: &[libc::c_ulong; MOST / WORD]) -> std::io::Result<()> {
    // The kernel uses one bit less than this number.
    let bits = MOST as libc::c_ulong + 1;
    // SAFETY: the kernel reads `bits - 1` bits of the mask, which is that long and lives through the call; nothing is written.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), bits) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_cpus_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for (node, list) in [("node0", "0-1,4-5\n"), ("node1", "2-3,6\n"), ("online", "0-1\n")] {
            let at = dir.path().join(node);
            fs::create_dir(&at).unwrap();
            fs::write(at.join("cpulist"), list).unwrap();
        }
        let of = |cpus: &[usize]| nodes(dir.path().to_str().unwrap(), cpus);
        assert_eq!((of(&[4]), of(&[6]), of(&[1, 2]), of(&[9])), (vec![0], vec![1], vec![0, 1], vec![]));
    }

    #[test]
    fn what_is_neither_is_said() {
        let read = |text: &str| wanted(&Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").unwrap());
        assert!(!read("margay: {}").unwrap() && !read("margay: {numa: local}").unwrap());
        assert!(read("margay: {numa: bind}").unwrap());
        assert!(read("margay.numa: bind").unwrap(), "as `margay tune` writes it");
        assert!(read("margay: {numa: far}").unwrap_err().to_string().contains("neither local nor bind"));
    }

    #[test]
    fn a_threads_memory_is_bound() {
        let bound = std::thread::spawn(|| {
            let nodes = bind(&[0]);
            // Each mapping has the policy of its thread.
            (nodes, fs::read_to_string("/proc/thread-self/numa_maps").unwrap_or_default())
        });
        match bound.join().unwrap() {
            (Ok(nodes), maps) if !nodes.is_empty() && !maps.is_empty() => {
                let policy = format!(" bind:{} ", nodes[0]);
                assert!(maps.contains(&policy), "{policy}: {maps}");
            }
            _ => margay_testing::unavailable("this kernel has no memory nodes, or lets nobody bind to them"),
        }
        let other = fs::read_to_string("/proc/thread-self/numa_maps").unwrap_or_default();
        assert!(!other.contains(" bind:"), "other threads are as they were");
    }
}
