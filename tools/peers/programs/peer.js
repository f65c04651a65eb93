// Programs of Node.js that read messages, and tell what they read; see peer.py for how.
'use strict';
const http = require('http'), net = require('net'), tls = require('tls'), fs = require('fs'), readline = require('readline');

const say = (report) => fs.writeSync(1, JSON.stringify(report) + '\n');

function serve() {
  const server = http.createServer();
  const answer = (from, request, response) => {
    const seen = [['method', request.method], ['target', request.url]];
    try {
      const url = new URL(request.url, 'http://host');
      seen.push(['path', decodeURIComponent(url.pathname)]);
      for (const value of url.searchParams.values()) seen.push(['query', value]);
    } catch { /* It is no URL that can be decoded. */ }
    const fields = (raw) => {
      for (let i = 0; i < raw.length; i += 2) seen.push(['name', raw[i]], ['field ' + raw[i], raw[i + 1]]);
    };
    fields(request.rawHeaders);
    say({ from, seen });
    if (!response) return;
    let body = '';
    const done = () => {
      seen.length = 0;
      if (body) seen.push(['body', body]);
      fields(request.rawTrailers);
      say({ from, seen });
    };
    request.on('data', (data) => { body += data.toString('latin1'); });
    request.on('end', () => { done(); response.end('ok'); });
    request.on('error', done);
  };
  server.on('request', (request, response) => answer(request.socket.remoteAddress, request, response));
  server.on('connect', (request, socket) => {
    answer(socket.remoteAddress, request);
    socket.end('HTTP/1.1 200 OK\r\n\r\n');
  });
  server.on('checkExpectation', (request, response) => answer(request.socket.remoteAddress, request, response));
  server.on('clientError', (_, socket) => {
    if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
  });
  server.listen({ host: '127.0.0.1', port: 0, backlog: 256 }, () => say({ port: server.address().port }));
}

function serveTls(certificate) {
  const pem = fs.readFileSync(certificate);
  const options = { key: pem, cert: pem, minVersion: 'TLSv1', ciphers: 'ALL:@SECLEVEL=0', ALPNProtocols: ['h2', 'http/1.1'] };
  const server = net.createServer((socket) => {
    const from = socket.remoteAddress;
    const secure = new tls.TLSSocket(socket, {
      ...options, isServer: true,
      SNICallback: (name, done) => { say({ from, seen: [['sni', name]] }); done(null, null); },
    });
    secure.on('error', () => socket.destroy());
  });
  server.listen({ host: '127.0.0.1', port: 0, backlog: 256 }, () => say({ port: server.address().port }));
}

// One after the other, so that `flush` comes behind all reports.
let queue = Promise.resolve();
const latin1 = (data) => Buffer.from(data).toString('latin1');

async function get(number, url) {
  const seen = [];
  let body = '';
  try {
    const response = await fetch(url, { headers: { 'Accept-Encoding': 'gzip, deflate, br' }, signal: AbortSignal.timeout(5000) });
    for (const [name, value] of response.headers) seen.push(['name', name], ['field ' + name, value]);
    for await (const data of response.body ?? []) body += latin1(data);
  } catch { /* What was read until then was read. */ }
  if (body) seen.push(['body', body]);
  say({ from: number, seen });
}

const [what, argument] = process.argv.slice(2);
if (what === 'serve') serve();
if (what === 'tls') serveTls(argument);
process.on('uncaughtException', (e) => process.stderr.write(String(e.stack) + '\n'));
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', (line) => {
  queue = queue.then(() => line.startsWith('flush') ? say({ flush: line.trim() }) : get(...line.trim().split(' ')));
});
lines.on('close', () => queue.then(() => process.exit(0)));
