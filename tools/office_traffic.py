"""The conversations of an office: each function yields a connection's turns. What they say is real (tools/office_texts.py)."""
import base64
import gzip
import hashlib
import json
import os
import quopri
import struct
import urllib.parse
import uuid
import zlib

import held_out

AGENTS = held_out.AGENTS + ('Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Mobile/15E148 Safari/604.1',)
TYPES = {'.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript', '.json': 'application/json', '.xml': 'application/xml', '.md': 'text/markdown',
         '.svg': 'image/svg+xml', '.png': 'image/png', '.gz': 'application/gzip', '.pdf': 'application/pdf', '.py': 'text/x-python', '.php': 'application/x-php', '.sh': 'application/x-sh'}
quote = urllib.parse.quote


def said(value):
    """JSON as browsers write it."""
    return json.dumps(value, ensure_ascii=False, separators=(',', ':')).encode('utf-8', 'replace')


def form(fields):
    return urllib.parse.urlencode(fields, errors='replace').encode()


class Office:
    """Makes conversations with a generator of random numbers and the material."""

    def __init__(self, r, material):
        self.r, self.m = r, material
        self.source = []

    # ---- HTTP

    def take(self, pair):
        """A text of the material; its source is kept for the report."""
        self.source.append(pair[0])
        return pair[1]

    def line(self): return self.take(self.m.line(self.r))

    def passage(self, longest=1500): return self.take(self.m.passage(self.r, longest))

    def program(self, kinds=None):
        """A file's name in a repository, and its text."""
        path, text = self.m.program(self.r, kinds)
        self.source.append(path)
        return '/'.join(path.split('/')[-self.r.randrange(1, 4):]), text

    def ident(self): return str(uuid.UUID(bytes=self.r.randbytes(16), version=4))

    def ask(self, method, target, host, kind=None, body=b'', agent=None, **more):
        """A request. Underscores in names of fields stand for hyphens."""
        fields = {'Host': host, 'User-Agent': agent or self.agent, 'Accept': '*/*'}
        if agent is None: fields |= {'Accept-Language': 'en-GB,en;q=0.9,de;q=0.7', 'Accept-Encoding': 'gzip, deflate', 'Cookie': self.cookie}
        if kind: fields['Content-Type'] = kind
        if body or method in ('POST', 'PUT', 'PATCH'): fields['Content-Length'] = str(len(body))
        fields |= {k.replace('_', '-'): v for k, v in more.items()}
        head = '\r\n'.join([f'{method} {target} HTTP/1.1', *(f'{k}: {v}' for k, v in fields.items())])
        return True, head.encode('utf-8', 'replace') + b'\r\n\r\n' + body

    def answer(self, body=b'', kind='text/html; charset=utf-8', status='200 OK', pack=True):
        coding = ''
        if pack and kind.startswith(('text', 'application/json')) and len(body) > 500 and self.r.random() < 0.5:
            body, coding = gzip.compress(body, 1, mtime=0), 'Content-Encoding: gzip\r\n'
        return False, f'HTTP/1.1 {status}\r\nServer: nginx\r\nContent-Type: {kind}\r\n{coding}Content-Length: {len(body)}\r\n\r\n'.encode() + body

    def ok(self, value=None): return self.answer(said(value or {'ok': True, 'id': self.ident()}), 'application/json')

    def browser(self):
        self.agent = self.r.choice(AGENTS)
        self.cookie = f'session={self.ident()}; theme=dark; _ga=GA1.2.{self.r.randrange(10**9)}.{self.r.randrange(10**9)}; csrftoken={self.r.randbytes(16).hex()}'

    def parts(self, fields, files):
        """A multipart form, as browsers send it."""
        mark = '----WebKitFormBoundary' + base64.b64encode(self.r.randbytes(12)).decode().replace('+', 'A').replace('/', 'B')
        out = b''.join(f'--{mark}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n'.encode() + v.replace('\r', '').replace('\n', '\r\n').encode('utf-8', 'replace') + b'\r\n' for k, v in fields)
        for field, name, data in files:
            kind = TYPES.get(os.path.splitext(name)[1], 'application/octet-stream')
            out += f'--{mark}\r\nContent-Disposition: form-data; name="{field}"; filename="{os.path.basename(name)}"\r\nContent-Type: {kind}\r\n\r\n'.encode() + data + b'\r\n'
        return f'multipart/form-data; boundary={mark}', out + f'--{mark}--\r\n'.encode()

    def updates(self):
        r, host = self.r, self.r.choice(('deb.debian.org', 'security.debian.org', 'archive.ubuntu.com', 'au.download.windowsupdate.com', 'pypi.org', 'registry.npmjs.org', 'static.crates.io'))
        for _ in range(r.randrange(2, 8)):
            data = self.take(self.m.binary(r, 20_000, 1_500_000))
            name, version = r.choice(self.m.packages)
            if 'windows' in host:
                path, at = f'/d/msdownload/update/software/secu/2026/11/windows10.0-kb{r.randrange(10**6, 10**7)}-x64_{r.randbytes(20).hex()}.cab', r.randrange(10**8)
                yield self.ask('GET', path, host, agent='Microsoft-Delivery-Optimization/10.1', Range=f'bytes={at}-{at + len(data) - 1}')
                yield self.answer(data, 'application/octet-stream', '206 Partial Content')
                continue
            agent, path = {'pypi.org': ('pip/24.0 {"ci":null,"cpu":"x86_64","implementation":{"name":"CPython","version":"3.11.2"},"installer":{"name":"pip","version":"24.0"},"python":"3.11.2"}',
                           f'/packages/{r.randbytes(1).hex()}/{r.randbytes(30).hex()}/{name}-{quote(version)}.tar.gz'),
                           'registry.npmjs.org': ('npm/10.2.4 node/v20.11.0 linux x64 workspaces/false', r.choice((f'/@types%2f{name}', f'/{name}/-/{name}-{quote(version)}.tgz', '/-/npm/v1/security/advisories/bulk'))),
                           'static.crates.io': ('cargo/1.80.0', f'/crates/{name}/{name}-1.{len(version)}.0.crate')}.get(host, ('Debian APT-HTTP/1.3 (2.6.1)', f'/debian/pool/main/{name[0]}/{name}/{name}_{quote(version, safe="+~:")}_amd64.deb'))
            yield self.ask('GET', path, host, agent=agent)
            yield self.answer(data, 'application/octet-stream')
        yield self.ask('GET', '/debian/dists/bookworm-updates/InRelease', host, agent='Debian APT-HTTP/1.3 (2.6.1)', If_Modified_Since='Sat, 28 Nov 2026 20:11:09 GMT')
        yield self.answer(b'', 'text/plain', '304 Not Modified')

    def backup(self):
        r, host, bucket = self.r, self.r.choice(('backup.example.com', 's3.eu-central-1.example.com:9000', 'dav.example.com')), f'host-{self.r.randrange(40)}'
        for n in range(1, r.randrange(3, 9)):
            if r.random() < 0.5:
                data, name = self.take(self.m.binary(r, 100_000, 2_000_000)), f'srv/files/part-{n}.tar.zst'
            else:
                name, data = self.program() if r.random() < 0.6 else (f'docs/{n}.txt', self.take(self.m.document(r)))
                data = data.encode('utf-8', 'replace')
            if 'dav' in host:
                yield self.ask('PROPFIND', f'/remote.php/dav/files/anna/{quote(os.path.dirname(name))}/', host, 'application/xml', b'<?xml version="1.0"?><d:propfind xmlns:d="DAV:" xmlns:oc="http://owncloud.org/ns">'
                               b'<d:prop><d:getlastmodified/><d:getetag/><oc:permissions/></d:prop></d:propfind>', 'Mozilla/5.0 (Linux) mirall/3.12.2 (Nextcloud, debian-6.1.0 ClientArchitecture: x86_64)', Depth='1')
                yield self.answer(b'<?xml version="1.0"?><d:multistatus xmlns:d="DAV:"></d:multistatus>', 'application/xml', '207 Multi-Status')
                target, agent = f'/remote.php/dav/files/anna/{quote(name)}', 'Mozilla/5.0 (Linux) mirall/3.12.2 (Nextcloud, debian-6.1.0 ClientArchitecture: x86_64)'
            else:
                target, agent = f'/{bucket}/{quote(name)}?partNumber={n}&uploadId={self.ident()}', 'rclone/v1.65.2'
            yield self.ask('PUT', target, host, 'application/octet-stream', data, agent, Authorization=f'AWS4-HMAC-SHA256 Credential=AKIA{r.randbytes(8).hex().upper()}/20261129/eu-central-1/s3/aws4_request, '
                           f'SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={r.randbytes(32).hex()}', X_Amz_Date='20261129T081500Z', X_Amz_Content_Sha256=hashlib.sha256(data).hexdigest(), Expect='100-continue')
            yield self.answer(b'', 'text/plain', '201 Created')

    def upload(self):
        r, host = self.r, self.r.choice(('files.example.com', 'intranet.example.com', 'tickets.example.com'))
        for _ in range(r.randrange(1, 4)):
            files = []
            for _ in range(r.randrange(1, 5)):
                kind = r.randrange(5)
                if kind == 0: files.append(('files[]', f'scan{r.randrange(99)}.pdf', self.take(self.m.binary(r, 60_000, 2_000_000))))
                elif kind == 1: files.append(('files[]', f'protocol-{r.randrange(99)}.log', '\n'.join(self.m.log(r) for _ in range(r.randrange(20, 3000))).encode('utf-8', 'replace')))
                elif kind == 2: files.append(('files[]', f'notes{r.randrange(99)}.txt', self.take(self.m.document(r)).encode('utf-8', 'replace')))
                elif kind == 3: files.append(('files[]', 'archive.zip', b'PK\3\4' + zlib.compress(self.take(self.m.binary(r, 60_000, 900_000)), 1)))
                else:
                    # Uploads of scripts to a web server are stopped on purpose; sources of other kinds must pass.
                    name, text = self.program(['.py', '.rs', '.c', '.h', '.sql', '.css', '.json', '.yaml', '.yml', '.toml', '.xml', '.go', '.lua', '.java', '.conf', '.diff'])
                    files.append(('files[]', name, text.encode('utf-8', 'replace')))
            kind, body = self.parts([('folder', '/Projects/2026'), ('comment', self.passage(600)), ('title', self.line())], files)
            yield self.ask('POST', '/upload?replace=0', host, kind, body, Origin=f'http://{host}', X_Requested_With='XMLHttpRequest')
            yield self.ok()
        data = self.take(self.m.binary(r, 100_000, 1_500_000))
        yield self.ask('PATCH', f'/tus/{r.randbytes(16).hex()}', host, 'application/offset+octet-stream', data, Upload_Offset=str(r.randrange(10**7)), Tus_Resumable='1.0.0')
        yield self.answer(b'', 'text/plain', '204 No Content')

    def pages(self):
        r, host = self.r, self.r.choice(('docs.example.com', 'www.example.org', 'news.example.net', 'wiki.example.com'))
        for _ in range(r.randrange(3, 10)):
            yield 0.3
            kind = r.randrange(4)
            if kind == 0 and self.m.pages:
                path, text = self.m.any(r, self.m.pages)
                yield self.ask('GET', quote(path), host, Referer=f'http://{host}/')
                yield self.answer(text.encode('utf-8', 'replace'))
            elif kind == 1:
                words = self.line()
                yield self.ask('GET', f'/search?{urllib.parse.urlencode({"q": words, "lang": "en", "page": r.randrange(1, 5)})}', host, Referer=f'http://{host}/search?q={quote(words[:60])}')
                yield self.answer(f'<html><title>{words}</title><p>{self.passage()}</p></html>'.encode('utf-8', 'replace'))
            elif kind == 2:
                name, text = self.program(['.js', '.css', '.json', '.xml', '.php', '.sh'])
                yield self.ask('GET', '/static/' + quote(name) + f'?v={r.randrange(99)}', host, If_None_Match=f'W/"{r.randbytes(8).hex()}"')
                yield self.answer(text.encode('utf-8', 'replace'), TYPES.get(os.path.splitext(name)[1], 'text/plain'))
            else:
                yield self.ask('GET', f'/img/{r.randbytes(6).hex()}.png?w=800&fit=crop', host)
                yield self.answer(self.take(self.m.binary(r, 10_000, 200_000)), 'image/png')

    def forum(self):
        """A forum, mostly on SQL, a wiki and a tracker: what people write, with code in it."""
        r, host = self.r, self.r.choice(('forum.example.com', 'community.example.org', 'wiki.example.com', 'tickets.example.com'))
        for _ in range(r.randrange(2, 8)):
            yield 1.0
            kind = r.randrange(6)
            if kind <= 2:
                text = self.passage(800) + '\n\n```sql\n' + self.take(self.m.statement(r)) + '\n```\n\n' + self.passage(500)
            elif kind == 3: text = self.passage(3000)
            elif kind == 4: text = f'{self.passage(700)}\n\n```\n{self.take(self.m.snippet(r))}\n```\n{self.line()}'
            else: text = f'{self.passage(700)}\n\n' + '\n'.join('    ' + l for l in self.take(self.m.snippet(r)).split('\n')) + f'\n\n{self.passage(300)}'
            title, way = self.line(), r.randrange(4)
            if way == 0:
                yield self.ask('POST', '/posts', host, 'application/x-www-form-urlencoded; charset=UTF-8', form({'raw': text, 'title': title, 'unlist_topic': 'false', 'category': 7, 'typing_duration_msecs': 41200, 'archetype': 'regular'}), Origin=f'http://{host}')
            elif way == 1:
                kind, body = self.parts([('wpStarttime', '20261129101500'), ('wpTextbox1', text), ('wpSummary', title), ('wpSave', 'Save changes'), ('wpEditToken', r.randbytes(20).hex() + '+\\')], [])
                yield self.ask('POST', f'/index.php?title={quote(title[:40].replace(" ", "_"))}&action=submit', host, kind, body)
            elif way == 2:
                yield self.ask('POST', '/posting.php?mode=reply&f=12&t=4711', host, 'application/x-www-form-urlencoded', form({'subject': f'Re: {title}', 'message': text.replace('\n', '\r\n'), 'post': 'Submit', 'form_token': r.randbytes(20).hex()}))
            else:
                yield self.ask('POST', '/api/v1/issues', host, 'application/json', said({'title': title, 'body': text, 'labels': ['bug', 'sql'], 'assignee': None}))
            yield self.answer(f'<html><h1>{title}</h1><pre>{text}</pre></html>'.encode('utf-8', 'replace'))
            if r.random() < 0.4:
                yield self.ask('GET', f'/search?{urllib.parse.urlencode({"q": self.line()})}', host)
                yield self.answer(self.passage().encode('utf-8', 'replace'))

    def chat(self):
        """Chats and interfaces with JSON."""
        r, host = self.r, self.r.choice(('chat.example.com', 'api.example.com', 'metrics.example.com', 'search.example.com'))
        for _ in range(r.randrange(5, 20)):
            yield 0.5
            kind = r.randrange(9)
            if kind <= 2: target, value = '/api/v4/posts', {'channel_id': r.randbytes(13).hex(), 'message': self.passage(500) if r.random() < 0.7 else f'{self.line()}\n```\n{self.take(self.m.snippet(r))}\n```', 'props': {}, 'file_ids': []}
            elif kind == 3: target, value = '/graphql', {'operationName': 'Search', 'variables': {'text': self.line(), 'first': 20, 'after': None}, 'query': 'query Search($text: String!, $first: Int, $after: String) {\n  search(text: $text, first: $first, after: $after) {\n    edges { node { id title author { name } } }\n    pageInfo { endCursor hasNextPage }\n  }\n}'}
            elif kind == 4: target, value = '/docs/_search', {'query': {'bool': {'must': [{'match': {'body': self.line()}}], 'filter': [{'range': {'@timestamp': {'gte': 'now-1d/d', 'lt': 'now'}}}, {'terms': {'status': ['open', 'new']}}]}}, 'size': 50, 'sort': [{'_score': 'desc'}], 'aggs': {'by': {'terms': {'field': 'author.keyword'}}}}
            elif kind == 5: target, value = '/api/store/', {'event_id': r.randbytes(16).hex(), 'platform': 'python', 'exception': {'values': [{'type': 'ValueError', 'value': self.line(), 'stacktrace': {'frames': [{'filename': p, 'lineno': r.randrange(900), 'context_line': t.split('\n')[0], 'post_context': t.split('\n')[1:5]} for p, t in [self.m.snippet(r, ['.py'])]]}}]}, 'breadcrumbs': [{'category': 'query', 'message': ' '.join(self.take(self.m.statement(r)).split())[:500]}]}
            elif kind == 6: target, value = '/v1/traces', {'resourceSpans': [{'resource': {'attributes': [{'key': 'service.name', 'value': {'stringValue': 'shop'}}]}, 'scopeSpans': [{'spans': [{'traceId': r.randbytes(16).hex(), 'name': 'SELECT shop.orders', 'attributes': [{'key': 'db.statement', 'value': {'stringValue': ' '.join(self.take(self.m.statement(r)).split())[:800]}}, {'key': 'http.target', 'value': {'stringValue': f'/items?id={r.randrange(99)}&sort=-date'}}]}]}]}]}
            elif kind == 7: target, value = '/hooks/' + r.randbytes(9).hex(), {'text': f'*{self.line()}*', 'attachments': [{'color': '#36a64f', 'title': self.line(), 'text': self.passage(400), 'fields': [{'title': 'Priority', 'value': 'High', 'short': True}]}]}
            else: target, value = '/api/contents/analysis.ipynb', {'type': 'notebook', 'content': {'cells': [{'cell_type': 'markdown', 'source': self.passage(500), 'metadata': {}}] + [{'cell_type': 'code', 'execution_count': n, 'source': self.take(self.m.snippet(r, ['.py', '.sql', '.r'])), 'outputs': [], 'metadata': {}} for n in range(r.randrange(1, 6))], 'nbformat': 4, 'nbformat_minor': 5, 'metadata': {'kernelspec': {'name': 'python3'}}}}
            yield self.ask('PUT' if 'ipynb' in target else 'POST', target, host, 'application/json', said(value), X_Requested_With='XMLHttpRequest')
            yield self.ok()
        yield self.ask('GET', '/api/v1/query_range?' + urllib.parse.urlencode({'query': r.choice(('sum(rate(http_requests_total{job="api",code=~"5.."}[5m])) by (instance)', 'histogram_quantile(0.99, sum by (le) (rate(latency_seconds_bucket[5m])))', 'node_filesystem_avail_bytes{mountpoint!~"/(sys|proc|dev).*"} / 1024^3')), 'start': 1764410000, 'end': 1764413600, 'step': 15}), host)
        yield self.ok()
        yield self.ask('GET', '/rest/api/2/search?' + urllib.parse.urlencode({'jql': r.choice(('project = OPS AND status in ("To Do", "In Progress") AND assignee = currentUser() ORDER BY created DESC', 'text ~ "login fails" AND updated >= -7d', 'sprint in openSprints() AND issuetype != Epic')), 'maxResults': 50}), host)
        yield self.ok()

    def repository(self):
        """A place for code: edits in a browser and by its interface, pushes, downloads."""
        r, host = self.r, self.r.choice(('git.example.com', 'code.example.org'))
        for _ in range(r.randrange(2, 6)):
            yield 0.5
            name, text = self.program()
            text, way, summary = text[:60_000], r.randrange(6), self.line()
            if way == 0:
                yield self.ask('POST', f'/team/app/_edit/main/{quote(name)}', host, 'application/x-www-form-urlencoded', form({'_csrf': r.randbytes(24).hex(), 'last_commit': r.randbytes(20).hex(), 'tree_path': name, 'content': text.replace('\n', '\r\n'), 'commit_summary': summary, 'commit_message': '', 'commit_choice': 'direct'}))
            elif way == 1:
                yield self.ask('POST', '/api/v4/projects/42/repository/commits', host, 'application/json', said({'branch': 'main', 'commit_message': summary, 'actions': [{'action': 'update', 'file_path': name, 'content': text}]}), 'python-gitlab/4.4.0', PRIVATE_TOKEN='glpat-' + r.randbytes(10).hex())
            elif way == 2:
                yield self.ask('PUT', f'/repos/team/app/contents/{quote(name)}', host, 'application/json', said({'message': summary, 'content': base64.b64encode(text.encode('utf-8', 'replace')).decode(), 'sha': r.randbytes(20).hex(), 'branch': 'main'}), 'octokit-rest.js/20.0.2')
            elif way == 3:
                yield self.ask('POST', '/team/app/pulls/17/comments', host, 'application/json', said({'path': name, 'line': r.randrange(300), 'side': 'RIGHT', 'body': self.passage(600) + '\n```suggestion\n' + '\n'.join(text.split('\n')[:r.randrange(1, 6)]) + '\n```'}))
            elif way == 4:
                yield self.ask('GET', f'/team/app/raw/branch/main/{quote(name)}', host)
                yield self.answer(text.encode('utf-8', 'replace'), 'text/plain; charset=utf-8')
                continue
            else:
                old, new = r.randbytes(20).hex(), r.randbytes(20).hex()
                pack = b'PACK\0\0\0\2' + struct.pack('>I', 3) + b''.join(bytes([0xb0 | len(t) & 15, min(127, len(t) >> 4)]) + zlib.compress(t.encode('utf-8', 'replace')) for t in (text, summary, self.program()[1]))
                line = f'{old} {new} refs/heads/main\0 report-status side-band-64k agent=git/2.39.2'.encode()
                yield self.ask('GET', '/team/app.git/info/refs?service=git-receive-pack', host, agent='git/2.39.2', Git_Protocol='version=2')
                yield self.answer(b'001f# service=git-receive-pack\n0000' + f'{old} refs/heads/main\n'.encode(), 'application/x-git-receive-pack-advertisement')
                yield self.ask('POST', '/team/app.git/git-receive-pack', host, 'application/x-git-receive-pack-request', f'{len(line) + 4:04x}'.encode() + line + b'0000' + pack + hashlib.sha1(pack).digest(), 'git/2.39.2')
            yield self.ok()

    def logs(self):
        """Logs that collectors and people send in forms and documents."""
        r, host = self.r, self.r.choice(('logs.example.com', 'tickets.example.com', 'paste.example.org'))
        for _ in range(r.randrange(2, 6)):
            yield 0.5
            lines, way = [self.m.log(r) for _ in range(r.randrange(4, 400))], r.randrange(6)
            if way == 0: yield self.ask('POST', '/tickets/new', host, 'application/x-www-form-urlencoded', form({'subject': self.line(), 'description': self.passage(500) + '\n\n' + '\n'.join(lines[:60]), 'priority': 3}))
            elif way == 1: yield self.ask('POST', '/_bulk', host, 'application/x-ndjson', b''.join(said({'create': {'_index': 'logs-2026.11.29'}}) + b'\n' + said({'@timestamp': '2026-11-29T10:00:00.000Z', 'message': l, 'host': {'name': 'web-03'}, 'log': {'file': {'path': '/var/log/syslog'}}}) + b'\n' for l in lines), 'Elastic-filebeat/8.12.0 (linux; amd64)')
            elif way == 2: yield self.ask('POST', '/loki/api/v1/push', host, 'application/json', said({'streams': [{'stream': {'job': 'varlogs', 'host': 'db1'}, 'values': [[str(1764410000 * 10**9 + n), l] for n, l in enumerate(lines)]}]}), 'promtail/2.9.4')
            elif way == 3: yield self.ask('POST', '/services/collector/event', host, 'application/json', b''.join(said({'time': 1764410000.1, 'host': 'gw', 'sourcetype': 'syslog', 'event': l}) for l in lines), 'Fluent-Bit', Authorization=f'Splunk {self.ident()}')
            elif way == 4: yield self.ask('POST', '/insert/jsonline?_stream_fields=host', host, 'text/plain', '\n'.join(lines).encode('utf-8', 'replace'), 'vector/0.36')
            else:
                kind, body = self.parts([('title', self.line()), ('text', '\n'.join(lines[:100])), ('expire', '1week')], [])
                yield self.ask('POST', '/create', host, kind, body)
            yield self.ok()

    def recorded(self):
        """Requests that were recorded as ordinary, and the held-out posts."""
        for _ in range(self.r.randrange(2, 10)):
            name, raw = self.r.choice(self.m.requests)
            self.source.append(name)
            yield True, raw
            yield self.answer(self.passage(3000).encode('utf-8', 'replace'))

    def newsletter_page(self):
        """A page on security, with attacks as examples: a server's answer."""
        r, host = self.r, 'blog.example.net'
        for _ in range(r.randrange(1, 4)):
            yield self.ask('GET', f'/advisories/2026/{r.randrange(999)}?utm_source=newsletter&utm_medium=email', host, Referer='http://webmail.example.com/')
            yield self.answer(self.newsletter().encode('utf-8', 'replace'))

    def newsletter(self):
        return '\n\n'.join(f'<h2>{self.line()}</h2><p>{self.passage(900)}</p><pre>{self.take(self.r.choice(self.m.attacks))}</pre>' for _ in range(self.r.randrange(3, 20)))

    # ---- HTTP/2

    def http2(self):
        """One request of another kind in HTTP/2 with prior knowledge."""
        while True:
            turns = (getattr(self, self.r.choice(('forum', 'chat', 'logs', 'repository', 'pages', 'recorded')))())
            asked = [t for t in turns if isinstance(t, tuple) and t[0] and len(t[1]) < 60_000]
            raw = held_out.as_http2(self.r.choice(asked)[1]) if asked else None
            if raw: break
        yield True, raw
        body = self.passage(3000).encode('utf-8', 'replace')
        yield False, held_out.frame(4, 0, 0) + held_out.frame(4, 1, 0) + held_out.frame(1, 4, 1, b'\x88') + held_out.frame(0, 1, 1, body)
        yield True, held_out.frame(4, 1, 0) + held_out.frame(7, 0, 0, bytes(8))

    # ---- Mail and files

    def mail(self):
        r = self.r
        yield False, b'220 mail.example.com ESMTP Postfix\r\n'
        for ask, answer in (('EHLO mx.example.org', '250-mail.example.com\r\n250-SIZE 52428800\r\n250-8BITMIME\r\n250 CHUNKING'), (f'MAIL FROM:<news{r.randrange(99)}@example.org> SIZE=90000', '250 2.1.0 Ok'),
                            (f'RCPT TO:<anna{r.randrange(99)}@example.com>', '250 2.1.5 Ok'), ('DATA', '354 End data with <CR><LF>.<CR><LF>')):
            yield True, ask.encode() + b'\r\n'
            yield False, answer.encode() + b'\r\n'
        text = self.newsletter() if r.random() < 0.3 else '\n\n'.join(self.passage(2000) for _ in range(r.randrange(1, 8)))
        if r.random() < 0.3: text += '\n\n' + self.take(self.m.snippet(r))
        out = [f'From: {self.line()[:20]} <news@example.org>', 'To: anna@example.com', f'Subject: =?UTF-8?B?{base64.b64encode(self.line()[:45].encode()).decode()}?=', f'Message-ID: <{self.ident()}@example.org>',
               'Date: Sun, 29 Nov 2026 10:00:00 +0000', 'MIME-Version: 1.0', 'Content-Type: multipart/mixed; boundary="=_b1"', '', '--=_b1', 'Content-Type: text/html; charset=utf-8', 'Content-Transfer-Encoding: quoted-printable', '',
               quopri.encodestring(text.encode('utf-8', 'replace')).decode()]
        for _ in range(r.randrange(0, 4)):
            if r.random() < 0.5: name, data = f'scan{r.randrange(99)}.pdf', self.take(self.m.binary(r, 10_000, 900_000))
            else:
                name, data = self.program()
                data = data.encode('utf-8', 'replace')
            out += ['--=_b1', f'Content-Type: application/octet-stream; name="{os.path.basename(name)}"', 'Content-Transfer-Encoding: base64', f'Content-Disposition: attachment; filename="{os.path.basename(name)}"', '', base64.encodebytes(data).decode()]
        data = '\n'.join([*out, '--=_b1--', '']).replace('\r\n', '\n').replace('\n.', '\n..').replace('\n', '\r\n').encode('utf-8', 'replace')
        yield True, data + b'.\r\n'
        yield False, b'250 2.0.0 Ok: queued as 4F2A91\r\n'
        yield True, b'QUIT\r\n'
        yield False, b'221 2.0.0 Bye\r\n'

    def ftp(self, port):
        """The control connection, and what its data connection carries, as two lists."""
        r = self.r
        name, up = f'report-{r.randrange(999)}.dat', r.random() < 0.5
        data = self.take(self.m.binary(r, 50_000, 2_000_000)) if r.random() < 0.5 else self.program()[1].encode('utf-8', 'replace')
        turns = [(False, b'220 (vsFTPd 3.0.3)\r\n')]
        for ask, answer in (('USER anna', '331 Please specify the password.'), ('PASS summer-2026', '230 Login successful.'), ('TYPE I', '200 Switching to Binary mode.'), ('CWD /pub/reports', '250 Directory successfully changed.'),
                            ('EPSV', f'229 Entering Extended Passive Mode (|||{port}|)'), (('STOR ' if up else 'RETR ') + name, '150 Ok to send data.')):
            turns += [(True, ask.encode() + b'\r\n'), (False, answer.encode() + b'\r\n')]
        return turns + [3.0, (False, b'226 Transfer complete.\r\n'), (True, b'QUIT\r\n'), (False, b'221 Goodbye.\r\n')], [(up, data)]

    def share(self):
        """SMB2: a session that writes and reads files."""
        r, number, session = self.r, 0, self.r.randbytes(8)
        def message(command, body, answer=False, status=0, tree=1):
            head = b'\xfeSMB' + struct.pack('<HHIHHIIQII', 64, 1, status, command, 32, int(answer), 0, number, 0xfeff, tree) + session + bytes(16)
            return struct.pack('>I', 64 + len(body)) + head + body
        def both(command, ask, answer, status=0):
            nonlocal number
            yield True, message(command, ask)
            yield False, message(command, answer, True, status)
            number += 1
        ntlm = b'NTLMSSP\0'
        yield from both(0, struct.pack('<HHHHI', 36, 2, 1, 0, 0x7f) + r.randbytes(16) + bytes(8) + struct.pack('<HH', 0x210, 0x302),
                        struct.pack('<HHHH', 65, 1, 0x302, 0) + r.randbytes(16) + struct.pack('<IIIIQQHHI', 0x2f, 1 << 23, 1 << 23, 1 << 23, 134_000_000_000_000_000, 0, 128, 0, 0))
        first, second = ntlm + struct.pack('<II', 1, 0xe2088297) + bytes(24), ntlm + struct.pack('<IHHII', 2, 0, 0, 56, 0xe2898215) + r.randbytes(8) + bytes(24)
        names = [n.encode('utf-16-le') for n in ('OFFICE', f'user{r.randrange(99)}', f'PC-{r.randrange(999)}')]
        at, fields, tail = 88, b'', b''
        for part in (bytes(24), r.randbytes(60), *names, r.randbytes(16)):
            fields += struct.pack('<HHI', len(part), len(part), at)
            tail, at = tail + part, at + len(part)
        third = ntlm + struct.pack('<I', 3) + fields + struct.pack('<I', 0xe2888215) + bytes(24) + tail
        for ask, answer, status in ((first, second, 0xc0000016), (third, b'', 0)):
            yield from both(1, struct.pack('<HBBIIHHQ', 25, 0, 1, 1, 0, 88, len(ask), 0) + ask, struct.pack('<HHHH', 9, 0, 72, len(answer)) + answer, status)
        path = '\\\\files.example.com\\projects'.encode('utf-16-le')
        yield from both(3, struct.pack('<HHHH', 9, 0, 72, len(path)) + path, struct.pack('<HBBIII', 16, 1, 0, 0, 0, 0x1f01ff))
        for _ in range(r.randrange(2, 8)):
            name, text = self.program() if r.random() < 0.6 else (f'Reports\\scan{r.randrange(999)}.pdf', None)
            data = text.encode('utf-8', 'replace') if text is not None else self.take(self.m.binary(r, 60_000, 1_500_000))
            wide, handle, writes = name.replace('/', '\\').encode('utf-16-le'), r.randbytes(16), r.random() < 0.5
            yield from both(5, struct.pack('<HBBIQQIIIIIHHII', 57, 0, 0, 2, 0, 0, 0x12019f, 0x80, 7, 3 if writes else 1, 0x40, 120, len(wide), 0, 0) + wide,
                            struct.pack('<HBBIQQQQQQII', 89, 0, 0, 1, *[134_000_000_000_000_000] * 4, len(data), len(data), 0x80, 0) + handle + bytes(8))
            for at in range(0, len(data), 65536):
                piece = data[at:at + 65536]
                if writes: yield from both(9, struct.pack('<HHIQ', 49, 112, len(piece), at) + handle + bytes(16) + piece, struct.pack('<HHIIHH', 17, 0, len(piece), 0, 0, 0))
                else: yield from both(8, struct.pack('<HBBIQ', 49, 80, 0, 65536, at) + handle + bytes(17), struct.pack('<HBBIII', 17, 80, 0, len(piece), 0, 0) + piece)
            yield from both(6, struct.pack('<HHI', 24, 0, 0) + handle, struct.pack('<HHI', 60, 0, 0) + bytes(52))

    # ---- What has no text

    def tls(self):
        r, record = self.r, lambda kind, data: struct.pack('>BHH', kind, 0x303, len(data)) + data
        message = lambda kind, data: bytes([kind]) + len(data).to_bytes(3, 'big') + data
        host = r.choice(('mail', 'calendar', 'drive', 'www', 'login', 'cdn')).encode() + b'.example.com'
        more = struct.pack('>HHHBH', 0, len(host) + 5, len(host) + 3, 0, len(host)) + host + bytes.fromhex('000a00080006001d00170018000b00020100000d0006000404010403002b0003020304003300260024001d0020') + r.randbytes(32)
        yield True, record(22, message(1, struct.pack('>H', 0x303) + r.randbytes(32) + b' ' + r.randbytes(32) + bytes.fromhex('0006130113021303') + b'\1\0' + struct.pack('>H', len(more)) + more))
        tail = bytes.fromhex('002b00020304003300240 01d0020'.replace(' ', '')) + r.randbytes(32)
        yield False, record(22, message(2, struct.pack('>H', 0x303) + r.randbytes(32) + b' ' + bytes(32) + bytes.fromhex('130100') + struct.pack('>H', len(tail)) + tail)) + record(20, b'\1') + record(23, r.randbytes(2600))
        yield True, record(20, b'\1') + record(23, r.randbytes(53))
        for _ in range(r.randrange(3, 20)):
            yield True, record(23, r.randbytes(r.randrange(80, 3000)))
            yield False, b''.join(record(23, r.randbytes(r.randrange(300, 16000))) for _ in range(r.randrange(1, 12)))

    def call(self, wire, a, b):
        """A video call in UDP: STUN, then packets of both sides."""
        r = self.r
        for n in range(2):
            ident = r.randbytes(12)
            wire.udp(a, b, struct.pack('>HHI', 1, 8, 0x2112a442) + ident + struct.pack('>HHI', 0x8028, 4, r.randrange(1 << 32)))
            yield 0.01
            wire.udp(b, a, struct.pack('>HHI', 0x101, 12, 0x2112a442) + ident + struct.pack('>HHBBHI', 0x20, 8, 0, 1, 0x2113, 0x2b12a443))
            yield 0.01
        noise = r.randbytes(1 << 16)
        for n in range(r.randrange(300, 2500)):
            for x, y, ssrc in ((a, b, 1), (b, a, 2)):
                size = r.randrange(500, 1180) if n % 5 else r.randrange(60, 160)
                at = r.randrange(60000)
                wire.udp(x, y, struct.pack('>BBHII', 0x80, 96 if n % 5 else 111, n & 0xffff, n * 3000 & 0xffffffff, ssrc) + noise[at:at + size])
            yield 0.006

    def dns(self, wire, a, b):
        """Look-ups: names of pages, of content networks, of reputation services, of mail, reversed addresses."""
        r, name = self.r, lambda host: b''.join(bytes([len(p)]) + p.encode() for p in host.split('.')) + b'\0'
        for n in range(r.randrange(5, 40)):
            word = r.choice(self.m.packages)[0].replace('+', '').replace('.', '-')[:50]
            host, kind = r.choice(((f'{word}.example.org', 1), (f'www.{word}.example.net', 28), (f'd{r.randbytes(7).hex()}.cloudfront.net', 1), (f'{r.randbytes(16).hex()}.avqs.example.com', 1),
                                   (f'{r.randrange(1, 255)}.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(256)}.in-addr.arpa', 12), (f'selector1._domainkey.{word}.example.org', 16), (f'{word}.example.org', 15),
                                   (f'_ldap._tcp.dc._msdcs.{word}.example.com', 33), (f'r{r.randrange(9)}---sn-{r.randbytes(5).hex()}.video.example.com', 65), (f'{r.randrange(255)}.2.0.192.zen.example.org', 1)))
            ident = r.randrange(65536)
            wire.udp(a, b, struct.pack('>HHHHHH', ident, 0x100, 1, 0, 0, 0) + name(host) + struct.pack('>HH', kind, 1))
            yield 0.02
            data = {1: bytes([192, 0, 2, n]), 28: bytes.fromhex('20010db8') + bytes(12), 16: bytes([200]) + b'v=DKIM1; k=rsa; p=' + base64.b64encode(r.randbytes(136)), 12: name(f'host{n}.example.net'), 15: b'\0\x0a' + name('mx.example.org')}.get(kind)
            answer = b'\xc0\x0c' + struct.pack('>HHIH', kind, 1, 300, len(data)) + data if data else b''
            wire.udp(b, a, struct.pack('>HHHHHH', ident, 0x8180 if data else 0x8183, 1, int(bool(data)), 0, 0) + name(host) + struct.pack('>HH', kind, 1) + answer)
            yield r.random() * 2
        wire.udp((a[0], 123), (b[0], 123), bytes.fromhex('230006ec') + bytes(44))
        yield 0.01
        wire.udp((b[0], 123), (a[0], 123), bytes.fromhex('240206ec') + bytes(44))
        # The syslog of a web server repeats what attackers asked for.
        yield 0.01
        wire.udp((a[0], 514), (b[0], 514), f'<134>Nov 29 10:00:00 web-03 nginx: {self.m.log(r)}'.encode('utf-8', 'replace')[:1400])
        wire.udp((a[0], 514), (b[0], 514), f'<134>Nov 29 10:00:01 web-03 nginx: 198.51.100.7 "GET /?q={quote(r.choice(self.m.attacks)[1])} HTTP/1.1" 403'.encode('utf-8', 'replace')[:1400])
