//! Runs a conversation through the HTTP/1 parser and prints the transactions with their buffers, files and events.
//!
//! `http SCRIPT` reads lines: `>` and `<` are followed by hexadecimal bytes of the client and of the server, `G>` and `G<` by
//! the length of a gap. `http CLIENT SERVER` reads two files: the client's data, and the server's data. With `-1` as first
//! argument, bytes are sent one at a time.

use std::env;
use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use margay_app::config::AppConfig;
use margay_app::{AppLogOptions, AppProto, LogFor, Parse, Parser, Shared, Transaction, protocol};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;

/// A step of a conversation.
enum Event {
    Data(Direction, Vec<u8>),
    Gap(Direction, u64),
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = env::args().skip(1).collect();
    let single = args.first().is_some_and(|a| a == "-1");
    if single {
        args.remove(0);
    }
    let events = match args.as_slice() {
        [script] => read(&fs::read_to_string(script)?)?,
        [client, server] => {
            vec![
                Event::Data(Direction::ToServer, fs::read(client)?),
                Event::Data(Direction::ToClient, fs::read(server)?),
            ]
        }
        _ => return Err("usage: http [-1] SCRIPT | http [-1] CLIENT SERVER".into()),
    };
    run(&events, if single { 1 } else { usize::MAX })
}

fn read(script: &str) -> Result<Vec<Event>, Box<dyn Error>> {
    let mut out = Vec::new();
    for line in script.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (gap, rest) = line.strip_prefix('G').map_or((false, line), |r| (true, r));
        let (dir, rest) = match rest.split_at_checked(1) {
            Some((">", r)) => (Direction::ToServer, r.trim()),
            Some(("<", r)) => (Direction::ToClient, r.trim()),
            _ => return Err(format!("a line begins with >, <, G> or G<: {line}").into()),
        };
        out.push(if gap { Event::Gap(dir, rest.parse()?) } else { Event::Data(dir, bytes(rest)?) });
    }
    Ok(out)
}

fn bytes(hex: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|p| Ok(u8::from_str_radix(std::str::from_utf8(p)?, 16)?)).collect()
}

fn run(events: &[Event], piece: usize) -> Result<(), Box<dyn Error>> {
    let protocol = protocol(AppProto::Http1).ok_or("HTTP/1 has no parser")?;
    let config = AppConfig::default();
    let client = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let server = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    let flow = flow(client, server);
    let mut shared = Shared::default();
    let mut parser = (protocol.parser)(&config, &flow);
    let mut waiting = [Vec::new(), Vec::new()];
    let mut feed = |shared: &mut Shared, parser: &mut dyn Parser, dir: Direction, data: &[u8], end: bool| {
        let mut cx = Parse { config: &config, shared, flow: &flow, time: Time::default(), end, inline: false };
        let Some(left) = waiting.get_mut(dir.index()) else { return };
        left.extend_from_slice(data);
        let parsed = parser.data(&mut cx, dir, left);
        left.drain(..parsed.consumed);
        if parsed.outcome != margay_app::Outcome::More {
            println!("{dir:?}: {:?} with {} bytes left", parsed.outcome, left.len());
        }
    };
    for event in events {
        match event {
            Event::Data(dir, data) => {
                for chunk in data.chunks(piece.min(data.len()).max(1)) {
                    feed(&mut shared, parser.as_mut(), *dir, chunk, false);
                }
            }
            Event::Gap(dir, len) => {
                let mut cx = Parse {
                    config: &config,
                    shared: &mut shared,
                    flow: &flow,
                    time: Time::default(),
                    end: false,
                    inline: false,
                };
                println!("{dir:?}: gap of {len}: {:?}", parser.gap(&mut cx, *dir, *len));
            }
        }
    }
    for dir in [Direction::ToServer, Direction::ToClient] {
        feed(&mut shared, parser.as_mut(), dir, b"", true);
    }
    for id in parser.txs() {
        if let Some(tx) = parser.tx(id) {
            show(protocol, tx);
        }
    }
    Ok(())
}

/// A flow of TCP to port 80.
fn flow(src: IpAddr, dst: IpAddr) -> FlowCore {
    FlowCore { state: FlowState::Established, ..FlowCore::new(1, 6, (src, 40_000), (dst, 80), Time(0)) }
}

fn show(protocol: &margay_app::Protocol, tx: &dyn Transaction) {
    let base = tx.base();
    println!("transaction {} progress {:?}", base.id, base.progress);
    for &e in base.events.as_slice() {
        println!("  event {}", protocol.events.get(usize::from(e)).unwrap_or(&"?"));
    }
    for def in protocol.buffers {
        for dir in [Direction::ToServer, Direction::ToClient] {
            for index in 0..usize::MAX {
                let mut scratch = Vec::new();
                let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
                println!("  {} {dir:?} {}", def.name, found.data.escape_ascii());
                if !def.kind.is_several() {
                    break;
                }
            }
        }
    }
    for f in base.files.all() {
        println!("  file {} size {} {:?} to_client {}", f.name().escape_ascii(), f.size(), f.state, f.to_client);
    }
    let mut json = Json::new();
    let mut options = AppLogOptions::default();
    options.http.extended = true;
    json.item_object();
    tx.log(&mut json, &options, LogFor::Event);
    json.end_object();
    println!("  log {}", String::from_utf8_lossy(json.as_bytes()));
}
