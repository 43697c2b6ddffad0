//! Values as text: durations, aligned tables, numbers written fast.

mod bytes;
mod table;
mod units;

pub use bytes::{
    push_decimal, push_fraction, push_hex, push_hex_short, push_json_string, push_padded, push_u64,
};
pub use table::{Align, Table, cut_middle};
pub use units::{
    Quantity, bound, bound_count, bytes, count, date, duration, estimate, percent, rate, several,
};
