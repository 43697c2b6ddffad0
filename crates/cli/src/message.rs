//! Messages on standard error.

use std::io::Write;

use nopal_analysis::names::printable;
use nopal_symbols::without_numbers;

/// Ends this process, with a line on standard error if that takes it at once.
pub fn end(line: &str) {
    let line = format!("nopal: {line}\n");
    let mut error = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: plain system calls on values of ours. Other threads may hold locks of what runs at a usual end.
    unsafe {
        if libc::poll(&raw mut error, 1, 0) == 1 && error.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        }
        libc::_exit(1);
    }
}

/// Writes a line on standard error. A failure to write changes nothing.
pub fn write(line: &str) {
    let _ = writeln!(
        anstream::stderr(),
        "nopal: {}",
        printable(&without_numbers(line))
    );
}
