//! One end of a connection: bytes come and go within a time, however the other end behaves.

use anyhow::{Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

pub struct Line {
    socket: OwnedFd,
    received: Vec<u8>,
}

impl Line {
    /// The socket may block or not: no call here waits in it.
    pub fn new(socket: OwnedFd) -> Line {
        Line {
            socket,
            received: Vec::new(),
        }
    }

    /// Waits until bytes or the end of the connection have come, for ever without a time. `false`: the time is over.
    pub fn wait(&self, time: Option<Duration>) -> Result<bool> {
        if !self.received.is_empty() {
            return Ok(true);
        }
        self.ready(PollFlags::IN, time)
    }

    /// Whether the other end closes the connection, or sends something, within a time.
    pub fn has_changed(&self, time: Duration) -> Result<bool> {
        if !self.received.is_empty() {
            return Ok(true);
        }
        self.ready(PollFlags::IN | PollFlags::RDHUP, Some(time))
    }

    fn ready(&self, flags: PollFlags, time: Option<Duration>) -> Result<bool> {
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        loop {
            match poll(&mut [PollFd::new(&self.socket, flags)], time.as_ref()) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A line without its end. `None`: the connection was closed before anything had come.
    pub fn line(&mut self, longest: usize, time: Duration) -> Result<Option<Vec<u8>>> {
        let until = Instant::now() + time;
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                ensure!(end < longest, "a line is too long");
                let mut line: Vec<u8> = self.received.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            ensure!(self.received.len() < longest, "a line is too long");
            if !self.receive(until)? {
                ensure!(self.received.is_empty(), "the connection was closed");
                return Ok(None);
            }
        }
    }

    /// Exactly that many bytes.
    pub fn bytes(&mut self, length: usize, time: Duration) -> Result<Vec<u8>> {
        let until = Instant::now() + time;
        while self.received.len() < length {
            ensure!(self.receive(until)?, "the connection was closed");
        }
        let rest = self.received.split_off(length);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    /// `false`: the connection is closed.
    fn receive(&mut self, until: Instant) -> Result<bool> {
        let mut part = [0; 1 << 16];
        loop {
            match rustix::net::recv(&self.socket, &mut part[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(false),
                Ok((count, _)) => {
                    self.received.extend_from_slice(&part[..count]);
                    return Ok(true);
                }
                Err(Errno::AGAIN) => self.within(until, PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub fn send(&self, mut bytes: &[u8], time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while !bytes.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, bytes, flags) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.within(until, PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn within(&self, until: Instant, flags: PollFlags) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !self.ready(flags, Some(left))? {
            bail!("the peer of the connection takes too long");
        }
        Ok(())
    }
}
