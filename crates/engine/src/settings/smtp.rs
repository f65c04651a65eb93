//! Settings of SMTP (`app-layer.protocols.smtp:`).

use margay_app::smtp::{Config as SmtpConfig, LogOptions, MailField};
use margay_config::{Config, ConfigError, Node};

/// Path of SMTP's settings.
const SMTP: &str = "app-layer.protocols.smtp";
/// Limit of a scheme's bytes. Longer ones are invalid.
const MAX_SCHEME: usize = 32;

/// The settings of SMTP.
///
/// # Errors
/// An invalid value.
pub(super) fn smtp(config: &Config) -> Result<SmtpConfig, ConfigError> {
    let mut smtp = SmtpConfig::default();
    let Some(node) = config.node(SMTP) else { return Ok(smtp) };
    set(node.bool("raw-extraction")?, &mut smtp.raw_extraction);
    set(number(node, "max-tx")?, &mut smtp.max_tx);
    if let Some(mime) = node.node("mime") {
        set(mime.bool("decode-mime")?, &mut smtp.decode_mime);
        set(mime.bool("decode-base64")?, &mut smtp.mime.base64);
        set(mime.bool("decode-quoted-printable")?, &mut smtp.mime.quoted_printable);
        set(mime.size("header-value-depth")?.map(|n| n as usize), &mut smtp.mime.value_depth);
        // The digest is cheap beside the rest of a mail, so `auto` computes it as well.
        match mime.get("body-md5") {
            Some("auto") => smtp.mime.body_md5 = true,
            _ => set(mime.bool("body-md5")?, &mut smtp.mime.body_md5),
        }
        set(mime.bool("log-url-scheme")?, &mut smtp.log_url_scheme);
        if let Some(schemes) = mime.child("extract-urls-schemes") {
            smtp.mime.schemes = schemes.values().map(|s| scheme(schemes, s)).collect::<Result<_, _>>()?;
        }
        if mime.bool("extract-urls")? == Some(false) {
            smtp.mime.schemes.clear();
        }
    }
    if smtp.raw_extraction && smtp.decode_mime {
        let text = "\"decode-mime\" and \"raw-extraction\" cannot both be on: raw extraction is off";
        margay_output::warning!("app-layer-smtp", "{text}");
        smtp.raw_extraction = false;
    }
    if let Some(tracker) = node.node("inspected-tracker") {
        set(bytes(tracker, "content-limit")?, &mut smtp.content_limit);
        set(bytes(tracker, "content-inspect-min-size")?, &mut smtp.window.min);
        set(bytes(tracker, "content-inspect-window")?, &mut smtp.window.window);
    }
    Ok(smtp)
}

/// A scheme, with the separator that follows it in a URL.
fn scheme(node: Node<'_>, name: &str) -> Result<Vec<u8>, ConfigError> {
    let name = name.trim().trim_end_matches("://").to_ascii_lowercase();
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if name.is_empty() || name.len() > MAX_SCHEME || !name.bytes().all(valid) {
        return Err(node.error(format!("extract-urls-schemes: \"{name}\" is no scheme of URLs, such as http or ftp")));
    }
    let behind = if name == "mailto" { ":" } else { "://" };
    Ok([name.as_bytes(), behind.as_bytes()].concat())
}

/// Reads the `smtp` section of an `eve-log`.
///
/// # Errors
/// An invalid value.
pub(super) fn log(node: Node<'_>, warnings: &mut Vec<String>) -> Result<LogOptions, ConfigError> {
    let mut options = LogOptions::default();
    if node.bool("extended")?.unwrap_or(false) {
        options.fields.extend(MailField::ALL.iter().copied().filter(|f| f.is_extended()));
    }
    if let Some(custom) = node.child("custom") {
        for name in custom.values() {
            match MailField::from_name(name.trim().as_bytes()) {
                Some(field) if !options.fields.contains(&field) => options.fields.push(field),
                Some(_) => {}
                None => {
                    let names: Vec<_> = MailField::ALL.iter().map(|f| f.name()).collect();
                    warnings.push(format!(
                        "{}: custom: \"{name}\" is no field that is kept of mail; there are {}",
                        custom.place(),
                        names.join(", ")
                    ));
                }
            }
        }
    }
    if let Some(md5) = node.child("md5") {
        for name in md5.values() {
            match name.trim() {
                "body" => options.md5_body = true,
                "subject" => options.md5_subject = true,
                other => warnings.push(format!("{}: md5: \"{other}\" is neither body nor subject", md5.place())),
            }
        }
    }
    Ok(options)
}

fn set<T>(value: Option<T>, target: &mut T) {
    if let Some(v) = value {
        *target = v;
    }
}

/// A size below 4 GB.
fn bytes(node: Node<'_>, name: &str) -> Result<Option<u32>, ConfigError> {
    let Some(n) = node.size(name)? else { return Ok(None) };
    u32::try_from(n).map(Some).map_err(|_| node.error(format!("{name}: {n} is larger than 4 GB")))
}

/// A count that fits into 32 bits.
fn number(node: Node<'_>, name: &str) -> Result<Option<u32>, ConfigError> {
    let Some(n) = node.int(name)? else { return Ok(None) };
    u32::try_from(n).map(Some).map_err(|_| node.error(format!("{name}: {n} is out of range")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SmtpConfig, ConfigError> {
        smtp(&Config::from_str(&format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n    smtp:\n{text}"), "t").unwrap())
    }

    #[test]
    fn reads() {
        let c = read(
            "      raw-extraction: yes\n      max-tx: 7\n      mime:\n        decode-mime: no\n        decode-base64: no\n        \
             header-value-depth: 100\n        extract-urls-schemes: [http, ftp, mailto]\n        log-url-scheme: yes\n        \
             body-md5: yes\n      inspected-tracker:\n        content-limit: 1kb\n        content-inspect-min-size: 2kb\n        \
             content-inspect-window: 10\n",
        )
        .unwrap();
        assert!(c.raw_extraction && !c.decode_mime && !c.mime.base64 && c.mime.quoted_printable && c.log_url_scheme);
        assert_eq!(c.mime.schemes, [&b"http://"[..], b"ftp://", b"mailto:"]);
        assert_eq!((c.mime.value_depth, c.mime.body_md5, c.max_tx), (100, true, 7));
        assert_eq!((c.content_limit, c.window.min, c.window.window), (1024, 2048, 10));
        assert!(read("      mime:\n        extract-urls: no\n").unwrap().mime.schemes.is_empty());
        assert!(
            read("      mime:\n        extract-urls-schemes: [\"a b\"]\n").unwrap_err().to_string().contains("a b")
        );
        assert!(read("      max-tx: -1\n").is_err());
    }

    #[test]
    fn what_is_shown() {
        let text = "%YAML 1.1\n---\nsmtp:\n  extended: yes\n  custom: [received, Bcc, colour]\n  md5: [body, heart]\n";
        let c = Config::from_str(text, "t").unwrap();
        let mut warnings = Vec::new();
        let o = log(c.node("smtp").unwrap(), &mut warnings).unwrap();
        assert!(o.fields.contains(&MailField::Received) && o.fields.contains(&MailField::Subject));
        assert_eq!((o.md5_body, o.md5_subject, warnings.len()), (true, false, 2));
    }
}
