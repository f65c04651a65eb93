//! The interface of live captures: packets arrive at any time, wait in memory that the kernel fills, and are released after inspection.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::Batch;
#[cfg(target_os = "linux")]
use crate::sys::Polled;

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// The packet is forwarded unchanged.
    #[default]
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is forwarded with other bytes: start and length in the bytes of its [`Decisions`].
    Replace(u32, u32),
}

/// The direction of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// To the packet's sender.
    Source,
    /// To the packet's receiver.
    Destination,
}

/// The verdicts on a batch's packets, and additional packets to send. Filled while the batch is borrowed and handed to
/// [`LiveSource::release`], which reuses its memory.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    verdicts: Vec<Verdict>,
    bytes: Vec<u8>,
    answers: Vec<(Side, u32, u32)>,
    /// Index, value and mask of packets whose marks change, in order.
    marks: Vec<(u32, u32, u32)>,
    bypassed: Vec<u32>,
}

impl Decisions {
    /// Removes all decisions.
    pub fn clear(&mut self) {
        self.verdicts.clear();
        self.bytes.clear();
        self.answers.clear();
        self.marks.clear();
        self.bypassed.clear();
    }

    /// Accepts the next packet unchanged.
    pub fn accept(&mut self) {
        self.verdicts.push(Verdict::Accept);
    }

    /// Drops the next packet.
    #[expect(clippy::should_implement_trait, reason = "the field's own word, and no owner is dropped")]
    pub fn drop(&mut self) {
        self.verdicts.push(Verdict::Drop);
    }

    /// Forwards the next packet as `frame`, which is not longer, and has the same headers except for correct lengths and
    /// checksums.
    pub fn replace(&mut self, frame: &[u8]) {
        let (at, len) = self.keep(frame);
        self.verdicts.push(Verdict::Replace(at, len));
    }

    /// Sends an additional `frame`, which starts with the batch's link layer and has correct checksums.
    pub fn answer(&mut self, to: Side, frame: &[u8]) {
        let (at, len) = self.keep(frame);
        self.answers.push((to, at, len));
    }

    /// Sets the bits in `mask` of the latest packet's mark to those of `value` (NFQUEUE).
    pub fn mark(&mut self, value: u32, mask: u32) {
        let index = self.verdicts.len().saturating_sub(1) as u32;
        self.marks.push((index, value, mask));
    }

    /// Notes that the latest packet belongs to a flow that needs no more inspection.
    pub fn bypass(&mut self) {
        let index = self.verdicts.len().saturating_sub(1) as u32;
        self.bypassed.push(index);
    }

    /// The new bits of the packet's mark, and the mask of bits that change.
    pub fn mark_of(&self, index: usize) -> Option<(u32, u32)> {
        if self.marks.is_empty() {
            return None;
        }
        let at = self.marks.binary_search_by_key(&(index as u32), |m| m.0).ok()?;
        self.marks.get(at).map(|m| (m.1, m.2))
    }

    /// Whether the packet at `index` belongs to a flow that needs no more inspection.
    pub fn is_bypassed(&self, index: usize) -> bool {
        !self.bypassed.is_empty() && self.bypassed.binary_search(&(index as u32)).is_ok()
    }

    fn keep(&mut self, frame: &[u8]) -> (u32, u32) {
        let at = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(frame);
        (at, u32::try_from(frame.len()).unwrap_or(u32::MAX))
    }

    fn kept(&self, at: u32, len: u32) -> &[u8] {
        let at = at as usize;
        self.bytes.get(at..at.saturating_add(len as usize)).unwrap_or(&[])
    }

    /// Whether no packet was dropped or replaced, and there are no answers, so far.
    pub fn is_plain(&self) -> bool {
        self.answers.is_empty() && self.verdicts.iter().all(|v| *v == Verdict::Accept)
    }

    /// The verdict on the packet at `index`; accepted by default.
    pub fn verdict(&self, index: usize) -> Verdict {
        self.verdicts.get(index).copied().unwrap_or_default()
    }

    /// The replacement of the packet at `index`, if there is one.
    pub fn replacement(&self, index: usize) -> Option<&[u8]> {
        match self.verdict(index) {
            Verdict::Replace(at, len) => Some(self.kept(at, len)),
            Verdict::Accept | Verdict::Drop => None,
        }
    }

    /// Additional packets to send, in order.
    pub fn answers(&self) -> impl ExactSizeIterator<Item = (Side, &[u8])> {
        self.answers.iter().map(|&(to, at, len)| (to, self.kept(at, len)))
    }
}

/// The result of waiting for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// [`LiveSource::batch`] has frames.
    Frames,
    /// No packets arrived in that time.
    Idle,
    /// The interface changed; reported once.
    Link(LinkChange),
}

/// A change of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChange {
    /// It went down.
    Down,
    /// It disappeared.
    Gone,
    /// It exists and is up again.
    Back,
}

/// Memory of a source that others may read ([`LiveSource::lend`]).
pub type Lent = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A source of live packets, for one worker.
///
/// The worker's loop is `receive`, `batch`, `release`. The frames of a batch borrow from memory that the kernel fills again
/// after their release. In `release`, an inline source carries out the verdicts in order; a passive one only sends the answers.
///
/// A source may have several interfaces, its ends, such as two that are bridged. Each batch comes from one of them.
pub trait LiveSource {
    /// Waits at most `wait` for packets, and makes at most `max` of them the next batch (at least 1). Accepts unreleased packets.
    /// It never fails permanently: it waits for an interface that disappeared, and opens it again.
    fn receive(&mut self, max: usize, wait: Duration) -> Received;

    /// Whether [`LiveSource::receive`] would return more packets at once. Reads only memory. `false` if the source cannot
    /// tell.
    fn is_waiting(&self) -> bool {
        false
    }

    /// The frames of the latest [`LiveSource::receive`]. Their number is 0.
    fn batch(&self) -> Batch<'_>;

    /// Whether [`LiveSource::lend`] would lend the memory of this batch.
    fn can_lend(&self) -> bool {
        false
    }

    /// Keeps the memory of the batch, so that it can be read while the next batches are received; any thread may read it. It
    /// has all bytes of the batch, at the places that [`Batch::start`] gives. The batch is then empty. The source releases the
    /// memory in a later call, once it was dropped. `None` if the source cannot do that with this batch, which stays as it is.
    fn lend(&mut self) -> Option<Lent> {
        None
    }

    /// The interface of the latest [`LiveSource::receive`], below [`LiveSource::ends`].
    fn end(&self) -> usize {
        0
    }

    /// The number of its interfaces.
    fn ends(&self) -> usize {
        1
    }

    /// Releases the packets of the batch, and carries out the decisions on them, in order. Packets without a verdict are accepted.
    fn release(&mut self, decisions: &Decisions);

    /// Whether the source carries out verdicts.
    fn is_inline(&self) -> bool {
        false
    }

    /// Whether its interfaces were up at the latest check.
    fn is_up(&self) -> bool {
        true
    }

    /// Trusts all checksums from now on ([`Batch::trusted`] is true for all frames).
    fn trust(&mut self) {}

    /// Starts to accept packets. Before that, there are none.
    ///
    /// # Errors
    /// The kernel's error.
    fn start(&mut self) -> Result<(), LiveError>;

    /// Accepts no more packets. Those that the kernel has are still received; all of them are available after [`LiveSource::settle`].
    fn stop(&mut self);

    /// The longest time that a packet takes from the kernel to [`LiveSource::receive`].
    fn settle(&self) -> Duration;

    /// Packets received and lost so far at one end. Reads the kernel's counters, too.
    fn counters(&mut self, end: usize) -> LiveCounters;
}

/// Packets received and lost by a live source.
///
/// `kernel_packets` = `frames` + `kernel_drops` + `unreadable` + packets that wait in the ring. At the end, none waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveCounters {
    /// Packets that the kernel delivered to the source or dropped.
    pub kernel_packets: u64,
    /// Packets that the kernel dropped for lack of room.
    pub kernel_drops: u64,
    /// Number of times that the ring was full.
    pub freezes: u64,
    /// Frames handed out.
    pub frames: u64,
    /// Captured bytes of these frames.
    pub bytes: u64,
    /// Frames of which the ring does not have all bytes.
    pub truncated: u64,
    /// Invalid packets in the ring; 0 unless the kernel has a bug.
    pub unreadable: u64,
    /// Errors of the socket: the interface went down or disappeared.
    pub errors: u64,
    /// Number of times that the source was opened again.
    pub reopened: u64,
    /// Inline: frames that were forwarded. `sent` + `dropped` + `send_errors` is the number of frames handed out.
    pub sent: u64,
    /// Inline: frames that a verdict dropped.
    pub dropped: u64,
    /// Inline: accepted frames that could not be forwarded, and were lost.
    pub send_errors: u64,
    /// Answers that were sent.
    pub answers: u64,
    /// Answers that could not be sent.
    pub answer_errors: u64,
    /// AF_XDP: the kernel's counters of its rings.
    pub rings: XdpRings,
    /// Number of waits for packets…
    pub polls: u64,
    /// …that a signal ended…
    pub poll_signal: u64,
    /// …that ended with their time…
    pub poll_timeout: u64,
    /// …that packets ended…
    pub poll_data: u64,
    /// …that an error ended.
    pub poll_errors: u64,
}

impl LiveCounters {
    /// Counts the result of waiting for packets.
    #[cfg(target_os = "linux")]
    pub(crate) fn count_poll(&mut self, polled: Polled) {
        self.polls += 1;
        match polled {
            Polled::Data => self.poll_data += 1,
            Polled::Timeout => self.poll_timeout += 1,
            Polled::Signal => self.poll_signal += 1,
            Polled::Error => self.poll_errors += 1,
        }
    }

    /// Adds another source's numbers.
    pub fn add(&mut self, other: &LiveCounters) {
        self.kernel_packets += other.kernel_packets;
        self.kernel_drops += other.kernel_drops;
        self.freezes += other.freezes;
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.truncated += other.truncated;
        self.unreadable += other.unreadable;
        self.errors += other.errors;
        self.reopened += other.reopened;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.send_errors += other.send_errors;
        self.answers += other.answers;
        self.answer_errors += other.answer_errors;
        self.rings.add(&other.rings);
        self.polls += other.polls;
        self.poll_signal += other.poll_signal;
        self.poll_timeout += other.poll_timeout;
        self.poll_data += other.poll_data;
        self.poll_errors += other.poll_errors;
    }
}

/// The kernel's counters of an AF_XDP socket's rings (`XDP_STATISTICS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpRings {
    /// Packets without a free chunk, or larger than a chunk. Part of [`LiveCounters::kernel_drops`].
    pub dropped: u64,
    /// Packets without room in the receive ring. Part of [`LiveCounters::kernel_drops`].
    pub full: u64,
    /// Number of times that no chunk was free; this is not a number of packets. With zero-copy, the card waits for chunks and
    /// counts its losses.
    pub fill_empty: u64,
    /// Our entries that the kernel rejected; 0 unless this engine has a bug.
    pub invalid: u64,
    /// Packets that `bpf-filter` rejected, which this process runs.
    pub filtered: u64,
    /// Number of waits that ended with data but without packets.
    pub empty: u64,
}

impl XdpRings {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &XdpRings) {
        self.dropped += other.dropped;
        self.full += other.full;
        self.fill_empty += other.fill_empty;
        self.invalid += other.invalid;
        self.filtered += other.filtered;
        self.empty += other.empty;
    }
}

/// Why an interface cannot be captured from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no interface with this name.
    #[error("{0}: there is no such interface; `ip link` lists those that there are")]
    NoInterface(String),
    /// The name is invalid for an interface.
    #[error("{0}: is no name of an interface: it has 1 to 15 bytes")]
    Name(String),
    /// Only privileged processes may.
    #[error("{interface}: capturing needs the capability CAP_NET_RAW: run as root, or give it to the program")]
    NotAllowed {
        /// The interface.
        interface: String,
    },
    /// Only privileged processes may load programs into the kernel.
    #[error(
        "{interface}: {what}: that needs the capabilities {needs} and CAP_NET_RAW: run as root, or give them to the program"
    )]
    NotAllowedProgram {
        /// The interface.
        interface: String,
        /// The refused operation.
        what: &'static str,
        /// The capabilities that are needed for the program, beside that for capturing.
        needs: &'static str,
    },
    /// Another program is attached to the interface.
    #[error(
        "{interface}: another program for XDP is there, or its queue has another socket: `ip link show dev {interface}` shows it, \
         and `ip link set dev {interface} xdp off` removes it"
    )]
    Occupied {
        /// The interface.
        interface: String,
    },
    /// The decoder does not know its link type.
    #[error("{interface}: its link layer (ARPHRD type {hardware}) is not supported")]
    LinkLayer {
        /// The interface.
        interface: String,
        /// The hardware type, as in `/sys/class/net/*/type`.
        hardware: u16,
    },
    /// A setting is invalid.
    #[error("{interface}: {setting}: {message}")]
    Setting {
        /// The interface.
        interface: String,
        /// The setting's name.
        setting: &'static str,
        /// The error.
        message: String,
    },
    /// The filter does not compile.
    #[error("{interface}: {source}")]
    Filter {
        /// The interface.
        interface: String,
        /// The compiler's error.
        source: crate::FilterError,
    },
    /// Only privileged processes may.
    #[error(
        "queue {queue}: taking packets from netfilter needs the capability CAP_NET_ADMIN: run as root, or give it to the program"
    )]
    QueueNotAllowed {
        /// The queue.
        queue: u16,
    },
    /// Another process has the queue.
    #[error(
        "queue {queue}: another program has it (netlink port {port}, most often its process id): end it, or name another queue"
    )]
    QueueTaken {
        /// The queue.
        queue: u16,
        /// The netlink port of its socket.
        port: u32,
    },
    /// The kernel refused an operation.
    #[error("{interface}: {what}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}
