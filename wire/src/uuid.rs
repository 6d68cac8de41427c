use std::fmt;

/// A topic id, directory id or member id: 16 bytes in network order. All zero means none.
///
/// It is shown in Kafka's way: URL-safe base 64 without padding.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// No id.
    pub const ZERO: Self = Self([0; 16]);

    /// True for the all-zero id, which stands for none.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        // 128 bits are 21 digits of 6 bits and one of 2, padded on the right.
        let bits = u128::from_be_bytes(self.0);
        for digit in 0..22 {
            let six = if digit < 21 { bits >> (122 - 6 * digit) } else { bits << 4 } & 63;
            write!(f, "{}", char::from(DIGITS[six as usize]))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_as_kafka_shows_it() {
        let id = Uuid([
            0x5a, 0x3c, 0xfe, 0x01, 0x80, 0x7f, 0x4d, 0x00, 0xb1, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
        ]);
        assert_eq!(id.to_string(), "Wjz-AYB_TQCxIjNEVWZ3iA");
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }
}
