//! One worker that receives frames from its caller, for tests that replace a capture source (`crates/hosts`).
//!
//! It is created like the worker of an interface, and processes a frame in the same way (`live`): decode, defragment, find
//! the flow, reassemble, parse, inspect, decide.

use std::path::Path;
use std::sync::Arc;

use margay_capture::live::{Decisions, Verdict};
use margay_config::{Config, RuleFiles, RunOptions};
use margay_detect::{Detect, RuleCosts};
use margay_packet::{Frame, LinkType, Time};

use crate::engines::{self, Loading};
use crate::exception::Policies;
use crate::watching::Watching;
use crate::witness::Witness;
use crate::worker::wire::Wire;
use crate::worker::{Opened, Part, Worker, worker_of};
use crate::{Failed, live, settings as all};

/// The verdict on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded<'a> {
    /// It is forwarded unchanged.
    AsIs,
    /// It is dropped, with the reason that a `drop` event shows.
    Dropped(&'static str),
    /// It is forwarded with these bytes instead.
    Replaced(&'a [u8]),
}

/// One worker.
pub struct InProcess {
    worker: Worker,
    inline: bool,
    decisions: Decisions,
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("inline", &self.inline).finish_non_exhaustive()
    }
}

impl InProcess {
    /// Creates a worker with the configuration `yaml`, changed by `settings` (`name=value`), and the rules of a file. It is
    /// inline (between two interfaces) or passive. `dir` is a folder that it may write to.
    ///
    /// # Errors
    /// A message about an invalid setting or rule file.
    pub fn new(yaml: &str, settings: &[String], rules: &Path, dir: &Path, inline: bool) -> Result<InProcess, String> {
        InProcess::watched(yaml, settings, rules, dir, inline, Watching::Nobody)
    }

    /// Creates a worker that records each packet's demands: [`Self::costs`] counts how often rules are evaluated and on how
    /// many bytes, and [`Self::detect`] has the rule trees.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn recording(
        yaml: &str,
        settings: &[String],
        rules: &Path,
        dir: &Path,
        inline: bool,
    ) -> Result<InProcess, String> {
        InProcess::watched(yaml, settings, rules, dir, inline, Watching::Profile(1))
    }

    fn watched(
        yaml: &str,
        settings: &[String],
        rules: &Path,
        dir: &Path,
        inline: bool,
        watching: Watching,
    ) -> Result<InProcess, String> {
        let make = || -> Result<Worker, Failed> {
            let mut config = Config::from_str(yaml, "in process")?;
            for s in settings {
                config.set(s)?;
            }
            let options = RunOptions {
                rules: RuleFiles::Exclusive(rules.display().to_string()),
                init_errors_fatal: true,
                no_cache: true,
                ..RunOptions::default()
            };
            let midstream = all::flag(&config, "stream.midstream", false)?;
            let mut policies = Policies::from_config(&config, inline, midstream)?;
            if inline {
                policies.spare_midstream(&config);
            }
            let trees = !matches!(watching, Watching::Nobody);
            let set = engines::load(&Loading { config: &config, options: &options, ips: inline, dir, trees }, None)?;
            let part = Part { opened: Opened::nothing()?, files: all::files(&config, dir, &options)?, workers: 1 };
            let set = Arc::new(set);
            let mut worker = worker_of(&config, &options, inline, &policies, set, dir, &watching, part)?;
            live::prepare(&mut worker, Wire::new(inline, None));
            worker.pipeline.stages.app.witness = Some(Box::default());
            Ok(worker)
        };
        let worker = make().map_err(|f| f.to_string())?;
        Ok(InProcess { worker, inline, decisions: Decisions::default() })
    }

    /// Processes an Ethernet frame that arrived at `time`. A passive worker forwards everything unchanged.
    pub fn frame(&mut self, data: &[u8], time: Time) -> Forwarded<'_> {
        let wire_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.take(&Frame { data, wire_len, time, link: LinkType::ETHERNET, number: 0 })
    }

    /// Processes a frame. A passive worker forwards everything unchanged.
    pub fn take(&mut self, frame: &Frame<'_>) -> Forwarded<'_> {
        let worker = &mut self.worker;
        // The decisions on the previous frame were carried out.
        worker.decided(std::mem::take(&mut self.decisions));
        let verdict = worker.frame(frame);
        if !self.inline {
            return Forwarded::AsIs;
        }
        let reason = verdict.drop_reason();
        worker.decide(verdict);
        self.decisions = worker.decisions();
        match self.decisions.verdict(0) {
            Verdict::Accept => Forwarded::AsIs,
            Verdict::Drop => Forwarded::Dropped(reason.unwrap_or_default()),
            Verdict::Replace(..) => Forwarded::Replaced(self.decisions.replacement(0).unwrap_or_default()),
        }
    }

    /// Ends flows that timed out by `now`, as a worker of an interface does between two batches.
    pub fn idle(&mut self, now: Time) {
        self.worker.expire_live(Some(now), usize::MAX);
    }

    /// Ends every flow, and inspects the rest of their streams.
    pub fn finish(&mut self) {
        self.worker.finish();
    }

    /// The rules; `None` if detection is off.
    pub fn detect(&self) -> Option<&Detect> {
        self.worker.pipeline.stages.detect.as_ref().map(|(detect, _)| &**detect)
    }

    /// The cost of each rule so far, by index; empty unless created by [`Self::recording`].
    pub fn costs(&self) -> &[RuleCosts] {
        self.worker.pipeline.stages.detect.as_ref().map_or(&[], |(_, state)| state.costs())
    }

    /// Everything inspected since the last [`Self::clear_witness`].
    pub fn witness(&self) -> Option<&Witness> {
        self.worker.pipeline.stages.app.witness.as_deref()
    }

    /// Clears the record.
    pub fn clear_witness(&mut self) {
        if let Some(w) = &mut self.worker.pipeline.stages.app.witness {
            w.clear();
        }
    }

    /// Calls `each` with the name and value of every counter of the decoder, the stream engine and the verdicts that is not
    /// 0.
    pub fn counters(&self, each: &mut dyn FnMut(&str, u64)) {
        let mut some = |name: &str, n: u64| {
            if n > 0 {
                each(name, n);
            }
        };
        self.worker.decoder.counters.for_each(&mut some);
        self.worker.pipeline.stages.stream.counters.for_each(&mut some);
        self.worker.pipeline.stages.counters.ips.for_each(&mut some);
    }
}
