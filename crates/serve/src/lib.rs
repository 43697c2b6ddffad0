//! A session's control socket: its names, its protocol, the server in the session, and its clients.
//!
//! A session shows a [`Tree`] of files and hands it to a [`Server`], which answers [`Client`]s. Clients may be slow or
//! hostile; only complete and checked requests reach the session's own thread.

mod client;
mod connection;
mod directory;
mod line;
mod protocol;
mod server;
mod sockets;
mod tree;

pub use client::Client;
pub use protocol::{LONGEST_READ, LONGEST_WRITE, Request, STREAM, parse_list};
pub use server::Server;
pub use sockets::{NotTraced, is_traced, processes, remove_dead_names, tools};
pub use tree::{Access, Content, Entry, Failure, File, Tree};
