//! How long a curation takes and how much memory it needs: generates trajectories of about so many megabytes of text,
//! curates them with every rule on, and prints both.
//!
//! ```text
//! cargo run --release --example curation_scale -- FOLDER [MEGABYTES [THREADS]]
//! ```
//!
//! One trajectory in twenty is a copy, one in twenty a near duplicate; the rest are of words drawn by a seed. The
//! generated file is kept and used again.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use worldloom_curate::{
    CurateConfig, Decontaminate, Mixture, MixtureKey, NearDuplicates, PoolShares, Resources, Rules, SecretKind,
    Secrets, TurnMask, TurnsPerTrajectory, run,
};
use worldloom_schema::{
    ActionKind, Domain, ObservationKind, Outcome, System, TableWriter, Trajectory, Turn, trajectory_id,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(arguments.first().ok_or("a folder is missing")?);
    let megabytes: u64 = arguments.get(1).map_or(Ok(100), |text| text.parse())?;
    let resources = match arguments.get(2) {
        Some(threads) => Resources { num_threads: threads.parse()?, ..Resources::default() },
        None => Resources::default(),
    };
    fs_err::create_dir_all(folder)?;
    let input = folder.join(format!("generated-{megabytes}.parquet"));
    if !input.exists() {
        let started = Instant::now();
        let rows = generate(&input, megabytes)?;
        println!("generated {rows} trajectories in {:.1} s", started.elapsed().as_secs_f64());
    }
    let out = tempfile::tempdir_in(folder)?;
    let started = Instant::now();
    let report = run(&config(), &[input], &[], out.path(), resources, &|_, _| {})?;
    let seconds = started.elapsed().as_secs_f64();
    print!("{}", report.flow_table());
    println!("{megabytes} MB of text in {seconds:.1} s, {:.1} MB/s", megabytes as f64 / seconds);
    println!("memory at most {} MB", peak_memory_mb().map_or("?".into(), |peak| peak.to_string()));
    Ok(())
}

/// The most memory this process had, where the system says it.
fn peak_memory_mb() -> Option<u64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn config() -> CurateConfig {
    CurateConfig {
        seed: 1,
        pools: PoolShares { cpt: 0.6, sft: 0.2, rl: 0.2 },
        eval_groups: Vec::new(),
        eval_share: 0.05,
        group_pools: BTreeMap::new(),
        holdout_sources: Vec::new(),
        turn_mask: TurnMask::default(),
        turns_per_trajectory: TurnsPerTrajectory { sft: 1, rl: 1 },
        min_turns: 2,
        max_turns: 64,
        max_observation_chars: 100_000,
        max_action_chars: None,
        max_trajectory_chars: None,
        limits: BTreeMap::new(),
        drop_exact_duplicates: true,
        rules: Rules::default(),
        near_duplicates: Some(NearDuplicates { threshold: 0.8, shingle_words: 5, places: 128 }),
        decontaminate: Some(Decontaminate {
            against: Vec::new(),
            own_evaluation: true,
            run_words: 13,
            longest_run: 50,
            largest_share: 0.5,
        }),
        documents: None,
        secrets: Some(Secrets { kinds: SecretKind::ALL.into(), private_hosts: Vec::new(), allow: Vec::new() }),
        mixture: Some(Mixture { by: MixtureKey::Domain, alpha: 0.9, weights: BTreeMap::new() }),
    }
}

/// A number from a number, far from its neighbours' (splitmix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn generate(path: &Path, megabytes: u64) -> Result<u64> {
    let mut writer = TableWriter::create(path)?;
    let (mut bytes, mut row) = (0, 0);
    while bytes < megabytes * 1_000_000 {
        let trajectory = trajectory(row);
        bytes += trajectory.turns.iter().map(|turn| (turn.action.len() + turn.observation.len()) as u64).sum::<u64>();
        writer.push(trajectory)?;
        row += 1;
    }
    Ok(writer.finish()?)
}

fn trajectory(row: u64) -> Trajectory {
    // Copies take the text of an earlier row, near duplicates too but for their last line.
    let text_of = if row % 20 < 2 && row > 40 { row - 40 + (2 - row % 20) } else { row };
    let turns = 4 + mix(text_of) % 16;
    let mut turns: Vec<Turn> = (0..turns).map(|at| turn(mix(text_of * 1000 + at), at as u32)).collect();
    if row % 20 == 1
        && let Some(last) = turns.last_mut()
    {
        last.observation.push_str(&format!("\nline {row}"));
    }
    let system = System { task_description: "A terminal.".into(), ..System::default() };
    Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: format!("source-{}", row % 7),
        source_path: "generated".into(),
        source_row: row,
        format: "chat".into(),
        domain: Domain::ALL[(mix(row) % 7) as usize],
        task_group: format!("group-{}", mix(text_of) % 5000),
        licence: Some("MIT".into()),
        system,
        turns,
        outcome: Outcome::default(),
        pool: None,
    }
}

fn turn(seed: u64, index: u32) -> Turn {
    let word = |at: u64| format!("w{:x}", mix(seed ^ at) % 20_000);
    let words = 50 + seed % 1500;
    let observation = (0..words).map(|at| if at % 12 == 11 { "\n".into() } else { word(at) }).collect::<Vec<_>>();
    Turn {
        index,
        action: format!("cat {} # u{}@plum.io", word(1), seed % 1000),
        action_kind: ActionKind::Command,
        observation: observation.join(" "),
        observation_kind: ObservationKind::Text,
        reasoning: None,
        pre_state: None,
        trace: None,
        is_error: Some(false),
        truncated: false,
        flags: Vec::new(),
        keep_class: None,
        keep: None,
    }
}
