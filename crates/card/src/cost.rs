//! Costs of the firmware's steps: a table in a file, each row with the source of its figure.

use margay_config::Config;

use crate::Bad;
use crate::read::unknown;

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Counted from Margay's own code with callgrind.
    Counted,
    /// From the study.
    Study,
    /// An estimate without a measurement.
    Estimated,
}

macro_rules! costs {
    ($($(#[$doc:meta])* $field:ident: $name:literal = $value:literal;)*) => {
        /// Costs. Instructions are the card's cores' unless noted; sizes are in bytes.
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
    /// Instructions to take an arrival and find its queue. Cores do this one at a time.
    assign: "assign" = 90.0;
    /// Additional instructions to look up the assignment table.
    assign_table: "assign-table" = 60.0;
    /// Additional instructions to move a flow.
    reassign: "reassign" = 150.0;
    /// Instructions for decoding and TCP state, for each packet.
    packet: "packet" = 2633.0;
    /// Instructions for a segment: its place in the stream, the segment tree, and finding stream data that is ready.
    segment: "segment" = 2457.0;
    /// The part of these during which the tree is locked.
    tree: "tree" = 250.0;
    /// Instructions for each byte copied into a target buffer.
    copy_byte: "copy-byte" = 0.75;
    /// Instructions for a flush, including the matcher's descriptor.
    flush: "flush" = 1731.0;
    /// Instructions for matching in software, for each byte.
    match_byte: "match-byte" = 8.0;
    /// Bytes matched for each access to a state beyond the first ones.
    match_stride: "match-stride" = 8.0;
    /// Bytes of the state table for software matching, for each port group.
    match_table: "match-table" = 32768.0;
    /// Instructions to start verifying a reported rule.
    verify: "verify" = 941.0;
    /// Instructions for each byte that a verification inspects.
    verify_byte: "verify-byte" = 0.46;
    /// Bytes of a rule in DRAM that a verification reads.
    rule: "rule" = 128.0;
    /// Instructions to normalise a URI.
    uri: "uri" = 600.0;
    /// Additional instructions for each byte of a URI.
    uri_byte: "uri-byte" = 36.41;
    /// Instructions to report that a packet is done. Cores do this one at a time.
    notify: "notify" = 40.0;
    /// Bytes of a flow's state in DRAM.
    flow: "flow" = 128.0;
    /// Accesses to the scratchpad for each instruction.
    scratch: "scratch" = 0.25;
    /// References to other data than packets, flows, rules and tables, for each instruction.
    data: "data" = 0.07;
    /// Misses for 1,000 of these references in a cache of 512 bytes, with two ways and blocks of 32 bytes.
    miss_512: "miss-512" = 295.0;
    /// The same for 1 KB.
    miss_1k: "miss-1k" = 216.0;
    /// The same for 2 KB.
    miss_2k: "miss-2k" = 153.0;
    /// The same for 4 KB.
    miss_4k: "miss-4k" = 111.0;
    /// The same for 8 KB.
    miss_8k: "miss-8k" = 65.28;
    /// The same for 16 KB.
    miss_16k: "miss-16k" = 27.84;
    /// The same for 32 KB.
    miss_32k: "miss-32k" = 9.95;
    /// The same for 64 KB.
    miss_64k: "miss-64k" = 5.57;
    /// References of 1,000 that would open a DRAM row without a cache and other cores.
    miss_row: "miss-row" = 217.0;
    /// Bytes of data that a core uses again soon, and fetches again after a flush.
    data_set: "data-set" = 2048.0;
    /// Cycles lost to branches for each instruction.
    stall: "stall" = 0.2;
    /// Code size in bytes of each of the four stages (assignment, reassembly, matching and verification, inspection).
    code: "code" = 2048.0;
    /// Host instructions for each packet that the host gets, from the ring to the end of reassembly.
    host_packet: "host-packet" = 3952.0;
    /// Host instructions to search for strings, for each inspected byte.
    host_byte: "host-byte" = 2.53;
    /// Host instructions to verify a report.
    host_verify: "host-verify" = 941.0;
    /// Million instructions that a host core executes in a second.
    host_core: "host-core" = 4500.0;
}

/// A cost table from a file.
#[derive(Debug, Clone)]
pub struct Table {
    /// The costs.
    pub costs: Costs,
    /// The source of each cost, in the order of the file.
    pub sources: Vec<(String, Source)>,
}

impl Table {
    /// Reads a table: `name: {value: N, source: counted|study|estimated, why: text}`. It must have every cost.
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
