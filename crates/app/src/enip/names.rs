//! Names of codes: commands and status codes as in rules, CIP codes as in its specification.

/// Commands of the encapsulation (CIP volume 2, table 2-3.2).
pub(super) const COMMANDS: &[(&str, u64)] = &[
    ("nop", 0x00),
    ("list_services", 0x04),
    ("list_identity", 0x63),
    ("list_interfaces", 0x64),
    ("register_session", 0x65),
    ("unregister_session", 0x66),
    ("send_rr_data", 0x6f),
    ("send_unit_data", 0x70),
    ("indicate_status", 0x72),
    ("cancel", 0x73),
];

/// Status codes of the encapsulation (CIP volume 2, table 2-3.3).
pub(super) const STATUSES: &[(&str, u64)] = &[
    ("success", 0x00),
    ("invalid_cmd", 0x01),
    ("no_resources", 0x02),
    ("invalid_data", 0x03),
    ("invalid_session", 0x64),
    ("invalid_length", 0x65),
    ("unsupported_prot_rev", 0x69),
    ("encap_header_error", 0x6a),
];

type Names = &'static [(u32, &'static str)];

/// Common services (CIP volume 1, appendix A). The object defines the meaning of other codes.
const SERVICES: Names = &[
    (0x01, "Get Attributes All"),
    (0x02, "Set Attributes All"),
    (0x03, "Get Attribute List"),
    (0x04, "Set Attribute List"),
    (0x05, "Reset"),
    (0x06, "Start"),
    (0x07, "Stop"),
    (0x08, "Create"),
    (0x09, "Delete"),
    (0x0a, "Multiple Service Packet"),
    (0x0d, "Apply Attributes"),
    (0x0e, "Get Attribute Single"),
    (0x10, "Set Attribute Single"),
    (0x11, "Find Next Object Instance"),
    (0x14, "Error Response"),
    (0x15, "Restore"),
    (0x16, "Save"),
    (0x17, "No Operation"),
    (0x18, "Get Member"),
    (0x19, "Set Member"),
    (0x1a, "Insert Member"),
    (0x1b, "Remove Member"),
    (0x1c, "Group Sync"),
];

/// Object classes (CIP volume 1, chapter 5; volume 2, chapter 5).
const CLASSES: Names = &[
    (0x01, "Identity"),
    (0x02, "Message Router"),
    (0x03, "DeviceNet"),
    (0x04, "Assembly"),
    (0x05, "Connection"),
    (0x06, "Connection Manager"),
    (0x07, "Register"),
    (0x08, "Discrete Input Point"),
    (0x09, "Discrete Output Point"),
    (0x0a, "Analog Input Point"),
    (0x0b, "Analog Output Point"),
    (0x0e, "Presence Sensing"),
    (0x0f, "Parameter"),
    (0x10, "Parameter Group"),
    (0x12, "Group"),
    (0x1d, "Discrete Input Group"),
    (0x1e, "Discrete Output Group"),
    (0x1f, "Discrete Group"),
    (0x20, "Analog Input Group"),
    (0x21, "Analog Output Group"),
    (0x22, "Analog Group"),
    (0x23, "Position Sensor"),
    (0x24, "Position Controller Supervisor"),
    (0x25, "Position Controller"),
    (0x26, "Block Sequencer"),
    (0x27, "Command Block"),
    (0x28, "Motor Data"),
    (0x29, "Control Supervisor"),
    (0x2a, "AC/DC Drive"),
    (0x2b, "Acknowledge Handler"),
    (0x2c, "Overload"),
    (0x2d, "Softstart"),
    (0x2e, "Selection"),
    (0x37, "File"),
    (0x39, "Safety Supervisor"),
    (0x3a, "Safety Validator"),
    (0x41, "Event Log"),
    (0x42, "Motion Device Axis"),
    (0x43, "Time Sync"),
    (0x44, "Modbus"),
    (0x47, "Device Level Ring"),
    (0x48, "QoS"),
    (0x64, "Program Name"),
    (0xf0, "ControlNet"),
    (0xf1, "ControlNet Keeper"),
    (0xf2, "ControlNet Scheduling"),
    (0xf3, "Connection Configuration"),
    (0xf4, "Port"),
    (0xf5, "TCP/IP Interface"),
    (0xf6, "Ethernet Link"),
    (0xf7, "CompoNet Link"),
    (0xf8, "CompoNet Repeater"),
];

/// General status codes of a response (CIP volume 1, appendix B).
const STATES: Names = &[
    (0x00, "Success"),
    (0x01, "Connection failure"),
    (0x02, "Resource unavailable"),
    (0x03, "Invalid parameter value"),
    (0x04, "Path segment error"),
    (0x05, "Path destination unknown"),
    (0x06, "Partial transfer"),
    (0x07, "Connection lost"),
    (0x08, "Service not supported"),
    (0x09, "Invalid attribute value"),
    (0x0a, "Attribute list error"),
    (0x0b, "Already in requested mode/state"),
    (0x0c, "Object state conflict"),
    (0x0d, "Object already exists"),
    (0x0e, "Attribute not settable"),
    (0x0f, "Privilege violation"),
    (0x10, "Device state conflict"),
    (0x11, "Reply data too large"),
    (0x12, "Fragmentation of a primitive value"),
    (0x13, "Not enough data"),
    (0x14, "Attribute not supported"),
    (0x15, "Too much data"),
    (0x16, "Object does not exist"),
    (0x17, "Service fragmentation sequence not in progress"),
    (0x18, "No stored attribute data"),
    (0x19, "Store operation failure"),
    (0x1a, "Routing failure, request packet too large"),
    (0x1b, "Routing failure, response packet too large"),
    (0x1c, "Missing attribute list entry data"),
    (0x1d, "Invalid attribute value list"),
    (0x1e, "Embedded service error"),
    (0x1f, "Vendor specific error"),
    (0x20, "Invalid parameter"),
    (0x21, "Write-once value or medium already written"),
    (0x22, "Invalid reply received"),
    (0x25, "Key failure in path"),
    (0x26, "Path size invalid"),
    (0x27, "Unexpected attribute in list"),
    (0x28, "Invalid Member ID"),
    (0x29, "Member not settable"),
    (0x2a, "Group 2 only server general failure"),
];

/// Device types (CIP volume 1, chapter 6).
const DEVICES: Names = &[
    (0x00, "Generic Device (deprecated)"),
    (0x02, "AC Drive"),
    (0x03, "Motor Overload"),
    (0x04, "Limit Switch"),
    (0x05, "Inductive Proximity Switch"),
    (0x06, "Photoelectric Sensor"),
    (0x07, "General Purpose Discrete I/O"),
    (0x09, "Resolver"),
    (0x0c, "Communications Adapter"),
    (0x0e, "Programmable Logic Controller"),
    (0x10, "Position Controller"),
    (0x13, "DC Drive"),
    (0x15, "Contactor"),
    (0x16, "Motor Starter"),
    (0x17, "Soft Start"),
    (0x18, "Human-Machine Interface"),
    (0x1a, "Mass Flow Controller"),
    (0x1b, "Pneumatic Valve"),
    (0x1c, "Vacuum Pressure Gauge"),
    (0x2b, "Generic Device"),
    (0x2c, "Managed Switch"),
];

/// Vendors of most devices (ODVA's register of vendors).
const VENDORS: Names = &[
    (0, "Reserved"),
    (1, "Rockwell Automation/Allen-Bradley"),
    (5, "Rockwell Automation/Reliance Electric"),
    (26, "Festo SE & Co KG"),
    (40, "WAGO Corporation"),
    (46, "ABB, Inc."),
    (47, "OMRON Corporation"),
    (48, "TURCK"),
    (90, "HMS Industrial Networks AB"),
    (108, "Beckhoff Automation"),
    (161, "Mitsubishi Electric Corporation"),
    (243, "Schneider Electric"),
    (283, "Hilscher GmbH"),
    (562, "Phoenix Contact"),
];

fn find(names: Names, code: u32) -> Option<&'static str> {
    names.binary_search_by_key(&code, |n| n.0).ok().and_then(|at| names.get(at)).map(|n| n.1)
}

/// The name of a service, without the response bit.
pub(super) fn service(code: u8) -> Option<&'static str> {
    find(SERVICES, u32::from(code & 0x7f))
}

/// The name of a class.
pub(super) fn class(code: u32) -> Option<&'static str> {
    find(CLASSES, code)
}

/// The name of a general status code.
pub(super) fn state(code: u8) -> Option<&'static str> {
    find(STATES, u32::from(code))
}

/// The name of a device type.
pub(super) fn device(code: u16) -> Option<&'static str> {
    find(DEVICES, u32::from(code))
}

/// The name of a vendor.
pub(super) fn vendor(code: u16) -> Option<&'static str> {
    find(VENDORS, u32::from(code))
}

/// The name of a command or status code in one of the lists above.
pub(super) fn word(words: &'static [(&'static str, u64)], code: u32) -> Option<&'static str> {
    words.iter().find(|w| w.1 == u64::from(code)).map(|w| w.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        for names in [SERVICES, CLASSES, STATES, DEVICES, VENDORS] {
            assert!(names.is_sorted_by(|a, b| a.0 < b.0));
            assert!(names.iter().all(|n| find(names, n.0) == Some(n.1)));
        }
        assert_eq!((service(0x8a), class(0x69)), (Some("Multiple Service Packet"), None));
        assert_eq!(word(STATUSES, 0x64), Some("invalid_session"));
    }
}
