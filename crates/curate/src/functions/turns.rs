//! What the rules and the mask look at in a turn.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Float64Builder, LargeListArray, LargeStringBuilder, StructArray,
    UInt32Builder, UInt64Builder,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result;
use regex::{Regex, RegexSet};

use super::draw::add;
use super::view::text;
use super::{Function, Settings, TurnsView, from_json, ours, texts};
use crate::changes::changed_share;
use crate::error::Error;
use crate::measures::measure;
use crate::rules::{self, Removes, Rules};

/// `(domain, initial state, turns, rules)` → for each turn its facts; see [`fields`].
///
/// `turn_key` is a hash of domain, initial state, all earlier turns, the action and the observation: equal for turns that
/// are the same question with the same answer.
pub(crate) const TURN_FACTS: &str = "worldloom_turn_facts";

/// Characters of an observation in which a refused action is looked for.
const REFUSAL_CHARS: usize = 1000;

fn fields() -> Fields {
    let field = |name: &str, kind: DataType| Field::new(name, kind, false);
    let number = |name: &str| field(name, DataType::Float64);
    vec![
        field("index", DataType::UInt32),
        field("turn_key", DataType::LargeUtf8),
        field("own_rule", DataType::LargeUtf8),
        number("overlap"),
        number("novelty"),
        number("ratio"),
        number("words"),
        field("chars", DataType::UInt64),
        field("action_chars", DataType::UInt64),
        field("is_error", DataType::Boolean),
    ]
    .into()
}

fn item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(fields()), true))
}

pub(super) fn turn_facts() -> Function<TurnTests> {
    Function::new(TURN_FACTS, 3, DataType::LargeList(item()), body)
}

/// The rules of turns, ready to be asked.
#[derive(Debug)]
pub(super) struct TurnTests {
    rules: Rules,
    refusals: RegexSet,
    own: Vec<OwnTest>,
}

/// An own pattern of the config, ready to be asked.
#[derive(Debug)]
pub(super) struct OwnTest {
    pub(super) rule: rules::OwnPattern,
    pattern: Regex,
}

impl OwnTest {
    /// Those of the rules that remove the same.
    pub(super) fn all(rules: &Rules, removes: Removes) -> Result<Vec<Self>> {
        let own = rules.patterns.iter().filter(|own| own.removes == removes);
        own.map(|own| Ok(Self { rule: own.clone(), pattern: regex(&own.pattern)? })).collect()
    }

    /// Whether a turn breaks the rule.
    pub(super) fn finds(&self, domain: &str, turns: &TurnsView, turn: usize) -> bool {
        let text = match self.rule.field {
            rules::Field::Action => turns.action(turn),
            rules::Field::Observation => turns.observation(turn),
        };
        applies(&self.rule.domains, domain) && self.pattern.is_match(text)
    }
}

pub(super) fn applies(domains: &[worldloom_schema::Domain], domain: &str) -> bool {
    domains.iter().any(|known| known.as_str() == domain)
}

fn regex(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| ours(Error::config("pattern", pattern, &error.to_string())))
}

pub(super) fn regex_set(patterns: &[String]) -> Result<RegexSet> {
    RegexSet::new(patterns).map_err(|error| ours(Error::config("patterns", patterns.join(", "), &error.to_string())))
}

impl Settings for TurnTests {
    fn read(json: &str) -> Result<Self> {
        let rules: Rules = from_json(json)?;
        let refusals = regex_set(&rules.retry_cycles.patterns)?;
        let own = OwnTest::all(&rules, Removes::Turn)?;
        Ok(Self { rules, refusals, own })
    }
}

impl TurnTests {
    /// The first rule of its own that a turn breaks, or nothing.
    fn rule(&self, domain: &str, initial_state: &str, turns: &TurnsView, of: &Range<usize>, turn: usize) -> &str {
        let observation = turns.observation(turn);
        if turns.action(turn).trim().is_empty() {
            return "empty_action";
        }
        if turns.kind(turn) == "image" && observation.is_empty() {
            return "image_only";
        }
        if turns.is_harness_text(turn) {
            return "harness_text";
        }
        if applies(&self.rules.retry_cycles.domains, domain) && self.refusals.is_match(head(observation)) {
            return "retry_cycle";
        }
        if applies(&self.rules.no_change.domains, domain) {
            let earlier = (turn > of.start).then(|| turns.observation(turn - 1));
            let before = turns.pre_state(turn).or(earlier).unwrap_or(initial_state);
            let limit = self.rules.no_change.max_changed_share;
            if !before.trim().is_empty() && changed_share(before, observation) <= limit {
                return "no_change";
            }
        }
        let own = self.own.iter().find(|own| own.finds(domain, turns, turn));
        own.map_or("", |own| own.rule.name.as_str())
    }
}

fn head(text: &str) -> &str {
    text.char_indices().nth(REFUSAL_CHARS).map_or(text, |(end, _)| &text[..end])
}

fn body(tests: &TurnTests, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (domains, states) = (texts(&arguments[0])?, texts(&arguments[1])?);
    let (domains, states) = (domains.as_string::<i64>(), states.as_string::<i64>());
    let turns = TurnsView::read(&arguments[2])?;
    let mut facts = FactsBuilder::default();
    let mut lengths = Vec::with_capacity(turns.rows());
    for row in 0..turns.rows() {
        let (domain, state, of) = (text(domains, row), text(states, row), turns.of(row));
        let mut history = blake3::Hasher::new();
        add(&mut history, domain);
        add(&mut history, state);
        for turn in of.clone() {
            add(&mut history, turns.action(turn));
            add(&mut history, turns.observation(turn));
            facts.key.append_value(&history.finalize().to_hex()[..32]);
            facts.rule.append_value(tests.rule(domain, state, &turns, &of, turn));
            facts.add(&turns, turn);
        }
        lengths.push(of.len());
    }
    let values = facts.finish()?;
    Ok(Arc::new(LargeListArray::try_new(item(), OffsetBuffer::from_lengths(lengths), values, None)?))
}

#[derive(Default)]
struct FactsBuilder {
    index: UInt32Builder,
    key: LargeStringBuilder,
    rule: LargeStringBuilder,
    numbers: [Float64Builder; 4],
    chars: UInt64Builder,
    action_chars: UInt64Builder,
    is_error: BooleanBuilder,
}

impl FactsBuilder {
    fn add(&mut self, turns: &TurnsView, turn: usize) {
        let measures = measure(turns.action(turn), turns.observation(turn));
        self.index.append_value(turns.index(turn));
        let numbers = [measures.overlap, measures.novelty, measures.ratio, measures.words];
        self.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.append_value(number));
        self.chars.append_value(measures.chars);
        self.action_chars.append_value(turns.action(turn).chars().count() as u64);
        self.is_error.append_value(turns.is_error(turn));
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(self.index.finish()), Arc::new(self.key.finish()), Arc::new(self.rule.finish())];
        columns.extend(self.numbers.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        columns.extend([
            Arc::new(self.chars.finish()) as ArrayRef,
            Arc::new(self.action_chars.finish()),
            Arc::new(self.is_error.finish()),
        ]);
        let rows = columns[0].len();
        debug_assert!(columns.iter().all(|column| column.len() == rows));
        Ok(Arc::new(StructArray::try_new(fields(), columns, None)?))
    }
}
