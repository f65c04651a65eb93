//! Arguments of an HTTP request for rules. Arguments of the target and of cookies are available with the request's fields,
//! arguments of the body at its end. A long body has them in several windows: the next one replaces those that were inspected.

use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::body::Body;

/// The arguments of a request.
#[derive(Debug)]
pub(crate) struct Arguments {
    args: Args,
    body: Body,
    /// A window of the body was added since the last call of [`Arguments::renewed`].
    renewed: bool,
    /// The limit on arguments was reported.
    told: bool,
}

impl Arguments {
    /// Collects the arguments of a request whose fields are complete.
    pub(crate) fn new<'a>(
        limits: ArgLimits,
        target: &[u8],
        cookies: impl Iterator<Item = &'a [u8]>,
        host: Option<&[u8]>,
        referer: Option<&[u8]>,
        content_type: Option<&[u8]>,
        authorization: Option<&[u8]>,
    ) -> Box<Arguments> {
        let mut args = Args::new(limits);
        // The target of a proxy request is a URI (RFC 9112, section 3.2.2), not an argument.
        let target = origin_form(target);
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(at) => target.split_at(at),
            None => (target, &[][..]),
        };
        args.path(path);
        args.form(query.get(1..).unwrap_or(&[]));
        for field in cookies {
            args.cookies(field);
        }
        if let Some(field) = authorization {
            args.authorization(field);
        }
        // A query to another site says nothing about this one: people search the web for SQL.
        if let Some(query) = referer.and_then(|r| same_site_query(r, host)) {
            args.form(query);
        }
        Box::new(Arguments {
            args,
            body: Body::new(content_type.unwrap_or_default(), limits),
            renewed: false,
            told: false,
        })
    }

    /// Adds bytes of the body.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.renewed |= self.body.push(data, &mut self.args);
    }

    /// Ends the body.
    pub(crate) fn finish(&mut self) {
        self.body.finish(&mut self.args);
    }

    /// Whether rules must inspect the arguments again before the body ends; true only once.
    pub(crate) const fn renewed(&mut self) -> bool {
        std::mem::replace(&mut self.renewed, false)
    }

    /// Rules have inspected all arguments.
    pub(crate) const fn inspected(&mut self) {
        self.args.inspected();
    }

    /// Whether the limit was exceeded; true only once.
    pub(crate) fn newly_cut(&mut self) -> bool {
        self.args.is_cut() && !std::mem::replace(&mut self.told, true)
    }

    /// The argument at this index.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        self.args.get(index)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Arguments>() + self.args.memory() + self.body.memory()
    }
}

/// The path and query of a target; in absolute form, without scheme and host.
fn origin_form(target: &[u8]) -> &[u8] {
    let schemes = [&b"http://"[..], b"https://", b"ws://", b"wss://", b"rtsp://"];
    let behind = |s: &&[u8]| target.get(..s.len()).is_some_and(|t| t.eq_ignore_ascii_case(s));
    let Some(rest) = schemes.iter().find(|s| behind(s)).and_then(|s| target.get(s.len()..)) else { return target };
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    rest.get(end..).unwrap_or(&[])
}

/// The query and fragment of a `Referer` that names the request's host, or no host.
fn same_site_query<'a>(referer: &'a [u8], host: Option<&[u8]>) -> Option<&'a [u8]> {
    let query = referer.get(memchr::memchr2(b'?', b'#', referer)? + 1..)?;
    let Some(at) = memchr::memmem::find(referer, b"://") else { return Some(query) };
    let authority = referer.get(at + 3..)?;
    let authority = authority.get(..authority.iter().position(|b| matches!(b, b'/' | b'?' | b'#'))?)?;
    host.is_some_and(|h| h.trim_ascii().eq_ignore_ascii_case(authority)).then_some(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(host: Option<&[u8]>, referer: &[u8], want: &[u8]) -> bool {
        let args = Arguments::new(ArgLimits::default(), b"/", std::iter::empty(), host, Some(referer), None, None);
        (0..).map_while(|i| args.get(i)).any(|a| a == want)
    }

    #[test]
    fn a_target_in_absolute_form_has_a_path() {
        assert_eq!(origin_form(b"HTTP://192.0.2.1:8080/a?b"), b"/a?b");
        assert_eq!(origin_form(b"http://192.0.2.1"), b"");
        assert_eq!(origin_form(b"rtsp://192.0.2.1/live"), b"/live");
        assert_eq!(origin_form(b"/a?b=http://c/d"), b"/a?b=http://c/d");
        assert_eq!(origin_form(b"gopher://a/b"), b"gopher://a/b");
    }

    #[test]
    fn the_header_of_a_token_has_arguments() {
        // {"alg":"HS256","kid":"../x"}
        let field = b"Bearer eyJhbGciOiJIUzI1NiIsImtpZCI6Ii4uL3gifQ.eyJzdWIiOiIxIn0.c2ln";
        let args = Arguments::new(ArgLimits::default(), b"/", std::iter::empty(), None, None, None, Some(field));
        let found: Vec<_> = (0..).map_while(|i| args.get(i)).collect();
        assert_eq!(found, [&b"/"[..], b"alg", b"HS256", b"kid", b"../x"]);
    }

    #[test]
    fn what_is_cut_is_told_once() {
        let made = |limits, target: &[u8]| Arguments::new(limits, target, std::iter::empty(), None, None, None, None);
        let mut args = made(ArgLimits { count: 2, bytes: 100 }, b"/?a=b");
        assert!(args.newly_cut());
        assert!(!args.newly_cut());
        let mut args = made(ArgLimits { count: 8, bytes: 8 }, b"/?a=b");
        assert!(!args.newly_cut());
        args.push(b"1234567");
        args.finish();
        assert!(args.newly_cut());
        assert!(!args.newly_cut());
    }

    /// However long a body is, each of its arguments is there at one time, and memory is bounded.
    #[test]
    fn a_long_body_has_windows() {
        let limits = ArgLimits::default();
        let mut args = Arguments::new(limits, b"/", std::iter::empty(), None, None, None, None);
        args.inspected();
        let mut seen = Vec::new();
        let body: Vec<u8> = (0..100_000).flat_map(|i| format!("a{i}=x&").into_bytes()).collect();
        for piece in body.chunks(1460) {
            args.push(piece);
            if args.renewed() {
                seen.extend((0..).map_while(|i| args.get(i).map(<[u8]>::to_vec)).step_by(2));
                args.inspected();
            }
            assert!(args.memory() < 600 << 10, "{}", args.memory());
        }
        args.finish();
        assert!(!args.newly_cut());
        seen.extend((0..).map_while(|i| args.get(i).map(<[u8]>::to_vec)).step_by(2));
        assert_eq!(seen.len(), 100_000);
        assert!(seen.iter().enumerate().all(|(i, name)| *name == format!("a{i}").into_bytes()));
    }

    #[test]
    fn a_query_of_another_site_is_no_argument() {
        assert!(has(Some(b"www.example.com"), b"http://WWW.example.com/a?q=x%20y", b"x y"));
        assert!(has(None, b"/a?q=x%20y", b"x y"));
        assert!(!has(Some(b"www.example.com"), b"https://search.example/?q=x%20y", b"x y"));
        assert!(!has(None, b"https://search.example/?q=x%20y", b"x y"));
    }
}
