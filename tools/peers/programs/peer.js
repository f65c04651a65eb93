// Node.js programs that read messages, and report what they read; peer.py has the format.
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
      for (const [i, text] of request.rawTrailers.entries()) if (i % 2) seen.push(['trailer', text]);
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

const latin1 = (data) => Buffer.from(data).toString('latin1');

async function read(url, seen, stop) {
  let body = '';
  try {
    const response = await fetch(url, { headers: { 'Accept-Encoding': 'gzip, deflate, br' }, signal: stop });
    for (const [name, value] of response.headers) seen.push(['name', name], ['field ' + name, value]);
    for await (const data of response.body ?? []) body += latin1(data);
  } catch { /* What was read until then was read. */ }
  if (body) seen.push(['body', body]);
}

// Fetches several at a time; `flush` waits for all earlier fetches.
const waiting = [], running = new Set();
async function get(number, url) {
  const seen = [], stop = new AbortController();
  const late = new Promise((done) => setTimeout(() => { stop.abort(); setTimeout(done, 100); }, 1000));
  await Promise.race([read(url, seen, stop.signal), late]);
  say({ from: number, seen });
}
async function next() {
  while (waiting.length && running.size < 16) {
    if (waiting[0].startsWith('flush')) {
      if (running.size) return;
      say({ flush: waiting.shift() });
      continue;
    }
    const job = get(...waiting.shift().split(' '));
    running.add(job);
    job.then(() => { running.delete(job); next(); });
  }
}

const [what, argument] = process.argv.slice(2);
if (what === 'serve') serve();
if (what === 'tls') serveTls(argument);
process.on('uncaughtException', (e) => process.stderr.write(String(e.stack) + '\n'));
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', (line) => { waiting.push(line.trim()); next(); });
lines.on('close', () => process.exit(0));
setInterval(() => {}, 1000);  // Keeps the process alive while nothing else is pending.
