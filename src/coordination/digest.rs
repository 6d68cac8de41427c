//! SHA-1 and Base64, in which ZooKeeper's scheme `digest` keeps passwords, and MD5, in which SASL's DIGEST-MD5 proves
//! that one is known. Not for anything of our own: the forms are ZooKeeper's.

/// The SHA-1 hash of the bytes (FIPS 180-4).
pub(super) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        add_block(&mut state, block);
    }
    for block in end(rest, bit_count(bytes).to_be_bytes()).as_chunks::<64>().0 {
        add_block(&mut state, block);
    }
    let mut hash = [0; 20];
    for (place, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    hash
}

fn add_block(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.into_iter().enumerate() {
        let (mixed, constant) = match round {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next =
            a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(word);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (sum, term) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(term);
    }
}

/// The MD5 hash of the bytes (RFC 1321).
pub(super) fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        add_md5_block(&mut state, block);
    }
    for block in end(rest, bit_count(bytes).to_le_bytes()).as_chunks::<64>().0 {
        add_md5_block(&mut state, block);
    }
    let mut hash = [0; 16];
    for (place, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_le_bytes();
    }
    hash
}

fn add_md5_block(state: &mut [u32; 4], block: &[u8; 64]) {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut words = [0u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mixed, at) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        // As the standard gives them: the fractions of sines.
        let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(words[at % 16]);
        (a, b, c, d) = (d, b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4])), b, c);
    }
    for (sum, term) in state.iter_mut().zip([a, b, c, d]) {
        *sum = sum.wrapping_add(term);
    }
}

fn bit_count(bytes: &[u8]) -> u64 {
    (bytes.len() as u64).wrapping_mul(8)
}

/// The last blocks: what is left, a one, zeros, and the number of bits.
fn end(rest: &[u8], bit_count: [u8; 8]) -> Vec<u8> {
    let mut end = rest.to_vec();
    end.push(0x80);
    while end.len() % 64 != 56 {
        end.push(0);
    }
    end.extend_from_slice(&bit_count);
    end
}

/// Base64 with the standard alphabet and padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |position: usize| u32::from(group.get(position).copied().unwrap_or(0));
        let joined = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            // A group of n bytes fills n + 1 digits.
            let is_filled = digit <= group.len();
            let value = joined >> (18 - 6 * digit) & 63;
            text.push(if is_filled { char::from(ALPHABET[value as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(hash: &[u8]) -> String {
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[track_caller]
    fn check(input: &[u8], hash: &str) {
        assert_eq!(hex(&sha1(input)), hash);
    }

    #[track_caller]
    fn check_md5(input: &[u8], hash: &str) {
        assert_eq!(hex(&md5(input)), hash);
    }

    #[test]
    fn the_examples_of_rfc_1321_hash_as_it_says() {
        check_md5(b"", "d41d8cd98f00b204e9800998ecf8427e");
        check_md5(b"abc", "900150983cd24fb0d6963f7d28e17f72");
        check_md5(b"message digest", "f96b697d7cb7938d525a2f31aaf161d0");
        let digits = "12345678901234567890".repeat(4);
        check_md5(digits.as_bytes(), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn the_standards_examples_hash_as_it_says() {
        check(b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        check(b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d");
        check(
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        );
        check(&[b'a'; 1_000_000], "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
