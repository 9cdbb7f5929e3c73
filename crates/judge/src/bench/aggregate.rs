//! From judged rows to the benchmark's table, digit for digit as the published script prints it, and beside it what the
//! script leaves out: the mean of domains that the paper's tables show, the score with failures counted as 0, and how
//! sure each is.

use std::collections::BTreeMap;

use num_bigint::BigInt;

use super::python::Value;
use super::ratio::Ratio;
use super::row::{BenchRow, RowFault};
use crate::bootstrap::{Interval, clustered_mean, mean_of_means};

/// The six columns of a domain.
pub const COLUMNS: [&str; 6] = ["format", "factuality", "consistency", "realism", "quality", "total_score"];
const TOTAL: usize = 5;
/// The reason of a row that did not fail and has no total.
const ALL_ZERO: &str = "Every score is 0";

/// One domain's part of the table, on the scale from 0 to 100.
#[derive(Debug, Clone, PartialEq)]
pub struct DomainScores {
    /// As in the rows.
    pub domain: String,
    /// As the script shows it.
    pub name: String,
    /// Rows that did not fail.
    pub valid: usize,
    /// All rows.
    pub total: usize,
    /// By [`COLUMNS`], over the valid rows whose value is not 0; −25 where there is none. None without a valid row.
    pub scores: Option<[f64; 6]>,
    /// The total with every failed or all-zero row counted as 0.
    pub strict: f64,
    /// The interval of the total, resampling trajectories.
    pub interval: Option<Interval>,
}

impl DomainScores {
    /// Rows that failed.
    pub fn failed(&self) -> usize {
        self.total - self.valid
    }
}

/// The whole table.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchScores {
    /// In the order of the script.
    pub domains: Vec<DomainScores>,
    /// All rows pooled, as the script's `Overall`; none without a total above or below 0.
    pub pooled: Option<f64>,
    /// Its interval.
    pub pooled_interval: Option<Interval>,
    /// Mean of the domains, as the paper's tables.
    pub macro_mean: Option<f64>,
    /// Its interval, resampling trajectories within each domain.
    pub macro_interval: Option<Interval>,
    /// Mean of the domains by [`COLUMNS`], each over the domains that have the column; none where no domain has it.
    pub macro_columns: [Option<f64>; 6],
    /// Domains without a total, which the mean leaves out.
    pub left_out: Vec<String>,
    /// Pooled, with failures as 0.
    pub strict_pooled: f64,
    /// Its interval.
    pub strict_pooled_interval: Option<Interval>,
    /// Mean of the domains, all of them, with failures as 0.
    pub strict_macro: f64,
    /// Its interval, as that of the mean.
    pub strict_macro_interval: Option<Interval>,
    /// All rows.
    pub total: usize,
    /// Rows with a total, as the script's last line counts them.
    pub valid: usize,
    /// Rows without a total by reason: the beginning of the row's message.
    pub failures: BTreeMap<String, u64>,
}

impl BenchScores {
    /// Rows without a total.
    pub fn failed(&self) -> usize {
        self.total - self.valid
    }
}

/// How sure the means are.
#[derive(Debug, Clone, Copy)]
pub struct Bootstrap {
    /// Resamples.
    pub resamples: usize,
    /// Its seed.
    pub seed: u64,
}

struct Row {
    cluster: String,
    is_valid: bool,
    /// Exact values by column; none for 0.
    values: [Option<Ratio>; 6],
    /// Why there is no total, where there is none.
    failure: Option<String>,
}

/// Aggregates judged rows. A score of a valid row that is neither a number nor missing is an error, as in the script.
pub fn aggregate(rows: &[BenchRow], bootstrap: Bootstrap) -> Result<BenchScores, RowFault> {
    let mut by_domain: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        by_domain.entry(row.domain()?.to_string()).or_default().push(read(row)?);
    }
    let (mut domains, mut totals, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    let mut means: [Vec<Ratio>; 6] = Default::default();
    let (mut points, mut strict_points) = (Vec::new(), Vec::new());
    for (domain, rows) in &by_domain {
        let valid: Vec<&Row> = rows.iter().filter(|row| row.is_valid).collect();
        let column = |at: usize| -> Vec<Ratio> { valid.iter().filter_map(|row| row.values[at].clone()).collect() };
        let scores = (!valid.is_empty()).then(|| std::array::from_fn(|at| scaled(rounded_mean(&column(at)))));
        (0..COLUMNS.len()).for_each(|at| means[at].extend(Ratio::mean(&column(at))));
        totals.extend(column(TOTAL));
        let own_points: Vec<(&str, f64)> = valid.iter().filter_map(|row| point(row)).collect();
        let own_strict: Vec<(&str, f64)> =
            rows.iter().map(|row| point(row).unwrap_or((row.cluster.as_str(), 0.0))).collect();
        if own_points.is_empty() {
            left_out.push(domain.clone());
        }
        domains.push(DomainScores {
            domain: domain.clone(),
            name: display_name(domain),
            valid: valid.len(),
            total: rows.len(),
            scores,
            strict: mean_of(&own_strict),
            interval: clustered_mean(&own_points, bootstrap.resamples, bootstrap.seed),
        });
        points.push(own_points);
        strict_points.push(own_strict);
    }
    let Bootstrap { resamples, seed } = bootstrap;
    let by_domain_interval = |points: &[Vec<(&str, f64)>]| {
        let groups: Vec<&[(&str, f64)]> = points.iter().map(Vec::as_slice).collect();
        mean_of_means(&groups, resamples, seed)
    };
    let strict: Vec<(&str, f64)> = strict_points.concat();
    let columns = means.each_ref().map(|means| Ratio::mean(means).map(|mean| mean.minus_one_times(25).to_f64()));
    let mut failures: BTreeMap<String, u64> = BTreeMap::new();
    for failure in by_domain.values().flatten().filter_map(|row| row.failure.as_ref()) {
        *failures.entry(failure.clone()).or_default() += 1;
    }
    Ok(BenchScores {
        pooled: (!totals.is_empty()).then(|| scaled(rounded_mean(&totals))),
        pooled_interval: clustered_mean(&points.concat(), resamples, seed),
        macro_mean: columns[TOTAL],
        macro_interval: by_domain_interval(&points),
        macro_columns: columns,
        left_out,
        strict_pooled: mean_of(&strict),
        strict_pooled_interval: clustered_mean(&strict, resamples, seed),
        strict_macro: domains.iter().fold(0.0, |sum, domain| sum + domain.strict) / domains.len().max(1) as f64,
        strict_macro_interval: by_domain_interval(&strict_points),
        total: rows.len(),
        valid: totals.len(),
        failures,
        domains,
    })
}

/// A row's total on the scale from 0 to 100, with its trajectory.
fn point(row: &Row) -> Option<(&str, f64)> {
    Some((row.cluster.as_str(), scaled(row.values[TOTAL].as_ref()?.to_f64())))
}

/// The mean; of nothing 0. Summed from 0 on: the sum of nothing by `Iterator::sum` is −0.
fn mean_of(points: &[(&str, f64)]) -> f64 {
    points.iter().fold(0.0, |sum, (_, value)| sum + value) / points.len().max(1) as f64
}

/// `(x − 1) / 4 · 100`, in this order.
fn scaled(mean: f64) -> f64 {
    (mean - 1.0) / 4.0 * 100.0
}

/// The exact mean, rounded once; of nothing 0.
fn rounded_mean(values: &[Ratio]) -> f64 {
    Ratio::mean(values).map_or(0.0, |mean| mean.to_f64())
}

fn read(row: &BenchRow) -> Result<Row, RowFault> {
    let fields = row.fields();
    let is_valid = match fields.get("failed") {
        Some(Value::Bool(failed)) => !failed,
        Some(Value::Int(failed)) => *failed == BigInt::ZERO,
        Some(Value::Float(failed)) => *failed == 0.0,
        _ => false,
    };
    let mut values: [Option<Ratio>; 6] = Default::default();
    if is_valid {
        for (value, column) in values.iter_mut().zip(COLUMNS) {
            *value = number(fields.get(column), column)?;
        }
    }
    let failure = values[TOTAL].is_none().then(|| match is_valid {
        true => ALL_ZERO.into(),
        false => {
            let message = fields.get("error_message").and_then(Value::as_text).unwrap_or("not judged");
            message.split(':').next().unwrap_or_default().to_string()
        }
    });
    Ok(Row { cluster: row.trajectory_key(), is_valid, values, failure })
}

fn number(value: Option<&Value>, field: &'static str) -> Result<Option<Ratio>, RowFault> {
    let ratio = match value {
        None => None,
        Some(Value::Bool(truth)) => Some(Ratio::whole(BigInt::from(u8::from(*truth)))),
        Some(Value::Int(number)) => Some(Ratio::whole(number.clone())),
        Some(Value::Float(number)) if number.is_finite() => Some(Ratio::of(*number)),
        Some(other) => {
            let found: String = other.to_json().chars().take(40).collect();
            let detail = format!("expected a number, found {found}");
            return Err(RowFault { field, detail, python: "TypeError" });
        }
    };
    Ok(ratio.filter(|ratio| !ratio.is_zero()))
}

fn display_name(domain: &str) -> String {
    match domain {
        "mcp" | "swe" | "os" => domain.to_uppercase(),
        other => {
            let mut characters = other.chars();
            let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
            first + &characters.as_str().to_lowercase()
        }
    }
}

/// The table as the script prints it, with what it leaves out below.
pub fn to_text(scores: &BenchScores) -> String {
    let mut out = String::new();
    for domain in &scores.domains {
        let DomainScores { name, valid, total, .. } = domain;
        out.push_str(&format!("--- {name} ({valid}/{total} valid, {} failed) ---\n", domain.failed()));
        match &domain.scores {
            None => out.push_str("  No valid results.\n"),
            Some(columns) => {
                for (column, score) in COLUMNS.iter().zip(columns) {
                    out.push_str(&format!("  {column:>15}: {score:.2}\n"));
                }
            }
        }
        if let Some(interval) = &domain.interval {
            out.push_str(&format!("  {:>15}: {}\n", "95 %", interval_text(interval)));
        }
        out.push_str(&format!("  {:>15}: {:.2}\n", "failures as 0", domain.strict));
    }
    let or_none = |score: Option<f64>| score.map_or("none".into(), |score| format!("{score:.2}"));
    out.push_str(&format!("\nOverall, all rows pooled as the script does: {}", or_none(scores.pooled)));
    if let Some(interval) = &scores.pooled_interval {
        out.push_str(&format!(" ({})", interval_text(interval)));
    }
    out.push_str(&format!("\nMean of {} domains, as the paper does: ", scores.domains.len() - scores.left_out.len()));
    out.push_str(&or_none(scores.macro_mean));
    if let Some(interval) = &scores.macro_interval {
        out.push_str(&format!(" ({})", interval_text(interval)));
    }
    if !scores.left_out.is_empty() {
        out.push_str(&format!(", without {}", scores.left_out.join(", ")));
    }
    for (column, mean) in COLUMNS.iter().zip(scores.macro_columns).take(TOTAL) {
        out.push_str(&format!("\n  {column:>15}: {}", or_none(mean)));
    }
    let strict = [
        (scores.strict_pooled, &scores.strict_pooled_interval, "pooled"),
        (scores.strict_macro, &scores.strict_macro_interval, "by domain"),
    ];
    for (mean, interval, how) in strict {
        out.push_str(&format!("\nWith failures as 0, {how}: {mean:.2}"));
        out.push_str(&interval.as_ref().map_or(String::new(), |found| format!(" ({})", interval_text(found))));
    }
    out.push_str(&format!("\nTotal samples: {}, Valid: {}, Failed: {}\n", scores.total, scores.valid, scores.failed()));
    out
}

fn interval_text(interval: &Interval) -> String {
    format!("{:.2} to {:.2}, {} trajectories", interval.low, interval.high, interval.clusters)
}
