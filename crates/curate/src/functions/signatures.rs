//! Signatures in plans: their bands, and how alike two are.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Float64Array, LargeListBuilder, UInt64Builder};
use datafusion::arrow::datatypes::{DataType, Field, UInt64Type};
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};

use crate::minhash::{self, from_bytes};

/// `(signature, rows per band)` → the keys of its bands.
pub(crate) const BAND_KEYS: &str = "worldloom_band_keys";
/// `(signature, signature)` → the estimated similarity.
pub(crate) const SIMILARITY: &str = "worldloom_similarity";

pub(super) fn band_keys() -> ScalarUDF {
    let body = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let (signatures, rows) = (arrays[0].as_binary::<i64>(), arrays[1].as_primitive::<UInt64Type>());
        let mut keys = LargeListBuilder::new(UInt64Builder::new());
        for row in 0..signatures.len() {
            if signatures.is_valid(row) {
                let signature = from_bytes(signatures.value(row));
                minhash::band_keys(&signature, rows.value(row) as usize)
                    .for_each(|key| keys.values().append_value(key));
            }
            keys.append(true);
        }
        Ok(ColumnarValue::Array(Arc::new(keys.finish())))
    };
    let types = vec![DataType::LargeBinary, DataType::UInt64];
    let list = DataType::LargeList(Arc::new(Field::new("item", DataType::UInt64, true)));
    create_udf(BAND_KEYS, types, list, Volatility::Immutable, Arc::new(body))
}

pub(super) fn similarity() -> ScalarUDF {
    let body = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let (first, second) = (arrays[0].as_binary::<i64>(), arrays[1].as_binary::<i64>());
        let of = |row: usize| minhash::similarity(&from_bytes(first.value(row)), &from_bytes(second.value(row)));
        Ok(ColumnarValue::Array(Arc::new(Float64Array::from_iter_values((0..first.len()).map(of)))))
    };
    let types = vec![DataType::LargeBinary; 2];
    create_udf(SIMILARITY, types, DataType::Float64, Volatility::Immutable, Arc::new(body))
}
