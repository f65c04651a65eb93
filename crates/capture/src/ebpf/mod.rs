//! eBPF: small programs of ours that the kernel runs on packets before other programs see them.
//!
//! Programs are written with an assembler (`asm`), so that neither a compiler nor a file is needed at run time, and given to
//! the kernel together with the maps through which they and this process speak (`sys`). What there is (`programs`, `passing`):
//!
//! | program | where | for |
//! | --- | --- | --- |
//! | to sockets | XDP | hands each packet to the AF_XDP socket of its queue, and counts it: [`crate::af_xdp`] |
//! | spread | fan-out groups | chooses a socket by the addresses inside of tunnels: [`crate::af_packet`] |
//! | bypass | XDP | drops or forwards packets of flows that need no more looking, and counts them: [`crate::bypass`] |
//! | leave out, send on | sockets of AF_PACKET; tc | the same of bridged interfaces, without touching the packets |
//!
//! A program is held at an interface by a link (`bpf_link`, Linux 5.9; at tc 6.6), which goes with the process that made it, however
//! that ends: none stays behind. Where another program of XDP is at the interface already it stays there, and ours is refused.

pub(crate) mod asm;
pub(crate) mod passing;
pub(crate) mod programs;
pub(crate) mod sys;

use std::io;

pub use sys::XdpMode;

use crate::live::LiveError;
use sys::Refused;

/// The purpose of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose<'a> {
    pub(crate) interface: &'a str,
    /// The capabilities that it needs.
    pub(crate) needs: &'static str,
}

impl Purpose<'_> {
    /// The error if the kernel refuses.
    pub(crate) fn refused(&self, what: &'static str, error: io::Error) -> LiveError {
        let interface = self.interface.to_owned();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LiveError::NotAllowedProgram { interface, what, needs: self.needs },
            Some(libc::EBUSY | libc::EEXIST) => LiveError::Occupied { interface },
            _ => LiveError::System { interface, what, source: error },
        }
    }

    /// As [`Purpose::refused`], of a program.
    pub(crate) fn not_taken(&self, what: &'static str, refusal: Refused) -> LiveError {
        match refusal.log.trim() {
            "" => self.refused(what, refusal.error),
            log => {
                let last = log.lines().rev().find(|l| !l.starts_with("processed")).unwrap_or(log);
                let source = io::Error::new(refusal.error.kind(), format!("{}: {last}", refusal.error));
                LiveError::System { interface: self.interface.to_owned(), what, source }
            }
        }
    }
}
