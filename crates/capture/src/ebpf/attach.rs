//! Attaching a program to an interface.

use std::time::{Duration, Instant};

use super::sys::{Link, Program};
use super::{Purpose, XdpMode};
use crate::live::LiveError;

/// How long to wait for an interface that another program is just leaving.
const LEFT: Duration = Duration::from_secs(2);

/// Attaches a program to an interface: as `mode` says, or without one in the driver if possible, otherwise in the stack.
pub(crate) fn attach(
    purpose: Purpose<'_>,
    program: &Program,
    index: i32,
    mode: Option<XdpMode>,
) -> Result<(Link, XdpMode), LiveError> {
    let end = Instant::now() + LEFT;
    let modes = mode.map_or(vec![XdpMode::Driver, XdpMode::Generic], |m| vec![m]);
    let what = match mode {
        Some(XdpMode::Driver) => "its driver does not take a program (xdp-mode: driver, force-xdp-mode: drv)",
        _ => "a program cannot be put there (Linux 5.9 is needed)",
    };
    let mut last = None;
    for mode in modes {
        loop {
            match Link::xdp(program, index, mode) {
                Ok(link) => return Ok((link, mode)),
                // The kernel removes the program of a process that has just ended only after a moment.
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => {
                    let final_word = matches!(e.raw_os_error(), Some(libc::EPERM | libc::EBUSY));
                    last = Some(e);
                    if final_word {
                        return Err(purpose.refused(what, last.unwrap_or_else(std::io::Error::last_os_error)));
                    }
                    break;
                }
            }
        }
    }
    Err(purpose.refused(what, last.unwrap_or_else(|| std::io::Error::other("no mode"))))
}
