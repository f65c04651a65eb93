//! The ground truth of a capture: one JSON object on a line for each conversation, in `NAME.truth.jsonl` beside the capture.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::build::Built;
use super::cases::{Case, Must};
use crate::problem::{Outcome, Problem};

/// One conversation.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub(super) struct Truth {
    /// Its number, from which its addresses follow.
    pub(super) n: u32,
    /// The name of the case.
    pub(super) attack: String,
    pub(super) must: Must,
    /// The first rule against it and the number of rules; 0 if none is known.
    pub(super) sid: u32,
    pub(super) rules: u32,
    pub(super) class: String,
    pub(super) technique: Vec<String>,
    pub(super) file: String,
    /// How to find its packets: always `addresses`.
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
    /// The conversation as readable text.
    pub(super) text: String,
}

fn time(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

impl Truth {
    /// Describes a conversation that begins at `start`, in nanoseconds since 1970.
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

/// The path of a capture's ground truth.
pub(super) fn beside(capture: &Path) -> PathBuf {
    capture.with_extension("truth.jsonl")
}

/// Reads a capture's ground truth.
///
/// # Errors
/// If it does not exist, or a line is invalid.
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
