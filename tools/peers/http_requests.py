"""Odd HTTP/1 requests, read by servers: Python's http.server, nginx, Go's net/http, Node.js."""
import copy
import dataclasses
import sys

from engine import token
from peers import Nginx, Server, go, line_of, node
from search import Kind, changes


@dataclasses.dataclass
class Chunk:
    size: bytes
    data: bytes
    eol: bytes = b'\r\n'
    end: bytes = b'\r\n'


@dataclasses.dataclass
class Request:
    """The parts of a request, in the order in which they are sent."""
    target: bytes
    fields: list
    lead: bytes = b''
    method: bytes = b'GET'
    gaps: list = dataclasses.field(default_factory=lambda: [b' ', b' '])
    version: bytes = b'HTTP/1.1'
    eol: bytes = b'\r\n'
    end: bytes = b'\r\n'
    body: bytes = b''
    chunks: list = dataclasses.field(default_factory=list)

    def bytes(self):
        line = self.lead + self.method + self.gaps[0] + self.target + self.gaps[1] + self.version + self.eol
        chunks = b''.join(c.size + c.eol + c.data + c.end for c in self.chunks)
        return line + b''.join(map(b''.join, self.fields)) + self.end + self.body + chunks

    def field(self, name):
        return next(f for f in self.fields if f[0] == name)


def tk(n):
    return token(n).encode()


def field(name, value):
    return [name, b': ', value, b'\r\n']


def request(method=b'GET', base=0, body=b'', chunks=()):
    """A request with tokens from number `base` on."""
    t = lambda n: tk(base + n)
    fields = [field(b'Host', t(1) + b'.test'), field(b'User-Agent', t(2)), field(b'X-One', t(3)), field(b'Cookie', b'c=' + t(4)),
              field(b'X-Two-' + t(5), b'v')]
    if chunks:
        fields.append(field(b'Transfer-Encoding', b'chunked'))
    elif body or method == b'POST':
        fields.append(field(b'Content-Length', b'%d' % len(body)))
    fields.append(field(b'X-Last', t(6)))
    return Request(b'/' + t(0) + b'?q=' + t(7), fields, method=method, body=body, chunks=list(chunks))


def chunked(base):
    return request(b'POST', base, chunks=[Chunk(b'8', b'a=' + tk(base + 8)), Chunk(b'e', b'bbbb=' + tk(base + 9) + b'ccc'), Chunk(b'0', b'')])


def bases():
    follows = request(base=16)
    yield 'get', [request()]
    yield 'get get', [request(), follows]
    yield 'post', [request(b'POST', body=b'a=' + tk(8) + b'&b=' + tk(9))]
    yield 'post get', [request(b'POST', body=b'a=' + tk(8) + b'&b=' + tk(9)), follows]
    yield 'chunked', [chunked(0)]
    yield 'chunked get', [chunked(0), follows]


LINE_ENDS = [b'\n', b'\r', b'\r\r\n', b'\n\r', b' \r\n', b'\t\r\n', b'\x0b\r\n', b'\0\r\n', b'\x85', b'\x0c', b'\x1c\r\n', b'\r\n\r', b'']
BLANKS = [b'  ', b'\t', b' \t ', b'\x0b', b'\x0c', b'\r', b'\xa0', b'\0', b'\x1c', b'\x1f', b'\x85', b'\n', b' \r\n ', b'']
LEADS = [b'\r\n', b'\n', b'\r\n\r\n', b'\n\n\n', b'\r', b' ', b'\t', b'\r\n ', b' \r\n', b'\0', b'\xef\xbb\xbf', b'\x0b', b'x\r\n', b'\r\n' * 40]
VERSIONS = [b'HTTP/1.0', b'HTTP/0.9', b'HTTP/1.2', b'HTTP/1.9', b'HTTP/2.0', b'HTTP/3.0', b'http/1.1', b'Http/1.1', b'HTTP/1.10', b'HTTP/01.1',
            b'HTTP/1.01', b'HTTP/1.1x', b'HTTP/ 1.1', b'HTTP/+1.1', b'HTTP/1.', b'HTTP/1', b'HTTP/.1', b'HTTPS/1.1', b'HTTP/1,1', b'HTTP/1.1 x',
            b'HTTP/1.1 HTTP/1.1', b'HTTP\\1.1', b'HTTP/1.1\0', b'RTSP/1.0', b'ICY/1.0', b'HTTP/0.1', b'HTTP/0000000001.1', b'HTTP']
METHODS = [b'get', b'GeT', b'M-SEARCH', b'PRI', b'FOO', b'OPTIONS', b'HEAD', b'TRACE', b'PUT', b'DELETE', b'CONNECT', b'G\0ET', b'"GET"', b'(GET',
           b'GET:', b'GE\x80T', b'X' * 30, b'X' * 300, b'_', b'1', b'PATCH', b'PROPFIND', b'SOURCE', b'SUBSCRIBE', b'LINK', b'BREW', b'SSH-2.0-x',
           b'EHLO', b'USER', b'GET\r', b'*']
PATHS = [b'http://a.test/%s', b'HTTP://a.test/%s', b'http://u:p@a.test:8/%s', b'https://a.test/%s', b'http:/%s', b'http:///%s', b'ftp://a/%s',
         b'//a.test/%s', b'///%s', b'%s', b'*%s', b'?%s', b'/a/../%s', b'/a/./%s', b'/%%2e%%2e/%s', b'/..%%2f%s', b'/a//%s', b'/%s#f', b'/#%s', b'/a#b?%s',
         b'/%s;p=1', b'/;p=%s', b'/\xc3\xa9%s', b'/\x80%s', b'/\xff%s', b'/a b/%s', b'/a  b %s', b'/a\t%s', b'/a\0%s', b'/%%00%s', b'/\\%s', b'/a\\..\\%s',
         b'/%%2f%s', b'/%%zz%s', b'/%%%s', b'/%%u0041%s', b'/+%s', b'/"%s', b'/<%s>', b'/{%s}', b'/|%s', b'/^%s', b'/`%s', b'/' + b'a' * 3000 + b'%s',
         b'/' + b'a/' * 2000 + b'%s', b'/\x0b%s', b'/\x1f%s', b'/\x7f%s', b'/[%s]', b'/@%s', b'/:%s', b':%s', b'/%%25%%37%s', b'/a\r%s', b'/%%c0%%af%s',
         b'/?a?%s', b'/a%%3f%s', b'/a%%23%s', b'/%%0a%s', b'/%%20%s', b'/a/%%2e/%s', b'/%%5c%s', b'http://[::1]/%s', b'http://a.test?%s', b'http://a.test#%s',
         b'/.%s', b'/...%s/', b'/%s/..', b'/%s/../a', b'/%s/.', b'/%s%%2f..', b'/%s/%%2e%%2e']
CODED = [(b'tk', b'%74k'), (b'zq', b'z%71'), (b'tk', b'%74%6b'), (b'tk', b'%54%4b'), (b'k', b'%6B'), (b'tk', b'%u0074k'), (b'tk', b'%2574k')]
COLONS = [b':', b' : ', b'\t: ', b' :', b':\t', b': \t ', b':\x0b', b': \x0c', b':\xa0', b'\0:', b':\0', b'\x0b:', b'\x1f:', b':\x1f', b'\r:', b':\r', b':\r ',
          b'\r\n : ', b':\r\n ', b':\n\t', b': \n', b' ', b'=', b'', b'::', b': :', b':\x85', b'\xa0:', b'\x85:']
NAMES = [b'X One', b' X-One', b'\tX-One', b'X_One', b'X-One\x80', b'X(One', b'"X"', b'X-One\0', b'\0X-One', b'X\0-One', b'X\rOne', b'\rX-One', b'X\x0bOne',
         b'\x0bX-One', b'', b'X' * 300, b'X' * 3000, b'x-one', b'\xc3\xa9', b'X,One', b'X/One', b'X@One', b'[X]', b'GET / HTTP/1.1\r\nX-One', b'From x', b'\x1cX', b'X\x1c',
         b'\x85X', b'{X', b'Host', b'Cookie', b'User-Agent', b'\x7fX', b'\x01X', b'Expect', b'Range', b'Content-Type', b'Authorization', b'Upgrade', b'HTTP2-Settings',
         b'X.One', b"X'One", b'X-One\r\n', b'X-One\n']
VALUES = [b'%s\r\n ', b'a\r\n %s', b'a\r\n\t%s', b'\r\n %s', b'\r\n\t \r\n %s', b'a\n %s', b'a\r %s', b'a\r\n \r\n %s', b'a\0%s', b'%s\0', b'\xff%s', b'\xc3\xa9%s', b'a\r%s',
          b'a\rX-In: %s', b'a\nX-In: %s', b'a\n%s', b'a\x0bX-In: %s', b'a\x0cX-In: %s', b'a\x1cX-In: %s', b'a\x1dX-In: %s', b'a\x1eX-In: %s', b'a\x85X-In: %s', b'a\r\r\nX-In: %s',
          b'a\n\rX-In: %s', b'a\r\n\rX-In: %s', b'a\r\n\nX-In: %s', b'a' * 5000 + b'%s', b'\x7f%s', b'\x01%s', b'"a\r\n%s"', b'a\r\n:%s', b'a\r\n\0%s', b'a\r\n \0%s',
          b'a\r\n\x0b%s', b'a\r\n\x0bX-In: %s', b'a\r\n X-In: %s', b'a\r\n\tX-In: %s', b'a\r\nX-In\r\n : %s', b'a\r\nnocolon\r\nX-In: %s', b'a\r\nFrom x\r\nX-In: %s',
          b'a\r\n\x80\x80: b\r\nX-In: %s', b'a\r\n b\r\n c\r\n d\r\n %s', b'=?utf-8?q?%s?=', b'a\r\n\r\r\nX-In: %s', b'a\r\n \rX-In: %s', b'a \r\n\r \nX-In: %s']
LENGTHS = [b'+%d', b'-%d', b'0%d', b'00000000000000000000%d', b' %d', b'%d ', b'%d\t', b'\t%d', b'%d,%d', b'%d, %d', b'%d,1', b'0x%x', b'%d.0', b'1_0', b'\x0b%d',
           b'%d\x0c', b'\x1c%d', b'%d\x1f', b'\xa0%d', b'%d\x85', b'', b'%d;x', b'"%d"', b'%d abc', b'\0%d', b'%d\0', b'99999999999999999999', b'9223372036854775808',
           b'4294967301', b'1', b'0', b'200', b'\r\n %d', b'%d\r\n ', b'%d\r\n 0', b'%d\r', b'\r%d', b'%de0', b'++%d', b'- %d', b'%d\r\nContent-Length: %d',
           b'%d\r\nContent-Length: 3', b'3\r\nContent-Length: %d', b'\r\nContent-Length: %d', b'%d\r\nContent-Length:', b'%d\r\nContent-Length: x', b'x\r\nContent-Length: %d',
           b'0\r\nContent-Length: %d', b'%d\r\nContent-Length: 0', b'%d\r\nTransfer-Encoding: identity', b'3\r\nTransfer-Encoding: identity', b'%d\r\nTransfer-Encoding:',
           b'3\r\nTransfer-Encoding: x']
CODINGS = [b'Chunked', b'CHUNKED', b' chunked', b'chunked ', b'chunked\t', b'\tchunked', b'\x0bchunked', b'chunked\x0b', b'chunked\x0c', b'\x1cchunked', b'chunked, chunked', b'identity, chunked',
           b'gzip, chunked', b'chunked, identity', b'chunked, gzip', b'identity', b', chunked', b'chunked,', b'chunked, ', b'"chunked"', b'chunked;q=1', b'chunked; a', b'x-chunked',
           b'xchunked', b'chunkedx', b'chunked x', b'x chunked', b'chunked\0', b'\0chunked', b'chunke\0d', b'\r\n chunked', b'chunked\r\n ', b'\xa0chunked', b'chunked\x85', b'',
           b'chunked\r\nTransfer-Encoding: chunked', b'chunked\r\nTransfer-Encoding: identity', b'identity\r\nTransfer-Encoding: chunked', b'x\r\nTransfer-Encoding: chunked',
           b'chunked\r\nTransfer-Encoding: x', b'\r\nTransfer-Encoding: chunked', b'chunked\r\nTransfer-Encoding:', b'gzip\r\nTransfer-Encoding: chunked',
           b'chunked\r\nContent-Length: 5', b'chunked\r\nContent-Length: 200', b'chunked\r\nContent-Length: 0', b'chunked\r\nContent-Length: x', b'chunked\r']
FRAMES = [b'%s ', b'%s\t', b'\t%s', b'%s_', b'%s\0', b'\0%s', b'\r%s', b'%s\r', b'%s\x0b', b' %s', b'x%s', b'%s(']
SIZES = [b'%s;a=b', b'%s ;a', b'%s;', b'%s ', b'%s\t', b'%s;a="b\r\nc"', b'%s;a="\n"', b'%s;a=\rb', b'%s;\n', b'0x%s', b'+%s', b'-%s', b'00%s', b' %s', b'\t%s', b'%s\0', b'%sg', b'%s,', b'%s:',
         b'0000000000000000%s', b'00000000000000000000000000%s', b'%s\x0b', b'\r\n%s', b'\n%s', b'%s;' + b'a' * 300, b'%s;' + b'a' * 5000, b'%s\xa0', b'%s;\x80', b'%s \t ', b'%s\r',
         b'1%s', b'10000000000000000%s', b'%s;\0', b'"%s"', b'%s=', b'0_%s', b'\x0b%s', b'%s\x85', b'%s ; a = b', b'%s\x0c']
LASTS = [b'0;a=b', b'00', b'00000000000000000000', b'+0', b'-0', b'0x0', b'0 ', b' 0', b'', b'0\t', b'0;', b'g', b'0\0', b'0\r']
TRAILERS = [b'X-T: %s\r\n\r\n', b'X-T: %s\n\n', b'X-T : %s\r\n\r\n', b' %s\r\n\r\n', b'X-T: a\r\n %s\r\n\r\n', b'X-T: %s', b'X-T: %s\r\n', b'X-T:%s\r\r\n\r\n', b'', b'\n', b'\r', b'nocolon\r\nX-T: %s\r\n\r\n',
            b'Content-Length: 5\r\nX-T: %s\r\n\r\n', b'\rX-T: %s\r\n\r\n', b'Host: %s\r\n\r\n']
EXTRAS = [b'Expect: 100-continue', b'Expect: 100-Continue', b'Expect: x', b'Expect:', b'Expect: 100-continue, x', b'Connection: close', b'Connection: keep-alive', b'Connection: Upgrade\r\nUpgrade: websocket',
          b'Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__', b'Connection: Upgrade\r\nUpgrade: TLS/1.0', b'Upgrade: h2c', b'Connection: close\r\nConnection: keep-alive',
          b'Connection: close, keep-alive', b'Content-Encoding: gzip', b'Host: b.test', b'Content-Length: 0', b'Content-Length: 5', b'Transfer-Encoding: chunked', b'Transfer-Encoding: identity',
          b'Content-Type: multipart/form-data; boundary=x', b'Content-Type: application/x-www-form-urlencoded', b'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nConnection: Upgrade\r\nUpgrade: websocket',
          b'Authorization: Basic !!!!', b'Range: bytes=0-', b' leading: x', b': x', b'nocolon', b'', b'\r', b'TE: trailers', b'Trailer: X-T', b'Proxy-Connection: close', b'\r\n' + b'X: y\r\n' * 3,
          b'X: y\r\n' * 90 + b'X: y', b'X%d: y' * 1 + b'\r\nContent-Length: 0\r\nContent-Length: 0', b'Keep-Alive: timeout=0', b'HTTP/1.1 200 OK', b'GET / HTTP/1.1']


def set_all_ends(requests, eol):
    for r in requests:
        r.eol = r.end = eol
        for f in r.fields:
            f[3] = eol
        for c in r.chunks:
            c.eol = c.end = eol


def mutations():
    """The changes that make a request odd: what they change, the variants, and a function of the requests and a variant."""
    def first(change):
        return lambda requests, v: change(requests[0], v)

    def set_field(name, n, make=lambda old, v: v):
        def change(r, v):
            f = r.field(name)
            f[n] = make(f[n], v)
        return first(change)

    def put(old, v):
        return v.replace(b'%s', old).replace(b'%%', b'%')

    def length(old, v):
        return v.replace(b'%d', old).replace(b'%x', b'%x' % int(old))

    def part(name):
        return first(lambda r, v: setattr(r, name, v))

    def target(r, v):
        path, _, query = r.target.lstrip(b'/').partition(b'?')
        r.target = put(path, v) + (b'' if b'#' in v or b'?' in v else b'?' + query)

    def coded_path(r, v):
        path, mark, query = r.target.partition(b'?')
        r.target = path.replace(*v) + mark + query

    def coded_query(r, v):
        path, mark, query = r.target.partition(b'?')
        r.target = path + mark + query.replace(*v)

    def gap(n):
        return first(lambda r, v: r.gaps.__setitem__(n, v))

    def simple(r, v):
        r.gaps[1] = r.version = b''
        r.fields, r.end = ([], b'') if v == b'alone' else (r.fields, r.end)

    def chunk(n, name, make=lambda old, v: v):
        def change(r, v):
            c = r.chunks[n]
            setattr(c, name, make(getattr(c, name), v))
        return first(change)

    def at_end(requests, v):
        r = requests[-1]
        if v == b'no empty line':
            r.end = b''
        else:
            r.end, r.fields[-1][3] = b'', b''

    yield 'all line ends', [b'\n', b'\r', b'\r\r\n', b'\n\r'], set_all_ends
    yield 'before the request', LEADS, part('lead')
    yield 'before the second request', LEADS + [b'body', b'body\r\n'], lambda requests, v: setattr(requests[1], 'lead', v)
    yield 'method', METHODS + [tk(15)], part('method')
    yield 'blank behind the method', BLANKS, gap(0)
    yield 'blank before the version', BLANKS, gap(1)
    yield 'version', VERSIONS, part('version')
    yield 'no version', [b'alone', b'with fields'], first(simple)
    yield 'target', PATHS, first(target)
    yield 'coded path', CODED, first(coded_path)
    yield 'coded query', CODED, first(coded_query)
    yield 'end of the request line', LINE_ENDS, part('eol')
    yield 'end of a field', LINE_ENDS, set_field(b'X-One', 3)
    yield 'end of the last field', LINE_ENDS, set_field(b'X-Last', 3)
    yield 'empty line', LINE_ENDS + [b' \r\n\r\n', b'\r\n\n', b'\r\r\n\r\n'], part('end')
    yield 'end of the connection', [b'no empty line', b'no line end'], at_end
    yield 'colon', COLONS, set_field(b'X-One', 1)
    yield 'name', NAMES, set_field(b'X-One', 0)
    yield 'value', VALUES, set_field(b'X-One', 2, put)
    yield 'host', [b'', b'a.test, %s', b'%s:80', b'%s:x', b'u@%s', b'%s/x', b'[%s]', b' %s', b'%s.', b'%s%%41', b'\x80%s', b'%s\\', b'%s_', b'%s a'], set_field(b'Host', 2, put)
    yield 'first field', [b' X: a', b'\tX: a', b'nocolon', b': a', b'\0', b' ', b'X', b'\r'], first(lambda r, v: r.fields.insert(0, [v, b'', b'', b'\r\n']))
    yield 'Content-Length', LENGTHS, set_field(b'Content-Length', 2, length)
    yield 'name of Content-Length', FRAMES + [b'content-length'], set_field(b'Content-Length', 0, put)
    yield 'colon of Content-Length', COLONS, set_field(b'Content-Length', 1)
    yield 'end of Content-Length', LINE_ENDS, set_field(b'Content-Length', 3)
    yield 'Transfer-Encoding', CODINGS, set_field(b'Transfer-Encoding', 2)
    yield 'name of Transfer-Encoding', FRAMES + [b'transfer-encoding'], set_field(b'Transfer-Encoding', 0, put)
    yield 'colon of Transfer-Encoding', COLONS, set_field(b'Transfer-Encoding', 1)
    yield 'end of Transfer-Encoding', LINE_ENDS, set_field(b'Transfer-Encoding', 3)
    yield 'chunk size', SIZES, chunk(0, 'size', put)
    yield 'second chunk size', [b'0%s', b'%s;a', b' %s', b'%s '], chunk(1, 'size', put)
    yield 'chunk size line end', LINE_ENDS, chunk(0, 'eol')
    yield 'chunk data end', LINE_ENDS + [b'x\r\n', b'\r\n\r\n', b'xx'], chunk(0, 'end')
    yield 'last chunk', LASTS, chunk(-1, 'size')
    yield 'last chunk line end', LINE_ENDS, chunk(-1, 'eol')
    yield 'end of the chunks', LINE_ENDS, chunk(-1, 'end')
    yield 'trailer', TRAILERS, chunk(-1, 'end', lambda _, v: v.replace(b'%s', tk(14)))
    yield 'field', EXTRAS, first(lambda r, v: r.fields.insert(3, [v, b'', b'', b'\r\n']))


BUFFERS = {'http.method': 'flow:to_server; http.method', 'http.uri': 'flow:to_server; http.uri', 'http.uri.raw': 'flow:to_server; http.uri.raw',
           'http.header': 'flow:to_server; http.header', 'http.header_names': 'flow:to_server; http.header_names', 'http.host': 'flow:to_server; http.host',
           'http.cookie': 'flow:to_server; http.cookie', 'http.user_agent': 'flow:to_server; http.user_agent', 'http.request_body': 'flow:to_server; http.request_body'}
PLACES = {'trailer': 'http.header', 'method': 'http.method', 'target': 'http.uri.raw', 'path': 'http.uri', 'query': 'http.uri', 'name': 'http.header_names', 'body': 'http.request_body'}
# Fields with their own buffers. Cookies are in no other buffer.
OWN = {'field host': ['http.host'], 'field user-agent': ['http.user_agent', 'http.header'], 'field cookie': ['http.cookie']}


def views(place):
    """The views that must show a token which a program read in this place."""
    if place in PLACES:
        return [PLACES[place]]
    return OWN.get(place, ['http.header']) + ([] if place == 'field host' else [place])


KIND = Kind(
    name='http-requests', protocol='http', port=80, buffers=BUFFERS, fields='request_headers', views=views,
    peers=[Server('python', line_of(lambda: sys.executable, 'peer.py', ['serve'])), Nginx(), Server('go', go('serve')), Server('node', node('serve'))],
    bases=dict(bases()), mutations=changes(mutations()), copy=copy.deepcopy, write=lambda requests: b''.join(r.bytes() for r in requests))
