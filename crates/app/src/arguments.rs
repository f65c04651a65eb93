//! Arguments of a request of HTTP, for rules: those of target and cookies when its fields are there, those of its body at its end.

use margay_meaning::args::{ArgLimits, Args};

/// The arguments of a request.
#[derive(Debug)]
pub(crate) struct Arguments {
    args: Args,
    limits: ArgLimits,
    /// Type of the body, and the body so far, out of its coding.
    content_type: Vec<u8>,
    body: Vec<u8>,
}

impl Arguments {
    /// Those of a request whose fields are there.
    pub(crate) fn new<'a>(
        limits: ArgLimits,
        target: &[u8],
        cookies: impl Iterator<Item = &'a [u8]>,
        referer: Option<&[u8]>,
        content_type: Option<&[u8]>,
    ) -> Box<Arguments> {
        let mut args = Args::new(limits);
        let (path, query) = match memchr::memchr(b'?', target) {
            Some(at) => target.split_at(at),
            None => (target, &[][..]),
        };
        args.path(path);
        args.form(query.get(1..).unwrap_or(&[]));
        for field in cookies {
            args.cookies(field);
        }
        if let Some(query) = referer.and_then(|r| r.get(memchr::memchr2(b'?', b'#', r)? + 1..)) {
            args.form(query);
        }
        Box::new(Arguments { args, limits, content_type: content_type.unwrap_or_default().to_vec(), body: Vec::new() })
    }

    /// Bytes of the body.
    pub(crate) fn push(&mut self, data: &[u8]) {
        let room = self.limits.bytes.saturating_sub(self.body.len());
        self.body.extend_from_slice(data.get(..room).unwrap_or(data));
    }

    /// The body is at its end.
    pub(crate) fn finish(&mut self) {
        let body = std::mem::take(&mut self.body);
        self.args.body(&self.content_type, &body);
    }

    /// The one at this place.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        self.args.get(index)
    }

    /// Bytes of memory.
    pub(crate) const fn memory(&self) -> usize {
        size_of::<Arguments>() + self.args.memory() + self.content_type.capacity() + self.body.capacity()
    }
}
