//! `margay.web`: the live page and the metrics.

use std::net::SocketAddr;

use margay_config::{Config, ConfigError, RunOptions};

use super::wrong;

/// Minimum length of a token, so that it cannot be guessed.
const TOKEN_LEAST: usize = 16;

/// The HTTP server of the live page and the metrics.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct WebSettings {
    /// `--web`, `margay.web.listen`
    pub(crate) listen: SocketAddr,
    /// `margay.web.token`
    pub(crate) token: Option<String>,
}

/// Keeps the token out of logs.
impl std::fmt::Debug for WebSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map_or(0, String::len);
        write!(f, "WebSettings {{ listen: {}, token of {token} }}", self.listen)
    }
}

/// Reads `margay.web`; `None` if it is off.
///
/// # Errors
/// An invalid address, an address other than loopback without a token, or a token that is too short.
pub(crate) fn web(config: &Config, options: &RunOptions) -> Result<Option<WebSettings>, ConfigError> {
    const LISTEN: &str = "margay.web.listen";
    const TOKEN: &str = "margay.web.token";
    let Some(text) = options.web.as_deref().or(config.get(LISTEN)).filter(|t| !t.is_empty()) else { return Ok(None) };
    let listen: SocketAddr = text.parse().map_err(|_| {
        wrong(config, LISTEN, &format!("\"{text}\" is no address with a port, as 127.0.0.1:9300 or [::1]:9300"))
    })?;
    let token = config.get(TOKEN).filter(|t| !t.is_empty()).map(str::to_owned);
    match &token {
        Some(t) if t.len() < TOKEN_LEAST || !t.bytes().all(|b| b.is_ascii_graphic()) => {
            let why = format!(
                "a token has at least {TOKEN_LEAST} characters, without blanks: openssl rand -hex 16 makes one"
            );
            Err(wrong(config, TOKEN, &why))
        }
        None if !listen.ip().is_loopback() => {
            let why = format!("{listen} can be reached from the network: set {TOKEN}, or listen on 127.0.0.1");
            Err(wrong(config, LISTEN, &why))
        }
        _ => Ok(Some(WebSettings { listen, token })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, given: Option<&str>) -> Result<Option<WebSettings>, String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\nmargay:\n  web: {{{text}}}\n"), "t").unwrap();
        let options = RunOptions { web: given.map(str::to_owned), ..RunOptions::default() };
        web(&config, &options).map_err(|e| e.to_string())
    }

    #[test]
    fn only_with_a_token_beyond_this_host() {
        assert_eq!(read("", None), Ok(None));
        let s = read("listen: '127.0.0.1:1'", Some("[::1]:9300")).unwrap().unwrap();
        assert_eq!((s.listen, s.token), ("[::1]:9300".parse().unwrap(), None));
        let token = "0123456789abcdef";
        let open = read(&format!("listen: '0.0.0.0:9300', token: {token}"), None).unwrap().unwrap();
        assert_eq!(open.token.as_deref(), Some(token));
        assert!(!format!("{open:?}").contains(token));
        for (text, says) in [
            ("listen: '0.0.0.0:9300'", "margay.web.token"),
            ("listen: '192.0.2.1:9300'", "margay.web.token"),
            ("listen: '9300'", "no address"),
            ("listen: '127.0.0.1:9300', token: short", "at least 16"),
            ("listen: '127.0.0.1:9300', token: 'blanks are not allowed here'", "without blanks"),
        ] {
            let e = read(text, None).unwrap_err();
            assert!(e.contains(says), "{text}: {e}");
        }
    }
}
