//! Protects interfaces whose loss would disconnect the operator.

use crate::tune::card::{Cards, Link, Refusal};
use crate::tune::facts::Session;
use crate::tune::tree::Tree;

/// Programs that remote sessions come through.
const SERVERS: [&str; 5] = ["sshd", "sshd-session", "dropbear", "mosh-server", "telnetd"];
/// A limit above the number of a shell's parents.
const PARENTS: usize = 64;

/// The sessions that may have started this process: from SSH's environment, and from the sockets of its parents, because
/// `sudo` clears the environment.
pub(super) fn sessions(tree: &dyn Tree, cards: &dyn Cards) -> Vec<Session> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut process = "self".to_owned();
    for _ in 0..PARENTS {
        let environment = tree.read(&format!("/proc/{process}/environ")).unwrap_or_default();
        // "peer port local port"
        if let Some(words) = environment.split('\0').find_map(|word| word.strip_prefix("SSH_CONNECTION=")) {
            let words: Vec<&str> = words.split_whitespace().collect();
            if let [peer, _, local, _] = words[..] {
                found.push((peer.to_owned(), local.to_owned()));
            }
        }
        let comm = tree.text(&format!("/proc/{process}/comm")).unwrap_or_default();
        if SERVERS.contains(&comm.as_str()) {
            found.extend(connections(tree, &process));
        }
        let status = tree.text(&format!("/proc/{process}/status")).unwrap_or_default();
        match status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim) {
            None | Some("0" | "1") => break,
            Some(parent) => parent.clone_into(&mut process),
        }
    }
    found.sort();
    found.dedup();
    let session = |(peer, local): (String, String)| Session { interface: cards.route_to(&peer).ok(), peer, local };
    found.into_iter().map(session).collect()
}

/// The established connections of a process, as pairs of addresses.
fn connections(tree: &dyn Tree, process: &str) -> Vec<(String, String)> {
    let folder = format!("/proc/{process}/fd");
    let inode = |fd: &String| {
        let target = tree.link(&format!("{folder}/{fd}"))?;
        Some(target.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    };
    let inodes: Vec<String> = tree.names(&folder).iter().filter_map(inode).collect();
    let mut out = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in tree.text(table).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            // `sl local remote state … inode`; state 1 is established.
            if words.get(3) == Some(&"01")
                && words.get(9).is_some_and(|inode| inodes.iter().any(|own| own == inode))
                && let (Some(local), Some(peer)) = (address(words[1]), address(words[2]))
            {
                out.push((peer, local));
            }
        }
    }
    out
}

/// `0100007F:0016`: 32-bit words in the machine's byte order, and a port.
fn address(text: &str) -> Option<String> {
    let digits = text.split(':').next()?;
    let words: Option<Vec<[u8; 4]>> = digits
        .as_bytes()
        .chunks(8)
        .map(|word| Some(u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes()))
        .collect();
    let bytes: Vec<u8> = words?.concat();
    if let Ok(four) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    let six = std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?);
    Some(six.to_ipv4_mapped().map_or_else(|| six.to_string(), |four| four.to_string()))
}

/// The reasons to leave an interface alone, as sentences about it.
pub(super) fn reasons(
    tree: &dyn Tree,
    cards: &dyn Cards,
    name: &str,
    sessions: &[Session],
    link: &Result<Link, Refusal>,
) -> Vec<String> {
    let at = format!("/sys/class/net/{name}");
    let mut out = Vec::new();
    let addresses = match link {
        Ok(link) => link.addresses.as_slice(),
        // An interface without a description would not be changed either.
        Err(Refusal::Missing) => &[],
        Err(why) => {
            out.push(format!("its addresses cannot be read: {why}"));
            &[]
        }
    };
    out.extend(addresses.iter().map(|address| format!("it has the address {address}")));
    for (family, routed) in [("IPv4", default_route(tree, name)), ("IPv6", default_route_6(tree, name))] {
        if routed {
            out.push(format!("the default route of {family} goes by it"));
        }
    }
    for session in sessions {
        let has = |address: &String| address.split('/').next() == Some(&session.local);
        let by_route = session.interface.as_deref() == Some(name);
        if by_route || addresses.iter().any(has) || cards.route_to(&session.peer).as_deref() == Ok(name) {
            out.push(format!("your own session from {} comes in by it", session.peer));
        }
    }
    if let Some(master) = tree.link(&format!("{at}/master")) {
        let master = master.rsplit('/').next().unwrap_or_default();
        let kind = if tree.exists(&format!("{at}/bonding_slave")) { "bond" } else { "bridge" };
        out.push(format!("it is part of the {kind} {master}"));
    }
    for (folder, kind) in [("bonding", "bond"), ("bridge", "bridge"), ("team", "team")] {
        if tree.exists(&format!("{at}/{folder}")) {
            out.push(format!("it is a {kind}"));
        }
    }
    let uevent = tree.text(&format!("{at}/uevent")).unwrap_or_default();
    let vlan = uevent.lines().any(|line| line == "DEVTYPE=vlan");
    for entry in tree.names(&at) {
        if let Some(upper) = entry.strip_prefix("upper_").filter(|_| !tree.exists(&format!("{at}/master"))) {
            out.push(format!("{upper} (a VLAN, or another interface) is on top of it"));
        }
        if let Some(lower) = entry.strip_prefix("lower_").filter(|_| !tree.exists(&format!("{at}/bridge"))) {
            out.push(format!("it is {} on top of {lower}", if vlan { "a VLAN" } else { "an interface" }));
        }
    }
    if vlan && !out.iter().any(|reason| reason.contains("VLAN")) {
        out.push("it is a VLAN".to_owned());
    }
    out.dedup();
    out
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask …`
fn default_route(tree: &dyn Tree, name: &str) -> bool {
    tree.text("/proc/net/route").unwrap_or_default().lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first() == Some(&name) && words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000")
    })
}

/// Destination, its length, source, its length, gateway, metric, references, uses, flags, interface.
fn default_route_6(tree: &dyn Tree, name: &str) -> bool {
    tree.text("/proc/net/ipv6_route").unwrap_or_default().lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A rejecting route (0x200) leads nowhere.
        let flags = words.get(8).and_then(|word| u32::from_str_radix(word, 16).ok()).unwrap_or(0);
        words.last() == Some(&name) && words.get(1) == Some(&"00") && words.len() > 9 && flags & 0x200 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::recorded;

    fn of(text: &str, name: &str) -> String {
        let m = recorded::read(text).unwrap();
        let sessions = sessions(&m.tree, &m);
        reasons(&m.tree, &m, name, &sessions, &m.link(name)).join("; ")
    }

    #[test]
    fn what_somebody_needs_is_protected() {
        assert_eq!(of("/sys/class/net/eth1/operstate = up\n[card eth1]\ndriver i40e\n", "eth1"), "");
        assert_eq!(of("[card eth0]\naddress 192.0.2.1/24\n", "eth0"), "it has the address 192.0.2.1/24");
        let route = "/proc/net/route <<\n  Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n  \
                     eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n  eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        assert_eq!(of(route, "eth0"), "the default route of IPv4 goes by it");
        assert_eq!(of(route, "eth1"), "");
        let zero = "00000000000000000000000000000000";
        let six = format!(
            "/proc/net/ipv6_route <<\n  {zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00450003 eth0\n  \
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n"
        );
        assert_eq!(of(&six, "eth0"), "the default route of IPv6 goes by it");
        assert_eq!(of(&six, "lo"), "");
        assert_eq!(of("/sys/class/net/eth1/master -> ../br0\n", "eth1"), "it is part of the bridge br0");
        let bond = "/sys/class/net/eth1/master -> ../bond0\n/sys/class/net/eth1/bonding_slave/\n/sys/class/net/eth1/upper_bond0/\n";
        assert_eq!(of(bond, "eth1"), "it is part of the bond bond0");
        assert_eq!(of("/sys/class/net/br0/bridge/\n/sys/class/net/br0/lower_eth1/\n", "br0"), "it is a bridge");
        let upper = "/sys/class/net/eth1/upper_eth1.7/\n";
        assert_eq!(of(upper, "eth1"), "eth1.7 (a VLAN, or another interface) is on top of it");
        let vlan =
            "/sys/class/net/eth1.7/uevent <<\n  DEVTYPE=vlan\n  INTERFACE=eth1.7\n/sys/class/net/eth1.7/lower_eth1/\n";
        assert_eq!(of(vlan, "eth1.7"), "it is a VLAN on top of eth1");
    }

    #[test]
    fn the_operators_own_session_is_protected() {
        let told = "/proc/self/environ = HOME=/root\0SSH_CONNECTION=198.51.100.7 50000 192.0.2.1 22\0\n[card eth3]\nroute 198.51.100.7\n";
        assert_eq!(of(told, "eth3"), "your own session from 198.51.100.7 comes in by it");
        assert_eq!(of(told, "eth1"), "");
        // With sudo, only the parents' sockets show the session.
        let parents = "/proc/self/status = PPid:\t20\n/proc/20/status = PPid:\t10\n/proc/20/comm = sudo\n/proc/10/comm = sshd\n\
             /proc/10/fd/3 -> socket:[777]\n/proc/10/status = PPid:\t1\n/proc/net/tcp <<\n  sl local rem st\n    \
             0: 010200C0:0016 076433C6:C350 01 00000000:00000000 02:00000000 00000000     0        0 777 2\n    \
             1: 010200C0:0016 096433C6:C350 01 00000000:00000000 02:00000000 00000000     0        0 778 2\n[card eth3]\naddress 192.0.2.1/24\n";
        assert_eq!(
            of(parents, "eth3"),
            "it has the address 192.0.2.1/24; your own session from 198.51.100.7 comes in by it"
        );
        assert_eq!(address("0000000000000000FFFF0000010200C0:0016").as_deref(), Some("192.0.2.1"));
    }
}
