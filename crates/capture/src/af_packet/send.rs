//! Sends many frames with one call, without a copy, with checksum and segment information for the kernel.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::ring::Socket;
use crate::interface::Interface;
use crate::live::LiveError;
use crate::sys::{self, check};

/// Most frames of one call.
pub(crate) const TOGETHER: usize = 64;
/// Most retries for the frames of one call if there is no room, and the pause before each.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_micros(500);
/// Bytes that may wait in the socket for transmission.
const QUEUE: libc::c_int = 8 << 20;

/// Offload information of a frame (`struct virtio_net_hdr`, linux/virtio_net.h): the checksum to fill in, and the segments
/// to cut it into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Offload(pub(crate) [u8; Offload::LEN]);

impl Offload {
    pub(crate) const LEN: usize = 10;
    const NEEDS_CHECKSUM: u8 = 1;
    /// Upper limit of the headers' length in a packet that is segmented.
    const HEADERS: u16 = 256;

    fn half(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.0[at], self.0[at + 1]])
    }

    fn set(&mut self, at: usize, value: u16) {
        let [a, b] = value.to_ne_bytes();
        (self.0[at], self.0[at + 1]) = (a, b);
    }

    /// Whether the frame is a merged packet, to be segmented.
    pub(crate) fn is_segments(&self) -> bool {
        self.0[1] != 0
    }

    /// Offset of the checksum that has yet to be filled in, if there is one.
    pub(crate) fn checksum(&self) -> Option<usize> {
        (self.0[0] & Offload::NEEDS_CHECKSUM != 0).then(|| usize::from(self.half(6)) + usize::from(self.half(8)))
    }

    /// Converts received information for sending. `frame` is the frame's length, including `inserted` bytes that were added before
    /// the network header.
    pub(crate) fn for_sending(mut self, frame: usize, inserted: u16) -> Offload {
        // Clear the result of the checksum check, which is not part of the information for sending.
        self.0[0] &= Offload::NEEDS_CHECKSUM;
        if self.0[0] == 0 {
            self.set(6, 0);
            self.set(8, 0);
        } else {
            self.set(6, self.half(6).saturating_add(inserted));
        }
        if self.is_segments() {
            self.set(2, Offload::HEADERS.min(u16::try_from(frame).unwrap_or(u16::MAX)));
        } else {
            self.set(2, 0);
        }
        self
    }
}

/// A frame to send.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Out<'a> {
    pub(crate) offload: Offload,
    pub(crate) frame: &'a [u8],
}

/// The result of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sent {
    pub(crate) sent: u64,
    /// Frames that were not sent.
    pub(crate) lost: u64,
    /// The interface is down or gone.
    pub(crate) gone: bool,
}

/// A socket that sends out of one interface.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: Socket,
}

impl Sender {
    /// A sender for the interface with this index.
    pub(crate) fn new(index: libc::c_int) -> io::Result<Sender> {
        let socket = Socket::new()?;
        socket.set_int(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        if socket.set_int(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, QUEUE).is_err() {
            socket.set_int(libc::SOL_SOCKET, libc::SO_SNDBUF, QUEUE)?;
        }
        // With protocol 0, the socket receives nothing.
        socket.bind_for(index, 0)?;
        Ok(Sender { socket })
    }

    /// Sends at most [`TOGETHER`] frames, in order. If there is no room, it retries for a short time.
    pub(crate) fn send(&self, out: &[Out<'_>]) -> Sent {
        let count = out.len().min(TOGETHER);
        let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // The arrays have six kilobytes, but a single packet touches only one or two cache lines.
        let mut parts = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; TOGETHER];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; TOGETHER];
        for ((o, parts), m) in out.iter().zip(&mut parts).zip(&mut messages) {
            let parts = parts.write([part(&o.offload.0), part(o.frame)]);
            // SAFETY: all of it may be zero: no name, no data, no control data.
            let m = m.write(unsafe { std::mem::zeroed() });
            m.msg_hdr.msg_iov = parts.as_mut_ptr();
            m.msg_hdr.msg_iovlen = parts.len() as _;
        }
        let mut done = Sent::default();
        let (mut at, mut tries) = (0, 0);
        while at < count {
            let left = libc::c_uint::try_from(count - at).unwrap_or(0);
            let Some(first) = messages.get_mut(at) else { break };
            // SAFETY: there are `left` messages from `first` on, the last of the first `count`, which were written above;
            // their parts lie in `out` and `parts`; both are borrowed until this function ends, and the kernel only reads
            // what they point to.
            let result =
                unsafe { libc::sendmmsg(self.socket.raw(), first.as_mut_ptr(), left, libc::MSG_DONTWAIT as _) };
            let error = match check(result) {
                Ok(n) if n > 0 => {
                    let n = usize::try_from(n).unwrap_or(0);
                    at += n;
                    done.sent += n as u64;
                    continue;
                }
                Ok(_) => break,
                Err(e) => e.raw_os_error().unwrap_or(0),
            };
            match error {
                libc::EINTR => continue,
                libc::EAGAIN | libc::ENOBUFS if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                libc::ENETDOWN | libc::ENXIO | libc::ENODEV => {
                    // The remaining frames would fail, too.
                    done.gone = true;
                    break;
                }
                _ => {}
            }
            // The first of the remaining frames cannot be sent; skip it.
            at += 1;
            done.lost += 1;
        }
        done.lost += (count - at) as u64;
        done
    }
}

/// Sends packets independently of a source: out of a named interface, or along the host's routes.
#[derive(Debug)]
pub struct Injector(Way);

#[derive(Debug)]
enum Way {
    Device(Sender),
    Routed([OwnedFd; 2]),
}

impl Injector {
    /// Sends frames, including their link layer, out of the interface `name`.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn device(name: &str) -> Result<Injector, LiveError> {
        let interface = Interface::find(name)?;
        let sender = Sender::new(interface.index).map_err(|e| refused(name, "cannot be sent to", e))?;
        Ok(Injector(Way::Device(sender)))
    }

    /// Sends IP packets along the host's routes.
    ///
    /// # Errors
    /// [`LiveError`].
    pub fn routed() -> Result<Injector, LiveError> {
        let both = sys::raw_ip(libc::AF_INET, None).and_then(|a| Ok([a, sys::raw_ip(libc::AF_INET6, None)?]));
        both.map(|b| Injector(Way::Routed(b))).map_err(|e| refused("raw sockets", "cannot be opened", e))
    }

    /// Sends one packet, given as link-layer header and IP packet. Returns whether it was sent.
    pub fn send(&self, link: &[u8], packet: &[u8]) -> bool {
        match &self.0 {
            Way::Device(sender) => {
                let frame = [link, packet].concat();
                sender.send(&[Out { frame: &frame, ..Out::default() }]).sent == 1
            }
            Way::Routed([v4, v6]) => match sys::family(packet) {
                Some(libc::AF_INET) => sys::send_ip(v4, packet).is_ok(),
                Some(_) => sys::send_ip(v6, packet).is_ok(),
                None => false,
            },
        }
    }
}

fn refused(interface: &str, what: &'static str, source: io::Error) -> LiveError {
    match source.raw_os_error() {
        Some(libc::EPERM) => LiveError::NotAllowed { interface: interface.to_owned() },
        _ => LiveError::System { interface: interface.to_owned(), what, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_made_fit() {
        let header = |flags: u8, kind: u8, words: [u16; 4]| {
            let mut o = Offload([flags, kind, 0, 0, 0, 0, 0, 0, 0, 0]);
            words.iter().zip([2, 4, 6, 8]).for_each(|(w, at)| o.set(at, *w));
            o
        };
        let whole = header(2, 0, [60, 0, 34, 16]);
        assert_eq!(whole.checksum(), None);
        assert_eq!(whole.for_sending(60, 0), Offload::default());
        let partial = header(1, 0, [60, 0, 34, 16]);
        assert_eq!(partial.checksum(), Some(50));
        assert_eq!(partial.for_sending(64, 4), header(1, 0, [0, 0, 38, 16]));
        let cut = header(1, 1, [65000, 1448, 34, 16]);
        assert!(cut.is_segments());
        assert_eq!(cut.for_sending(64000, 0), header(1, 1, [256, 1448, 34, 16]));
        assert_eq!(cut.for_sending(100, 0), header(1, 1, [100, 1448, 34, 16]));
    }
}
