"""Odd HTTP/1 responses, read by clients: http.client with zlib, urllib3, Go's net/http, the fetch of Node.js, curl."""
import copy
import dataclasses
import gzip
import sys
import zlib

from engine import token
from peers import Client, Curl, go, line_of, node, urllib3_python
from search import Kind, changes


def tk(n):
    return token(n).encode()


# The body before any coding, in two halves with a token each, so that a body in pieces has a token in each.
HALVES = [b'first ' + tk(8) + b' and more of it ' * 4, b'second ' + tk(9) + b' and the end']
PLAIN = b''.join(HALVES)


@dataclasses.dataclass
class Response:
    """The parts of a response, in the order in which they are sent. `body` is encoded; `tail` follows it."""
    body: bytes
    coding: bytes | None = None
    line: bytes = b'HTTP/1.1 200 OK'
    eol: bytes = b'\r\n'
    fields: list = dataclasses.field(default_factory=list)
    end: bytes = b'\r\n'
    framing: str = 'length'
    length: bytes = b'%d'
    te: bytes = b'chunked'
    chunk: bytes = b'%x'
    chunk_eol: bytes = b'\r\n'
    chunk_end: bytes = b'\r\n'
    last: bytes = b'0\r\n\r\n'
    tail: bytes = b''
    lead: bytes = b''
    # Name, separator and line end of the field that names the coding.
    names: tuple = (b'Content-Encoding', b': ', b'\r\n')

    def bytes(self):
        fields = [[b'X-One', b': ', tk(3), b'\r\n']] + self.fields
        body = self.body + self.tail
        if self.coding is not None:
            fields.append([self.names[0], self.names[1], self.coding, self.names[2]])
        if self.framing == 'length':
            fields.append([b'Content-Length', b': ', self.length.replace(b'%d', b'%d' % len(body)), b'\r\n'])
        elif self.framing == 'chunked':
            fields.append([b'Transfer-Encoding', b': ', self.te, b'\r\n'])
            cut = max(1, len(body) // 2)
            parts = [p for p in (body[:cut], body[cut:]) if p]
            body = b''.join(self.chunk.replace(b'%x', b'%x' % len(p)) + self.chunk_eol + p + self.chunk_end for p in parts) + self.last
        fields.append([b'X-Last', b': ', tk(6), b'\r\n'])
        return self.lead + self.line + self.eol + b''.join(map(b''.join, fields)) + self.end + body


def gz(data, level=6):
    return gzip.compress(data, level, mtime=0)


def raw(data):
    c = zlib.compressobj(6, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush()


def header(flags=0, extra=b'', os=255, method=8):
    return bytes([31, 139, method, flags, 0, 0, 0, 0, 0, os]) + extra


def trailer(data, crc=None, size=None):
    return (zlib.crc32(data) if crc is None else crc).to_bytes(4, 'little') + (len(data) if size is None else size).to_bytes(4, 'little')


def stored(data, final=True):
    return bytes([int(final)]) + len(data).to_bytes(2, 'little') + (len(data) ^ 0xffff).to_bytes(2, 'little') + data


def flushed(data, halves=HALVES, mode=zlib.Z_FULL_FLUSH, wbits=31):
    c = zlib.compressobj(6, zlib.DEFLATED, wbits)
    return c.compress(halves[0]) + c.flush(mode) + c.compress(halves[1]) + c.flush()


def fixed(wbits):
    c = zlib.compressobj(9, zlib.DEFLATED, wbits, strategy=zlib.Z_FIXED)
    return c.compress(PLAIN) + c.flush()


A, B = HALVES
CODED = {
    'gzip in two members': gz(A) + gz(B), 'gzip and zeros': gz(PLAIN) + b'\0' * 20, 'gzip and other bytes': gz(PLAIN) + b'trailing',
    'gzip, zeros, gzip': gz(A) + b'\0' * 9 + gz(B), 'gzip, an empty member, gzip': gz(A) + gz(b'') + gz(B), 'empty gzip first': gz(b'') + gz(PLAIN), 'gzip and a cut member': gz(A) + gz(B)[:-12],
    'gzip without its trailer': gz(PLAIN)[:-8], 'gzip with half a trailer': gz(PLAIN)[:-5], 'gzip cut in its data': flushed(PLAIN)[:-14], 'gzip with a wrong CRC': gz(PLAIN)[:-8] + b'\1\2\3\4' + gz(PLAIN)[-4:],
    'gzip with a wrong size': gz(PLAIN)[:-4] + b'\0\0\0\1', 'a wrong CRC between members': gz(A)[:-8] + b'\1\2\3\4' + gz(A)[-4:] + gz(B), 'gzip with a name': header(8, b'name\0') + raw(PLAIN) + trailer(PLAIN),
    'gzip with a comment': header(16, b'comment\0') + raw(PLAIN) + trailer(PLAIN), 'gzip with an extra field': header(4, b'\5\0abcde') + raw(PLAIN) + trailer(PLAIN),
    'gzip with a long name': header(8, b'n' * 70000 + b'\0') + raw(PLAIN) + trailer(PLAIN), 'gzip with a wrong header CRC': header(2, b'\1\2') + raw(PLAIN) + trailer(PLAIN),
    'gzip with a right header CRC': header(2) + (zlib.crc32(header(2)) & 0xffff).to_bytes(2, 'little') + raw(PLAIN) + trailer(PLAIN),
    'gzip with all fields': header(29, b'\3\0abcname\0comment\0') + raw(PLAIN) + trailer(PLAIN), 'gzip with reserved flags': header(0xe0) + raw(PLAIN) + trailer(PLAIN), 'gzip that is text': header(1) + raw(PLAIN) + trailer(PLAIN),
    'gzip of another method': header(0, method=7) + raw(PLAIN) + trailer(PLAIN), 'gzip with an extra field of 65535': header(4, b'\xff\xff' + b'e' * 65535) + raw(PLAIN) + trailer(PLAIN),
    'stored blocks in gzip': header() + stored(A, False) + stored(B) + trailer(PLAIN), 'empty blocks in gzip': header() + stored(b'', False) * 500 + stored(PLAIN) + trailer(PLAIN), 'gzip flushed': flushed(PLAIN), 'gzip synced': flushed(PLAIN, mode=zlib.Z_SYNC_FLUSH),
    'fixed codes': fixed(31), 'gzip with a broken second block': header() + stored(A, False) + b'\7\xff\xff' + b'x' * 20, 'stored of a wrong length': header() + stored(A, False) + b'\1\5\0\0\0' + B,
    'zlib': zlib.compress(PLAIN), 'zlib stored': zlib.compress(PLAIN, 0), 'raw deflate': raw(PLAIN), 'raw stored': stored(PLAIN), 'zlib with a wrong sum': zlib.compress(PLAIN)[:-4] + b'\1\2\3\4', 'zlib without its sum': zlib.compress(PLAIN)[:-4],
    'zlib and other bytes': zlib.compress(PLAIN) + b'trailing', 'two of zlib': zlib.compress(A) + zlib.compress(B), 'zlib with a dictionary': (lambda c: c.compress(PLAIN) + c.flush())(zlib.compressobj(zdict=b'first second')),
    'zlib of a small window': flushed(PLAIN, wbits=9), 'zlib with a wrong check': b'\x78\x00' + raw(PLAIN) + zlib.adler32(PLAIN).to_bytes(4, 'big'), 'raw flushed': flushed(PLAIN, wbits=-15), 'raw and other bytes': raw(PLAIN) + b'x',
    'zlib in gzip': gz(zlib.compress(PLAIN)), 'gzip in gzip': gz(gz(PLAIN)), 'gzip in zlib': zlib.compress(gz(PLAIN)), 'gzip three times': gz(gz(gz(PLAIN))), 'raw in gzip': gz(raw(PLAIN)), 'a blank before gzip': b' ' + gz(PLAIN), 'a line before gzip': b'\r\n' + gz(PLAIN),
    'plain': PLAIN, 'two of raw': raw(A) + raw(B), 'gzip of nothing and plain': gz(b'') + PLAIN, 'large and then the token': gz(b'x' * 60000 + PLAIN), 'gzip, a bad magic, gzip': gz(A) + b'\x1f\x8c' + gz(B), 'gzip, \\x1f': gz(PLAIN) + b'\x1f',
}
try:
    import brotli
    CODED.update({'brotli': brotli.compress(PLAIN), 'brotli and other bytes': brotli.compress(PLAIN) + b'x', 'brotli cut': brotli.compress(PLAIN, quality=0)[:-1], 'brotli in gzip': gz(brotli.compress(PLAIN))})
except ImportError:
    # An uncompressed Brotli block (RFC 7932 section 9.2): window bits 16, the length, the data, and an empty last block.
    def uncompressed(data):
        bits = 0 | 0 << 1 | 0 << 2 | (len(data) - 1) << 4 | 1 << 20
        return (bits.to_bytes(3, 'little') + data) + b'\3'
    CODED.update({'brotli': uncompressed(PLAIN), 'brotli and other bytes': uncompressed(PLAIN) + b'x', 'brotli cut': uncompressed(PLAIN)[:-1], 'brotli in gzip': gz(uncompressed(PLAIN))})

CODINGS = [b'GZIP', b'Gzip', b'x-gzip', b'X-GZIP', b' gzip', b'gzip ', b'\tgzip\t', b'\x0bgzip', b'gzip\x0b', b'\x1cgzip', b'gzip\0', b'\0gzip', b'gzip;q=1', b'gzip; a', b'gzip,', b',gzip', b', gzip', b'gzip, ', b'gzip ,',
           b'identity, gzip', b'gzip, identity', b'identity', b'gzip, gzip', b'deflate, gzip', b'gzip, deflate', b'deflate', b'x-deflate', b'Deflate', b'br', b'BR', b'zstd', b'compress', b'x-compress', b'none', b'', b'"gzip"',
           b'x, gzip', b'gzip, x', b'gzipx', b'xgzip', b'gzip x', b'x gzip', b'gz', b'\xa0gzip', b'gzip\x85', b'\r\n gzip', b'gzip\r\n ', b'\r\n\tgzip', b'gzip\r\nContent-Encoding: gzip', b'gzip\r\nContent-Encoding:', b'\r\nContent-Encoding: gzip',
           b'gzip\r\nContent-Encoding: identity', b'identity\r\nContent-Encoding: gzip', b'x\r\nContent-Encoding: gzip', b'gzip\r\nContent-Encoding: x', b'deflate\r\nContent-Encoding: gzip', b'gzip\r', b'\rgzip', b'br, gzip', b'gzip, br',
           b'gzip, gzip, gzip', b'GZip, x-gzip', b'text/html', b'utf-8', b'7bit', b'deflate, deflate', b'identity, identity, gzip', b'gzip\n', b'gzi\0p']
LINES = [b'HTTP/1.0 200 OK', b'HTTP/1.1 200', b'HTTP/1.1 200 ', b'HTTP/1.1  200 OK', b'HTTP/1.1\t200 OK', b'HTTP/1.1 200 OK\x80', b'HTTP/2.0 200 OK', b'HTTP/1.2 200 OK', b'HTTP/0.9 200 OK', b'http/1.1 200 OK', b'HTTP/1.1 0200 OK', b'HTTP/1.1 2000 OK',
         b'HTTP/1.1 20 OK', b'HTTP/1.1 299 OK', b'HTTP/1.1 404 Not Found', b'HTTP/1.1 500 x', b'HTTP/1.1 999 x', b'HTTP/1.1 600 x', b'HTTP/1.1 206 x', b'HTTP/1.1 203 x', b'HTTP/1.1 201 x', b'HTTP/1.1 204 x', b'HTTP/1.1 304 x', b'HTTP/1.1 205 x', b'HTTP/1.1 101 x',
         b'HTTP/1.1 100 x', b'HTTP/1.1 102 x', b'HTTP/1.1 +200 OK', b'HTTP/1.1 200OK', b'HTTP/1.10 200 OK', b'HTTP/1.01 200 OK', b'HTTP/1 200 OK', b'HTTP/ 1.1 200 OK', b' HTTP/1.1 200 OK', b'ICY 200 OK', b'HTTP/1.1 200 ' + tk(1), b'HTTP/1.1\x0b200 OK', b'HTTP/1.1 200\0OK',
         b'HTTP/1.1 200 ' + b'x' * 5000, b'HTTP/1.1', b'HTTP/1.1 abc OK', b'HTTP/1.1 -200 OK', b'HTTP/1.1 401 x', b'HTTP/1.1 407 x', b'HTTP/1.1 300 x', b'HTTP/3.0 200 OK', b'HTTP/9.9 200 OK', b'XHTTP/1.1 200 OK', b'HTTP/1.1 \xef\xbc\x92\xef\xbc\x90\xef\xbc\x90 OK', b'HTTP/1.1 199 x']
LEADS = [b'\r\n', b'\n', b'HTTP/1.1 100 Continue\r\n\r\n', b'HTTP/1.1 100 Continue\r\nX: ' + tk(5) + b'\r\n\r\n', b'HTTP/1.1 102 x\r\n\r\n', b'HTTP/1.1 103 x\r\nLink: a\r\n\r\n', b'HTTP/1.1 100 Continue\r\n\r\n' * 4, b' ', b'\0', b'\xef\xbb\xbf',
         b'HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\n', b'HTTP/1.1 199 x\r\n\r\n', b'HTTP/1.1 100\n\n', b'HTTP/1.0 100 x\r\n\r\n', b'HTTP/1.1 101 x\r\n\r\n', b'x\r\n', b'HTTP/1.1 100 Continue\r\nContent-Encoding: gzip\r\n\r\n', b'HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n']
LINE_ENDS = [b'\n', b'\r', b'\r\r\n', b'\n\r', b' \r\n', b'\0\r\n', b'\x0b\r\n', b'\r\n\r']
FIELDS = [b'Transfer-Encoding: identity', b'Transfer-Encoding: chunked', b'Content-Length: 5', b'Content-Length: 0', b'Content-Length: 10000', b'Content-Length: x', b'Content-Length:', b'Content-Length: -1', b'Connection: close', b'Connection: keep-alive', b'Content-Type: text/html; charset=utf-7', b'Content-Type: multipart/byteranges; boundary=x',
          b' folded: x', b'nocolon', b': x', b'X : y', b'X\0: y', b'\0X: y', b'X: ' + b'y' * 9000, b'X: y\r\n' * 80 + b'X: y', b'Content-Range: bytes 0-5/6', b'Upgrade: h2c', b'Trailer: X-T', b'\r', b'X: a\rX-In: ' + tk(4), b'X: a\r\n ' + tk(4), b'X: a\n ' + tk(4), b'X: \xff' + tk(4), b'X-T' + tk(5) + b': v',
          b'Set-Cookie: a=' + tk(4), b'Location: /' + tk(4), b'Content-Length: 5\r\nContent-Length: 5', b'Content_Length: 5', b'Content-Encoding : gzip', b'Content-Encoding\t: gzip', b'X: a\x0bX-In: ' + tk(4), b'X: a\x85X-In: ' + tk(4), b'HTTP/1.1 200 OK', b' ', b'\t', b'Content-Transfer-Encoding: base64', b'X\xe9: y', b'X: a\r\n\r X-In: ' + tk(4)]
LENGTHS = [b'+%d', b'0%d', b'%d ', b' %d', b'%d,%d', b'%d, %d', b'%d;x', b'%d x', b'0x%d', b'%d.0', b'\x0b%d', b'%d\x0b', b'%d\0', b'%d\r\nContent-Length: %d', b'%d\r\nContent-Length: 5', b'5\r\nContent-Length: %d', b'-%d', b'', b'x', b'5', b'0', b'%d0', b'99999999999999999999', b'18446744073709551616', b'\r\n %d', b'1_0', b'\xa0%d', b'"%d"', b'9223372036854775808', b'%d\r\nTransfer-Encoding: identity', b'%d\r\nTransfer-Encoding:',
           b'5\r\nTransfer-Encoding: identity', b'5\r\nTransfer-Encoding: x', b'%d\r\nTransfer-Encoding: chunked']
TES = [b'Chunked', b'CHUNKED', b' chunked', b'chunked ', b'\x0bchunked', b'chunked\x0b', b'chunked, chunked', b'identity, chunked', b'chunked, identity', b'gzip, chunked', b', chunked', b'chunked,', b'"chunked"', b'chunked;q=1', b'xchunked', b'chunkedx', b'chunked x', b'x chunked', b'chunked\0', b'\0chunked', b'\r\n chunked', b'chunked\r\nTransfer-Encoding: chunked', b'chunked\r\nTransfer-Encoding: identity', b'identity\r\nTransfer-Encoding: chunked',
       b'chunked\r\nContent-Length: 5', b'chunked\r\nContent-Length: 0', b'chunked\r\nContent-Length: 1000', b'chunked\r\nContent-Length: x', b'chunked\r', b'', b'identity', b'\xa0chunked', b'x\r\nTransfer-Encoding: chunked', b'\r\nTransfer-Encoding: chunked', b'chunke\0d']
SIZES = [b'%x;a=b', b'%x ;a', b'%x;', b'%x ', b'%x\t', b'0x%x', b'+%x', b'-%x', b'00%x', b'0000000000000000000000000%x', b' %x', b'\t%x', b'%x\0', b'%xg', b'%x,', b'\r\n%x', b'\n%x', b'%x;a=\rb', b'%x;a=\nb', b'%x;' + b'a' * 5000, b'%x\x0b', b'\x0b%x', b'%x\r', b'1%x', b'10000000000000000%x', b'', b'g', b'0_%x', b'%x\x85', b'\xa0%x', b'%x;a="\r\n"', b'"%x"', b'%x#', b'%x.5', b'%x\x0c']
LASTS = [b'0\n\n', b'00\r\n\r\n', b'0;a\r\n\r\n', b'0\r\nX-T: ' + tk(5) + b'\r\n\r\n', b'0\r\n', b'0', b'', b'\r\n', b'-0\r\n\r\n', b'0\r\n\r\nrest', b'0 \r\n\r\n', b'g\r\n\r\n', b'0\r\r\n\r\n', b'0\r\nX-T: ' + tk(5), b'000000000000000000000\r\n\r\n', b'0\r\nnocolon\r\nX-T: ' + tk(5) + b'\r\n\r\n']


def bases():
    for framing in ('length', 'chunked', 'close'):
        yield f'plain, {framing}', Response(PLAIN, framing=framing)
        yield f'gzip, {framing}', Response(gz(PLAIN), b'gzip', framing=framing)
    yield 'deflate, length', Response(zlib.compress(PLAIN), b'deflate')
    yield 'gzip, HTTP/1.0', Response(gz(PLAIN), b'gzip', line=b'HTTP/1.0 200 OK', framing='close')


def mutations():
    def part(name, only=lambda r: True):
        def change(r, v):
            if not only(r):
                raise ValueError('does not apply')
            setattr(r, name, v)
        return change

    def coded(r, v):
        if r.coding is None:
            raise ValueError('has no coding')
        r.body = CODED[v]

    def named(i):
        def change(r, v):
            if r.coding is None:
                raise ValueError('has no coding')
            r.names = r.names[:i] + (v,) + r.names[i + 1:]
        return change

    def all_ends(r, v):
        r.eol = r.end = r.chunk_eol = r.chunk_end = v
        r.names = r.names[:2] + (v,)

    has_coding, has_length, is_chunked = lambda r: r.coding is not None, lambda r: r.framing == 'length', lambda r: r.framing == 'chunked'
    yield 'coded', list(CODED), coded
    yield 'Content-Encoding', CODINGS, part('coding', has_coding)
    yield 'name of Content-Encoding', [b'content-encoding', b'CONTENT-ENCODING', b'Content-Encoding ', b'Content-Encoding\t', b' Content-Encoding', b'\0Content-Encoding', b'Content-Encoding\0', b'Content\0-Encoding', b'Content_Encoding', b'\x0bContent-Encoding', b'Content-Encoding\x0b',
                                       b'\rContent-Encoding', b'\r\n Content-Encoding', b'X: y\rContent-Encoding', b'Content-Encoding\xa0', b'\x85Content-Encoding', b'X: y\n\rContent-Encoding'], named(0)
    yield 'colon of Content-Encoding', [b':', b' : ', b'\t:', b':\t', b':\x0b', b'\0:', b':\0', b'\r:', b':\r\n ', b'\r\n :', b' ', b'=', b'::', b':\xa0', b':\x0c'], named(1)
    yield 'end of Content-Encoding', LINE_ENDS, named(2)
    yield 'status line', LINES, part('line')
    yield 'end of the status line', LINE_ENDS, part('eol')
    yield 'empty line', LINE_ENDS + [b' \r\n\r\n', b'\r\r\n\r\n', b'\n \n', b'\r\n\n', b''], part('end')
    yield 'all line ends', [b'\n', b'\r', b'\r\r\n', b'\n\r'], all_ends
    yield 'before the response', LEADS, part('lead')
    yield 'field', FIELDS, lambda r, v: r.fields.append([v, b'', b'', b'\r\n'])
    yield 'Content-Length', LENGTHS, part('length', has_length)
    yield 'Transfer-Encoding', TES, part('te', is_chunked)
    yield 'chunk size', SIZES, part('chunk', is_chunked)
    yield 'chunk size line end', LINE_ENDS + [b''], part('chunk_eol', is_chunked)
    yield 'chunk data end', LINE_ENDS + [b'', b'x\r\n', b'\r\n\r\n'], part('chunk_end', is_chunked)
    yield 'last chunk', LASTS, part('last', is_chunked)
    yield 'behind the body', [b'rest', b'\r\n', b'\0' * 8, b'HTTP/1.1 200 OK\r\n\r\n', b'\n\n\n'], part('tail')


BUFFERS = {'http.response_body': 'flow:to_client; http.response_body', 'file.data': 'flow:to_client; file.data', 'http.header': 'flow:to_client; http.header',
           'http.header_names': 'flow:to_client; http.header_names', 'http.cookie': 'flow:to_client; http.cookie', 'http.stat_msg': 'flow:to_client; http.stat_msg'}


def views(place):
    """The views that must show a token which a program read in this place."""
    if place == 'body':
        return ['http.response_body', 'file.data']
    return {'name': ['http.header_names'], 'trailer': ['http.header'], 'field set-cookie': ['http.cookie'], 'reason': ['http.stat_msg']}.get(place, ['http.header', place])


KIND = Kind(
    name='http-responses', protocol='http', port=80, buffers=BUFFERS, fields='response_headers', views=views,
    peers=[Client('zlib', line_of(lambda: sys.executable, 'peer.py', ['fetch', 'zlib'])), Client('urllib3', line_of(urllib3_python, 'peer.py', ['fetch', 'urllib3'])),
           Client('go', go('fetch')), Client('node', node('fetch')), Curl('curl')],
    bases=dict(bases()), mutations=changes(mutations()), copy=copy.deepcopy, write=lambda r: r.bytes())
