//! Lines and syslog messages over TCP, TLS and UDP.
//!
//! TCP acknowledges bytes to the kernel, not lines to this process, so lines count as sent once the kernel has them. If a
//! peer dies, the lines in its socket buffers and in this host's are lost. The kernel limits these buffers to a few hundred
//! KiB. If no line may be lost, use a peer that acknowledges lines: Kafka or Redis.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Outcome, PATIENCE, StreamFraming, StreamSettings, TlsSettings, Transport};
use crate::time::Clock;

/// Trusted certificates on Debian and its derivatives, and on Fedora and its derivatives.
const SYSTEM_CA: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Opens a TCP connection with timeouts for every operation.
pub(super) fn tcp(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for a in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&a, PATIENCE) {
            Ok(s) => {
                s.set_nodelay(true)?;
                s.set_read_timeout(Some(PATIENCE))?;
                s.set_write_timeout(Some(PATIENCE))?;
                return Ok(s);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Datagrams(UdpSocket),
}

pub(super) struct Stream {
    settings: StreamSettings,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    wire: Option<Wire>,
    /// The constant parts of a syslog message: priority and version, and the text after the time.
    header: Option<(String, String)>,
    clock: Clock,
}

impl Stream {
    /// Reads certificates. `connect` opens the connection later.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit, or an invalid name.
    pub(super) fn new(settings: StreamSettings) -> io::Result<Stream> {
        let tls = settings.tls.as_ref().map(|t| client(t, &settings.address)).transpose()?;
        let header = match &settings.framing {
            StreamFraming::Lines => None,
            StreamFraming::Syslog { identity, facility, level } => {
                let priority = u32::from(*facility as u8) << 3 | *level as u32;
                // RFC 5424 section 6: printable ASCII without spaces, and `-` for an empty value.
                let printable = |text: &str, most: usize| {
                    let t: String = text.chars().filter(char::is_ascii_graphic).take(most).collect();
                    if t.is_empty() { "-".to_owned() } else { t }
                };
                let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
                let rest =
                    format!("{} {} {} eve - ", printable(&host, 255), printable(identity, 48), std::process::id());
                Some((format!("<{priority}>1 "), rest))
            }
        };
        Ok(Stream { settings, tls, wire: None, header, clock: Clock::utc() })
    }

    fn open(&self) -> io::Result<Wire> {
        let address = &self.settings.address;
        if self.settings.datagrams {
            let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
            for a in address.to_socket_addrs()? {
                let any = if a.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                match UdpSocket::bind(any).and_then(|s| s.connect(a).map(|()| s)) {
                    Ok(s) => return Ok(Wire::Datagrams(s)),
                    Err(e) => last = e,
                }
            }
            return Err(last);
        }
        let socket = tcp(address)?;
        let Some((config, name)) = &self.tls else { return Ok(Wire::Plain(socket)) };
        let connection = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        let mut tls = StreamOwned::new(connection, socket);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(Wire::Tls(Box::new(tls)))
    }

    /// Frames a line for the peer.
    fn frame(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some((priority, rest)) = &self.header else { return out.extend_from_slice(line) };
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let mut message = Vec::with_capacity(text.len() + 128);
        message.extend_from_slice(priority.as_bytes());
        message.extend_from_slice(now(&mut self.clock).as_bytes());
        message.push(b' ');
        message.extend_from_slice(rest.as_bytes());
        message.extend_from_slice(text);
        if !self.settings.datagrams {
            out.extend_from_slice(format!("{} ", message.len()).as_bytes());
        }
        out.extend_from_slice(&message);
    }

    /// Sends each line as a datagram. A message too long for one is refused for good; the result has the last such
    /// error.
    fn datagrams(&mut self, batch: &[u8]) -> Outcome {
        let (mut refused, mut why) = (0, None);
        let mut sent = 0;
        let mut message = Vec::new();
        for line in batch.split_inclusive(|&b| b == b'\n') {
            message.clear();
            self.frame(line, &mut message);
            let Some(Wire::Datagrams(socket)) = &self.wire else { break };
            match socket.send(&message) {
                Ok(_) => {}
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                    refused += 1;
                    why = Some(format!("{} bytes are too many for a datagram", message.len()));
                }
                Err(e) => {
                    self.wire = None;
                    return Outcome::Failed {
                        rest: batch.get(sent..).unwrap_or_default().to_vec(),
                        why: e.to_string(),
                    };
                }
            }
            sent += line.len();
        }
        Outcome::Done { refused, why }
    }
}

impl Transport for Stream {
    fn connect(&mut self) -> Result<(), String> {
        self.wire = None;
        self.wire = Some(self.open().map_err(|e| format!("cannot connect: {e}"))?);
        Ok(())
    }

    fn send(&mut self, batch: &[u8]) -> Outcome {
        if self.settings.datagrams {
            return self.datagrams(batch);
        }
        // Maps line ends in the framed bytes to those in the batch, so that whole lines are sent again after a failure.
        let mut framed = Vec::with_capacity(batch.len());
        let mut ends = Vec::new();
        let mut read = 0;
        for line in batch.split_inclusive(|&b| b == b'\n') {
            self.frame(line, &mut framed);
            read += line.len();
            ends.push((framed.len(), read));
        }
        let result = match &mut self.wire {
            Some(Wire::Plain(s)) => alive(s).map_err(|e| (0, e)).and_then(|()| write(s, &framed)),
            Some(Wire::Tls(s)) => tls_alive(s).map_err(|e| (0, e)).and_then(|()| write(s, &framed)),
            _ => Err((0, io::ErrorKind::NotConnected.into())),
        };
        match result {
            Ok(()) => Outcome::Done { refused: 0, why: None },
            Err((n, e)) => {
                self.wire = None;
                let done = ends.iter().rev().find(|(end, _)| *end <= n).map_or(0, |(_, read)| *read);
                let why = match e.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        format!("took nothing for {} s", PATIENCE.as_secs())
                    }
                    _ => format!("the connection failed: {e}"),
                };
                Outcome::Failed { rest: batch.get(done..).unwrap_or_default().to_vec(), why }
            }
        }
    }
}

/// Fails if the peer closed the connection: writing to it would lose lines without an error.
fn alive(s: &TcpStream) -> io::Result<()> {
    s.set_nonblocking(true)?;
    let mut byte = [0; 512];
    let mut socket = s;
    let result = loop {
        match socket.read(&mut byte) {
            Ok(0) => break Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            // A log server has nothing to send, so its data is ignored.
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    s.set_nonblocking(false)?;
    result
}

/// As [`alive`], for TLS. It also processes the server's TLS messages (tickets, key updates).
fn tls_alive(s: &mut StreamOwned<ClientConnection, TcpStream>) -> io::Result<()> {
    s.sock.set_nonblocking(true)?;
    let mut byte = [0; 512];
    let result = loop {
        match s.read(&mut byte) {
            Ok(0) => break Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    s.sock.set_nonblocking(false)?;
    result
}

/// Writes everything. On failure, returns how many bytes were written, and the error.
fn write(out: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut n = 0;
    while let Some(rest) = bytes.get(n..).filter(|r| !r.is_empty()) {
        match out.write(rest) {
            Ok(0) => return Err((n, io::ErrorKind::WriteZero.into())),
            Ok(k) => n += k,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err((n, e)),
        }
    }
    out.flush().map_err(|e| (n, e))
}

/// The current time in the format of RFC 5424 section 6.2.3.
fn now(clock: &mut Clock) -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut text = Vec::new();
    clock.iso(&mut text, margay_packet::Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)));
    // RFC 3339 does not allow ISO 8601's short form of the offset.
    format!("{}Z", String::from_utf8_lossy(&text).trim_end_matches("+0000"))
}

/// TLS 1.2 and 1.3, the server's certificate checked.
fn client(s: &TlsSettings, address: &str) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut roots = RootCertStore::empty();
    let system = || SYSTEM_CA.iter().map(std::path::PathBuf::from).find(|p| p.exists());
    let Some(ca) = s.ca.clone().or_else(system) else {
        return Err(bad("no certificates to trust: name a file of them with tls.ca".into()));
    };
    let read = |path: &std::path::Path| -> io::Result<Vec<CertificateDer<'static>>> {
        let list = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let list = list.map_err(|e| bad(format!("{}: {e}", path.display())))?;
        if list.is_empty() { Err(bad(format!("{} has no certificate", path.display()))) } else { Ok(list) }
    };
    let (taken, _) = roots.add_parsable_certificates(read(&ca)?);
    if taken == 0 {
        return Err(bad(format!("{} has no certificate that can be trusted", ca.display())));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let config = match &s.identity {
        Some((certificate, key)) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|e| bad(format!("{}: {e}", key.display())))?;
            let chain = read(certificate)?;
            builder.with_client_auth_cert(chain, own).map_err(|e| bad(format!("{}: {e}", certificate.display())))?
        }
        None => builder.with_no_client_auth(),
    };
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = s.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(name.clone()).map_err(|_| bad(format!("\"{name}\" is not a server name")))?;
    Ok((Arc::new(config), name))
}
