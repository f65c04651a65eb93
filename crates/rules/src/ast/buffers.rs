//! Checks on buffers: contents, expressions, numbers, and the transforms before them.

use std::hash::{Hash, Hasher};

use margay_meaning::Judge;
use margay_meaning::decode::Decoding;

use super::{Compare, DataRep, Dataset, Side};

/// All checks of a rule on one buffer.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct BufferChecks {
    /// The buffer's canonical name: `payload` for packet and stream payload, `pkt_data`, `tcp.hdr`, `ipv4.hdr`,
    /// `http.uri` … Two groups of a rule may have the same name.
    pub buffer: String,
    /// Whether a protocol keyword selected it. Matching then needs that protocol's parser.
    pub app: bool,
    /// The direction, if the rule gives one for a buffer that exists in both (`file.data:to_client`).
    pub side: Option<Side>,
    /// Transforms, in order.
    pub transforms: Vec<Transform>,
    /// The checks.
    pub checks: Vec<BufferCheck>,
    /// `absent`: the buffer must not exist; `Some(true)` for `absent:or_else`.
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
    /// A decoding that undoes an evasion technique.
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
    /// `luaxform`: the script and its arguments.
    Lua(LuaTransform),
}

/// `luaxform`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LuaTransform {
    /// The script's file, as written.
    pub script: String,
    /// Arguments, at most ten.
    pub args: Vec<String>,
    /// The script's number, which the script loader assigns.
    pub number: Option<u32>,
}

/// `lua`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct LuaCheck {
    /// The script's file, as written.
    pub script: String,
    /// `!`
    pub negated: bool,
    /// The rule's variables defined so far, by number.
    pub variables: Vec<String>,
    /// The data that the script inspects. Only the script states this, and the script loader sets the field.
    pub at: LuaAt,
    /// Whether the script receives the packet.
    pub packet: bool,
    /// Whether the script receives the packet's payload.
    pub payload: bool,
    /// Names of the transaction buffers that the script inspects.
    pub buffers: Vec<&'static str>,
    /// The script's number, which the script loader assigns.
    pub number: Option<u32>,
}

/// The data that a rule's script inspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LuaAt {
    /// Each packet.
    #[default]
    Packet,
    /// Packets with payload.
    Payload,
    /// New stream data.
    Stream,
    /// A transaction.
    Transaction,
}

/// How strictly `from_base64` decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Base64Mode {
    Strict,
    Rfc2045,
    Rfc4648,
}

/// A number in the rule, or a variable that `byte_extract` or `byte_math` in the same rule sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// A number
    Number(i64),
    /// Variable, as an index below [`VARIABLES_MAX`] in order of first definition in the rule
    Variable(u8),
}

/// Limit of the variables of one rule.
pub const VARIABLES_MAX: usize = 64;

/// A check on a buffer.
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
    /// `entropy`: the value is compared in thousandths
    Entropy { bytes: u32, offset: u32, value: FloatCompare },
    /// `asn1`
    Asn1(Asn1),
    /// `dataset`
    Dataset(Box<Dataset>),
    /// `datarep`
    DataRep(Box<DataRep>),
    /// `lua` on a sticky buffer
    Lua(Box<LuaCheck>),
    /// `sqli`, `xss`, `shell_injection`
    Judge(Judge),
    /// Any other check on a buffer, as written
    Other { keyword: String, argument: String },
}

impl BufferCheck {
    /// Whether it reads a number in the byte order of a DCERPC message (`dce`).
    pub fn is_dce(&self) -> bool {
        let format = match self {
            BufferCheck::ByteTest(t) => t.format,
            BufferCheck::ByteJump(j) => j.format,
            BufferCheck::ByteExtract(x) => x.format,
            BufferCheck::ByteMath(m) => m.format,
            _ => return false,
        };
        format == NumberFormat::Binary(Endian::Dce)
    }
}

/// `asn1`: holds if the ASN.1 (X.690) at a place has one of the selected conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Asn1 {
    /// `bitstring_overflow`: a bit string with more unused bits than its length.
    pub bitstring_overflow: bool,
    /// `double_overflow`: a decimal real number longer than the buffers of known implementations.
    pub double_overflow: bool,
    /// `oversize_length`: an element longer than this, in bytes.
    pub oversize_length: Option<u32>,
    /// `relative_offset`, from the last match; takes precedence over `absolute_offset`.
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
        // 0 and -0 are equal, so they need the same hash.
        [a + 0.0, b + 0.0].map(f64::to_bits).hash(state);
    }
}

/// `content` with its modifiers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Content {
    /// The bytes, with hexadecimal parts and escapes resolved; 1 to 65,535.
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
    /// Captures to variables, in group order: `flow:name`, `pkt:name`, `alert:name`. A group without a variable has an empty
    /// name.
    pub captures: Vec<(CaptureKind, String)>,
}

/// The kind of variable that stores a capture of `pcre`.
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
    /// As in the DCERPC header
    Dce,
}

/// The format of a number in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberFormat {
    /// Bytes
    Binary(Endian),
    /// Digits in base 8, 10 or 16; 0 to detect the base from the digits
    Text {
        /// The base
        base: u8,
    },
}

/// `byte_test`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteTest {
    /// Number of bytes: 1 to 8 in binary, 1 to 23 as text
    pub bytes: Value,
    /// `!`
    pub negated: bool,
    /// The comparison
    pub op: ByteOp,
    /// The value to compare with
    pub value: Value,
    /// The offset
    pub offset: Value,
    /// Whether the offset counts from the last match
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
    /// At least one common bit
    And,
    /// `^`: the exclusive or is not 0, as in Suricata (its manual says bitwise or)
    Or,
}

/// `byte_jump`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteJump {
    /// Number of bytes; 0 jumps by `post_offset` alone
    pub bytes: Value,
    /// The offset
    pub offset: Value,
    /// Whether the offset counts from the last match
    pub relative: bool,
    /// Factor
    pub multiplier: u32,
    /// Format
    pub format: NumberFormat,
    /// Whether to round the jump up to a multiple of 4 bytes
    pub align: bool,
    /// Whether to jump from the start of the payload
    pub from_beginning: bool,
    /// Whether to jump from the end of the payload
    pub from_end: bool,
    /// Added after the jump
    pub post_offset: Value,
    /// `bitmask`
    pub bitmask: Option<u32>,
}

/// `byte_extract`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteExtract {
    /// Number of bytes
    pub bytes: u8,
    /// The offset
    pub offset: i32,
    /// The variable it sets
    pub variable: u8,
    /// Whether the offset counts from the last match
    pub relative: bool,
    /// Factor
    pub multiplier: u32,
    /// Format
    pub format: NumberFormat,
    /// Rounds the value up to a multiple of 2 or 4; 0 for no rounding
    pub align: u8,
}

/// `byte_math`
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ByteMath {
    /// Number of bytes
    pub bytes: Value,
    /// The offset
    pub offset: i32,
    /// `+ - * / << >>`
    pub op: MathOp,
    /// The right-hand value
    pub rvalue: Value,
    /// The variable it sets
    pub result: u8,
    /// Whether the offset counts from the last match
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
