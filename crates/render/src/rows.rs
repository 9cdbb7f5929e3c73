//! Rows of cpt and sft: documents are gathered, packed, put in seeded order and written, one shard a gathering.

use std::path::{Path, PathBuf};

use rand::seq::SliceRandom;
use worldloom_schema::{ShardWriter, Trajectory};

use crate::bundles::{Bundle, pack_bundles};
use crate::config::RowSettings;
use crate::document::Reason;
use crate::error::{Refusal, Result};
use crate::fit::{Fit, Fitted, fit, fit_target, fit_text};
use crate::pack::{pack, row_of};
use crate::renderer::Rendered;
use crate::report::Tally;
use crate::run::Sink;
use crate::seeds::stream;
use crate::stage::Stage;

/// Tokens gathered before they are packed and written: bounds the memory, and the reach of packing and shuffling.
const TOKENS_PER_SHARD: usize = 1 << 25;
/// What texts are counted under, where trajectories have their domain.
pub(crate) const TEXTS: &str = "documents";

/// Where a document comes from.
#[derive(Debug, Clone)]
struct Origin {
    id: String,
    label: &'static str,
}

pub(crate) struct RowSink {
    out: PathBuf,
    settings: RowSettings,
    seed: u64,
    /// Hash of the tokenizer.
    tokenizer: String,
    gathered: Vec<(Fitted, Origin)>,
    /// Trajectories whose documents share their history.
    bundles: Vec<Bundle<Origin>>,
    of_trajectory: Vec<Fitted>,
    tokens: usize,
    shards: usize,
}

impl RowSink {
    pub(crate) fn create(out: &Path, settings: RowSettings, seed: u64, tokenizer: &str) -> Self {
        let (gathered, bundles, of_trajectory) = (Vec::new(), Vec::new(), Vec::new());
        let (out, tokenizer) = (out.into(), tokenizer.into());
        Self { out, settings, seed, tokenizer, gathered, bundles, of_trajectory, tokens: 0, shards: 0 }
    }

    /// Takes a text that is no trajectory.
    pub(crate) fn take_text(&mut self, id: &str, rendered: &Rendered, tally: &mut Tally) -> Result<()> {
        let fit = fit_text(rendered, self.settings.row_tokens, self.settings.long);
        for part in self.counted(TEXTS, rendered, fit, tally) {
            self.gather(part, Origin { id: id.into(), label: TEXTS });
        }
        if self.tokens >= TOKENS_PER_SHARD { self.write(tally) } else { Ok(()) }
    }

    /// Counts what the length did to a document, and gives its parts.
    fn counted(&self, label: &'static str, rendered: &Rendered, fit: Fit, tally: &mut Tally) -> Vec<Fitted> {
        let lost = fit.dropped + fit.untrained;
        tally.add("tokens_repeated", fit.repeated as u64);
        if rendered.tokens.len() > self.settings.row_tokens {
            tally.cut(lost);
        }
        if fit.parts.is_empty() {
            let refusal = if fit.untrained > 0 { Refusal::NoTarget } else { Refusal::TooLong };
            tally.drop_document(label, refusal, lost);
            return Vec::new();
        }
        let is_long = u64::from(rendered.tokens.len() > self.settings.row_tokens);
        tally.add("tokens_cut", lost as u64);
        tally.add("truncated", is_long);
        tally.add("windows_without_target", fit.untrained_parts as u64);
        let of = tally.of(label);
        of.kept += 1;
        of.truncated += is_long;
        of.lost_tokens += lost as u64;
        fit.parts
    }

    fn gather(&mut self, document: Fitted, origin: Origin) {
        self.tokens += document.tokens.len();
        self.gathered.push((document, origin));
    }

    fn write(&mut self, tally: &mut Tally) -> Result<()> {
        self.tokens = 0;
        let mut rows = self.packed(tally);
        if rows.is_empty() {
            return Ok(());
        }
        rows.shuffle(&mut stream(self.seed, "rows", &[&self.shards.to_string()]));
        let names = Reason::ALL.map(Reason::as_str);
        let mut writer = ShardWriter::create_explained(
            &self.out.join(format!("{:05}.shard", self.shards)),
            Some(&self.tokenizer),
            &names,
        )?;
        for row in rows {
            self.count(&row, tally);
            let reasons = row.iter().flat_map(|(document, _)| &document.reasons).map(|reason| reason.code()).collect();
            let row = row_of(row.iter().map(|(document, origin)| (document, origin.id.as_str())));
            tally.weight_sum += row.total_weight();
            writer.push_explained(row, reasons)?;
        }
        writer.finish()?;
        self.shards += 1;
        Ok(())
    }

    /// Everything gathered, in rows.
    fn packed(&mut self, tally: &mut Tally) -> Vec<Vec<(Fitted, Origin)>> {
        let (gathered, bundles) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.bundles));
        let row_tokens = self.settings.row_tokens;
        if !bundles.is_empty() {
            let (rows, saved) = match self.settings.pack {
                true => pack_bundles(bundles, row_tokens),
                false => alone(bundles, row_tokens),
            };
            tally.add("tokens_shared", saved as u64);
            return rows;
        }
        let lengths: Vec<usize> = gathered.iter().map(|(document, _)| document.tokens.len()).collect();
        if !self.settings.pack {
            return gathered.into_iter().map(|document| vec![document]).collect();
        }
        let mut gathered: Vec<Option<(Fitted, Origin)>> = gathered.into_iter().map(Some).collect();
        let rows = pack(&lengths, row_tokens).into_iter();
        rows.map(|row| row.into_iter().filter_map(|document| gathered[document].take()).collect()).collect()
    }

    fn count(&self, row: &[(Fitted, Origin)], tally: &mut Tally) {
        let tokens: usize = row.iter().map(|(document, _)| document.tokens.len()).sum();
        let room = (self.settings.row_tokens - tokens) as f64 / tokens as f64;
        tally.add("rows", 1);
        tally.add("tokens", tokens as u64);
        for (document, origin) in row {
            let trained = document.weights.iter().filter(|&&weight| weight > 0.0).count() as u64;
            tally.add("trained_tokens", trained);
            let of = tally.of(origin.label);
            of.tokens += document.tokens.len() as u64;
            of.trained_tokens += trained;
            of.empty_tokens += room * document.tokens.len() as f64;
        }
    }
}

/// A row for each shared document.
fn alone(bundles: Vec<Bundle<Origin>>, row_tokens: usize) -> (Vec<Vec<(Fitted, Origin)>>, usize) {
    let (mut rows, mut saved) = (Vec::new(), 0);
    for Bundle { targets, origin } in bundles {
        let (documents, of_bundle) = crate::share::share(targets, row_tokens);
        saved += of_bundle;
        rows.extend(documents.into_iter().map(|document| vec![(document, origin.clone())]));
    }
    (rows, saved)
}

impl Sink for RowSink {
    fn take(&mut self, trajectory: &Trajectory, _turn: usize, rendered: Rendered, tally: &mut Tally) -> Result<()> {
        let RowSettings { row_tokens, long, stage, .. } = self.settings;
        let fit = match stage {
            Stage::Sft => fit_target(&rendered, row_tokens, long),
            Stage::Cpt | Stage::Rl => fit(&rendered, row_tokens, long),
        };
        let parts = self.counted(trajectory.domain.as_str(), &rendered, fit, tally);
        self.of_trajectory.extend(parts);
        Ok(())
    }

    fn end_trajectory(&mut self, trajectory: &Trajectory, tally: &mut Tally) -> Result<()> {
        let documents = std::mem::take(&mut self.of_trajectory);
        let origin = Origin { id: trajectory.trajectory_id.clone(), label: trajectory.domain.as_str() };
        if self.settings.share_history && !documents.is_empty() {
            self.tokens += documents.iter().map(|document| document.tokens.len()).sum::<usize>();
            self.bundles.push(Bundle { targets: documents, origin });
        } else {
            documents.into_iter().for_each(|document| self.gather(document, origin.clone()));
        }
        if self.tokens >= TOKENS_PER_SHARD { self.write(tally) } else { Ok(()) }
    }

    fn finish(&mut self, tally: &mut Tally) -> Result<f64> {
        self.write(tally)?;
        let capacity = tally.get("rows") as f64 * self.settings.row_tokens as f64;
        Ok(if capacity > 0.0 { 1.0 - tally.get("tokens") as f64 / capacity } else { 0.0 })
    }
}
