//! The paths at which `execvp` would look for a program.

use std::ffi::{CString, NulError, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

/// `argv` or `envp`: strings, and the array of pointers to them that ends with a null pointer.
pub(crate) struct Strings {
    pointers: Vec<*const c_char>,
    _owned: Vec<CString>,
}

impl Strings {
    pub(crate) fn new(strings: impl IntoIterator<Item = OsString>) -> Result<Strings, NulError> {
        let owned = strings.into_iter().map(|one| CString::new(one.into_vec()));
        let owned = owned.collect::<Result<Vec<_>, _>>()?;
        let pointers = owned
            .iter()
            .map(|one| one.as_ptr())
            .chain([ptr::null()])
            .collect();
        Ok(Strings {
            pointers,
            _owned: owned,
        })
    }

    pub(crate) fn pointers(&self) -> &[*const c_char] {
        &self.pointers
    }
}

/// The paths to try, in order.
pub(crate) fn candidates(
    program: &OsStr,
    environment: &[OsString],
) -> Result<Vec<CString>, NulError> {
    let program = program.as_bytes();
    if program.contains(&b'/') || program.is_empty() {
        return Ok(vec![CString::new(program)?]);
    }
    let path = environment
        .iter()
        .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    let directories = path.unwrap_or(b"/bin:/usr/bin").split(|&byte| byte == b':');
    let join = |directory: &[u8]| {
        let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        CString::new([directory, separator, program].concat())
    };
    directories.map(join).collect()
}

/// Whether the search goes on after this failure; a denied permission is reported only if nothing else is found.
pub(crate) fn goes_on(errno: i32) -> bool {
    matches!(
        errno,
        libc::EACCES | libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT
    )
}
