//! Arguments of an HTTP request for rules. Arguments of the target and of cookies are available with the request's fields,
//! arguments of the body at its end. A long body has them in several windows: the next one replaces those that were inspected.

use margay_meaning::args::{ArgLimits, Args};
use margay_meaning::body::Body;

use crate::collectors::Collectors;

/// The fields of a request that have arguments, or say how to read them.
#[derive(Debug, Default)]
pub(crate) struct RequestFields<'a> {
    /// The target of the request line.
    pub(crate) target: &'a [u8],
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) authorization: Option<&'a [u8]>,
}

/// The arguments of a request.
#[derive(Debug)]
pub(crate) struct Arguments {
    args: Args,
    /// `None` if the body has no arguments: it consists of records for a collector.
    body: Option<Body>,
    /// A window of the body was added since the last call of [`Arguments::renewed`].
    renewed: bool,
    /// The limit on arguments was reported.
    told: bool,
}

impl Arguments {
    /// Collects the arguments of a request whose fields are complete.
    pub(crate) fn new<'a>(
        limits: ArgLimits,
        collectors: &Collectors,
        fields: &RequestFields<'_>,
        cookies: impl Iterator<Item = &'a [u8]>,
    ) -> Box<Arguments> {
        let mut args = Args::new(limits);
        // The target of a proxy request is a URI (RFC 9112, section 3.2.2), not an argument.
        let target = origin_form(fields.target);
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(at) => target.split_at(at),
            None => (target, &[][..]),
        };
        args.path(path);
        args.form(query.get(1..).unwrap_or(&[]));
        for field in cookies {
            args.cookies(field);
        }
        if let Some(field) = fields.authorization {
            args.authorization(field);
        }
        // A query to another site says nothing about this one: people search the web for SQL.
        if let Some(query) = fields.referer.and_then(|r| same_site_query(r, fields.host)) {
            args.form(query);
        }
        let content_type = fields.content_type.unwrap_or_default();
        let body = (!collectors.take(path, content_type)).then(|| Body::new(content_type, limits));
        Box::new(Arguments { args, body, renewed: false, told: false })
    }

    /// Adds bytes of the body.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if let Some(body) = &mut self.body {
            self.renewed |= body.push(data, &mut self.args);
        }
    }

    /// Ends the body.
    pub(crate) fn finish(&mut self) {
        if let Some(body) = &mut self.body {
            body.finish(&mut self.args);
        }
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
        size_of::<Arguments>() + self.args.memory() + self.body.as_ref().map_or(0, Body::memory)
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

    fn of(limits: ArgLimits, fields: &RequestFields<'_>) -> Box<Arguments> {
        Arguments::new(limits, &Collectors::default(), fields, std::iter::empty())
    }

    fn all(args: &Arguments) -> Vec<&[u8]> {
        (0..).map_while(|i| args.get(i)).collect()
    }

    fn has(host: Option<&[u8]>, referer: &[u8], want: &[u8]) -> bool {
        let fields = RequestFields { target: b"/", host, referer: Some(referer), ..RequestFields::default() };
        all(&of(ArgLimits::default(), &fields)).contains(&want)
    }

    #[test]
    fn records_for_a_collector_are_no_arguments() {
        for (content_type, want) in [
            (&b"application/json"[..], &[&b"/_bulk"[..], b"pipeline", b"a'b"][..]),
            (b"application/x-www-form-urlencoded", &[b"/_bulk", b"pipeline", b"a'b", b"q", b"1'or'1"]),
        ] {
            let target = b"http://logs.example.com/_bulk?pipeline=a%27b";
            let fields = RequestFields { target, content_type: Some(content_type), ..RequestFields::default() };
            let mut args = of(ArgLimits::default(), &fields);
            args.push(b"q=1'or'1");
            args.finish();
            assert_eq!(all(&args), want);
        }
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
        let fields = RequestFields { target: b"/", authorization: Some(field), ..RequestFields::default() };
        assert_eq!(all(&of(ArgLimits::default(), &fields)), [&b"/"[..], b"alg", b"HS256", b"kid", b"../x"]);
    }

    #[test]
    fn what_is_cut_is_told_once() {
        let made = |limits, target: &[u8]| of(limits, &RequestFields { target, ..RequestFields::default() });
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
        let mut args = of(limits, &RequestFields { target: b"/", ..RequestFields::default() });
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
