//! The functions of ours that plans call by name, so that a cluster's executors can register the same ones.
//!
//! What a function needs to know beyond its row comes as a last argument of JSON text ([`Settings`]): a plan that is sent
//! elsewhere carries it along. It is read once per function and text, not once per batch.

mod documents;
mod draw;
mod signatures;
mod trajectories;
mod turns;
mod view;

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use datafusion::prelude::SessionContext;

pub(crate) use documents::DOCUMENT_FACTS;
pub(crate) use draw::{DRAW, uniform};
pub(crate) use signatures::{BAND_KEYS, SIMILARITY};
pub(crate) use trajectories::{FactSettings, OVERLAP, OverlapSettings, TRAJECTORY_FACTS};
pub(crate) use turns::TURN_FACTS;
pub(crate) use view::TurnsView;

/// Makes the functions known to a session.
pub fn register(context: &SessionContext) {
    let all = [
        ScalarUDF::from(turns::turn_facts()),
        ScalarUDF::from(trajectories::trajectory_facts()),
        ScalarUDF::from(trajectories::overlap()),
        ScalarUDF::from(documents::document_facts()),
        signatures::band_keys(),
        signatures::similarity(),
        draw::draw(),
    ];
    all.into_iter().for_each(|function| context.register_udf(function));
}

/// What a function reads from its last argument.
pub(crate) trait Settings: Sized + Send + Sync + std::fmt::Debug + 'static {
    /// Reads and prepares it.
    fn read(json: &str) -> Result<Self>;
}

/// A function of arrays and settings.
#[derive(Debug)]
pub(crate) struct Function<S: Settings> {
    name: &'static str,
    signature: Signature,
    returns: DataType,
    body: fn(&S, &[ArrayRef]) -> Result<ArrayRef>,
    known: Mutex<Option<(String, Arc<S>)>>,
}

impl<S: Settings> Function<S> {
    fn new(
        name: &'static str,
        arguments: usize,
        returns: DataType,
        body: fn(&S, &[ArrayRef]) -> Result<ArrayRef>,
    ) -> Self {
        Self {
            name,
            signature: Signature::any(arguments + 1, Volatility::Immutable),
            returns,
            body,
            known: Mutex::new(None),
        }
    }

    fn settings(&self, json: &str) -> Result<Arc<S>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((text, settings)) = &*known
            && text == json
        {
            return Ok(Arc::clone(settings));
        }
        let settings = Arc::new(S::read(json)?);
        *known = Some((json.into(), Arc::clone(&settings)));
        Ok(settings)
    }
}

impl<S: Settings> PartialEq for Function<S> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<S: Settings> Eq for Function<S> {}

impl<S: Settings> Hash for Function<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl<S: Settings> ScalarUDFImpl for Function<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some((settings, values)) = arguments.args.split_last() else {
            return exec_err!("{} needs settings", self.name);
        };
        let json = match settings {
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(json)) | ScalarValue::LargeUtf8(Some(json))) => json.clone(),
            ColumnarValue::Array(texts) if !texts.is_empty() => {
                cast(texts, &DataType::LargeUtf8)?.as_string::<i64>().value(0).into()
            }
            _ if arguments.number_rows == 0 => {
                return Ok(ColumnarValue::Array(datafusion::arrow::array::new_empty_array(&self.returns)));
            }
            other => return exec_err!("{}: settings are {}", self.name, other.data_type()),
        };
        let settings = self.settings(&json)?;
        let arrays = values.iter().map(|value| value.to_array(arguments.number_rows)).collect::<Result<Vec<_>>>()?;
        Ok(ColumnarValue::Array((self.body)(&settings, &arrays)?))
    }
}

/// JSON text to a type, as an error of the engine.
fn from_json<T: serde::de::DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| DataFusionError::Execution(format!("settings of a function: {error}")))
}

/// An error of ours as one of the engine.
fn ours(error: crate::Error) -> DataFusionError {
    DataFusionError::Execution(error.to_string())
}

/// A text column, in whichever form it is stored.
fn texts(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(cast(array, &DataType::LargeUtf8)?)
}
