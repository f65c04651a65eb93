//! A made-up protocol. `mN` and N bytes are a message, `bN` and N bytes are a head of two bytes with a body, `hN` one with bytes
//! to skip, `rN` the head of a record. A message of `+` opens a transaction, one of `k` is a request that the peer may refuse, with `n`, or grant, with `y`;
//! `l` announces a body of three bytes.

use margay_flow::Direction::{ToClient, ToServer};
use margay_packet::Time;

use super::*;

#[derive(Debug)]
struct Nothing;

impl Content for Nothing {
    fn held(&self) -> u64 {
        0
    }

    fn counted(&self) -> u64 {
        1
    }

    fn log(&self, _: &TxBase, _: &mut Json, _: &AppLogOptions, _: LogFor) {}
}

/// Policies for the limit.
const ALL: u8 = 0;
const OLDEST: u8 = 1;
const WAIT: u8 = 2;
const FLOW: u8 = 3;
const AT_OPEN: u8 = 4;

/// The calls of the framework, and a full state.
#[derive(Debug, Default)]
struct Toy<const LIMIT: u8> {
    told: Vec<String>,
    fill: usize,
    /// Where the bytes begin that depend on the reply.
    mark: u64,
    /// The peer refused: a body is a message.
    refused: bool,
    /// The state is done after the data.
    done: bool,
    /// The state takes no message.
    full: bool,
}

impl<const LIMIT: u8> Conversation for Toy<LIMIT> {
    type Tx = Nothing;
    // Any protocol with a parser.
    const PROTO: AppProto = AppProto::Dcerpc;
    const RESUMES: bool = true;
    const LIMIT: Limit = match LIMIT {
        ALL => Limit::EndAll,
        OLDEST => Limit::EndOldest,
        FLOW => Limit::Flow,
        AT_OPEN => Limit::EndAtOpen,
        _ => Limit::Wait,
    };
    const TOO_MANY: Option<u8> = Some(0);

    fn new(_: &AppConfig, _: &FlowCore) -> Self {
        Toy::default()
    }

    fn arrives(&mut self, _: &mut Turn<'_, '_, Nothing>, _: Direction) {
        self.told.push("arrives".into());
    }

    fn framing(&mut self, _: Direction, data: &[u8], _: bool) -> Framing {
        let Some(&[kind, n, ..]) = data.first_chunk::<2>() else { return Framing::More };
        let n = u64::from(n - b'0');
        match kind {
            b'm' => Framing::Message(2 + n as usize),
            b'b' if self.refused => Framing::Message(2),
            b'b' => Framing::Body(2, n),
            // A body alone, and a head of which more follows.
            b'B' => Framing::Body(0, 2 + n),
            b'L' => Framing::Body(6, n),
            b'h' => Framing::Head(4, n),
            b'r' => Framing::Record(2, n),
            _ => Framing::Broken,
        }
    }

    fn framing_within(&mut self, dir: Direction, data: &[u8], left: u64, end: bool) -> Framing {
        self.told.push(format!("{} of {left}", data.len()));
        self.framing(dir, data, end)
    }

    fn waits(&mut self, turn: &mut Turn<'_, '_, Nothing>, _: Direction, data: &[u8]) -> Outcome {
        assert_eq!(data.len(), turn.len);
        self.told.push(format!("waits {}", data.len()));
        if data.ends_with(b"!") { Outcome::Failed } else { Outcome::More }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Nothing>, dir: Direction, message: &[u8]) -> Outcome {
        self.told.push(message.escape_ascii().to_string());
        if self.full {
            return Outcome::Full;
        }
        for byte in message {
            match byte {
                b'+' if LIMIT == AT_OPEN => {
                    turn.open_within(self, Nothing);
                }
                b'+' => {
                    turn.open(Nothing);
                }
                b'k' => self.mark = turn.keep(dir),
                b'l' => turn.body(dir, 3),
                b'y' if dir == ToClient => turn.settle(ToServer, self.mark),
                b'n' if dir == ToClient => {
                    let back = turn.take_back(ToServer, self.mark);
                    self.told.push(format!("back {back:?}"));
                    self.refused = true;
                    return Outcome::Resume;
                }
                _ => {}
            }
        }
        Outcome::More
    }

    fn ends(&mut self, _: &mut Turn<'_, '_, Nothing>, _: Direction) {
        self.told.push("ends".into());
    }

    fn handled(&mut self, _: &mut Turn<'_, '_, Nothing>, _: Direction) -> Outcome {
        if self.done { Outcome::Done } else { Outcome::More }
    }

    fn body(&mut self, _: &mut Turn<'_, '_, Nothing>, _: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        self.told.push(match piece {
            Piece::Data(data) => format!("{} {left}", data.escape_ascii()),
            Piece::Gap(len) => format!("gap {len} {left}"),
        });
        Outcome::More
    }

    fn resume(&mut self, _: Direction, data: &[u8], _: bool) -> Resume {
        match data.iter().position(|b| *b == b'm') {
            Some(0) => Resume::Here,
            at => Resume::Skip(at.unwrap_or(data.len())),
        }
    }

    fn gap(&mut self, _: &mut Turn<'_, '_, Nothing>, _: Direction, len: u64) -> Outcome {
        self.told.push(format!("lost {len}"));
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        4
    }

    fn fill(&self) -> usize {
        self.fill
    }

    fn freed(&mut self, shared: &mut Shared, tx: &mut Tx<Nothing>) {
        shared.counters.ftp_memory -= tx.content.counted().min(shared.counters.ftp_memory);
        self.told.push(format!("freed {}", tx.base.id));
    }

    fn overflows(&mut self, _: &mut Parse<'_>, tx: &mut Tx<Nothing>) {
        self.told.push(format!("overflow {}", tx.base.id));
    }
}

struct Run<const LIMIT: u8> {
    parser: MessageParser<Toy<LIMIT>>,
    config: AppConfig,
    flow: FlowCore,
    shared: Shared,
    left: Vec<u8>,
    outcome: Outcome,
}

impl<const LIMIT: u8> Run<LIMIT> {
    fn new(transport: u8) -> Self {
        let flow = FlowCore::new(1, transport, ([192, 0, 2, 1].into(), 4), ([192, 0, 2, 2].into(), 5), Time(0));
        let (state, sides) = (Toy::default(), Default::default());
        let parser = MessageParser { state, txs: TxList::default(), oldest: 0, sides, complete: [1; 2] };
        let (config, shared) = (AppConfig::default(), Shared::default());
        Run { parser, config, flow, shared, left: Vec::new(), outcome: Outcome::More }
    }

    fn with(&mut self, end: bool, f: impl FnOnce(&mut MessageParser<Toy<LIMIT>>, &mut Parse<'_>, &[u8]) -> Parsed) {
        let Run { parser, config, flow, shared, left, outcome } = self;
        let parsed = f(parser, &mut Parse { config, shared, flow, time: Time(0), end, inline: false }, left);
        left.drain(..parsed.consumed);
        *outcome = parsed.outcome;
    }

    fn say(&mut self, data: &[u8]) -> &mut Self {
        self.left.extend_from_slice(data);
        self.with(false, |parser, cx, left| parser.data(cx, ToServer, left));
        self
    }

    /// Bytes of the server, which it all consumes.
    fn answer(&mut self, data: &[u8]) -> &mut Self {
        let left = std::mem::replace(&mut self.left, data.to_vec());
        self.with(false, |parser, cx, left| parser.data(cx, ToClient, left));
        assert_eq!(std::mem::replace(&mut self.left, left), b"");
        self
    }

    fn finish(&mut self, ids: std::ops::Range<u64>) -> &mut Self {
        for id in ids {
            let tx = self.parser.txs.get_mut(id).expect("it is there");
            tx.finish(ToServer);
            tx.finish(ToClient);
        }
        self
    }

    fn end(&mut self) -> &mut Self {
        self.with(true, |parser, cx, left| parser.data(cx, ToServer, left));
        self
    }

    fn gap(&mut self, len: u64) -> &mut Self {
        self.with(false, |parser, cx, _| Parsed { consumed: 0, outcome: parser.gap(cx, ToServer, len) });
        self
    }

    /// The calls since the last time, apart from those for the arrival of data.
    fn told(&mut self) -> Vec<String> {
        let mut told = std::mem::take(&mut self.parser.state.told);
        told.retain(|t| t != "arrives" && !t.starts_with("waits"));
        told
    }

    /// Numbers of the transactions that ended because of the limit, and of all.
    fn ended(&self) -> (Vec<u64>, Vec<u64>) {
        let all: Vec<u64> = self.parser.txs().filter(|id| self.parser.tx(*id).is_some()).collect();
        let over = |id: &u64| self.parser.tx(*id).is_some_and(|tx| tx.base().events.has(0));
        (all.iter().copied().filter(over).collect(), all)
    }
}

#[test]
fn a_body_comes_in_pieces() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"b5abc").say(b"dem1xb2").say(b"yzm0");
    assert_eq!(run.told(), ["b5", "abc 2", "de 0", "m1x", "b2", "yz 0", "m0"]);
    // Without a message before it, or without any data.
    run.say(b"B1am2cdb0m0");
    assert_eq!(run.told(), ["B1a 0", "m2cd", "b0", "m0"]);
    // The head of a long message is complete first.
    run.say(b"L4ab").say(b"cdefg").say(b"hm0");
    assert_eq!((run.told(), run.left.len()), (["L4abcd", "efg 1", "h 0", "m0"].map(String::from).into(), 0));
    assert_eq!(run.outcome, Outcome::More);
}

#[test]
fn a_gap_in_a_body() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"b9abc").gap(2).say(b"fghim1x");
    assert_eq!(run.told(), ["b9", "abc 6", "gap 2 4", "fghi 0", "m1x"]);
    // Exactly its end: the next byte begins a message.
    run.say(b"b5abc").gap(2).say(b"m1y");
    assert_eq!(run.told(), ["b5", "abc 2", "gap 2 0", "m1y"]);
    // Beyond its end: the next message has to be found.
    run.say(b"b5abc").gap(9).say(b"??m1z");
    assert_eq!(run.told(), ["b5", "abc 2", "gap 2 0", "lost 7", "m1z"]);
    assert_eq!(run.left.len(), 0);
}

/// A gap in a message that waits for its end: the rest is skipped, with the bytes to skip and the body that follow it.
#[test]
fn a_gap_before_a_body() {
    for (begin, gap, rest) in [(&b"L4ab"[..], 3, &b"fgh"[..]), (b"h4a", 3, b"ef"), (b"m5ab", 1, b"de")] {
        let mut run = Run::<ALL>::new(6);
        run.say(begin).gap(gap).say(rest).say(b"m1x");
        assert_eq!(run.told().last().map(String::as_str), Some("m1x"), "{begin:?}");
        assert_eq!(run.told(), Vec::<String>::new());
    }
}

/// Bytes of a body that wait when a gap comes are part of it, because they come again without their place.
#[test]
fn a_gap_behind_waiting_bytes_of_a_body() {
    let mut run = Run::<OLDEST>::new(6);
    run.parser.sides[0] = Side { body: 12, waiting: 4, ..Side::default() };
    run.left = b"abcd".to_vec();
    run.gap(3).gap(1).say(b"ijklm1x");
    assert_eq!(run.told(), ["gap 7 5", "gap 1 4", "ijkl 0", "m1x"]);
    run.parser.sides[0] = Side { body: 6, waiting: 4, ..Side::default() };
    run.left = b"abcd".to_vec();
    run.gap(3).say(b"?m1x");
    assert_eq!(run.told(), ["gap 6 0", "lost 1", "m1x"]);
}

#[test]
fn a_gap_in_skipped_bytes_and_the_body_after_them() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"h2.l").gap(3).say(b"bcm0");
    assert_eq!(run.told(), ["h2.l", "gap 1 2", "bc 0", "m0"]);
}

#[test]
fn a_record_has_messages() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"r7m1xb2yzm0r0m0");
    assert_eq!(run.told(), ["r7", "7 of 7", "m1x", "4 of 4", "b2", "yz 0", "m0", "r0", "m0"]);
    run.say(b"r5m1").say(b"xm").say(b"0m0");
    assert_eq!(run.told(), ["r5", "2 of 5", "4 of 5", "m1x", "1 of 2", "2 of 2", "m0", "m0"]);
}

/// The rest of the record is skipped. Beyond the record, the next one has to be found.
#[test]
fn a_gap_in_a_record() {
    for (begin, gap, rest, told) in [
        (&b"r9m3a"[..], 2, &b"defg"[..], &["3 of 9", "lost 2"][..]),
        (b"r9m3a", 6, b"", &["3 of 9", "lost 6"]),
        (b"r9m3a", 7, b"??", &["3 of 9", "lost 7"]),
        (b"r9b3a", 4, b"hi", &["3 of 9", "b3", "a 2", "gap 2 0", "lost 2"]),
        (b"r9b3a", 7, b"?", &["3 of 9", "b3", "a 2", "gap 2 0", "lost 5"]),
        (b"r9b3a", 2, b"m2bc", &["3 of 9", "b3", "a 2", "gap 2 0", "4 of 4", "m2bc"]),
        (b"r9h3ab", 2, b"xm0", &["4 of 9", "h3ab", "2 of 2", "m0"]),
        (b"r9h3ab", 4, b"?", &["4 of 9", "h3ab", "lost 4"]),
    ] {
        let mut run = Run::<ALL>::new(6);
        run.say(begin).gap(gap).say(&[rest, b"m1x"].concat());
        assert_eq!(run.told(), [&["r9"], told, &["m1x"]].concat(), "{} {gap}", begin.escape_ascii());
    }
}

#[test]
fn at_the_limit_all_end() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"m4++++");
    assert_eq!((run.ended(), run.outcome), ((vec![], vec![0, 1, 2, 3]), Outcome::More));
    run.say(b"m1+");
    assert_eq!((run.ended().0, run.outcome, run.left.len()), (vec![0, 1, 2, 3], Outcome::Full, 3));
    (0..4).for_each(|id| run.parser.free_tx(&mut run.shared, id));
    run.say(b"");
    assert_eq!((run.ended(), run.left.len()), ((vec![], vec![4]), 0));
    // A body waits as well.
    run.say(b"m3+++b2xy");
    assert_eq!((run.outcome, run.left.len()), (Outcome::Full, 4));
}

#[test]
fn beyond_the_limit_the_oldest_end() {
    let mut run = Run::<OLDEST>::new(6);
    run.say(b"m4++++m2++");
    assert_eq!((run.ended().0, run.outcome), (vec![0, 1], Outcome::More));
    assert_eq!(run.told()[2..], ["overflow 0", "overflow 1"]);
    assert_eq!(run.shared.counters.tx_limit[AppProto::Dcerpc as usize], 2);
    // A message's own transactions do not end for each other.
    run.finish(2..6).say(b"m2++");
    assert_eq!(run.ended().0, [0, 1]);
    // At twice the limit the parser waits.
    run.say(b"m1+");
    assert_eq!((run.outcome, run.ended().0), (Outcome::Full, vec![0, 1, 6, 7]));
    (0..6).for_each(|id| run.parser.free_tx(&mut run.shared, id));
    run.say(b"");
    assert_eq!((run.outcome, run.ended().1), (Outcome::More, vec![6, 7, 8]));
    // The data that the state keeps counts towards the limit, too.
    run.parser.state.fill = 1;
    run.say(b"m1+");
    assert_eq!(run.ended().0, [6, 7, 8]);
    run.parser.state.fill = 2;
    run.say(b"m1+");
    assert_eq!(run.outcome, Outcome::Full);
}

/// In the same message, too.
#[test]
fn at_the_limit_a_new_one_ends_the_oldest() {
    let mut run = Run::<AT_OPEN>::new(6);
    run.answer(b"m0").say(b"m6++++++");
    assert_eq!((run.ended().0, run.outcome), (vec![0, 1], Outcome::More));
    assert_eq!(run.told()[1..], ["m6++++++", "overflow 0", "overflow 1"]);
    assert_eq!(run.shared.counters.tx_limit[AppProto::Dcerpc as usize], 2);
    // At twice the limit the parser waits.
    run.say(b"m2++m1+");
    assert_eq!((run.outcome, run.ended().0, run.left.len()), (Outcome::Full, vec![0, 1, 2, 3], 3));
    (0..5).for_each(|id| run.parser.free_tx(&mut run.shared, id));
    run.say(b"");
    assert_eq!((run.outcome, run.ended()), (Outcome::More, (vec![], vec![5, 6, 7, 8])));
    // The other side sends nothing.
    let mut run = Run::<AT_OPEN>::new(6);
    run.say(b"m6++++++");
    assert_eq!((run.ended(), run.outcome), ((vec![0, 1], vec![0, 1, 2, 3]), Outcome::Failed));
}

/// Datagrams cannot wait.
#[test]
fn beyond_the_limit_datagrams_are_dropped() {
    let mut run = Run::<OLDEST>::new(17);
    for n in 1..=12 {
        run.say(b"+");
        assert_eq!(run.ended().1.len(), n);
    }
    run.say(b"+");
    assert_eq!((run.ended().1.len(), run.outcome), (12, Outcome::More));
}

#[test]
fn at_the_limit_of_complete_ones_the_client_waits() {
    let mut run = Run::<WAIT>::new(6);
    run.say(b"m4++++");
    run.finish(0..4).say(b"m1+");
    assert_eq!((run.ended(), run.outcome), ((vec![], vec![0, 1, 2, 3]), Outcome::Full));
    assert_eq!(run.shared.counters.tx_limit[AppProto::Dcerpc as usize], 1);
    run.answer(b"m1x");
    assert_eq!((run.outcome, run.left.len()), (Outcome::More, 3));
    run.parser.free_tx(&mut run.shared, 0);
    // The latest one does not count while it is open.
    run.say(b"m1a");
    assert_eq!((run.outcome, run.ended()), (Outcome::More, (vec![], vec![1, 2, 3, 4])));
    run.finish(4..5).say(b"m1a");
    assert_eq!(run.outcome, Outcome::Full);
}

/// No transaction is over the limit, and one that is freed stays, without being offered again until it changes.
#[test]
fn a_transaction_of_the_flow_stays() {
    let mut run = Run::<FLOW>::new(6);
    run.parser.state.fill = 9;
    run.say(b"m1+").finish(0..1);
    run.parser.free_tx(&mut run.shared, 0);
    run.say(b"m1x");
    assert_eq!((run.ended(), run.outcome), ((vec![], vec![0]), Outcome::More));
    assert_eq!(run.parser.next_awake(0), None);
    run.finish(0..1);
    assert_eq!(run.parser.next_awake(0), Some(0));
}

#[test]
fn a_message_is_refused_early() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"m0m2!");
    assert_eq!((run.told(), run.outcome, run.left.len()), (vec!["m0".into()], Outcome::Failed, 3));
    let mut run = Run::<ALL>::new(6);
    run.say(b"m0!");
    assert_eq!((run.outcome, run.left.len()), (Outcome::Failed, 1));
}

/// It comes again once the state has room, and a body or bytes to skip follow it only then.
#[test]
fn a_message_that_finds_no_room() {
    for (data, told) in
        [(&b"m1xm0"[..], &["m1x", "m0"][..]), (b"b2yzm0", &["b2", "yz 0", "m0"]), (b"h2abcdm0", &["h2ab", "m0"])]
    {
        let mut run = Run::<ALL>::new(6);
        run.parser.state.full = true;
        run.say(data).say(b"");
        assert_eq!((run.told(), run.outcome, run.left.len()), (vec![told[0].into(); 2], Outcome::Full, data.len()));
        run.parser.state.full = false;
        run.say(b"");
        assert_eq!(
            (run.told(), run.outcome, run.left.len()),
            (told.iter().map(|t| (*t).into()).collect(), Outcome::More, 0)
        );
    }
}

/// The state learns which transaction is freed, with the counters of all flows.
#[test]
fn a_freed_transaction_is_uncounted() {
    let mut run = Run::<ALL>::new(6);
    run.shared.counters.ftp_memory = 5;
    run.say(b"m2++");
    run.parser.free_tx(&mut run.shared, 1);
    run.parser.free_tx(&mut run.shared, 1);
    assert_eq!((run.told(), run.shared.counters.ftp_memory), (vec!["m2++".into(), "freed 1".into()], 4));
    assert_eq!(run.parser.tx(0).map(Transaction::counted), Some(1));
}

/// With all complete messages of the data, or with its end.
#[test]
fn the_state_is_done_after_the_data() {
    let mut run = Run::<ALL>::new(6);
    run.parser.state.done = true;
    run.say(b"m0m1xm2y");
    assert_eq!((run.told(), run.outcome, run.left.len()), (["m0", "m1x"].map(String::from).into(), Outcome::Done, 3));
    let mut run = Run::<ALL>::new(6);
    run.parser.state.done = true;
    run.end();
    assert_eq!((run.told(), run.outcome), (vec!["ends".into()], Outcome::Done));
}

#[test]
fn a_message_announces_a_body() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"m1lab").say(b"cm0m1l").gap(5).say(b"?m0");
    assert_eq!(run.told(), ["m1l", "ab 1", "c 0", "m0", "m1l", "gap 3 0", "lost 2", "m0"]);
}

#[test]
fn the_beginning_and_the_end_of_a_message() {
    let mut run = Run::<ALL>::new(6);
    run.say(b"m1").say(b"xm2y").end();
    assert_eq!(run.parser.state.told, ["arrives", "waits 2", "arrives", "m1x", "waits 3", "arrives", "m2y", "ends"]);
    let mut run = Run::<ALL>::new(6);
    run.say(b"m");
    assert_eq!(run.parser.state.told, ["arrives", "waits 1"]);
    run.with(false, |parser, cx, _| {
        parser.truncated(cx, ToServer);
        Parsed::used(0)
    });
    assert_eq!(run.told(), ["ends"]);
}

#[test]
fn bytes_come_again_after_a_refusal() {
    let mut run = Run::<ALL>::new(6);
    run.answer(b"m0").say(b"m1km1ab3m9").answer(b"m1n");
    assert_eq!(run.told(), ["m0", "m1k", "m1a", "b3", "m9 1", "m1n", "back Some(7)", "m1a", "b3"]);
    assert_eq!(run.outcome, Outcome::Resume);
    // The rest of the stream continues them.
    run.say(b"abcdefghim0");
    assert_eq!(run.told(), ["m9abcdefghi", "m0"]);
    // After a grant nothing comes again, nor do bytes with a gap, or those before anything of the server.
    run.say(b"m1km1b").answer(b"m1y").answer(b"m1n");
    assert_eq!(run.told(), ["m1k", "m1b", "m1y", "m1n", "back None"]);
    run.say(b"m1km1c").gap(1).answer(b"m1n");
    assert_eq!(run.told().last().map(String::as_str), Some("back None"));
    let mut run = Run::<ALL>::new(6);
    run.say(b"m1km1a").answer(b"m1n");
    assert_eq!(run.told(), ["m1k", "m1a", "m1n", "back None"]);
    // The rest of a body that was refused is framed again, even if the bytes before it are gone.
    run.parser.state.refused = false;
    run.say(b"b9xx").answer(b"m1n").say(b"m1z");
    assert_eq!(run.told(), ["b9", "xx 7", "m1n", "back None", "m1z"]);
}
