//! A budget of processor time: `policy` says which functions are recorded within it. The session measures what it needs,
//! and does what it says: see `session/budget.rs`.

pub mod policy;
#[cfg(test)]
mod tests;
