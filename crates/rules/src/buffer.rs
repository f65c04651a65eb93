//! The buffers that sticky buffers select.

use margay_app::Form;

/// The directions of a flow in which a buffer exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
    Both,
}

/// A sticky buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Canonical name.
    pub(crate) name: &'static str,
    /// The name in messages.
    pub(crate) internal: &'static str,
    /// The buffer's content, for messages.
    pub(crate) description: &'static str,
    /// Application protocols with this buffer; empty for packet buffers.
    pub(crate) protocols: &'static [&'static str],
    pub(crate) direction: Direction,
    /// Whether each selection is separate (a transaction may have several values).
    pub(crate) multi: bool,
    /// Feature that the buffer needs besides a protocol.
    pub(crate) feature: &'static str,
    /// The form of its text.
    pub(crate) form: Form,
    /// It looks alike in nearly every transaction, so a literal in it selects little.
    pub(crate) is_common: bool,
    /// A rule must name its direction with `flow`; the module of the message if not.
    pub(crate) needs_flow: Option<&'static str>,
    /// It is inspected in its own direction, whatever `flow` says.
    pub(crate) ignores_flow: bool,
}

impl Buffer {
    /// A buffer of any bytes, for tables to say what differs.
    pub(crate) const PLAIN: Buffer = Buffer {
        name: "",
        internal: "",
        description: "",
        protocols: &[],
        direction: Direction::Both,
        multi: false,
        feature: "",
        form: Form::Any,
        is_common: false,
        needs_flow: None,
        ignores_flow: false,
    };

    pub(crate) const fn is_app(&self) -> bool {
        !self.protocols.is_empty() || !self.feature.is_empty()
    }
}
