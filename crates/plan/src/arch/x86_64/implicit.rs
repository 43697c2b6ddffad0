use iced_x86::Mnemonic;

/// The registers that an instruction changes without naming them, by their numbers.
pub(crate) fn changed_implicitly(mnemonic: Mnemonic) -> u16 {
    const RAX: u16 = 1;
    const RCX: u16 = 1 << 1;
    const RDX: u16 = 1 << 2;
    const RBX: u16 = 1 << 3;
    const RSI: u16 = 1 << 6;
    const RDI: u16 = 1 << 7;
    const R11: u16 = 1 << 11;
    match mnemonic {
        Mnemonic::Mul
        | Mnemonic::Imul
        | Mnemonic::Div
        | Mnemonic::Idiv
        | Mnemonic::Cqo
        | Mnemonic::Cdq
        | Mnemonic::Cwd
        | Mnemonic::Rdtsc
        | Mnemonic::Rdpmc
        | Mnemonic::Xgetbv
        | Mnemonic::Cmpxchg8b
        | Mnemonic::Cmpxchg16b => RAX | RDX,
        Mnemonic::Cdqe
        | Mnemonic::Cwde
        | Mnemonic::Cbw
        | Mnemonic::Lahf
        | Mnemonic::Cmpxchg
        | Mnemonic::Xlatb
        | Mnemonic::In => RAX,
        Mnemonic::Cpuid => RAX | RCX | RDX | RBX,
        Mnemonic::Rdtscp => RAX | RCX | RDX,
        Mnemonic::Syscall => RAX | RCX | R11,
        Mnemonic::Movsb
        | Mnemonic::Movsw
        | Mnemonic::Movsd
        | Mnemonic::Movsq
        | Mnemonic::Stosb
        | Mnemonic::Stosw
        | Mnemonic::Stosd
        | Mnemonic::Stosq
        | Mnemonic::Lodsb
        | Mnemonic::Lodsw
        | Mnemonic::Lodsd
        | Mnemonic::Lodsq
        | Mnemonic::Scasb
        | Mnemonic::Scasw
        | Mnemonic::Scasd
        | Mnemonic::Scasq
        | Mnemonic::Cmpsb
        | Mnemonic::Cmpsw
        | Mnemonic::Cmpsd
        | Mnemonic::Cmpsq => RAX | RCX | RSI | RDI,
        _ => 0,
    }
}
