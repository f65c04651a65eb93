//! NFS, versions 2 (RFC 1094), 3 (RFC 1813) and 4 (RFC 7530, RFC 8881), over ONC RPC (RFC 5531). A call with its reply is a
//! transaction. All reads of a file are one transaction, and so are all its writes.

mod calls;
mod compound;
mod frames;
mod names;
mod parser;
mod rpc;
mod tx;
mod xdr;

use margay_flow::Direction;

use crate::bytes::be32;
use crate::declare::{Keyword, KeywordDirection, NumberCondition, Protocol, Setting, Unit};
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP, UDP};

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:nfs.NAME`).

    events! { "NFS";
        MalformedData "malformed_data";
        NonexistingVersion "nonexisting_version";
        // Never raised: all existing versions are parsed.
        UnsupportedVersion "unsupported_version";
        TooManyTransactions "too_many_transactions";
    }
}

keywords! {
    // Known with the call, while the data of a write may follow for long.
    Version Keyword::own(&["nfs.version", "nfs_version"], version, KeywordDirection::ToServer).from(0);
    Procedure Keyword::own(&["nfs_procedure"], procedure, KeywordDirection::ToServer).from(0);
}

/// Marks the number of a procedure's name, in contrast to a procedure number.
const NAMED: u64 = 1 << 32;

/// Reads a comparison.
fn version(text: &str) -> Result<NumberCondition, String> {
    Ok(NumberCondition::Compare { text: inclusive(text.trim())?, max: u64::from(u32::MAX) })
}

/// Reads a name, or a comparison.
fn procedure(text: &str) -> Result<NumberCondition, String> {
    let text = text.trim();
    let (name, not) = text.strip_prefix('!').map_or((text, ""), |n| (n.trim(), "!"));
    if let Some(word) = names::word(name) {
        return Ok(NumberCondition::Tagged { tag: 1, text: Some(format!("{not}{word}")) });
    }
    Ok(NumberCondition::Tagged { tag: 0, text: Some(inclusive(text)?) })
}

/// Rewrites a range in the syntax of the other integer keywords: ranges of NFS numbers include their ends, all others exclude them.
fn inclusive(text: &str) -> Result<String, String> {
    let number = |t: &str| match t.trim().strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => t.trim().parse().ok(),
    };
    let range = text.split_once("<>").or_else(|| text.split_once('-'));
    Ok(match range.and_then(|(a, b)| Some((number(a)?, number(b)?))) {
        Some((a, b)) if a > b => {
            return Err(format!("\"{text}\" ends before it begins; write the lower number first"));
        }
        Some((a, b)) if a == b => a.to_string(),
        Some((0, b)) => format!("<={b}"),
        Some((a, u32::MAX)) => format!(">={a}"),
        Some((a, b)) => format!("{}-{}", a - 1, b + 1),
        None => text.to_owned(),
    })
}

const MAX_TX: usize = 0;
const MAX_WRITE_QUEUE_SIZE: usize = 1;
const MAX_WRITE_QUEUE_CNT: usize = 2;
const MAX_READ_QUEUE_SIZE: usize = 3;
const MAX_READ_QUEUE_CNT: usize = 4;

/// NFS.
pub static PROTOCOL: Protocol = Protocol {
    packet_addresses: true,
    settings: &[
        Setting {
            key: "max-tx",
            unit: Unit::Count,
            default: 1024,
            about: "Most transactions of a flow that are not complete, and most calls that wait for a reply.",
        },
        Setting {
            key: "max-write-queue-size",
            unit: Unit::Bytes,
            default: 64 << 20,
            about: "Most bytes of a flow's writes that wait for what is before them in the file; 0 for any number. With more they wait no longer: what is missing is a hole in the file.",
        },
        Setting {
            key: "max-write-queue-cnt",
            unit: Unit::Count,
            default: 64,
            about: "Most writes of a flow that wait; 0 for any number.",
        },
        Setting {
            key: "max-read-queue-size",
            unit: Unit::Bytes,
            default: 64 << 20,
            about: "Most bytes of a flow's reads that wait for what is before them in the file; 0 for any number.",
        },
        Setting {
            key: "max-read-queue-cnt",
            unit: Unit::Count,
            default: 64,
            about: "Most reads of a flow that wait; 0 for any number.",
        },
    ],
    recognition: Recognition {
        patterns: &[],
        probes: &[
            Probe { transport: TCP, ports: &[2049], probe: probe_tcp },
            Probe { transport: UDP, ports: &[2049], probe: probe_udp },
        ],
    },
    parser: crate::conversation::parser::<parser::Nfs>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    frames: &[
        "rpc.pdu",
        "rpc.hdr",
        "rpc.data",
        "rpc.creds",
        "nfs.pdu",
        "nfs.status",
        "nfs4.pdu",
        "nfs4.hdr",
        "nfs4.ops",
        "nfs4.status",
    ],
    events: events::NAMES,
    ..Protocol::new(AppProto::Nfs, "nfs").logged()
};

/// ONC RPC (RFC 5531 section 9): a call of NFS, or a reply.
fn probe(message: &[u8]) -> Probed {
    let yes_if = |is| if is { Probed::Yes { reverse: false } } else { Probed::No };
    let Some(kind) = be32(message, 4) else { return Probed::More };
    match kind {
        0 => match (be32(message, 8), be32(message, 12), be32(message, 16)) {
            (Some(rpc), Some(program), Some(version)) => {
                yes_if(rpc == 2 && program == 100_003 && (2..=4).contains(&version))
            }
            _ => Probed::More,
        },
        1 => match be32(message, 8) {
            Some(status) => yes_if(status <= 1),
            None => Probed::More,
        },
        _ => Probed::No,
    }
}

/// NFS over UDP. The null procedure (0) does not identify NFS.
fn probe_udp(_: Direction, data: &[u8]) -> Probed {
    let least = if be32(data, 4) == Some(0) { 40 } else { 24 };
    if data.len() > least { probe(data) } else { Probed::No }
}

/// NFS over TCP: after a record mark (RFC 5531 section 11).
fn probe_tcp(_: Direction, data: &[u8]) -> Probed {
    match be32(data, 0) {
        None => Probed::More,
        Some(mark) if mark & 0x7fff_ffff < 12 => Probed::No,
        Some(_) => probe(data.get(4..).unwrap_or(&[])),
    }
}

#[cfg(test)]
mod tests;
