//! Collects frames, to send several with one call.

use crate::af_packet::send::{Out, Sender, TOGETHER};

/// Frames to send.
pub(super) struct Post<'a> {
    sender: Option<&'a Sender>,
    out: [Out<'a>; TOGETHER],
    waiting: usize,
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// The interface disappeared or went down.
    pub(super) gone: bool,
}

impl<'a> Post<'a> {
    pub(super) fn new(sender: Option<&'a Sender>) -> Post<'a> {
        Post { sender, out: [Out::default(); TOGETHER], waiting: 0, sent: 0, lost: 0, gone: false }
    }

    #[inline]
    pub(super) fn add(&mut self, out: Out<'a>) {
        if let Some(place) = self.out.get_mut(self.waiting) {
            *place = out;
            self.waiting += 1;
        }
        if self.waiting == TOGETHER {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let Some(out) = self.out.get(..waiting).filter(|o| !o.is_empty()) else { return };
        let Some(sender) = self.sender else {
            self.lost += waiting as u64;
            return;
        };
        let done = sender.send(out);
        self.sent += done.sent;
        self.lost += done.lost;
        self.gone |= done.gone;
    }

    /// Sends one frame at once.
    pub(super) fn one(&mut self, out: Out<'_>) {
        match self.sender.map(|s| s.send(&[out])) {
            Some(done) => {
                self.sent += done.sent;
                self.lost += done.lost;
                self.gone |= done.gone;
            }
            None => self.lost += 1,
        }
    }
}
