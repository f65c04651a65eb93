//! The work trace: the work of each packet on a card, in a few integers.
//!
//! The file: `MGYCARD\0`, version (u32), numbers of packets, flows and reports (u64 each), then the hashes of the flows (u32), the packets
//! (28 bytes each) and the reports (u32). All numbers are little-endian.

use crate::Bad;

const MAGIC: &[u8; 8] = b"MGYCARD\0";
/// The version of the format.
pub const VERSION: u32 = 1;
const PACKET: usize = 28;

/// It is TCP.
pub const TCP: u8 = 1;

/// A packet's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    /// Index of the flow.
    pub flow: u32,
    /// Index of its first report in [`Trace::reports`].
    pub first: u32,
    /// Bytes of the stream or datagram that are inspected now; 0 without a flush point.
    pub flush: u32,
    /// Bytes of the frame.
    pub bytes: u16,
    /// Bytes of the payload.
    pub payload: u16,
    /// Number of reports from the port group's table; they come first.
    pub group: u16,
    /// Number of reports from a table of all rules, including those of the group.
    pub all: u16,
    /// Total bytes of the URIs to normalise.
    pub uri_bytes: u16,
    /// Number of URIs to normalise.
    pub uris: u16,
    /// Number of alerts.
    pub alerts: u8,
    /// Flags, such as [`TCP`].
    pub flags: u8,
}

/// A work trace, see the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// For each flow, a symmetric hash of its addresses.
    pub flows: Vec<u32>,
    /// Packets in the order of their arrival.
    pub packets: Vec<Work>,
    /// Reports of the matcher: the rule's index in the upper half, and the bytes that its verification inspects in the lower half.
    pub reports: Vec<u32>,
}

impl Trace {
    /// Encodes the trace as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(36 + self.flows.len() * 4 + self.packets.len() * PACKET + self.reports.len() * 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for n in [self.packets.len(), self.flows.len(), self.reports.len()] {
            out.extend_from_slice(&(n as u64).to_le_bytes());
        }
        self.flows.iter().for_each(|h| out.extend_from_slice(&h.to_le_bytes()));
        for p in &self.packets {
            for n in [p.flow, p.first, p.flush] {
                out.extend_from_slice(&n.to_le_bytes());
            }
            for n in [p.bytes, p.payload, p.group, p.all, p.uri_bytes, p.uris] {
                out.extend_from_slice(&n.to_le_bytes());
            }
            out.extend_from_slice(&[p.alerts, p.flags, 0, 0]);
        }
        self.reports.iter().for_each(|h| out.extend_from_slice(&h.to_le_bytes()));
        out
    }

    /// Decodes a file; `name` is its name in errors.
    ///
    /// # Errors
    /// It is not a work trace, has another version, is truncated, or has dangling references.
    pub fn from_bytes(data: &[u8], name: &str) -> Result<Trace, Bad> {
        let bad = |why: String| Bad(format!("{name}: {why}"));
        let short = || bad("the work trace is cut short or longer than its header says".to_owned());
        if data.get(..8) != Some(MAGIC) {
            return Err(bad("this is not a work trace; make one with `margay lab card record`".to_owned()));
        }
        let u32_at =
            |at: usize| data.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes).ok_or_else(short);
        let u64_at =
            |at: usize| data.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes).ok_or_else(short);
        let version = u32_at(8)?;
        if version != VERSION {
            return Err(bad(format!(
                "the work trace has version {version}, this program reads {VERSION}: record it again"
            )));
        }
        let (packets, flows, reports) = (u64_at(12)?, u64_at(20)?, u64_at(28)?);
        let sum = u128::from(packets) * PACKET as u128 + (u128::from(flows) + u128::from(reports)) * 4 + 36;
        if sum != data.len() as u128 {
            return Err(short());
        }
        let words = |part: &[u8]| part.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect::<Vec<u32>>();
        let (flows_end, packets_end) = (36 + flows as usize * 4, 36 + flows as usize * 4 + packets as usize * PACKET);
        let mut trace = Trace {
            flows: words(&data[36..flows_end]),
            packets: Vec::with_capacity(packets as usize),
            reports: words(&data[packets_end..]),
        };
        for (number, b) in data[flows_end..packets_end].as_chunks::<PACKET>().0.iter().enumerate() {
            let long = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
            let short = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
            let p = Work {
                flow: long(0),
                first: long(4),
                flush: long(8),
                bytes: short(12),
                payload: short(14),
                group: short(16),
                all: short(18),
                uri_bytes: short(20),
                uris: short(22),
                alerts: b[24],
                flags: b[25],
            };
            let end = p.first as usize + usize::from(p.all);
            if p.flow as usize >= trace.flows.len()
                || end > trace.reports.len()
                || p.group > p.all
                || p.payload > p.bytes
            {
                return Err(bad(format!("packet {} refers to what is not in the trace", number + 1)));
            }
            trace.packets.push(p);
        }
        trace.check(name)?;
        Ok(trace)
    }

    /// Appends the flows of `other`, `times` times. Each time they are new flows with the same hashes.
    ///
    /// # Errors
    /// There would be more flows, packets or reports than 32-bit numbers can name.
    pub fn append(&mut self, other: &Trace, times: usize) -> Result<(), Bad> {
        for _ in 0..times {
            let (flow, report) = (self.flows.len(), self.reports.len());
            let most =
                [flow + other.flows.len(), report + other.reports.len(), self.packets.len() + other.packets.len()];
            if most.iter().any(|n| u32::try_from(*n).is_err()) {
                return Err(Bad("more flows, packets or reports than a work trace has numbers for".to_owned()));
            }
            let (flow, report) = (flow as u32, report as u32);
            self.flows.extend_from_slice(&other.flows);
            self.reports.extend_from_slice(&other.reports);
            let moved = other.packets.iter().map(|p| Work { flow: p.flow + flow, first: p.first + report, ..*p });
            self.packets.extend(moved);
        }
        Ok(())
    }

    /// Checks that it can be replayed.
    ///
    /// # Errors
    /// It has no packets, or no payload.
    pub fn check(&self, name: &str) -> Result<(), Bad> {
        if self.packets.is_empty() {
            return Err(Bad(format!("{name}: there is no packet in the trace")));
        }
        if self.packets.iter().all(|p| p.payload == 0) {
            return Err(Bad(format!(
                "{name}: no packet of the trace has payload, so nothing would be inspected; was it captured with a snap length?"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::synthetic;

    use super::Trace;

    #[test]
    fn an_appended_trace_has_its_own_flows_and_reports() {
        let (a, b) = (synthetic::trace(200, 20, 1), synthetic::trace(100, 10, 2));
        let mut both = a.clone();
        both.append(&b, 3).unwrap();
        assert_eq!((both.packets.len(), both.flows.len()), (500, a.flows.len() + 3 * b.flows.len()));
        assert_eq!(Trace::from_bytes(&both.to_bytes(), "appended").unwrap(), both);
        let reports = |t: &Trace, n: usize| {
            let p = t.packets[n];
            t.reports[p.first as usize..p.first as usize + usize::from(p.all)].to_vec()
        };
        for n in 0..100 {
            assert_eq!(both.packets[400 + n].flow, b.packets[n].flow + a.flows.len() as u32 + 2 * b.flows.len() as u32);
            assert_eq!(reports(&both, 400 + n), reports(&b, n));
        }
    }
}
