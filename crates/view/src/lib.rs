//! `nopal view`: a trace as a timeline in the browser.
//!
//! [`Server`] answers on 127.0.0.1: the page, whose files are in `page/`, and the trace, by [`api`]. All paths begin with
//! a random token. It answers no other request: not from pages of other origins, and not under another name of the host.

mod api;
mod cases;
pub mod http;
mod kernel;
mod page;
mod server;
mod shown;
mod track;

pub use server::Server;
pub use shown::Shown;
