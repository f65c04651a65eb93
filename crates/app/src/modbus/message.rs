//! Messages of Modbus (Modbus Application Protocol V1.1b3): functions, what they access, and anomalies.

use crate::bytes::be16;

/// Access bits of a function, with their names in events.
pub(super) const ACCESSES: &[(u8, &str)] = &[
    (READ, "READ"),
    (WRITE, "WRITE"),
    (DISCRETES, "DISCRETES"),
    (COILS, "COILS"),
    (INPUT, "INPUT"),
    (HOLDING, "HOLDING"),
    (SINGLE, "SINGLE | WRITE_SINGLE"),
    (MULTIPLE, "MULTIPLE | WRITE_MULTIPLE"),
];
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const DISCRETES: u8 = 4;
pub(super) const COILS: u8 = 8;
pub(super) const INPUT: u8 = 16;
pub(super) const HOLDING: u8 = 32;
const SINGLE: u8 = 64;
const MULTIPLE: u8 = 128;

/// Anomaly bits of a message, with their names in events.
pub(super) const FLAWS: &[(u8, &str)] = &[
    (VALUE, "DATA_VALUE"),
    (LENGTH, "DATA_LENGTH"),
    (EXCEPTION, "EXC_CODE"),
    (FUNCTION, "FUNC_CODE"),
    (PROTOCOL, "PROTO_ID"),
];
pub(super) const VALUE: u8 = 1;
pub(super) const LENGTH: u8 = 2;
pub(super) const EXCEPTION: u8 = 4;
pub(super) const FUNCTION: u8 = 8;
pub(super) const PROTOCOL: u8 = 16;

/// The category of a function (section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    None,
    Assigned,
    Unassigned,
    User,
    Reserved,
}

impl Category {
    /// The name in events.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Category::None => "NONE",
            Category::Assigned => "PUBLIC_ASSIGNED",
            Category::Unassigned => "PUBLIC_UNASSIGNED",
            Category::User => "USER_DEFINED",
            Category::Reserved => "RESERVED",
        }
    }
}

/// Name of a function (section 6, and functions of older devices).
pub(super) const fn function_name(code: u8) -> &'static str {
    match code & 0x7f {
        1 => "RdCoils",
        2 => "RdDiscreteInputs",
        3 => "RdHoldRegs",
        4 => "RdInputRegs",
        5 => "WrSingleCoil",
        6 => "WrSingleReg",
        7 => "RdExcStatus",
        8 => "Diagnostic",
        9 => "Program484",
        10 => "Poll484",
        11 => "GetCommEventCtr",
        12 => "GetCommEventLog",
        13 => "ProgramController",
        14 => "PollController",
        15 => "WrMultCoils",
        16 => "WrMultRegs",
        17 => "ReportServerID",
        18 => "Program884",
        19 => "ResetCommLink",
        20 => "RdFileRec",
        21 => "WrFileRec",
        22 => "MaskWrReg",
        23 => "RdWrMultRegs",
        24 => "RdFIFOQueue",
        43 => "MEI",
        _ => "Unknown",
    }
}

/// Name of a diagnostics sub-function (section 6.8).
pub(super) const fn diagnostic_name(code: u16) -> &'static str {
    match code {
        0 => "RetQueryData",
        1 => "RestartCommOpt",
        2 => "RetDiagReg",
        3 => "ChangeInputDelimiter",
        4 => "ForceListenOnlyMode",
        10 => "ClearCtrDiagReg",
        11 => "RetBusMsgCount",
        12 => "RetBusCommErrCount",
        13 => "RetBusExcErrCount",
        14 => "RetServerMsgCount",
        15 => "RetServerNoRespCount",
        16 => "RetServerNAKCount",
        17 => "RetServerBusyCount",
        18 => "RetBusCharOverrunCount",
        20 => "ClearOverrunCounterFlag",
        _ => "Reserved",
    }
}

/// Name of an encapsulated interface type (section 6.19).
pub(super) const fn mei_name(code: u8) -> &'static str {
    match code {
        13 => "CANOpenGenRefReqResp",
        14 => "RdDevId",
        _ => "Unknown",
    }
}

/// Name of an exception (section 7), and whether servers may send it.
pub(super) const fn exception_name(code: u8) -> (&'static str, bool) {
    match code {
        1 => ("IllegalFunction", true),
        2 => ("IllegalDataAddr", true),
        3 => ("IllegalDataValue", true),
        4 => ("ServerDeviceFail", true),
        5 => ("Ack", true),
        6 => ("ServerDeviceBusy", true),
        7 => ("NegAck", true),
        8 => ("MemParityErr", false),
        10 => ("GatewayPathUnavailable", true),
        11 => ("GatewayTargetFailToResp", true),
        _ => ("Unknown", false),
    }
}

/// The access bits of a function.
pub(super) const fn access(function: u8) -> u8 {
    match function & 0x7f {
        1 => READ | COILS,
        2 => READ | DISCRETES,
        3 => READ | HOLDING,
        4 => READ | INPUT,
        5 => WRITE | COILS | SINGLE,
        6 => WRITE | HOLDING | SINGLE,
        15 => WRITE | COILS | MULTIPLE,
        16 => WRITE | HOLDING | MULTIPLE,
        22 => WRITE | HOLDING,
        23 => READ | WRITE | HOLDING | MULTIPLE,
        _ => 0,
    }
}

fn category(function: u8, data: &[u8]) -> Category {
    match function & 0x7f {
        0 => Category::None,
        8 => match be16(data, 0) {
            Some(0..=4 | 10..=18 | 20) => Category::Assigned,
            _ => Category::Reserved,
        },
        43 => match data.first() {
            Some(13 | 14) => Category::Assigned,
            _ => Category::Reserved,
        },
        1..=24 => Category::Assigned,
        65..=72 | 100..=110 => Category::User,
        41 | 42 | 90 | 91 | 125..=127 => Category::Reserved,
        _ => Category::Unassigned,
    }
}

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Address and quantity to read.
    Read { address: u16, quantity: u16 },
    /// The values that were read.
    Values(Box<[u8]>),
    /// An address and the value to write there; with several values, their number.
    Write { address: u16, value: u16 },
    /// An address, a quantity, and the values to write there.
    WriteMany { address: u16, quantity: u16, values: Box<[u8]> },
    /// The bits of a register to keep, and those to set.
    Mask { address: u16, and: u16, or: u16 },
    /// Address and quantity to read, and the values to write first.
    ReadWrite { address: u16, quantity: u16, to: u16, count: u16, values: Box<[u8]> },
    /// A diagnostics sub-function with its data.
    Diagnostic(u16, Box<[u8]>),
    /// The type and data of an encapsulated interface.
    Mei(u8, Box<[u8]>),
    /// The server's exception code.
    Exception(u8),
    /// Anything else.
    Data(Box<[u8]>),
}

impl Body {
    /// The length of a content without a list; more bytes are surplus.
    const fn len(&self) -> Option<usize> {
        match self {
            Body::Exception(_) => Some(1),
            Body::Read { .. } | Body::Write { .. } => Some(4),
            Body::Mask { .. } => Some(6),
            _ => None,
        }
    }
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) transaction: u16,
    pub(super) protocol: u16,
    pub(super) unit: u8,
    pub(super) function: u8,
    pub(super) category: Category,
    pub(super) body: Body,
    /// Its anomalies, bits of [`FLAWS`].
    pub(super) flaws: u8,
}

/// The limit of coils or registers in a request (sections 6.1 to 6.17).
fn quantity_max(function: u8) -> u16 {
    match function {
        1 | 2 => 2000,
        3 | 4 | 23 => 125,
        15 => 1968,
        _ => 123,
    }
}

/// The size of this many values; coils are bits.
fn bytes_of(function: u8, quantity: u16) -> usize {
    let n = usize::from(quantity);
    if access(function) & (COILS | DISCRETES) != 0 { n.div_ceil(8) } else { 2 * n }
}

impl Message {
    /// Reads a message: a header of seven bytes, a function and its data. `None` if it is too short for a function.
    pub(super) fn read(message: &[u8], is_request: bool) -> Option<Message> {
        let (transaction, protocol) = (be16(message, 0)?, be16(message, 2)?);
        let (unit, function, data) = (*message.get(6)?, *message.get(7)?, message.get(8..)?);
        let mut flaws = if protocol == 0 { 0 } else { PROTOCOL };
        let body = if function & 0x80 != 0 && !is_request {
            data.first().map(|code| Body::Exception(*code))
        } else if is_request {
            request(function, data, &mut flaws)
        } else {
            response(function, data)
        };
        if is_request && (function == 0 || function >= 0x80) {
            flaws |= FUNCTION;
        }
        if let Some(Body::Exception(code)) = &body
            && !exception_name(*code).1
        {
            flaws |= EXCEPTION;
        }
        if body.as_ref().is_none_or(|b| b.len().is_some_and(|len| len != data.len())) {
            flaws |= LENGTH;
        }
        let body = body.unwrap_or_else(|| Body::Data(data.into()));
        Some(Message { transaction, protocol, unit, function, category: category(function, data), body, flaws })
    }

    /// Reads a message whose length is invalid: only the header before the length counts.
    pub(super) fn of_invalid_length(message: &[u8]) -> Option<Message> {
        let (transaction, protocol) = (be16(message, 0)?, be16(message, 2)?);
        let flaws = if protocol == 0 { LENGTH } else { LENGTH | PROTOCOL };
        let body = Body::Data(Box::default());
        Some(Message { transaction, protocol, unit: 0, function: 0, category: Category::None, body, flaws })
    }

    /// Heap memory in bytes.
    pub(super) fn held(&self) -> usize {
        match &self.body {
            Body::Values(b) | Body::Diagnostic(_, b) | Body::Mei(_, b) | Body::Data(b) => b.len(),
            Body::WriteMany { values, .. } | Body::ReadWrite { values, .. } => values.len(),
            Body::Read { .. } | Body::Write { .. } | Body::Mask { .. } | Body::Exception(_) => 0,
        }
    }

    /// Whether a response matches this request. Parts that cannot be compared count as a match.
    pub(super) fn is_met_by(&self, response: &Message) -> bool {
        match (&self.body, &response.body) {
            (Body::Read { quantity, .. } | Body::ReadWrite { quantity, .. }, Body::Values(values)) => {
                values.len() == bytes_of(self.function, *quantity)
            }
            (Body::WriteMany { address, quantity, .. }, Body::Write { address: at, value }) => {
                (address, quantity) == (at, value)
            }
            (Body::Write { .. } | Body::Mask { .. }, Body::Write { .. } | Body::Mask { .. }) => {
                self.body == response.body
            }
            _ => true,
        }
    }
}

/// Reads the content that several functions share.
fn common(function: u8, data: &[u8]) -> Option<Body> {
    Some(match function {
        5 | 6 => Body::Write { address: be16(data, 0)?, value: be16(data, 2)? },
        8 => Body::Diagnostic(be16(data, 0)?, data.get(2..)?.into()),
        22 => Body::Mask { address: be16(data, 0)?, and: be16(data, 2)?, or: be16(data, 4)? },
        43 => Body::Mei(*data.first()?, data.get(1..)?.into()),
        _ => Body::Data(data.into()),
    })
}

fn request(function: u8, data: &[u8], flaws: &mut u8) -> Option<Body> {
    let mut check = |quantity: u16, of: u8| {
        if quantity == 0 || quantity > quantity_max(of) {
            *flaws |= VALUE;
        }
    };
    let body = match function {
        1..=4 => {
            let (address, quantity) = (be16(data, 0)?, be16(data, 2)?);
            check(quantity, function);
            Body::Read { address, quantity }
        }
        15 | 16 => {
            let (address, quantity) = (be16(data, 0)?, be16(data, 2)?);
            let (count, values) = (usize::from(*data.get(4)?), data.get(5..)?);
            check(quantity, function);
            if count != bytes_of(function, quantity) {
                *flaws |= VALUE;
            }
            if count != values.len() {
                *flaws |= LENGTH;
            }
            Body::WriteMany { address, quantity, values: values.into() }
        }
        23 => {
            let (address, quantity, to, count) = (be16(data, 0)?, be16(data, 2)?, be16(data, 4)?, be16(data, 6)?);
            let (bytes, values) = (usize::from(*data.get(8)?), data.get(9..)?);
            check(quantity, 23);
            check(count, 16);
            if bytes != 2 * usize::from(count) {
                *flaws |= VALUE;
            }
            if bytes != values.len() {
                *flaws |= LENGTH;
            }
            Body::ReadWrite { address, quantity, to, count, values: values.into() }
        }
        _ => common(function, data)?,
    };
    // A coil is on or off (section 6.5).
    if function == 5
        && let Body::Write { value, .. } = body
        && value != 0
        && value != 0xff00
    {
        *flaws |= VALUE;
    }
    Some(body)
}

fn response(function: u8, data: &[u8]) -> Option<Body> {
    match function {
        1..=4 | 23 => {
            let (count, values) = data.split_first()?;
            (values.len() == usize::from(*count)).then(|| Body::Values(values.into()))
        }
        15 | 16 => Some(Body::Write { address: be16(data, 0)?, value: be16(data, 2)? }),
        _ => common(function, data),
    }
}
