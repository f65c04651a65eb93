//! Checks for events: `decode-event`, `stream-event`, `app-layer-event`; and for reputation and location: `iprep`,
//! `geoip`.

use super::Keyword;
use crate::ast::{Check, Compare, GeoIp, GeoSide, IpRepOp, IpRepSide};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::event_names::{APP_LAYER, DECODER, DECODER_GONE, STREAM};
use crate::protocol;

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["decode-event", "engine-event"], decode_event).about("an event of the packet decoder happened"),
    Keyword::value(&["stream-event"], stream_event).about("an event of stream reassembly happened"),
    Keyword::value(&["app-layer-event"], app_layer_event)
        .about("an event of an application parser or of protocol detection happened"),
    Keyword::value(&["iprep"], iprep).needs("iprep").about("the reputation of an address"),
    Keyword::value(&["geoip"], geoip).negatable().needs("geoip").about("the country of an address"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::DecodeEvent(_) => "decode-event",
        Check::StreamEvent(_) => "stream-event",
        Check::AppEvent(_) => "app-layer-event",
        Check::IpRep { .. } => "iprep",
        Check::GeoIp(_) => "geoip",
        _ => return None,
    })
}

fn decode_event(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let t = i.text.trim();
    if i.written == "engine-event"
        && let Some(s) = t.strip_prefix("stream.")
    {
        return stream(b, s);
    }
    let name = t.strip_prefix("decoder.").unwrap_or(t).to_ascii_lowercase();
    let name = name.as_str();
    if DECODER_GONE.contains(&name) {
        let text = format!("{} keyword no longer supports event \"decoder.{name}\"", i.written);
        return Err(if b.ctx.strict.has(i.written) || b.ctx.strict.has(i.name) {
            Fail::new("detect", text)
        } else {
            Fail::silently("detect", text)
        });
    }
    if DECODER.binary_search(&name).is_err() {
        return fail("detect", format!("unknown decode event \"decoder.{name}\""));
    }
    b.check(Check::DecodeEvent(name.to_owned()));
    Ok(())
}

fn stream_event(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let t = i.text.trim();
    stream(b, t.strip_prefix("stream.").unwrap_or(t))
}

fn stream(b: &mut Builder<'_>, name: &str) -> Result<(), Fail> {
    let name = name.to_ascii_lowercase();
    let name = name.as_str();
    if STREAM.binary_search(&name).is_err() {
        return fail("detect", format!("unknown decode event \"stream.{name}\""));
    }
    b.check(Check::StreamEvent(name.to_owned()));
    Ok(())
}

fn app_layer_event(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-app-layer-event";
    let t = i.text.trim();
    match t.split_once('.') {
        None => {
            if !APP_LAYER.contains(&t) {
                return Err(Fail::new(
                    "app-layer-events",
                    format!("event \"{t}\" not present in app-layer-event's packet event table."),
                )
                .and(
                    M,
                    format!(
                        "app-layer-event keyword supplied with packet based event - \"{t}\" that isn't supported yet."
                    ),
                ));
            }
            if !b.ctx.available.contains("app-layer") {
                b.missing("app-layer-event");
            }
        }
        Some((name, event)) => {
            let Some(group) = protocol::group(name) else {
                return fail(M, format!("app-layer-event keyword supplied with unknown protocol \"{name}\""));
            };
            super::need_protocol(b, group, "app-layer-event");
            b.restrict(group)?;
            let mut parsed =
                margay_app::PROTOCOLS.iter().filter(|p| p.proto.is_meant_by(name) && !p.events.is_empty()).peekable();
            if b.ctx.check_events && parsed.peek().is_some() && !parsed.any(|p| p.events.contains(&event)) {
                let text =
                    format!("app-layer-event keyword's protocol \"{name}\" doesn't have event \"{event}\" registered");
                return Err(match b.ctx.strict.has("app-layer-event") {
                    true => Fail::new(M, text),
                    false => Fail::silently(M, text),
                });
            }
        }
    }
    b.check(Check::AppEvent(t.to_owned()));
    Ok(())
}

fn iprep(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bad = || Fail::new("detect-iprep", format!("\"{}\" is not a valid setting for iprep", i.text));
    let words: Vec<&str> = i.text.split(',').map(str::trim).collect();
    let (side, category, op, value) = match *words.as_slice() {
        [s, c, o] => (s, c, o, None),
        [s, c, o, v] => (s, c, o, Some(v)),
        _ => return Err(bad()),
    };
    let side = match side {
        "any" => IpRepSide::Any,
        "src" => IpRepSide::Source,
        "dst" => IpRepSide::Destination,
        "both" => IpRepSide::Both,
        _ => return Err(bad()),
    };
    if category.is_empty() || category.contains(char::is_whitespace) {
        return Err(bad());
    }
    let op = match (op, value) {
        ("isset", None) => IpRepOp::IsSet,
        ("isnotset", None) => IpRepOp::IsNotSet,
        (op, Some(v)) => {
            let n = crate::number::decimal(v, 127).ok_or_else(bad)?;
            IpRepOp::Score(match op {
                "<" => Compare::Less(n),
                "<=" => Compare::LessEqual(n),
                ">" => Compare::Greater(n),
                ">=" => Compare::GreaterEqual(n),
                "=" => Compare::Equal(n),
                "!=" => Compare::NotEqual(n),
                _ => return Err(bad()),
            })
        }
        _ => return Err(bad()),
    };
    b.check(Check::IpRep { side, category: category.to_owned(), op });
    Ok(())
}

fn geoip(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-geoip";
    let text = i.text.trim();
    let mut words = text.split(',').map(str::trim);
    let side = match words.clone().next().unwrap_or_default() {
        "src" => Some(GeoSide::Source),
        "dst" | "dest" => Some(GeoSide::Destination),
        "any" => Some(GeoSide::Any),
        "both" => Some(GeoSide::Both),
        _ => None,
    };
    if side.is_some() {
        words.next();
    }
    // A single `!` negates the whole list, wherever it is (observed).
    let mut negated = i.negated;
    let mut countries = Vec::new();
    for w in words {
        let code = w.strip_prefix('!').inspect(|_| negated = true).unwrap_or(w);
        match <[u8; 2]>::try_from(code.as_bytes()) {
            Ok(c) if c.iter().all(u8::is_ascii_alphabetic) && countries.len() < 64 => {
                countries.push(c.map(|b| b.to_ascii_uppercase()));
            }
            _ => return fail(M, format!("invalid value for geoip: \"{text}\"; two-letter country codes are expected")),
        }
    }
    if countries.is_empty() {
        return fail(M, format!("geoip names no country: \"{text}\""));
    }
    b.check(Check::GeoIp(GeoIp { side: side.unwrap_or(GeoSide::Any), countries, negated }));
    Ok(())
}
