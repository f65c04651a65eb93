//! Searches payloads in advance, with the plans of another worker ([`crate::ahead`]).

use std::sync::Arc;

use crate::ahead::SearchPlan;
use crate::detect::Detect;
use crate::group::Source;
use crate::mpm::{MpmError, Scratch};

/// Searches payloads on behalf of other workers.
#[derive(Debug)]
pub struct Searcher {
    detect: Arc<Detect>,
    scratch: Scratch,
}

impl Searcher {
    /// A searcher for plans of these rules.
    ///
    /// # Errors
    /// If the matcher's scratch space cannot be allocated.
    pub fn new(detect: &Arc<Detect>) -> Result<Searcher, MpmError> {
        Ok(Searcher { detect: Arc::clone(detect), scratch: detect.scratch()? })
    }

    /// Its rules.
    pub const fn rules(&self) -> &Arc<Detect> {
        &self.detect
    }

    /// Adds the candidate rules of a payload, each once. Returns `false` if the plan is for other rules.
    pub fn search(&mut self, plan: SearchPlan, payload: &[u8], out: &mut Vec<u32>) -> bool {
        if !plan.is_for(self.detect.serial()) {
            return false;
        }
        for group in self.detect.groups.each(plan.groups()) {
            group.scan(Source::Payload, payload, &mut self.scratch, out);
            if plan.is_stream() {
                group.scan(Source::Stream, payload, &mut self.scratch, out);
            }
        }
        self.scratch.forget();
        out.sort_unstable();
        out.dedup();
        true
    }
}
