//! The keyword: conditions on a request, as comparisons of the parts of a number.

use super::message::{self, Category, Message};
use crate::declare::{NumberCondition, NumberPart};

/// The parts of the number: first bit and size.
const VALUE: (u8, u8) = (0, 16);
const ADDRESS: (u8, u8) = (16, 17);
const UNIT: (u8, u8) = (33, 8);
const FUNCTION: (u8, u8) = (41, 7);
const FLAGS: (u8, u8) = (48, 16);

/// Flags above the access bits.
const ASSIGNED: u64 = 1 << 6;
const UNASSIGNED: u64 = 1 << 7;
const USER: u64 = 1 << 8;
const RESERVED: u64 = 1 << 9;
const HAS_ADDRESS: u64 = 1 << 10;
const HAS_VALUE: u64 = 1 << 11;
const HAS_SUBFUNCTION: u64 = 1 << 12;
const PUBLIC: u64 = 1 << 13;
/// The access bits: read, write and the tables.
const ACCESS: u8 = 0x3f;

/// The values for rules of a request, at one of its addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    pub(super) unit: u8,
    pub(super) function: u8,
    pub(super) category: Category,
    /// Access bits.
    pub(super) access: u8,
    /// Raw address, from 0 to 65,535, or above if a range extends past the last one.
    pub(super) address: Option<u32>,
    pub(super) value: Option<u16>,
    pub(super) subfunction: Option<u16>,
}

impl Fields {
    pub(super) fn of(message: &Message) -> Fields {
        Fields {
            unit: message.unit,
            function: message.function,
            category: message.category,
            access: 0,
            address: None,
            value: None,
            subfunction: None,
        }
    }

    /// Packs all values into a number. Rules count addresses from 1.
    pub(super) fn number(self) -> u64 {
        let mut flags = u64::from(self.access & ACCESS);
        flags |= match self.category {
            Category::None => 0,
            Category::Assigned => ASSIGNED | PUBLIC,
            Category::Unassigned => UNASSIGNED | PUBLIC,
            Category::User => USER,
            Category::Reserved => RESERVED,
        };
        flags |= self.address.map_or(0, |_| HAS_ADDRESS) | self.value.map_or(0, |_| HAS_VALUE);
        flags |= self.subfunction.map_or(0, |_| HAS_SUBFUNCTION);
        let address = match (self.address, self.subfunction) {
            (Some(address), _) => u64::from(address.min(0xffff) + 1),
            (None, sub) => u64::from(sub.unwrap_or(0)),
        };
        flags << FLAGS.0
            | u64::from(self.function & 0x7f) << FUNCTION.0
            | u64::from(self.unit) << UNIT.0
            | address << ADDRESS.0
            | u64::from(self.value.unwrap_or(0))
    }
}

fn part((first, bits): (u8, u8), text: &str) -> NumberPart {
    NumberPart { first, bits, text: text.to_owned() }
}

fn flags(mask: u64, value: u64) -> NumberPart {
    part(FLAGS, &format!("&0x{mask:x}=0x{value:x}"))
}

/// Parses `[unit U,] function F[, subfunction S]`, `… function [!]CATEGORY` or `… access KIND [TABLE][, address A[, value V]]`.
pub(super) fn read(text: &str) -> Result<NumberCondition, String> {
    let wrong = |what: &str| {
        Err(format!(
            "{what}: write \"unit N\", \"function N\", \"function N, subfunction N\", \"function CATEGORY\" or \
             \"access read|write TABLE, address N, value N\", where comparisons (>N, <N, N<>N) may stand for numbers of units, addresses and values"
        ))
    };
    let mut parts = Vec::new();
    let (mut seen, mut access) = (Vec::new(), 0);
    for clause in text.trim().trim_matches('"').split(',').map(str::trim) {
        let (word, rest) = clause.split_once(char::is_whitespace).map_or((clause, ""), |(w, r)| (w, r.trim()));
        let allowed = matches!(
            (word, seen.last().copied()),
            ("unit", None)
                | ("function" | "access", None | Some("unit"))
                | ("subfunction", Some("function"))
                | ("address", Some("access"))
                | ("value", Some("address"))
        );
        if !allowed || rest.is_empty() {
            return wrong(&format!("\"{clause}\" is not understood in \"{text}\""));
        }
        match word {
            "unit" => parts.push(part(UNIT, rest)),
            "function" if rest.parse::<u8>().is_ok_and(|n| n < 128) => parts.push(part(FUNCTION, rest)),
            "function" => {
                let (name, set) = rest.strip_prefix('!').map_or((rest, true), |r| (r.trim(), false));
                let bit = match name {
                    "assigned" => ASSIGNED,
                    "unassigned" => UNASSIGNED,
                    "public" => PUBLIC,
                    "user" => USER,
                    "reserved" => RESERVED,
                    "all" if set => 0,
                    _ => return wrong(&format!("\"{rest}\" is neither a function nor a category")),
                };
                parts.push(flags(bit, if set { bit } else { 0 }));
            }
            "subfunction" if rest.parse::<u16>().is_ok() => {
                parts.push(part(ADDRESS, rest));
                parts.push(flags(HAS_SUBFUNCTION, HAS_SUBFUNCTION));
            }
            "access" => {
                let (kind, table) = rest.split_once(char::is_whitespace).map_or((rest, ""), |(k, t)| (k, t.trim()));
                access = match kind {
                    "read" => message::READ,
                    "write" => message::WRITE,
                    _ => return wrong(&format!("\"{kind}\" is neither read nor write")),
                };
                access |= match table {
                    "" => 0,
                    "discretes" => message::DISCRETES,
                    "coils" => message::COILS,
                    "input" => message::INPUT,
                    "holding" => message::HOLDING,
                    _ => return wrong(&format!("\"{table}\" is not a table")),
                };
                if access & message::WRITE != 0 && access & (message::DISCRETES | message::INPUT) != 0 {
                    return wrong(&format!("{table} cannot be written"));
                }
                parts.push(flags(u64::from(access), u64::from(access)));
            }
            "address" => {
                parts.push(part(ADDRESS, rest));
                parts.push(flags(HAS_ADDRESS, HAS_ADDRESS));
            }
            "value" if access & message::WRITE != 0 => {
                parts.push(part(VALUE, rest));
                parts.push(flags(HAS_VALUE, HAS_VALUE));
            }
            _ => return wrong(&format!("\"{clause}\" is not understood")),
        }
        seen.push(word);
    }
    Ok(NumberCondition::Parts(parts))
}
