//! What each step of the firmware costs: a table in a file, each row with the source of its figure.

use margay_config::Config;

use crate::Bad;
use crate::read::unknown;

/// Where a figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Counted from Margay's own code with callgrind.
    Counted,
    /// The study says so.
    Study,
    /// Nobody measured it.
    Estimated,
}

macro_rules! costs {
    ($($(#[$doc:meta])* $field:ident: $name:literal = $value:literal;)*) => {
        /// Costs. Instructions are of the card's cores, sizes are bytes.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Costs { $($(#[$doc])* pub $field: f64,)* }

        /// Names of costs, as in the file.
        pub const NAMES: &[&str] = &[$($name),*];

        impl Default for Costs {
            fn default() -> Costs { Costs { $($field: $value,)* } }
        }

        impl Costs {
            /// The cost with this name.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name { $($name => Some(&mut self.$field),)* _ => None }
            }
        }
    };
}

costs! {
    /// Instructions to take an arrival and find its queue; serialised.
    assign: "assign" = 90.0;
    /// More of them where a table is looked up.
    assign_table: "assign-table" = 60.0;
    /// More of them where a flow is moved.
    reassign: "reassign" = 150.0;
    /// Instructions of decoding and of the TCP state for each packet.
    packet: "packet" = 700.0;
    /// Instructions to put a segment into the tree of its flow.
    segment: "segment" = 250.0;
    /// Instructions for each byte copied into a target buffer.
    copy_byte: "copy-byte" = 0.75;
    /// Instructions of a flush, with the descriptor of the match.
    flush: "flush" = 300.0;
    /// Instructions of matching in software, for each byte.
    match_byte: "match-byte" = 5.0;
    /// Bytes matched for each look at a state that is not among the first ones.
    match_stride: "match-stride" = 8.0;
    /// Bytes of the states that software matching uses, for each port group.
    match_table: "match-table" = 32768.0;
    /// Instructions to begin to verify one reported rule.
    verify: "verify" = 350.0;
    /// Instructions for each byte that a verification looks at.
    verify_byte: "verify-byte" = 2.0;
    /// Bytes of a rule in DRAM that a verification reads.
    rule: "rule" = 128.0;
    /// Instructions to normalise a URI.
    uri: "uri" = 600.0;
    /// More of them for each byte.
    uri_byte: "uri-byte" = 12.0;
    /// Instructions to tell that a packet is done; serialised.
    notify: "notify" = 40.0;
    /// Bytes of a flow's state in DRAM.
    flow: "flow" = 128.0;
    /// Accesses to the scratchpad for each instruction.
    scratch: "scratch" = 0.12;
    /// Cycles lost to branches and loads for each instruction.
    stall: "stall" = 0.2;
    /// Bytes of code of each of the four stages (assignment, reassembly, matching and verification, inspection).
    code: "code" = 3072.0;
}

/// A table as read from a file.
#[derive(Debug, Clone)]
pub struct Table {
    /// The costs.
    pub costs: Costs,
    /// Source of each, in the order of the file.
    pub sources: Vec<(String, Source)>,
}

impl Table {
    /// Reads a table: `name: {value: N, source: counted|study|estimated, why: text}`. Every cost is in it.
    ///
    /// # Errors
    /// An unknown or missing cost, or a value that cannot be read, with file and line.
    pub fn from_yaml(text: &str, file: &str) -> Result<Table, Bad> {
        let config = Config::from_str(text, file)?;
        let mut table = Table { costs: Costs::default(), sources: Vec::new() };
        for node in config.root().children() {
            let Some(cost) = table.costs.get_mut(node.name()) else { return Err(unknown(&node)) };
            let mut source = None;
            let mut value = None;
            for part in node.children() {
                let text = part.value().unwrap_or_default();
                match part.name() {
                    "value" => value = text.parse::<f64>().ok().filter(|v| (0.0..=1e9).contains(v)),
                    "source" => {
                        let words =
                            [("counted", Source::Counted), ("study", Source::Study), ("estimated", Source::Estimated)];
                        source = Some(crate::read::word(&part, &words)?);
                    }
                    "why" => {}
                    _ => return Err(unknown(&part)),
                }
            }
            let (Some(value), Some(source)) = (value, source) else {
                return Err(node.error(format!("`{}` needs a value from 0 to 1e9 and a source", node.name())).into());
            };
            *cost = value;
            table.sources.push((node.name().to_owned(), source));
        }
        match NAMES.iter().find(|name| !table.sources.iter().any(|s| s.0 == **name)) {
            Some(name) => Err(Bad(format!("{file}: the cost `{name}` is missing"))),
            None if table.costs.match_stride < 1.0 => Err(Bad(format!("{file}: match-stride is less than 1"))),
            None => Ok(table),
        }
    }
}
