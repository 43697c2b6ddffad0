//! Numbers as few bits, as columns have them.

/// Numbers of `width` bits: runs of at least eight equal ones, and between them groups of eight, packed. The last group
/// may have less than eight.
pub fn pack(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut from, mut at) = (0, 0);
    while at < numbers.len() {
        let first = numbers[at];
        let equal = numbers[at..].iter().take_while(|number| **number == first);
        let equal = equal.count();
        if equal < 8 {
            at = (at + 8).min(numbers.len());
            continue;
        }
        pack_groups(&numbers[from..at], width, out);
        push_varint(out, (equal as u64) << 1);
        out.extend_from_slice(&first.to_le_bytes()[..width.div_ceil(8) as usize]);
        at += equal;
        from = at;
    }
    pack_groups(&numbers[from..], width, out);
}

fn pack_groups(numbers: &[u32], width: u32, out: &mut Vec<u8>) {
    if !numbers.is_empty() {
        let groups = numbers.len().div_ceil(8);
        push_varint(out, (groups as u64) << 1 | 1);
        let numbers = numbers.iter().map(|number| u64::from(*number));
        pack_bits(numbers, 8 * groups, width, out);
    }
}

/// The differences of numbers, in blocks of four parts, each with the fewest bits that suffice for it.
pub fn pack_differences(numbers: &[i64], out: &mut Vec<u8>) {
    const PART: usize = 64;
    const PARTS: usize = 4;
    let first = numbers.first().copied().unwrap_or(0);
    push_varint(out, (PARTS * PART) as u64);
    push_varint(out, PARTS as u64);
    push_varint(out, numbers.len() as u64);
    push_varint(out, zigzag(first));
    let mut differences = [0_i64; PARTS * PART];
    let mut before = first;
    for block in numbers.get(1..).unwrap_or_default().chunks(PARTS * PART) {
        let differences = &mut differences[..block.len()];
        for (difference, number) in differences.iter_mut().zip(block) {
            *difference = number.wrapping_sub(before);
            before = *number;
        }
        let least = differences.iter().copied().min().unwrap_or(0);
        push_varint(out, zigzag(least));
        let above = |difference: &i64| difference.wrapping_sub(least) as u64;
        let widths = out.len();
        out.extend_from_slice(&[0; PARTS]);
        for (at, part) in differences.chunks(PART).enumerate() {
            let bits = part.iter().map(above).fold(0, |all, number| all | number);
            let width = u64::BITS - bits.leading_zeros();
            out[widths + at] = width as u8;
            pack_bits(part.iter().map(above), PART, width, out);
        }
    }
}

/// Numbers of `width` bits, and zeros behind them, so that they are `number`, a multiple of eight.
fn pack_bits(numbers: impl Iterator<Item = u64>, number: usize, width: u32, out: &mut Vec<u8>) {
    let end = out.len() + number / 8 * width as usize;
    out.reserve(end + 8 - out.len());
    let (mut bits, mut filled) = (0_u64, 0);
    for number in numbers {
        bits |= number << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&bits.to_le_bytes());
            filled -= u64::BITS;
            bits = number.unbounded_shr(width - filled);
        }
    }
    out.extend_from_slice(&bits.to_le_bytes());
    out.resize(end, 0);
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
