//! Names of types, functions and areas.

use super::pdu::{ACK, ACK_DATA, JOB, USER_DATA};

/// Types of PDUs.
pub(super) const KINDS: &[(&str, u64)] =
    &[("job", JOB as u64), ("ack", ACK as u64), ("ack_data", ACK_DATA as u64), ("user_data", USER_DATA as u64)];

/// Functions of jobs.
pub(super) const FUNCTIONS: &[(&str, u64)] = &[
    ("cpu_services", 0x00),
    ("read", 0x04),
    ("write", 0x05),
    ("request_download", 0x1a),
    ("download_block", 0x1b),
    ("download_ended", 0x1c),
    ("start_upload", 0x1d),
    ("upload", 0x1e),
    ("end_upload", 0x1f),
    ("plc_control", 0x28),
    ("plc_stop", 0x29),
    ("setup_communication", 0xf0),
];

/// Function groups of user data.
pub(super) const USER_GROUPS: &[(&str, u64)] =
    &[("mode_transition", 0), ("programmer", 1), ("cyclic", 2), ("block", 3), ("cpu", 4), ("security", 5), ("time", 7)];

/// Memory areas.
pub(super) const AREAS: &[(&str, u64)] = &[
    ("system_info", 0x03),
    ("system_flags", 0x05),
    ("analog_inputs", 0x06),
    ("analog_outputs", 0x07),
    ("counters", 0x1c),
    ("timers", 0x1d),
    ("peripherals", 0x80),
    ("inputs", 0x81),
    ("outputs", 0x82),
    ("flags", 0x83),
    ("db", 0x84),
    ("instance_db", 0x85),
    ("local", 0x86),
];
