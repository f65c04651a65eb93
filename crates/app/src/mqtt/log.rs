//! The event of a transaction.

use margay_json::Json;

use super::message::{CONNECT_FLAGS, Connect, Kind, Message, Part, Properties, Type, Value};
use super::tx::Exchange;
use crate::config::AppLogOptions;
use crate::proto::AppProto;

const PASSWORDS: usize = 0;
const STRING_LIMIT: usize = 1;

pub(super) fn exchange(exchange: &Exchange, json: &mut Json, options: &AppLogOptions) {
    let option = |place| options.options.get(AppProto::Mqtt, place);
    let shown = Shown { passwords: option(PASSWORDS) != 0, limit: limit(option(STRING_LIMIT)) };
    json.object("mqtt");
    // A retransmitted message is logged once.
    let mut seen = 0u16;
    for m in &exchange.messages {
        let bit = 1 << m.of().0;
        if seen & bit == 0 {
            seen |= bit;
            shown.message(m, json);
        }
    }
    json.end_object();
}

/// The limits on logged data.
#[derive(Debug)]
struct Shown {
    passwords: bool,
    limit: usize,
}

impl Shown {
    fn message(&self, m: &Message, json: &mut Json) {
        json.object(m.of().name());
        json.uint("qos", u64::from(m.qos()));
        json.bool("retain", m.first & 1 != 0);
        json.bool("dup", m.first & 8 != 0);
        match &m.kind {
            Kind::Truncated(len) => {
                json.bool("truncated", true);
                json.uint("skipped_length", *len as u64);
            }
            Kind::Connect(c) => self.connect(m, c, json),
            Kind::Connack { session_present, code, properties } => {
                json.bool("session_present", *session_present);
                json.uint("return_code", u64::from(*code));
                self.properties(m, properties, json);
            }
            Kind::Publish { topic, id, properties, message } => {
                self.text("topic", m.part(topic), json);
                if let Some(id) = id {
                    json.uint("message_id", u64::from(*id));
                }
                self.text("message", m.part(message), json);
                self.properties(m, properties, json);
            }
            Kind::Receipt { id, reason, properties } => {
                json.uint("message_id", u64::from(*id));
                self.reason(*reason, json);
                self.properties(m, properties, json);
            }
            Kind::Topics { id, properties, topics } => {
                json.uint("message_id", u64::from(*id));
                self.topics(m, topics, json);
                self.properties(m, properties, json);
            }
            Kind::Codes { id, properties, codes } => {
                json.uint("message_id", u64::from(*id));
                if let Some(codes) = codes {
                    json.array(if m.of() == Type::SUBACK { "qos_granted" } else { "reason_codes" });
                    // A code for each topic, with the same limit.
                    for code in m.part(codes).iter().take(self.limit.max(1)) {
                        json.item_uint(u64::from(*code));
                    }
                    json.end_array();
                }
                self.properties(m, properties, json);
            }
            Kind::Reason { reason, properties } => {
                self.reason(*reason, json);
                self.properties(m, properties, json);
            }
            Kind::Empty => {}
        }
        json.end_object();
    }

    fn connect(&self, m: &Message, c: &Connect, json: &mut Json) {
        self.text("protocol_string", m.part(&c.protocol), json);
        json.uint("protocol_version", u64::from(c.version));
        self.text("client_id", m.part(&c.client_id), json);
        json.object("flags");
        for (name, bit) in CONNECT_FLAGS {
            json.bool(name, u64::from(c.flags) & bit != 0);
        }
        json.end_object();
        if let Some(username) = &c.username {
            self.text("username", m.part(username), json);
        }
        if let Some(password) = c.password.as_ref().filter(|_| self.passwords) {
            self.text("password", m.part(password), json);
        }
        if let Some((properties, topic, message)) = &c.will {
            json.object("will");
            self.text("topic", m.part(topic), json);
            self.text("message", m.part(message), json);
            self.properties(m, properties, json);
            json.end_object();
        }
        self.properties(m, &c.properties, json);
    }

    /// The limit of a string applies to all topics together.
    fn topics(&self, m: &Message, topics: &[u32], json: &mut Json) {
        let mut left = self.limit;
        json.array("topics");
        for at in topics {
            let (topic, qos) = m.topic(*at);
            let (text, cut) = cut(topic, left);
            if m.of() == Type::SUBSCRIBE {
                json.item_object();
                json.bytes("topic", &text);
                json.uint("qos", u64::from(qos & 3));
                json.end_object();
            } else {
                json.item_bytes(&text);
            }
            if cut {
                break;
            }
            // An empty topic also counts.
            left = left.saturating_sub(topic.len().max(1));
        }
        json.end_array();
    }

    fn reason(&self, reason: Option<u8>, json: &mut Json) {
        if let Some(reason) = reason {
            json.uint("reason_code", u64::from(reason));
        }
    }

    /// Skips a user property with a repeated name, because an object has each name once.
    fn properties(&self, m: &Message, part: &Part, json: &mut Json) {
        let data = m.part(part);
        if data.is_empty() {
            return;
        }
        json.object("properties");
        let mut names: Vec<&[u8]> = Vec::new();
        for (name, value) in Properties::of(data) {
            if names.contains(&name) {
                continue;
            }
            names.push(name);
            json.name(&String::from_utf8_lossy(name));
            match value {
                Value::Number(n) => json.item_uint(n),
                Value::Text(text) => json.item_bytes(&cut(text, self.limit).0),
            }
        }
        json.end_object();
    }

    fn text(&self, key: &'static str, text: &[u8], json: &mut Json) {
        json.bytes(key, &cut(text, self.limit).0);
    }
}

/// 0 is no limit.
const fn limit(setting: u64) -> usize {
    if setting == 0 { usize::MAX } else { setting as usize }
}

/// Cuts text at the limit and adds a note about the rest. Returns the text, and whether it was cut.
fn cut(text: &[u8], limit: usize) -> (std::borrow::Cow<'_, [u8]>, bool) {
    match text.split_at_checked(limit) {
        Some((shown, rest)) if !rest.is_empty() => {
            let mut out = shown.to_vec();
            out.extend_from_slice(format!("[truncated {} additional bytes]", rest.len()).as_bytes());
            (out.into(), true)
        }
        _ => (text.into(), false),
    }
}
