//! The stage: one pool in, rows or prompts out.

use std::path::{Path, PathBuf};

use rand::Rng;
use rayon::prelude::*;
use worldloom_schema::{TableReader, Trajectory};

use crate::config::RenderConfig;
use crate::error::{Error, Refusal, Result};
use crate::prompts::PromptSink;
use crate::renderer::{Rendered, Renderer};
use crate::report::{RenderReport, Tally};
use crate::rows::RowSink;
use crate::seeds::stream;
use crate::stage::Stage;
use crate::tokenizer::Tokenizer;

/// Trajectories rendered at once.
const TRAJECTORIES_PER_CHUNK: usize = 512;

/// Progress of a stage: trajectories done, and all of them.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// One document, made or refused.
pub(crate) struct Draft {
    pub(crate) turn: usize,
    pub(crate) version: u8,
    pub(crate) rendered: std::result::Result<Rendered, Refusal>,
}

/// Where documents go.
pub(crate) trait Sink {
    /// Takes a rendered document.
    fn take(&mut self, trajectory: &Trajectory, turn: usize, rendered: Rendered, tally: &mut Tally) -> Result<()>;
    /// Every document of the trajectory has been taken.
    fn end_trajectory(&mut self, _trajectory: &Trajectory, _tally: &mut Tally) -> Result<()> {
        Ok(())
    }
    /// Writes what is left and returns the waste.
    fn finish(&mut self, tally: &mut Tally) -> Result<f64>;
}

/// Renders the pool of the config's stage into `out`: `*.shard` for cpt and sft, `prompts.parquet` for rl, and
/// `report.json`. The bytes do not depend on the number of threads.
pub fn run(
    config: &RenderConfig,
    pools: &Path,
    tokenizer: &Path,
    out: &Path,
    progress: Progress,
) -> Result<RenderReport> {
    config.check()?;
    let templates = config.load_templates()?;
    let renderer = Renderer::new(Tokenizer::open(tokenizer)?, templates)?;
    let pool = pools.join(format!("{}.parquet", config.stage.pool()));
    let mut sink: Box<dyn Sink> = match config.stage {
        Stage::Rl => Box::new(PromptSink::create(out, config.prompt_tokens()?)?),
        Stage::Cpt | Stage::Sft => Box::new(RowSink::create(out, config.row_settings()?, config.seed)),
    };
    let mut tally = Tally::default();
    feed(config, &renderer, &pool, sink.as_mut(), &mut tally, progress)?;
    let waste = sink.finish(&mut tally)?;
    check_share(config, &pool, &tally)?;
    let report = report_of(config, &renderer, tally, waste);
    report.write(out)?;
    Ok(report)
}

fn feed(
    config: &RenderConfig,
    renderer: &Renderer,
    pool: &Path,
    sink: &mut dyn Sink,
    tally: &mut Tally,
    progress: Progress,
) -> Result<()> {
    let mut reader = TableReader::<Trajectory>::open(pool)?;
    let (mut done, total) = (0, reader.num_rows());
    loop {
        let chunk = reader.by_ref().take(TRAJECTORIES_PER_CHUNK).collect::<worldloom_schema::Result<Vec<_>>>()?;
        if chunk.is_empty() {
            return Ok(());
        }
        let drafts: Vec<Result<Vec<Draft>>> =
            chunk.par_iter().map(|trajectory| drafts_of(config, renderer, trajectory)).collect();
        for (trajectory, drafts) in chunk.iter().zip(drafts) {
            for draft in drafts? {
                take(trajectory, draft, sink, tally)?;
            }
            sink.end_trajectory(trajectory, tally)?;
        }
        done += chunk.len() as u64;
        tally.add("trajectories", chunk.len() as u64);
        progress(done, total);
    }
}

fn take(trajectory: &Trajectory, draft: Draft, sink: &mut dyn Sink, tally: &mut Tally) -> Result<()> {
    tally.add("documents", 1);
    match draft.rendered {
        Err(refusal) => {
            tally.drop_document(refusal, 0);
            Ok(())
        }
        Ok(rendered) => {
            *tally.versions.entry(format!("v{}", draft.version)).or_default() += 1;
            tally.add("tokens_rendered", rendered.tokens.len() as u64);
            tally.add("control_text_documents", u64::from(rendered.has_control_text));
            tally.length(rendered.tokens.len());
            sink.take(trajectory, draft.turn, rendered, tally)
        }
    }
}

/// All documents of one trajectory: itself for CPT, one per selected turn otherwise.
fn drafts_of(config: &RenderConfig, renderer: &Renderer, trajectory: &Trajectory) -> Result<Vec<Draft>> {
    let selected: Vec<usize> = match config.stage {
        Stage::Cpt => vec![0],
        _ => (0..trajectory.turns.len()).filter(|&turn| trajectory.turns[turn].keep == Some(true)).collect(),
    };
    if selected.is_empty() {
        let rendered = Err(Refusal::NoSelectedTurn);
        return Ok(vec![Draft { turn: 0, version: config.versions[0], rendered }]);
    }
    selected.into_iter().map(|turn| draft(config, renderer, trajectory, turn)).collect()
}

fn draft(config: &RenderConfig, renderer: &Renderer, trajectory: &Trajectory, turn: usize) -> Result<Draft> {
    // Documents that share a history share its template.
    let turn_name = if config.share_history { String::new() } else { turn.to_string() };
    let mut random = stream(config.seed, "template", &[&trajectory.trajectory_id, &turn_name]);
    let version = config.versions[random.random_range(0..config.versions.len() as u64) as usize];
    let rendered = match config.stage {
        Stage::Cpt => {
            let rendered = renderer.render_cpt(trajectory);
            rendered.map(|rendered| Rendered { action_weight: config.action_weight, ..rendered })
        }
        Stage::Sft => renderer.render_sft(trajectory, turn, version),
        Stage::Rl => renderer.render_rl(trajectory, turn, version),
    };
    match rendered {
        Ok(rendered) => Ok(Draft { turn, version, rendered: Ok(rendered) }),
        Err(Error::Refused { refusal, .. }) => Ok(Draft { turn, version, rendered: Err(refusal) }),
        Err(error) => Err(error),
    }
}

fn check_share(config: &RenderConfig, pool: &Path, tally: &Tally) -> Result<()> {
    let (documents, empty) = (tally.get("documents"), tally.empty_documents());
    let path = PathBuf::from(pool);
    if documents > 0 && empty as f64 / documents as f64 > config.max_empty_share {
        let (reasons, limit) = (tally.reasons(), config.max_empty_share);
        return Err(Error::TooManyEmpty { path, empty, documents, reasons, limit });
    }
    if tally.get("rows") + tally.get("prompts") == 0 {
        return Err(Error::NothingLeft { path, documents, reasons: tally.reasons() });
    }
    Ok(())
}

fn report_of(config: &RenderConfig, renderer: &Renderer, tally: Tally, waste: f64) -> RenderReport {
    assert_eq!(tally.lost_tokens(), 0, "every token is in a row or in the report; render counted wrongly");
    RenderReport {
        stage: config.stage,
        family: renderer.templates().family().into(),
        tokenizer: renderer.tokenizer().hash().into(),
        vocab_size: renderer.tokenizer().vocab_size() as u64,
        counts: tally.counts.iter().map(|(&name, &number)| (name.to_string(), number)).collect(),
        versions: tally.versions,
        weight_sum: tally.weight_sum,
        waste,
        dropped: tally.dropped,
        lengths: tally.lengths,
    }
}
