//! A budget of processor time: `policy` chooses the functions that are recorded within it. The session measures the
//! costs, and carries out the choice: see `session/budget.rs`.

pub mod policy;
#[cfg(test)]
mod tests;
