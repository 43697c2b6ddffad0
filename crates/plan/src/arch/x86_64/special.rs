//! Functions that are left alone on x86-64, by their names or their bytes.

use crate::Reason;

/// A name, or, with a star at its end, the beginning of names.
pub(crate) const SPECIAL: &[(&str, Reason)] = &[
    ("__x86_indirect_thunk*", Reason::BranchThunk),
    ("__x86_return_thunk*", Reason::BranchThunk),
    ("__llvm_retpoline_*", Reason::BranchThunk),
];

/// The bytes of a signal restorer: `mov $15, %eax` or `%rax` (rt_sigreturn); `syscall`. Unwinders know them by these
/// too.
const RESTORERS: &[&[u8]] = &[
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
];

pub(crate) fn is_restorer(bytes: &[u8]) -> bool {
    RESTORERS.iter().any(|restorer| bytes.starts_with(restorer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::special::by_name;

    #[test]
    fn thunks_of_branches_are_known() {
        let known = by_name("__x86_indirect_thunk_rax");
        assert_eq!(known, Some(Reason::BranchThunk));
    }

    #[test]
    fn restorers_are_known_by_their_bytes() {
        assert!(is_restorer(&[
            0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0xc3
        ]));
        assert!(!is_restorer(&[0xb8, 0x0f, 0, 0, 0, 0xc3]));
    }
}
