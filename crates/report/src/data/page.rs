//! Trajectories as one HTML page without scripts or addresses: turns unfold, domain and source are chosen by style.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use worldloom_schema::{ActionKind, ObservationKind, Trajectory, Turn};

use super::filter::Filter;
use super::set::DataSet;
use super::stats::Stats;
use crate::error::Result;
use crate::html::{escape, grouped};
use crate::page::document;

/// The style of this page, beside that of all pages.
const STYLE: &str = include_str!("style.css");
/// Longer texts are cut on the page; the files have them whole.
const LONGEST_TEXT: usize = 20_000;
/// Characters of the task in the line of a trajectory.
const CHARS_OF_TASK: usize = 160;

/// What the page shows.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// Title of the page.
    pub title: String,
    /// Trajectories at most, spread evenly over those that the filter lets through.
    pub limit: u64,
}

/// The page.
pub fn page(set: &DataSet, filter: &Filter, options: &PageOptions) -> Result<String> {
    let mut stats = Stats::default();
    let mut found = 0;
    set.visit(filter, |_, trajectory| {
        found += 1;
        stats.add(&trajectory);
        ControlFlow::Continue(())
    })?;
    let mut shown = Vec::new();
    let mut number = 0;
    set.visit(filter, |_, trajectory| {
        if is_shown(number, found, options.limit) {
            shown.push(trajectory);
        }
        number += 1;
        ControlFlow::Continue(())
    })?;
    let sources: Vec<(String, String)> = choices(&shown);
    let articles: String = shown.iter().map(|trajectory| article(trajectory, &sources)).collect();
    let body = format!(
        "<header><h1>{}</h1><p>{} of {} trajectories ({} turns){}.</p></header>\n<section><pre>{}</pre></section>\n\
         {}<section>\n{articles}</section>\n",
        escape(&options.title),
        grouped(shown.len() as u64),
        grouped(found),
        grouped(stats.all.turns),
        if shown.len() as u64 == found { "" } else { ", evenly spread" },
        escape(&stats.table()),
        chooser(&sources)
    );
    let style = format!("{STYLE}{}", rules(&sources));
    Ok(document(&options.title, &style, &body))
}

/// Whether the trajectory of this number is among `limit` that are spread evenly over `found`.
fn is_shown(number: u64, found: u64, limit: u64) -> bool {
    let (number, found, limit) = (u128::from(number), u128::from(found), u128::from(limit));
    limit >= found || (number + 1) * limit / found > number * limit / found
}

/// Domain and source of what is shown, each pair once.
fn choices(shown: &[Trajectory]) -> Vec<(String, String)> {
    let pairs: BTreeMap<(String, String), ()> =
        shown.iter().map(|trajectory| ((trajectory.domain.to_string(), trajectory.source.clone()), ())).collect();
    pairs.into_keys().collect()
}

fn chooser(sources: &[(String, String)]) -> String {
    if sources.len() < 2 {
        return String::new();
    }
    let mut out = String::from("<nav><label><input type=\"radio\" name=\"show\" checked> all</label>");
    for (number, (domain, source)) in sources.iter().enumerate() {
        let label = format!("{} · {}", escape(domain), escape(source));
        out += &format!(" <label><input type=\"radio\" name=\"show\" id=\"source-{number}\"> {label}</label>");
    }
    out + "</nav>\n"
}

/// A chosen source hides the articles of the others.
fn rules(sources: &[(String, String)]) -> String {
    let rule =
        |number: usize| format!("body:has(#source-{number}:checked) article:not(.s{number}) {{ display: none; }}\n");
    (0..sources.len()).map(rule).collect()
}

fn article(trajectory: &Trajectory, sources: &[(String, String)]) -> String {
    let is_of =
        |(domain, source): &(String, String)| *domain == trajectory.domain.to_string() && *source == trajectory.source;
    let number = sources.iter().position(is_of).unwrap_or_default();
    let task: String = trajectory.system.task_description.chars().take(CHARS_OF_TASK).collect();
    let turns: String = trajectory.turns.iter().map(turn_html).collect();
    format!(
        "<article class=\"s{number}\"><details><summary><span class=\"badge\">{}</span><span class=\"badge\">{}</span>\
         <span class=\"badge\">{}</span> {}</summary>\n{}{turns}</details></article>\n",
        trajectory.domain,
        escape(&trajectory.source),
        if trajectory.turns.len() == 1 { "1 turn".into() } else { format!("{} turns", trajectory.turns.len()) },
        escape(&task),
        head(trajectory)
    )
}

/// What is known before the first turn.
fn head(trajectory: &Trajectory) -> String {
    let system = &trajectory.system;
    let (outcome, pool) = (&trajectory.outcome, trajectory.pool.map(|pool| format!(" · pool {pool}")));
    let reward = outcome.reward.map(|reward| format!(" · reward {reward}")).unwrap_or_default();
    let success = outcome.success.map(|success| format!(" · success {success}")).unwrap_or_default();
    let facts = format!(
        "{} · {} row {} · format {} · group {}{}{reward}{success}",
        trajectory.trajectory_id,
        trajectory.source_path,
        trajectory.source_row,
        trajectory.format,
        trajectory.task_group,
        pool.unwrap_or_default()
    );
    let part = |name: &str, text: Option<&str>| match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("<details><summary class=\"muted\">{name}</summary>{}</details>", block(text)),
        None => String::new(),
    };
    format!(
        "<p class=\"muted\">{}</p>\n{}{}{}{}\n",
        escape(&facts),
        part("task", Some(&system.task_description)),
        part("actions available", system.action_space.as_deref()),
        part("initial state", system.initial_state.as_deref()),
        part("simulation instruction", system.simulation_instruction.as_deref())
    )
}

fn turn_html(turn: &Turn) -> String {
    let mut badges: Vec<String> = turn.flags.clone();
    badges.extend((turn.is_error == Some(true)).then(|| "error".into()));
    badges.extend(turn.truncated.then(|| "truncated".into()));
    badges.extend(turn.keep.map(|keep| if keep { "kept".into() } else { "not kept".into() }));
    let badges: String = badges.iter().map(|badge| format!("<span class=\"badge\">{}</span>", escape(badge))).collect();
    let thoughts = match &turn.reasoning {
        Some(text) => format!("<details><summary class=\"muted\">thoughts</summary>{}</details>", block(text)),
        None => String::new(),
    };
    let prompt = if turn.action_kind == ActionKind::Command { "$ " } else { "" };
    let observation = match (turn.observation_kind, turn.observation.is_empty()) {
        (ObservationKind::Image, true) => "<pre class=\"muted\">(an image)</pre>".into(),
        (_, true) => "<pre class=\"muted\">(empty)</pre>".into(),
        _ => block(&turn.observation),
    };
    format!(
        "<h3>{} {badges}</h3>{thoughts}<pre class=\"action\">{prompt}{}</pre>{observation}\n",
        turn.index + 1,
        escape(&cut(&turn.action))
    )
}

fn block(text: &str) -> String {
    format!("<pre>{}</pre>", escape(&cut(text)))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => {
            let more = grouped(text[end..].chars().count() as u64);
            format!("{}\n… {more} more characters", &text[..end])
        }
        None => text.into(),
    }
}
