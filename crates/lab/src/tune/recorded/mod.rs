//! Recorded machines: the files of `/sys` and `/proc` that discovery reads, and the answers of the cards, as one text.
//!
//! ```text
//! # a comment
//! /path = text
//! /path -> target of a symbolic link
//! /path/                                   a folder
//! /path <<                                 a text of several lines,
//!   which are indented
//! /cpu{0-3,8}/siblings = {n},{n+4}         one for each number; in a second list of the path it is called {m}
//! [card eth1]                              what ethtool would say; see `card/made_up.rs`
//! ```
//!
//! `margay tune discover --record FILE` writes such a text, `--on FILE` reads it.

use super::card::made_up::MadeUp;
use super::list;

/// Most lines that ranges may expand to.
const MOST: usize = 1_000_000;

/// Parses a recorded machine.
///
/// # Errors
/// A sentence that names the invalid line.
pub(crate) fn read(text: &str) -> Result<MadeUp, String> {
    let machine = MadeUp::default();
    let mut card: Option<String> = None;
    let mut lines = text.lines().enumerate().peekable();
    let mut made = 0;
    while let Some((at, line)) = lines.next() {
        let wrong = |why: &str| format!("line {}: {why}: {line}", at + 1);
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("[card ").and_then(|rest| rest.strip_suffix(']')) {
            card = Some(name.trim().to_owned());
            continue;
        }
        if let Some(name) = card.as_deref().filter(|_| !line.starts_with('/')) {
            machine.describe(name, line).map_err(|why| wrong(&why))?;
            continue;
        }
        if !line.starts_with('/') {
            return Err(wrong("neither a path nor a card"));
        }
        let (path, kind, value) = if let Some(path) = line.strip_suffix(" <<") {
            let mut value = String::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("  ")) {
                value += &format!("{}\n", &line[2..]);
            }
            (path, '=', value)
        } else if let Some((path, target)) = line.split_once(" -> ") {
            (path, '>', target.to_owned())
        } else if let Some((path, value)) = line.split_once(" =") {
            (path, '=', format!("{}\n", value.trim()))
        } else if let Some(path) = line.strip_suffix('/') {
            (path, '/', String::new())
        } else {
            return Err(wrong("neither = nor -> nor << nor a folder"));
        };
        expand(path, &value, &["n", "m"], &mut |path, value| {
            made += 1;
            if made > MOST {
                return Err(format!("more than {MOST} files"));
            }
            match kind {
                '=' => machine.tree.set(path, value),
                '>' => machine.tree.set_link(path, value),
                _ => machine.tree.set_folder(path),
            }
            Ok(())
        })
        .map_err(|why| wrong(&why))?;
    }
    machine.complete();
    Ok(machine)
}

/// Calls a function with every path that a path with lists expands to, and with its value.
fn expand(
    path: &str,
    value: &str,
    variables: &[&str],
    each: &mut dyn FnMut(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let braces = path.match_indices('{').find(|(at, _)| path[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    let Some((open, _)) = braces else { return each(path, value) };
    let close = open + path[open..].find('}').ok_or("a list that does not end")?;
    let [variable, rest @ ..] = variables else { return Err("more than two lists in a path".to_owned()) };
    for n in list::parse(&path[open + 1..close]) {
        let path = format!("{}{n}{}", &path[..open], substituted(&path[close + 1..], variable, n)?);
        expand(&path, &substituted(value, variable, n)?, rest, each)?;
    }
    Ok(())
}

/// Replaces `{n}`, `{n+4}` and `{n-4}`.
fn substituted(text: &str, variable: &str, n: usize) -> Result<String, String> {
    let open = format!("{{{variable}");
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&open) {
        out += &rest[..at];
        let term = &rest[at + open.len()..];
        let end = term.find('}').ok_or("a term that does not end")?;
        let by = if end == 0 { 0 } else { term[..end].parse::<i64>().map_err(|_| "an invalid term")? };
        out += &(n as i64 + by).to_string();
        rest = &term[end + 1..];
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::tree::Tree;

    #[test]
    fn lists_stand_for_many_files() {
        let text = "# two cores\n/cpu{0-1}/siblings = {n},{n+2}\n/cpu{2-3}/siblings = {n-2},{n}\n\
                    /cpu{0,2}/state{0-1}/name = C{m} of {n}\n/info <<\n  a : 1\n  b : 2\n\n/x/driver -> ../i40e\n/empty/\n";
        let machine = read(text).unwrap();
        let tree = &machine.tree;
        assert_eq!(tree.text("/cpu1/siblings").as_deref(), Some("1,3"));
        assert_eq!(tree.text("/cpu3/siblings").as_deref(), Some("1,3"));
        assert_eq!(tree.text("/cpu2/state1/name").as_deref(), Some("C1 of 2"));
        assert_eq!(tree.read("/info").as_deref(), Ok("a : 1\nb : 2\n"));
        assert_eq!(tree.link("/x/driver").as_deref(), Some("../i40e"));
        assert!(tree.exists("/empty") && !tree.exists("/cpu4"));
    }

    #[test]
    fn what_makes_no_sense_has_its_line() {
        for (text, word) in
            [("\nhello", "line 2"), ("/a", "neither"), ("/a{0-/b = 1", "end"), ("/a{0}/b = {n+x}", "term")]
        {
            let why = read(text).err().unwrap();
            assert!(why.contains(word), "{why}");
        }
    }
}
