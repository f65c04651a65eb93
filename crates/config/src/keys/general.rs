//! Networks, folders, names.

use super::reasons::{INFORMATION, PLUGINS, REMOVED};
use super::{Key, flag, list, number, section, text};

pub(super) const ABOUT: &str = "Variables for rules, folders, and the name of the sensor.";

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    text("suricata-version", "a release", "*", "The release of Suricata that the file was written for.").ignored(INFORMATION),
    text("vars.address-groups.*", "addresses", "", "A variable that rules name as `$NAME` where addresses stand.").like("[10.0.0.0/8]"),
    text("vars.port-groups.*", "ports", "", "A variable that rules name as `$NAME` where ports stand.").like("[80, 81]"),
    text("default-log-dir", "a folder", ".", "Folder for logs; `-l` overrides it. It is created if missing.").like("/tmp"),
    text("default-rule-path", "a folder", "/var/lib/margay/rules", "Folder for rule files named without a path.").like("/tmp/rules"),
    text("data-dir", "a folder", "/var/lib/margay/data", "Folder where datasets keep their state; `--data-dir` overrides it.").like("/tmp/data"),
    text("sensor-name", "a name", "", "The name of this sensor, written as `host` into every record.").like("s1"),
    list("include", "files", "", "Files read as if they stood here.").shown_by("config/tests/tree.rs::files_include_files"),
    text("geoip-database", "a file", "", "The MaxMind database for the keyword `geoip`.").like("/tmp/none.mmdb"),
    text("magic-file", "a file", "", "The libmagic database; default: the system's.").like("/tmp/magic"),
    number("sensor-id", "*", (0, 0), "", "A number of this sensor, for outputs that are gone.").ignored(REMOVED),
    section("plugins", "Programs that add to Suricata.").ignored(PLUGINS),
    section("cuda", "Matching on graphics cards.").ignored(REMOVED),
    section("mpipe", "Capture on Tilera.").ignored(REMOVED),
    section("rule-profiling", "The old name of `profiling.rules`.").ignored(REMOVED),
    section("libhtp", "The old place of `app-layer.protocols.http.libhtp`.").ignored(REMOVED),
    section("lua", "Lua's settings of a development release; `security.lua` has them.").ignored(REMOVED),
    section("ndpi", "A plugin's settings.").ignored(PLUGINS),
    number("luajit.states", "128", (0, 0), "states", "States of LuaJIT that are made at start.").ignored(REMOVED),
    flag("legacy.uricontent", "*", "Whether the keyword `uricontent` is accepted.").ignored(REMOVED),
];
