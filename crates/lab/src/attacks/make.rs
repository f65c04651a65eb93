//! `margay lab attacks make`: writes attacks to a capture, alone or as a share of a profile's traffic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use margay_capture::{PcapWriter, Resolution};
use margay_packet::LinkType;

use super::build::{MOST, number};
use super::cases::{Case, Chosen, Must};
use super::truth::{self, Truth};
use crate::problem::{Outcome, Problem};
use crate::signals;
use crate::traffic::generate::{Prepared, What};
use crate::traffic::mix::Mix;
use crate::traffic::rng::Rng;
use crate::traffic::template::Raw;
use crate::traffic::units::{self, Rate};
use crate::traffic::{frame, profile};

/// Make a capture with attacks, and its ground truth beside it as NAME.truth.jsonl
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  margay lab attacks make -o attacks.pcap                              every sample of ./defence, and nothing else
  margay lab attacks make -o mix.pcap --preset office --share 1%       one packet of a hundred is an attack's
  margay lab attacks make -o mix.pcap sfr.yaml --duration 20s --most 1000
  margay lab attacks make -o web.pcap --requests requests.jsonl.gz --preset office --share 2%")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// The profile of the other traffic, in Margay's format or in one of TRex's
    #[arg(value_name = "PROFILE")]
    profile: Option<PathBuf>,
    /// A profile that comes with the program (margay lab traffic gen --list-presets)
    #[arg(long, value_name = "NAME", conflicts_with = "profile")]
    preset: Option<String>,
    /// Share of packets that belong to attacks and to conversations that must pass
    #[arg(long, value_parser = units::share, default_value = "1%")]
    share: f64,
    /// Length of the other traffic [default: as long as the share needs with each conversation once]
    #[arg(long, value_parser = units::duration)]
    duration: Option<u64>,
    /// Rate of the other traffic (2Gbps, 100kpps) [default: the profile's]
    #[arg(long, value_parser = units::rate)]
    rate: Option<Rate>,
    /// Round-trip time within conversations. A late inline engine may read an answer before its question; 20ms is safe
    #[arg(long, value_parser = units::duration, default_value = "100us")]
    rtt: u64,
    /// Leave out conversations with more packets, such as floods, which otherwise take most of the share
    #[arg(long, value_name = "PACKETS")]
    most: Option<u64>,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// When the traffic begins, in seconds since 1970
    #[arg(long, value_name = "SECONDS", default_value_t = 1_700_000_000)]
    start: u32,
    /// Capture to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

/// Nanoseconds between conversations without other traffic, so that the rules' counters expire.
const ALONE: u64 = 2_000_000_000;
/// The same after an HTTP request.
const REQUEST: u64 = 50_000;

/// A conversation to send: the case, its number, and its start time.
struct Planned {
    case: usize,
    n: u32,
    at: u64,
}

/// The packets of all conversations, in time order.
struct Stream<'c> {
    cases: &'c [Case],
    seed: u64,
    rtt: u64,
    planned: std::iter::Peekable<std::vec::IntoIter<Planned>>,
    /// Conversations that have begun: the start time and the remaining packets of each.
    active: Vec<(u64, std::iter::Peekable<std::vec::IntoIter<Raw>>)>,
    /// The next packet of each conversation: its time, its order, and the index in `active`.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    order: u64,
    /// The ground truth of conversations that began since it was last written.
    begun: Vec<Truth>,
    base: u64,
}

impl<'c> Stream<'c> {
    fn new(cases: &'c [Case], planned: Vec<Planned>, args: &Args, base: u64) -> Stream<'c> {
        Stream {
            cases,
            seed: args.seed,
            rtt: args.rtt,
            planned: planned.into_iter().peekable(),
            active: Vec::new(),
            heap: BinaryHeap::new(),
            order: 0,
            begun: Vec::new(),
            base,
        }
    }

    /// Queues the next packet of conversation `slot`.
    fn advance(&mut self, slot: usize) {
        let Some((start, frames)) = self.active.get_mut(slot) else { return };
        let Some(raw) = frames.peek() else {
            // The conversation is over: free its memory.
            *frames = Vec::new().into_iter().peekable();
            return;
        };
        self.order += 1;
        self.heap.push(Reverse((*start + raw.at, self.order, slot)));
    }

    /// Begins all conversations that are due before the earliest packet. Returns that packet's time.
    fn due(&mut self) -> Option<u64> {
        loop {
            let head = self.heap.peek().map(|Reverse((at, ..))| *at);
            let begins = self.planned.peek().map(|p| p.at);
            match (head, begins) {
                (head, Some(at)) if head.is_none_or(|head| at <= head) => self.begin(),
                (head, _) => return head,
            }
        }
    }

    fn begin(&mut self) {
        let Some(p) = self.planned.next() else { return };
        let Some(case) = self.cases.get(p.case) else { return };
        let built = case.conversation.build_at(p.n, self.seed, self.rtt);
        self.begun.push(Truth::of(p.n, case, &built, self.base + p.at));
        self.active.push((p.at, built.frames.into_iter().peekable()));
        self.advance(self.active.len() - 1);
    }

    /// Takes the packet whose time [`Stream::due`] returned.
    fn take(&mut self) -> Option<Vec<u8>> {
        let Reverse((_, _, slot)) = self.heap.pop()?;
        let raw = self.active.get_mut(slot)?.1.next()?;
        self.advance(slot);
        Some(raw.frame)
    }
}

/// The conversations to send, and the number of cases left out.
struct Plan {
    planned: Vec<Planned>,
    /// Cases that do not fit into the packet budget.
    left_out: usize,
}

/// Number of packets of each case; 0 for cases with more than `most`, which are left out.
fn sizes(cases: &[Case], most: Option<u64>, seed: u64) -> Vec<u64> {
    let size = |case: &Case| case.conversation.build(0, seed).frames.len() as u64;
    let wanted = |n: &u64| most.is_none_or(|most| *n <= most);
    cases.iter().map(size).map(|n| if wanted(&n) { n } else { 0 }).collect()
}

/// Plans each case once, one after the other.
fn alone(cases: &[Case], sizes: &[u64], seed: u64, rtt: u64) -> Plan {
    let (mut at, mut planned) = (0, Vec::new());
    for (n, (case, _)) in cases.iter().zip(sizes).enumerate().filter(|(_, (_, size))| **size > 0) {
        let place = planned.len() as u32;
        planned.push(Planned { case: n, n: place, at });
        let length = case.conversation.build_at(place, seed, rtt).frames.last().map_or(0, |raw| raw.at);
        let request = matches!(case.conversation, super::build::Conversation::Request(_));
        at += length + if request { REQUEST } else { ALONE };
    }
    Plan { planned, left_out: 0 }
}

/// Spreads conversations evenly over `length`, in random order. Without a `budget`, it has each case once. With one, it repeats
/// rounds of all cases, as long as their packets fit into the budget.
fn spread(cases: &[Case], sizes: &[u64], budget: Option<u64>, length: u64, seed: u64) -> Plan {
    let mut rng = Rng::new(seed, 0x6174_7461_636b);
    let mut order: Vec<usize> = (0..cases.len()).filter(|n| sizes[*n] > 0).collect();
    let (mut chosen, mut used, mut left_out) = (Vec::new(), 0, 0);
    for round in 0.. {
        for n in (1..order.len()).rev() {
            order.swap(n, rng.below(n as u64 + 1) as usize);
        }
        let before = chosen.len();
        for &n in &order {
            let fits = budget.is_none_or(|budget| used + sizes[n] <= budget) && chosen.len() < MOST as usize;
            if fits {
                used += sizes[n];
                chosen.push(n);
            } else if round == 0 {
                left_out += 1;
            }
        }
        if budget.is_none() || chosen.len() == before || left_out > 0 {
            break;
        }
    }
    let count = chosen.len() as u64;
    let planned = chosen.into_iter().zip(0u32..).map(|(case, n)| {
        let at = (u128::from(length) * u128::from(n) / u128::from(count.max(1))) as u64;
        Planned { case, n, at }
    });
    Plan { planned: planned.collect(), left_out }
}

impl Args {
    fn background(&self, duration: u64) -> Outcome<Prepared> {
        let what = What {
            profile: self.profile.clone(),
            preset: self.preset.clone(),
            duration: Some(duration),
            size: None,
            rate: self.rate,
            multiplier: None,
            seed: Some(self.seed),
            attacks: None,
        };
        let prepared = what.prepare().map_err(Problem::Usage)?;
        if prepared.profile.sources.iter().any(|s| matches!(s.what, profile::What::Attack(_))) {
            return Err(Problem::Usage(format!(
                "the profile '{}' has attacks of its own, which have no ground truth here: choose one without",
                prepared.profile.name
            )));
        }
        Ok(prepared)
    }

    /// Plans the conversations and the other traffic.
    fn plan(&self, cases: &[Case]) -> Outcome<(Plan, Option<Mix>)> {
        let sizes = sizes(cases, self.most, self.seed);
        let kept = sizes.iter().filter(|n| **n > 0).count();
        if kept == 0 || kept > MOST as usize {
            return Err(Problem::Usage(format!("{kept} conversations are left; from 1 to {MOST} can be sent")));
        }
        if self.profile.is_none() && self.preset.is_none() {
            return match self.duration.is_some() || self.rate.is_some() {
                true => {
                    Err(Problem::Usage("--duration and --rate are of other traffic: give a profile or --preset".into()))
                }
                false => Ok((alone(cases, &sizes, self.seed, self.rtt), None)),
            };
        }
        if !(self.share > 0.0 && self.share < 1.0) {
            return Err(Problem::Usage("--share is more than 0 and less than 100 %".to_owned()));
        }
        let known = self.background(1_000_000_000)?;
        let (_, packets, _) = known.mix.rates();
        let per_second = packets * known.plan.multiplier;
        let odds = self.share / (1.0 - self.share);
        let (length, budget) = match self.duration {
            Some(length) => (length, Some((per_second * length as f64 / 1e9 * odds) as u64)),
            None => ((sizes.iter().sum::<u64>() as f64 / odds / per_second * 1e9).max(1.0) as u64, None),
        };
        let plan = spread(cases, &sizes, budget, length, self.seed);
        Ok((plan, Some(self.background(length)?.mix)))
    }
}

/// Counts of the packets and conversations that were written.
#[derive(Default)]
struct Tally {
    attacks: u64,
    others: u64,
    by_must: [u64; 3],
    last: u64,
}

/// Writes both streams in time order.
struct Output<'a> {
    args: &'a Args,
    pcap: PcapWriter<BufWriter<File>>,
    truth: BufWriter<File>,
    base: u64,
    tally: Tally,
}

impl Output<'_> {
    fn packet(&mut self, at: u64, data: &[u8], wire_len: u32) -> Outcome<()> {
        let time = self.base + at;
        let seconds = u32::try_from(time / 1_000_000_000).unwrap_or(u32::MAX);
        self.tally.last = self.tally.last.max(at);
        let wrote = self.pcap.write_nanos(seconds, (time % 1_000_000_000) as u32, data, wire_len);
        wrote.map_err(|error| Problem::file("write", &self.args.output, error))
    }

    fn truths(&mut self, stream: &mut Stream<'_>) -> Outcome<()> {
        let path = truth::beside(&self.args.output);
        for t in stream.begun.drain(..) {
            self.tally.by_must[t.must as usize] += 1;
            let line = serde_json::to_string(&t).map_err(|error| Problem::file("write", &path, error))?;
            writeln!(self.truth, "{line}").map_err(|error| Problem::file("write", &path, error))?;
        }
        Ok(())
    }

    fn all(&mut self, mut stream: Stream<'_>, mut mix: Option<Mix>) -> Outcome<()> {
        let mut buffer = Vec::with_capacity(2048);
        let mut made = mix.as_mut().and_then(|mix| mix.next(&mut buffer));
        loop {
            let due = stream.due();
            self.truths(&mut stream)?;
            match (due, made) {
                (Some(at), other) if other.is_none_or(|other| at < other.at) => {
                    let Some(frame) = stream.take() else { break };
                    let length = frame.len() as u32;
                    self.packet(at, &frame, length)?;
                    self.tally.attacks += 1;
                }
                (_, Some(other)) => {
                    apart(&buffer)?;
                    self.packet(other.at, &buffer, other.wire_len)?;
                    self.tally.others += 1;
                    made = mix.as_mut().and_then(|mix| mix.next(&mut buffer));
                }
                (_, None) => break,
            }
            if (self.tally.attacks + self.tally.others).is_multiple_of(4096) && signals::stop_asked() {
                return Err(Problem::Interrupted("stopped; the capture and its truth are not whole".to_owned()));
            }
        }
        self.pcap.flush().map_err(|error| Problem::file("write", &self.args.output, error))?;
        self.truth.flush().map_err(|error| Problem::file("write", &truth::beside(&self.args.output), error))
    }
}

/// Fails if a frame of the other traffic has an address of the attacks.
fn apart(frame: &[u8]) -> Outcome<()> {
    let ends = frame::parse(frame).and_then(|layout| layout.ends(frame));
    match ends {
        Some((a, b)) if number(a).or(number(b)).is_some() => Err(Problem::Usage(format!(
            "the profile's traffic ({a} to {b}) has addresses of the attacks, which are 10.0.0.0/15 and 198.18.0.0/15"
        ))),
        _ => Ok(()),
    }
}

/// Runs the command.
///
/// # Errors
/// If cases or profile cannot be read, or a file cannot be written.
pub(super) fn run(args: &Args) -> Outcome<ExitCode> {
    signals::listen();
    let cases = args.chosen.cases()?;
    let (plan, mix) = args.plan(&cases)?;
    let create = |path: &std::path::Path| File::create(path).map_err(|error| Problem::file("make", path, error));
    let base = u64::from(args.start) * 1_000_000_000;
    let writer = BufWriter::with_capacity(1 << 20, create(&args.output)?);
    let pcap = PcapWriter::new(writer, LinkType::ETHERNET, 262_144, Resolution::Nano)
        .map_err(|error| Problem::file("write", &args.output, error))?;
    let truth = BufWriter::new(create(&truth::beside(&args.output))?);
    let mut output = Output { args, pcap, truth, base, tally: Tally::default() };
    output.all(Stream::new(&cases, plan.planned, args, base), mix)?;
    let t = &output.tally;
    if !args.quiet {
        let [stop, notice, pass] = [Must::Stop, Must::Notice, Must::Pass].map(|must| t.by_must[must as usize]);
        let all = t.attacks + t.others;
        eprintln!(
            "{stop} attacks to stop, {notice} to notice, {pass} conversations that must pass: {} of {all} packets ({:.2} %) over {:.3} s",
            t.attacks,
            t.attacks as f64 * 100.0 / all.max(1) as f64,
            t.last as f64 / 1e9
        );
        if plan.left_out > 0 {
            eprintln!(
                "{} conversations have no room in this share and duration: a longer --duration, a larger --share or --most takes them",
                plan.left_out
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attacks::build::Conversation;

    fn cases(n: usize) -> Vec<Case> {
        let case = |n: usize| Case {
            name: n.to_string(),
            sid: 0,
            rules: 0,
            must: Must::Stop,
            class: String::new(),
            techniques: Vec::new(),
            file: String::new(),
            conversation: Conversation::Request(b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        };
        (0..n).map(case).collect()
    }

    #[test]
    fn each_case_is_sent_once_before_any_is_sent_again() {
        let (all, mut sizes) = (cases(10), vec![8; 10]);
        let plan = spread(&all, &sizes, Some(200), 1_000_000, 3);
        assert_eq!((plan.planned.len(), plan.left_out), (25, 0));
        for round in plan.planned[..20].chunks(10) {
            let mut seen: Vec<usize> = round.iter().map(|p| p.case).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..10).collect::<Vec<_>>());
        }
        assert!(plan.planned.is_sorted_by_key(|p| (p.at, p.n)) && plan.planned.iter().all(|p| p.at < 1_000_000));
        let order = |seed| spread(&all, &sizes, None, 100, seed).planned.iter().map(|p| p.case).collect::<Vec<_>>();
        assert!(order(1) == order(1) && order(1) != order(2) && order(1).len() == 10);
        assert_eq!(spread(&all, &sizes, Some(40), 100, 1).left_out, 5);
        sizes[3] = 0;
        assert!(spread(&all, &sizes, None, 100, 1).planned.iter().all(|p| p.case != 3));
    }

    #[test]
    fn conversations_that_overlap_are_in_the_order_of_time() {
        let all = cases(3);
        let planned = [0, 10_000, 20_000].into_iter().zip(0..).map(|(at, n)| Planned { case: n as usize, n, at });
        let args = <Args as clap::FromArgMatches>::from_arg_matches(
            &<Args as clap::Args>::augment_args(clap::Command::new("make")).get_matches_from(["make", "-o", "x.pcap"]),
        )
        .unwrap();
        let mut stream = Stream::new(&all, planned.collect(), &args, 0);
        let mut times = Vec::new();
        while let Some(at) = stream.due() {
            times.push(at);
            assert!(stream.take().is_some());
        }
        assert_eq!((times.len(), stream.begun.len()), (24, 3));
        assert!(times.is_sorted());
    }
}
