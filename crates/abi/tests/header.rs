//! Compares this crate with `runtime/core/abi.h`: a C program prints every constant, offset and size of the header.

use nopal_abi::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

type Numbers = BTreeMap<String, u64>;

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/core/abi.h")
}

macro_rules! constants {
    ($($name:ident)*) => {
        [$((concat!("NOPAL_", stringify!($name)).to_owned(), $name as u64)),*].into()
    };
}

macro_rules! structure {
    ($numbers:ident, $rust:ident, $c:literal: $($field:ident)*) => {
        $numbers.insert(format!("sizeof(struct {})", $c), size_of::<$rust>() as u64);
        let mut fields = 0;
        $(
            let field = concat!("struct ", $c, ", ", stringify!($field));
            let size = field_size(|value: &$rust| size_of_val(&value.$field));
            $numbers.insert(format!("offsetof({field})"), std::mem::offset_of!($rust, $field) as u64);
            $numbers.insert(format!("sizeof((({}*)0)->{})", concat!("struct ", $c), stringify!($field)), size as u64);
            fields += size;
        )*
        assert_eq!(fields, size_of::<$rust>(), "a field of {} is missing, or there is padding", $c);
    };
}

fn field_size<T>(size: impl Fn(&T) -> usize) -> usize {
    // SAFETY: the structures hold integers only, for which zeroes are values.
    size(&unsafe { std::mem::zeroed() })
}

fn rust_constants() -> Numbers {
    constants! {
        ABI_VERSION
        KIND_NONE KIND_ENTRY KIND_EXIT KIND_TAIL KIND_ONLY KIND_ENTRY_ARGS KIND_TAIL_ARGS KIND_ONLY_ARGS
        KIND_EXIT_RESULT KIND_UNWIND KIND_PENDING_ARGS KIND_PENDING_RESULT KIND_HOLE KIND_EXTENDED
        SITE_LIMIT ARGUMENTS EVENT_RESYNC EVENT_DEFINED EVENT_LIMIT EVENT_WORDS_SHIFT EVENT_VARIABLE
        TEXT_LIMIT TEXT_COUNTED
        RESYNC_CHUNK RESYNC_CLOCK RESYNC_STACK RESYNC_JUMP RESYNC_PART RESYNC_BYTES
        CHUNK_SHIFT CHUNK_BYTES CHUNK_HEADER_BYTES CHUNK_STATE_MASK CHUNK_FREE CHUNK_OWNED CHUNK_FULL
        REQUESTS LOST_COUNTERS REQUEST_FREE REQUEST_CLAIMED REQUEST_WAITING REQUEST_DONE
        REQUEST_GRANTED REQUEST_LIBRARIES REQUEST_EXEC REQUEST_LOCK REQUEST_TRAPS NO_DESCRIPTOR WHEN_FULL_DROP WHEN_FULL_BLOCK
    }
}

fn rust_structures() -> Numbers {
    let mut numbers = Numbers::new();
    structure!(numbers, Resync, "nopal_resync":
        clock_low kind_and_event clock slot stack process thread reason reserved);
    structure!(numbers, ChunkHeader, "nopal_chunk_header":
        magic stream_id uuid clock_begin clock_end content_bits packet_bits discarded sequence process thread
        thread_begin checksum reserved);
    structure!(numbers, Request, "nopal_request":
        state what process thread word descriptor reserved);
    structure!(numbers, Region, "nopal_region":
        version chunk_count state_offset chunk_offset when_full tool_gone heartbeat bell threads_untraced
        stacks_unmirrored threads_muted head tool guardian lost requests
        first_free freed waited_in_vain unanswered_executions unanswered_libraries reserved);
    numbers
}

/// The names that the header defines, the include guard aside.
fn defined_names() -> Vec<String> {
    let text = std::fs::read_to_string(header()).expect("abi.h");
    let defines = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define "));
    defines
        .filter_map(|define| {
            let (name, value) = define.split_once(char::is_whitespace)?;
            (!value.trim().is_empty()).then(|| name.to_owned())
        })
        .collect()
}

/// The value of each C expression, by a compiled program.
fn c_values(expressions: &[String]) -> Numbers {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("print.c"),
        directory.path().join("print"),
    );
    let mut text = format!(
        "#include {:?}\n#include <stdio.h>\nint main(void) {{\n",
        header()
    );
    for expression in expressions {
        text += &format!("printf(\"%llu\\n\", (unsigned long long)({expression}));\n");
    }
    text += "return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(compiler)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("C compiler");
    assert!(status.success(), "abi.h does not compile");
    let output = Command::new(&program).output().unwrap();
    let values = String::from_utf8(output.stdout).unwrap();
    let values = values.lines().map(|line| line.parse().unwrap());
    let numbers: Numbers = expressions.iter().cloned().zip(values).collect();
    assert_eq!(numbers.len(), expressions.len());
    numbers
}

#[test]
fn constants_are_those_of_the_header() {
    assert_eq!(rust_constants(), c_values(&defined_names()));
}

#[test]
fn structures_are_those_of_the_header() {
    let rust = rust_structures();
    let expressions: Vec<String> = rust.keys().cloned().collect();
    assert_eq!(rust, c_values(&expressions));
}
