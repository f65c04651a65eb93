//! A conversation whose sides agreed to go on with another protocol (STARTTLS, an upgrade of HTTP): whether they do.

use margay_flow::Direction;

use super::{AppSession, SessionEvent};
use crate::first_data::FirstData;
use crate::parser::Parse;
use crate::proto::AppProto;
use crate::recognise::{Probed, RecogniseState};
use crate::registry::declaration;

/// A change that the peers agreed on, until the client's first data shows whether it took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreement {
    from: AppProto,
    to: AppProto,
    /// The client's data is not the agreed protocol's.
    broken: bool,
}

/// Bytes after which data that is no known protocol's is the former protocol's.
const TOLD: usize = 8;
/// Bytes that wait for the client's first data.
const WAITS: usize = 16_384;

impl AppSession {
    /// Notes that the peers agreed to go on with `to`.
    pub(super) const fn agree(&mut self, from: AppProto, to: AppProto) {
        self.agreement = Some(Agreement { from, to, broken: false });
    }

    /// Looks at the first data after an agreement, before it is recognised or parsed. Returns whether to wait for more. If the data is
    /// not the agreed protocol's, protocol detection begins again.
    pub(super) fn look_after_agreement(&mut self, cx: &Parse<'_>, dir: Direction, data: &[u8]) -> bool {
        let Some(agreed) = self.agreement.filter(|a| !a.broken && !data.is_empty()) else { return false };
        let begins = match (dir, declaration(agreed.to)) {
            (_, None) => Probed::No,
            (Direction::ToServer, Some(p)) => (p.client_begins)(data),
            // Its first data may be parsed, and the client's data still decides.
            (Direction::ToClient, Some(p)) if (p.server_begins)(data) => return false,
            // A server that speaks first breaks the agreement too, but the client's data may just be late.
            (Direction::ToClient, _) if data.len() < WAITS => Probed::More,
            (Direction::ToClient, _) => Probed::No,
        };
        match begins {
            Probed::Yes { .. } => self.agreement = None,
            Probed::More if !cx.end => return true,
            _ => {
                self.agreement = Some(Agreement { broken: true, ..agreed });
                self.events |= SessionEvent::UnexpectedProtocol.bit();
                if cx.config.declared.secured() == Some(agreed.to) {
                    self.events |= SessionEvent::NoTlsAfterStarttls.bit();
                }
                self.expected = agreed.to;
                self.parsers.pop_if(|p| p.proto() == agreed.to);
                (self.state, self.first) = (RecogniseState::default(), FirstData::default());
                (self.side, self.proto, self.parsing) = ([AppProto::Unknown; 2], AppProto::Unknown, false);
            }
        }
        false
    }

    /// After detection looked at data behind a broken agreement: if it recognised nothing, the former protocol goes on. Suricata waits
    /// for a protocol, so that mail which goes on in cleartext is not parsed.
    pub(super) fn go_on_after_agreement(&mut self, cx: &mut Parse<'_>, data: &[u8]) {
        let Some(agreed) = self.agreement.filter(|a| a.broken) else { return };
        if self.proto == AppProto::Unknown && data.len() < TOLD && !cx.end {
            return;
        }
        self.agreement = None;
        if !self.proto.is_known() {
            self.side = [agreed.from; 2];
            self.start(cx, agreed.from);
        }
        if self.proto == self.original {
            // As in Suricata: nothing changed.
            self.original = AppProto::Unknown;
        }
    }

    /// The protocol that the peers agreed on, if they went on with another one.
    pub const fn expected(&self) -> AppProto {
        self.expected
    }
}
