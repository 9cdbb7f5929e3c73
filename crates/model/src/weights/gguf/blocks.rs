//! Numbers in blocks, by the layouts of GGUF; products and sums are rounded to single precision one by one.

use half::f16;

/// Numbers of a block that share a scale.
const BLOCK: usize = 32;

/// How a tensor's numbers lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Single precision.
    F32,
    /// Half precision.
    F16,
    /// bfloat16.
    BF16,
    /// `d · q + m` with 4-bit `q`: f16 `d`, f16 `m`, 16 bytes; number i < 16 is the low half of byte i, i + 16 the high.
    Q4_1,
    /// `d · q` with 8-bit signed `q`: f16 `d`, 32 bytes.
    Q8_0,
}

impl Kind {
    /// Which kind a number in the table of tensors stands for, of those that are read.
    pub(crate) fn of(code: u32) -> Option<Kind> {
        match code {
            0 => Some(Kind::F32),
            1 => Some(Kind::F16),
            3 => Some(Kind::Q4_1),
            8 => Some(Kind::Q8_0),
            30 => Some(Kind::BF16),
            _ => None,
        }
    }

    /// Names of the kinds that are read.
    pub(crate) const READ: &'static str = "F32, F16, BF16, Q4_1 and Q8_0";

    /// Numbers and bytes of a block.
    fn block(self) -> (usize, usize) {
        match self {
            Kind::F32 => (1, 4),
            Kind::F16 | Kind::BF16 => (1, 2),
            Kind::Q4_1 => (BLOCK, 4 + BLOCK / 2),
            Kind::Q8_0 => (BLOCK, 2 + BLOCK),
        }
    }

    /// Bytes of a tensor whose rows have `width` numbers; none where rows are not whole blocks.
    pub(crate) fn bytes(self, width: usize, count: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        width.is_multiple_of(numbers).then(|| (count / numbers).checked_mul(bytes)).flatten()
    }

    /// The numbers of whole blocks.
    pub(crate) fn numbers(self, bytes: &[u8]) -> Vec<f32> {
        let (numbers, size) = self.block();
        let mut values = Vec::with_capacity(bytes.len() / size * numbers);
        for block in bytes.chunks_exact(size) {
            match self {
                Kind::F32 => values.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                Kind::F16 => values.push(half_at(block, 0)),
                Kind::BF16 => values.push(half::bf16::from_le_bytes([block[0], block[1]]).to_f32()),
                Kind::Q4_1 => {
                    let (scale, least) = (half_at(block, 0), half_at(block, 2));
                    let value = |nibble: u8| scale * f32::from(nibble) + least;
                    values.extend(block[4..].iter().map(|byte| value(byte & 15)));
                    values.extend(block[4..].iter().map(|byte| value(byte >> 4)));
                }
                Kind::Q8_0 => {
                    let scale = half_at(block, 0);
                    values.extend(block[2..].iter().map(|&byte| scale * f32::from(byte as i8)));
                }
            }
        }
        values
    }
}

fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bits_are_low_halves_first_then_high_halves() {
        let mut block = [f16::from_f32(0.5).to_le_bytes(), f16::from_f32(-3.0).to_le_bytes()].concat();
        block.extend((0..16).map(|i| i | ((15 - i) << 4)));
        let values = Kind::Q4_1.numbers(&block);
        let expected: Vec<f32> = (0..16).chain((0..16).rev()).map(|q| 0.5 * q as f32 - 3.0).collect();
        assert_eq!(values, expected);
        assert_eq!(Kind::Q4_1.bytes(64, 128), Some(80));
        assert_eq!(Kind::Q4_1.bytes(40, 80), None, "a row is whole blocks");
    }

    #[test]
    fn eight_bits_are_signed() {
        let mut block = f16::from_f32(0.25).to_le_bytes().to_vec();
        block.extend([127u8, 128, 255, 1].into_iter().cycle().take(32));
        let values = Kind::Q8_0.numbers(&block);
        assert_eq!(values[..4], [31.75, -32.0, -0.25, 0.25]);
        assert_eq!((values.len(), Kind::Q8_0.bytes(32, 32)), (32, Some(34)));
    }
}
