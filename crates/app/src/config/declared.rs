//! Facts from the declarations of all protocols that parsers use.

use crate::proto::AppProto;
use crate::recognise::Probed;

/// How a conversation of another protocol becomes one of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// After a command that secures the connection, such as STARTTLS.
    Secured,
    /// By an HTTP/1 upgrade to this name (RFC 9110, section 7.8). Names ignore case.
    Upgrade(&'static str),
}

/// Facts from the declarations of all protocols. The registry collects them, so that a parser does not need the registry.
#[derive(Debug, Clone)]
pub struct Declared {
    /// By protocol: the progress of a complete transaction, by direction.
    complete: [[u8; 2]; 64],
    /// The protocols that may go on in cleartext after TLS.
    outlive_tls: Vec<AppProto>,
    /// The protocols that follow another one.
    followers: Vec<Follower>,
}

/// A protocol that follows another one, and whether a client's first data is this protocol's.
type Follower = (Handover, AppProto, fn(&[u8]) -> Probed);

/// Bytes behind a request for encryption that wait for its reply.
const HELD_MAX: usize = 4096;

/// Tells a client's data behind its request for encryption (STARTTLS) from commands, before the reply shows how the server reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Securing(fn(&[u8]) -> Probed);

impl Securing {
    /// Whether the data may be the protocol behind the reply. Anything else is in cleartext: if it waited too, it would hide the
    /// handshake behind it, because servers drop it or answer it.
    pub(crate) fn holds(&self, data: &[u8]) -> bool {
        data.len() <= HELD_MAX && data.first().is_some_and(|b| !b.is_ascii_graphic()) && (self.0)(data) != Probed::No
    }
}

impl Declared {
    pub(crate) fn new(
        complete: impl Iterator<Item = (AppProto, [u8; 2])>,
        outlive_tls: impl Iterator<Item = AppProto>,
        followers: impl Iterator<Item = Follower>,
    ) -> Declared {
        let mut all = [[1; 2]; 64];
        for (proto, progress) in complete {
            if let Some(of) = all.get_mut(proto as usize) {
                *of = progress;
            }
        }
        Declared { complete: all, outlive_tls: outlive_tls.collect(), followers: followers.collect() }
    }

    /// The progress of a complete transaction, by direction.
    pub(crate) fn complete(&self, proto: AppProto) -> [u8; 2] {
        self.complete.get(proto as usize).copied().unwrap_or([1; 2])
    }

    /// The protocol of a connection that a command such as STARTTLS secured.
    pub(crate) fn secured(&self) -> Option<AppProto> {
        self.follower(|h| *h == Handover::Secured)
    }

    /// See [`Securing`].
    pub(crate) fn securing(&self) -> Securing {
        let secured = self.followers.iter().find(|(h, ..)| *h == Handover::Secured);
        Securing(secured.map_or(|_| Probed::No, |(.., begins)| *begins))
    }

    /// Whether a protocol may go on in cleartext after TLS.
    pub(crate) fn outlives_tls(&self, proto: AppProto) -> bool {
        self.outlive_tls.contains(&proto)
    }

    /// The protocol that HTTP/1's `Upgrade` names.
    pub(crate) fn upgraded(&self, to: &[u8]) -> Option<AppProto> {
        self.follower(|h| matches!(h, Handover::Upgrade(name) if to.eq_ignore_ascii_case(name.as_bytes())))
    }

    fn follower(&self, handover: impl Fn(&Handover) -> bool) -> Option<AppProto> {
        self.followers.iter().find(|(h, ..)| handover(h)).map(|(_, proto, _)| *proto)
    }
}
