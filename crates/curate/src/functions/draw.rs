//! Random numbers that depend on a seed, a purpose and a name only.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, UInt32Type, UInt64Type};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

/// Name of [`draw`].
pub(crate) const DRAW: &str = "worldloom_draw";

/// `(seed, purpose, trajectory id, turn)` → a number in [0, 1) that depends on nothing else.
pub(super) fn draw() -> ScalarUDF {
    let body = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let (seeds, purposes) = (arrays[0].as_primitive::<UInt64Type>(), arrays[1].as_string::<i64>());
        let (ids, turns) = (arrays[2].as_string::<i64>(), arrays[3].as_primitive::<UInt32Type>());
        let number = |row| uniform(seeds.value(row), purposes.value(row), ids.value(row), turns.value(row));
        Ok(ColumnarValue::Array(Arc::new(Float64Array::from_iter_values((0..ids.len()).map(number)))))
    };
    let types = vec![DataType::UInt64, DataType::LargeUtf8, DataType::LargeUtf8, DataType::UInt32];
    create_udf(DRAW, types, DataType::Float64, Volatility::Immutable, Arc::new(body))
}

/// A number in [0, 1) from a seed split by purpose: the first 53 bits of a hash.
pub(crate) fn uniform(seed: u64, purpose: &str, name: &str, number: u32) -> f64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    add(&mut hasher, purpose);
    add(&mut hasher, name);
    hasher.update(&number.to_le_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    (u64::from_le_bytes(bytes) >> 11) as f64 / (1u64 << 53) as f64
}

/// Adds a text with its length, so that no two lists of texts are one.
pub(super) fn add(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_differ_by_seed_purpose_name_and_number() {
        let draws: Vec<f64> = (0..10_000).map(|number| uniform(7, "keep", "a", number)).collect();
        let mean = draws.iter().sum::<f64>() / 1e4;
        // Four standard deviations of a mean of 10,000 even draws: 4 · 0.2887 / 100.
        assert!((mean - 0.5).abs() < 0.0116, "{mean}");
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let others = [uniform(8, "keep", "a", 0), uniform(7, "target", "a", 0), uniform(7, "keep", "b", 0), draws[1]];
        assert!(others.iter().all(|other| *other != draws[0]));
        assert_eq!(uniform(7, "keep", "a", 0), draws[0]);
    }
}
