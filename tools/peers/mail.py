"""Odd mail (RFC 5322, MIME), read by Python's `email` with both of its policies, and sent over SMTP to the engine."""
import base64
import copy
import dataclasses
import email
import email.policy
import quopri
import re

from engine import token
from peers import Function
from search import Kind, changes


def tk(n):
    return token(n).encode()


def field(name, value):
    return [name, b': ', value, b'\r\n']


@dataclasses.dataclass
class Part:
    """A part: its fields, the empty line, and the encoded body."""
    fields: list
    body: bytes
    end: bytes = b'\r\n'
    # The delimiter line before it: the bytes around the boundary, and the line end.
    before: bytes = b'--'
    behind: bytes = b''
    eol: bytes = b'\r\n'

    def bytes(self):
        return b''.join(map(b''.join, self.fields)) + self.end + self.body

    def field(self, name):
        return next(f for f in self.fields if f[0] == name)


@dataclasses.dataclass
class Mail:
    """A message: its fields, the parameter that names the boundary, and its parts. Without a boundary only the first part is sent."""
    parts: list
    boundary: bytes | None = b'=_b0'
    kind: bytes = b'multipart/mixed'
    said: bytes = b'; boundary="%s"'
    fields: list = dataclasses.field(default_factory=lambda: [field(b'From', tk(0) + b' <a@a.test>'), field(b'To', tk(1) + b'@b.test'), field(b'Subject', tk(2)), field(b'MIME-Version', b'1.0')])
    preamble: bytes = b'preamble\r\n'
    close: bytes = b'--%s--\r\n'
    epilogue: bytes = b'epilogue\r\n'
    ends: bytes = b'\r\n'

    def bytes(self):
        head = b''.join(map(b''.join, self.fields))
        if self.boundary is None:
            text = head + self.parts[0].bytes()
        else:
            kind = b'Content-Type: ' + self.kind + self.said.replace(b'%s', self.boundary) + b'\r\n'
            parts = b''.join(p.before + self.boundary + p.behind + p.eol + p.bytes() for p in self.parts)
            text = head + kind + b'\r\n' + self.preamble + parts + self.close.replace(b'%s', self.boundary) + self.epilogue
        return text.replace(b'\r\n', self.ends) if self.ends != b'\r\n' else text


DATA = b'first ' + tk(8) + b' and some more of it so that there are several lines, second ' + tk(9) + b' and the end'


def b64(data=DATA):
    return base64.encodebytes(data).replace(b'\n', b'\r\n')


def qp(data=DATA):
    return quopri.encodestring(data).replace(b'\n', b'\r\n') + b'\r\n'


def attachment(coding, body, name=tk(7) + b'.txt', kind=b'application/octet-stream'):
    return Part([field(b'Content-Type', kind), field(b'Content-Transfer-Encoding', coding), field(b'Content-Disposition', b'attachment; filename="' + name + b'"')], body)


def bases():
    text = lambda: Part([field(b'Content-Type', b'text/plain')], b'hello\r\n')
    yield 'base64', Mail([text(), attachment(b'base64', b64()), attachment(b'base64', b64(b'third ' + tk(10)), b'x.txt')])
    yield 'quoted-printable', Mail([text(), attachment(b'quoted-printable', qp()), attachment(b'7bit', b'third ' + tk(10) + b'\r\n', b'x.txt')])
    yield 'as it is', Mail([attachment(b'8bit', DATA + b'\r\n'), attachment(b'base64', b64(b'third ' + tk(10)), b'x.txt')])
    yield 'alone', Mail([attachment(b'base64', b64())], boundary=None)
    inner = Mail([attachment(b'base64', b64())], boundary=b'=_b0x', fields=[], preamble=b'', epilogue=b'')
    kind, body = inner.bytes().split(b'\r\n', 1)
    yield 'nested', Mail([text(), Part([[kind, b'', b'', b'\r\n']], body[2:]), attachment(b'base64', b64(b'third ' + tk(10)), b'x.txt')])
    yield 'message', Mail([text(), Part([field(b'Content-Type', b'message/rfc822')], Mail([attachment(b'base64', b64())], boundary=b'in').bytes())])


ENDS = [b'\n', b'\r', b'\r\r\n', b'\n\r', b' \r\n', b'\t\r\n', b'\0\r\n', b'\x0b\r\n', b'\x0c\r\n', b'\x1c\r\n', b'\x85\r\n', b'']
KINDS = [b'Multipart/MIXED', b'multipart/x', b'multipart/', b'multipart', b'multipart/mixed ', b' multipart/mixed', b'\r\n multipart/mixed', b'(c) multipart/mixed', b'multipart (c)/mixed', b'multipart/mixed (c)', b'multipart / mixed', b'multi part/mixed', b'"multipart/mixed"', b'multipart/mixed;', b'multipart/mixed; x=y', b'multipart/mixed;;', b'multipart/mixed; x="a;b"',
         b'multipart/mixed; x="a\\";boundary=z"', b'multipart/alternative', b'multipart/related; type="text/html"', b'multipart/digest', b'multipart/signed', b'text/plain\r\nContent-Type: multipart/mixed', b'multipart/mixed; x="', b'multipart/mixed; x=(boundary=z)', b'multipart/mixed/x', b'xmultipart/mixed', b'multipart\0/mixed', b'multipart/mixed\0', b'multipart/mixed,']
SAID = [b'; boundary=%s', b'; BOUNDARY="%s"', b'; boundary = "%s"', b';boundary="%s"', b'; boundary="%s" ', b"; boundary='%s'", b'; boundary="%s"; x=y', b'; boundary=%s;x=y', b'; boundary=%s x', b'; boundary=%s (c)', b'; boundary=(c)%s', b'; boundary="%s', b'; boundary=%s"', b'; boundary="%s" x', b'; boundary=" %s"', b'; boundary="%s "', b'; boundary="\\%s"', b'; boundary="=\\_b0"',
        b'; boundary*=utf-8\'\'%s', b"; boundary*=utf-8''%%3D_b0", b'; boundary*0="=_"; boundary*1="b0"', b'; boundary*0*=%%3D_; boundary*1="b0"', b'; boundary*1="b0"; boundary*0="=_"', b'; boundary="x"; boundary="%s"', b'; boundary="%s"; boundary="x"', b';\r\n boundary="%s"', b';\r\n\tboundary="%s"', b'; boundary=\r\n "%s"', b'; boundary\r\n ="%s"', b'; boundary="=_\r\n b0"', b' boundary="%s"', b'; ; boundary="%s"', b'; x; boundary="%s"',
        b'; x=a boundary="%s"', b'; xboundary=z; boundary="%s"', b'; name="boundary=z"; boundary="%s"', b'; boundary=', b'', b'; boundary=""', b'; boundary="=_b"', b'; boundary==%s', b'; boundary="%s\0"', b'; boundary="%s\x0b"', b'; boundary=\x0b"%s"', b'; boundary=\xa0%s', b'; boundary=""%s', b'; boundary="%s""x"', b'; boundary="=_b0"--', b'; bound\\ary="%s"', b'\r\n ; boundary="%s"', b'; charset="; boundary=%s', b'; boundary="=?utf-8?q?=3D=5Fb0?="']
BEHIND = [b' ', b'\t', b'x', b'--', b' --', b'-', b'\0', b' x', b'\r', b'--x', b'\x0b', b'\xa0', b'  \t ', b' (c)', b'\x0c', b'\x1c']
CODINGS = [b'BASE64', b'Base64', b' base64 ', b'"base64"', b'base64 (c)', b'(c) base64', b'base64;x', b'base64; charset=x', b'base 64', b'x-base64', b'base64,', b'\tbase64', b'\r\n base64', b'base64\r\n ', b'base64\r\nContent-Transfer-Encoding: 7bit', b'7bit\r\nContent-Transfer-Encoding: base64', b'base64 x', b'base64\0', b'\0base64', b'base64\x0b', b'\x0bbase64', b'base64\x85', b'b', b'',
           b'base-64', b'BASE64.', b'quoted-printable', b'QUOTED-PRINTABLE', b'quoted-printable ', b'"quoted-printable"', b'quoted-printable;x', b'quoted-printable (c)', b'(c)quoted-printable', b'quotedprintable', b'q', b'8bit', b'binary', b'7bit', b'x-uuencode', b'uuencode', b'uue', b'x-uue', b'=?us-ascii?q?base64?=', b'base64\xa0', b"'base64'", b'=base64', b'base64/7bit', b'base64:']
NAMES = [b'attachment; filename=%s', b'attachment; FILENAME="%s"', b'attachment; filename = "%s"', b'attachment;filename=%s', b'attachment; filename="%s', b'attachment; filename=%s"', b"attachment; filename='%s'", b'inline; filename="%s"', b'filename="%s"', b'; filename="%s"', b'attachment filename="%s"', b'attachment; x="; filename=z"; filename="%s"', b'attachment; filename="a\\"%s"',
         b"attachment; filename*=utf-8''%s", b"attachment; filename*=utf-8'en'%%74%%6b07zq", b"attachment; filename*=%s", b"attachment; filename*0=\"tk0\"; filename*1=\"7zq\"", b"attachment; filename*1=\"7zq\"; filename*0=\"tk0\"", b"attachment; filename*0*=utf-8''%%74k0; filename*1=7zq", b"attachment; filename*00=\"tk0\"; filename*01=\"7zq\"", b'attachment; filename*0="%s"',
         b'attachment; filename="=?utf-8?q?%s?="', b'attachment; filename="=?utf-8?b?dGswN3px?="', b'attachment; filename==?utf-8?q?tk07=7Aq?=', b'attachment; filename="=?utf-8?q?tk0?= =?utf-8?q?7zq?="', b'attachment;\r\n filename="%s"', b'attachment; filename=\r\n "%s"', b'attachment; filename="a\r\n %s"', b'attachment; filename\r\n ="%s"', b'attachment; filename="x"; filename="%s"', b'attachment; filename="%s"; filename="x"',
         b'attachment; filename=(c)%s', b'attachment (c); filename="%s"', b'attachment; (c) filename="%s"', b'attachment; filename="%s" x', b'attachment; filename=a %s', b'attachment; filename=""', b'attachment; filename=', b'attachment; filename', b'attachment', b'attachment; name="%s"', b'attachment; filename="/a/%s"', b'attachment; filename="a\\b\\%s"', b'attachment; filename="' + b'a' * 300 + b'%s"', b'attachment; filename="%s\0"', b'attachment; filename="\xff%s"', b'attachment; filename=\xc3\xa9%s',
         b'attachment; filename="%s"\r\nContent-Disposition: inline', b'inline\r\nContent-Disposition: attachment; filename="%s"', b'attachment; filename="%s;x"', b'attachment; ; filename="%s"', b'attachment;\tfilename="%s"', b'attachment;\x0bfilename="%s"', b'attachment; filename=\x0b"%s"', b'"attachment"; filename="%s"', b'attachment, filename="%s"', b'attachment; x=y filename="%s"', b'attachment; size=1; filename="%s"', b'attachment; filename*=""; filename="%s"']
TYPES = [b'text/plain', b'application/octet-stream; name="%s"', b'application/octet-stream; name=%s', b'application/x; NAME="%s"', b"application/x; name*=utf-8''%s", b'application/x; name*0="tk0"; name*1="7zq"', b'application', b'', b'/', b'text/html; charset="', b'application/x-msdownload; x="; name=z', b'multipart/mixed', b'multipart/mixed; boundary=none', b'message/rfc822', b'message/partial', b'message/delivery-status', b'message/external-body', b'message/http', b'message/global', b'text/rfc822-headers',
         b'application/octet-stream; name="=?utf-8?q?%s?="', b'image/png;\r\n name="%s"', b'application/octet-stream\r\nContent-Type: text/plain', b'application/x; name=(c) %s', b'application/x name=%s', b'text/plain; charset=utf-7', b'text/plain; charset=utf-16', b'text/plain; format=flowed']
NO_NAME = b'attachment'
B64_BODIES = {
    'a line each character': b'\r\n'.join(bytes([c]) for c in base64.b64encode(DATA)) + b'\r\n', 'in one line': base64.b64encode(DATA) + b'\r\n', 'blanks': b64().replace(b'a', b'a ').replace(b'b', b'b\t'), 'no padding': base64.b64encode(DATA + b'x' * (1 - len(DATA) % 3 + 3)).rstrip(b'=') + b'\r\n',
    'too much padding': base64.b64encode(DATA) + b'====\r\n', 'a comment in it': b'(c)' + b64(), 'padding in the middle': b64(b'first ' + tk(8) + b'.') + b64(b'second ' + tk(9)), 'padding in a line': base64.b64encode(b'first ' + tk(8) + b'.') + base64.b64encode(b'second ' + tk(9)) + b'\r\n', 'one = in the middle': (lambda t: t[:8] + b'=' + t[8:])(b64()), 'two = in the middle': (lambda t: t[:8] + b'==' + t[8:])(b64()),
    'two = at an odd place': (lambda t: t[:10] + b'==' + t[10:])(b64()), 'one = at an odd place': (lambda t: t[:11] + b'=' + t[11:])(b64()), 'four = in the middle': (lambda t: t[:8] + b'====' + t[8:])(b64()), '=\r\n= in the middle': (lambda t: t[:10] + b'=\r\n=' + t[10:])(b64()), 'junk': (lambda t: t[:9] + b'!*#' + t[9:])(b64()), '- and _': b64().replace(b'+', b'-').replace(b'/', b'_'), '- in it': (lambda t: t[:9] + b'-' + t[9:])(b64()), 'null bytes': (lambda t: t[:9] + b'\0' + t[9:])(b64()), 'high bytes': (lambda t: t[:9] + b'\xff\x80' + t[9:])(b64()),
    'an empty line': b64(DATA[:57]) + b'\r\n' + b64(DATA[57:]), 'empty lines first': b'\r\n\r\n' + b64(), 'a dot line': b64(DATA[:57]) + b'..\r\n' + b64(DATA[57:]), 'a line of text': b'This is text:\r\n' + b64(), 'text behind': b64() + b'This is text\r\n', 'one character too many': base64.b64encode(DATA[:-len(DATA) % 3 or None]) + b'A\r\n', 'one character first': b'A\r\n' + b64(), 'a = first': b'=' + b64(), 'a = line first': b'==\r\n' + b64(), '==== first': b'====' + b64(), 'CR line ends': b64().replace(b'\r\n', b'\r'),
    'LF line ends': b64().replace(b'\r\n', b'\n'), 'lines of 5': re.sub(rb'(.{5})', rb'\1\r\n', base64.b64encode(DATA)) + b'\r\n', 'line of 3000': base64.b64encode(b'x' * 2250 + DATA) + b'\r\n', 'a bit too many': base64.b64encode(DATA[:1])[:1] + b'X' + b'==' + base64.b64encode(DATA) + b'\r\n', 'a BOM first': b'\xef\xbb\xbf' + b64(), 'a dash line': b64(DATA[:57]) + b'--\r\n' + b64(DATA[57:]), 'not ended': base64.b64encode(DATA), 'a > first': b'>' + b64(), 'a field first': b'X: y\r\n\r\n' + b64(),
    'vertical tabs': b64().replace(b'a', b'a\x0b'), 'a single = and text': base64.b64encode(b'first ' + tk(8)) + b'=x\r\n' + b64(b'second ' + tk(9)), 'quoted': b'"' + b64().strip() + b'"\r\n', 'in braces': b'{' + b64() + b'}\r\n', 'nothing and ===': b'===\r\n' + b64()}
QP_BODIES = {
    'all coded': b''.join(b'=%02X' % c for c in DATA[:20]) + qp(DATA[20:]), 'all coded, small letters': b''.join(b'=%02x' % c for c in DATA[:20]) + qp(DATA[20:]), 'a soft break in a token': qp().replace(tk(8), tk(8)[:3] + b'=\r\n' + tk(8)[3:]), 'a soft break with a blank': qp().replace(tk(8), tk(8)[:3] + b'= \r\n' + tk(8)[3:]), 'a soft break with a tab': qp().replace(tk(8), tk(8)[:3] + b'=\t \r\n' + tk(8)[3:]),
    'a soft break with LF': qp().replace(tk(8), tk(8)[:3] + b'=\n' + tk(8)[3:]), 'a soft break with CR': qp().replace(tk(8), tk(8)[:3] + b'=\r' + tk(8)[3:]), 'a soft break with CR CR LF': qp().replace(tk(8), tk(8)[:3] + b'=\r\r\n' + tk(8)[3:]), 'many soft breaks': qp().replace(tk(8), b'=\r\n'.join(bytes([c]) for c in tk(8))), '=3': b'=3' + qp(), '=ZZ': b'=ZZ' + qp(), '==': b'==' + qp(), '==74': qp().replace(tk(8), b'==74k08zq'), '= at the end': qp() + b'=', '=0x': b'=0x' + qp(), '= 74': b'= 74' + qp(),
    'half a code and a break': qp().replace(tk(8), b'=7\r\n4' + tk(8)[1:]), 'a code over a soft break': qp().replace(tk(8), b'=7=\r\n4' + tk(8)[1:]), 'null bytes': b'\0' + qp(), 'high bytes': b'\xff' + qp(), 'long line': b'x' * 3000 + qp(DATA[:60]), '_ in a token': qp().replace(b' ', b'_'), 'blanks at line ends': qp().replace(b'\r\n', b'  \r\n'), 'a code that is coded': qp().replace(tk(8), b'=3D74' + tk(8)[1:]),
    'a token with a small code': qp().replace(tk(8), b'=74=6b08zq'), 'a soft break, a blank line': qp().replace(tk(8), tk(8)[:3] + b'=\r\n=\r\n' + tk(8)[3:]), 'a dot': b'..' + qp(), '=\0': b'=\0' + qp(), '=\r\n at once': b'=\r\n' + qp(), '===': b'===' + qp(), '=7 4': qp().replace(tk(8), b'=7 4' + tk(8)[1:])}
UU = b'begin 644 x\r\n' + b''.join(__import__('binascii').b2a_uu(DATA[i:i + 45]).replace(b'\n', b'\r\n') for i in range(0, len(DATA), 45)) + b'`\r\nend\r\n'


def mutations():
    def outer(name, many=True):
        def change(m, v):
            if many and m.boundary is None:
                raise ValueError('has no parts')
            setattr(m, name, v)
        return change

    def the_part(m):
        """The part to change: the first one with a Content-Disposition."""
        return next(p for p in m.parts if any(f[0] == b'Content-Disposition' for f in p.fields))

    def part(name):
        return lambda m, v: setattr(the_part(m), name, v)

    def part_field(name, n):
        def change(m, v):
            f = the_part(m).field(name)
            f[n] = v.replace(b'%s', f[n] if n != 2 else tk(7) + b'.txt').replace(b'%%', b'%')
        return change

    def between(name):
        def change(m, v):
            if m.boundary is None:
                raise ValueError('has no parts')
            setattr(the_part(m), name, v)
        return change

    def body(coding, bodies):
        def change(m, v):
            p = the_part(m)
            if p.field(b'Content-Transfer-Encoding')[2] != coding:
                raise ValueError('is of another coding')
            p.body = bodies[v]
        return change

    def all_ends(m, v):
        m.ends = v

    def boundary(m, v):
        if m.boundary is None:
            raise ValueError('has no parts')
        m.boundary = v

    def uu(m, v):
        p = the_part(m)
        p.field(b'Content-Transfer-Encoding')[2], p.body = v, UU

    yield 'all line ends', [b'\n', b'\r', b'\r\r\n'], all_ends
    yield 'kind', KINDS, outer('kind')
    yield 'boundary is said', SAID, outer('said')
    yield 'boundary', [b'b', b'b' * 70, b'b' * 200, b'b' * 300, b'a b', b"'()+_,-./:=?", b'--', b'-', b'b-', b'b--', b'\xff', b'=', b'=_b0', b'"', b'\\', b'a\\"b', b'b;c', b'.', b'*', b'[a', b'$', b'a\tb', b'\0'], boundary
    yield 'preamble', [b'', b'\r\n', b'--\r\n', b'--=_b\r\n', b'X: y\r\n\r\n', b'preamble', b'--=_b0x\r\n', b' --=_b0\r\n', b'\t\r\n', b'--=_b0--\r\n', b'--=_b0\r\n', b'--=_b0\r\n\r\n'], outer('preamble')
    yield 'before the boundary', [b' --', b'-', b'---', b'\t--', b'\0--', b'x--', b'\r--', b'\x0b--', b'', b'\n--', b'\r\n--', b'..--', b'>--', b'\xef\xbb\xbf--'], between('before')
    yield 'behind the boundary', BEHIND, between('behind')
    yield 'end of the boundary line', ENDS, between('eol')
    yield 'last line', [b'', b'--%s\r\n', b'--%s--', b'--%s --\r\n', b'--%s-\r\n', b'--%s--x\r\n', b'--%s-- \r\n', b' --%s--\r\n', b'--%sx--\r\n', b'--\r\n'], outer('close')
    yield 'epilogue', [b'', b'--=_b0\r\nContent-Type: a/b; name=x\r\n\r\n' + tk(11) + b'\r\n', b'\r\n--=_b0\r\nContent-Disposition: attachment; filename=x\r\n\r\n' + tk(11) + b'\r\n--=_b0--\r\n'], outer('epilogue')
    yield 'empty line of the part', ENDS + [b' \r\n\r\n', b'\t\r\n\r\n', b'x\r\n\r\n', b'\r\n\r\n', b'nocolon\r\n'], part('end')
    for name, short in (b'Content-Transfer-Encoding', 'coding'), (b'Content-Disposition', 'disposition'), (b'Content-Type', 'type'):
        variants = {'coding': CODINGS, 'disposition': NAMES, 'type': TYPES}[short]
        yield short, variants, part_field(name, 2)
        yield f'name of the {short}', [b'content-transfer-encoding' if short == 'coding' else name.upper(), b'%s ', b'%s\t', b' %s', b'\t%s', b'%s\0', b'\0%s', b'X: y\r%s', b'X: y\n%s', b'nocolon\r\n%s', b'\r%s', b'%s\x0b', b'X-%s', b': x\r\n%s', b'From x\r\n%s', b'>From x\r\n%s', b'X: y\x0b%s', b'X: y\x1c%s', b'X: y\x85%s', b' x\r\n%s', b'\x80: x\r\n%s', b'a b: x\r\n%s', b'%s\r\n ', b'X: y\r\n \r\n%s', b'X: y\x0c%s', b'X: y\r\r\n%s'], part_field(name, 0)
        yield f'colon of the {short}', [b':', b' : ', b'\t:', b':\t', b':\r\n ', b':\r\n\t', b'\r\n :', b':\x0b', b'::', b' ', b'=', b':\0', b': \r\n ', b'\0:', b':\n '], part_field(name, 1)
        yield f'end of the {short}', ENDS, part_field(name, 3)
    yield 'base64', list(B64_BODIES), body(b'base64', B64_BODIES)
    yield 'quoted-printable', list(QP_BODIES), body(b'quoted-printable', QP_BODIES)
    yield 'uuencoded', [b'x-uuencode', b'uuencode', b'x-uue', b'uue'], uu
    yield 'subject', [b'=?utf-8?q?' + tk(3) + b'?=', b'=?utf-8?b?dGswM3px?=', b'a\r\n ' + tk(3), b'a\r\n\t' + tk(3), b'\r\n ' + tk(3), b'a\rX-In: ' + tk(3), b'a\0' + tk(3), b'\xff' + tk(3), b'a\n ' + tk(3), b'a\r\n \r\n ' + tk(3), b'a' * 1500 + tk(3)], lambda m, v: m.fields.__setitem__(2, field(b'Subject', v))
    yield 'field', [b'nocolon', b' folded', b'From x', b'>From x', b': x', b'X : y', b'X\0: y', b'\x80: y', b'X Y: z', b'X: ' + b'y' * 3000, b'Cc: ' + tk(4) + b'@c.test', b'CC : ' + tk(4), b'Subject: ' + tk(5), b'Message-ID: <' + tk(4) + b'@a>', b'X-Mailer: ' + tk(4), b'Content-Type: text/plain', b'Content-Transfer-Encoding: base64', b'Content-Transfer-Encoding: quoted-printable', b'Date: ' + tk(4), b'\r', b'\t',
                    b'Received: ' + tk(4), b'(c)X: y', b'X: a\r\n\tb', b'x' * 500 + b': y', b'Content-Type : multipart/mixed; boundary=z', b'Resent-From: a', b'X: a\rContent-Type: multipart/mixed; boundary=z'], lambda m, v: m.fields.insert(2, [v, b'', b'', b'\r\n'])


FIELDS = {'from': 'email.from', 'to': 'email.to', 'subject': 'email.subject', 'cc': 'email.cc', 'date': 'email.date', 'message-id': 'email.message_id', 'x-mailer': 'email.x_mailer', 'received': 'email.received'}
BUFFERS = {'file.data': 'file.data', 'file.name': 'file.name', **{b: b for b in FIELDS.values()}}


def views(place):
    """The views that must show a token which a program read in this place. Text without a name is not a file, and is in no buffer."""
    return {'data': ['file.data'], 'filename': ['file.name']}.get(place, [FIELDS[place[6:]]] if place[6:] in FIELDS else [])


def read(policy):
    def function(data):
        message = email.message_from_bytes(data, policy=policy)
        for name in FIELDS:
            for value in message.get_all(name, []):
                yield f'field {name}', str(value)
        for part in message.walk():
            name = part.get_filename()
            if name is not None:
                yield 'filename', name
            if not part.is_multipart():
                yield ('data' if name else 'text'), part.get_payload(decode=True).decode('latin-1')

    def careful(data):
        try:
            yield from function(data)
        except Exception:  # The library fails on some messages. Data read before counts.
            return
    return careful


def turns(data):
    """The SMTP conversation that sends the message. A dot at the beginning of a line is doubled (RFC 5321 section 4.5.2)."""
    text = re.sub(rb'(^|\r\n)\.', rb'\1..', data)
    text += b'.\r\n' if text.endswith(b'\r\n') else b'\r\n.\r\n'
    return [(1, b'220 b.test ESMTP\r\n'), (0, b'EHLO a.test\r\n'), (1, b'250 b.test\r\n'), (0, b'MAIL FROM:<a@a.test>\r\n'), (1, b'250 ok\r\n'), (0, b'RCPT TO:<b@b.test>\r\n'), (1, b'250 ok\r\n'),
            (0, b'DATA\r\n'), (1, b'354 go on\r\n'), (0, text), (1, b'250 ok\r\n'), (0, b'QUIT\r\n'), (1, b'221 bye\r\n')]


KIND = Kind(
    name='mail', protocol='smtp', port=25, buffers=BUFFERS, fields=None, views=views,
    peers=[Function('email', read(email.policy.default), turns), Function('email-compat32', read(email.policy.compat32), turns)],
    bases=dict(bases()), mutations=changes(mutations()), copy=copy.deepcopy, write=lambda m: m.bytes())
