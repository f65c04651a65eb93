//! Information about the program.

use margay_detect::mpm::MpmAlgo;

use crate::{COMPATIBLE, VERSION};

/// `-V`. Tools that manage rules take the first version in this text for Suricata's.
pub(crate) fn version() -> String {
    format!("This is Margay, compatible with Suricata version {COMPATIBLE} RELEASE (Margay version {VERSION})")
}

/// `--build-info`.
pub(crate) fn build() -> String {
    let row = |name: &str, value: &str| format!("  {name:<40} {value}\n");
    // suricata-update needs the second line and the folders.
    let mut out = format!("{}\nThis is Suricata version {COMPATIBLE} RELEASE for tools that ask\n\n", version());
    out.push_str(&row("Version:", VERSION));
    out.push_str(&row("Language of the rules:", &format!("Suricata {COMPATIBLE}")));
    out.push_str(&row("Target:", concat!(env!("MARGAY_TARGET"))));
    out.push_str(&row("Build profile:", if cfg!(debug_assertions) { "debug" } else { "release" }));
    out.push_str(&row(
        "Pattern matcher:",
        &match MpmAlgo::library() {
            Some((library, true)) => format!("{library}, Aho-Corasick"),
            Some((library, false)) => format!("Aho-Corasick ({library} does not run on this processor)"),
            None => "Aho-Corasick".into(),
        },
    ));
    out.push_str(&row("Regular expressions:", "PCRE2"));
    out.push_str(&row("Lua:", "5.4: rules (lua, luaxform), outputs"));
    out.push_str(&row(
        "Capture:",
        "files (pcap, pcapng), handed over on a unix socket too; AF_PACKET, AF_XDP, NFQUEUE, libpcap",
    ));
    let kafka = if cfg!(feature = "kafka") { ", Kafka" } else { "" };
    out.push_str(&row("Outputs:", &format!("files, unix sockets, syslog, TCP, TLS, Redis{kafka}")));
    out.push_str(&row("Run modes:", "single, autofp, workers"));
    out.push_str("\nFolders:\n");
    out.push_str(&row("--prefix", "/usr"));
    out.push_str(&row("--sysconfdir", "/etc"));
    out.push_str(&row("--localstatedir", "/var"));
    out
}

/// `--dump-features`.
pub(crate) fn features() -> String {
    crate::rules::FEATURES.iter().map(|f| format!("provided feature name: {f}\n")).collect()
}

/// `--list-runmodes`.
pub(crate) fn runmodes() -> &'static str {
    "------------------------------------- Runmodes ------------------------------------------\n\
     | RunMode Type      | Custom Mode       | Description\n\
     |----------------------------------------------------------------------------------------\n\
     | PCAP_FILE         | single            | One worker reads the capture file and inspects it\n\
     |                   ---------------------------------------------------------------------\n\
     |                   | autofp            | Several read it in turns and inspect it, each the flows that fall to it\n\
     |----------------------------------------------------------------------------------------\n\
     | UNIX_SOCKET       | single            | The same for each capture file that is handed over on the unix socket\n\
     |                   ---------------------------------------------------------------------\n\
     |                   | autofp            | The same\n\
     |----------------------------------------------------------------------------------------\n\
     | AF_PACKET_DEV     | single            | One worker captures from an interface and inspects it\n\
     |                   ---------------------------------------------------------------------\n\
     |                   | workers           | Several for each interface; the kernel distributes flows among them\n\
     |----------------------------------------------------------------------------------------\n\
     | NFQ               | single            | One worker decides on the packets of a queue of netfilter\n\
     |                   ---------------------------------------------------------------------\n\
     |                   | workers           | One for each queue\n\
     |----------------------------------------------------------------------------------------\n\
     | AF_XDP_DEV        | single            | One worker captures from all queues of an interface\n\
     |                   ---------------------------------------------------------------------\n\
     |                   | workers           | One for each queue of an interface\n\
     |----------------------------------------------------------------------------------------\n"
}
