//! Datasets in which buffers are looked up: `dataset` and `datarep`.

/// `dataset`: tests whether the whole buffer is in a dataset, or changes the dataset.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dataset {
    /// The command.
    pub command: SetCommand,
    /// The dataset's name.
    pub name: String,
    /// The rule's options for the dataset.
    pub options: SetOptions,
}

/// The operation of `dataset` on a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetCommand {
    /// Adds it to the dataset; holds if it was not there.
    Set,
    /// Removes it from the dataset; holds if it was there.
    Unset,
    /// Holds if it is in the dataset.
    IsSet,
    /// Holds if it is not in the dataset.
    IsNotSet,
}

/// `datarep`: the reputation of the whole buffer in a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DataRep {
    /// The dataset's name.
    pub name: String,
    /// How the reputation is compared with `value`. Without a reputation the check never holds.
    pub op: DataRepOp,
    /// The value to compare with.
    pub value: u16,
    /// The rule's options for the dataset.
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

/// The type of a dataset.
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
    /// Addresses of both families (`ip`, or its alias `ipv6`); IPv4 as IPv4-mapped IPv6 (RFC 4291 section 2.5.5.2).
    Ip,
}

impl SetKind {
    /// The type with that name.
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

    /// The type's name.
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

/// The format of a dataset's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SetFormat {
    /// A line per entry: the data, optionally with a comma and a reputation.
    #[default]
    Csv,
    /// One JSON document with an array of objects.
    Json,
    /// A JSON object per line (`ndjson`, `jsonline`).
    NdJson,
}

impl SetFormat {
    /// The format with that name.
    pub fn from_name(name: &str) -> Option<SetFormat> {
        Some(match name {
            "csv" => SetFormat::Csv,
            "json" => SetFormat::Json,
            "ndjson" | "jsonline" => SetFormat::NdJson,
            _ => return None,
        })
    }
}

/// Options of a dataset in a rule or the configuration; `None` if not given.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SetOptions {
    /// `type`
    pub kind: Option<SetKind>,
    /// `load`: the file to read at the start.
    pub load: Option<String>,
    /// `save`: the file to write at the end.
    pub save: Option<String>,
    /// `state`: the file to read and write; excludes `load` and `save`.
    pub state: Option<String>,
    /// `memcap`, in bytes.
    pub memcap: Option<u64>,
    /// `hashsize`: expected number of entries.
    pub hashsize: Option<u64>,
    /// `format`
    pub format: SetFormat,
    /// `value_key`: dotted path of the value within an object.
    pub value_key: Option<String>,
    /// `array_key`: dotted path of the array within a document.
    pub array_key: Option<String>,
    /// `context_key` (`enrichment_key`): the name under which alerts show the object.
    pub context_key: Option<String>,
    /// `remove_key`: alerts show the object without the value.
    pub remove_key: bool,
}

impl SetOptions {
    /// Sets the option `name`; returns false if there is no such option.
    ///
    /// # Errors
    /// The reason, if the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let size = |of: &str| {
            crate::size::unsigned(value).ok_or_else(|| format!("invalid value for {of}: {value}, resetting to default"))
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
