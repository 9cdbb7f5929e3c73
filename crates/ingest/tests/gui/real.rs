//! The real sources, where they are there: counts as in `docs/data.md` of the data, or why not, and hashes of turns.

use std::path::{Path, PathBuf};

use worldloom_schema::Trajectory;

use crate::common::{Output, config, ingest};

/// What a source must give.
struct Source {
    name: &'static str,
    formats: &'static [&'static str],
    trajectories: usize,
    turns: usize,
    /// Rejected rows by rule.
    rejects: &'static [(&'static str, u64)],
    /// Where the counts differ from those of the data's description: why.
    differs: &'static str,
    /// A file, which of its trajectories, and hashes of the first and last turn of that one.
    turn_hashes: &'static [(&'static str, usize, &'static str, &'static str)],
}

const SOURCES: [Source; 9] = [
    Source {
        name: "android-world-agents",
        formats: &["android-world"],
        trajectories: 10,
        turns: 67,
        rejects: &[("cut", 2)],
        differs: "58 turns there: the last action of nine runs counts here, `final_state` is the screen after it",
        turn_hashes: &[
            ("MarkorMoveNote_base_gpt-4.1-mini_8b0f1fc8.json", 0, "a4febd4a53f56052", "491b3d63fe77406d"),
            ("demo.json", 0, "46b2be7d125fa4ea", "4a22f7c6c597104c"),
        ],
    },
    Source {
        name: "android-world-mcts",
        formats: &["android-history"],
        trajectories: 5,
        turns: 86,
        rejects: &[],
        differs: "",
        turn_hashes: &[
            ("2025_01_08_17_09_50.history.json", 0, "3a8e979190c7f2d6", "fef54439192cea78"),
            ("2025_04_20_01_00_30.history.json", 0, "a76ff8a96535c8f1", "cfa9c8f7b790ad26"),
        ],
    },
    Source {
        name: "androidcontrol-uis1",
        formats: &["android-control"],
        trajectories: 104,
        turns: 497,
        rejects: &[("no_turns", 16)],
        differs: "120 trajectories there, 16 of them with one step and so without a screen after it",
        turn_hashes: &[
            ("android_control_evaluation_std.part1.jsonl", 0, "c89816e64e8cfaf3", "61541a9596b98df2"),
            ("android_control_evaluation_std.part1.jsonl", 57, "2d398316936fd8a5", "b06334603b7de567"),
        ],
    },
    Source {
        name: "autodroid",
        formats: &["autodroid-profiles", "droidbot-exploration"],
        trajectories: 172,
        turns: 1322,
        rejects: &[],
        differs: "",
        turn_hashes: &[
            ("notes.utg.yaml", 0, "38080009fbfdec99", "bf951f68be4b9692"),
            ("profile_no_answer.json", 2, "d6e173ea14924c88", "5ee756daaf032c8c"),
        ],
    },
    Source {
        name: "miniwob-demos",
        formats: &["miniwob"],
        trajectories: 16,
        turns: 95,
        rejects: &[],
        differs: "748 turns there, one an event of the browser; here the events of a click or of a word are one turn",
        turn_hashes: &[
            (
                "email-inbox-nl-turk_323Q6SJS8JAA5TITIXAJOB47KPNFHR_d4.json.gz",
                0,
                "9ea98335c1e206bb",
                "152d4991de2d5a86",
            ),
            ("flight.Alaska-auto_1024100131.json", 0, "323179975bfe9ded", "419fcba79a05b8df"),
        ],
    },
    Source {
        name: "opencua-recording",
        formats: &["agentnet-recording"],
        trajectories: 1,
        turns: 14,
        rejects: &[],
        differs: "13 turns there: the last action counts here, `a11y.jsonl` has the tree after it",
        turn_hashes: &[("recording-1", 0, "6cc8f9372157c8b1", "243ae05139fd6015")],
    },
    Source {
        name: "pc-agent",
        formats: &["pc-tracker"],
        trajectories: 1,
        turns: 7,
        rejects: &[],
        differs: "",
        turn_hashes: &[("free_task_20241126_161517.jsonl", 0, "3ce77149b441cc7b", "8ff432818238bafd")],
    },
    Source {
        name: "screenagent",
        formats: &["screenagent"],
        trajectories: 21,
        turns: 68,
        rejects: &[],
        differs: "188 turns there, one a step file; here plans, evaluations and negative examples are no turns",
        turn_hashes: &[
            ("048c56fa99ef42c0976064e7b5598962", 0, "45627c8073a25a91", "a49066a87c08928e"),
            ("435eea5cb01349269731b2c0a6787120", 0, "0c4d54305a02891f", "52a8048ff3f8f49a"),
        ],
    },
    Source {
        name: "agentnetbench",
        formats: &["agentnet-bench"],
        trajectories: 2,
        turns: 19,
        rejects: &[],
        differs: "",
        turn_hashes: &[
            ("s_7f27a11115e596eb.json", 0, "c7500423ea3a274e", "ab8ecbed81f08b27"),
            ("s_a96285eb665bef92.json", 0, "b38740a77fd176bd", "0f970281fca76297"),
        ],
    },
];

/// Where the data lies; none where it is not there, which is said.
#[expect(clippy::print_stderr, reason = "a person should know what was skipped")]
fn raw(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/raw").join(name);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: no real data at {}", path.display());
    None
}

#[test]
fn the_real_sources_give_what_their_description_counts() {
    let mut found_all = String::new();
    let mut expected = String::new();
    for source in &SOURCES {
        let Some(path) = raw(source.name) else { continue };
        let output = ingest(&config(&[path])).unwrap();
        found_all += &describe(source, &output);
        let rejects: Vec<String> = source.rejects.iter().map(|(rule, number)| format!("{rule} {number}")).collect();
        expected += &line(source, source.trajectories, source.turns, &rejects);
        for (file, row, first, last) in source.turn_hashes {
            expected += &format!("  {file} {row} {first} {last}\n");
        }
        let mut formats: Vec<&str> = output.trajectories.iter().map(|trajectory| trajectory.format.as_str()).collect();
        formats.sort_unstable();
        formats.dedup();
        assert_eq!(formats, source.formats, "{}", source.name);
    }
    for (found, expected) in found_all.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "all of it:\n{found_all}");
    }
}

fn line(source: &Source, trajectories: usize, turns: usize, rejects: &[String]) -> String {
    format!(
        "{}: {trajectories} trajectories, {turns} turns, rejects [{}] {}\n",
        source.name,
        rejects.join(", "),
        source.differs
    )
}

fn describe(source: &Source, output: &Output) -> String {
    let turns = output.trajectories.iter().map(|trajectory| trajectory.turns.len()).sum();
    let rejects: Vec<String> =
        output.report.rejects_by_rule.iter().map(|(rule, number)| format!("{rule} {number}")).collect();
    let mut text = line(source, output.trajectories.len(), turns, &rejects);
    for (file, row, ..) in source.turn_hashes {
        let mut from_file = output.trajectories.iter().filter(|trajectory| trajectory.source_path == *file);
        match from_file.nth(*row) {
            Some(trajectory) => {
                let (first, last) = turn_hashes(trajectory);
                text += &format!("  {file} {row} {first} {last}\n");
            }
            None => text += &format!("  {file} {row}: no such trajectory\n"),
        }
    }
    text
}

/// Hashes of the first and the last turn: action and observation.
fn turn_hashes(trajectory: &Trajectory) -> (String, String) {
    let hash = |turn: Option<&worldloom_schema::Turn>| {
        let text = turn.map_or(String::new(), |turn| format!("{}\n->\n{}", turn.action, turn.observation));
        blake3::hash(text.as_bytes()).to_hex()[..16].to_string()
    };
    (hash(trajectory.turns.first()), hash(trajectory.turns.last()))
}

#[test]
fn no_image_or_mark_of_the_next_action_is_in_an_observation() {
    for source in &SOURCES {
        let Some(path) = raw(source.name) else { continue };
        let output = ingest(&config(&[path])).unwrap();
        for turn in output.trajectories.iter().flat_map(|trajectory| &trajectory.turns) {
            let text = &turn.observation;
            assert!(!text.contains("recordingTarget") && !text.contains(";base64,"), "{text}");
        }
    }
}
