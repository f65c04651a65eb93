//! The items of the workers' queues.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use margay_capture::DeletePolicy;
use rtrb::{Consumer, Producer};

use super::moves::Move;
use crate::spread::piece::{Piece, PieceBuffer};

/// A file that was read: the last worker to finish it closes it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) file: PathBuf,
    /// Workers that have not finished it.
    pub(super) left: AtomicUsize,
    pub(super) alerts: AtomicU64,
    /// Whether the file is deleted, depending on the number of alerts.
    pub(super) delete: DeletePolicy,
}

/// A file that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) file: PathBuf,
    /// Whether its checksums count as correct.
    pub(super) believed: bool,
}

/// An item in a queue.
#[derive(Debug)]
pub(super) enum Item {
    Piece(Arc<Piece>),
    /// A file begins.
    Begin(Arc<Begun>),
    End(Arc<Ended>),
    /// Gives a flow away: all its frames at this worker come before this item.
    Give(Arc<Move>),
    /// Takes a flow: all its frames at this worker come after this item.
    Take(Arc<Move>),
}

/// A worker's end of its queue.
pub(super) struct Inbox {
    pub(super) items: Consumer<Item>,
    pub(super) buffers: Producer<PieceBuffer>,
}
