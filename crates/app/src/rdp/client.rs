//! The client's Connect Initial PDU (MS-RDPBCGR section 2.2.1.3).

use margay_json::Json;

/// The key of the client's data in the Conference Create Request.
const KEY: &[u8] = b"Duca";
/// Block types: `CS_CORE`, `CS_NET`.
const CORE: u16 = 0xc001;
const NET: u16 = 0xc003;
/// Length of the mandatory core data, and of all of it.
const CORE_MIN: usize = 128;
const CORE_MAX: usize = 230;
/// Length of a channel: name and options.
const CHANNEL: usize = 12;
/// The limit of channels. A client may request 31.
const CHANNELS_MAX: usize = 256;
/// Names of keyboard layouts (MS-LCID) by number, one per line.
const KEYBOARDS: &str = include_str!("keyboards.txt");
/// Names of operating systems by client build.
const BUILDS: &[(u32, &str)] = &[
    (528, "Windows NT 3.1"),
    (807, "Windows NT 3.5"),
    (1057, "Windows NT 3.51"),
    (1381, "Windows NT 4.0"),
    (2195, "Windows 2000"),
    (2600, "Windows XP"),
    (3790, "Windows Server 2003"),
    (6000, "Windows Vista RTM"),
    (6001, "Windows Vista SP1"),
    (6002, "Windows Vista SP2"),
    (7600, "Windows 7 RTM"),
    (7601, "Windows 7 SP1"),
    (9200, "Windows 8"),
    (9600, "Windows 8.1"),
    (10240, "Windows 10 TH1"),
    (10586, "Windows 10 TH2"),
    (14393, "Windows 10 RS1"),
    (15063, "Windows 10 RS2"),
    (16299, "Windows 10 RS3"),
    (17134, "Windows 10 RS4"),
    (17763, "Windows 10 RS5"),
];
/// Names of protocol versions, from 0x80001 on.
const VERSIONS: &[(u32, &str)] = &[
    (0x8_0001, "v4"),
    (0x8_0004, "v5"),
    (0x8_0005, "v10.0"),
    (0x8_0006, "v10.1"),
    (0x8_0007, "v10.2"),
    (0x8_0008, "v10.3"),
    (0x8_0009, "v10.4"),
    (0x8_000a, "v10.5"),
    (0x8_000b, "v10.6"),
    (0x8_000c, "v10.7"),
];
/// Names of keyboard types, from 1 on.
const KEYBOARD_TYPES: &[&str] = &["xt", "ico", "at", "enhanced", "1050", "9140", "jp"];
/// Names of connection types, from 1 on.
const CONNECTIONS: &[&str] = &["modem", "low_broadband", "satellite", "high_broadband", "wan", "lan", "autodetect"];
/// Names of `earlyCapabilityFlags` by bit; one is defined without a name.
const CAPABILITIES: &[&str] = &[
    "support_errinfo_pdf",
    "want_32bpp_session",
    "support_statusinfo_pdu",
    "strong_asymmetric_keys",
    "",
    "valid_connection_type",
    "support_monitor_layout_pdu",
    "support_netchar_autodetect",
    "support_dynvc_gfx_protocol",
    "support_dynamic_time_zone",
    "support_heartbeat_pdu",
];

/// The stored blocks, in the order of the PDU.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Client {
    core: Option<Box<[u8]>>,
    channels: Option<Box<[u8]>>,
    channels_first: bool,
}

/// Reads a length in packed encoding (X.691 section 10.9), of at most two bytes. Returns it and the rest.
fn per_length(data: &[u8]) -> Option<(usize, &[u8])> {
    match data {
        [n @ ..0x80, rest @ ..] => Some((usize::from(*n), rest)),
        [high @ 0x80..0xc0, low, rest @ ..] => Some((usize::from(high & 0x3f) << 8 | usize::from(*low), rest)),
        _ => None,
    }
}

impl Client {
    /// Reads the content of a Connect Initial PDU (T.125 section 7). `None` if the client's data is invalid, or has no block.
    /// As in Suricata, the data begins behind its key; the BER elements before it are not checked.
    pub(super) fn read(body: &[u8]) -> Option<Client> {
        let at = body.windows(KEY.len()).position(|w| w == KEY)?;
        let (len, blocks) = per_length(body.get(at + KEY.len()..)?)?;
        let mut blocks = blocks.get(..len)?;
        let (mut client, all) = (Client::default(), blocks.len());
        while let Some((head, behind)) = blocks.split_first_chunk::<4>() {
            let [a, b, c, d] = *head;
            let Some(len) = usize::from(u16::from_le_bytes([c, d])).checked_sub(4) else { break };
            let (block, rest) = behind.split_at_checked(len)?;
            client.block(u16::from_le_bytes([a, b]), block)?;
            blocks = rest;
        }
        (blocks.len() < all).then_some(client)
    }

    fn block(&mut self, kind: u16, block: &[u8]) -> Option<()> {
        match kind {
            CORE if block.len() < CORE_MIN => return None,
            CORE => self.core = Some(block.get(..CORE_MAX).unwrap_or(block).into()),
            NET => {
                let (count, list) = block.split_first_chunk()?;
                let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
                let list = list.get(..count.checked_mul(CHANNEL)?)?;
                self.channels = Some(list.get(..CHANNELS_MAX * CHANNEL).unwrap_or(list).into());
                self.channels_first = self.core.is_none();
            }
            _ => {}
        }
        Some(())
    }

    pub(super) fn held(&self) -> usize {
        [&self.core, &self.channels].into_iter().flatten().map(|b| b.len()).sum()
    }

    /// Appends `"client"` and `"channels"`.
    pub(super) fn log(&self, json: &mut Json) {
        if self.channels_first {
            self.log_channels(json);
        }
        if let Some(core) = &self.core {
            json.object("client");
            log_core(&Core(core), json);
            json.end_object();
        }
        if !self.channels_first {
            self.log_channels(json);
        }
    }

    fn log_channels(&self, json: &mut Json) {
        let Some(list) = self.channels.as_deref().filter(|l| !l.is_empty()) else { return };
        json.array("channels");
        for channel in list.chunks_exact(CHANNEL) {
            let name = channel.get(..8).unwrap_or_default();
            json.item_bytes(name.split(|b| *b == 0).next().unwrap_or_default());
        }
        json.end_array();
    }
}

/// The core data.
struct Core<'a>(&'a [u8]);

impl Core<'_> {
    fn u8(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.0.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
    }

    /// Text of at most `len` bytes; `None` if it is empty.
    fn text(&self, at: usize, len: usize) -> Option<String> {
        let units = self.0.get(at..at + len)?.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b));
        let units: Vec<u16> = units.take_while(|u| *u != 0).collect();
        (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
    }

    /// Colour depth: the last field that has one.
    fn color_depth(&self) -> Option<u64> {
        let of_beta = |at| Some([4, 8, 15, 16, 24][usize::from(self.u16(at)?.checked_sub(0xca00).filter(|n| *n < 5)?)]);
        self.u16(136)
            .filter(|n| matches!(n, 4 | 8 | 15 | 16 | 24))
            .map(u64::from)
            .or_else(|| of_beta(128))
            .or_else(|| of_beta(8).filter(|n| *n < 15))
    }
}

fn name_of(names: &'static [(u32, &'static str)], number: u32) -> &'static str {
    names.iter().find(|(n, _)| *n == number).map_or("unknown", |(_, name)| name)
}

fn keyboard(number: u32) -> &'static str {
    let known = |line: &'static str| line.split_once(' ').filter(|(n, _)| u32::from_str_radix(n, 16) == Ok(number));
    KEYBOARDS.lines().find_map(known).map_or("unknown", |(_, name)| name)
}

/// Section 2.2.1.3.2.
fn log_core(core: &Core<'_>, json: &mut Json) {
    let counted = |names: &'static [&'static str], n: Option<usize>| names.get(n?.checked_sub(1)?).copied();
    json.str("version", name_of(VERSIONS, core.u32(0).unwrap_or(0)));
    json.uint("desktop_width", core.u16(4).unwrap_or(0).into());
    json.uint("desktop_height", core.u16(6).unwrap_or(0).into());
    if let Some(depth) = core.color_depth() {
        json.uint("color_depth", depth);
    }
    json.str("keyboard_layout", keyboard(core.u32(12).unwrap_or(0)));
    json.str("build", name_of(BUILDS, core.u32(16).unwrap_or(0)));
    if let Some(name) = core.text(20, 32) {
        json.str("client_name", &name);
    }
    if let Some(kind) = counted(KEYBOARD_TYPES, core.u32(52).map(|n| n as usize)) {
        json.str("keyboard_type", kind);
    }
    for (at, key) in [(56, "keyboard_subtype"), (60, "function_keys")] {
        if let Some(n) = core.u32(at).filter(|n| *n != 0) {
            json.uint(key, n.into());
        }
    }
    if let Some(ime) = core.text(64, 64) {
        json.str("ime", &ime);
    }
    // From here on, a field exists only if all earlier ones do.
    if let Some(id) = core.u16(130) {
        json.uint("product_id", id.into());
    }
    if let Some(serial) = core.u32(132).filter(|n| *n != 0) {
        json.uint("serial_number", serial.into());
    }
    // Two fields follow the colour depth and the supported depths.
    if let Some(flags) = core.u16(140).filter(|f| *f != 0) {
        super::log_flags(json, "capabilities", flags.into(), CAPABILITIES);
    }
    if let Some(id) = core.text(142, 64) {
        json.str("id", &id);
    }
    if let Some(hint) = counted(CONNECTIONS, core.u8(206).map(usize::from)) {
        json.str("connection_hint", hint);
    }
    // Sizes in millimetres; an invalid value hides those after it.
    let millimetres = |at| core.u32(at).filter(|n| (10..=10_000).contains(n));
    let Some(width) = millimetres(212) else { return };
    json.uint("physical_width", width.into());
    let Some(height) = millimetres(216) else { return };
    json.uint("physical_height", height.into());
    let Some(orientation) = core.u16(220).filter(|n| matches!(n, 0 | 90 | 180 | 270)) else { return };
    json.uint("desktop_orientation", orientation.into());
    if let Some(factor) = core.u32(222).filter(|n| (100..=500).contains(n)) {
        json.uint("scale_factor", factor.into());
    }
}
