//! Settings of SMTP (`app-layer.protocols.smtp`), and of its events.

use crate::mime;
use crate::window::{FILE_WINDOW, WindowLimits};

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Parse the mail (`decode-mime`).
    pub decode_mime: bool,
    /// Otherwise, extract the raw mail as one file (`raw-extraction`).
    pub raw_extraction: bool,
    /// Settings for reading mail.
    pub mime: mime::Settings,
    /// Events and rules show URLs with their scheme (`log-url-scheme`).
    pub log_url_scheme: bool,
    /// The inspection limits for file data (`content-inspect-min-size`, `content-inspect-window`).
    pub window: WindowLimits,
    /// The limit of bytes that wait for the first inspection (`content-limit`).
    pub content_limit: u32,
    /// The limit of transactions in a flow (`max-tx`); 0 for none.
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
            window: FILE_WINDOW,
            content_limit: 100_000,
            max_tx: 256,
        }
    }
}

impl Config {
    /// The inspection limits for file data.
    pub(crate) fn file_window(&self) -> WindowLimits {
        WindowLimits { min: self.window.min.min(self.content_limit), ..self.window }
    }
}

macro_rules! fields {
    ($($variant:ident $name:literal;)*) => {
        /// A header field that is kept.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum MailField { $($variant),* }

        impl MailField {
            /// All fields, in the order of events.
            pub const ALL: &[MailField] = &[$(MailField::$variant),*];

            /// The name in lower case.
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
    /// The field with this name, in any case.
    pub fn from_name(name: &[u8]) -> Option<MailField> {
        Self::ALL.iter().copied().find(|f| f.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Whether `extended` logs it.
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

/// Settings of `smtp` events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Fields that are logged besides `from`, `to` and `cc` (`extended`, `custom`).
    pub fields: Vec<MailField>,
    /// The MD5 of the subject (`md5: [subject]`).
    pub md5_subject: bool,
    /// The MD5 of the body (`md5: [body]`).
    pub md5_body: bool,
}
