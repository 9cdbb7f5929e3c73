//! Rows of cpt and sft: documents are gathered, packed, put in seeded order and written, one shard a gathering.

use std::path::{Path, PathBuf};

use rand::seq::SliceRandom;
use worldloom_schema::{ShardWriter, Trajectory};

use crate::config::RowSettings;
use crate::error::{Refusal, Result};
use crate::fit::{Fitted, fit};
use crate::pack::{pack, row_of};
use crate::renderer::Rendered;
use crate::report::Tally;
use crate::run::Sink;
use crate::seeds::stream;
use crate::share::share;

/// Tokens gathered before they are packed and written: bounds the memory, and the reach of packing and shuffling.
const TOKENS_PER_SHARD: usize = 1 << 25;

pub(crate) struct RowSink {
    out: PathBuf,
    settings: RowSettings,
    seed: u64,
    gathered: Vec<(Fitted, String)>,
    /// Documents of the trajectory at hand, where they share their history.
    of_trajectory: Vec<Fitted>,
    tokens: usize,
    shards: usize,
}

impl RowSink {
    pub(crate) fn create(out: &Path, settings: RowSettings, seed: u64) -> Self {
        Self { out: out.into(), settings, seed, gathered: Vec::new(), of_trajectory: Vec::new(), tokens: 0, shards: 0 }
    }

    fn gather(&mut self, trajectory: &Trajectory, documents: Vec<Fitted>) {
        for document in documents {
            self.tokens += document.tokens.len();
            self.gathered.push((document, trajectory.trajectory_id.clone()));
        }
    }

    fn write(&mut self, tally: &mut Tally) -> Result<()> {
        let gathered = std::mem::take(&mut self.gathered);
        self.tokens = 0;
        if gathered.is_empty() {
            return Ok(());
        }
        let lengths: Vec<usize> = gathered.iter().map(|(document, _)| document.tokens.len()).collect();
        let mut rows = if self.settings.pack {
            pack(&lengths, self.settings.row_tokens)
        } else {
            (0..gathered.len()).map(|document| vec![document]).collect()
        };
        rows.shuffle(&mut stream(self.seed, "rows", &[&self.shards.to_string()]));
        let mut writer = ShardWriter::create(&self.out.join(format!("{:05}.shard", self.shards)))?;
        for row in rows {
            let row = row_of(row.iter().map(|&document| (&gathered[document].0, gathered[document].1.as_str())));
            tally.add("rows", 1);
            tally.add("tokens", row.tokens.len() as u64);
            tally.add("trained_tokens", row.weights.iter().filter(|&&weight| weight > 0.0).count() as u64);
            tally.weight_sum += row.total_weight();
            writer.push(row)?;
        }
        writer.finish()?;
        self.shards += 1;
        Ok(())
    }
}

impl Sink for RowSink {
    fn take(&mut self, trajectory: &Trajectory, _turn: usize, rendered: Rendered, tally: &mut Tally) -> Result<()> {
        let length = rendered.tokens.len();
        let fit = fit(&rendered, self.settings.row_tokens, self.settings.long);
        tally.add("tokens_repeated", fit.repeated as u64);
        if fit.parts.is_empty() {
            let refusal = if fit.untrained > 0 { Refusal::NoTarget } else { Refusal::TooLong };
            tally.drop_document(refusal, fit.dropped + fit.untrained);
            return Ok(());
        }
        tally.add("tokens_cut", (fit.dropped + fit.untrained) as u64);
        tally.add("truncated", u64::from(length > self.settings.row_tokens));
        match self.settings.share_history {
            true => self.of_trajectory.extend(fit.parts),
            false => self.gather(trajectory, fit.parts),
        }
        Ok(())
    }

    fn end_trajectory(&mut self, trajectory: &Trajectory, tally: &mut Tally) -> Result<()> {
        let documents = std::mem::take(&mut self.of_trajectory);
        let (documents, saved) = share(documents, self.settings.row_tokens);
        tally.add("tokens_shared", saved as u64);
        self.gather(trajectory, documents);
        if self.tokens >= TOKENS_PER_SHARD { self.write(tally) } else { Ok(()) }
    }

    fn finish(&mut self, tally: &mut Tally) -> Result<f64> {
        self.write(tally)?;
        let capacity = tally.get("rows") as f64 * self.settings.row_tokens as f64;
        Ok(if capacity > 0.0 { 1.0 - tally.get("tokens") as f64 / capacity } else { 0.0 })
    }
}
