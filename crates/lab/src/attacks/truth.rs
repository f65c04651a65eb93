//! What a capture holds: a line of JSON for each conversation, beside the capture as `NAME.truth.jsonl`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::build::Built;
use super::cases::{Case, Must};
use crate::problem::{Outcome, Problem};

/// One conversation.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Truth {
    /// Its number, which its addresses have too.
    pub(super) n: u32,
    /// What it is called.
    pub(super) attack: String,
    pub(super) must: Must,
    /// The rules against it: the first one, and how many; 0 where none is known.
    pub(super) sid: u32,
    pub(super) rules: u32,
    pub(super) class: String,
    pub(super) technique: Vec<String>,
    pub(super) file: String,
    /// Its packets are known by their addresses.
    #[serde(rename = "match")]
    pub(super) by: String,
    pub(super) start: String,
    pub(super) end: String,
    pub(super) proto: u8,
    pub(super) src_ip: IpAddr,
    pub(super) src_port: u16,
    pub(super) dest_ip: IpAddr,
    pub(super) dest_port: u16,
    pub(super) packets: u64,
    /// The conversation as a text for people.
    pub(super) text: String,
}

fn time(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

impl Truth {
    /// Of a conversation that begins at `start` nanoseconds since 1970.
    pub(super) fn of(n: u32, case: &Case, built: &Built, start: u64) -> Truth {
        Truth {
            n,
            attack: case.name.clone(),
            must: case.must,
            sid: case.sid,
            rules: case.rules,
            class: case.class.clone(),
            technique: case.techniques.clone(),
            file: case.file.clone(),
            by: "addresses".to_owned(),
            start: time(start),
            end: time(start + built.frames.last().map_or(0, |raw| raw.at)),
            proto: built.proto,
            src_ip: built.client.0,
            src_port: built.client.1,
            dest_ip: built.server.0,
            dest_port: built.server.1,
            packets: built.frames.len() as u64,
            text: case.conversation.text(),
        }
    }
}

/// Where the truth of a capture is.
pub(super) fn beside(capture: &Path) -> PathBuf {
    capture.with_extension("truth.jsonl")
}

/// Reads the truth of a capture.
///
/// # Errors
/// Where it is not there, or cannot be understood.
pub(super) fn read(capture: &Path) -> Outcome<Vec<Truth>> {
    let path = beside(capture);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Problem::Usage(format!(
            "cannot read {}: {error}; `margay lab attacks make` writes it beside the capture",
            path.display()
        ))
    })?;
    let line = |(n, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| Problem::Usage(format!("{}:{}: {error}", path.display(), n + 1)))
    };
    text.lines().enumerate().map(line).collect()
}
