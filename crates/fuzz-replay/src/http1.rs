//! The target `http1`: a conversation, fed in the script's own pieces, byte by byte, and in pieces of another size.
//!
//! Input: three bytes of options, then the script. In it `FF 3E` (`>`) begins bytes of the client and `FF 3C` (`<`) of the
//! server; `FF 7B` (`{`) is a hole in the client's bytes and `FF 7D` (`}`) in the server's, with the length in the next byte.
//! Any other byte stands for itself.

use margay_app::file::FileWants;
use margay_app::{
    AppConfig, AppLogOptions, AppProto, AppSession, LogFor, Outcome, Parse, Parser, Protocol, Shared, protocol,
};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_packet::Time;

use crate::talk::{Act, app_config, flow, log, same, script};

use margay_app::http1::SwfConfig;

/// Most bytes that a parser leaves with small limits. A chunk-size line may be that long with any limits.
const SMALL_FIELD: usize = 256;

fn config(options: [u8; 3]) -> AppConfig {
    let mut config = app_config();
    config.arguments = Some(Default::default());
    let [first, second, _] = options;
    let s = &mut config.http1.default;
    s.layers = [if first & 1 != 0 { 3 } else { 0 }, if first & 2 != 0 { 3 } else { 0 }];
    s.double_decode_path = first & 4 != 0;
    s.double_decode_query = first & 4 != 0;
    s.uri_include_all = first & 8 != 0;
    s.plus_as_space = first & 8 != 0;
    s.decompress.bomb = 64 << 10;
    s.decompress.work = 1 << 20;
    s.decompress.lzma_memory = 64 << 10;
    if first & 16 != 0 {
        s.swf = Some(SwfConfig { deflate: true, lzma: true, compress_depth: 0, decompress_depth: 64 << 10 });
    }
    if first & 32 != 0 {
        s.body_limit = [100, 100];
    }
    if first & 64 != 0 {
        for w in &mut s.window {
            (w.min, w.window) = (16, 8);
        }
    }
    config.http1.body_inline = Some(first & 128 != 0);
    if limited(options) {
        let s = &mut config.http1.default;
        s.field_limit = SMALL_FIELD as u32;
        s.headers_limit = 16;
        s.max_tx = 4;
        config.http1.memcap = 16 << 10;
        config.files.max_files = 4;
        config.files.window_limit = 1 << 10;
    }
    if second & 2 != 0 {
        config.files.force = FileWants { md5: true, sha256: true, ..FileWants::NONE };
    }
    config
}

/// Whether limits are small. The place at which they apply may depend on the pieces.
const fn limited(options: [u8; 3]) -> bool {
    options[1] & 1 != 0
}

fn proto() -> &'static Protocol {
    protocol(AppProto::Http1).expect("HTTP/1 has a parser")
}

fn shared() -> Shared {
    Shared::default()
}

/// A parser and its environment, fed as a session feeds it.
struct Talk<'a> {
    config: &'a AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    waiting: [Vec<u8>; 2],
    outcome: Outcome,
}

impl<'a> Talk<'a> {
    fn new(config: &'a AppConfig) -> Self {
        let flow = flow(6, 80);
        let parser = (proto().parser)(config, &flow);
        Talk { config, flow, shared: shared(), parser, waiting: [Vec::new(), Vec::new()], outcome: Outcome::More }
    }

    fn feed(&mut self, dir: Direction, data: &[u8], end: bool) {
        self.offer(dir, data, end);
        while self.outcome == Outcome::Resume {
            // The other direction's waiting data comes before the rest of this one.
            self.outcome = Outcome::More;
            self.offer(dir.reverse(), b"", false);
            self.offer(dir, b"", end);
        }
    }

    fn offer(&mut self, dir: Direction, data: &[u8], end: bool) {
        if self.outcome != Outcome::More {
            return;
        }
        let waiting = &mut self.waiting[dir.index()];
        waiting.extend_from_slice(data);
        let (config, flow) = (self.config, &self.flow);
        let mut cx = Parse { config, shared: &mut self.shared, flow, time: Time(0), end, inline: false };
        let parsed = self.parser.data(&mut cx, dir, waiting);
        assert!(parsed.consumed <= waiting.len(), "more used than there was");
        waiting.drain(..parsed.consumed);
        self.outcome = parsed.outcome;
    }

    fn end(&mut self) {
        self.feed(ToServer, b"", true);
        self.feed(ToClient, b"", true);
    }

    /// Number of complete responses.
    fn answered(&self) -> usize {
        let complete = proto().complete()[1];
        self.parser.txs().filter_map(|id| self.parser.tx(id)).filter(|t| t.base().progress[1] == complete).count()
    }
}

/// Collects everything that rules and logs can see of the transactions.
fn seen(parser: &dyn Parser, out: &mut Vec<String>) {
    let protocol = proto();
    for tx in parser.txs().filter_map(|id| parser.tx(id)) {
        out.push(format!("tx {} {:?}", tx.base().id, tx.base().progress));
        let mut events: Vec<_> = tx.base().events.as_slice().iter().map(|&e| protocol.events[usize::from(e)]).collect();
        events.sort_unstable();
        out.push(format!("{events:?}"));
        for def in protocol.buffers {
            for dir in [ToServer, ToClient] {
                for index in 0.. {
                    let mut scratch = Vec::new();
                    let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                    out.push(format!("{} {dir:?} {} {}", def.name, found.data.escape_ascii(), found.end));
                    if !def.kind.is_several() {
                        break;
                    }
                }
            }
        }
        for f in tx.base().files.all() {
            out.push(format!(
                "file {} {} {:?} {:?} {:?} {}",
                f.name().escape_ascii(),
                f.size(),
                f.state,
                f.range,
                f.sha256(),
                f.window.held().0.escape_ascii()
            ));
        }
        for what in [LogFor::Event, LogFor::Alert, LogFor::File] {
            let mut options = AppLogOptions::default();
            options.http.extended = true;
            options.http.dump_headers = [true; 2];
            out.push(log(tx, &options, what));
        }
        let _ = (tx.forwarded_for("x-forwarded-for", false), tx.forwarded_for("x-forwarded-for", true));
    }
}

/// Runs the script in pieces of `size`; 0 means the script's own pieces.
fn run(config: &AppConfig, acts: &[Act], size: usize) -> Vec<String> {
    let mut t = Talk::new(config);
    for act in acts {
        match act {
            Act::Bytes(dir, bytes) => {
                for piece in bytes.chunks(if size == 0 { usize::MAX } else { size }) {
                    t.feed(*dir, piece, false);
                }
            }
            Act::Gap(..) => return Vec::new(),
        }
    }
    t.end();
    // A body at its limit ends its file with the next data, or else the flow's end does.
    for id in t.parser.txs() {
        if let Some(tx) = t.parser.tx_mut(id) {
            tx.base_mut().files.finish(&mut t.shared.files, &config.files);
        }
    }
    let mut out = vec![format!("{:?}", t.outcome)];
    seen(&*t.parser, &mut out);
    let over = t.shared.counters.http_memcap + t.shared.files.counters.over_window;
    if over > 0 || out.iter().any(|l| l.contains("compression_bomb")) {
        return Vec::new();
    }
    for id in t.parser.txs() {
        t.parser.free_tx(&mut t.shared, id);
    }
    assert_eq!(t.shared.counters.http_memory, 0, "memory that is not given back");
    assert!(t.parser.txs().is_empty(), "transactions that are not freed");
    out
}

/// Whether bytes after the end of a response do not begin another one. The parser adds them to the body only if they arrive
/// together with the body's end, so the result depends on the pieces.
pub(crate) fn has_tail(config: &AppConfig, acts: &[Act]) -> bool {
    let mut t = Talk::new(config);
    let mut answered = 0;
    let mut rest: Vec<u8> = Vec::new();
    let mut ends = false;
    for act in acts {
        let Act::Bytes(dir, bytes) = act else { return true };
        for byte in bytes {
            t.feed(*dir, &[*byte], false);
            if *dir != ToClient {
                continue;
            }
            if ends {
                rest.push(*byte);
                let n = rest.len().min(4);
                if !rest[..n].eq_ignore_ascii_case(&b"HTTP"[..n]) {
                    return true;
                }
                ends = n < 4;
            }
            let now = t.answered();
            if now > answered {
                answered = now;
                rest.clear();
                ends = true;
            }
        }
    }
    // `HTT` at the end is not yet a response.
    ends && !rest.is_empty()
}

/// The same as in the engine: transactions are inspected after every piece, and freed when complete or randomly before.
fn session(config: &AppConfig, acts: &[Act], inline: bool, dice: u8) {
    let (mut session, mut shared, flow) = (AppSession::default(), shared(), flow(6, 80));
    let mut waiting = [Vec::new(), Vec::new()];
    let (mut fed, mut dice) = (0, u32::from(dice));
    let complete = proto().complete();
    let ends = [Act::Bytes(ToServer, Vec::new()), Act::Bytes(ToClient, Vec::new())];
    for (n, act) in acts.iter().chain(&ends).enumerate() {
        let end = n >= acts.len();
        let (dir, bytes) = match act {
            Act::Bytes(dir, bytes) => (*dir, &bytes[..]),
            Act::Gap(dir, len) => {
                waiting[dir.index()].clear();
                let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline };
                session.gap(&mut cx, *dir, *len);
                continue;
            }
        };
        fed += bytes.len();
        waiting[dir.index()].extend_from_slice(bytes);
        for dir in [dir, dir.reverse()] {
            let held = &mut waiting[dir.index()];
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline };
            for _ in 0..16 {
                let said = session.data(&mut cx, dir, held);
                assert!(said.consumed <= held.len(), "more used than there was");
                held.drain(..said.consumed);
                if !said.again {
                    break;
                }
            }
        }
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut txs = 0;
        for parser in session.parsers_mut() {
            for id in parser.txs() {
                let Some(tx) = parser.tx_mut(id) else { continue };
                for dir in [ToServer, ToClient] {
                    let mut scratch = Vec::new();
                    for def in proto().buffers {
                        scratch.clear();
                        let _ = tx.buffer(def.id, dir, 0, &mut scratch);
                    }
                    tx.inspected(dir);
                }
                txs += 1;
                if tx.base().progress == complete || dice >> 24 == 0 {
                    parser.free_tx(&mut shared, id);
                }
            }
        }
        if dice >> 28 == 1 {
            let mut cx = Parse { config, shared: &mut shared, flow: &flow, time: Time(0), end, inline };
            session.truncate(&mut cx, dir);
        }
        session.tidy();
        let limits = config.http1.default.window.iter().map(|w| (w.min + w.window) as usize).sum::<usize>();
        // Its own limits bound the decompression of a piece, and the body's limits that of a body.
        let most = 8 * fed + txs * (8192 + 2 * limits) + (4 << 20);
        assert!(shared.counters.http_memory <= most as u64, "{} of {fed}", shared.counters.http_memory);
    }
    for parser in session.parsers_mut() {
        for id in parser.txs() {
            parser.free_tx(&mut shared, id);
        }
    }
    session.tidy();
    assert_eq!(shared.counters.http_memory, 0, "memory that is not given back");
    // The answer may be of another protocol: the transaction of SSH lasts as long as the connection.
    let http = session.parsers().iter().filter(|p| p.proto() == AppProto::Http1);
    assert!(http.into_iter().all(|p| p.txs().is_empty()), "transactions that are not freed");
}

/// An HTTP/1 conversation: see the top of this file. The first two bytes have options, and the third is the size of pieces.
pub fn http1(data: &[u8]) {
    let [first, second, size, script_bytes @ ..] = data else { return };
    let options = [*first, *second, *size];
    let config = config(options);
    let acts = script(script_bytes);
    session(&config, &acts, options[1] & 4 != 0, *size);
    if acts.iter().any(|a| matches!(a, Act::Gap(..))) || limited(options) || has_tail(&config, &acts) {
        return;
    }
    let whole = run(&config, &acts, 0);
    for size in [1, usize::from(*size) + 1] {
        let split = run(&config, &acts, size);
        if whole.is_empty() || split.is_empty() {
            continue;
        }
        same(&whole, &split, size);
    }
}
