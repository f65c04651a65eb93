//! Reads the declarations in `defence/*.toml`: the attack that each rule is against, and samples of it.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::build::{Message, Over, Packets, Sample};
use crate::problem::{Outcome, Problem};

/// The action of a declaration's rule on an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The rule drops them.
    Stop,
    /// The rule alerts.
    Notice,
}

/// One declaration.
#[derive(Clone, Debug)]
pub(super) struct Defence {
    pub(super) sid: u32,
    /// Number of rules: one for each place, with consecutive sids from `sid`.
    pub(super) rules: u32,
    pub(super) name: String,
    /// Identifiers from ATT&CK, CWE and CVE.
    pub(super) techniques: Vec<String>,
    /// The rule's class (`classtype`).
    pub(super) class: String,
    pub(super) action: Action,
    /// The rule only adds to a score.
    pub(super) weak: bool,
    /// The attack's place in a request, or the protocol of its packets.
    pub(super) place: String,
    pub(super) stops: Vec<Content>,
    pub(super) passes: Vec<Content>,
    /// The file's name.
    pub(super) file: String,
}

/// The content of a sample.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A value in an HTTP request, at the declaration's first place.
    Value(String),
    /// A conversation.
    Conversation(Sample),
}

/// Reads the declarations of these files and folders. The files of a folder are sorted by name.
///
/// # Errors
/// If a file cannot be read, or a declaration makes no sense. The error names the file and the sid.
pub(super) fn read(paths: &[PathBuf]) -> Outcome<Vec<Defence>> {
    let mut all = Vec::new();
    for path in paths {
        let mut files = vec![path.clone()];
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(|error| Problem::file("read", path, error))?;
            files = entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|p| p.extension().is_some_and(|e| e == "toml"))
                .collect();
            files.sort();
        }
        if files.is_empty() {
            return Err(Problem::Usage(format!("there is no declaration (*.toml) in {}", path.display())));
        }
        for file in files {
            all.extend(read_file(&file)?);
        }
    }
    Ok(all)
}

fn read_file(path: &Path) -> Outcome<Vec<Defence>> {
    let text = std::fs::read_to_string(path).map_err(|error| Problem::file("read", path, error))?;
    let wrong = |why: String| Problem::Usage(format!("{}: {why}", path.display()));
    let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| wrong(error.to_string()))?;
    let tables = document.get("defence").and_then(Item::as_array_of_tables);
    let tables = tables.ok_or_else(|| wrong("there is no [[defence]] in it".to_owned()))?;
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    tables.iter().map(|table| defence(table, &file).map_err(&wrong)).collect()
}

fn text<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Item::as_str)
}

fn defence(table: &Table, file: &str) -> Result<Defence, String> {
    let sid = table.get("sid").and_then(Item::as_integer).and_then(|sid| u32::try_from(sid).ok());
    let sid = sid.ok_or_else(|| "a defence has no sid".to_owned())?;
    let wrong = |why: &str| format!("defence {sid}: {why}");
    let name = text(table, "name").ok_or_else(|| wrong("it has no name"))?.to_owned();
    let techniques = text(table, "technique").ok_or_else(|| wrong("it has no technique"))?;
    let techniques = techniques.split(',').map(|word| word.trim().to_owned()).collect();
    let places: Vec<&str> = match table.get("where") {
        Some(Item::Value(Value::Array(places))) => places.iter().filter_map(Value::as_str).collect(),
        Some(place) => place.as_str().into_iter().collect(),
        None => Vec::new(),
    };
    let header = text(table, "header");
    let place = match (header, places.first()) {
        (Some(header), _) => header.split(' ').next().unwrap_or_default(),
        (None, Some(place)) => place,
        (None, None) => return Err(wrong("it has neither header nor where")),
    };
    let certain = match text(table, "confidence") {
        None => table.get("score").is_none(),
        Some("high") => true,
        Some("medium" | "low") => false,
        Some(other) => return Err(wrong(&format!("confidence is high, medium or low, and not {other:?}"))),
    };
    let contents = |key: &str| -> Result<Vec<Content>, String> {
        let values =
            table.get(key).and_then(Item::as_array).ok_or_else(|| wrong(&format!("it has no list '{key}'")))?;
        let all = values.iter().map(|value| match value {
            Value::String(text) => Ok(Content::Value(text.value().clone())),
            Value::InlineTable(fields) => sample(fields).map(Content::Conversation),
            _ => Err("a sample is a text or a table".to_owned()),
        });
        all.collect::<Result<_, _>>().map_err(|why| wrong(&format!("{key}: {why}")))
    };
    Ok(Defence {
        sid,
        weak: table.get("score").is_some(),
        rules: places.len().max(1) as u32,
        name,
        techniques,
        class: text(table, "class")
            .unwrap_or(if header.is_some() { "attempted-admin" } else { "web-application-attack" })
            .to_owned(),
        action: if certain && table.get("score").is_none() { Action::Stop } else { Action::Notice },
        place: place.to_owned(),
        stops: contents("stops")?,
        passes: contents("passes")?,
        file: file.to_owned(),
    })
}

fn number<T: TryFrom<i64>>(table: &dyn TableLike, key: &str) -> Result<Option<T>, String> {
    let Some(item) = table.get(key) else { return Ok(None) };
    let value = item.as_integer().and_then(|n| T::try_from(n).ok());
    value.map(Some).ok_or_else(|| format!("'{key}' is not a number that fits"))
}

/// The texts of a list; `None` if there is no such list.
fn texts(table: &dyn TableLike, key: &str) -> Result<Option<Vec<String>>, String> {
    let Some(item) = table.get(key) else { return Ok(None) };
    let values = item.as_array().ok_or_else(|| format!("'{key}' is a list"))?;
    let all = values.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(|| format!("'{key}' has texts")));
    all.collect::<Result<_, _>>().map(Some)
}

/// Reads a conversation, see `docs/attacks.md`.
fn sample(fields: &dyn TableLike) -> Result<Sample, String> {
    const KNOWN: [&str; 11] =
        ["over", "port", "client", "say", "flags", "times", "apart", "from", "ip", "again", "window"];
    if let Some((key, _)) = fields.iter().find(|(key, _)| !KNOWN.contains(key)) {
        return Err(format!("a sample has '{key}', which means nothing"));
    }
    let over = fields.get("over").and_then(Item::as_str).unwrap_or_default();
    let over = Over::parse(over).ok_or_else(|| format!("a sample goes over '{over}', which is unknown"))?;
    let mut say = match texts(fields, "say")? {
        Some(lines) => lines.iter().map(|line| Message::parse(line)).collect::<Result<Vec<_>, _>>()?,
        None => vec![Message { from_client: true, data: Vec::new() }],
    };
    let again = number::<u16>(fields, "again")?.unwrap_or(0);
    if let Some(last) = say.last().cloned() {
        say.extend(std::iter::repeat_n(last, usize::from(again)));
    }
    let flags = match texts(fields, "flags")? {
        Some(all) => Some(all.iter().map(|text| super::build::tcp_flags(text)).collect::<Result<Vec<u8>, _>>()?),
        None => None,
    };
    let packets = match fields.get("ip") {
        Some(item) => packets(item.as_table_like().ok_or("'ip' is a table")?)?,
        None => Packets::default(),
    };
    Ok(Sample {
        over,
        port: number(fields, "port")?.unwrap_or(0),
        client: number(fields, "client")?,
        say,
        flags,
        window: number(fields, "window")?.unwrap_or(65_535),
        times: number(fields, "times")?.unwrap_or(1),
        apart: number::<u64>(fields, "apart")?.unwrap_or(1000) * 1000,
        inside: match fields.get("from").map(|item| item.as_str()) {
            None | Some(Some("outside")) => false,
            Some(Some("inside")) => true,
            _ => return Err("'from' is outside or inside".to_owned()),
        },
        packets,
    })
}

fn packets(fields: &dyn TableLike) -> Result<Packets, String> {
    if let Some((key, _)) = fields.iter().find(|(key, _)| !["proto", "options", "frag", "src"].contains(key)) {
        return Err(format!("'ip' has '{key}', which means nothing"));
    }
    let mut packets = Packets::default();
    packets.proto = number(fields, "proto")?.unwrap_or(packets.proto);
    if let Some(item) = fields.get("options") {
        let hex = item.as_str().unwrap_or_default().as_bytes();
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = hex.chunks(2).map(byte).collect();
        packets.options = bytes
            .filter(|b| b.len().is_multiple_of(4) && b.len() <= 40)
            .ok_or("'options' is whole words in hexadecimal")?;
    }
    if let Some(item) = fields.get("frag") {
        let values = item.as_array().ok_or("'frag' is a list")?;
        let word = |value: &Value| value.as_integer().and_then(|n| u16::try_from(n).ok());
        packets.flags =
            values.iter().map(word).collect::<Option<_>>().ok_or("'frag' is a list of numbers of 16 bits")?;
    }
    packets.from_itself = match fields.get("src").map(|item| item.as_str()) {
        None => false,
        Some(Some("same")) => true,
        _ => return Err("'src' is same".to_owned()),
    };
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Outcome<Vec<Defence>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, text).unwrap();
        read(&[path])
    }

    #[test]
    fn the_projects_own_declarations_read() {
        let all = read(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../defence")]).unwrap();
        assert!(all.len() > 300);
        let slammer = all.iter().find(|d| d.sid == 9_200_010).unwrap();
        assert_eq!((slammer.class.as_str(), slammer.place.as_str()), ("attempted-admin", "udp"));
        assert_eq!(slammer.techniques, ["CVE-2002-0649", "T1210"]);
        assert!(matches!(&slammer.stops[0], Content::Conversation(s) if s.port == 1434 && s.over == Over::Udp));
        let weak = all.iter().find(|d| d.file == "weak.toml").unwrap();
        assert!(weak.weak && weak.action == Action::Notice && !slammer.weak);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let head = "[[defence]]\nsid = 7\nname = \"x\"\ntechnique = \"CWE-1\"\nheader = \"udp any any -> any any\"\npasses = []\n";
        for (more, said) in [
            ("stops = [{ over = 'gopher' }]", "defence 7: stops: a sample goes over 'gopher', which is unknown"),
            ("stops = [{ over = 'udp', said = [] }]", "a sample has 'said', which means nothing"),
            ("stops = [{ over = 'udp', port = 70000 }]", "'port' is not a number that fits"),
            ("stops = [{ over = 'udp', say = ['x'] }]", "begins with > or <"),
            ("stops = 1", "it has no list 'stops'"),
            ("confidence = \"sure\"\nstops = []", "and not \"sure\""),
        ] {
            let problem = of(&format!("{head}{more}\n")).unwrap_err().to_string();
            assert!(problem.contains("x.toml: defence 7: ") && problem.contains(said), "{problem}");
        }
        assert!(of("a = 1").unwrap_err().to_string().contains("no [[defence]]"));
        assert!(of("[[defence]]\nname = \"x\"").unwrap_err().to_string().contains("a defence has no sid"));
    }
}
