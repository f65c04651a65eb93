//! Runs captures through the flow table and the stream engine and prints the counters: one `name value` per line below a
//! line with the file's name. `-v` also prints each stream event with its packet's number, and each ended flow.

use std::path::Path;
use std::time::SystemTime;

use margay_capture::{CaptureSource, DirOptions, Event};
use margay_flow::{Direction, Flow, FlowConfig, FlowTable, Lookup};
use margay_packet::{DecodeConfig, Decoder, Packet};
use margay_stream::{AppData, StreamConfig, StreamEngine, TcpSession};

struct Run {
    table: FlowTable<Option<Box<TcpSession>>>,
    engine: StreamEngine,
    verbose: bool,
}

impl Run {
    fn packet(&mut self, packet: &Packet<'_>) {
        while !self.table.expire(packet.time, 64, &mut |f, r| ended(&mut self.engine, f, r.name(), self.verbose)) {}
        let Some(key) = self.table.key(packet, 0) else { return };
        let engine = &mut self.engine;
        let verbose = self.verbose;
        let mut on_end = |f: Flow<_>, r: margay_flow::EndReason| ended(engine, f, r.name(), verbose);
        let mut fresh = false;
        let (mut at, mut direction) = match self.table.lookup(packet, &key, || None, &mut on_end) {
            Lookup::Found(at, d) => (at, d),
            Lookup::Created(at) => {
                fresh = true;
                (at, Direction::ToServer)
            }
            Lookup::Unrelated | Lookup::NoMemory => return,
        };
        if packet.is_tcp() {
            let Some(flow) = self.table.get_mut(at) else { return };
            if verbose {
                let state = flow.ext.as_ref().map_or("-", |s| s.state().name());
                println!("state {} {} {state}", packet.number, direction.index());
            }
            let mut out = self.engine.process(&mut flow.ext, packet, direction, fresh);
            if out.reuse {
                let engine = &mut self.engine;
                let mut on_end = |f: Flow<_>, r: margay_flow::EndReason| ended(engine, f, r.name(), verbose);
                let Some(new) = self.table.replace(at, packet, &key, || None, &mut on_end) else { return };
                (at, direction) = (new, Direction::ToServer);
                let Some(flow) = self.table.get_mut(at) else { return };
                out = self.engine.process(&mut flow.ext, packet, direction, true);
            }
            if out.swap {
                self.table.swap(at);
                direction = Direction::ToClient;
            }
            if let Some(state) = out.state {
                self.table.set_state(at, state);
            }
            if verbose {
                for e in out.events.as_slice() {
                    println!("event {} {}", packet.number, e.name());
                }
            }
            if let Some(Flow { ext: Some(session), .. }) = self.table.get_mut(at) {
                for d in [Direction::ToServer, Direction::ToClient] {
                    if out.new_data[d.index()] || out.flush {
                        read(session, d, out.flush);
                    }
                }
                self.engine.account(session);
            }
        }
        self.table.update(at, packet, &key, direction);
    }
}

fn read(session: &mut TcpSession, d: Direction, all: bool) {
    if all {
        session.finish_streams();
    }
    while let Some(data) = session.app_data(d, all) {
        let n = match data {
            AppData::Data { bytes, .. } => bytes.len() as u64,
            AppData::Gap(n) => n,
        };
        session.app_consume(d, n);
    }
    while let Some(chunk) = session.raw_chunk(d, all) {
        let end = chunk.offset + chunk.data.len() as u64;
        session.raw_done(d, end);
    }
}

fn ended(engine: &mut StreamEngine, mut flow: Flow<Option<Box<TcpSession>>>, reason: &str, verbose: bool) {
    let mut state = "-";
    if let Some(session) = &mut flow.ext {
        state = session.state().name();
        for d in [Direction::ToServer, Direction::ToClient] {
            if session.needs_flush(d) {
                engine.counters.pseudo += 1;
                read(session, d, true);
            }
        }
        engine.account(session);
        engine.end(session);
    }
    if verbose {
        let c = &flow.core;
        println!(
            "flow {} {} {} {} {} {} {} {:?} {state} {reason}",
            c.src, c.sport, c.dst, c.dport, c.proto, c.pkts[0], c.pkts[1], c.state
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut verbose = false;
    let mut config = StreamConfig { checksum_validation: false, ..StreamConfig::default() };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "-v" => verbose = true,
            "-m" => config.midstream = true,
            "-a" => config.async_oneside = true,
            "-i" => config.inline = true,
            file => one(file, verbose, &config)?,
        }
    }
    Ok(())
}

fn one(file: &str, verbose: bool, config: &StreamConfig) -> Result<(), Box<dyn std::error::Error>> {
    println!("file {file}");
    let mut source = CaptureSource::open(Path::new(file), DirOptions::default(), None)?;
    let mut decoder = Decoder::new(DecodeConfig { ignore_checksums: true, ..DecodeConfig::default() });
    let mut run =
        Run { table: FlowTable::new(FlowConfig::default()), engine: StreamEngine::new(config.clone()), verbose };
    loop {
        match source.next_event(256, SystemTime::now) {
            Event::Batch(batch) => {
                for frame in batch.iter() {
                    decoder.decode(&frame, &mut |p: &Packet<'_>| run.packet(p));
                }
            }
            Event::FileEnd(end) => {
                if let Some(error) = end.error {
                    eprintln!("{file}: {error}");
                }
            }
            Event::Failed { error, .. } => eprintln!("{file}: {error}"),
            Event::Wait(time) => std::thread::sleep(time),
            Event::Done => break,
            _ => {}
        }
    }
    run.table.drain(&mut |f, r| ended(&mut run.engine, f, r.name(), verbose));
    let mut print = |name: &str, value: u64| {
        if value != 0 {
            println!("{name} {value}");
        }
    };
    run.engine.counters.for_each(&mut print);
    run.table.counters.for_each(&mut print);
    Ok(())
}
