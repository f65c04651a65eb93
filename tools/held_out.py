"""Requests for which the defence was not written: defence/held-out/*.txt, and recorded ones.

A file of attacks (attacks-*.txt) has sections, `[class]` or `[class place …]`, with a value on each line. Without places, a value goes into
one of the usual places for values. The value itself determines which one, so that the place stays when others are added. Places:

    query form json multipart xml cookie     a value of that kind
    path                                     the target as it is
    header [Name]                            a header field
    body [type]                              the whole body
    raw                                      the whole request, with lengths of its own

A file of ordinary values (ordinary-*.txt) has values of one or more lines, separated by a line `%%`. Each is sent as a field of a form, of
JSON and of a multipart body; a short one also in a query. A file of requests (requests-*.txt) has sections like a file of attacks, of the
class `ordinary`. In all files ␍ ␊ ␀ ␉ stand for control characters. Lines with a leading # before the first section are comments.
"""
import base64
import gzip
import json
import os
import re
import urllib.parse
import zlib

VALUES = ('query', 'form', 'json', 'multipart', 'xml', 'cookie', 'query', 'form', 'json')
HEADERS = ('User-Agent', 'X-Forwarded-For', 'Referer', 'X-Api-Version')
NAMES = ('id', 'q', 'name', 'file', 'search', 'comment', 'url', 'page', 'user', 'data', 'text', 'title', 'filter', 'input')
AGENTS = ('Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36',
          'Mozilla/5.0 (X11; Linux x86_64; rv:126.0) Gecko/20100101 Firefox/126.0',
          'Mozilla/5.0 (Macintosh; Intel Mac OS X 14_4) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15')
CONTROLS = str.maketrans('␍␊␀␉', '\r\n\0\t')
#: Longest ordinary value that is sent in a query.
QUERY = 1500


def request(place, detail, value):
    """A browser's request with the value in this place."""
    data = value.encode('utf-8', 'surrogateescape')
    if place == 'raw':
        return data
    n = zlib.crc32(data)
    name = NAMES[n // 7 % len(NAMES)]
    method, target, kind, body = 'POST', f'/app/{("view", "items", "search", "api/v1/save")[n % 4]}', None, b''
    fields = {'Host': 'www.example.com', 'User-Agent': AGENTS[n % len(AGENTS)], 'Accept': '*/*', 'Accept-Language': 'en-GB,en;q=0.8'}
    quoted = urllib.parse.quote_from_bytes(data, safe='')
    if place == 'query':
        method, target = 'GET', f'{target}?{name}={quoted}&lang=en'
    elif place == 'path':
        method, target = 'GET', urllib.parse.quote_from_bytes(data, safe="/%.;:@!$&'()*+,=~?")
    elif place == 'cookie':
        method, fields['Cookie'] = 'GET', f'session=9f2c1e; {name}={quoted}'
    elif place == 'header':
        method = 'GET'
        fields[detail or HEADERS[n % len(HEADERS)]] = value
    elif place == 'form':
        kind, body = 'application/x-www-form-urlencoded', f'{name}={quoted}&submit=1'.encode()
    elif place == 'json':
        kind, body = 'application/json', json.dumps({'id': n % 1000, name: data.decode('utf-8', 'replace'), 'tags': ['a', 'b']}).encode()
    elif place == 'xml':
        text = data.translate(None, bytes(set(range(32)) - {9, 10, 13})).decode('utf-8', 'replace')
        text = text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
        kind, body = 'application/xml', f'<?xml version="1.0"?><order><{name}>{text}</{name}></order>'.encode()
    elif place == 'multipart':
        kind = 'multipart/form-data; boundary=----b7c1'
        body = b'------b7c1\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n------b7c1--\r\n' % (name.encode(), data)
    elif place == 'body':
        kind, body = detail, data
    else:
        raise ValueError(f'{place} is no place')
    if body:
        fields |= {'Content-Type': kind, 'Content-Length': str(len(body))}
    lines = [f'{method} {target} HTTP/1.1', *(f'{k}: {v}' for k, v in fields.items())]
    return '\r\n'.join(lines).encode('utf-8', 'surrogateescape') + b'\r\n\r\n' + body


def attacks(text):
    """The class, place, detail and value of each attack in a file's text."""
    kind, places, detail = None, VALUES, None
    for line in text.split('\n'):
        if m := re.fullmatch(r'\[([a-z]+)(?: ([a-z]+)(?: (\S+))?)?\]', line):
            kind, detail = m[1], m[3]
            places = (m[2],) if m[2] else VALUES
        elif line and kind:
            value = line.translate(CONTROLS)
            yield kind, places[zlib.crc32(line.encode('utf-8', 'surrogateescape')) % len(places)], detail, value


def ordinary(text):
    """The same for the ordinary values in a file's text; each value occurs in several places."""
    for value in re.sub(r'\A(?:#.*\n)+', '', text).split('\n%%\n'):
        value = value.strip('\n').translate(CONTROLS)
        for place in ('form', 'json', 'multipart', *(['query'] if len(value) <= QUERY else [])):
            yield 'ordinary', place, None, value


def requests(path):
    """The class, description and request of each entry of a file: one of defence/held-out, or JSON lines as in ../shared/attacks."""
    name = os.path.basename(path)
    if name.endswith(('.jsonl', '.jsonl.gz')):
        with (gzip.open if name.endswith('.gz') else open)(path, 'rt') as f:
            for row in map(json.loads, f):
                raw = base64.b64decode(row['request'])
                yield 'ordinary' if row['label'] == 'benign' else row['class'], row['id'], raw
        return
    with open(path, encoding='utf-8', errors='surrogateescape') as f:
        text = f.read()
    for kind, place, detail, value in (ordinary if name.startswith('ordinary') else attacks)(text):
        yield kind, f'{place}: {value}', request(place, detail, value)


def write(path, cases):
    """Writes requests and their classes in the format that `margay lab attacks` reads."""
    with open(path, 'w') as f:
        for n, (kind, data) in enumerate(cases):
            label = 'benign' if kind == 'ordinary' else 'attack'
            f.write(json.dumps({'id': str(n), 'label': label, 'class': kind, 'request': base64.b64encode(data).decode()}) + '\n')


def frame(kind, flags, stream, body=b''):
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(body).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + body


def string(text):
    """An HPACK string without Huffman coding (RFC 7541, section 5.2)."""
    n = len(text)
    if n < 127:
        return bytes([n]) + text
    out, n = bytearray([127]), n - 127
    while n >= 128:
        out.append(n % 128 | 128)
        n //= 128
    return bytes(out) + bytes([n]) + text


def as_http2(raw):
    """The same request in HTTP/2 with prior knowledge; None if HTTP/2 cannot express it."""
    head, _, body = raw.partition(b'\r\n\r\n')
    first, *lines = head.split(b'\r\n')
    method, _, rest = first.partition(b' ')
    target, _, version = rest.rpartition(b' ')
    fields = [line.partition(b': ')[::2] for line in lines]
    if not version.startswith(b'HTTP/1') or any(b'\n' in line for line in lines):
        return None
    host = next((v for k, v in fields if k.lower() == b'host'), b'www.example.com')
    block = [(b':method', method), (b':scheme', b'http'), (b':path', target), (b':authority', host)]
    block += [(k.lower(), v) for k, v in fields if k.lower() not in (b'host', b'connection', b'transfer-encoding')]
    packed = b''.join(b'\0' + string(k) + string(v) for k, v in block)
    out = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0)
    for at in range(0, max(len(packed), 1), 16384):
        last = at + 16384 >= len(packed)
        out += frame(1 if at == 0 else 9, (4 if last else 0) | (0 if body or at else 1), 1, packed[at:at + 16384])
    for at in range(0, len(body), 16384):
        out += frame(0, int(at + 16384 >= len(body)), 1, body[at:at + 16384])
    return out
