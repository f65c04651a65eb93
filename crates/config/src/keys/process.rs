//! The process: its log, its threads, its user, what it may do.

use super::reasons::{ALWAYS, LOG_FORM, NO_PROFILE};
use super::{Key, Kind, U32, flag, flag_or, list, number, section, size, text, word};

pub(super) const ABOUT: &str =
    "What the engine says about itself, on which processors it runs, as whom, and what it may do.";

const LEVELS: &[&str] =
    &["error", "warning", "notice", "info", "perf", "config", "debug", "emergency", "alert", "critical"];

const FACILITIES: &[&str] = &[
    "local5", "auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "security", "syslog", "user",
    "uucp", "local0", "local1", "local2", "local3", "local4", "local6", "local7",
];

const FORMS: &[&str] = &["regular", "json"];

/// Threads that Suricata has and this engine does not.
const NO_THREADS: &str = "there are workers and one thread that manages: no other threads";

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    word("logging.default-log-level", LEVELS, "notice", "How much is said; `-v` raises it, SC_LOG_LEVEL comes first."),
    text("logging.default-output-filter", "an expression", "", "Only messages that match this regular expression (PCRE2); SC_LOG_OP_FILTER comes first.").like("rules"),
    text("logging.default-log-format", "a form", "%D: %S: %M", "The form of messages.").ignored(LOG_FORM),
    flag("logging.default-startup-message", "*", "Whether the start is told.").ignored(ALWAYS),
    flag("logging.stacktrace-on-signal", "*", "Whether a crash is told with its stack.").ignored("the system's core dump has it (coredump.max-dump)"),
    flag("logging.outputs.#.console.enabled", "yes", "Messages on the console."),
    word("logging.outputs.#.console.type", FORMS, "regular", "As text, or as JSON."),
    word("logging.outputs.#.console.level", LEVELS, "", "How much, in the place of `default-log-level`."),
    text("logging.outputs.#.console.format", "a form", "*", "Their form.").ignored(LOG_FORM),
    flag("logging.outputs.#.file.enabled", "yes", "Messages in a file."),
    word("logging.outputs.#.file.type", FORMS, "regular", "As text, or as JSON."),
    word("logging.outputs.#.file.level", LEVELS, "", "How much, in the place of `default-log-level`."),
    text("logging.outputs.#.file.filename", "a file", "suricata.log", "Its name, in the folder of logs."),
    text("logging.outputs.#.file.format", "a form", "*", "Their form.").ignored(LOG_FORM),
    flag("logging.outputs.#.file.append", "yes", "Whether a file that is there is kept.").ignored("the log is always appended to"),
    flag("logging.outputs.#.syslog.enabled", "yes", "Messages to syslog."),
    word("logging.outputs.#.syslog.type", FORMS, "regular", "As text, or as JSON."),
    word("logging.outputs.#.syslog.level", LEVELS, "", "How much, in the place of `default-log-level`."),
    word("logging.outputs.#.syslog.facility", FACILITIES, "local5", "The facility."),
    text("logging.outputs.#.syslog.format", "a form", "*", "Their form.").ignored(LOG_FORM),
    text("logging.outputs.#.syslog.identity", "a name", "suricata", "Who speaks."),
    // Run modes and threads
    word("runmode", &["auto", "workers", "single", "autofp"], "auto", "How workers are arranged; `--runmode` comes first. A capture file is read by one worker, or with `autofp` by several."),
    word("autofp-scheduler", &["adaptive", "hash", "ippair", "shortest-queue", "conservative", "optimistic"], "adaptive", "The worker that a flow goes to with `autofp`.").like("hash"),
    flag("threading.set-cpu-affinity", "no", "Whether threads run on certain processors."),
    flag("threading.autopin", "no", "Whether they are chosen by the card's place.").ignored("worker-cpu-set names the processors"),
    list("threading.cpu-affinity.<cpu-set>.cpu", "processors", "[all]", "Which.").like("[1]"),
    word("threading.cpu-affinity.<cpu-set>.mode", &["balanced", "exclusive"], "balanced", "All of them for each thread, or one each."),
    list("threading.cpu-affinity.<cpu-set>.prio.low", "processors", "", "Those with low priority.").like("[1]"),
    list("threading.cpu-affinity.<cpu-set>.prio.medium", "processors", "", "Those with medium priority.").like("[1]"),
    list("threading.cpu-affinity.<cpu-set>.prio.high", "processors", "", "Those with high priority.").like("[1]"),
    word("threading.cpu-affinity.<cpu-set>.prio.default", &["low", "medium", "high"], "medium", "That of the others."),
    number("threading.cpu-affinity.<cpu-set>.threads", "*", (1, U32), "threads", "How many threads.").ignored("the interface's threads says how many workers there are"),
    text("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.interface", "an interface", "", "The processors of one interface's workers.").shown_by("engine/src/live/cpus.rs::interfaces_may_have_their_own"),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.cpu", "processors", "[all]", "Which.").like("[1]"),
    word("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.mode", &["balanced", "exclusive"], "balanced", "All of them for each thread, or one each."),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.low", "processors", "", "Those with low priority.").like("[1]"),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.medium", "processors", "", "Those with medium priority.").like("[1]"),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.high", "processors", "", "Those with high priority.").like("[1]"),
    word("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.default", &["low", "medium", "high"], "medium", "That of the others."),
    number("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.threads", "*", (1, U32), "threads", "How many threads.").ignored("the interface's threads says how many workers there are"),
    section("threading.cpu-affinity.<other-cpu-set>", "Processors of threads that there are none of.").ignored(NO_THREADS),
    Key::new("threading.detect-thread-ratio", Kind::Fraction, "1.0", "Workers for each processor, with `autofp`.").like("2.0"),
    size("threading.stack-size", "8mb", "The stack of a worker; scripts need 8 MiB.").within(0, 1 << 30).like("16mb"),
    word("host-mode", &["auto", "sniffer-only", "router"], "auto", "How answers of `reject` go: out of the interface that the packet came in at, or by the host's routes.").like("router"),
    // A service
    text("run-as.user", "a user", "", "The account to run as; `--user` comes first.").like("nobody"),
    text("run-as.group", "a group", "", "Its group; `--group` comes first.").like("nogroup"),
    text("pid-file", "a file", "", "With `-D`: where the process's number is written; `--pidfile` works without `-D` too.").like("/tmp/a.pid"),
    text("daemon-directory", "a folder", "/", "With `-D`: the folder that the process goes to.").like("/tmp"),
    text("umask", "a mask", "", "Permissions that new files do not get, in octal.").like("022"),
    size("coredump.max-dump", "", "How large a core dump may be, or `unlimited`.").like("1mb"),
    flag_or("unix-command.enabled", &["auto"], "auto", "Whether there is a socket for commands; `auto`: where packets come from the network."),
    text("unix-command.filename", "a file", "margay-command.socket", "Its name.").like("other.socket"),
    flag("security.limit-noproc", "no", "Whether other programs cannot be started."),
    flag_or("security.drop-capabilities", &["auto"], "auto", "Whether capabilities are given up; `auto`: where it is another user than root."),
    flag("security.no-new-privileges", "yes", "Whether no program that is started can gain privileges."),
    flag_or("security.seccomp.enabled", &["auto"], "auto", "Whether only the system calls are allowed that are needed; `auto`: where it captures or serves a socket."),
    word("security.seccomp.action", &["errno", "kill", "log"], "errno", "What becomes of another one."),
    flag_or("security.landlock.enabled", &["auto"], "auto", "Whether only the files can be touched that the configuration names; `auto`: with interfaces and queues, unless rules may name any file."),
    list("security.landlock.directories.read", "folders", "", "Folders that may be read as well.").like("[/tmp]"),
    list("security.landlock.directories.write", "folders", "", "Folders that may be written as well.").like("[/tmp]"),
    flag("security.lua.allow-rules", "yes", "Whether rules may have scripts."),
    size("security.lua.max-bytes", "500000", "Memory of a script.").within(1, u64::MAX),
    number("security.lua.max-instructions", "500000", (1, i64::MAX), "instructions", "Of one call."),
    flag("security.lua.allow-restricted-functions", "no", "Whether scripts may touch files and programs."),
    // Profiling
    number("profiling.sample-rate", "1", (1, 1 << 31), "packets", "One in so many is measured; a power of 2.").like("1024"),
    flag("profiling.rules.enabled", "no", "Whether what rules cost is measured."),
    flag("profiling.rules.active", "no", "The same again: both are needed."),
    text("profiling.rules.filename", "a file", "rule_perf.log", "The report."),
    flag("profiling.rules.append", "yes", "Whether a report that is there is kept."),
    word("profiling.rules.sort", &["ticks", "avgticks", "avgticks_match", "avgticks_no_match", "checks", "matches", "maxticks"], "", "What it is sorted by; without it a table for each."),
    number("profiling.rules.limit", "0", (0, U32), "rules", "How many it shows; 0 is all."),
    flag("profiling.rules.json", "no", "Whether it is JSON."),
    section("profiling.keywords", "What keywords cost.").ignored(NO_PROFILE),
    section("profiling.prefilter", "What prefilters cost.").ignored(NO_PROFILE),
    section("profiling.rulegroups", "What groups cost.").ignored(NO_PROFILE),
    section("profiling.packets", "What packets cost; `margay.packet-costs` measures that.").ignored(NO_PROFILE),
    section("profiling.locks", "What locks cost.").ignored(NO_PROFILE),
    section("profiling.pcap-log", "What the copy of the traffic costs.").ignored(NO_PROFILE),
    // Margay's own
    flag("margay.lock-memory", "no", "Whether no memory is swapped out."),
    number("margay.watchdog.seconds", "30", (0, 86_400), "seconds", "After which a worker without progress is stuck; 0: nobody looks."),
    word("margay.watchdog.action", &["log", "abort"], "log", "What is done then."),
    flag_or("margay.writer-thread", &["auto"], "auto", "Whether a thread writes events; `auto`: where there are more processors than workers."),
    word("margay.numa", &["local", "bind"], "local", "Where the memory of workers is: on their own NUMA node where there is room, or there alone (`bind`; with `threading.set-cpu-affinity`).").shown_by("engine/src/live/numa.rs::a_threads_memory_is_bound"),
    flag_or("margay.workers", &["auto"], "auto", "Workers of a capture file with `autofp`, 1 to 256; `auto`: one for each processor, times `threading.detect-thread-ratio`.").like("5"),
    number("margay.move-difference", "256", (0, i64::MAX), "packets", "With `conservative` and `optimistic`: by how much another worker's queue must be shorter for a flow to go there."),
    number("margay.move-waiting", "100", (0, U32), "packets", "With `optimistic`: how many of a flow must wait for it to go."),
    number("margay.resumable-connections", "65536", (0, U32), "connections", "Connections that timed out which are remembered, 64 bytes each, and followed again when they go on; 0: none."),
    text("margay.web.listen", "an address", "", "With a port: where the live page and the metrics are served; `--web` comes first. Another address than loopback needs a token.").like("127.0.0.1:9300"),
    text("margay.web.token", "a word", "", "What clients must show (`Authorization: Bearer`), of 16 characters or more; without one whoever reaches a loopback address may look.").like("0123456789abcdef").shown_by("engine/src/settings/web.rs::only_with_a_token_beyond_this_host"),
    text("margay.packet-costs", "a file", "", "Where the cost of each packet is written, for `margay lab`.").like("/tmp/costs"),
];
