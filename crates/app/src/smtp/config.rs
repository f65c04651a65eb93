//! Settings of SMTP (`app-layer.protocols.smtp`), and of what its events show.

use crate::mime;
use crate::window::WindowLimits;

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A mail is taken apart (`decode-mime`).
    pub decode_mime: bool,
    /// Else it becomes one file, as it is sent (`raw-extraction`).
    pub raw_extraction: bool,
    /// How mail is read.
    pub mime: mime::Settings,
    /// URLs are shown, and offered to rules, with their scheme (`log-url-scheme`).
    pub log_url_scheme: bool,
    /// When data of files is looked at (`content-inspect-min-size`, `content-inspect-window`).
    pub window: WindowLimits,
    /// Most bytes that wait for the first look (`content-limit`).
    pub content_limit: u32,
    /// Most transactions that a flow has at a time (`max-tx`); 0 for any number.
    pub max_tx: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            decode_mime: true,
            raw_extraction: false,
            mime: mime::Settings {
                base64: true,
                quoted_printable: true,
                value_depth: 2000,
                schemes: vec![b"http://".to_vec()],
                body_md5: false,
            },
            log_url_scheme: false,
            window: WindowLimits { min: 32 << 10, window: 4 << 10 },
            content_limit: 100_000,
            max_tx: 256,
        }
    }
}

impl Config {
    /// When data of files is due.
    pub(crate) fn file_window(&self) -> WindowLimits {
        WindowLimits { min: self.window.min.min(self.content_limit), window: self.window.window }
    }
}

macro_rules! fields {
    ($($variant:ident $name:literal;)*) => {
        /// A field of a mail's header that is kept.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum MailField { $($variant),* }

        impl MailField {
            /// All of them, in the order in which events have them.
            pub const ALL: &[MailField] = &[$(MailField::$variant),*];

            /// Its name, in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(MailField::$variant => $name),* }
            }
        }
    };
}

fields! {
    From "from";
    To "to";
    Cc "cc";
    ReplyTo "reply-to";
    Bcc "bcc";
    MessageId "message-id";
    Subject "subject";
    XMailer "x-mailer";
    UserAgent "user-agent";
    Received "received";
    XOriginatingIp "x-originating-ip";
    InReplyTo "in-reply-to";
    References "references";
    Importance "importance";
    Priority "priority";
    Sensitivity "sensitivity";
    Organization "organization";
    ContentMd5 "content-md5";
    Date "date";
    Relays "relays";
}

impl MailField {
    /// The field of that name, in any case.
    pub fn from_name(name: &[u8]) -> Option<MailField> {
        Self::ALL.iter().copied().find(|f| f.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether `extended` shows it.
    pub const fn is_extended(self) -> bool {
        matches!(
            self,
            MailField::ReplyTo
                | MailField::Bcc
                | MailField::MessageId
                | MailField::Subject
                | MailField::XMailer
                | MailField::UserAgent
        )
    }
}

/// What `smtp` events show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Fields that are shown besides `from`, `to` and `cc` (`extended`, `custom`).
    pub fields: Vec<MailField>,
    /// The MD5 of the subject (`md5: [subject]`).
    pub md5_subject: bool,
    /// The MD5 of the body (`md5: [body]`).
    pub md5_body: bool,
}
