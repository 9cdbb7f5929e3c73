//! Exact fractions, for means that are rounded once.

use num_bigint::{BigInt, Sign};

/// A fraction; the denominator is positive. Not in lowest terms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ratio {
    numerator: BigInt,
    denominator: BigInt,
}

impl Ratio {
    pub(super) fn whole(number: BigInt) -> Self {
        Self { numerator: number, denominator: BigInt::from(1) }
    }

    /// A finite float as it is stored.
    pub(super) fn of(number: f64) -> Self {
        let bits = number.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as i64;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) =
            if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
        let mantissa = if number < 0.0 { -BigInt::from(mantissa) } else { BigInt::from(mantissa) };
        match exponent >= 0 {
            true => Self::whole(mantissa << exponent as u64),
            false => Self { numerator: mantissa, denominator: BigInt::from(1) << (-exponent) as u64 },
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.numerator.sign() == Sign::NoSign
    }

    fn plus(&self, other: &Self) -> Self {
        if self.denominator == other.denominator {
            return Self { numerator: &self.numerator + &other.numerator, denominator: self.denominator.clone() };
        }
        Self {
            numerator: &self.numerator * &other.denominator + &other.numerator * &self.denominator,
            denominator: &self.denominator * &other.denominator,
        }
    }

    /// The mean, if there is anything. Sums with powers of two below them stay small.
    pub(super) fn mean(values: &[Self]) -> Option<Self> {
        let mut sums: Vec<Self> = Vec::new();
        for value in values {
            match sums.iter_mut().find(|sum| sum.denominator == value.denominator) {
                Some(sum) => *sum = sum.plus(value),
                None => sums.push(value.clone()),
            }
        }
        let sum = sums.into_iter().reduce(|sum, next| sum.plus(&next))?;
        Some(Self { denominator: sum.denominator * BigInt::from(values.len()), ..sum })
    }

    pub(super) fn minus_one_times(&self, factor: u32) -> Self {
        Self { numerator: (&self.numerator - &self.denominator) * factor, denominator: self.denominator.clone() }
    }

    /// The nearest float, halves to even.
    pub(super) fn to_f64(&self) -> f64 {
        if self.is_zero() {
            return 0.0;
        }
        let magnitude = self.numerator.magnitude();
        let divisor = self.denominator.magnitude();
        // A quotient of at least 64 bits, whose last one is set where something is left over: rounding it to 53 bits
        // rounds the fraction itself. Subnormal results do not come up among scores.
        let shift = 65 + divisor.bits() as i64 - magnitude.bits() as i64;
        let (top, bottom) = match shift >= 0 {
            true => (magnitude << shift as u64, divisor.clone()),
            false => (magnitude.clone(), divisor << (-shift) as u64),
        };
        let quotient = &top / &bottom;
        let rest = &top % &bottom;
        let mut bits = quotient;
        let mut exponent = -shift;
        while bits.bits() > 64 {
            let is_odd = bits.bit(0);
            bits >>= 1u32;
            bits.set_bit(0, bits.bit(0) || is_odd);
            exponent += 1;
        }
        let mut bits = bits.iter_u64_digits().next().unwrap_or(0);
        if rest.bits() > 0 {
            bits |= 1;
        }
        let value = bits as f64 * 2f64.powi(exponent as i32);
        if self.numerator.sign() == Sign::Minus { -value } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_come_back_and_thirds_are_nearest() {
        for number in [0.1, -2.5, 1e300, 3.2, 5.0, f64::EPSILON] {
            assert_eq!(Ratio::of(number).to_f64(), number);
        }
        let third = Ratio { numerator: BigInt::from(-1), denominator: BigInt::from(3) };
        assert_eq!(third.to_f64(), -1.0 / 3.0);
    }

    #[test]
    fn a_mean_is_exact_where_sums_of_floats_are_not() {
        let values: Vec<Ratio> = [1e100, 1.0, -1e100].into_iter().map(Ratio::of).collect();
        assert_eq!(Ratio::mean(&values).unwrap().to_f64(), 1.0 / 3.0);
        assert_eq!(Ratio::mean(&[]), None);
    }
}
