//! The state of a transaction, and its values for rules and events.

use margay_flow::Direction;
use margay_json::Json;

use super::{Id, text};
use crate::bytes::{be16, be32};
use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::proto::AppProto;
use crate::tx::{Found, LogFor, TxBase};

/// The limit of parameters that are kept or logged in a message or a transaction.
const PARAMETERS_MAX: usize = 64;
/// The limit of each text of a response in bytes.
const TEXT_MAX: usize = 16 << 10;

const PASSWORDS: usize = 0;

/// Counts of messages with data.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copied {
    messages: u64,
    bytes: u64,
}

impl Copied {
    pub(super) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A client's request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Request {
    /// Unknown.
    #[default]
    None,
    Ssl,
    Gss,
    Cancel {
        process: u32,
        key: u32,
    },
    /// Names and values, each up to a zero.
    Startup {
        version: u32,
        parameters: Box<[u8]>,
    },
    Password(Box<[u8]>),
    SaslInitial {
        mechanism: Box<[u8]>,
        parameter: Box<[u8]>,
    },
    Sasl(Box<[u8]>),
    /// A step of GSSAPI or SSPI.
    Token,
    Query(Box<[u8]>),
    /// Data for a table, and its end.
    Copy {
        data: Copied,
        done: Option<&'static str>,
    },
    Terminate,
}

/// A parameter's name and value.
type Parameter = (Box<[u8]>, Box<[u8]>);

/// A server's response.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) ssl_accepted: Option<bool>,
    /// Name of the authentication message.
    message: Option<&'static str>,
    salt: Option<[u8; 4]>,
    sasl_final: Option<Box<[u8]>>,
    parameters: Vec<Parameter>,
    /// Process and secret key.
    key: Option<(u32, u32)>,
    columns: Option<u16>,
    /// Columns of data copied in and out.
    copies: [Option<u16>; 2],
    rows: Copied,
    copied_out: Copied,
    completed: Option<Box<[u8]>>,
    /// Fields of an error or a notice.
    error: Option<Box<[u8]>>,
    /// Whether it is an error.
    is_error: bool,
}

/// A request with its response.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) request: Request,
    pub(super) response: Response,
}

fn some_of(data: &[u8]) -> Box<[u8]> {
    data.get(..TEXT_MAX).unwrap_or(data).into()
}

impl Response {
    /// Adds a message of type `of`; `len` is the length of its whole body.
    pub(super) fn add(&mut self, of: u8, body: &[u8], len: u64) {
        match of {
            b'R' => self.authentication(body),
            b'S' if self.parameters.len() < PARAMETERS_MAX => {
                let (name, rest) = text(body);
                self.parameters.push((some_of(name), some_of(text(rest).0)));
            }
            b'K' => self.key = be32(body, 0).zip(be32(body, 4)),
            b'T' => self.columns = be16(body, 0),
            // Each column has a four-byte length.
            b'D' => self.rows.add(len.saturating_sub(2 + 4 * u64::from(be16(body, 0).unwrap_or(0)))),
            b'd' => self.copied_out.add(len),
            b'G' => self.copies[0] = be16(body, 1),
            b'H' => self.copies[1] = be16(body, 1),
            b'C' => self.completed = Some(some_of(text(body).0)),
            b'E' | b'N' if self.error.is_none() || of == b'E' && !self.is_error => {
                self.error = Some(some_of(body));
                self.is_error = of == b'E';
            }
            _ => {}
        }
    }

    fn authentication(&mut self, body: &[u8]) {
        self.message = match be32(body, 0) {
            Some(0) => Some("authentication_ok"),
            Some(2) => Some("authentication_kerberos_v5"),
            Some(3) => Some("authentication_cleartext_password"),
            Some(5) => {
                self.salt = body.get(4..).and_then(|b| b.first_chunk()).copied();
                None
            }
            Some(7) => Some("authentication_gss"),
            Some(8) => Some("authentication_gss_continue"),
            Some(9) => Some("authentication_sspi"),
            Some(10) => Some("authentication_sasl"),
            Some(11) => Some("authentication_sasl_continue"),
            Some(12) => {
                self.sasl_final = body.get(4..).map(some_of);
                None
            }
            _ => None,
        };
    }

    fn is_empty(&self) -> bool {
        self.ssl_accepted.is_none()
            && self.message.is_none()
            && self.salt.is_none()
            && self.sasl_final.is_none()
            && self.parameters.is_empty()
            && self.key.is_none()
            && self.columns.is_none()
            && self.copies == [None; 2]
            && self.rows == Copied::default()
            && self.copied_out == Copied::default()
            && self.completed.is_none()
            && self.error.is_none()
    }

    fn held(&self) -> usize {
        let of = |b: &Option<Box<[u8]>>| b.as_ref().map_or(0, |b| b.len());
        let own = self.parameters.capacity() * size_of::<Parameter>();
        own + self.parameters.iter().map(|p| p.0.len() + p.1.len()).sum::<usize>()
            + of(&self.sasl_final)
            + of(&self.completed)
            + of(&self.error)
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        let request = match &self.request {
            Request::Startup { parameters: b, .. } | Request::Password(b) | Request::Sasl(b) | Request::Query(b) => {
                b.len()
            }
            Request::SaslInitial { mechanism, parameter } => mechanism.len() + parameter.len(),
            _ => 0,
        };
        (request + self.response.held()) as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, _index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        match (Id::of(id)?, &self.request) {
            (Id::Query, Request::Query(query)) if dir == Direction::ToServer => Some(Found::whole(query)),
            _ => None,
        }
    }

    fn log(&self, base: &TxBase, json: &mut Json, options: &AppLogOptions, _what: LogFor) {
        json.object("pgsql");
        json.uint("tx_id", base.id + 1);
        if self.request != Request::None {
            json.object("request");
            self.log_request(json, options.options.get(AppProto::Pgsql, PASSWORDS) != 0);
            json.end_object();
        }
        if !self.response.is_empty() {
            json.object("response");
            self.response.log(json);
            json.end_object();
        }
        json.end_object();
    }
}

/// A parameter name in the format of events: `TimeZone` is `time_zone`.
fn name(of: &[u8]) -> String {
    let mut out = String::with_capacity(of.len() + 4);
    let mut lower = false;
    for c in String::from_utf8_lossy(of).chars() {
        if lower && c.is_ascii_uppercase() {
            out.push('_');
        }
        lower = c.is_ascii_lowercase();
        out.push(c.to_ascii_lowercase());
    }
    out
}

fn parameter(of: &[u8], value: &[u8], json: &mut Json) {
    json.item_object();
    json.name(&name(of));
    json.item_bytes(value);
    json.end_object();
}

/// Pairs of texts, up to an empty one.
fn pairs(data: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (name, behind) = text(rest);
        let (value, behind) = text(behind);
        rest = behind;
        (!name.is_empty()).then_some((name, value))
    })
    .take(PARAMETERS_MAX)
}

impl Exchange {
    fn log_request(&self, json: &mut Json, passwords: bool) {
        match &self.request {
            Request::None => {}
            Request::Ssl => json.word("message", "SSL Request"),
            Request::Gss => json.word("message", "GSSENC Request"),
            Request::Cancel { process, key } => {
                json.word("message", "cancel_request");
                json.uint("process_id", u64::from(*process));
                json.uint("secret_key", u64::from(*key));
            }
            Request::Startup { version, parameters } => {
                json.str("protocol_version", &format!("{}.{}", version >> 16, version & 0xffff));
                json.object("startup_parameters");
                if let Some((_, user)) = pairs(parameters).find(|p| p.0 == b"user") {
                    json.bytes("user", user);
                }
                if pairs(parameters).any(|p| p.0 != b"user") {
                    json.array("optional_parameters");
                    for (of, value) in pairs(parameters).filter(|p| p.0 != b"user") {
                        parameter(of, value, json);
                    }
                    json.end_array();
                }
                json.end_object();
            }
            Request::Password(password) if passwords => json.bytes("password", password),
            Request::Password(_) => json.bool("password_redacted", true),
            Request::SaslInitial { mechanism, parameter } => {
                match &**mechanism {
                    b"SCRAM-SHA-256" => json.word("sasl_authentication_mechanism", "scram_SHA256"),
                    b"SCRAM-SHA-256-PLUS" => json.word("sasl_authentication_mechanism", "scram_SHA256_plus"),
                    other => json.bytes("sasl_authentication_mechanism", other),
                }
                json.bytes("sasl_param", parameter);
            }
            Request::Sasl(response) => json.bytes("sasl_response", response),
            Request::Token => json.word("message", "gss_response"),
            Request::Query(query) => json.bytes("simple_query", query),
            Request::Copy { data, done } => {
                json.object("copy_data_in");
                json.uint("msg_count", data.messages);
                json.uint("data_size", data.bytes);
                json.end_object();
                if let Some(done) = done {
                    json.word("message", done);
                }
            }
            Request::Terminate => json.word("message", "termination_message"),
        }
    }
}

impl Response {
    fn log(&self, json: &mut Json) {
        if let Some(accepted) = self.ssl_accepted {
            json.bool("ssl_accepted", accepted);
        }
        if let Some(salt) = &self.salt {
            json.bytes("authentication_md5_password", salt);
        }
        if let Some(text) = &self.sasl_final {
            json.bytes("authentication_sasl_final", text);
        }
        // An error has a text with this name.
        if let Some(message) = self.message.filter(|_| self.error.is_none()) {
            json.word("message", message);
        }
        if let Some(error) = &self.error {
            self.log_error(error, json);
        }
        if !self.parameters.is_empty() {
            json.array("parameter_status");
            for (of, value) in &self.parameters {
                parameter(of, value, json);
            }
            json.end_array();
        }
        if let Some((process, key)) = self.key {
            json.uint("process_id", u64::from(process));
            json.uint("secret_key", u64::from(key));
        }
        if let Some(columns) = self.columns {
            json.uint("field_count", u64::from(columns));
        }
        for (key, columns) in ["copy_in_response", "copy_out_response"].into_iter().zip(self.copies) {
            if let Some(columns) = columns {
                json.object(key);
                json.uint("columns", u64::from(columns));
                json.end_object();
            }
        }
        if self.rows.messages > 0 {
            json.uint("data_rows", self.rows.messages);
            json.uint("data_size", self.rows.bytes);
        }
        if self.copied_out.messages > 0 {
            json.object("copy_data_out");
            json.uint("row_count", self.copied_out.messages);
            json.uint("data_size", self.copied_out.bytes);
            json.end_object();
        }
        if let Some(completed) = &self.completed {
            json.bytes("command_completed", completed);
        }
    }

    /// Appends fields: a letter and a text each, up to a zero. Repeated ones are skipped.
    fn log_error(&self, fields: &[u8], json: &mut Json) {
        const FIELDS: &[(u8, &str)] = &[
            (b'S', "severity_localizable"),
            (b'V', "severity_non_localizable"),
            (b'C', "code"),
            (b'M', "message"),
            (b'D', "detail"),
            (b'H', "hint"),
            (b'P', "position"),
            (b'p', "internal_position"),
            (b'q', "internal_query"),
            (b'W', "where"),
            (b's', "schema_name"),
            (b't', "table_name"),
            (b'c', "column_name"),
            (b'd', "data_type_name"),
            (b'n', "constraint_name"),
            (b'F', "file"),
            (b'L', "line"),
            (b'R', "routine"),
        ];
        let mut seen = 0u32;
        let mut rest = fields;
        while let Some((kind, behind)) = rest.split_first().filter(|(kind, _)| **kind != 0) {
            let (value, behind) = text(behind);
            rest = behind;
            if let Some(at) = FIELDS.iter().position(|f| f.0 == *kind).filter(|at| seen & 1 << at == 0) {
                seen |= 1 << at;
                json.bytes(FIELDS[at].1, value);
            }
        }
    }
}
