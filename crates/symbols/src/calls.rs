//! Calls in the code of a function, as its bytes show them.

/// `syscall`.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `call` and `jmp` with a distance of 32 bits, and how long they are.
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
const LENGTH: usize = 5;

/// The instructions in code at `address` that call or jump, with the addresses to which they lead. Bytes within others
/// may look like one, but lead to the first byte of a function by chance alone.
pub fn calls(code: &[u8], address: u64) -> impl Iterator<Item = (u64, u64)> {
    memchr::memchr2_iter(CALL, JUMP, code).filter_map(move |at| {
        let distance = code.get(at..at + LENGTH)?.last_chunk()?;
        let distance = i32::from_le_bytes(*distance).into();
        let address = address.wrapping_add(at as u64);
        let behind = address.wrapping_add(LENGTH as u64);
        Some((address, behind.wrapping_add_signed(distance)))
    })
}

pub fn has_system_call(code: &[u8]) -> bool {
    memchr::memmem::find(code, &SYSTEM_CALL).is_some()
}
