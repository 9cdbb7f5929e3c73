//! A column of lists of turns as texts by number.

use std::ops::Range;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, LargeStringArray, StructArray, UInt32Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, UInt32Type};
use datafusion::common::{DataFusionError, Result, exec_err};

use super::texts;
use crate::words::add_words;

/// The turns of all rows, one after another, and which are whose.
pub(crate) struct TurnsView {
    ends: Vec<i64>,
    indices: UInt32Array,
    actions: LargeStringArray,
    observations: LargeStringArray,
    kinds: LargeStringArray,
    states: LargeStringArray,
    errors: BooleanArray,
    harness: Vec<bool>,
}

/// How the flags begin with which ingest marks an observation that no environment wrote.
const SKIP: &str = "skip:";

impl TurnsView {
    /// The turns of a column of lists.
    pub(crate) fn read(array: &ArrayRef) -> Result<Self> {
        let Some(list) = array.as_list_opt::<i64>() else { return exec_err!("turns are {}", array.data_type()) };
        let Some(turns) = list.values().as_struct_opt() else { return exec_err!("turns are {}", array.data_type()) };
        let column = |name: &str| -> Result<ArrayRef> {
            let column = turns.column_by_name(name);
            Ok(column.ok_or_else(|| DataFusionError::Execution(format!("turns without `{name}`")))?.clone())
        };
        let text = |name: &str| -> Result<LargeStringArray> { Ok(texts(&column(name)?)?.as_string::<i64>().clone()) };
        Ok(Self {
            ends: list.value_offsets().to_vec(),
            indices: cast(&column("index")?, &DataType::UInt32)?.as_primitive::<UInt32Type>().clone(),
            actions: text("action")?,
            observations: text("observation")?,
            kinds: text("observation_kind")?,
            states: text("pre_state")?,
            errors: cast(&column("is_error")?, &DataType::Boolean)?.as_boolean().clone(),
            harness: are_skipped(turns)?,
        })
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// The turns of a row.
    pub(crate) fn of(&self, row: usize) -> Range<usize> {
        self.ends[row] as usize..self.ends[row + 1] as usize
    }

    pub(crate) fn index(&self, turn: usize) -> u32 {
        self.indices.value(turn)
    }

    pub(crate) fn action(&self, turn: usize) -> &str {
        text(&self.actions, turn)
    }

    pub(crate) fn observation(&self, turn: usize) -> &str {
        text(&self.observations, turn)
    }

    /// The observation's kind by its name.
    pub(crate) fn kind(&self, turn: usize) -> &str {
        text(&self.kinds, turn)
    }

    /// The state shown before the action.
    pub(crate) fn pre_state(&self, turn: usize) -> Option<&str> {
        self.states.is_valid(turn).then(|| self.states.value(turn))
    }

    /// Whether the environment reported an error.
    pub(crate) fn is_error(&self, turn: usize) -> bool {
        self.errors.is_valid(turn) && self.errors.value(turn)
    }

    /// Whether the harness around the environment wrote the observation.
    pub(crate) fn is_harness_text(&self, turn: usize) -> bool {
        self.harness.get(turn).copied().unwrap_or(false)
    }

    /// The words of a row's actions and observations, in order.
    pub(crate) fn words(&self, row: usize, words: &mut Vec<u64>) {
        for turn in self.of(row) {
            add_words(self.action(turn), words);
            add_words(self.observation(turn), words);
        }
    }
}

/// The words of each row, whether it is a list of turns or a text.
pub(super) enum WordsView {
    Turns(Box<TurnsView>),
    Texts(LargeStringArray),
}

impl WordsView {
    pub(super) fn read(array: &ArrayRef) -> Result<Self> {
        match array.data_type() {
            DataType::LargeList(_) => Ok(Self::Turns(Box::new(TurnsView::read(array)?))),
            _ => Ok(Self::Texts(texts(array)?.as_string::<i64>().clone())),
        }
    }

    pub(super) fn add(&self, row: usize, words: &mut Vec<u64>) {
        match self {
            Self::Turns(turns) => turns.words(row, words),
            Self::Texts(texts) => add_words(text(texts, row), words),
        }
    }
}

/// Which turns have a flag that begins with [`SKIP`]; none where turns have no flags.
fn are_skipped(turns: &StructArray) -> Result<Vec<bool>> {
    let Some(flags) = turns.column_by_name("flags").and_then(|column| column.as_list_opt::<i64>()) else {
        return Ok(Vec::new());
    };
    let names = texts(flags.values())?;
    let names = names.as_string::<i64>();
    let ends = flags.value_offsets();
    let has_skip = |turn: usize| {
        let mut of = ends[turn] as usize..ends[turn + 1] as usize;
        flags.is_valid(turn) && of.any(|at| text(names, at).starts_with(SKIP))
    };
    Ok((0..flags.len()).map(has_skip).collect())
}

/// The text of a row, or nothing where there is none.
pub(super) fn text(texts: &LargeStringArray, row: usize) -> &str {
    if texts.is_valid(row) { texts.value(row) } else { "" }
}
