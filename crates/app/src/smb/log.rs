//! The `smb` member of events.

use margay_json::Json;

use super::auth::{Kerberos, Ntlmssp};
use super::header::Status;
use super::names;
use super::tx::{Create, FileId, Negotiation, Set, SetInfo, Setup, SmbTx, TreeConnect, What};
use crate::tx::TxBase;

/// Appends `"smb":{...}`.
pub(super) fn log(base: &TxBase, tx: &SmbTx, json: &mut Json) {
    json.object("smb");
    json.uint("id", base.id + 1);
    json.str("dialect", if tx.dialect.is_empty() { "unknown" } else { &tx.dialect });
    match tx.version {
        1 => json.str("command", names::smb1_command(tx.command as u8)),
        _ => json.str("command", names::smb2_command(tx.command)),
    }
    match tx.status {
        Some(Status::Nt(code)) => {
            match names::nt_status(code) {
                Some(name) => json.str("status", name),
                None => json.str("status", &format!("UNKNOWN_{code:08X}")),
            }
            json.str("status_code", &format!("{code:#x}"));
        }
        Some(Status::Dos { class: 0, .. }) => {
            json.str("status", "STATUS_SUCCESS");
            json.str("status_code", "0x0");
        }
        Some(Status::Dos { class, code }) => {
            match names::server_error(code).filter(|_| class == 2) {
                Some(name) => json.str("status", name),
                None => json.str("status", &code.to_string()),
            }
            json.str("status_code", &format!("{code:#06x}"));
        }
        None => {}
    }
    json.uint("session_id", tx.session);
    json.uint("tree_id", u64::from(tx.tree));
    match &tx.what {
        What::Generic | What::Odd => {}
        What::Negotiate(n) => negotiation(json, n),
        What::SessionSetup(s) => setup(json, s),
        What::TreeConnect(t) => tree_connect(json, t),
        What::Create(c) => create(json, c),
        What::File(f) => {
            json.bytes("filename", &f.name);
            json.bytes("share", &f.share);
            json.str("fuid", &fuid(Some(f.id)));
        }
        What::SetInfo(s) => set_info(json, s),
        What::Ioctl(code) => match names::fsctl(*code) {
            Some(name) => json.str("function", name),
            None => json.str("function", &format!("{code:#010x}")),
        },
        What::Dcerpc(call) => {
            json.object("dcerpc");
            call.log(json);
            json.end_object();
        }
    }
    json.end_object();
}

/// Formats a GUID. Its integers are little endian, including the two halves of the last eight bytes.
fn guid(b: &[u8; 16]) -> String {
    let [a, c, d, e, f] = [
        u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        u32::from(u16::from_le_bytes([b[4], b[5]])),
        u32::from(u16::from_le_bytes([b[6], b[7]])),
        u32::from(u16::from_le_bytes([b[8], b[9]])),
        u32::from(u16::from_le_bytes([b[10], b[11]])),
    ];
    let g = u32::from_le_bytes([b[12], b[13], b[14], b[15]]);
    format!("{a:08x}-{c:04x}-{d:04x}-{e:04x}-{f:04x}{g:08x}")
}

/// Formats a file identifier.
fn fuid(id: Option<FileId>) -> String {
    match id {
        None => String::new(),
        Some(FileId::Smb1(fid)) => format!("{fid:04x}"),
        Some(FileId::Smb2(bytes)) => guid(&bytes),
    }
}

fn negotiation(json: &mut Json, n: &Negotiation) {
    if !n.dialects.is_empty() {
        json.array("client_dialects");
        n.dialects.iter().for_each(|d| json.item_bytes(d));
        json.end_array();
    }
    if let Some(g) = &n.client_guid {
        json.str("client_guid", &guid(g));
    }
    // Without an answer, or one with an identifier, Suricata shows an empty one.
    json.str("server_guid", &n.server_guid.as_ref().map_or_else(Default::default, guid));
    if let Some((read, write)) = n.sizes {
        json.uint("max_read_size", u64::from(read));
        json.uint("max_write_size", u64::from(write));
    }
}

fn setup(json: &mut Json, s: &Setup) {
    if let Some(Ntlmssp { domain, user, host, version, .. }) = &s.ntlmssp {
        json.object("ntlmssp");
        json.bytes("domain", domain);
        json.bytes("user", user);
        json.bytes("host", host);
        if let Some((major, minor, build, revision)) = version {
            json.str("version", &format!("{major}.{minor} build {build} rev {revision}"));
        }
        json.end_object();
    }
    if let Some(Kerberos { realm, snames }) = &s.kerberos {
        json.object("kerberos");
        json.bytes("realm", realm);
        json.array("snames");
        snames.iter().for_each(|n| json.item_bytes(n));
        json.end_array();
        json.end_object();
    }
    for (key, native) in ["request", "response"].into_iter().zip(&s.native) {
        if let Some((os, lm)) = native {
            json.object(key);
            json.bytes("native_os", os);
            json.bytes("native_lm", lm);
            json.end_object();
        }
    }
}

fn tree_connect(json: &mut Json, t: &TreeConnect) {
    json.bytes(if t.pipe { "named_pipe" } else { "share" }, &t.share);
    if let Some(kind) = t.share_type {
        json.str("share_type", names::share_type(kind));
    }
    if let Some((request, response)) = &t.service {
        json.object("service");
        json.bytes("request", request);
        if !response.is_empty() {
            json.bytes("response", response);
        }
        json.end_object();
    }
}

fn create(json: &mut Json, c: &Create) {
    let name: &[u8] = if c.name.is_empty() { b"<share_root>" } else { &c.name };
    json.bytes(if c.directory { "directory" } else { "filename" }, name);
    json.str("disposition", names::disposition(c.disposition));
    json.str("access", access(c.delete));
    for (key, time) in ["created", "accessed", "modified", "changed"].into_iter().zip(c.times) {
        json.uint(key, time);
    }
    json.uint("size", c.size);
    json.str("fuid", &fuid(c.id));
}

const fn access(delete: bool) -> &'static str {
    if delete { "delete on close" } else { "normal" }
}

fn set_info(json: &mut Json, s: &SetInfo) {
    match (&s.what, s.subcommand) {
        (Set::Rename(to), subcommand) => {
            if !s.level.is_empty() {
                json.object("set_info");
                match subcommand {
                    Some(name) => json.str("subcmd", name),
                    None => json.str("class", s.class),
                }
                json.str("info_level", s.level);
                json.end_object();
            }
            json.object("rename");
            json.bytes("from", &s.name);
            json.bytes("to", to);
            json.end_object();
        }
        (Set::Delete(delete), subcommand) => {
            json.bytes("filename", &s.name);
            json.str("access", access(*delete));
            if let Some(name) = subcommand {
                json.str("subcmd", name);
                json.str("level_of_interest", s.level);
            }
        }
    }
    // Suricata shows an empty one of a file that is renamed by its name.
    if s.id.is_some() || matches!(s.what, Set::Rename(_)) {
        json.str("fuid", &fuid(s.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_files() {
        let mut id = [0; 16];
        (id[0], id[8], id[12], id[14]) = (0x4d, 9, 0xff, 0xff);
        assert_eq!(fuid(Some(FileId::Smb2(id))), "0000004d-0000-0000-0009-000000ff00ff");
        assert_eq!(fuid(Some(FileId::Smb1(0x40))), "0040");
        assert_eq!(fuid(None), "");
    }
}
