//! The priority of syslog messages: facility and level (RFC 3164, section 4.1.1).

/// Facilities of syslog (RFC 3164, section 4.1.1) that a configuration may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Facility {
    Kern = 0,
    User = 1,
    Mail = 2,
    Daemon = 3,
    Auth = 4,
    Syslog = 5,
    Lpr = 6,
    News = 7,
    Uucp = 8,
    Cron = 9,
    Authpriv = 10,
    Ftp = 11,
    Local0 = 16,
    Local1 = 17,
    Local2 = 18,
    Local3 = 19,
    Local4 = 20,
    Local5 = 21,
    Local6 = 22,
    Local7 = 23,
}

impl Facility {
    /// The facility with that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        use Facility as F;
        Some(match name.to_ascii_lowercase().as_str() {
            "kern" => F::Kern,
            "user" => F::User,
            "mail" => F::Mail,
            "daemon" => F::Daemon,
            "auth" | "security" => F::Auth,
            "syslog" => F::Syslog,
            "lpr" => F::Lpr,
            "news" => F::News,
            "uucp" => F::Uucp,
            "cron" => F::Cron,
            "authpriv" => F::Authpriv,
            "ftp" => F::Ftp,
            "local0" => F::Local0,
            "local1" => F::Local1,
            "local2" => F::Local2,
            "local3" => F::Local3,
            "local4" => F::Local4,
            "local5" => F::Local5,
            "local6" => F::Local6,
            "local7" => F::Local7,
            _ => return None,
        })
    }
}

/// Levels of syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum SyslogLevel {
    Emergency = 0,
    Alert = 1,
    Critical = 2,
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
    Debug = 7,
}

impl SyslogLevel {
    /// The level with that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        use SyslogLevel as L;
        Some(match name.to_ascii_lowercase().as_str() {
            "emergency" => L::Emergency,
            "alert" => L::Alert,
            "critical" => L::Critical,
            "error" => L::Error,
            "warning" => L::Warning,
            "notice" => L::Notice,
            "info" => L::Info,
            "debug" => L::Debug,
            _ => return None,
        })
    }
}
