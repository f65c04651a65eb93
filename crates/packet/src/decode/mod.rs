//! The layers, one file for each family of headers.

mod icmp;
mod ipv4;
mod ipv6;
mod link;
mod mpls;
mod ppp;
mod transport;
mod tunnel;
