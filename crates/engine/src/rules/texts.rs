//! The texts of rules for events.

use std::collections::HashMap;
use std::sync::OnceLock;

use margay_detect::{Detect, RuleFacts};
use margay_output::eve::{metadata_json, signature_json};
use margay_output::event::{Signature, Target};

/// The texts of a rule for events.
#[derive(Debug)]
struct RuleText {
    signature: Vec<u8>,
    metadata: Option<Vec<u8>>,
    references: Vec<String>,
}

impl RuleText {
    /// Renders a rule. References are expanded with `reference.config`, and unknown ones are left out.
    #[cold]
    fn of(rule: &RuleFacts, prefixes: &HashMap<String, String>) -> RuleText {
        let metadata = margay_rules::metadata(&rule.text);
        let pairs: Vec<_> = metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let reference = |(system, text): (String, String)| {
            // A text with a scheme is a complete URL.
            prefixes.get(&system).map(|p| if text.contains("://") { text.clone() } else { format!("{p}{text}") })
        };
        RuleText {
            signature: signature_json(&plain(rule)),
            metadata: metadata_json(&pairs),
            references: margay_rules::references(&rule.text).into_iter().filter_map(reference).collect(),
        }
    }
}

/// A rule without the rendered parts.
fn plain(r: &RuleFacts) -> Signature<'_> {
    Signature {
        gid: r.gid,
        id: r.sid,
        rev: r.rev,
        msg: (!r.msg.is_empty()).then_some(r.msg.as_bytes()),
        category: r.class.as_ref().map(|c| &*c.description),
        priority: r.priority,
        text: None,
        metadata: None,
        references: &[],
        rule: r.text.as_bytes(),
        target: r.target.map(|t| match t {
            margay_rules::ast::Target::Source => Target::Src,
            margay_rules::ast::Target::Destination => Target::Dest,
        }),
    }
}

/// The texts of rules for events. Each rule is rendered at its first alert, because few rules of a large set ever alert.
#[derive(Debug, Default)]
pub(crate) struct RuleTexts {
    made: Box<[OnceLock<Box<RuleText>>]>,
    /// The prefix of a reference, by its name.
    prefixes: HashMap<String, String>,
}

impl RuleTexts {
    /// Empty texts for `rules` rules.
    pub(crate) fn new(rules: usize, prefixes: HashMap<String, String>) -> RuleTexts {
        RuleTexts { made: (0..rules).map(|_| OnceLock::new()).collect(), prefixes }
    }

    /// The signature of the rule with that number, for events.
    pub(crate) fn signature<'a>(&'a self, detect: &'a Detect, number: u32) -> Signature<'a> {
        let (Some(rule), Some(place)) = (detect.rules().get(number as usize), self.made.get(number as usize)) else {
            return Signature::default();
        };
        let text = place.get_or_init(|| Box::new(RuleText::of(rule, &self.prefixes)));
        Signature {
            text: Some(&text.signature),
            metadata: text.metadata.as_deref(),
            references: &text.references,
            ..plain(rule)
        }
    }
}
