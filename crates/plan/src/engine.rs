//! A JavaScript engine that is linked into a file and need not export anything.

use memchr::memmem;
use nopal_symbols::Image;

/// V8's text about its option `--expose-gc`, in all of its versions. In two parts, so that nopal itself has no such text.
const TEXT: [&str; 2] = ["expose gc", " extension"];

/// Whether the file contains V8, which finds frames by the return addresses of the functions that its code calls.
pub(crate) fn has_v8(image: &Image) -> bool {
    let text = TEXT.concat();
    let finder = memmem::Finder::new(&text);
    image.segments().iter().any(|segment| {
        let bytes = image
            .file_bytes(segment.offset, segment.file_size)
            .unwrap_or_default();
        // A string in C ends with a zero byte.
        finder
            .find_iter(bytes)
            .any(|at| bytes.get(at + text.len()) == Some(&0))
    })
}
