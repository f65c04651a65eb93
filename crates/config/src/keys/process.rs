//! The process: its log, threads, user and permissions.

use super::reasons::{ALWAYS, NO_PROFILE};
use super::{Key, Kind, U32, flag, flag_or, list, number, section, size, text, word};

pub(super) const ABOUT: &str = "The engine's own log, CPUs, user, permissions and profiling.";

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
    word("logging.default-log-level", LEVELS, "notice", "Level of messages; `-v` raises it, SC_LOG_LEVEL overrides it."),
    text("logging.default-output-filter", "an expression", "", "Only messages that match this regular expression (PCRE2); SC_LOG_OP_FILTER overrides it.").like("rules"),
    text("logging.default-log-format", "a form", "", "Form of the console's messages: text with `%D %d` level, `%S` module, `%M` message, `%z %t` time, `%i` thread, `%T %m` its name, `%p` process. The variable SC_LOG_FORMAT overrides it.").like("%D %M"),
    flag("logging.default-startup-message", "*", "Whether the start is logged.").ignored(ALWAYS),
    flag("logging.stacktrace-on-signal", "*", "Whether a crash is logged with its stack.").ignored("the system's core dump has it (coredump.max-dump)"),
    flag("logging.outputs.#.console.enabled", "yes", "Whether to log to the console."),
    word("logging.outputs.#.console.type", FORMS, "regular", "Text or JSON."),
    word("logging.outputs.#.console.level", LEVELS, "", "Level for the console; default: `default-log-level`."),
    text("logging.outputs.#.console.format", "a form", "", "Form of its messages; default: `default-log-format`.").like("%D %M"),
    flag("logging.outputs.#.file.enabled", "yes", "Whether to log to a file."),
    word("logging.outputs.#.file.type", FORMS, "regular", "Text or JSON."),
    word("logging.outputs.#.file.level", LEVELS, "", "Level for the file; default: `default-log-level`."),
    text("logging.outputs.#.file.filename", "a file", "suricata.log", "File name, in the log folder."),
    text("logging.outputs.#.file.format", "a form", "", "Form of its messages, as `default-log-format`; default: `[%i - %m] %z %d: %S: %M`.").like("%D %M"),
    flag("logging.outputs.#.file.append", "yes", "Whether a file that is there is kept.").ignored("the log is always appended to"),
    flag("logging.outputs.#.syslog.enabled", "yes", "Whether to log to syslog."),
    word("logging.outputs.#.syslog.type", FORMS, "regular", "Text or JSON."),
    word("logging.outputs.#.syslog.level", LEVELS, "", "Level for syslog; default: `default-log-level`."),
    word("logging.outputs.#.syslog.facility", FACILITIES, "local5", "Syslog facility."),
    text("logging.outputs.#.syslog.format", "a form", "", "Form of its messages, as `default-log-format`; default: `[%i] <%d> -- %M`.").like("%D %M"),
    text("logging.outputs.#.syslog.identity", "a name", "suricata", "Program name in syslog messages."),
    // Run modes and threads
    word("runmode", &["auto", "workers", "single", "autofp"], "auto", "How workers are arranged; `--runmode` comes first. A capture file is read by one worker, or with `autofp` by several."),
    word("autofp-scheduler", &["adaptive", "hash", "ippair", "shortest-queue", "conservative", "optimistic"], "adaptive", "The worker that a flow goes to with `autofp`.").like("hash"),
    flag("threading.set-cpu-affinity", "no", "Whether to pin threads to CPUs."),
    flag("threading.autopin", "no", "Whether they are chosen by the card's place.").ignored("worker-cpu-set names the processors"),
    list("threading.cpu-affinity.<cpu-set>.cpu", "processors", "[all]", "CPUs of the set.").like("[1]"),
    word("threading.cpu-affinity.<cpu-set>.mode", &["balanced", "exclusive"], "balanced", "All CPUs of the set for each thread, or one each."),
    list("threading.cpu-affinity.<cpu-set>.prio.low", "processors", "", "CPUs whose threads have low priority.").like("[1]"),
    list("threading.cpu-affinity.<cpu-set>.prio.medium", "processors", "", "CPUs whose threads have medium priority.").like("[1]"),
    list("threading.cpu-affinity.<cpu-set>.prio.high", "processors", "", "CPUs whose threads have high priority.").like("[1]"),
    word("threading.cpu-affinity.<cpu-set>.prio.default", &["low", "medium", "high"], "medium", "Priority on the other CPUs."),
    number("threading.cpu-affinity.<cpu-set>.threads", "*", (1, U32), "threads", "How many threads.").ignored("the interface's threads says how many workers there are"),
    text("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.interface", "an interface", "", "Interface whose workers use this set.").shown_by("engine/src/live/cpus.rs::interfaces_may_have_their_own"),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.cpu", "processors", "[all]", "CPUs of the set.").like("[1]"),
    word("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.mode", &["balanced", "exclusive"], "balanced", "All CPUs of the set for each thread, or one each."),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.low", "processors", "", "CPUs whose threads have low priority.").like("[1]"),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.medium", "processors", "", "CPUs whose threads have medium priority.").like("[1]"),
    list("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.high", "processors", "", "CPUs whose threads have high priority.").like("[1]"),
    word("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.prio.default", &["low", "medium", "high"], "medium", "Priority on the other CPUs."),
    number("threading.cpu-affinity.worker-cpu-set.interface-specific-cpu-set.#.threads", "*", (1, U32), "threads", "How many threads.").ignored("the interface's threads says how many workers there are"),
    section("threading.cpu-affinity.<other-cpu-set>", "Processors of threads that there are none of.").ignored(NO_THREADS),
    Key::new("threading.detect-thread-ratio", Kind::Fraction, "1.0", "Workers per CPU, with `autofp`.").like("2.0"),
    size("threading.stack-size", "8mb", "Stack of a worker; scripts need 8 MiB.").within(0, 1 << 30).like("16mb"),
    word("host-mode", &["auto", "sniffer-only", "router"], "auto", "How answers of `reject` are sent: through the interface of the packet, or by the host's routes.").like("router"),
    // A service
    text("run-as.user", "a user", "", "User to run as; `--user` overrides it.").like("nobody"),
    text("run-as.group", "a group", "", "Group to run as; `--group` overrides it.").like("nogroup"),
    text("pid-file", "a file", "", "With `-D`: where the process's number is written; `--pidfile` works without `-D` too.").like("/tmp/a.pid"),
    text("daemon-directory", "a folder", "/", "With `-D`: the folder that the process goes to.").like("/tmp"),
    text("umask", "a mask", "", "Permissions that new files do not get, in octal.").like("022"),
    size("coredump.max-dump", "", "Size limit of a core dump, or `unlimited`.").like("unlimited"),
    flag_or("unix-command.enabled", &["auto"], "auto", "Whether to open the command socket; `auto`: for live capture."),
    text("unix-command.filename", "a file", "margay-command.socket", "Path of the command socket.").like("other.socket"),
    flag("security.limit-noproc", "no", "Whether to forbid starting other programs."),
    flag_or("security.drop-capabilities", &["auto"], "auto", "Whether to drop capabilities; `auto`: if not running as root."),
    flag("security.no-new-privileges", "yes", "Whether programs that the engine starts cannot gain privileges."),
    flag_or("security.seccomp.enabled", &["auto"], "auto", "Whether to allow only the system calls that the engine needs; `auto`: for live capture and with a socket."),
    word("security.seccomp.action", &["errno", "kill", "log"], "errno", "What to do on another system call."),
    flag_or("security.landlock.enabled", &["auto"], "auto", "Whether to allow access only to files that the configuration names; `auto`: with interfaces and queues, unless rules may name any file."),
    list("security.landlock.directories.read", "folders", "", "More folders that may be read.").like("[/tmp]"),
    list("security.landlock.directories.write", "folders", "", "More folders that may be written.").like("[/tmp]"),
    flag("security.lua.allow-rules", "yes", "Whether rules may use scripts."),
    size("security.lua.max-bytes", "500000", "Memory limit of a script.").within(1, u64::MAX),
    number("security.lua.max-instructions", "500000", (1, i64::MAX), "instructions", "Instruction limit of a call."),
    flag("security.lua.allow-restricted-functions", "no", "Whether scripts may use files and programs."),
    // Profiling
    number("profiling.sample-rate", "1", (1, 1 << 31), "packets", "Every Nth packet is measured; a power of 2.").like("1024"),
    flag("profiling.rules.enabled", "no", "Whether to measure the cost of rules; `active` is needed too."),
    flag("profiling.rules.active", "no", "Whether to measure from the start; `enabled` is needed too."),
    text("profiling.rules.filename", "a file", "rule_perf.log", "File name of the report."),
    flag("profiling.rules.append", "yes", "Whether to append to an existing report."),
    word("profiling.rules.sort", &["ticks", "avgticks", "avgticks_match", "avgticks_no_match", "checks", "matches", "maxticks"], "", "Sort order; without it one table for each order."),
    number("profiling.rules.limit", "0", (0, U32), "rules", "Rules in a table; 0 is all."),
    flag("profiling.rules.json", "no", "Whether the report is JSON."),
    section("profiling.keywords", "What keywords cost.").ignored(NO_PROFILE),
    section("profiling.prefilter", "What prefilters cost.").ignored(NO_PROFILE),
    section("profiling.rulegroups", "What groups cost.").ignored(NO_PROFILE),
    section("profiling.packets", "What packets cost; `margay.packet-costs` measures that.").ignored(NO_PROFILE),
    section("profiling.locks", "What locks cost.").ignored(NO_PROFILE),
    section("profiling.pcap-log", "What the copy of the traffic costs.").ignored(NO_PROFILE),
    // Margay's own
    flag("margay.lock-memory", "no", "Whether to keep all memory from being swapped out."),
    number("margay.watchdog.seconds", "30", (0, 86_400), "seconds", "Time after which a worker without progress counts as stuck; 0: off."),
    word("margay.watchdog.action", &["log", "abort"], "log", "What to do about a stuck worker: log it, or end the process."),
    flag_or("margay.writer-thread", &["auto"], "auto", "Whether a thread writes events; `auto`: if there are more CPUs than workers."),
    word("margay.numa", &["local", "bind"], "local", "Where workers' memory lies: on their own NUMA node if there is room, or only there (`bind`; with `threading.set-cpu-affinity`).").shown_by("engine/src/live/numa.rs::a_threads_memory_is_bound"),
    flag_or("margay.workers", &["auto"], "auto", "Workers of a capture file with `autofp`, 1 to 256; `auto`: one per CPU, times `threading.detect-thread-ratio`.").like("5"),
    flag("margay.search-ahead", "yes", "Whether idle workers search payloads for busy ones: those of an AF_PACKET interface that is not inline, and those of a capture file with `autofp-scheduler: adaptive`."),
    number("margay.move-difference", "256", (0, i64::MAX), "packets", "`conservative`, `optimistic`: a flow moves only to a queue shorter by this many packets."),
    number("margay.move-waiting", "100", (0, U32), "packets", "`optimistic`: packets of a flow that must wait before it moves."),
    size("margay.reset-memory", "16mb", "Memory of connections that a reset closed, which a host may have ignored. Beyond it the oldest is taken as over: `tcp.reset_settled`; 0 is no limit."),
    number("margay.resumable-connections", "65536", (0, U32), "connections", "Timed-out connections to remember, 64 bytes each, so that they can be followed again; 0: none."),
    text("margay.web.listen", "an address", "", "Address and port of the web page and metrics; `--web` overrides it. Any address but loopback needs a token.").like("127.0.0.1:9300"),
    text("margay.web.token", "a word", "", "Token that clients must send (`Authorization: Bearer`), at least 16 characters. Without one, every local user may look.").like("0123456789abcdef").shown_by("engine/src/settings/web.rs::only_with_a_token_beyond_this_host"),
    text("margay.packet-costs", "a file", "", "File for the cost of each packet, for `margay lab`.").like("/tmp/costs"),
];
