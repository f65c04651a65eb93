//! `threading:`: the CPUs and priorities of threads.

use margay_config::{Config, ConfigError, Node};
use margay_output::{error, warning};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The CPUs of a kind of thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Set {
    cpus: Vec<usize>,
    /// Each thread gets one CPU; otherwise each may use all of them.
    exclusive: bool,
    /// Priorities by CPU, and the default priority.
    prio: Vec<(usize, i32)>,
    default_prio: i32,
}

/// The placement of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cpus {
    enabled: bool,
    management: Option<Set>,
    workers: Option<Set>,
    /// CPU sets of single interfaces.
    special: Vec<(String, Set)>,
    /// Worker memory is bound to the NUMA nodes of the worker's CPUs.
    bind: bool,
}

/// Nice values of the priorities, as in Suricata.
const PRIORITIES: [(&str, i32); 3] = [("low", 2), ("medium", 0), ("high", -2)];

impl Cpus {
    /// Reads `threading`, in the form of Suricata 7 (a list) or 8 (a mapping).
    ///
    /// # Errors
    /// An invalid CPU, mode or priority.
    pub(crate) fn from_config(config: &Config) -> Result<Cpus, ConfigError> {
        let mut out = Cpus { enabled: config.bool("threading.set-cpu-affinity")?.unwrap_or(false), ..Cpus::default() };
        out.bind = super::numa::wanted(config)?;
        if !out.enabled {
            if out.bind {
                warning!(
                    "threading",
                    "margay.numa: bind changes nothing: threads have CPUs with threading.set-cpu-affinity alone"
                );
            }
            return Ok(out);
        }
        let Some(sets) = config.node("threading.cpu-affinity") else { return Ok(out) };
        for item in sets.children() {
            // `- name: {...}` in a list, `name: {...}` in a mapping.
            let (name, node) = if sets.is_sequence() { item.entry() } else { (item.name(), Some(item)) };
            let Some(node) = node else { continue };
            match name {
                "management-cpu-set" => out.management = Some(set(node)?),
                "worker-cpu-set" => {
                    out.workers = Some(set(node)?);
                    for special in node.node("interface-specific-cpu-set").iter().flat_map(Node::children) {
                        let Some(interface) = special.get("interface") else {
                            return Err(special.error("interface-specific-cpu-set: names no interface"));
                        };
                        out.special.push((interface.to_owned(), set(special)?));
                    }
                }
                // Margay has no threads of these kinds.
                "receive-cpu-set" | "verdict-cpu-set" | "detect-cpu-set" | "stream-cpu-set" | "decode-cpu-set"
                | "output-cpu-set" | "reject-cpu-set" => {}
                other => {
                    return Err(node.error(format!("threading.cpu-affinity: there are no threads for \"{other}\"")));
                }
            }
        }
        Ok(out)
    }

    fn of(&self, interface: &str) -> Option<&Set> {
        let special = self.special.iter().find(|s| s.0 == interface).map(|s| &s.1);
        special.or(self.workers.as_ref()).filter(|_| self.enabled)
    }

    /// The default number of workers of an interface: one for each CPU that they may use.
    pub(crate) fn workers(&self, interface: &str) -> usize {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        self.of(interface).map_or(all, |s| s.cpus.len()).clamp(1, 256)
    }

    /// Places the calling thread, which is worker number `nth` of its interface and number `overall` of all.
    pub(crate) fn place_worker(&self, interface: &str, nth: usize, overall: usize) {
        // Interfaces that share a CPU set continue after the previous interface's workers.
        let own = self.special.iter().any(|s| s.0 == interface);
        if let Some(set) = self.of(interface) {
            let number = if own { nth } else { overall };
            set.place(number);
            if self.bind {
                let cpus = set.choice(number).0;
                match super::numa::bind(&cpus) {
                    Ok(nodes) if nodes.is_empty() => {
                        warning!("threading", "margay.numa: bind changes nothing: this machine has no memory nodes");
                    }
                    Ok(_) => {}
                    Err(e) => error!(
                        "threading",
                        "margay.numa: the memory of a worker on CPU {cpus:?} cannot be bound to its node: {e}; the kernel places it"
                    ),
                }
            }
        }
    }

    /// Places the calling thread, which is a management thread.
    pub(crate) fn place_manager(&self) {
        if let Some(set) = self.management.as_ref().filter(|_| self.enabled) {
            Set { exclusive: false, ..set.clone() }.place(0);
        }
    }
}

impl Set {
    /// The CPUs and the priority of thread number `n`.
    fn choice(&self, n: usize) -> (Vec<usize>, i32) {
        let cpus = match self.exclusive {
            true => self.cpus.get(n % self.cpus.len().max(1)).copied().into_iter().collect(),
            false => self.cpus.clone(),
        };
        let prio = cpus.first().and_then(|c| self.prio.iter().find(|p| p.0 == *c)).map_or(self.default_prio, |p| p.1);
        (cpus, prio)
    }

    fn place(&self, n: usize) {
        let (cpus, prio) = self.choice(n);
        let mut set = CpuSet::new();
        cpus.iter().filter(|c| **c < CpuSet::MAX_CPU).for_each(|c| set.set(*c));
        if let Err(e) = sched_setaffinity(None, &set) {
            error!("threading", "a thread cannot run on CPU {cpus:?}: {e}; the kernel places it");
        }
        if prio != 0
            && let Err(e) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), prio)
        {
            error!("threading", "a thread cannot have the priority {prio}: {e}");
        }
    }
}

fn set(node: Node<'_>) -> Result<Set, ConfigError> {
    let mut out = Set { exclusive: false, ..Set::default() };
    let all = || (0..std::thread::available_parallelism().map_or(1, usize::from)).collect::<Vec<_>>();
    out.cpus = match node.node("cpu") {
        Some(list) => numbers(list)?.unwrap_or_else(all),
        None => all(),
    };
    if out.cpus.is_empty() {
        return Err(node.error("cpu: names no CPU"));
    }
    out.exclusive = match node.get("mode") {
        None | Some("" | "balanced") => false,
        Some("exclusive") => true,
        Some(other) => return Err(node.error(format!("mode: \"{other}\" is neither exclusive nor balanced"))),
    };
    if let Some(prio) = node.node("prio") {
        for (name, value) in PRIORITIES {
            let Some(list) = prio.node(name) else { continue };
            match numbers(list)? {
                Some(cpus) => out.prio.extend(cpus.into_iter().map(|c| (c, value))),
                None => out.default_prio = value,
            }
        }
        if let Some(name) = prio.get("default").filter(|n| !n.is_empty()) {
            let Some(p) = PRIORITIES.iter().find(|p| p.0 == name) else {
                return Err(prio.error(format!("default: \"{name}\" is no priority; there are low, medium and high")));
            };
            out.default_prio = p.1;
        }
    }
    Ok(out)
}

/// `[0, "2-3"]`, `"1,4"`; `None` for all.
fn numbers(node: Node<'_>) -> Result<Option<Vec<usize>>, ConfigError> {
    let mut out = Vec::new();
    for text in node.values().flat_map(|v| v.split(',')) {
        let text = text.trim().trim_matches(['[', ']', '"']);
        if text == "all" {
            return Ok(None);
        }
        if text.is_empty() {
            continue;
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(a), Ok(b)) if a <= b && b < CpuSet::MAX_CPU => {
                out.extend((a..=b).filter(|n| !out.contains(n)).collect::<Vec<_>>())
            }
            _ => return Err(node.error(format!("\"{text}\" is no CPU and no range of CPUs"))),
        }
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Cpus, String> {
        let text = format!("%YAML 1.1\n---\nthreading:\n  set-cpu-affinity: yes\n  cpu-affinity:\n{text}\n");
        Cpus::from_config(&Config::from_str(&text, "t").unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn both_forms() {
        let old = read(
            "    - management-cpu-set:\n        cpu: [ 0 ]\n    - worker-cpu-set:\n        cpu: [ \"1-3\", 5 ]\n        \
             mode: \"exclusive\"\n        prio:\n          low: [ 1 ]\n          high: [ \"2-3\" ]\n          default: medium",
        )
        .unwrap();
        let new = read(
            "    management-cpu-set:\n      cpu: [ 0 ]\n    worker-cpu-set:\n      cpu: [ \"1-3\", 5 ]\n      mode: exclusive\n      \
             prio:\n        low: [ 1 ]\n        high: [ \"2-3\" ]\n        default: medium",
        )
        .unwrap();
        assert_eq!(old, new);
        let workers = old.workers.as_ref().unwrap();
        assert_eq!(
            (0..5).map(|n| workers.choice(n)).collect::<Vec<_>>(),
            [(vec![1], 2), (vec![2], -2), (vec![3], -2), (vec![5], 0), (vec![1], 2)]
        );
        assert_eq!(old.workers("eth0"), 4);
        assert_eq!(old.management.unwrap().choice(3), (vec![0], 0));
    }

    #[test]
    fn interfaces_may_have_their_own() {
        let c = read(
            "    worker-cpu-set:\n      cpu: [ \"all\" ]\n      interface-specific-cpu-set:\n      - interface: eth7\n        \
             cpu: [ 1, 2, 3 ]\n        mode: exclusive",
        )
        .unwrap();
        assert_eq!(c.of("eth7").unwrap().choice(1), (vec![2], 0));
        assert!(!c.of("eth0").unwrap().exclusive);
        assert!(Cpus::default().of("eth7").is_none());
    }

    #[test]
    fn what_cannot_be_is_said() {
        for bad in ["cpu: [ x ]", "cpu: [ \"3-1\" ]", "cpu: []\n      mode: exclusiv", "prio: {default: huge}"] {
            assert!(read(&format!("    worker-cpu-set:\n      {bad}")).is_err(), "{bad}");
        }
        assert!(read("    moon-cpu-set:\n      cpu: [ 0 ]").is_err());
    }
}
