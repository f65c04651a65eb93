//! Selects the conversations to send, from samples of declarations and from recorded requests.

use std::path::{Path, PathBuf};

use super::build::{self, Conversation};
use super::declared::{self, Action, Content, Defence};
use super::requests;
use crate::problem::{Outcome, Problem};

/// The selection of declarations and requests.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Chosen {
    /// A file or folder of declarations (*.toml) [default: ./defence, or none with --requests]
    #[arg(long, value_name = "PATH")]
    pub(super) defences: Vec<PathBuf>,
    /// Recorded HTTP requests as JSON lines, which may be compressed (docs/attacks.md)
    #[arg(long, value_name = "FILE")]
    pub(super) requests: Vec<PathBuf>,
    /// Also signs that only add to a score, and do not alert by themselves
    #[arg(long)]
    pub(super) weak: bool,
    /// Only this technique (T1190, CWE-89, CVE-2021-44228); T1059 includes T1059.004
    #[arg(long, value_name = "NAME")]
    pub(super) technique: Vec<String>,
    /// Only this class (trojan-activity, or a class of recorded requests)
    #[arg(long, value_name = "NAME")]
    pub(super) class: Vec<String>,
    /// Only these rules
    #[arg(long, value_name = "SID", value_delimiter = ',')]
    pub(super) sid: Vec<u32>,
}

/// The wanted outcome of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Must {
    /// It is an attack that must be stopped.
    Stop,
    /// It is an attack on which a rule must alert.
    Notice,
    /// It is not an attack, and must not be stopped.
    Pass,
}

/// One conversation to send.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The name of its declaration, or the request's identifier.
    pub(super) name: String,
    /// The first rule against it and the number of rules; 0 if none is known.
    pub(super) sid: u32,
    pub(super) rules: u32,
    pub(super) must: Must,
    pub(super) class: String,
    pub(super) techniques: Vec<String>,
    /// The file that it comes from.
    pub(super) file: String,
    pub(super) conversation: Conversation,
}

/// Whether technique `of` is `wanted`, or one of its sub-techniques.
fn is(of: &str, wanted: &str) -> bool {
    let rest = of.get(..wanted.len()).filter(|head| head.eq_ignore_ascii_case(wanted)).map(|head| &of[head.len()..]);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Chosen {
    fn takes(&self, techniques: &[String], class: &str, sid: u32) -> bool {
        let any = |wanted: &[String], of: &dyn Fn(&str) -> bool| wanted.is_empty() || wanted.iter().any(|w| of(w));
        any(&self.technique, &|w| techniques.iter().any(|t| is(t, w)))
            && any(&self.class, &|w| class.eq_ignore_ascii_case(w))
            && (self.sid.is_empty() || self.sid.contains(&sid))
    }

    /// The selected declarations.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn declarations(&self) -> Outcome<Vec<Defence>> {
        let own = Path::new("defence");
        let paths = match (self.defences.is_empty(), self.requests.is_empty()) {
            (false, _) => self.defences.clone(),
            (true, false) => return Ok(Vec::new()),
            (true, true) if own.is_dir() => vec![own.to_owned()],
            (true, true) => {
                return Err(Problem::Usage(
                    "there is no folder 'defence' here: --defences names declarations, --requests recorded requests"
                        .to_owned(),
                ));
            }
        };
        let mut all = declared::read(&paths)?;
        all.retain(|d| self.takes(&d.techniques, &d.class, d.sid));
        Ok(all)
    }

    /// The selected conversations, in the order of the files.
    ///
    /// # Errors
    /// If a file cannot be read, or the selection is empty.
    pub(super) fn cases(&self) -> Outcome<Vec<Case>> {
        let mut cases = Vec::new();
        for d in self.declarations()?.into_iter().filter(|d| self.weak || !d.weak) {
            let attack = if d.action == Action::Stop { Must::Stop } else { Must::Notice };
            for (must, contents) in [(attack, &d.stops), (Must::Pass, &d.passes)] {
                for content in contents {
                    cases.push(case(&d, must, content)?);
                }
            }
        }
        for path in &self.requests {
            let all = requests::read(path)?;
            cases.extend(all.into_iter().filter(|c| self.takes(&c.techniques, &c.class, c.sid)));
        }
        if cases.is_empty() {
            return Err(Problem::Usage("nothing that was asked for is in these files".to_owned()));
        }
        Ok(cases)
    }
}

fn case(d: &Defence, must: Must, content: &Content) -> Outcome<Case> {
    let conversation = match content {
        Content::Value(value) => Conversation::Request(
            build::request(&d.place, value)
                .map_err(|why| Problem::Usage(format!("{}: defence {}: {why}", d.file, d.sid)))?,
        ),
        Content::Conversation(sample) => Conversation::Sample(sample.clone()),
    };
    Ok(Case {
        name: d.name.clone(),
        sid: d.sid,
        rules: d.rules,
        must,
        class: d.class.clone(),
        techniques: d.techniques.clone(),
        file: d.file.clone(),
        conversation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(more: Chosen) -> Chosen {
        Chosen { defences: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../defence")], ..more }
    }

    #[test]
    fn techniques_and_classes_are_chosen() {
        let by = |name: &str| own(Chosen { technique: vec![name.into()], ..Chosen::default() }).cases().unwrap();
        let shells = by("t1059");
        assert!(
            shells.iter().any(|c| c.techniques.contains(&"T1059.004".into())) && shells.len() > by("T1059.004").len()
        );
        assert!(by("CWE-89").iter().all(|c| c.techniques.contains(&"CWE-89".into())));
        let class = own(Chosen { class: vec!["trojan-activity".into()], ..Chosen::default() }).cases().unwrap();
        assert!(class.iter().all(|c| c.class == "trojan-activity" && c.file == "network.toml"));
        assert!(!is("CWE-890", "CWE-89") && is("CWE-89", "CWE-89"));
        assert!(own(Chosen { sid: vec![1], ..Chosen::default() }).cases().is_err());
    }

    #[test]
    fn every_sample_is_a_case() {
        let chosen = own(Chosen { weak: true, ..Chosen::default() });
        let samples: usize = chosen.declarations().unwrap().iter().map(|d| d.stops.len() + d.passes.len()).sum();
        let cases = chosen.cases().unwrap();
        assert_eq!(cases.len(), samples);
        for (n, c) in cases.iter().enumerate() {
            assert!(!c.conversation.build(n as u32, 1).frames.is_empty(), "{}", c.name);
        }
    }
}
