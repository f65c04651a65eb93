//! What becomes of a segment's data: into the buffer, urgent bytes out of it, and what the acknowledgment makes available.

use margay_packet::tcp::flag as tcp;

use crate::buffer::StreamBuffer;
use crate::config::UrgentPolicy;
use crate::doubt;
use crate::engine::{Exception, Outcome, Segment, StreamEngine, account};
use crate::established::is_keep_alive;
use crate::event::StreamEvent;
use crate::peer::{Assembly, FLOAT, Peer, peer_flag};
use crate::policy::OsPolicy;
use crate::seq;
use crate::session::{TcpSession, flag};

/// So much of what was read at once of a session that was picked up in its middle is kept, to be read again where data comes that was
/// sent before it.
pub(crate) const FLOAT_KEPT: u64 = 64 << 10;

impl StreamEngine {
    /// A packet that passed the checks: takes its data, and looks what its acknowledgment makes available.
    pub(crate) fn after(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        // Data of a SYN counts where the SYN/ACK acknowledges it: a server may take it without a cookie (RFC 7413 section 4.2). That of
        // another SYN than the first is not kept.
        let other = s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN && s.seq != session.peers[s.from].isn;
        let takes = !has_urgent(session, s, out) || self.urgent(session, s, out);
        if s.payload.is_empty() || s.has(tcp::RST) || other || !takes {
            // Nothing to take.
        } else if is_keep_alive(session, s) {
            // Its byte is none of the stream (RFC 9293 section 3.8.4): hosts send what they like there. Passive, rules look at it by
            // itself, as in Suricata.
            out.in_stream = self.config.inline;
            out.rewrite |= self.config.inline && says_something_else(&session.peers[s.from], s);
        } else {
            if s.from == 0 && session.flags & flag::UNTAKEN != 0 {
                session.flags &= !flag::UNTAKEN;
                out.untaken = true;
            }
            self.insert(session, s, out);
            // Some of it, or of a hole before it, may have been acknowledged before it was seen.
            self.acknowledged(session, s.from, out);
            if self.config.inline {
                // Its data is looked at now, also what the hole before it makes of it.
                self.look_for_gap(session, s.from, out);
            }
        }
        if s.has(tcp::ACK) {
            self.acknowledged(session, s.to(), out);
        }
        if session.flags & flag::ASYNC != 0 {
            let off = session.peers[s.from].next_off;
            if let Some(d) = &mut session.peers[s.from].data {
                d.acked = d.acked.max(d.place(off));
                out.new_data[s.from] = true;
            }
        }
    }

    /// A segment that repeats what its receiver has: its urgent pointer counts where that has not read behind it.
    pub(crate) fn repeated(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        if has_urgent(session, s, out) && !self.config.inline && seq::geq(s.end(), session.peers[s.from].last_ack) {
            self.urgent(session, s, out);
        }
    }

    /// Data of `side` was acknowledged up to its `last_ack`.
    fn acknowledged(&mut self, session: &mut TcpSession, side: usize, out: &mut Outcome) {
        if session.peers[side].take_acknowledged() {
            out.new_data[side] = true;
            self.look_for_gap(session, side, out);
        }
    }

    /// Data of `side` behind a hole that the receiver has: we never saw what was there.
    fn look_for_gap(&mut self, session: &mut TcpSession, side: usize, out: &mut Outcome) {
        let (app_off, raw_off) = (session.flags & flag::APP_OFF != 0, session.flags & flag::RAW_OFF != 0);
        let peer = &mut session.peers[side];
        let Some(d) = &mut peer.data else { return };
        // Who does not read stands still, while what the other has read is freed: that is no hole.
        let app = if app_off { u64::MAX } else { d.app };
        let raw = if raw_off { u64::MAX } else { d.raw };
        let at = app.min(raw).min(d.buffer.end()).max(d.gap_seen);
        let at = at + d.buffer.contiguous(at, u64::MAX).len() as u64;
        if let Some(next) = d.buffer.next_at(at)
            && next > at
            && next <= d.acked
        {
            d.gap_seen = next;
            d.first_gap.get_or_insert(at);
            // A hole that no parser could miss anything in is not reported.
            if !app_off {
                peer.flags |= peer_flag::GAP;
                self.counters.reassembly_gap += 1;
                self.event(out, StreamEvent::ReassemblySeqGap);
            }
        }
    }

    /// The direction's data, which the first segment makes.
    pub(crate) fn assembly<'a>(&self, peer: &'a mut Peer, from: usize, seed: u32, floats: bool) -> &'a mut Assembly {
        let chunk_size = if from == 0 { self.config.toserver_chunk_size } else { self.config.toclient_chunk_size };
        peer.data.get_or_insert_with(|| {
            let percent = u64::from(self.config.randomize_chunk_percent.min(100));
            let span = u64::from(chunk_size) * percent / 100;
            let spread = u64::from(seed.wrapping_mul(0x9e37_79b1)) % (2 * span + 1);
            let mut buffer = if floats { StreamBuffer::floating() } else { StreamBuffer::default() };
            if self.config.inline {
                buffer.read_at_once();
            }
            Box::new(Assembly {
                buffer,
                chunk_size: (u64::from(chunk_size) + spread - span) as u32,
                context: self.config.raw_context,
                ..Assembly::default()
            })
        })
    }

    /// Whether new data of a direction is taken: it has not reached its depth, and somebody reads it. Flows that are to be bypassed at
    /// their depth are followed up to it.
    pub(crate) fn is_followed(&self, session: &TcpSession, from: usize) -> bool {
        !session.peers[from].has(peer_flag::DEPTH) && (self.config.bypass || !session.is_unread())
    }

    /// Takes a segment's data.
    fn insert(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        let inline = self.config.inline;
        let seed = session.peers[0].isn;
        let at_once = session.at_once();
        let depth = match session.depth.unwrap_or(self.config.depth) {
            0 => u64::MAX,
            n => n,
        };
        if !self.is_followed(session, s.from) {
            return;
        }
        let peer = &mut session.peers[s.from];
        // Fast open: data comes with the SYN, after it.
        let seq = if s.has(tcp::SYN) { s.seq.wrapping_add(1) } else { s.seq };
        let mut offset = peer.offset(seq);
        if offset < 0 && at_once && peer.has(peer_flag::FLOATING) {
            // Sent before what was seen first, and nobody has said that it arrived: reading begins anew, with this.
            let read = peer.data.is_some();
            if peer.begin_before(offset.unsigned_abs(), inline) {
                out.restart |= read;
                offset = 0;
            } else if inline {
                // It was never looked at, and cannot be any more.
                out.drop |= self.config.drop_invalid;
                return;
            }
        }
        let cut = usize::try_from(-offset).unwrap_or(0);
        let payload = s.payload.get(cut..).unwrap_or(&[]);
        let offset = u64::try_from(offset).unwrap_or(0);
        let policy = if inline { OsPolicy::First } else { peer.policy };
        let floats = peer.has(peer_flag::FLOATING) && !at_once;
        let base = if floats { FLOAT } else { 0 };
        // What is read at once cannot give way any more.
        let doubt = if at_once { 0 } else { doubt::rank(out.doubt) };
        let d = self.assembly(peer, s.from, seed, floats);
        let room = depth.saturating_sub(d.place(offset).saturating_sub(base)).min(payload.len() as u64) as usize;
        let kept = payload.get(..room).unwrap_or(payload);
        if self.config.reassembly_memcap != 0
            && self.counters.reassembly_memuse + kept.len() as u64 > self.config.reassembly_memcap
        {
            self.counters.segment_memcap_drop += 1;
            self.counters.insert_data_normal_fail += 1;
            self.event(out, StreamEvent::ReassemblyInsertMemcap);
            out.exception = Some(Exception::ReassemblyMemcap);
            if let Some(d) = &mut session.peers[s.from].data {
                account(&mut self.counters, d);
            }
            return;
        }
        let done = d.buffer.insert(offset, kept, policy, doubt);
        let end = offset + kept.len() as u64;
        d.pending = true;
        d.packet = (d.place(offset), d.place(end));
        d.around.clear();
        if inline && end > d.buffer.next() {
            let around = u64::from(d.chunk_size);
            d.around_at = d.buffer.early_around(offset.max(d.buffer.next()), end, around, &mut d.around);
        } else if done.urgent.is_some() {
            // What is behind it says something else without it.
            d.packet.1 = d.buffer.in_order_end();
        }
        self.counters.urgent_oob_data += u64::from(done.urgent.is_some());
        self.counters.segments += 1;
        self.counters.overlap += u64::from(done.overlap);
        // Inline the packet must say what the stream has, also where that was inspected already, and nothing of what was freed.
        let full = d.place(d.buffer.next()).saturating_sub(base) >= depth;
        let different = done.different || (inline && !d.buffer.compare(offset, kept).1);
        out.rewrite |= inline && (cut > 0 || d.place(offset) < d.buffer.freed());
        account(&mut self.counters, d);
        if at_once && d.buffer.end() > FLOAT_KEPT {
            peer.flags &= !peer_flag::FLOATING;
        }
        // Its receiver may have acknowledged some of it before, or all that is before it.
        if seq::geq(peer.last_ack, s.seq) {
            peer.take_acknowledged();
        }
        if different {
            self.counters.overlap_diff_data += 1;
            self.event(out, StreamEvent::ReassemblyOverlapDifferentData);
            out.rewrite |= inline;
        }
        out.in_stream = true;
        out.new_data[s.from] |= inline;
        // Early data beyond it ends nothing: what is before comes yet.
        if room < payload.len() && full {
            session.peers[s.from].flags |= peer_flag::DEPTH;
            self.counters.stream_depth_reached += 1;
            self.event(out, StreamEvent::ReassemblyDepthReached);
        }
        if self.config.bypass && session.peers.iter().any(|p| p.has(peer_flag::DEPTH)) {
            out.bypass = true;
        }
    }

    /// Takes the urgent pointer of a segment. Whether the segment's data is to be taken.
    fn urgent(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let seed = session.peers[0].isn;
        let (drops, gap) = (self.config.inline, s.payload.is_empty());
        let dead = session.is_unread();
        // One that asks whether the other side is there is discarded there, unless it has a byte: Linux takes its pointer.
        if dead || s.payload.is_empty() && is_keep_alive(session, s) {
            return true;
        }
        match self.config.urgent {
            UrgentPolicy::Inline => return true,
            UrgentPolicy::Gap => return gap,
            // Where nothing can be dropped it reaches the host, which takes the urgent byte out.
            UrgentPolicy::Drop | UrgentPolicy::Oob | UrgentPolicy::Clear => {}
        }
        let at_once = session.at_once();
        let resumed = session.flags & flag::RESUMED != 0;
        let peer = &mut session.peers[s.from];
        // The pointer names the byte behind the urgent one (RFC 6093 section 2.1, as hosts do it); none before the first.
        let byte = s.seq.wrapping_add(u32::from(s.urgent.saturating_sub(1)));
        if resumed && seq::lt(byte, peer.last_ack) {
            // Its receiver had this byte before the connection went on here: such a pointer says nothing.
            return true;
        }
        let Ok(at) = u64::try_from(peer.offset(byte)) else { return true };
        if peer.has(peer_flag::DEPTH) {
            return true;
        }
        let limit = u64::from(self.config.urgent_oob_limit);
        let floats = peer.has(peer_flag::FLOATING) && !at_once;
        let d = self.assembly(peer, s.from, seed, floats);
        if d.buffer.urgent_count() < limit || !d.buffer.would_point_urgent(at) {
            let again = d.buffer.had_urgent_before(at);
            let counts = d.buffer.point_urgent(at);
            // What is not acknowledged may not have arrived: then a pointer to it counts.
            if counts || !seq::lt(byte, session.peers[s.from].last_ack) {
                self.urgent_event(again, out);
            }
            return true;
        }
        if peer.flags & peer_flag::OOB_LIMIT == 0 {
            peer.flags |= peer_flag::OOB_LIMIT;
            self.event(out, StreamEvent::ReassemblyUrgentOobLimitReached);
        }
        match self.config.urgent_oob_limit_policy {
            UrgentPolicy::Inline => true,
            UrgentPolicy::Gap => gap,
            UrgentPolicy::Drop if drops => {
                (out.drop, out.drop_urgent) = (true, true);
                false
            }
            // Nothing is dropped here: the host takes it out all the same.
            UrgentPolicy::Drop | UrgentPolicy::Oob | UrgentPolicy::Clear => {
                if let Some(d) = &mut session.peers[s.from].data
                    && d.buffer.point_urgent(at)
                {
                    self.urgent_event(true, out);
                }
                true
            }
        }
    }

    /// Tells of an urgent pointer that counts, or may. No packet says whether the byte that it points at is in what the application reads: that
    /// depends on whether the pointer arrives, on `SO_OOBINLINE`, and where another pointer was before (`again`) on whether the application
    /// had read up to that one by then.
    #[cold]
    fn urgent_event(&mut self, again: bool, out: &mut Outcome) {
        self.event(out, StreamEvent::ReassemblyUrgentData);
        if again {
            self.event(out, StreamEvent::ReassemblyUrgentPassedOver);
        }
    }
}

impl Peer {
    /// What is before `last_ack` may be read, and stays as it is. Whether that is more than before.
    fn take_acknowledged(&mut self) -> bool {
        let Ok(acked) = u64::try_from(self.offset(self.last_ack)) else { return false };
        let Some(d) = &mut self.data else { return false };
        if self.flags & peer_flag::FLOATING != 0 {
            return false;
        }
        if d.place(acked) <= d.acked {
            return false;
        }
        if d.buffer.acknowledge(acked) && self.low_ttl != 0 {
            // Packets with as few hops left as that arrive.
            self.ttl = self.low_ttl;
            self.low_ttl = 0;
        }
        // An urgent byte may have been taken out of what is in order now.
        let acked = d.place(acked);
        let more = acked > d.acked;
        d.acked = d.acked.max(acked);
        more
    }
}

/// Whether a segment has an urgent pointer that its receiver looks at.
fn has_urgent(session: &TcpSession, s: &Segment<'_>, out: &Outcome) -> bool {
    let discarded = doubt::ACK | doubt::SIGNED | doubt::BROKEN;
    s.has(tcp::URG)
        && s.flags & (tcp::SYN | tcp::RST) == 0
        && out.doubt & discarded == 0
        && (out.doubt & doubt::BEYOND == 0 || seq::lt(s.seq, session.peers[s.from].edge))
}

/// Whether a segment differs from what is held of its bytes.
fn says_something_else(sender: &Peer, s: &Segment<'_>) -> bool {
    match (sender.data.as_deref(), u64::try_from(sender.offset(s.seq))) {
        (Some(d), Ok(at)) => !d.buffer.compare(at, s.payload).1,
        _ => false,
    }
}
