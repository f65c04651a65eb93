//! Records the work that each packet of a capture causes for a card that detects (`margay lab card record`,
//! docs/card.md).
//!
//! Frames go through one worker of the engine, as live frames do. The engine's own record ([`margay_engine::witness`],
//! rule profiles) says which bytes go to detection, how often and in how many bytes each rule is checked, and which
//! alerts are written. This module adds the result of a string matcher with one table for all rules: every rule whose
//! fast pattern occurs in a flush, whatever its ports. A sensor's packet path has none of this.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use margay_capture::{CaptureSource, DirOptions, Event};
use margay_card::record::Job;
use margay_card::trace::{TCP, Trace, Work};
use margay_detect::mpm::{Matcher, MpmAlgo, Pattern, Scratch};
use margay_detect::{Detect, fast_pattern};
use margay_engine::in_process::InProcess;
use margay_engine::witness::{Record, What};

const YAML: &str = include_str!("../../../etc/margay.yaml");
const CLASSES: &str = include_str!("../../../etc/classification.config");
const REFERENCES: &str = include_str!("../../../etc/reference.config");
/// This rule is checked for every URI. Its counts are the URIs to normalise and their bytes.
const URI_SID: u32 = u32::MAX - 1;
const FRAMES: usize = 256;

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, String> {
        let unique = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let path = std::env::temp_dir().join(format!("margay-card-{}-{unique}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A packet whose work is not complete yet: a stream's remaining data is inspected after its last packet.
#[derive(Default)]
struct Draft {
    work: Work,
    /// Rules of the port group whose pattern was found or that checked bytes, with the number of bytes.
    group: Vec<(u32, u64)>,
    /// Rules of other port groups whose pattern was found.
    others: Vec<u32>,
}

type Ends = (u8, (IpAddr, u16), (IpAddr, u16));

/// The work recorded so far.
#[derive(Default)]
struct Recording {
    drafts: Vec<Draft>,
    hashes: Vec<u32>,
    /// Flows of the current capture, and the last packet of each.
    flows: HashMap<Ends, (u32, usize)>,
    /// The flow of frames without an IP packet.
    other: Option<u32>,
}

/// Records the work of `job`.
///
/// # Errors
/// A sentence about a file that cannot be read, or about rules or settings that cannot be used.
pub(crate) fn record(job: &Job<'_>) -> Result<Trace, String> {
    let yaml = match job.config {
        Some(path) => text(path)?,
        None => YAML.to_owned(),
    };
    let folder = Folder::new()?;
    let rules = folder.0.join("work.rules");
    let uris = format!(
        "\nalert http any any -> any any (msg:\"URIs to normalise\"; flow:to_server; http.uri; bsize:>0; noalert; sid:{URI_SID}; rev:1;)\n"
    );
    std::fs::write(&rules, text(job.rules)? + &uris).map_err(|e| format!("cannot write {}: {e}", rules.display()))?;
    let mut settings = vec!["stats.enabled=no".to_owned()];
    if job.config.is_none() {
        let files = [("classification-file", CLASSES), ("reference-config-file", REFERENCES), ("threshold-file", "")];
        for (name, text) in files {
            let path = folder.0.join(name);
            std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
            settings.push(format!("{name}={}", path.display()));
        }
    }
    settings.extend_from_slice(job.settings);
    let mut recording = Recording::default();
    let mut table = None;
    for capture in job.captures {
        let mut engine = InProcess::recording(&yaml, &settings, &rules, &folder.0, job.inline)
            .map_err(|e| format!("{}: {e}", job.rules.display()))?;
        if table.is_none() {
            table = Some(Table::new(engine.detect().ok_or("the configuration turns detection off")?)?);
        }
        if let Some(table) = &mut table {
            recording.capture(capture, &mut engine, table)?;
        }
    }
    Ok(recording.trace())
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// A matcher with the fast patterns of all rules.
struct Table {
    matcher: Matcher,
    scratch: Scratch,
    /// The rule that owns each pattern.
    rules: Vec<u32>,
    /// The rule that counts URIs.
    uri: Option<usize>,
    found: Vec<u32>,
    /// Costs of each rule before the frame: checks, buffers, bytes.
    before: Vec<(u64, u64, u64)>,
}

impl Table {
    fn new(detect: &Detect) -> Result<Table, String> {
        let uri = detect.rules().iter().position(|r| r.sid == URI_SID);
        let (mut patterns, mut rules) = (Vec::new(), Vec::new());
        for (number, facts) in detect.rules().iter().enumerate() {
            let chosen = facts.tree().and_then(|tree| fast_pattern::choose(tree, &|_| true, &|_| 0));
            if let Some(chosen) = chosen {
                patterns.push(Pattern { bytes: chosen.bytes, nocase: chosen.nocase });
                rules.push(u32::try_from(number).unwrap_or(u32::MAX));
            }
        }
        if detect.rules().len() > usize::from(u16::MAX) {
            return Err(format!("{} rules are more than a work trace has numbers for (65,535)", detect.rules().len()));
        }
        let matcher = Matcher::new(&patterns, MpmAlgo::Auto, false).map_err(|e| e.to_string())?;
        let mut scratch = Scratch::default();
        scratch.prepare(&matcher).map_err(|e| e.to_string())?;
        let before = vec![(0, 0, 0); detect.rules().len()];
        Ok(Table { matcher, scratch, rules, uri, found: Vec::new(), before })
    }

    /// Finds rules whose pattern ends in `data` after the first `seen` bytes, in ascending order.
    fn search(&mut self, data: &[u8], seen: usize) -> Result<(), String> {
        let Table { matcher, scratch, rules, found, .. } = self;
        found.clear();
        let searched = scratch.scan(matcher, data, |pattern, end, marks| {
            if end > seen && !marks.has(pattern) {
                marks.set(pattern);
                found.extend(rules.get(pattern as usize));
            }
        });
        searched.map_err(|e| e.to_string())?;
        found.sort_unstable();
        Ok(())
    }
}

/// The flow key, equal for both directions.
fn ends(record: &Record) -> Ends {
    (record.proto, record.from.min(record.to), record.from.max(record.to))
}

/// FNV-1a of both addresses, equal for both directions.
fn hash(ends: &Ends) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    let mut add = |b: u8| hash = (hash ^ u32::from(b)).wrapping_mul(0x0100_0193);
    for (address, _) in [ends.1, ends.2] {
        match address {
            IpAddr::V4(a) => a.octets().into_iter().for_each(&mut add),
            IpAddr::V6(a) => a.octets().into_iter().for_each(&mut add),
        }
    }
    hash
}

impl Recording {
    fn capture(&mut self, path: &Path, engine: &mut InProcess, table: &mut Table) -> Result<(), String> {
        self.flows.clear();
        self.other = None;
        table.before.fill((0, 0, 0));
        let mut source = CaptureSource::open(path, DirOptions::default(), None).map_err(|e| e.to_string())?;
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let (mut idle, mut frames) = (None, 0u64);
        loop {
            match source.next_event(FRAMES, SystemTime::now) {
                Event::Batch(batch) => {
                    for frame in batch.iter() {
                        // Flows that were idle too long end, as they do between two live batches.
                        if idle.is_none_or(|last: i64| frame.time.0 - last > 1_000_000) {
                            idle = Some(frame.time.0);
                            engine.idle(frame.time);
                        }
                        engine.take(&frame);
                        frames += 1;
                        let bytes = u16::try_from(frame.data.len()).unwrap_or(u16::MAX);
                        self.frame(bytes, engine, table)?;
                    }
                }
                Event::FileEnd(end) => {
                    if let Some(error) = end.error {
                        return Err(told(&error));
                    }
                }
                Event::Failed { error, .. } => return Err(told(&error)),
                Event::Done => break,
                _ => {}
            }
        }
        if frames > 0 {
            engine.finish();
            let last = self.drafts.len() - 1;
            self.account(last, engine, table)?;
        }
        Ok(())
    }

    /// Begins the draft of a frame that the engine took.
    fn frame(&mut self, bytes: u16, engine: &mut InProcess, table: &mut Table) -> Result<(), String> {
        let Some(witness) = engine.witness() else { return Err("the engine keeps no record".to_owned()) };
        let number = self.drafts.len();
        let packets = || witness.records().iter().filter(|r| matches!(r.what, What::Payload(_)));
        // For a tunnel this is the inner packet, which comes first.
        let flow = match packets().next() {
            Some(record) => {
                let (hashes, key) = (&mut self.hashes, ends(record));
                let flow = self.flows.entry(key).or_insert_with(|| {
                    hashes.push(hash(&key));
                    ((hashes.len() - 1) as u32, number)
                });
                flow.1 = number;
                flow.0
            }
            None => *self.other.get_or_insert_with(|| {
                self.hashes.push(0);
                (self.hashes.len() - 1) as u32
            }),
        };
        let length = |r: &Record| if let What::Payload(range) = &r.what { range.len() } else { 0 };
        let payload = packets().map(length).max().unwrap_or(0);
        let payload = u16::try_from(payload).unwrap_or(u16::MAX).min(bytes);
        let flags = if packets().next().is_some_and(|r| r.proto == 6) { TCP } else { 0 };
        self.drafts.push(Draft { work: Work { flow, bytes, payload, flags, ..Work::default() }, ..Draft::default() });
        self.account(number, engine, table)
    }

    /// Attributes the engine's work since the last call to packets. Work for another flow than that of packet `number`
    /// goes to that flow's last packet.
    fn account(&mut self, number: usize, engine: &mut InProcess, table: &mut Table) -> Result<(), String> {
        let (Some(witness), Some(detect)) = (engine.witness(), engine.detect()) else { return Ok(()) };
        for record in witness.records() {
            let of = self.flows.get(&ends(record)).map_or(number, |f| f.1);
            let Some(draft) = self.drafts.get_mut(of) else { continue };
            let (range, seen) = match &record.what {
                What::Stream { bytes, seen, .. } => (bytes, *seen),
                // Data of a stream is inspected there.
                What::Payload(bytes) if record.proto != 6 => (bytes, 0),
                What::Alert(_) => {
                    draft.work.alerts = draft.work.alerts.saturating_add(1);
                    continue;
                }
                _ => continue,
            };
            let data = witness.bytes(range);
            let fresh = data.len().saturating_sub(seen);
            draft.work.flush = draft.work.flush.saturating_add(u32::try_from(fresh).unwrap_or(u32::MAX));
            table.search(data, seen)?;
            for &rule in &table.found {
                if detect.fits(rule, record.proto, record.from, record.to, record.dir) {
                    if !draft.group.iter().any(|g| g.0 == rule) {
                        draft.group.push((rule, 0));
                    }
                } else if !draft.others.contains(&rule) {
                    draft.others.push(rule);
                }
            }
        }
        let Some(draft) = self.drafts.get_mut(number) else { return Ok(()) };
        for (rule, (now, before)) in engine.costs().iter().zip(&mut table.before).enumerate() {
            let (checks, buffers, bytes) = (now.checks - before.0, now.buffers - before.1, now.bytes - before.2);
            if checks == 0 {
                continue;
            }
            *before = (now.checks, now.buffers, now.bytes);
            if table.uri == Some(rule) {
                let add = |to: &mut u16, n: u64| *to = to.saturating_add(u16::try_from(n).unwrap_or(u16::MAX));
                add(&mut draft.work.uris, buffers);
                add(&mut draft.work.uri_bytes, bytes);
                continue;
            }
            let rule = rule as u32;
            match draft.group.iter_mut().find(|g| g.0 == rule) {
                Some(known) => known.1 += bytes,
                // The rule failed on header or flow state, which are checked with the packet.
                None if buffers == 0 => {}
                None => draft.group.push((rule, bytes)),
            }
        }
        engine.clear_witness();
        Ok(())
    }

    fn trace(self) -> Trace {
        let mut trace = Trace { flows: self.hashes, ..Trace::default() };
        for mut draft in self.drafts {
            // The matcher reports only rules with a pattern. The other rules are checked for the packet itself.
            draft.others.retain(|rule| !draft.group.iter().any(|g| g.0 == *rule));
            draft.group.sort_unstable();
            draft.group.truncate(usize::from(u16::MAX));
            draft.others.truncate(usize::from(u16::MAX) - draft.group.len());
            let first = trace.reports.len() as u32;
            let report = |rule: u32, looked: u64| rule << 16 | looked.min(u64::from(u16::MAX)) as u32;
            trace.reports.extend(draft.group.iter().map(|(rule, looked)| report(*rule, *looked)));
            trace.reports.extend(draft.others.iter().map(|rule| report(*rule, 0)));
            let (group, others) = (draft.group.len() as u16, draft.others.len() as u16);
            trace.packets.push(Work { first, group, all: group + others, ..draft.work });
        }
        trace
    }
}
