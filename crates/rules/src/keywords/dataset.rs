//! `dataset` and `datarep`.

use super::Keyword;
use crate::ast::{BufferCheck, DataRep, DataRepOp, Dataset, SetCommand, SetFormat, SetOptions};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["dataset"], dataset).needs("dataset").about("the buffer is in a set, or is added to it"),
    Keyword::value(&["datarep"], datarep).needs("dataset").about("the reputation of the buffer in a list"),
];

/// The sticky buffer. Datasets need one, since packet and stream data has no fixed start and end.
fn sticky(b: &Builder<'_>, module: &'static str) -> Result<usize, Fail> {
    b.current.ok_or_else(|| Fail::new(module, "datasets are only supported for sticky buffers"))
}

fn name_of(text: Option<&str>, module: &'static str) -> Result<String, Fail> {
    match text.map(str::trim) {
        None | Some("") => fail(module, "a set needs a name"),
        Some(n) if n.contains(char::is_whitespace) => {
            fail(module, format!("spaces not allowed in dataset names: \"{n}\""))
        }
        Some(n) => Ok(n.to_owned()),
    }
}

/// Parses the options after the name: `key value`, separated by commas.
fn options<'t>(
    b: &mut Builder<'_>,
    words: impl Iterator<Item = &'t str>,
    allowed: fn(&str) -> bool,
    module: &'static str,
) -> Result<SetOptions, Fail> {
    let mut o = SetOptions::default();
    for word in words.map(str::trim) {
        let (key, value) = word.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((word, ""));
        let value = value.trim();
        if !allowed(key) {
            b.warn(module, format!("unknown option \"{key}\" is ignored"));
            continue;
        }
        match o.set(key, value) {
            Ok(true) if value.is_empty() && key != "remove_key" => {
                b.warn(module, format!("option \"{key}\" has no value and is ignored"));
            }
            Ok(true) => {}
            Ok(false) => b.warn(module, format!("unknown option \"{key}\" is ignored")),
            // An invalid size leaves the default.
            Err(e) if matches!(key, "memcap" | "hashsize") => b.warn(module, e),
            Err(e) => return fail(module, e),
        }
    }
    Ok(o)
}

fn dataset(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-dataset";
    let group = sticky(b, M)?;
    let text = i.text.as_ref();
    let mut words = text.split(',');
    let action = words.next().unwrap_or_default().trim();
    let command = match action {
        "set" => SetCommand::Set,
        "unset" => SetCommand::Unset,
        "isset" => SetCommand::IsSet,
        "isnotset" => SetCommand::IsNotSet,
        _ => return fail(M, format!("dataset action \"{action}\" is not supported.")),
    };
    let name = name_of(words.next(), M)?;
    let mut options = options(b, words, |_| true, M)?;
    if options.state.is_some() && (options.load.is_some() || options.save.is_some()) {
        b.warn(M, "'state' can not be mixed with 'load' and 'save'");
        (options.load, options.save) = (None, None);
    }
    if options.format != SetFormat::Csv {
        if options.value_key.is_none() {
            return fail(
                M,
                format!("set {name}: files in JSON need value_key, to say where in an object the value is"),
            );
        }
        if options.save.is_some() || options.state.is_some() {
            return fail(M, format!("set {name}: only sets in the format csv can have 'save' or 'state'"));
        }
    }
    if options.format == SetFormat::Csv && (options.context_key.is_some() || options.value_key.is_some()) {
        return fail(
            M,
            format!("set {name}: context_key and value_key are for files in JSON: add format json or ndjson"),
        );
    }
    if options.format != SetFormat::Json && options.array_key.is_some() {
        b.warn(M, "array_key is only of use with the format json");
    }
    b.add(group, BufferCheck::Dataset(Box::new(Dataset { command, name, options })));
    Ok(())
}

fn datarep(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-datarep";
    let group = sticky(b, M)?;
    let text = i.text.as_ref();
    let mut words = text.split(',');
    let name = name_of(words.next(), M)?;
    let (Some(op), Some(value)) = (words.next(), words.next()) else {
        return fail(M, "missing values: datarep:<name>,<operator>,<value>");
    };
    let op = match op.trim() {
        "<" => DataRepOp::Less,
        ">" => DataRepOp::Greater,
        "==" => DataRepOp::Equal,
        other => return fail(M, format!("datarep operation \"{other}\" is not supported.")),
    };
    let value = match crate::number::decimal(value.trim(), u16::MAX.into()) {
        Some(v) => v as u16,
        None => return fail(M, format!("invalid datarep value {name}: \"{}\" is not 0 to 65535", value.trim())),
    };
    let allowed = |key: &str| matches!(key, "type" | "load" | "memcap" | "hashsize");
    let options = options(b, words, allowed, M)?;
    if options.load.is_some() && options.kind.is_none() {
        return fail(M, "if load is used type must be set as well");
    }
    b.add(group, BufferCheck::DataRep(Box::new(DataRep { name, op, value, options })));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ast::*;
    use crate::{Context, load_str};

    fn load(keyword: &str) -> Result<BufferCheck, String> {
        let mut ctx = Context::default();
        ctx.available.extend(["http", "dataset"].map(str::to_owned));
        let text = format!("alert http any any -> any any (http.host; {keyword}; sid:1;)");
        let mut l = load_str(&text, "t.rules", &ctx);
        match l.rules.pop() {
            Some(mut r) => Ok(r.buffers.remove(0).checks.remove(0)),
            None => Err(l.errors[0].messages[0].text.clone()),
        }
    }

    #[test]
    fn datasets() {
        let Ok(BufferCheck::Dataset(d)) =
            load("dataset:set  ,ua-seen, type string, memcap 10mb, hashsize 100,save a b.csv")
        else {
            panic!("a dataset")
        };
        assert_eq!((d.command, d.name.as_str()), (SetCommand::Set, "ua-seen"));
        let want = SetOptions {
            kind: Some(SetKind::String),
            memcap: Some(10 << 20),
            hashsize: Some(100),
            save: Some("a b.csv".into()),
            ..SetOptions::default()
        };
        assert_eq!(d.options, want);
        let Ok(BufferCheck::Dataset(d)) =
            load("dataset:isset,x,type ipv6,load f,format jsonline,enrichment_key k,value_key a.b,remove_key")
        else {
            panic!("a dataset")
        };
        assert_eq!(d.options.kind, Some(SetKind::Ip));
        assert_eq!((d.options.format, d.options.remove_key), (SetFormat::NdJson, true));
        assert_eq!((d.options.context_key.as_deref(), d.options.value_key.as_deref()), (Some("k"), Some("a.b")));
        let Ok(BufferCheck::Dataset(d)) = load("dataset:isset,x,type md5,load f,state s") else { panic!("a dataset") };
        assert_eq!((d.options.load, d.options.state.as_deref()), (None, Some("s")));
    }

    #[test]
    fn reputations() {
        let Ok(BufferCheck::DataRep(d)) = load("datarep:m, >, 200, load m.rep, type md5") else { panic!("a datarep") };
        assert_eq!((d.op, d.value, d.options.kind), (DataRepOp::Greater, 200, Some(SetKind::Md5)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (keyword, says) in [
            ("dataset:foo,n,type string", "dataset action \"foo\" is not supported."),
            ("dataset:!isset,n,type string", "dataset action \"!isset\" is not supported."),
            ("dataset:isset", "a set needs a name"),
            ("dataset:isset,a b", "spaces not allowed in dataset names: \"a b\""),
            ("dataset:isset,a,type bla", "bad type bla"),
            ("dataset:isset,a,type ip,load x,format json", "set a: files in JSON need value_key"),
            ("dataset:isset,a,type ip,state x,format json,value_key k", "set a: only sets in the format csv"),
            ("dataset:isset,a,type ip,format xml", "unknown format xml"),
            ("dataset:isset,a,type ip,load x,context_key k", "context_key and value_key are for files in JSON"),
            ("datarep:n, =, 1", "datarep operation \"=\" is not supported."),
            ("datarep:n, >", "missing values"),
            ("datarep:n, >, 65536", "invalid datarep value n"),
            ("datarep:n, >, 1, load x", "if load is used type must be set as well"),
            ("pkt_data; dataset:isset,a,type string", "previous"),
        ] {
            match load(keyword) {
                Err(e) if e.contains(says) || says == "previous" => {}
                other => panic!("{keyword}: {other:?}"),
            }
        }
    }
}
