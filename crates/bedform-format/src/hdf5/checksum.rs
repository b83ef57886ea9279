//! Bob Jenkins' `lookup3` hash, the checksum of HDF5 metadata.

/// The hash of `bytes` with an initial value of 0.
pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let mut state = [start; 3];
    let mut rest = bytes;
    while let Some((triple, more)) = rest.split_first_chunk::<12>().filter(|(_, m)| !m.is_empty()) {
        add(&mut state, triple);
        mix(&mut state);
        rest = more;
    }
    let [_, _, last] = state;
    if rest.is_empty() {
        return last;
    }
    let mut padded = [0; 12];
    padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    add(&mut state, &padded);
    finish(state)
}

fn add(state: &mut [u32; 3], triple: &[u8; 12]) {
    let (words, _) = triple.as_chunks::<4>();
    for (value, word) in state.iter_mut().zip(words) {
        *value = value.wrapping_add(u32::from_le_bytes(*word));
    }
}

fn mix(state: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *state;
    for rotations in [[4, 6, 8], [16, 19, 4]] {
        let [first, second, third] = rotations;
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(third);
        b = b.wrapping_add(a);
    }
    *state = [a, b, c];
}

fn finish(state: [u32; 3]) -> u32 {
    let [mut a, mut b, mut c] = state;
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::lookup3;

    #[test]
    fn hashes_are_those_of_the_published_code() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
