//! Reads from rtnetlink an interface's addresses, its XDP program, and the route to an address (RFC 3549,
//! `rtnetlink(7)`).

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::{Answer, Link, Refusal};

/// Message types.
const DONE: u16 = 3;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
/// Flags of requests.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
/// Attributes.
const IFLA_IFNAME: u16 = 3;
const IFLA_XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
/// Scope of a link-local address: `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;
const HEADER: usize = 16;
/// Sizes of the fixed parts of messages about links, addresses and routes.
const LINK_PART: usize = 16;
const ADDRESS_PART: usize = 8;
const ROUTE_PART: usize = 12;

/// Sends a request, and calls `each` with the type and the body of each message in the answer. Netlink protocol 0 is
/// routing.
fn ask(kind: u16, flags: u16, body: &[u8], mut each: impl FnMut(u16, &[u8])) -> Answer<()> {
    let io = |e: rustix::io::Errno| Refusal::from(std::io::Error::from(e));
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(io)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0)).map_err(io)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(5))).map_err(io)?;
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((REQUEST | flags).to_ne_bytes());
    request.extend([0; 8]);
    request.extend(body);
    rustix::net::send(&socket, &request, SendFlags::empty()).map_err(io)?;
    let mut buffer = vec![0u8; 1 << 17];
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).map_err(io)?;
        let mut rest = &buffer[..length];
        if rest.is_empty() {
            return Ok(());
        }
        while rest.len() >= HEADER {
            let size = number(rest, 0) as usize;
            if size < HEADER || size > rest.len() {
                return Ok(());
            }
            let (message, after) = rest.split_at(size);
            let kind = u16::from_ne_bytes([message[4], message[5]]);
            match kind {
                DONE => return Ok(()),
                ERROR => {
                    let code = number(message, HEADER) as i32;
                    return if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(-code).into()) };
                }
                _ => each(kind, &message[HEADER..]),
            }
            rest = after.get(size.next_multiple_of(4) - size..).unwrap_or_default();
        }
        if flags & DUMP == 0 {
            return Ok(());
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

/// Attributes: a length, a type and the bytes, each padded to four.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let size = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]) & 0x3fff;
        let value = rest.get(4..size)?;
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Calls `each` with the number, the name and the attributes of each link.
fn links(mut each: impl FnMut(u32, &str, &[u8])) -> Answer<()> {
    ask(GET_LINK, DUMP, &[0; LINK_PART], |kind, message| {
        let Some(rest) = message.get(LINK_PART..).filter(|_| kind == NEW_LINK) else { return };
        let name = attributes(rest).find(|(kind, _)| *kind == IFLA_IFNAME).map(|(_, name)| name);
        let name = name.map(|name| String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned());
        each(number(message, 4), &name.unwrap_or_default(), rest);
    })
}

/// The addresses and the XDP mode of an interface.
pub(super) fn link(name: &str) -> Answer<Link> {
    let mut found = None;
    let mut out = Link::default();
    links(|index, known, rest| {
        if known == name {
            found = Some(index);
            let xdp = attributes(rest).find(|(kind, _)| *kind == IFLA_XDP).map(|(_, nested)| nested);
            let attached = xdp.and_then(|nested| attributes(nested).find(|(kind, _)| *kind == XDP_ATTACHED));
            out.xdp = match attached.and_then(|(_, value)| value.first()) {
                Some(1) => "driver",
                Some(2) => "generic",
                Some(3) => "offloaded",
                Some(4) => "several",
                _ => "none",
            }
            .to_owned();
        }
    })?;
    let index = found.ok_or(Refusal::Missing)?;
    ask(GET_ADDRESS, DUMP, &[0; ADDRESS_PART], |kind, message| {
        let Some(rest) = message.get(ADDRESS_PART..).filter(|_| kind == NEW_ADDRESS) else { return };
        // The kernel gives every active interface a link-local IPv6 address.
        if number(message, 4) != index || message[3] == SCOPE_LINK {
            return;
        }
        // On a point-to-point link, `IFA_ADDRESS` is the other end, and `IFA_LOCAL` is this one.
        let own = attributes(rest).find(|(kind, _)| *kind == IFA_LOCAL);
        let own = own.or_else(|| attributes(rest).find(|(kind, _)| *kind == IFA_ADDRESS));
        if let Some(address) = own.and_then(|(_, bytes)| address(bytes)) {
            out.addresses.push(format!("{address}/{}", message[1]));
        }
    })?;
    Ok(out)
}

/// The outgoing interface of packets to an address.
pub(super) fn route_to(text: &str) -> Answer<String> {
    let to: IpAddr = text.parse().map_err(|_| Refusal::Other(format!("'{text}' is no address")))?;
    let (family, bytes) = match to {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_PART];
    (body[0], body[1]) = (family, (bytes.len() * 8) as u8);
    body.extend(((4 + bytes.len()) as u16).to_ne_bytes());
    body.extend(RTA_DST.to_ne_bytes());
    body.extend(bytes);
    let mut out = None;
    ask(GET_ROUTE, 0, &body, |kind, message| {
        let rest = message.get(ROUTE_PART..).filter(|_| kind == NEW_ROUTE).unwrap_or_default();
        out = attributes(rest).find(|(kind, _)| *kind == RTA_OIF).map(|(_, index)| number(index, 0)).or(out);
    })?;
    let index = out.ok_or(Refusal::Missing)?;
    let mut name = None;
    links(|known, its, _| {
        if known == index {
            name = Some(its.to_owned());
        }
    })?;
    name.ok_or(Refusal::Missing)
}
