//! Live capture with libpcap, for interfaces and systems that the other methods do not support (`any`, USB, cards with their
//! own libpcap).
//!
//! libpcap's buffer may change with its next call, so each packet is copied once, into the batch. One handle serves one worker,
//! because libpcap does not divide flows among several. Packets are accepted between [`LiveSource::start`] and
//! [`LiveSource::stop`]; before that, a filter that matches nothing is installed. The stop asks the kernel for the number of
//! packets that it has for the handle. These are still received, later ones are not.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use margay_packet::{LinkType, Time};
use pcap::{Active, Capture};

use crate::af_packet::{Sender, Trust, send_answers};
use crate::batch::{Batch, Meta};
use crate::error::FilterError;
use crate::interface::Interface;
use crate::link::{LOOK, State, received};
use crate::live::{Decisions, LiveCounters, LiveError, LiveSource, Received};
use crate::sys::{self, Polled};

/// The device of all interfaces.
pub const ANY: &str = "any";
/// How long libpcap waits for a block of its ring to become full, in milliseconds.
const BLOCK_TIMEOUT: i32 = 10;
/// Default bytes to capture of a packet, as in tcpdump.
pub const SNAPLEN: u32 = 262_144;
/// A batch ends with the packet that makes it larger than this, in bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Packets that libpcap is asked for at a time.
const STEP: usize = 64;
/// A filter that matches nothing.
const NOTHING: &str = "less 0";

/// The settings below `pcap:` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `buffer-size` in bytes; 0 leaves it to libpcap.
    pub buffer_size: u32,
    /// `snaplen`: bytes of a packet that are captured, 1 to [`SNAPLEN`].
    pub snaplen: u32,
    /// `promisc`
    pub promiscuous: bool,
    /// `bpf-filter`
    pub filter: Option<String>,
    /// `checksum-checks`: which checksums are trusted.
    pub trust: Trust,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { buffer_size: 0, snaplen: SNAPLEN, promiscuous: true, filter: None, trust: Trust::Nobody }
    }
}

/// A source of packets that libpcap captures.
pub struct Libpcap {
    name: String,
    settings: Settings,
    /// `None` while the interface is gone.
    handle: Option<Capture<Active>>,
    link: LinkType,
    state: State,
    looked: Option<Instant>,
    started: bool,
    /// After [`LiveSource::stop`]: the total number of frames, over all handles, at which everything is received.
    last: Option<u64>,
    data: Vec<u8>,
    metas: Vec<Meta>,
    /// The next call returns the batch, because this one reported that the interface is up.
    held: bool,
    counters: LiveCounters,
    /// libpcap's latest counts, which have 32 bits and wrap around.
    asked: (u32, u32),
    sender: Option<Sender>,
}

impl Libpcap {
    /// Opens the interface `name`, or [`ANY`]. It accepts no packets before [`LiveSource::start`].
    ///
    /// # Errors
    /// libpcap's error; a link layer that the decoder does not know; a filter that does not compile.
    pub fn open(name: &str, settings: Settings) -> Result<Libpcap, LiveError> {
        let up = if name == ANY { true } else { Interface::find(name)?.up };
        let (handle, link) = open(name, &settings)?;
        Ok(Libpcap {
            name: name.to_owned(),
            settings,
            handle: Some(handle),
            link,
            state: State::of(up),
            looked: None,
            started: false,
            last: None,
            data: Vec::new(),
            metas: Vec::new(),
            held: false,
            counters: LiveCounters::default(),
            asked: (0, 0),
            sender: None,
        })
    }

    /// The link type of its packets.
    pub const fn link(&self) -> LinkType {
        self.link
    }

    /// Copies libpcap's packets into the batch.
    ///
    /// # Errors
    /// The interface disappeared.
    fn fill(&mut self, max: usize) -> Result<(), pcap::Error> {
        let Some(handle) = &mut self.handle else { return Ok(()) };
        let (data, metas) = (&mut self.data, &mut self.metas);
        let (link, trusted) = (self.link, self.settings.trust == Trust::Everybody);
        // After the stop, take only the packets that the kernel had then.
        let left = self
            .last
            .map_or(usize::MAX, |n| usize::try_from(n.saturating_sub(self.counters.frames)).unwrap_or(usize::MAX));
        let max = max.min(left);
        while metas.len() < max && data.len() < BATCH_BYTES {
            let taken = handle.dispatch(Some((max - metas.len()).min(STEP)), |packet| {
                let header = packet.header;
                let start = u32::try_from(data.len()).unwrap_or(u32::MAX);
                data.extend_from_slice(packet.data);
                metas.push(Meta {
                    start,
                    len: u32::try_from(packet.data.len()).unwrap_or(u32::MAX),
                    wire_len: header.len,
                    link,
                    time: Time::new(header.ts.tv_sec, header.ts.tv_usec),
                    trusted,
                });
            })?;
            if taken == 0 {
                break;
            }
        }
        self.counters.frames += metas.len() as u64;
        self.counters.bytes += data.len() as u64;
        self.counters.truncated += metas.iter().filter(|m| m.len < m.wire_len).count() as u64;
        Ok(())
    }

    /// Waits until libpcap has packets; otherwise returns the change or error.
    fn wait(&mut self, wait: Duration) -> Option<Received> {
        let Some(handle) = &self.handle else {
            std::thread::sleep(wait);
            return Some(self.look());
        };
        let polled = sys::poll(&mut [sys::polled(handle.as_raw_fd())], wait);
        self.counters.count_poll(polled);
        match polled {
            Polled::Data | Polled::Signal | Polled::Error => None,
            Polled::Timeout if self.looked.is_none_or(|l| l.elapsed() >= LOOK) => Some(self.look()),
            Polled::Timeout => None,
        }
    }

    /// Checks whether the interface still exists, has reappeared, or is up.
    fn look(&mut self) -> Received {
        let now = Instant::now();
        self.looked = Some(now);
        if self.name == ANY || self.state.rests(now) {
            return Received::Idle;
        }
        let found = Interface::find(&self.name).ok();
        if self.handle.is_some() {
            return match found {
                Some(i) => received(self.state.is_there(i.up)),
                None => self.gone(now),
            };
        }
        match found.filter(|i| i.up).and_then(|_| open(&self.name, &self.settings).ok()) {
            Some((handle, link)) => {
                (self.handle, self.link, self.asked) = (Some(handle), link, (0, 0));
                self.counters.reopened += 1;
                if self.started && self.let_in().is_err() {
                    return self.gone(now);
                }
                self.state = State::Down;
                received(self.state.is_there(true))
            }
            None => received(self.state.is_gone(now)),
        }
    }

    /// Closes the handle, because the interface disappeared.
    fn gone(&mut self, now: Instant) -> Received {
        self.count();
        self.handle = None;
        received(self.state.is_gone(now))
    }

    fn let_in(&mut self) -> Result<(), LiveError> {
        let expression = self.settings.filter.clone().unwrap_or_default();
        let Some(handle) = &mut self.handle else { return Ok(()) };
        handle.filter(&expression, true).map_err(|e| wrong_filter(&self.name, &expression, self.link, &e))
    }

    /// Adds libpcap's counts since the previous call.
    fn count(&mut self) {
        if self.last.is_some() {
            return;
        }
        let Some(stat) = self.handle.as_mut().and_then(|h| h.stats().ok()) else { return };
        let (received, dropped) = self.asked;
        self.counters.kernel_packets += u64::from(stat.received.wrapping_sub(received));
        self.counters.kernel_drops += u64::from(stat.dropped.wrapping_sub(dropped));
        self.asked = (stat.received, stat.dropped);
    }
}

/// Opens a handle that rejects everything. Returns its link type, too.
fn open(name: &str, s: &Settings) -> Result<(Capture<Active>, LinkType), LiveError> {
    let failed = |what: &'static str, e: pcap::Error| match &e {
        pcap::Error::PcapError(text) if text.contains("permission") || text.contains("Operation not permitted") => {
            LiveError::NotAllowed { interface: name.to_owned() }
        }
        _ => LiveError::System { interface: name.to_owned(), what, source: std::io::Error::other(e.to_string()) },
    };
    let signed = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let mut handle = Capture::from_device(name)
        .map_err(|e| failed("libpcap cannot open it", e))?
        .promisc(s.promiscuous && name != ANY)
        .snaplen(signed(s.snaplen))
        .timeout(BLOCK_TIMEOUT);
    if s.buffer_size > 0 {
        handle = handle.buffer_size(signed(s.buffer_size));
    }
    let handle = handle.open().map_err(|e| failed("libpcap cannot open it", e))?;
    let mut handle = handle.setnonblock().map_err(|e| failed("libpcap cannot read it without waiting", e))?;
    let link = link(handle.get_datalink());
    if !link.is_supported() {
        let hardware = u16::try_from(link.0).unwrap_or(u16::MAX);
        return Err(LiveError::LinkLayer { interface: name.to_owned(), hardware });
    }
    // Report an error in the filter now, not when packets arrive.
    if let Some(expression) = &s.filter {
        handle.compile(expression, true).map_err(|e| wrong_filter(name, expression, link, &e))?;
    }
    handle.filter(NOTHING, true).map_err(|e| failed("libpcap cannot attach a filter", e))?;
    Ok((handle, link))
}

fn wrong_filter(name: &str, expression: &str, link: LinkType, e: &pcap::Error) -> LiveError {
    let message = match e {
        pcap::Error::PcapError(text) => text.clone(),
        other => other.to_string(),
    };
    let source = FilterError::Compile { expression: expression.to_owned(), link, message };
    LiveError::Filter { interface: name.to_owned(), source }
}

/// The link type in files for libpcap's data link type. The numbers differ for raw IP.
fn link(datalink: pcap::Linktype) -> LinkType {
    match u32::try_from(datalink.0).unwrap_or(u32::MAX) {
        12 | 14 => LinkType::RAW,
        other => LinkType(other),
    }
}

impl LiveSource for Libpcap {
    fn receive(&mut self, max: usize, wait: Duration) -> Received {
        if std::mem::take(&mut self.held) {
            return Received::Frames;
        }
        self.data.clear();
        self.metas.clear();
        if !self.started && self.last.is_none() {
            std::thread::sleep(wait);
            return Received::Idle;
        }
        if self.last.is_some_and(|n| self.counters.frames >= n) {
            return Received::Idle;
        }
        for attempt in 0..2 {
            if self.fill(max.max(1)).is_err() {
                self.counters.errors += 1;
                // Return the packets copied earlier first.
                if self.metas.is_empty() {
                    return self.gone(Instant::now());
                }
            }
            if !self.metas.is_empty() {
                let change = self.state.has_packets();
                self.held = change.is_some();
                return change.map_or(Received::Frames, Received::Link);
            }
            if attempt == 0
                && let Some(found) = self.wait(wait)
            {
                return found;
            }
        }
        Received::Idle
    }

    fn batch(&self) -> Batch<'_> {
        Batch::live(&self.data, &self.metas)
    }

    fn release(&mut self, decisions: &Decisions) {
        if !decisions.is_plain()
            && let Ok(interface) = Interface::find(&self.name)
        {
            send_answers(decisions, &interface, &mut self.sender, &mut self.counters);
        }
    }

    fn is_up(&self) -> bool {
        self.state == State::Up
    }

    fn trust(&mut self) {
        self.settings.trust = Trust::Everybody;
    }

    fn start(&mut self) -> Result<(), LiveError> {
        self.started = true;
        self.let_in()
    }

    fn stop(&mut self) {
        self.started = false;
        self.count();
        self.last = Some(self.counters.kernel_packets.saturating_sub(self.counters.kernel_drops));
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(BLOCK_TIMEOUT.unsigned_abs().into()) * 2 + Duration::from_millis(20)
    }

    fn counters(&mut self, _: usize) -> LiveCounters {
        self.count();
        self.counters
    }
}

impl std::fmt::Debug for Libpcap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Libpcap").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}
