//! What is checked in buffers: contents, expressions, numbers, and transforms before them.

use std::hash::{Hash, Hasher};

use margay_meaning::Judge;
use margay_meaning::decode::Decoding;

use super::{Compare, DataRep, Dataset, Side};

/// All checks of one buffer of a rule.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct BufferChecks {
    /// The buffer's canonical name: `payload` for packet and stream payload, `pkt_data`, `tcp.hdr`, `ipv4.hdr`,
    /// `http.uri` … Two groups of a rule may have the same name.
    pub buffer: String,
    /// Whether a protocol keyword named it (then matching needs that protocol's parser).
    pub app: bool,
    /// The direction, where the rule gives one for a buffer that both have (`file.data:to_client`).
    pub side: Option<Side>,
    /// Transforms, in order.
    pub transforms: Vec<Transform>,
    /// The checks.
    pub checks: Vec<BufferCheck>,
    /// `absent`: the buffer must not be there; `Some(true)` for `absent:or_else`.
    pub absent: Option<bool>,
}

/// A transform of a buffer.
#[derive(Debug, Clone, PartialEq, Hash)]
#[allow(missing_docs)]
pub enum Transform {
    CompressWhitespace,
    StripWhitespace,
    StripPseudoHeaders,
    HeaderLowercase,
    ToLowercase,
    ToUppercase,
    ToMd5,
    ToSha1,
    ToSha256,
    DotPrefix,
    Domain,
    Tld,
    UrlDecode,
    /// One of those that undo what an attack hides in.
    Decode(Decoding),
    Xor(Vec<u8>),
    PcreXform(String),
    FromBase64 {
        bytes: Option<u32>,
        offset: u32,
        mode: Base64Mode,
    },
    Gunzip {
        max_size: u32,
    },
    ZlibDeflate {
        max_size: u32,
    },
    /// `luaxform`: the script, and what is given to it.
    Lua(LuaTransform),
}

/// `luaxform`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LuaTransform {
    /// The script's file, as written.
    pub script: String,
    /// Arguments, at most ten.
    pub args: Vec<String>,
    /// Who loads the script gives it a number.
    pub number: Option<u32>,
}

/// `lua`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LuaCheck {
    /// The script's file, as written.
    pub script: String,
    /// `!`
    pub negated: bool,
    /// The rule's variables up to here, by number.
    pub variables: Vec<String>,
    /// What it looks at, which only the script says: who loads it fills that in.
    pub at: LuaAt,
    /// Names of the buffers that it looks at, of a transaction.
    pub buffers: Vec<&'static str>,
    /// Who loads the script gives it a number.
    pub number: Option<u32>,
}

/// What a script of a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LuaAt {
    /// Each packet.
    #[default]
    Packet,
    /// Packets with payload.
    Payload,
    /// What a stream has new.
    Stream,
    /// A transaction.
    Transaction,
}

/// How strictly base64 is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Base64Mode {
    Strict,
    Rfc2045,
    Rfc4648,
}

/// A number in the rule, or a variable that `byte_extract` or `byte_math` of the same rule sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// A number
    Number(i64),
    /// Variable, as an index below [`VARIABLES_MAX`] in order of first definition in the rule
    Variable(u8),
}

/// Most variables that one rule may define.
pub const VARIABLES_MAX: usize = 64;

/// A check within a buffer.
#[derive(Debug, Clone, PartialEq, Hash)]
#[allow(missing_docs)]
pub enum BufferCheck {
    /// `content`
    Content(Content),
    /// `pcre`
    Pcre(Pcre),
    /// `isdataat`
    IsDataAt { at: Value, relative: bool, negated: bool },
    /// `bsize`
    Bsize(Compare),
    /// `byte_test`
    ByteTest(ByteTest),
    /// `byte_jump`
    ByteJump(ByteJump),
    /// `byte_extract`
    ByteExtract(ByteExtract),
    /// `byte_math`
    ByteMath(ByteMath),
    /// `base64_decode`; the checks after `base64_data` are in `data`.
    Base64 { bytes: Option<u32>, offset: u32, relative: bool, data: Vec<BufferCheck> },
    /// `entropy`: value compared in thousandths
    Entropy { bytes: u32, offset: u32, value: FloatCompare },
    /// `asn1`
    Asn1(Asn1),
    /// `dataset`
    Dataset(Box<Dataset>),
    /// `datarep`
    DataRep(Box<DataRep>),
    /// `lua` behind a sticky buffer
    Lua(Box<LuaCheck>),
    /// `sqli`, `xss`, `shell_injection`
    Judge(Judge),
    /// Whatever else looks at a buffer, as written
    Other { keyword: String, argument: String },
}

/// `asn1`: holds where one of what it asks for is found in the ASN.1 (X.690) at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Asn1 {
    /// `bitstring_overflow`: a bit string with more unused bits than it has.
    pub bitstring_overflow: bool,
    /// `double_overflow`: a real number in decimal that is longer than implementations are known to have room for.
    pub double_overflow: bool,
    /// `oversize_length`: something longer than this, in bytes.
    pub oversize_length: Option<u32>,
    /// `relative_offset`, from the last match; it wins over `absolute_offset`.
    pub relative_offset: Option<i32>,
    /// `absolute_offset`, from the start of the buffer.
    pub absolute_offset: u32,
}

/// A comparison of a real number.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum FloatCompare {
    Equal(f64),
    NotEqual(f64),
    Less(f64),
    LessEqual(f64),
    Greater(f64),
    GreaterEqual(f64),
    Between(f64, f64),
    /// `!4-5`
    NotBetween(f64, f64),
}

impl Hash for FloatCompare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        use FloatCompare::*;
        std::mem::discriminant(self).hash(state);
        let (a, b) = match *self {
            Equal(a) | NotEqual(a) | Less(a) | LessEqual(a) | Greater(a) | GreaterEqual(a) => (a, a),
            Between(a, b) | NotBetween(a, b) => (a, b),
        };
        // The two zeros are equal.
        [a + 0.0, b + 0.0].map(f64::to_bits).hash(state);
    }
}

/// `content` with its modifiers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Content {
    /// The bytes, hexadecimal parts and escapes resolved; 1 to 65,535.
    pub bytes: Vec<u8>,
    /// `!`
    pub negated: bool,
    /// `nocase`
    pub nocase: bool,
    /// `offset`
    pub offset: Option<Value>,
    /// `depth` (also from `startswith`: then `starts_with` is set too)
    pub depth: Option<Value>,
    /// `distance`
    pub distance: Option<Value>,
    /// `within`
    pub within: Option<Value>,
    /// `startswith`
    pub starts_with: bool,
    /// `endswith`
    pub ends_with: bool,
    /// `rawbytes`
    pub raw_bytes: bool,
    /// `fast_pattern`
    pub fast_pattern: bool,
    /// `fast_pattern:only`
    pub fast_pattern_only: bool,
    /// `fast_pattern:offset,length`
    pub fast_pattern_chop: Option<(u16, u16)>,
    /// `replace`
    pub replace: Option<Vec<u8>>,
}

/// `pcre`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pcre {
    /// The expression between the slashes.
    pub pattern: String,
    /// `!`
    pub negated: bool,
    /// PCRE options: any of `ismxAEG`.
    pub options: String,
    /// `R`: relative to the last match.
    pub relative: bool,
    /// `B`: raw bytes.
    pub raw: bool,
    /// `O`: overrides the configured match limits.
    pub override_limits: bool,
    /// Captures to variables, in group order: `flow:name`, `pkt:name`, `alert:name`.
    pub captures: Vec<(CaptureKind, String)>,
}

/// Where a capture of `pcre` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum CaptureKind {
    Flow,
    Packet,
    Alert,
}

/// Byte order of a number in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Endian {
    Big,
    Little,
    /// As the DCERPC header says
    Dce,
}

/// How a number stands in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// Bytes
    Binary(Endian),
    /// Digits in base 8, 10 or 16; 0 for what the digits say
    Text {
        /// The base
        base: u8,
    },
}

/// `byte_test`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteTest {
    /// How many bytes: 1 to 8 in binary, 1 to 23 as text
    pub bytes: Value,
    /// `!`
    pub negated: bool,
    /// The comparison
    pub op: ByteOp,
    /// With what
    pub value: Value,
    /// Where
    pub offset: Value,
    /// From the last match
    pub relative: bool,
    /// Format
    pub format: NumberFormat,
    /// `bitmask`
    pub bitmask: Option<u32>,
}

/// Comparisons of `byte_test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ByteOp {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    /// Any bit in common
    And,
    /// No bit in common, or `^` as documented
    Or,
}

/// `byte_jump`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteJump {
    /// How many bytes; 0 jumps by `post_offset` alone
    pub bytes: Value,
    /// Where
    pub offset: Value,
    /// From the last match
    pub relative: bool,
    /// Times
    pub multiplier: u32,
    /// Format
    pub format: NumberFormat,
    /// Round up to 32 bits
    pub align: bool,
    /// Jump from the beginning of the payload
    pub from_beginning: bool,
    /// Jump from the end of the payload
    pub from_end: bool,
    /// Added after the jump
    pub post_offset: Value,
    /// `bitmask`
    pub bitmask: Option<u32>,
}

/// `byte_extract`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteExtract {
    /// How many bytes
    pub bytes: u8,
    /// Where
    pub offset: i32,
    /// The variable it sets
    pub variable: u8,
    /// From the last match
    pub relative: bool,
    /// Times
    pub multiplier: u32,
    /// Format
    pub format: NumberFormat,
    /// Round up to 2 or 4 bytes; 0 not at all
    pub align: u8,
}

/// `byte_math`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteMath {
    /// How many bytes
    pub bytes: Value,
    /// Where
    pub offset: i32,
    /// `+ - * / << >>`
    pub op: MathOp,
    /// The right-hand value
    pub rvalue: Value,
    /// The variable it sets
    pub result: u8,
    /// From the last match
    pub relative: bool,
    /// Format
    pub format: NumberFormat,
    /// `bitmask`
    pub bitmask: Option<u32>,
}

/// Operators of `byte_math`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum MathOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    ShiftLeft,
    ShiftRight,
}
