//! Brings state that was stored under an earlier rule set to this one ([`crate::lineage`]).

use margay_app::TxBase;
use margay_app::frame::Frame;
use margay_flow::FlowVars;

use super::Detect;
use crate::lineage::{RulesMark, renumber};

impl Detect {
    /// The set's serial number: never 0, and unique within the process.
    pub fn serial(&self) -> u64 {
        self.lineage.serial
    }

    /// The mark for state stored under this set's numbers.
    pub fn mark(&self) -> RulesMark {
        RulesMark { serial: self.lineage.serial, names: self.lineage.names }
    }

    /// Whether names have the same numbers here as in the marked set.
    pub fn keeps_names(&self, of: RulesMark) -> bool {
        of.names == self.lineage.names
    }

    /// The place of each rule of the marked set; empty if it is unknown.
    pub(crate) fn places_of(&self, from: RulesMark) -> &[u32] {
        self.lineage.ancestor(from.serial).unwrap_or(&[])
    }

    /// Converts a flow's variables from the marked set.
    pub fn bring_vars(&self, from: RulesMark, vars: &mut FlowVars) {
        if from.names != self.lineage.names && !vars.is_empty() {
            vars.clear();
        }
    }

    /// Converts a transaction's rule state from the marked set.
    pub fn bring_tx(&self, from: RulesMark, tx: &mut TxBase) {
        if from.names != self.lineage.names {
            tx.bits.take();
        }
        let to = self.lineage.ancestor(from.serial).unwrap_or(&[]);
        for d in &mut tx.detect {
            (d.searched, d.begun) = (0, 0);
            renumber(&mut d.waiting, to);
            renumber(&mut d.settled, to);
            if let Some(files) = d.files.to_change() {
                renumber(files, to);
            }
        }
        if let Some(firewall) = &mut tx.firewall {
            for seen in &mut firewall.seen {
                renumber(seen, to);
            }
        }
    }

    /// Converts the rule state of a direction's frames from the marked set.
    pub fn bring_frames(&self, from: RulesMark, frames: &mut [Frame]) {
        let to = self.lineage.ancestor(from.serial).unwrap_or(&[]);
        for f in frames {
            renumber(&mut f.matched, to);
        }
    }
}
