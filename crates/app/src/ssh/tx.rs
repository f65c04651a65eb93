//! The only transaction of an SSH flow, its buffers for rules, and its log.

use margay_flow::Direction::{self, ToClient, ToServer};
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::script::Answer;
use crate::tx::{BufferDef, Extra, Form, Found, LogFor, TxBase};

use super::banner::{Banner, is_compatible_with_2};
use super::kex::Hassh;
use super::{BANNER_DONE, FINISHED};

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

impl Said {
    pub(super) fn set_banner(&mut self, banner: Banner<'_>) {
        (self.proto, self.software) = (banner.proto.to_vec(), banner.software.to_vec());
    }
}

/// The protocol's part of a flow's transaction.
#[derive(Debug, Default)]
pub(super) struct SshTx {
    pub(super) said: [Said; 2],
    /// A fingerprint may still arrive.
    pub(super) awaits_hassh: bool,
}

impl Content for SshTx {
    fn held(&self) -> u64 {
        let said = |s: &Said| {
            let hassh = s.hassh.as_ref().map_or(0, |h| h.string.capacity());
            s.proto.capacity() + s.software.capacity() + hassh
        };
        self.said.iter().map(said).sum::<usize>() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        if index > 0 {
            return None;
        }
        let said = &self.said[dir.index()];
        let data: &[u8] = match (id, dir) {
            (PROTO, _) => &said.proto,
            (SOFTWARE, _) => &said.software,
            (HASSH, ToServer) | (HASSH_SERVER, ToClient) => &said.hassh.as_ref()?.hash,
            (HASSH_STRING, ToServer) | (HASSH_SERVER_STRING, ToClient) => &said.hassh.as_ref()?.string,
            _ => return None,
        };
        (!data.is_empty()).then(|| Found::whole(data))
    }

    fn ask(&self, _base: &TxBase, protocol: &str, what: &str, _arg: Option<&[u8]>) -> Option<Answer> {
        let shown = |b: &[u8]| Answer::bytes(Some(b).filter(|b| !b.is_empty()));
        match (protocol, what) {
            ("ssh", "get") => Some(Answer::Bool(true)),
            ("ssh", "client_proto") => Some(shown(&self.said[0].proto)),
            ("ssh", "server_proto") => Some(shown(&self.said[1].proto)),
            ("ssh", "client_software") => Some(shown(&self.said[0].software)),
            ("ssh", "server_software") => Some(shown(&self.said[1].software)),
            ("ssh", "client_hassh" | "server_hassh" | "client_hassh_string" | "server_hassh_string") => {
                let dir = if what.starts_with("client") { ToServer } else { ToClient };
                let hassh = self.said[dir.index()].hassh.as_ref();
                let part = |h: &Hassh| if what.ends_with("string") { h.string.clone() } else { h.hash.to_vec() };
                Some(hassh.map(part).filter(|b| !b.is_empty()).map_or(Answer::Nothing, Answer::Bytes))
            }
            _ => None,
        }
    }

    fn number(&self, _id: u8, dir: Direction, index: usize) -> Option<u64> {
        let proto = &self.said[dir.index()].proto;
        (index == 0 && !proto.is_empty()).then(|| u64::from(is_compatible_with_2(proto)))
    }

    /// Counted once both banners are complete, and both fingerprints if they are computed.
    fn is_counted(&self) -> bool {
        false
    }

    fn is_loggable(&self, base: &TxBase, complete: bool) -> bool {
        let known = |(said, progress): (&Said, &u8)| {
            let waits = self.awaits_hassh && said.hassh.is_none();
            *progress >= if waits { FINISHED } else { BANNER_DONE }
        };
        complete || self.said.iter().zip(&base.progress).all(known)
    }

    /// Without a banner there is nothing to log.
    fn records(&self, _options: &AppLogOptions) -> usize {
        usize::from(self.said.iter().any(|s| !s.proto.is_empty()))
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
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
