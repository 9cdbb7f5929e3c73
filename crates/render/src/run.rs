//! The stage: one pool in, rows or prompts out.

use std::path::{Path, PathBuf};

use rand::Rng;
use rayon::prelude::*;
use worldloom_schema::{DOCUMENT_FILE, Document, TableReader, Trajectory};

use crate::config::{Long, RenderConfig};
use crate::error::{Error, Refusal, Result};
use crate::form::PromptForm;
use crate::instructions::instruction;
use crate::prompts::PromptSink;
use crate::renderer::{Rendered, Renderer};
use crate::report::{RenderReport, Tally};
use crate::rows::{RowSink, TEXTS};
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
    /// Parts of the trajectory that the template does not show.
    pub(crate) omitted: Vec<&'static str>,
    /// Whether it carries an instruction derived here.
    pub(crate) is_instructed: bool,
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

/// Renders the pool of the config's stage into `out`: `*.shard` for cpt and sft, `prompts.parquet` for rl,
/// `report.json`, and [`PromptForm`]'s record. cpt takes along the texts of `documents.parquet`, where that stands beside the pool. The bytes do not depend on the number of threads.
pub fn run(
    config: &RenderConfig,
    pools: &Path,
    tokenizer: &Path,
    out: &Path,
    progress: Progress,
) -> Result<RenderReport> {
    config.check()?;
    let templates = config.load_templates()?;
    let renderer = Renderer::with_chat(Tokenizer::open(tokenizer)?, templates, config.chat)?;
    let renderer = renderer.with_thinking(config.thinking);
    let pool = pools.join(format!("{}.parquet", config.stage.pool()));
    let mut tally = Tally::default();
    let waste = match config.stage {
        Stage::Rl => {
            let mut sink = PromptSink::create(out, config.prompt_tokens()?, config.long.unwrap_or(Long::Drop))?;
            feed(config, &renderer, &pool, &mut sink, &mut tally, progress)?;
            sink.finish(&mut tally)?
        }
        Stage::Cpt | Stage::Sft => {
            let mut sink = RowSink::create(out, config.row_settings()?, config.seed, renderer.tokenizer().hash());
            feed(config, &renderer, &pool, &mut sink, &mut tally, progress)?;
            let texts = pools.join(DOCUMENT_FILE);
            if config.stage == Stage::Cpt && texts.exists() {
                feed_texts(&renderer, &texts, &mut sink, &mut tally, progress)?;
            }
            sink.finish(&mut tally)?
        }
    };
    check_share(config, &pool, &tally)?;
    let report = report_of(config, &renderer, tally, waste);
    report.write(out)?;
    PromptForm::of(&renderer, config.stage).write(out)?;
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

/// Texts that are no trajectories: all of them is trained.
fn feed_texts(
    renderer: &Renderer,
    path: &Path,
    sink: &mut RowSink,
    tally: &mut Tally,
    progress: Progress,
) -> Result<()> {
    let mut reader = TableReader::<Document>::open(path)?;
    let (mut done, total) = (0, reader.num_rows());
    loop {
        let chunk = reader.by_ref().take(TRAJECTORIES_PER_CHUNK).collect::<worldloom_schema::Result<Vec<_>>>()?;
        if chunk.is_empty() {
            return Ok(());
        }
        let rendered: Vec<Result<Option<Rendered>>> =
            chunk.par_iter().map(|text| renderer.render_text(&text.text)).collect();
        for (text, rendered) in chunk.iter().zip(rendered) {
            tally.add("documents", 1);
            tally.of(TEXTS).documents += 1;
            match rendered? {
                None => tally.drop_document(TEXTS, Refusal::ControlFormed, 0),
                Some(rendered) if rendered.tokens.len() < 2 => tally.drop_document(TEXTS, Refusal::NoTarget, 0),
                Some(rendered) => {
                    tally.rendered(&rendered);
                    sink.take_text(&text.document_id, &rendered, tally)?;
                }
            }
        }
        done += chunk.len() as u64;
        tally.add("texts", chunk.len() as u64);
        progress(done, total);
    }
}

fn take(trajectory: &Trajectory, draft: Draft, sink: &mut dyn Sink, tally: &mut Tally) -> Result<()> {
    let label = trajectory.domain.as_str();
    tally.add("documents", 1);
    tally.of(label).documents += 1;
    match draft.rendered {
        Err(refusal) => {
            tally.drop_document(label, refusal, 0);
            Ok(())
        }
        Ok(rendered) => {
            *tally.versions.entry(format!("v{}", draft.version)).or_default() += 1;
            tally.add("instructions", u64::from(draft.is_instructed));
            draft.omitted.iter().for_each(|part| *tally.omitted.entry(part.to_string()).or_default() += 1);
            tally.rendered(&rendered);
            sink.take(trajectory, draft.turn, rendered, tally)
        }
    }
}

/// All documents of one trajectory: itself for CPT, one per selected turn otherwise.
fn drafts_of(config: &RenderConfig, renderer: &Renderer, trajectory: &Trajectory) -> Result<Vec<Draft>> {
    let is_kept = |turn: &usize| trajectory.turns[*turn].keep == Some(true);
    let kept: Vec<usize> = (0..trajectory.turns.len()).filter(is_kept).collect();
    let selected = if config.stage == Stage::Cpt { vec![0] } else { kept.clone() };
    if selected.is_empty() {
        let rendered = Err(Refusal::NoSelectedTurn);
        let (version, omitted) = (config.versions[0], Vec::new());
        return Ok(vec![Draft { turn: 0, version, omitted, is_instructed: false, rendered }]);
    }
    let instructed = instructed(config, trajectory, &kept);
    let is_instructed = instructed.is_some();
    let trajectory = instructed.as_ref().unwrap_or(trajectory);
    let drafts = selected.into_iter().map(|turn| draft(config, renderer, trajectory, turn));
    drafts.map(|draft| Ok(Draft { is_instructed, ..draft? })).collect()
}

/// The trajectory with an instruction derived from what happened, where the draw and the rules give it one.
fn instructed(config: &RenderConfig, trajectory: &Trajectory, turns: &[usize]) -> Option<Trajectory> {
    let has_own = trajectory.system.simulation_instruction.as_deref().is_some_and(|text| !text.trim().is_empty());
    let mut random = stream(config.seed, "instruction", &[&trajectory.trajectory_id]);
    if has_own || config.instruction_share == 0.0 || random.random::<f64>() >= config.instruction_share {
        return None;
    }
    let instruction = instruction(trajectory, turns, &mut random)?;
    let mut instructed = trajectory.clone();
    instructed.system.simulation_instruction = Some(instruction);
    Some(instructed)
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
        Stage::Sft => {
            let rendered = renderer.render_sft(trajectory, turn, version);
            rendered.map(|rendered| Rendered { history_weight: config.history_weight, ..rendered })
        }
        Stage::Rl => renderer.render_rl(trajectory, turn, version),
    };
    let omitted = renderer.templates().omitted(version, trajectory.domain, &trajectory.system);
    match rendered {
        Ok(rendered) => Ok(Draft { turn, version, omitted, is_instructed: false, rendered: Ok(rendered) }),
        Err(Error::Refused { refusal, .. }) => {
            Ok(Draft { turn, version, omitted, is_instructed: false, rendered: Err(refusal) })
        }
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
    let lost = tally.lost_documents();
    if lost as f64 / documents as f64 > config.max_lost_share {
        let (reasons, limit) = (tally.reasons(), config.max_lost_share);
        return Err(Error::TooManyLost { path, lost, documents, reasons, limit });
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
        templates: config
            .versions
            .iter()
            .filter_map(|&version| Some((format!("v{version}"), renderer.templates().hash(version)?.to_string())))
            .collect(),
        versions: tally.versions,
        omitted: tally.omitted,
        domains: tally.domains.iter().map(|(&label, &figures)| (label.to_string(), figures)).collect(),
        weight_sum: tally.weight_sum,
        waste,
        dropped: tally.dropped,
        lengths: tally.lengths,
        cuts: tally.cuts,
    }
}
