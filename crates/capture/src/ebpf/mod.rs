//! eBPF: our own small programs, which the kernel runs on packets before other programs see them.
//!
//! An assembler (`asm`) creates the programs, so that run time needs neither a compiler nor a file. The kernel loads them with
//! the maps through which they communicate with this process (`sys`). The programs (`programs`, `passing`):
//!
//! | program | where | for |
//! | --- | --- | --- |
//! | to sockets | XDP | hands each packet to the AF_XDP socket of its queue, and counts it: [`crate::af_xdp`] |
//! | spread | fan-out groups | selects a socket by the inner addresses of tunnels: [`crate::af_packet`] |
//! | bypass | XDP | drops or forwards packets of flows that need no more inspection, and counts them: [`crate::bypass`] |
//! | leave out, send on | AF_PACKET sockets; tc | the same for bridged interfaces, without touching the packets |
//!
//! A link (`bpf_link`, Linux 5.9; at tc 6.6) attaches a program to an interface. The kernel removes the link when the process ends,
//! however it ends, so no program stays behind. If the interface already has another XDP program, that one stays, and ours is refused.

pub(crate) mod asm;
pub(crate) mod attach;
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

    /// As [`Purpose::refused`], for a program.
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
