//! Sets of data that buffers are looked up in: `dataset` and `datarep`.

/// `dataset`: whether the whole buffer is in a set, or puts it there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dataset {
    /// What is asked or done.
    pub command: SetCommand,
    /// The set's name.
    pub name: String,
    /// What the rule says of the set.
    pub options: SetOptions,
}

/// What `dataset` does with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetCommand {
    /// Puts it in the set; holds where it was not there.
    Set,
    /// Takes it out of the set; holds where it was there.
    Unset,
    /// Holds where it is in the set.
    IsSet,
    /// Holds where it is not in the set.
    IsNotSet,
}

/// `datarep`: the reputation that a set has for the whole buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataRep {
    /// The set's name.
    pub name: String,
    /// How the reputation compares with `value`; without one it never holds.
    pub op: DataRepOp,
    /// With what.
    pub value: u16,
    /// What the rule says of the set.
    pub options: SetOptions,
}

/// Comparisons of `datarep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DataRepOp {
    Less,
    Greater,
    Equal,
}

/// What a set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Any bytes; base64 in files.
    String,
    /// 16 bytes; hexadecimal in files.
    Md5,
    /// 32 bytes; hexadecimal in files.
    Sha256,
    /// IPv4 addresses.
    Ipv4,
    /// Addresses of both families (`ip`, and its other name `ipv6`); IPv4 as IPv4-mapped IPv6 (RFC 4291 section 2.5.5.2).
    Ip,
}

impl SetKind {
    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<SetKind> {
        Some(match name {
            "string" => SetKind::String,
            "md5" => SetKind::Md5,
            "sha256" => SetKind::Sha256,
            "ipv4" => SetKind::Ipv4,
            "ip" | "ipv6" => SetKind::Ip,
            _ => return None,
        })
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            SetKind::String => "string",
            SetKind::Md5 => "md5",
            SetKind::Sha256 => "sha256",
            SetKind::Ipv4 => "ipv4",
            SetKind::Ip => "ip",
        }
    }
}

/// How a set's file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SetFormat {
    /// A line for each: the data, perhaps a comma and a reputation.
    #[default]
    Csv,
    /// One JSON document with an array of objects.
    Json,
    /// A JSON object in each line (`ndjson`, `jsonline`).
    NdJson,
}

impl SetFormat {
    /// The format of that name.
    pub fn from_name(name: &str) -> Option<SetFormat> {
        Some(match name {
            "csv" => SetFormat::Csv,
            "json" => SetFormat::Json,
            "ndjson" | "jsonline" => SetFormat::NdJson,
            _ => return None,
        })
    }
}

/// What a rule or the configuration says of a set; what is not said is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SetOptions {
    /// `type`
    pub kind: Option<SetKind>,
    /// `load`: the file to read at the start.
    pub load: Option<String>,
    /// `save`: the file to write at the end.
    pub save: Option<String>,
    /// `state`: the file to read and write; never with the two before.
    pub state: Option<String>,
    /// `memcap`, in bytes.
    pub memcap: Option<u64>,
    /// `hashsize`: for how many entries room is made.
    pub hashsize: Option<u64>,
    /// `format`
    pub format: SetFormat,
    /// `value_key`: where in an object the value is, as a dotted path.
    pub value_key: Option<String>,
    /// `array_key`: where in a document the array is, as a dotted path.
    pub array_key: Option<String>,
    /// `context_key` (`enrichment_key`): under which name alerts show the object.
    pub context_key: Option<String>,
    /// `remove_key`: alerts show the object without its value.
    pub remove_key: bool,
}

impl SetOptions {
    /// Sets the option `name`; false where there is no such option, and the reason where the value means nothing.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let size = |of: &str| {
            crate::number::unsigned(value)
                .ok_or_else(|| format!("invalid value for {of}: {value}, resetting to default"))
        };
        let text = || Some(value.to_owned()).filter(|v| !v.is_empty());
        match name {
            "type" => self.kind = Some(SetKind::from_name(value).ok_or_else(|| format!("bad type {value}"))?),
            "load" => self.load = text(),
            "save" => self.save = text(),
            "state" => self.state = text(),
            "memcap" => self.memcap = Some(size("memcap")?),
            "hashsize" => self.hashsize = Some(size("hashsize")?),
            "format" => self.format = SetFormat::from_name(value).ok_or_else(|| format!("unknown format {value}"))?,
            "value_key" => self.value_key = text(),
            "array_key" => self.array_key = text(),
            "context_key" | "enrichment_key" => self.context_key = text(),
            "remove_key" => self.remove_key = true,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
