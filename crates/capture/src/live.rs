//! The interface of live captures: packets arrive at any time, wait in memory that the kernel fills, and are released.

use std::time::Duration;

use crate::reader::Batch;

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// It goes on its way, as it is.
    #[default]
    Accept,
    /// It does not.
    Drop,
    /// It goes on its way with other bytes: so many, from there on in those of its [`Decisions`].
    Replace(u32, u32),
}

/// To whom an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Back to where the packet came from.
    Source,
    /// To where the packet goes.
    Destination,
}

/// The verdicts on a batch's packets, and additional packets to send. Filled while the batch is borrowed and handed to
/// [`LiveSource::release`], which reuses its memory.
#[derive(Debug, Clone, Default)]
pub struct Decisions {
    verdicts: Vec<Verdict>,
    bytes: Vec<u8>,
    answers: Vec<(Side, u32, u32)>,
    /// Of packets, by their index, in order.
    marks: Vec<(u32, u32, u32)>,
    bypassed: Vec<u32>,
}

impl Decisions {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.verdicts.clear();
        self.bytes.clear();
        self.answers.clear();
        self.marks.clear();
        self.bypassed.clear();
    }

    /// The next packet goes on its way as it is.
    pub fn accept(&mut self) {
        self.verdicts.push(Verdict::Accept);
    }

    /// The next packet does not.
    #[expect(clippy::should_implement_trait, reason = "the field's own word, and no owner is dropped")]
    pub fn drop(&mut self) {
        self.verdicts.push(Verdict::Drop);
    }

    /// The next packet goes on its way as `frame`: of the same length, or shorter, with the same headers but for lengths and
    /// checksums, which are right.
    pub fn replace(&mut self, frame: &[u8]) {
        let (at, len) = self.keep(frame);
        self.verdicts.push(Verdict::Replace(at, len));
    }

    /// `frame` is sent besides: from its link layer on, which is that of the batch. Checksums are right.
    pub fn answer(&mut self, to: Side, frame: &[u8]) {
        let (at, len) = self.keep(frame);
        self.answers.push((to, at, len));
    }

    /// The packet decided on last gets these bits of its mark set to those of `value` (NFQUEUE).
    pub fn mark(&mut self, value: u32, mask: u32) {
        let index = self.verdicts.len().saturating_sub(1) as u32;
        self.marks.push((index, value, mask));
    }

    /// The packet decided on last is of a flow that needs no more looking.
    pub fn bypass(&mut self) {
        let index = self.verdicts.len().saturating_sub(1) as u32;
        self.bypassed.push(index);
    }

    /// The bits of its mark that the packet at `index` gets, and which they are.
    pub fn mark_of(&self, index: usize) -> Option<(u32, u32)> {
        if self.marks.is_empty() {
            return None;
        }
        let at = self.marks.binary_search_by_key(&(index as u32), |m| m.0).ok()?;
        self.marks.get(at).map(|m| (m.1, m.2))
    }

    /// Whether the packet at `index` is of a flow that needs no more looking.
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

    /// Whether nothing is dropped, replaced or answered so far.
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
    /// None came in that time.
    Idle,
    /// The interface changed; reported once.
    Link(LinkChange),
}

/// A change of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkChange {
    /// It is down.
    Down,
    /// There is no such interface any more.
    Gone,
    /// It is there and up again.
    Back,
}

/// A source of live packets, for one worker.
///
/// The worker's loop is `receive`, `batch`, `release`: the frames of a batch borrow from memory that the kernel fills again
/// after their release. In `release` an inline source carries out the verdicts in order; a passive one only sends the answers.
///
/// A source may be of several interfaces, its ends: the two that are bridged. Each batch is of one of them.
pub trait LiveSource {
    /// Waits at most `wait` for packets, and makes at most `max` of them the next batch (at least 1). Unreleased packets
    /// are accepted. Never fails for good: it waits for an interface that disappears, and opens it again.
    fn receive(&mut self, max: usize, wait: Duration) -> Received;

    /// The frames of the last [`LiveSource::receive`]. They have the number 0.
    fn batch(&self) -> Batch<'_>;

    /// Which of its interfaces the last [`LiveSource::receive`] is about: below [`LiveSource::ends`].
    fn end(&self) -> usize {
        0
    }

    /// How many interfaces it has.
    fn ends(&self) -> usize {
        1
    }

    /// The packets of the batch are done with, and this becomes of them, in their order; those without a verdict are
    /// accepted.
    fn release(&mut self, decisions: &Decisions);

    /// Whether verdicts are carried out.
    fn is_inline(&self) -> bool {
        false
    }

    /// Whether its interfaces were up when they were last looked at.
    fn is_up(&self) -> bool {
        true
    }

    /// Checksums are not to be looked at from here on ([`Batch::trusted`] is true of all frames).
    fn trust(&mut self) {}

    /// Lets packets in. Before, there are none.
    ///
    /// # Errors
    /// The kernel does not want to.
    fn start(&mut self) -> Result<(), LiveError>;

    /// Lets no more packets in. Those that are there are still received; they are all there once [`LiveSource::settle`] is over.
    fn stop(&mut self);

    /// How long packets may be on their way from the kernel to [`LiveSource::receive`].
    fn settle(&self) -> Duration;

    /// Packets received and lost so far at one of its ends. Asks the kernel.
    fn counters(&mut self, end: usize) -> LiveCounters;
}

/// Packets received and lost by a live source.
///
/// `kernel_packets` = `frames` + `kernel_drops` + `unreadable` + packets that wait in the ring; at the end none waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveCounters {
    /// Packets that the kernel had for the source: those it delivered, and those it dropped.
    pub kernel_packets: u64,
    /// Those for which there was no room.
    pub kernel_drops: u64,
    /// How often the ring was full.
    pub freezes: u64,
    /// Frames handed out.
    pub frames: u64,
    /// Captured bytes of these.
    pub bytes: u64,
    /// Frames of which the ring has not all bytes.
    pub truncated: u64,
    /// Packets in the ring that could not be read; none, unless the kernel is broken.
    pub unreadable: u64,
    /// Errors of the socket: the interface was down, or gone.
    pub errors: u64,
    /// How often the source was opened again.
    pub reopened: u64,
    /// Inline: frames that were sent on. Those handed out are `sent` + `dropped` + `send_errors`.
    pub sent: u64,
    /// Inline: frames that were dropped by their verdict.
    pub dropped: u64,
    /// Inline: frames that were accepted, and could not be sent on: lost.
    pub send_errors: u64,
    /// Answers that were sent.
    pub answers: u64,
    /// Answers that could not be sent.
    pub answer_errors: u64,
    /// AF_XDP: the kernel's counters of its rings.
    pub rings: XdpRings,
    /// How often packets were waited for…
    pub polls: u64,
    /// …until a signal came…
    pub poll_signal: u64,
    /// …until time was up…
    pub poll_timeout: u64,
    /// …until there were some…
    pub poll_data: u64,
    /// …until there was an error.
    pub poll_errors: u64,
}

impl LiveCounters {
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
    /// Packets for which there was no chunk, or that are larger than one. Part of [`LiveCounters::kernel_drops`].
    pub dropped: u64,
    /// Packets for which there was no room in the receive ring. Part of [`LiveCounters::kernel_drops`].
    pub full: u64,
    /// How often no chunk was free; these are not packets. With zero-copy the card waits for chunks and counts its losses.
    pub fill_empty: u64,
    /// Entries of ours that the kernel could not read; none, unless this engine is broken.
    pub invalid: u64,
    /// Packets that came and were not wanted: `bpf-filter`, which is ours to run.
    pub filtered: u64,
    /// How often a wait ended, and there were no packets.
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
    /// There is no interface of that name.
    #[error("{0}: there is no such interface; `ip link` lists those that there are")]
    NoInterface(String),
    /// The name cannot be that of an interface.
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
    /// Another program is there.
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
    /// A setting that cannot be.
    #[error("{interface}: {setting}: {message}")]
    Setting {
        /// The interface.
        interface: String,
        /// Which.
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
    /// Someone else has it.
    #[error(
        "queue {queue}: another program has it (netlink port {port}, most often its process id): end it, or name another queue"
    )]
    QueueTaken {
        /// The queue.
        queue: u16,
        /// The number of its socket.
        port: u32,
    },
    /// The kernel refused something.
    #[error("{interface}: {what}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The operation.
        what: &'static str,
        /// Its error.
        source: std::io::Error,
    },
}
