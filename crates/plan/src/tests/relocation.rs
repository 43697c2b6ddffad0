use super::meaning::{CodeLayout, difference};
use super::{Built, Random, installed, seed};
use crate::arch::{Loops, Window, relocate};
use crate::{Body, Fixup, FrameChange, JUMP, PlaceError, Plan, Reason};

const START: u64 = 0x40_1000;

/// The body of a function that consists of these bytes.
fn displaced(bytes: &[u8]) -> Result<(Vec<u8>, Body), Reason> {
    let window = Window::find(START, bytes, bytes.len(), JUMP)?;
    Ok((
        window.bytes.to_vec(),
        relocate(&window, &[], Loops::InBody)?,
    ))
}

fn placed(body: &Body, base: u64, at: u64) -> Vec<u8> {
    let mut code = vec![0; body.code().len()];
    body.place(base, at, &mut code).expect("it is in reach");
    code
}

#[test]
fn plain_instructions_are_copied_and_followed_by_a_jump_back() {
    // push %rbp; mov %rsp,%rbp; xor %eax,%eax
    let (window, body) = displaced(&[0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0xc3]).unwrap();
    assert_eq!(window.len(), 6);
    assert_eq!(
        body.map().collect::<Vec<_>>(),
        [(0, 0), (1, 1), (4, 4), (6, 6)]
    );
    let code = placed(&body, 0x1000_0000, 0x1100_0000);
    // jmp: 0x10401006 - 0x1100000b
    assert_eq!(
        code,
        [
            0x55, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0xe9, 0xfb, 0x0f, 0x40, 0xff
        ]
    );
}

#[test]
fn a_call_returns_to_where_it_did() {
    // push %rbx; call START+6+0x100
    let (window, body) = displaced(&[0x53, 0xe8, 0x00, 0x01, 0, 0]).unwrap();
    assert_eq!(window.len(), 6);
    assert_eq!(body.map().collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    let code = placed(&body, 0, 0x40_2000);
    let expected = [
        &[
            0x53, 0xe8, 1, 0, 0, 0, 0xcc, 0xff, 0x35, 8, 0, 0, 0, 0x8f, 0x04, 0x24,
        ][..],
        &[0xe9, 0xf1, 0xf0, 0xff, 0xff],
        &(START + 6).to_le_bytes(),
    ];
    assert_eq!(code, expected.concat());
    assert_eq!(
        body.fixups().nth(1).unwrap(),
        Fixup::Absolute {
            offset: 21,
            target: START + 6
        }
    );
}

#[test]
fn a_call_through_the_stack_looks_past_the_return_address() {
    // push %rax; call *0x10(%rsp): one of one byte and one of four
    let (_, body) = displaced(&[0x50, 0xff, 0x54, 0x24, 0x10]).unwrap();
    let code = placed(&body, 0, 0x40_2000);
    assert_eq!(code[16..23], [0xff, 0xa4, 0x24, 0x18, 0, 0, 0]);
    // push %rax; call *-8(%rsp): the pushes overwrite it
    assert_eq!(
        displaced(&[0x50, 0xff, 0x54, 0x24, 0xf8]),
        Err(Reason::Immovable)
    );
    // mov %edi,-16(%rsp); call: the pushes overwrite the stored value, too
    let store = [0x89, 0x7c, 0x24, 0xf0, 0xe8, 0, 1, 0, 0];
    assert_eq!(displaced(&store), Err(Reason::Immovable));
    // push %rax; rex call *%rsp
    assert_eq!(
        displaced(&[0x50, 0x48, 0x90, 0xff, 0xd4]),
        Err(Reason::Immovable)
    );
}

#[test]
fn the_frame_is_known_within_a_call() {
    let bytes = [0x53, 0xe8, 0x00, 0x01, 0, 0];
    let window = Window::find(START, &bytes, bytes.len(), JUMP).unwrap();
    let rules = [
        (
            0,
            FrameChange::Cfa {
                register: 7,
                offset: 8,
            },
        ),
        (
            1,
            FrameChange::Cfa {
                register: 7,
                offset: 16,
            },
        ),
        (
            1,
            FrameChange::Saved {
                register: 3,
                offset: -16,
            },
        ),
    ];
    let body = relocate(&window, &rules, Loops::InBody).unwrap();
    let cfa = |offset| FrameChange::Cfa {
        register: 7,
        offset,
    };
    let rows = [
        (0, cfa(8)),
        (1, cfa(16)),
        (
            1,
            FrameChange::Saved {
                register: 3,
                offset: -16,
            },
        ),
        (7, cfa(24)),
        (13, cfa(32)),
        (16, cfa(24)),
    ];
    assert_eq!(body.rows().collect::<Vec<_>>(), rows);
    // A rule in the middle of an instruction is no rule.
    assert_eq!(
        relocate(&window, &[(0, cfa(8)), (2, cfa(16))], Loops::InBody),
        Err(Reason::UnwindRules)
    );
}

#[test]
fn a_jump_to_the_start_stays_in_the_body() {
    // dec %edi; jnz START; ret
    let (window, body) = displaced(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]).unwrap();
    assert_eq!(window.len(), 5);
    assert_eq!(
        body.code(),
        [0xff, 0xcf, 0x0f, 0x85, 0xf8, 0xff, 0xff, 0xff, 0xc3]
    );
    assert!(body.fixups().len() == 0);
}

#[test]
fn short_loops_are_widened() {
    // jrcxz START+0x12; xor %eax,%eax; ret
    let (_, body) = displaced(&[0xe3, 0x10, 0x31, 0xc0, 0xc3]).unwrap();
    let code = placed(&body, 0, START + 0x1000);
    assert_eq!(
        code,
        [
            0xe3, 2, 0xeb, 5, 0xe9, 0x09, 0xf0, 0xff, 0xff, 0x31, 0xc0, 0xc3
        ]
    );
}

#[test]
fn what_cannot_move_is_refused() {
    let cases: [(&[u8], Reason); 13] = [
        (&[0xff, 0xd0, 0x90, 0x90, 0x90, 0xc3], Reason::CallInside),
        (&[0xc2, 0x08, 0x00, 0x90, 0x90], Reason::PopsArguments),
        (&[0xc7, 0xf8, 0, 0, 0, 0], Reason::Transaction),
        (
            &[
                0x06, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
                0x90,
            ],
            Reason::Undecodable,
        ),
        (&[0xcc, 0x90, 0x90, 0x90, 0x90], Reason::Traps),
        (&[0x0f, 0x0b, 0x90, 0x90, 0x90], Reason::Traps),
        (&[0xf4, 0x90, 0x90, 0x90, 0x90], Reason::Traps),
        // iretq; data16 jmp; lea (%eip),%eax; far jump; sysenter
        (&[0x48, 0xcf, 0x90, 0x90, 0x90], Reason::Immovable),
        (&[0x66, 0xeb, 0x10, 0x90, 0x90], Reason::Immovable),
        (&[0x67, 0x8d, 0x05, 0, 0, 0, 0], Reason::Immovable),
        (&[0xff, 0x28, 0x90, 0x90, 0x90], Reason::Immovable),
        (&[0x0f, 0x34, 0x90, 0x90, 0x90], Reason::Immovable),
        (&[0x90, 0x90, 0xc3], Reason::TooShort),
    ];
    for (bytes, reason) in cases {
        assert_eq!(displaced(bytes), Err(reason), "{bytes:02x?}");
    }
}

#[test]
fn out_of_reach_is_told() {
    let (_, body) = displaced(&[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3]).unwrap();
    let mut code = vec![0; body.code().len()];
    let base = 0x7000_0000_0000;
    assert_eq!(body.place(base, base + 0x7000_0000, &mut code), Ok(()));
    for at in [base + 0x9000_0000, base - 0x9000_0000, 0] {
        assert!(matches!(
            body.place(base, at, &mut code),
            Err(PlaceError::OutOfReach { .. })
        ));
    }
    assert_eq!(
        body.place(base, base, &mut code[1..]),
        Err(PlaceError::NoRoom)
    );
    let damaged = Fixup::Absolute {
        offset: u16::MAX,
        target: 0,
    };
    let damaged = Body::new(body.code().to_vec(), &[damaged], &[], &[]);
    assert_eq!(
        damaged.place(base, base, &mut code),
        Err(PlaceError::Damaged)
    );
}

/// Bytes that are likely to be instructions of interest: branches, calls and RIP-relative operands among them.
fn likely_code(random: &mut Random) -> Vec<u8> {
    const OPCODES: &[&[u8]] = &[
        &[0xe8],
        &[0xe9],
        &[0xeb],
        &[0x74],
        &[0x7f],
        &[0x0f, 0x84],
        &[0x0f, 0x8d],
        &[0xe0],
        &[0xe1],
        &[0xe2],
        &[0xe3],
        &[0x67, 0xe3],
        &[0xff, 0x15],
        &[0xff, 0x25],
        &[0xff, 0xd0],
        &[0xff, 0x54, 0x24],
        &[0xff, 0x94, 0x24],
        &[0xff],
        &[0x41, 0xff],
        &[0x48, 0x8d, 0x05],
        &[0x48, 0x8b, 0x0d],
        &[0x83, 0x3d],
        &[0x48, 0x81, 0x3d],
        &[0xc6, 0x05],
        &[0xf3, 0x0f, 0x10, 0x05],
        &[0xc5, 0xf8, 0x28, 0x05],
        &[0x62],
        &[0xc4],
        &[0xf3, 0x0f, 0x1e, 0xfa],
        &[0xc3],
        &[0xf3, 0xc3],
        &[0x50],
        &[0x55],
        &[0x48, 0x89, 0xe5],
        &[0x48, 0x83, 0xec],
        &[0x31, 0xc0],
        &[0x3e, 0xff],
        &[0xf2, 0xe9],
        &[0xf2, 0xe8],
        &[0x64, 0x48, 0x8b, 0x04, 0x25],
        &[0x0f, 0x05],
        &[0x66],
        &[0x4c],
        &[0x90],
    ];
    let mut code = Vec::new();
    while code.len() < 40 {
        if random.below(4) == 0 {
            code.push(random.byte());
        } else {
            code.extend_from_slice(OPCODES[random.below(OPCODES.len())]);
            (0..random.below(6)).for_each(|_| code.push(random.byte()));
        }
    }
    code
}

#[test]
fn random_instructions_keep_their_meaning() {
    let mut random = Random(seed());
    let (mut compared, mut unknown) = (0, 0);
    for _ in 0..200_000 {
        let bytes = likely_code(&mut random);
        let Ok((window, body)) = displaced(&bytes) else {
            continue;
        };
        let (base, at) = (
            0x5000_0000_0000,
            0x5000_0001_0000 + (random.next() & 0xf_ffff),
        );
        let mut code = vec![0; body.code().len()];
        if body.place(base, at, &mut code).is_err() {
            continue;
        }
        let layout = CodeLayout {
            window: &window,
            window_at: base + START,
            body: &body,
            code: &code,
            code_at: at,
        };
        match difference(&layout) {
            Ok(None) => compared += 1,
            Ok(Some(difference)) => panic!("{difference}: {window:02x?} became {code:02x?}"),
            Err(_) => unknown += 1,
        }
    }
    println!("{compared} compared, {unknown} not known to zydis");
    assert!(compared > 10_000 && unknown * 10 < compared);
}

#[test]
fn the_functions_of_installed_files_keep_their_meaning() {
    for path in installed() {
        let image = nopal_symbols::Image::open(&path).unwrap();
        let plan = Plan::make(&image).unwrap();
        let base = 0x7f00_0000_0000;
        let end = image
            .segments()
            .iter()
            .map(|segment| segment.address + segment.memory_size)
            .max()
            .unwrap();
        for site in plan.sites.iter().chain(&plan.hooks) {
            let code = placed(&site.body, base, base + end);
            let window = image.bytes(site.address, usize::from(site.window)).unwrap();
            assert_eq!(window, site.expected());
            let layout = CodeLayout {
                window,
                window_at: base + site.address,
                body: &site.body,
                code: &code,
                code_at: base + end,
            };
            assert_eq!(
                difference(&layout),
                Ok(None),
                "{} {:#x}",
                path.display(),
                site.address
            );
        }
    }
}

/// Compares the rows with those that the reader of symbols makes of the same unwinding entries.
#[test]
fn rows_agree_with_the_unwinding_entries() {
    for path in installed() {
        let image = nopal_symbols::Image::open(&path).unwrap();
        let plan = Plan::make(&image).unwrap();
        let mut compared = 0;
        for site in plan.sites.iter().filter(|site| site.body.rows().len() > 0) {
            let end = site.address + u64::from(site.window);
            let changes = image.cfa_changes(site.address..end + 1);
            for (from, to) in site.body.map() {
                let before = |row: &(u16, FrameChange)| row.0 <= to;
                let row = site
                    .body
                    .rows()
                    .take_while(before)
                    .filter_map(|row| match row.1 {
                        FrameChange::Cfa {
                            register: 7,
                            offset,
                        } => Some(nopal_symbols::Cfa::Rsp(offset.into())),
                        FrameChange::Cfa {
                            register: 6,
                            offset,
                        } => Some(nopal_symbols::Cfa::Rbp(offset.into())),
                        FrameChange::Cfa { .. } => Some(nopal_symbols::Cfa::Other),
                        _ => None,
                    });
                let at = site.address + u64::from(from);
                let change = changes
                    .iter()
                    .take_while(|change| change.address <= at)
                    .last();
                assert_eq!(
                    row.last(),
                    change.map(|change| change.cfa),
                    "{} {at:#x}",
                    path.display()
                );
                compared += 1;
            }
        }
        assert!(compared > 0, "{}", path.display());
    }
}

#[test]
fn registers_that_the_window_saves_are_in_the_rows() {
    let library = Built::library(
        ".text\n.globl f\n.type f, @function\nf: .cfi_startproc\npush %rbp\n.cfi_def_cfa_offset 16\n\
         .cfi_offset 6, -16\nmov %rsp, %rbp\n.cfi_def_cfa_register 6\npush %rbx\n.cfi_offset 3, -24\nxor %ebx, %ebx\n\
         pop %rbx\n.cfi_restore 3\npop %rbp\n.cfi_def_cfa 7, 8\nret\n.cfi_endproc\n.size f, .-f\n",
    );
    let planned = library.planned();
    let rows = [
        (
            0,
            FrameChange::Cfa {
                register: 7,
                offset: 8,
            },
        ),
        (
            1,
            FrameChange::Cfa {
                register: 7,
                offset: 16,
            },
        ),
        (
            1,
            FrameChange::Saved {
                register: 6,
                offset: -16,
            },
        ),
        (
            4,
            FrameChange::Cfa {
                register: 6,
                offset: 16,
            },
        ),
        (
            5,
            FrameChange::Saved {
                register: 3,
                offset: -24,
            },
        ),
    ];
    assert_eq!(planned.site("f").body.rows().collect::<Vec<_>>(), rows);
    assert!(library.directory.path().exists());
}
