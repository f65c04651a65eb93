//! Ethernet addresses of events.

/// Ethernet addresses, written if an output's `ethernet` is on.
#[derive(Debug, Clone, Copy, Default)]
pub enum Ether<'a> {
    /// None known.
    #[default]
    None,
    /// Addresses of one packet: `src_mac`, `dest_mac`.
    Packet {
        /// Source.
        src: [u8; 6],
        /// Destination.
        dst: [u8; 6],
    },
    /// All addresses seen in a flow: `src_macs`, `dest_macs`.
    Flow {
        /// Source addresses.
        src: &'a [[u8; 6]],
        /// Destination addresses.
        dst: &'a [[u8; 6]],
    },
}

impl Ether<'_> {
    /// Swaps source and destination.
    pub const fn reversed(self) -> Self {
        match self {
            Ether::None => Ether::None,
            Ether::Packet { src, dst } => Ether::Packet { src: dst, dst: src },
            Ether::Flow { src, dst } => Ether::Flow { src: dst, dst: src },
        }
    }
}
