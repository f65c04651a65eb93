"""Odd TLS ClientHellos (RFC 8446, RFC 5246), read by servers: OpenSSL through Python's ssl, Go's crypto/tls, Node.js."""
import copy
import dataclasses
import random
import sys

from engine import token
from peers import Server, certificate, go, line_of, node
from search import Kind, changes


def u8(data):
    return bytes([len(data)]) + data


def u16(data):
    return len(data).to_bytes(2, 'big') + data


def number(n):
    return n.to_bytes(2, 'big')


NAME = f'{token(0)}.test'.encode()
ALPN = [token(1).encode(), b'h2', b'http/1.1']
SNI, GROUPS, POINTS, SIGNATURES, ALPNS, PADDING, EMS, TICKET, VERSIONS, MODES, SHARES, STATUS = 0, 10, 11, 13, 16, 21, 23, 35, 43, 45, 51, 5
KEY = random.Random(1).randbytes(32)
CIPHERS = [0x1301, 0x1302, 0x1303, 0xc02f, 0xc030, 0xcca8, 0xc013, 0xc014, 0x009c, 0x002f, 0x0035]


def names(*some):
    """The server name extension (RFC 6066 section 3) with these pairs of type and name."""
    return u16(b''.join(bytes([t]) + u16(n) for t, n in some))


@dataclasses.dataclass
class Hello:
    """A ClientHello, and how it is cut into records."""
    version: int = 0x303
    ciphers: list = dataclasses.field(default_factory=lambda: list(CIPHERS))
    session: bytes = KEY
    methods: bytes = b'\0'
    extensions: list = dataclasses.field(default_factory=list)
    behind: bytes = b''
    # The records: their version, the sizes of their pieces (the last size repeats), and bytes before, between and after them.
    record: int = 0x301
    sizes: tuple = (16384,)
    before: bytes = b''
    between: bytes = b''
    after: bytes = b''
    # The handshake message: its type, and the excess of its length field.
    kind: int = 1
    excess: int = 0

    def bytes(self):
        extensions = b''.join(number(t) + u16(d) for t, d in self.extensions)
        body = number(self.version) + KEY + u8(self.session) + u16(b''.join(map(number, self.ciphers))) + u8(self.methods)
        body += (u16(extensions) if self.extensions else b'') + self.behind
        message = bytes([self.kind]) + (len(body) + self.excess).to_bytes(3, 'big') + body
        sizes, records = list(self.sizes), []
        while message:
            size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
            records.append(b'\x16' + number(self.record) + u16(message[:size]))
            message = message[size:]
        return self.before + self.between.join(records) + self.after

    def place(self, kind):
        return next(i for i, (t, _) in enumerate(self.extensions) if t == kind)


def bases():
    base = [(SNI, names((0, NAME))), (EMS, b''), (POINTS, u8(b'\0')), (GROUPS, u16(number(29) + number(23))), (TICKET, b''), (ALPNS, u16(b''.join(map(u8, ALPN)))), (STATUS, b'\1\0\0\0\0'),
            (SIGNATURES, u16(b''.join(map(number, (0x403, 0x804, 0x401, 0x805, 0x806, 0x501, 0x601, 0x201)))))]
    modern = [(SHARES, u16(number(29) + u16(KEY))), (MODES, u8(b'\1')), (VERSIONS, u8(number(0x304) + number(0x303)))]
    yield 'TLS 1.3', Hello(extensions=base + modern)
    yield 'TLS 1.2', Hello(extensions=list(base))
    yield 'TLS 1.0', Hello(version=0x301, extensions=base[:-1], ciphers=[0xc013, 0xc014, 0x2f, 0x35])


def sslv2(m, v):
    """Puts an SSL 2.0 ClientHello (RFC 5246 appendix E.2) first. It has no server name, so no view may show one from it."""
    ciphers = b''.join(b'\0' + number(c) for c in m.ciphers)
    body = b'\1' + number(v) + number(len(ciphers)) + number(0) + number(16) + ciphers + KEY[:16]
    m.before = number(0x8000 | len(body)) + body + m.before


ALERT, CCS, EMPTY, HEARTBEAT, DATA = b'\x15\3\1\0\2\1\0', b'\x14\3\3\0\1\1', b'\x16\3\1\0\0', b'\x18\3\1\0\3\1\0\0', b'\x17\3\1\0\1x'
ALERTS = {'a warning': ALERT, 'two warnings': ALERT * 2, 'ten warnings': ALERT * 10, 'no_renegotiation': ALERT[:-1] + b'\x64', 'user_canceled': ALERT[:-1] + b'\x5a', 'unrecognized_name': ALERT[:-1] + b'\x70', 'half a warning': ALERT[:-4] + b'\1\1', 'a change of ciphers': CCS, 'two changes of ciphers': CCS * 2, 'an empty record': EMPTY, '31 empty records': EMPTY * 31,
          '32 empty records': EMPTY * 32, '40 empty records': EMPTY * 40, 'a heartbeat': HEARTBEAT, 'data': DATA, 'an empty record of data': DATA[:3] + b'\0\0', 'HelloRequest': b'\x16\3\1\0\4\0\0\0\0', 'a line': b'GET / HTTP/1.1\r\n\r\n', 'a byte': b'\0', 'an empty warning': b'\x15\3\1\0\0', 'a record of no type': b'\x63\3\1\0\1x', 'an empty change of ciphers': b'\x14\3\3\0\0', 'PROXY': b'PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n', 'STARTTLS': b'\0\0\0\x08\4\xd2\x16\x2f'}
SIZES = {'1': (1,), '2': (2,), '3': (3,), '4': (4,), '5': (5,), '6': (6,), '7': (7,), '1, rest': (1, 16384), '3, rest': (3, 16384), '4, rest': (4, 16384), '5, rest': (5, 16384), '38, rest': (38, 16384), '39, rest': (39, 16384), '60, 1, rest': (60, 1, 16384), '100': (100,), '64': (64,), '17000': (17000,), '4, 1, 1, rest': (4, 1, 1, 16384)}
SNIS = {'two names': names((0, NAME), (0, b'b.test')), 'two names, the other way': names((0, b'b.test'), (0, NAME)), 'another type first': names((1, b'x'), (0, NAME)), 'another type behind': names((0, NAME), (1, b'x')), 'type 1': names((1, NAME)), 'with a dot': names((0, NAME + b'.')), 'upper case': names((0, NAME.upper())), 'mixed case': names((0, b'Tk00ZQ.Test')), 'with a null byte': names((0, NAME + b'\0x')),
        'null byte first': names((0, b'\0' + NAME)), 'with a blank': names((0, NAME + b' ')), 'blank first': names((0, b' ' + NAME)), 'high bytes': names((0, b'\xff' + NAME)), 'UTF-8': names((0, b'\xc3\xa9' + NAME)), 'underscore': names((0, b'_' + NAME)), 'star': names((0, b'*.' + NAME)), 'long': names((0, b'a.' * 120 + NAME)), 'of 300': names((0, b'a' * 287 + b'.' + NAME)), 'of 3000': names((0, b'a' * 3000 + NAME)), 'of 16000': names((0, b'a' * 16000 + NAME)),
        'empty': names((0, b'')), 'an address': names((0, b'127.0.0.1')), 'trailing bytes in the list': u16(bytes([0]) + u16(NAME) + b'x'), 'trailing bytes': names((0, NAME)) + b'x', 'list too short': number(len(NAME)) + b'\0' + u16(NAME), 'list too long': number(len(NAME) + 9) + b'\0' + u16(NAME), 'name too long': number(len(NAME) + 3) + b'\0' + number(len(NAME) + 1) + NAME,
        'name too short': number(len(NAME) + 3) + b'\0' + number(len(NAME) - 1) + NAME, 'dots': names((0, b'..' + NAME)), 'dot first': names((0, b'.' + NAME)), 'no extension data': b'', 'with a slash': names((0, NAME + b'/x')), 'with a line': names((0, NAME + b'\r\nx')), 'with a tab': names((0, NAME + b'\t')), 'with a colon': names((0, NAME + b':443')), 'punycode': names((0, b'xn--e1aybc.' + NAME)), 'quotes': names((0, b'"' + NAME + b'"')), 'percent': names((0, b'%' + NAME))}


def mutations():
    def part(name):
        return lambda m, v: setattr(m, name, v)

    def table(name, values):
        return lambda m, v: setattr(m, name, values[v])

    def put(m, v):
        i = m.place(SNI)
        m.extensions[i] = (SNI, SNIS[v])

    def order(m, v):
        e = m.extensions
        if v == 'reversed':
            e.reverse()
        elif v == 'the name last':
            e.append(e.pop(m.place(SNI)))
        elif v == 'the name twice':
            e.append((SNI, names((0, b'b.test'))))
        elif v == 'another name before':
            e.insert(0, (SNI, names((0, b'b.test'))))
        elif v == 'the same name twice':
            e.append(e[m.place(SNI)])
        elif v == 'ALPN twice':
            e.append(e[m.place(ALPNS)])
        elif v == 'an unknown one twice':
            e[:0] = [(0x1a1a, b''), (0x1a1a, b'x')]
        elif v == 'the name alone':
            e[:] = [e[m.place(SNI)]]
        else:
            e.clear()

    def insert(m, v):
        m.extensions[:0] = {'padding of 500': [(PADDING, b'\0' * 500)], 'padding of 17000': [(PADDING, b'\0' * 17000)], 'padding of 60000': [(PADDING, b'\0' * 60000)], 'padding of ones': [(PADDING, b'\1' * 50)], 'GREASE': [(0x0a0a, b''), (0x2a2a, b'\0')], 'a hundred': [(0x6000 + i, b'x') for i in range(100)], 'a thousand': [(0x6000 + i, b'') for i in range(1000)], '65535': [(0xffff, b'')],
                            'renegotiation': [(0xff01, b'\0')], 'early data': [(42, b'')], 'a cookie': [(44, u16(b'c'))], 'NPN': [(13172, b'')], 'encrypted name': [(0xffce, b'x' * 100)], 'ECH': [(0xfe0d, b'\0' + b'x' * 40)], 'a broken one': [(0x7000, b'\xff' * 3)], 'heartbeat': [(15, b'\1')], 'SRP': [(12, u8(b'user'))], 'max fragment': [(1, b'\1')], 'record size limit': [(28, number(100))], 'client certificate URL': [(2, b'')], 'truncated HMAC': [(4, b'')]}[v]

    def alpn(m, v):
        m.extensions[m.place(ALPNS)] = (ALPNS, {'empty': b'', 'empty list': u16(b''), 'empty name first': u16(b'\0' + u8(ALPN[0])), 'list too long': number(40) + u8(ALPN[0]), 'long': u16(u8(b'x' * 200 + ALPN[0])), 'a hundred': u16(u8(b'x') * 100 + u8(ALPN[0])), 'binary': u16(u8(b'\xff\0' + ALPN[0])), 'trailing bytes': u16(u8(ALPN[0])) + b'x'}[v])

    def versions(m, v):
        m.extensions[m.place(VERSIONS)] = (VERSIONS, u8(b''.join(map(number, v))))

    yield 'record version', [0x300, 0x302, 0x303, 0x304, 0x305, 0x3ff, 0x200, 0x400, 0, 0x1603, 0xffff, 0x201, 0x7f1c, 0xfeff], part('record')
    yield 'records of', list(SIZES), table('sizes', SIZES)
    yield 'before the hello', list(ALERTS), table('before', ALERTS)
    yield 'between records', list(ALERTS), lambda m, v: (setattr(m, 'between', ALERTS[v]), setattr(m, 'sizes', (60,) if m.sizes == (16384,) else m.sizes))
    yield 'behind the hello', list(ALERTS), table('after', ALERTS)
    yield 'hello version', [0x300, 0x301, 0x302, 0x304, 0x305, 0x3ff, 0x200, 0x400, 0, 0xffff, 0xfefd, 0x2], part('version')
    yield 'session', [b'', b'x', b'x' * 31, b'x' * 32, b'x' * 33, b'x' * 200], part('session')
    yield 'ciphers', [[], [0x1301], [0xc02f, 0x1301], [0x2f], [0xff] + CIPHERS, [0x5600] + CIPHERS, CIPHERS * 300, [0x0a0a] + CIPHERS, [0x2f, 0x35]], part('ciphers')
    yield 'methods', [b'', b'\1', b'\1\0', b'\0\1', b'\0' * 200, b'\x40\0', b'\0\0'], part('methods')
    yield 'name', list(SNIS), put
    yield 'extensions', ['reversed', 'the name last', 'the name twice', 'another name before', 'the same name twice', 'ALPN twice', 'an unknown one twice', 'the name alone', 'none'], order
    yield 'extension', ['padding of 500', 'padding of 17000', 'padding of 60000', 'padding of ones', 'GREASE', 'a hundred', 'a thousand', '65535', 'renegotiation', 'early data', 'a cookie', 'NPN', 'encrypted name', 'ECH', 'a broken one', 'heartbeat', 'SRP', 'max fragment', 'record size limit', 'client certificate URL', 'truncated HMAC'], insert
    yield 'ALPN', ['empty', 'empty list', 'empty name first', 'list too long', 'long', 'a hundred', 'binary', 'trailing bytes'], alpn
    yield 'supported versions', [(), (0x304,), (0x303,), (0x302,), (0x7f1c, 0x303), (0x305, 0x304), (0x300, 0x301), (0x304,) * 100, (0, 0x304)], versions
    yield 'behind the extensions', [b'x', b'\0\0', b'\0' * 50], part('behind')
    yield 'message type', [0, 2, 3, 11, 16, 255], part('kind')
    yield 'message length', [1, -1, 100, 100000], part('excess')
    yield 'SSL 2.0', [2, 0x300, 0x301, 0x303], sslv2


BUFFERS = {'tls.sni': 'tls.sni', 'tls.alpn': 'tls.alpn'}


def views(place):
    return {'sni': ['tls.sni'], 'alpn': ['tls.alpn']}[place]


KIND = Kind(
    name='hellos', protocol='tls', port=443, buffers=BUFFERS, fields=None, views=views,
    peers=[Server('openssl', line_of(lambda: sys.executable, 'peer.py', ['tls', certificate])), Server('go', go('tls', certificate)), Server('node', node('tls', certificate))],
    bases=dict(bases()), mutations=changes(mutations()), copy=copy.deepcopy, write=lambda m: m.bytes())
