//! Processes a segment's data: inserts it into the buffer, removes urgent bytes, and makes acknowledged data available.

use margay_flow::Direction;
use margay_packet::tcp::flag as tcp;

use super::doubt;
use super::established::is_keep_alive;
use super::{Exception, Outcome, Segment, StreamEngine, account};
use crate::buffer::StreamBuffer;
use crate::config::UrgentPolicy;
use crate::event::StreamEvent;
use crate::peer::{Assembly, FLOAT, Peer, peer_flag};
use crate::policy::OsPolicy;
use crate::seq;
use crate::session::{TcpSession, flag};

/// For a session that was picked up midstream and whose data is read at once: bytes that are kept, so that they can be
/// read again if data sent before them arrives.
pub(crate) const FLOAT_KEPT: u64 = 64 << 10;

impl StreamEngine {
    /// Processes a packet that passed the checks: inserts its data and handles its acknowledgment.
    pub(crate) fn after(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        // Data of a SYN counts if the SYN/ACK acknowledges it: a server may accept it without a cookie (RFC 7413 section
        // 4.2). Data of any SYN but the first is not kept.
        let other = s.flags & (tcp::SYN | tcp::ACK) == tcp::SYN && s.seq != session.peers[s.from].isn;
        let takes = !has_urgent(session, s, out) || self.urgent(session, s, out);
        if s.payload.is_empty() || s.has(tcp::RST) || other || !takes {
            // Nothing to insert.
        } else if is_keep_alive(session, s) {
            // A keep-alive byte is not part of the stream (RFC 9293 section 3.8.4): hosts send arbitrary data there. In
            // passive mode rules inspect it as packet payload, as in Suricata.
            out.in_stream = self.config.inline;
            out.rewrite |= self.config.inline && says_something_else(&session.peers[s.from], s);
        } else {
            if s.from == 0 && session.flags & flag::UNTAKEN != 0 {
                session.flags &= !flag::UNTAKEN;
                out.untaken = true;
            }
            self.insert(session, s, out);
            // An acknowledgment seen earlier may cover this data, or a hole before it.
            self.acknowledged(session, s.from, out);
            if self.config.inline {
                // Inline data is inspected now, including a gap in front of it.
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

    /// Handles a retransmission: its urgent pointer counts if the receiver has not read beyond it. Passive, rules inspect the
    /// payload as a packet's, as in Suricata, unless it is the last that was acknowledged.
    pub(crate) fn repeated(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        let own = &session.peers[s.from];
        out.in_stream |=
            !self.config.inline && s.end() == own.last_ack && own.data.is_some() && !own.has(peer_flag::DEPTH);
        if !self.config.inline && seq::geq(s.end(), session.peers[s.from].last_ack) {
            self.pointer_alone(session, s, out);
        }
    }

    /// Handles the urgent pointer of a segment from which nothing else is taken.
    pub(crate) fn pointer_alone(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) {
        if has_urgent(session, s, out) {
            self.urgent(session, s, out);
        }
    }

    /// Handles an acknowledgment of data of `side` up to its `last_ack`.
    fn acknowledged(&mut self, session: &mut TcpSession, side: usize, out: &mut Outcome) {
        if session.peers[side].take_acknowledged() {
            out.new_data[side] = true;
            self.look_for_gap(session, side, out);
            if session.inline() {
                // Data that was read when it came is free now.
                session.release(if side == 0 { Direction::ToServer } else { Direction::ToClient });
                if self.config.reassembly_memcap != 0
                    && self.counters.reassembly_memuse > self.config.reassembly_memcap / 2
                    && let Some(d) = &mut session.peers[side].data
                {
                    // Memory becomes scarce: other connections need what a burst left over.
                    session.freed |= d.buffer.shrink_mostly_unused();
                }
                self.account(session);
            }
        }
    }

    /// Looks for a gap in data of `side`: the receiver acknowledged data after a hole that the engine never saw filled.
    fn look_for_gap(&mut self, session: &mut TcpSession, side: usize, out: &mut Outcome) {
        let (app_off, raw_off) = (session.flags & flag::APP_OFF != 0, session.flags & flag::RAW_OFF != 0);
        let peer = &mut session.peers[side];
        let Some(d) = &mut peer.data else { return };
        // A reader that is off stands still while data that the other one read is freed. That is no gap.
        let app = if app_off { u64::MAX } else { d.app };
        let raw = if raw_off { u64::MAX } else { d.raw };
        let at = app.min(raw).min(d.buffer.end()).max(d.gap_seen);
        let at = at + d.buffer.contiguous(at, u64::MAX).len() as u64;
        // The parser that ended at this gap may have been the last reader: its data is free by now.
        let noticed = d.skipped > d.gap_seen;
        let next = match d.buffer.next_at(at).filter(|next| *next > at && *next <= d.acked) {
            Some(next) => {
                d.first_gap.get_or_insert(at);
                next
            }
            None if app_off && noticed => d.skipped,
            None => return,
        };
        d.gap_seen = next;
        // A gap that no parser could notice is not reported.
        if !app_off || noticed {
            peer.flags |= peer_flag::GAP;
            self.counters.reassembly_gap += 1;
            self.event(out, StreamEvent::ReassemblySeqGap);
        }
    }

    /// The direction's data, which the first segment creates.
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

    /// Whether new data of a direction is kept: the direction has not reached its depth, and the session has a reader.
    /// Flows with bypass are tracked up to their depth in any case.
    pub(crate) fn is_followed(&self, session: &TcpSession, from: usize) -> bool {
        !session.peers[from].has(peer_flag::DEPTH) && (self.config.bypass || !session.is_unread())
    }

    /// Inserts a segment's data.
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
        let opens = session.peers.iter().all(|p| p.data.is_none());
        let peer = &mut session.peers[s.from];
        // Fast open: the data starts after the SYN's sequence number.
        let seq = if s.has(tcp::SYN) { s.seq.wrapping_add(1) } else { s.seq };
        let mut offset = peer.offset(seq);
        if offset < 0 && at_once && peer.has(peer_flag::FLOATING) {
            // The data was sent before the first data seen, and was not acknowledged yet: reading restarts with this
            // data.
            let read = peer.data.is_some();
            if peer.begin_before(offset.unsigned_abs(), inline) {
                out.restart |= read;
                offset = 0;
            } else if inline {
                // This data was never inspected and no longer can be.
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
        // Data that is read at once can no longer be replaced.
        let doubt = if at_once { 0 } else { doubt::rank(out.doubt) };
        let d = self.assembly(peer, s.from, seed, floats);
        d.opens |= opens;
        let room = depth.saturating_sub(d.place(offset).saturating_sub(base)).min(payload.len() as u64) as usize;
        let kept = payload.get(..room).unwrap_or(payload);
        if self.config.reassembly_memcap != 0
            && self.counters.reassembly_memuse + kept.len() as u64 > self.config.reassembly_memcap
            // Data that is there already needs no memory.
            && d.buffer.compare(offset, kept) != (kept.len(), true)
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
            // Without the urgent byte, the data after it reads differently.
            d.packet.1 = d.buffer.in_order_end();
        }
        self.counters.urgent_oob_data += u64::from(done.urgent.is_some());
        self.counters.segments += 1;
        self.counters.overlap += u64::from(done.overlap);
        // Inline, the packet must agree with the stream, even with inspected data, and must not have bytes that were
        // freed.
        let full = d.place(d.buffer.next()).saturating_sub(base) >= depth;
        let different = done.different || (inline && !d.buffer.compare(offset, kept).1);
        out.rewrite |= inline && (cut > 0 || d.place(offset) < d.buffer.freed());
        account(&mut self.counters, d);
        if at_once && d.buffer.end() > FLOAT_KEPT {
            peer.flags &= !peer_flag::FLOATING;
        }
        // The receiver may have acknowledged this data earlier, or everything before it.
        if seq::geq(peer.last_ack, s.seq) {
            peer.take_acknowledged();
        }
        if different {
            self.counters.overlap_diff_data += 1;
            self.event(out, StreamEvent::ReassemblyOverlapDifferentData);
            out.rewrite |= inline;
        }
        // Passive, rules also inspect data of a SYN without the fast open option as packet payload: its server may ignore it.
        out.in_stream = inline || !(s.has(tcp::SYN) && s.from == 0 && session.flags & flag::FAST_OPEN == 0);
        out.new_data[s.from] |= inline;
        // Early data beyond the depth is not the end, since earlier data is still missing.
        if room < payload.len() && full {
            session.peers[s.from].flags |= peer_flag::DEPTH;
            self.counters.stream_depth_reached += 1;
            self.event(out, StreamEvent::ReassemblyDepthReached);
        }
        if self.config.bypass && session.peers.iter().any(|p| p.has(peer_flag::DEPTH)) {
            out.bypass = true;
        }
    }

    /// Handles a segment's urgent pointer. Returns whether to insert the segment's data.
    fn urgent(&mut self, session: &mut TcpSession, s: &Segment<'_>, out: &mut Outcome) -> bool {
        let seed = session.peers[0].isn;
        let (drops, gap) = (self.config.inline, s.payload.is_empty());
        let unread = session.is_unread();
        // The receiver discards a keep-alive. With one byte of data, Linux does take its urgent pointer.
        if unread || s.payload.is_empty() && is_keep_alive(session, s) {
            return true;
        }
        match self.config.urgent {
            UrgentPolicy::Inline => return true,
            UrgentPolicy::Gap => return gap,
            // Passive: the segment reaches the host, which takes the urgent byte out.
            UrgentPolicy::Drop | UrgentPolicy::Oob | UrgentPolicy::Clear => {}
        }
        let at_once = session.at_once();
        let resumed = session.flags & flag::RESUMED != 0;
        let peer = &mut session.peers[s.from];
        // Hosts take the pointer to name the byte after the urgent one (RFC 6093 section 2.1); no byte precedes the
        // first.
        let byte = s.seq.wrapping_add(u32::from(s.urgent.saturating_sub(1)));
        if resumed && seq::lt(byte, peer.last_ack) {
            // The receiver had this byte before the connection was resumed here, so the pointer has no effect.
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
            // Unacknowledged data may not have arrived, and then a pointer to it counts.
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
            // Passive: nothing is dropped, and the host takes the byte out anyway.
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

    /// Reports an urgent pointer that has, or may have, an effect. No packet shows whether the application reads the
    /// urgent byte in the stream. That depends on whether the pointer arrives and on `SO_OOBINLINE`. After an earlier
    /// pointer (`again`), it also depends on whether the application had read up to that one.
    #[cold]
    fn urgent_event(&mut self, again: bool, out: &mut Outcome) {
        self.event(out, StreamEvent::ReassemblyUrgentData);
        if again {
            self.event(out, StreamEvent::ReassemblyUrgentPassedOver);
        }
    }
}

impl Peer {
    /// Makes data before `last_ack` readable and final. Returns whether there is more than before.
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
            // Packets with this low TTL do arrive.
            self.ttl = self.low_ttl;
            self.low_ttl = 0;
        }
        // An urgent byte may have been removed from data that is in order now.
        let acked = d.place(acked);
        let more = acked > d.acked;
        d.acked = d.acked.max(acked);
        more
    }
}

/// Whether a segment has an urgent pointer that its receiver evaluates.
fn has_urgent(session: &TcpSession, s: &Segment<'_>, out: &Outcome) -> bool {
    let discarded = doubt::ACK | doubt::SIGNED | doubt::BROKEN;
    s.has(tcp::URG)
        && s.flags & (tcp::SYN | tcp::RST) == 0
        && out.doubt & discarded == 0
        && (out.doubt & doubt::BEYOND == 0 || seq::lt(s.seq, session.peers[s.from].edge))
}

/// Whether a segment differs from stored bytes in the same place.
fn says_something_else(sender: &Peer, s: &Segment<'_>) -> bool {
    match (sender.data.as_deref(), u64::try_from(sender.offset(s.seq))) {
        (Some(d), Ok(at)) => !d.buffer.compare(at, s.payload).1,
        _ => false,
    }
}
