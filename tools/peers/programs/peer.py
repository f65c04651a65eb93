"""Python programs that read messages, and report what they read on standard output, a JSON object on each line.

    peer.py serve | tls CERTIFICATE       prints {"port": N}; reports are {"from": ADDRESS, "seen": [[PLACE, TEXT], ...]}
    peer.py fetch zlib | fetch urllib3    reads lines `NUMBER URL`; reports are {"from": NUMBER, "seen": ...}

A line that begins with `flush` is returned as {"flush": LINE}, after the reports of all finished messages.
"""
import concurrent.futures
import json
import socketserver
import ssl
import sys
import threading

lock = threading.Lock()


def say(report):
    with lock:
        sys.stdout.write(json.dumps(report) + '\n')
        sys.stdout.flush()


def latin(data):
    return data.decode('latin-1') if isinstance(data, bytes) else str(data)


def serve():
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Handler(SimpleHTTPRequestHandler):
        protocol_version = 'HTTP/1.1'
        timeout = 5

        def __getattr__(self, name):
            if name.startswith('do_'):
                return self.answer
            raise AttributeError(name)

        def answer(self):
            seen = [['method', self.command], ['target', self.path]]
            try:
                seen.append(['path', self.translate_path(self.path)])
            except (UnicodeError, ValueError):
                pass
            for name, value in self.headers.items():
                seen += [['name', name], [f'field {name}', str(value)]]
            self.report(seen)
            # As xmlrpc.server does it, which is the server of the standard library that reads bodies.
            try:
                length = int(self.headers.get('Content-Length', 0))
            except ValueError:
                length = 0
            if length > 0:
                self.report([['body', latin(self.rfile.read(length))]])
            self.send_response(200)
            self.send_header('Content-Length', '2')
            self.end_headers()
            self.wfile.write(b'ok' if self.command != 'HEAD' else b'')

        do_GET = do_HEAD = answer

        def report(self, seen):
            say({'from': self.client_address[0], 'seen': seen})

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

        def handle_error(self, *_):
            pass

    server = Server(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say({'port': server.server_address[1]})


def tls(certificate):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            peer = self.client_address[0]

            def named(_, name, __):
                if name:
                    say({'from': peer, 'seen': [['sni', name]]})
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.set_ciphers('ALL:@SECLEVEL=0')
            context.load_cert_chain(certificate)
            context.sni_callback = named
            context.set_alpn_protocols(["h2", "http/1.1"])
            self.request.settimeout(5)
            try:
                context.wrap_socket(self.request, server_side=True)
            except OSError:
                pass

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 256
        daemon_threads = True

        def handle_error(self, *_):
            pass

    server = Server(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say({'port': server.server_address[1]})


def by_zlib(url):
    """The standard library: http.client reads the response, and zlib decodes the coding that it names."""
    import http.client
    import urllib.parse
    import zlib
    at = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=2)
    connection.request('GET', at.path, headers={'Accept-Encoding': 'gzip, deflate'})
    response = connection.getresponse()
    yield from fields(response.headers.items())
    try:
        body = response.read()
    except http.client.IncompleteRead as e:
        body = e.partial
    if (response.headers.get('Content-Encoding') or '').strip().lower() in ('gzip', 'x-gzip', 'deflate'):
        # Accepts gzip and zlib by their headers. Decodes piece by piece, as a program that reads a stream does.
        undo = zlib.decompressobj(zlib.MAX_WBITS | 32)
        for at in range(0, len(body), 64):
            yield 'body', undo.decompress(body[at:at + 64])
    else:
        yield 'body', body


def by_urllib3(url):
    import urllib3
    pool = urllib3.PoolManager(retries=False, timeout=2)
    response = pool.request('GET', url, preload_content=False,
                            headers=urllib3.make_headers(accept_encoding='gzip, deflate, br'))
    yield from fields(response.headers.items())
    for data in response.stream(1 << 16):
        yield 'body', data


def fields(items):
    for name, value in items:
        yield 'name', name
        yield f'field {name}', value


def fetch(number, url, read):
    seen = {}
    try:
        for place, text in read(url):
            seen[place] = seen.get(place, '') + latin(text)
    except Exception as e:  # Data read before the error counts.
        print(f'{number}: {e!r}', file=sys.stderr)
    say({'from': number, 'seen': list(seen.items())})


def main():
    what = sys.argv[1]
    if what == 'serve':
        serve()
    elif what == 'tls':
        tls(sys.argv[2])
    read = {'zlib': by_zlib, 'urllib3': by_urllib3}[sys.argv[2]] if what == 'fetch' else None
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = []
        for line in sys.stdin:
            line = line.strip()
            if line.startswith('flush'):
                concurrent.futures.wait(jobs)
                jobs = []
                say({'flush': line})
            else:
                jobs.append(pool.submit(fetch, *line.split(), read))


main()
