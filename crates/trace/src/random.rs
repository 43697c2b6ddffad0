//! Random identifiers.

use anyhow::{Context, Result};
use rustix::rand::{GetRandomFlags, getrandom};
use uuid::{Builder, Uuid};

/// 122 bits from the kernel's generator, also where there is no `/dev/urandom`: in a statically linked nopal, `uuid` itself
/// would read that.
pub fn random_uuid() -> Result<Uuid> {
    let mut bytes = [0; 16];
    // So few bytes are never cut short.
    getrandom(&mut bytes, GetRandomFlags::empty()).context("the kernel gives no random bytes")?;
    Ok(Builder::from_random_bytes(bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_random_ones() {
        let [one, other] = [random_uuid().unwrap(), random_uuid().unwrap()];
        assert_ne!(one, other);
        assert_eq!(one.get_version_num(), 4);
    }
}
