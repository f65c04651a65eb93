//! What the program says about itself.

use margay_detect::mpm::MpmAlgo;

use crate::VERSION;

/// `-V`.
pub(crate) fn version() -> String {
    format!("This is Margay version {VERSION}, compatible with Suricata 8.0.6")
}

/// `--build-info`.
pub(crate) fn build() -> String {
    let row = |name: &str, value: &str| format!("  {name:<40} {value}\n");
    let mut out = format!("{}\n\n", version());
    out.push_str(&row("Version:", VERSION));
    out.push_str(&row("Language of the rules:", "Suricata 8.0.6"));
    out.push_str(&row("Target:", concat!(env!("MARGAY_TARGET"))));
    out.push_str(&row("Build profile:", if cfg!(debug_assertions) { "debug" } else { "release" }));
    out.push_str(&row(
        "Pattern matcher:",
        if MpmAlgo::has_hyperscan() { "Hyperscan, Aho-Corasick" } else { "Aho-Corasick" },
    ));
    out.push_str(&row("Regular expressions:", "PCRE2"));
    out.push_str(&row("Capture:", "files (pcap, pcapng), handed over on a unix socket too"));
    out.push_str(&row("Run modes:", "single"));
    out
}

/// `--dump-features`.
pub(crate) fn features() -> &'static str {
    "PCRE_JIT\n"
}

/// `--list-runmodes`.
pub(crate) fn runmodes() -> &'static str {
    "------------------------------------- Runmodes ------------------------------------------\n\
     | RunMode Type      | Custom Mode       | Description\n\
     |----------------------------------------------------------------------------------------\n\
     | PCAP_FILE         | single            | One worker reads the capture file and inspects it\n\
     | UNIX_SOCKET       | single            | The same for each capture file that is handed over on the unix socket\n\
     |----------------------------------------------------------------------------------------\n"
}
