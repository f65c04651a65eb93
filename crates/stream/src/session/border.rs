//! Raw inspection at the place where a stream changes its protocol or becomes encrypted.

use margay_flow::Direction;

use super::{StreamChunk, TcpSession, flag};
use crate::peer::{Assembly, peer_flag};

impl TcpSession {
    /// Whether raw inspection does not read this session.
    pub const fn raw_is_off(&self) -> bool {
        self.flags & flag::RAW_OFF != 0
    }

    /// The last chunk of a direction, for a packet with which encryption begins: empty if the direction has data that is not
    /// acknowledged. As in Suricata, rules that need no search run once more then.
    pub fn raw_last(&self, direction: Direction) -> Option<StreamChunk<'_>> {
        if self.flags & flag::RAW_OFF != 0 || self.inline() {
            return None;
        }
        let d = self.data(direction)?;
        d.buffer.next_at(d.raw)?;
        Some(StreamChunk { data: &[], offset: d.raw, seen: 0 })
    }

    /// Ends raw inspection because the following data is encrypted. If a direction has uninspected data, the next
    /// [`TcpSession::raw_chunk`] returns that data. Otherwise it returns an empty chunk as soon as there is data: rules
    /// that need no search run once more, as in Suricata. In the direction `asked` they already ran with the current
    /// packet.
    pub fn raw_finish(&mut self, asked: Option<Direction>) {
        if self.flags & flag::RAW_OFF != 0 {
            return;
        }
        let inline = self.inline();
        for (i, peer) in self.peers.iter_mut().enumerate() {
            peer.flags |= peer_flag::RAW_ENDED;
            let asked = asked.is_some_and(|dir| dir.index() == i);
            let left = |d: &&mut Assembly| !asked || d.buffer.next_at(d.raw).is_some_and(|at| at < d.acked);
            if !inline && let Some(d) = peer.data.as_deref_mut().filter(left) {
                d.border = d.acked.max(d.raw);
                peer.flags |= peer_flag::RAW_LEFT;
            }
        }
        self.raw_disable();
    }

    /// Marks a border in both directions after the data that the application layer used. Raw inspection treats data
    /// before the border separately. It then continues, even if it was to end there ([`TcpSession::raw_finish`]).
    pub fn raw_border(&mut self) {
        if self.peers[0].has(peer_flag::RAW_ENDED) {
            self.flags &= !flag::RAW_OFF;
        }
        for peer in &mut self.peers {
            let ended = peer.has(peer_flag::RAW_ENDED);
            peer.flags &= !(peer_flag::RAW_ENDED | peer_flag::RAW_LEFT);
            if let Some(d) = &mut peer.data {
                d.border = d.app;
                if ended {
                    d.raw = d.app;
                }
            }
        }
    }
}
