//! The only transaction of an SSH flow, its buffers for rules, and its log.

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::script::Answer;
use crate::tx::{BufferDef, Extra, Form, Found, LogFor, Transaction, TxBase};

use super::banner::{Banner, is_compatible_with_2};
use super::kex::Hassh;
use super::{BANNER_DONE, Event, FINISHED};

/// The limit of a banner part in logs; `[truncated]` follows a longer one.
const SHOWN: usize = 256;

const fn buffer(name: &'static str, id: u8, dirs: [bool; 2]) -> BufferDef {
    let [client, server] = dirs;
    // Fingerprints arrive while the state is still that of the banner.
    let progress = [if client { Some(BANNER_DONE) } else { None }, if server { Some(BANNER_DONE) } else { None }];
    BufferDef { name, id, progress, ..BufferDef::PLAIN }
}

/// A buffer of a HASSH fingerprint, which is computed only if somebody asks for it.
const fn hassh(name: &'static str, id: u8, dirs: [bool; 2], form: Form) -> BufferDef {
    BufferDef { form, extra: Some(Extra::Hassh), ..buffer(name, id, dirs) }
}

/// The form of the digest `called`.
const fn digest(module: &'static str, called: &'static str) -> Form {
    Form::Md5 { module, called, strict: false }
}

const PROTO: u8 = 0;
const SOFTWARE: u8 = 1;
const HASSH: u8 = 2;
const HASSH_SERVER: u8 = 3;
const HASSH_STRING: u8 = 4;
const HASSH_SERVER_STRING: u8 = 5;

/// Buffers for rules.
pub(super) static BUFFERS: &[BufferDef] = &[
    BufferDef { also: &["ssh_proto"], ..buffer("ssh.proto", PROTO, [true, true]) },
    BufferDef { also: &["ssh_software"], ..buffer("ssh.software", SOFTWARE, [true, true]) },
    hassh("ssh.hassh", HASSH, [true, false], digest("detect-ssh-hassh", "ssh.hassh")),
    hassh("ssh.hassh.server", HASSH_SERVER, [false, true], digest("detect-ssh-hassh-server", "ssh.hassh.server")),
    hassh("ssh.hassh.string", HASSH_STRING, [true, false], Form::Any),
    hassh("ssh.hassh.server.string", HASSH_SERVER_STRING, [false, true], Form::Any),
];

/// The data of one side.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Protocol version; empty if there was no banner.
    proto: Vec<u8>,
    software: Vec<u8>,
    pub(super) hassh: Option<Hassh>,
}

/// A flow's transaction.
#[derive(Debug, Default)]
pub struct SshTx {
    pub(super) base: TxBase,
    pub(super) said: [Said; 2],
    /// A fingerprint may still arrive.
    pub(super) awaits_hassh: bool,
}

impl SshTx {
    pub(super) const fn of(&mut self, dir: Direction) -> &mut Said {
        let [client, server] = &mut self.said;
        match dir {
            ToServer => client,
            ToClient => server,
        }
    }

    const fn said(&self, dir: Direction) -> &Said {
        let [client, server] = &self.said;
        match dir {
            ToServer => client,
            ToClient => server,
        }
    }

    pub(super) fn set_banner(&mut self, dir: Direction, banner: Banner<'_>) {
        let said = self.of(dir);
        (said.proto, said.software) = (banner.proto.to_vec(), banner.software.to_vec());
    }

    /// Adds an event of the connection, for rules of both directions.
    pub(super) fn event(&mut self, event: Event) {
        self.base.events.add(event as u8);
        self.base.touch(ToServer);
        self.base.touch(ToClient);
    }

    /// Completes a direction.
    pub(super) fn finish(&mut self, dir: Direction) {
        self.base.advance(dir, FINISHED);
    }
}

impl Transaction for SshTx {
    fn base(&self) -> &TxBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut TxBase {
        &mut self.base
    }

    fn held(&self) -> u64 {
        let said = |s: &Said| {
            let hassh = s.hassh.as_ref().map_or(0, |h| h.string.capacity());
            s.proto.capacity() + s.software.capacity() + hassh
        };
        self.base.held() + self.said.iter().map(said).sum::<usize>() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        if index > 0 {
            return None;
        }
        let said = self.said(dir);
        let data: &[u8] = match (id, dir) {
            (PROTO, _) => &said.proto,
            (SOFTWARE, _) => &said.software,
            (HASSH, ToServer) | (HASSH_SERVER, ToClient) => &said.hassh.as_ref()?.hash,
            (HASSH_STRING, ToServer) | (HASSH_SERVER_STRING, ToClient) => &said.hassh.as_ref()?.string,
            _ => return None,
        };
        (!data.is_empty()).then(|| Found::whole(data))
    }

    fn ask(&self, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        let shown = |b: &[u8]| Answer::bytes(Some(b).filter(|b| !b.is_empty()));
        match (protocol, what) {
            ("ssh", "get") => Some(Answer::Bool(true)),
            ("ssh", "client_proto") => Some(shown(&self.said(ToServer).proto)),
            ("ssh", "server_proto") => Some(shown(&self.said(ToClient).proto)),
            ("ssh", "client_software") => Some(shown(&self.said(ToServer).software)),
            ("ssh", "server_software") => Some(shown(&self.said(ToClient).software)),
            ("ssh", "client_hassh" | "server_hassh" | "client_hassh_string" | "server_hassh_string") => {
                let dir = if what.starts_with("client") { ToServer } else { ToClient };
                let hassh = self.said(dir).hassh.as_ref();
                let part = |h: &Hassh| if what.ends_with("string") { h.string.clone() } else { h.hash.to_vec() };
                Some(hassh.map(part).filter(|b| !b.is_empty()).map_or(Answer::Nothing, Answer::Bytes))
            }
            _ => None,
        }
    }

    fn number(&self, _id: u8, dir: Direction, index: usize) -> Option<u64> {
        let proto = &self.said(dir).proto;
        (index == 0 && !proto.is_empty()).then(|| u64::from(is_compatible_with_2(proto)))
    }

    /// Counted once both banners are complete, and both fingerprints if they are computed.
    fn is_counted(&self) -> bool {
        false
    }

    fn is_loggable(&self, complete: bool) -> bool {
        let known = |dir: Direction| {
            let progress = self.base.progress.get(dir.index()).copied().unwrap_or(0);
            let waits = self.awaits_hassh && self.said(dir).hassh.is_none();
            progress >= if waits { FINISHED } else { BANNER_DONE }
        };
        complete || (known(ToServer) && known(ToClient))
    }

    /// Without a banner there is nothing to log.
    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(self.said.iter().any(|s| !s.proto.is_empty()))
    }

    fn inspected(&mut self, _dir: Direction) {}

    fn log(&self, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        if self.said.iter().all(|s| s.proto.is_empty()) {
            return;
        }
        json.object("ssh");
        for (key, said) in ["client", "server"].iter().zip(&self.said).filter(|(_, s)| !s.proto.is_empty()) {
            json.object(key);
            text(json, "proto_version", &said.proto);
            if !said.software.is_empty() {
                text(json, "software_version", &said.software);
            }
            if let Some(h) = &said.hassh {
                json.object("hassh");
                json.bytes("hash", &h.hash);
                json.bytes("string", &h.string);
                json.end_object();
            }
            json.end_object();
        }
        json.end_object();
    }
}

fn text(json: &mut Json, key: &'static str, value: &[u8]) {
    match value.get(..SHOWN) {
        Some(first) if value.len() > SHOWN => json.bytes(key, &[first, b"[truncated]"].concat()),
        _ => json.bytes(key, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (i, b) in BUFFERS.iter().enumerate() {
            assert_eq!(usize::from(b.id), i, "{}", b.name);
        }
    }
}
