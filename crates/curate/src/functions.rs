//! The functions of ours that plans call by name, so that a cluster's executors can register the same ones.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, LargeListBuilder, LargeStringBuilder, StructArray,
    UInt64Array,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Fields, UInt32Type, UInt64Type};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::prelude::SessionContext;

use crate::measures::measure;

/// Name of [`turn_measures`].
pub(crate) const TURN_MEASURES: &str = "worldloom_turn_measures";
/// Name of [`is_blank`].
pub(crate) const IS_BLANK: &str = "worldloom_is_blank";
/// Name of [`draw`].
pub(crate) const DRAW: &str = "worldloom_draw";
/// Name of [`TurnKeys`].
pub(crate) const TURN_KEYS: &str = "worldloom_turn_keys";

/// Makes the functions known to a session.
pub(crate) fn register(context: &SessionContext) {
    [turn_measures(), is_blank(), draw(), ScalarUDF::from(TurnKeys::new())]
        .into_iter()
        .for_each(|function| context.register_udf(function));
}

fn measure_fields() -> Fields {
    let number = |name: &str| Field::new(name, DataType::Float64, false);
    let chars = Field::new("chars", DataType::UInt64, false);
    vec![number("overlap"), number("novelty"), number("ratio"), number("words"), chars].into()
}

/// `(action, observation)` → the measures of the turn.
fn turn_measures() -> ScalarUDF {
    let body = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let (actions, observations) = (arrays[0].as_string::<i64>(), arrays[1].as_string::<i64>());
        let pairs = actions.iter().zip(observations.iter());
        let all: Vec<_> = pairs.map(|(a, o)| measure(a.unwrap_or_default(), o.unwrap_or_default())).collect();
        let number = |part: fn(&crate::Measures) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(all.iter().map(part)))
        };
        let columns = vec![
            number(|measures| measures.overlap),
            number(|measures| measures.novelty),
            number(|measures| measures.ratio),
            number(|measures| measures.words),
            Arc::new(UInt64Array::from_iter_values(all.iter().map(|measures| measures.chars))),
        ];
        Ok(ColumnarValue::Array(Arc::new(StructArray::try_new(measure_fields(), columns, None)?)))
    };
    let text = vec![DataType::LargeUtf8; 2];
    create_udf(TURN_MEASURES, text, DataType::Struct(measure_fields()), Volatility::Immutable, Arc::new(body))
}

/// `(text)` → whether it is only white space.
fn is_blank() -> ScalarUDF {
    let body = |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let texts = arrays[0].as_string::<i64>();
        let blank: BooleanArray = texts.iter().map(|text| Some(text.unwrap_or_default().trim().is_empty())).collect();
        Ok(ColumnarValue::Array(Arc::new(blank)))
    };
    create_udf(IS_BLANK, vec![DataType::LargeUtf8], DataType::Boolean, Volatility::Immutable, Arc::new(body))
}

/// `(seed, purpose, trajectory id, turn)` → a number in [0, 1) that depends on nothing else.
fn draw() -> ScalarUDF {
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

fn add(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}

/// `(domain, initial state, turns)` → for each turn the hash of domain, initial state, all earlier turns, the action and
/// the observation: equal for turns that are the same question with the same answer.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TurnKeys {
    signature: Signature,
}

impl TurnKeys {
    fn new() -> Self {
        Self { signature: Signature::any(3, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TurnKeys {
    fn name(&self) -> &str {
        TURN_KEYS
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeList(Arc::new(Field::new("item", DataType::LargeUtf8, true))))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [domains, states, turns] = &arrays[..] else { return exec_err!("{TURN_KEYS} takes three arguments") };
        let (domains, states) = (cast(domains, &DataType::LargeUtf8)?, cast(states, &DataType::LargeUtf8)?);
        let (domains, states) = (domains.as_string::<i64>(), states.as_string::<i64>());
        let Some(turns) = turns.as_list_opt::<i64>() else { return exec_err!("turns are {}", turns.data_type()) };
        let mut keys = LargeListBuilder::new(LargeStringBuilder::new());
        for row in 0..turns.len() {
            let state = if states.is_valid(row) { states.value(row) } else { "" };
            for key in keys_of(domains.value(row), state, &turns.value(row))? {
                keys.values().append_value(key);
            }
            keys.append(true);
        }
        Ok(ColumnarValue::Array(Arc::new(keys.finish())))
    }
}

fn keys_of(domain: &str, initial_state: &str, turns: &ArrayRef) -> Result<Vec<String>> {
    let Some(turns) = turns.as_struct_opt() else { return exec_err!("a turn is {}", turns.data_type()) };
    let column = |name: &str| -> Result<ArrayRef> {
        let column = turns.column_by_name(name);
        let column = column.ok_or_else(|| DataFusionError::Execution(format!("turns without `{name}`")))?;
        Ok(cast(column, &DataType::LargeUtf8)?)
    };
    let (actions, observations) = (column("action")?, column("observation")?);
    let pairs = actions.as_string::<i64>().iter().zip(observations.as_string::<i64>().iter());
    let mut history = blake3::Hasher::new();
    add(&mut history, domain);
    add(&mut history, initial_state);
    Ok(pairs
        .map(|(action, observation)| {
            add(&mut history, action.unwrap_or_default());
            add(&mut history, observation.unwrap_or_default());
            history.finalize().to_hex()[..32].to_string()
        })
        .collect())
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
