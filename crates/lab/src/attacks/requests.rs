//! Recorded HTTP requests: one JSON object on each line.
//!
//! `request` is the request in base64, and `label` is `attack` or `benign`. `id` and `class` name it; `technique` is a list.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::build::Conversation;
use super::cases::{Case, Must};
use crate::problem::{Outcome, Problem};

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    id: String,
    label: Label,
    #[serde(default)]
    class: String,
    #[serde(default)]
    technique: Vec<String>,
    request: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Label {
    Attack,
    Benign,
}

/// Reads the requests of a file, which may be compressed (`.gz`).
///
/// # Errors
/// If it cannot be read, or a line is invalid. The error names the line.
pub(super) fn read(path: &Path) -> Outcome<Vec<Case>> {
    let file = File::open(path).map_err(|error| Problem::file("read", path, error))?;
    let zipped = path.extension().is_some_and(|ending| ending == "gz");
    let input: Box<dyn Read> = if zipped { Box::new(flate2::read::MultiGzDecoder::new(file)) } else { Box::new(file) };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut cases = Vec::new();
    for (n, text) in BufReader::new(input).lines().enumerate() {
        let text = text.map_err(|error| Problem::file("read", path, error))?;
        if text.trim().is_empty() {
            continue;
        }
        let wrong = |why: &dyn std::fmt::Display| Problem::Usage(format!("{}:{}: {why}", path.display(), n + 1));
        let line: Line = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        let request = STANDARD.decode(&line.request).map_err(|error| wrong(&format!("request: {error}")))?;
        cases.push(Case {
            name: if line.id.is_empty() { format!("{name}:{}", n + 1) } else { line.id },
            sid: 0,
            rules: 0,
            must: if matches!(line.label, Label::Attack) { Must::Stop } else { Must::Pass },
            class: line.class,
            techniques: line.technique,
            file: name.clone(),
            conversation: Conversation::Request(request),
        });
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_and_says_which_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let good = "{\"id\":\"a\",\"label\":\"attack\",\"class\":\"sqli\",\"source\":\"x\",\"request\":\"R0VUIC8=\"}\n";
        std::fs::write(&path, format!("{good}\n{{\"label\":\"benign\",\"request\":\"R0VUIC8=\"}}\n")).unwrap();
        let cases = read(&path).unwrap();
        assert_eq!((cases.len(), cases[0].class.as_str(), cases[0].must), (2, "sqli", Must::Stop));
        assert_eq!((cases[1].name.as_str(), cases[1].must), ("r.jsonl:3", Must::Pass));
        assert!(matches!(&cases[0].conversation, Conversation::Request(r) if r == b"GET /"));
        for wrong in ["{}", "{\"label\":\"x\",\"request\":\"\"}", "{\"label\":\"attack\",\"request\":\"*\"}"] {
            std::fs::write(&path, format!("{good}{wrong}\n")).unwrap();
            let problem = read(&path).unwrap_err().to_string();
            assert!(problem.contains("r.jsonl:2: "), "{problem}");
        }
    }
}
