//! Macros that build a protocol's tables: each entry has a name, and a variant whose number is its index.

/// A protocol's events: an enum `Event`, and the names by number.
#[macro_export]
macro_rules! events {
    ($of:literal; $($variant:ident $name:literal;)*) => {
        #[doc = concat!("An event of ", $of, "; its number is that of [`NAMES`].")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Event { $($variant),* }

        impl Event {
            /// All events, by number.
            #[allow(dead_code, reason = "not every protocol goes through them")]
            pub const ALL: &[Event] = &[$(Event::$variant),*];
        }

        /// Names of events, by number.
        pub static NAMES: &[&str] = &[$($name),*];
    };
}

/// The events of a protocol that carries mail: those of `before`, then one for each problem of a mail, then those of `after`.
/// `of_mail` converts a problem to its event number.
macro_rules! mail_events {
    ($of:literal; before { $($before:ident $before_name:literal;)* } after { $($after:ident $after_name:literal;)* }) => {
        events! {
            $of;
            $($before $before_name;)*
            MimeFailed "mime_parse_failed";
            MimeMalformed "mime_malformed_msg";
            MimeBase64 "mime_invalid_base64";
            MimeQp "mime_invalid_qp";
            MimeLongLine "mime_long_line";
            MimeLongEncodedLine "mime_long_enc_line";
            MimeLongName "mime_long_header_name";
            MimeLongValue "mime_long_header_value";
            MimeLongBoundary "mime_long_boundary";
            MimeLongFilename "mime_long_filename";
            $($after $after_name;)*
        }

        /// The number of the event for a problem of a mail.
        pub(super) const fn of_mail(problem: $crate::mime::Problem) -> u8 {
            use $crate::mime::Problem;
            let event = match problem {
                Problem::ParseFailed => Event::MimeFailed,
                Problem::Malformed => Event::MimeMalformed,
                Problem::InvalidBase64 => Event::MimeBase64,
                Problem::InvalidQp => Event::MimeQp,
                Problem::LongLine => Event::MimeLongLine,
                Problem::LongEncodedLine => Event::MimeLongEncodedLine,
                Problem::LongHeaderName => Event::MimeLongName,
                Problem::LongHeaderValue => Event::MimeLongValue,
                Problem::LongBoundary => Event::MimeLongBoundary,
                Problem::LongFilename => Event::MimeLongFilename,
            };
            event as u8
        }
    };
}

/// A protocol's buffers, each with its kind and the progress, to the server and to the client, from which it is available.
/// Makes an enum `Buffer`, its list `ALL`, and `BUFFERS` for the protocol's declaration. Another name of
/// the keyword is in brackets. Properties that differ from [`crate::tx::BufferDef::PLAIN`] are at the end.
macro_rules! buffers {
    (
        $($id:ident $name:literal $(($also:literal))? $kind:ident $to_server:expr, $to_client:expr
            $(, $property:ident: $value:expr)*;)*
    ) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        enum Buffer { $($id),* }

        const ALL: &[Buffer] = &[$(Buffer::$id),*];

        /// Buffers for rules; numbers are those of [`ALL`].
        #[allow(clippy::needless_update, reason = "a row may set every property")]
        pub(super) static BUFFERS: &[$crate::tx::BufferDef] = &[$($crate::tx::BufferDef {
            name: $name,
            also: &[$($also)?],
            id: Buffer::$id as u8,
            kind: $crate::tx::BufferKind::$kind,
            progress: [$to_server, $to_client],
            $($property: $value,)*
            ..$crate::tx::BufferDef::PLAIN
        }),*];
    };
}

/// A protocol's keywords, each with an identifier: an enum `Id`, and `KEYWORDS`, `BUFFERS` and `NUMBERS` for its declaration.
/// `Id::of` converts the number in calls of [`crate::conversation::Content`].
#[macro_export]
macro_rules! keywords {
    ($($id:ident $keyword:expr;)*) => {
        /// A keyword.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(clippy::enum_variant_names, reason = "they are named for keywords")]
        enum Id { $($id),* }

        impl Id {
            fn of(number: u8) -> Option<Id> {
                const IDS: &[Id] = &[$(Id::$id),*];
                IDS.get(usize::from(number)).copied()
            }
        }

        /// Rule keywords.
        const KEYWORDS: &[$crate::declare::Keyword] = &[$($keyword),*];
        #[allow(dead_code, reason = "not every protocol has buffers")]
        static BUFFERS: [$crate::BufferDef; $crate::declare::count(KEYWORDS, true)] = $crate::declare::buffers(KEYWORDS);
        #[allow(dead_code, reason = "not every protocol has numbers")]
        static NUMBERS: [$crate::NumberDef; $crate::declare::count(KEYWORDS, false)] = $crate::declare::numbers(KEYWORDS);
    };
}
