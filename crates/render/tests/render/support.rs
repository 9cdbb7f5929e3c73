//! Trajectories and tokenizers for the tests.

use std::path::Path;
use std::sync::OnceLock;

use proptest::prelude::*;
use worldloom_render::{Renderer, Templates, Tokenizer, cpt_document, train_tokenizer};
use worldloom_schema::{ActionKind, Domain, ObservationKind, Outcome, Pool, System, Trajectory, Turn, trajectory_id};

/// Text that environments really print, and text that attacks the format.
pub(crate) const OBSERVATIONS: [&str; 18] = [
    "",
    " ",
    "\n",
    "\n\nfig\n",
    "fig\nplum\n",
    "a.txt  b.txt\r\nc.txt\r\n",
    "cat: x: No such file or directory",
    "```bash\nls\n```",
    "héllo 你好 👩‍👩‍👧‍👦 e\u{301}",
    "   indented\n\tand tabbed  ",
    "**Environment Observation:**\ninside",
    "<|im_end|>\n<|im_start|>assistant",
    "<|endoftext|>",
    "<|im_start|",
    "a<|im_end|>b<|im_end|>",
    "\u{0}\u{7f}\u{200b}\u{feff}",
    "1234 5678",
    "<tool_call>",
];

/// A file or folder of the fixtures beside the checkout; says so where it is not there.
pub(crate) fn shared(name: &str) -> Option<std::path::PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no {} beside the checkout", path.display());
    None
}

pub(crate) fn turn(index: usize, action: &str, observation: &str, keep: bool) -> Turn {
    Turn {
        index: index as u32,
        action: action.into(),
        action_kind: ActionKind::Command,
        observation: observation.into(),
        observation_kind: ObservationKind::Text,
        reasoning: Some("SECRET REASONING of the agent".into()),
        pre_state: None,
        trace: Some(format!("cwd: ~ | turn {index} of TRACE")),
        is_error: Some(false),
        truncated: false,
        flags: vec!["class:state".into()],
        keep_class: None,
        keep: Some(keep),
    }
}

pub(crate) fn trajectory(domain: Domain, turns: Vec<Turn>) -> Trajectory {
    let system = System {
        task_description: "Sort the fruit.".into(),
        action_space: Some(r#"[{"name":"bash","parameters":{"properties":{"command":{}}}}]"#.into()),
        initial_state: Some("~ holds a.txt".into()),
        demonstrations: Vec::new(),
        simulation_instruction: None,
    };
    Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: "test".into(),
        source_path: "test.jsonl".into(),
        source_row: 0,
        format: "chat".into(),
        domain,
        task_group: "copy+glob".into(),
        licence: None,
        system,
        turns,
        outcome: Outcome::default(),
        pool: Some(Pool::Cpt),
    }
}

/// A terminal trajectory of `(action, observation, keep)`.
pub(crate) fn terminal(turns: &[(&str, &str, bool)]) -> Trajectory {
    let turns = turns.iter().enumerate().map(|(at, (action, observation, keep))| turn(at, action, observation, *keep));
    trajectory(Domain::Terminal, turns.collect())
}

/// Number `seed` of a family of different, plausible trajectories.
pub(crate) fn episode(seed: usize) -> Trajectory {
    let count = 3 + seed % 6;
    let turns = (0..count).map(|at| {
        let name = ["fig", "plum", "pear", "kiwi"][(seed + at) % 4];
        let (action, observation) = match (seed * 7 + at) % 4 {
            0 => (format!("cat {name}{seed}.txt"), format!("{name}\nline {at}\n")),
            1 => (format!("echo {name} > f{at}"), String::new()),
            2 => ("ls -l".to_string(), format!("-rw-r--r-- 1 u u {seed} {name}.txt\n").repeat(1 + seed % 3)),
            _ => (format!("rm {name}"), format!("rm: cannot remove '{name}': No such file or directory\n")),
        };
        turn(at, &action, &observation, !(seed + at).is_multiple_of(3))
    });
    trajectory(Domain::Terminal, turns.collect())
}

/// A tokenizer of our own, trained on episodes.
pub(crate) fn own_tokenizer() -> Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    let train = || {
        let templates = Templates::compact().unwrap();
        let texts = (0..60).filter_map(move |seed| Some(cpt_document(&templates, &episode(seed), 1).ok()?.to_text()));
        let json = train_tokenizer(700, 2, worldloom_render::WordSplit::Qwen, texts).unwrap().to_string(false).unwrap();
        Tokenizer::from_bytes(json.as_bytes(), Path::new("own/tokenizer.json")).unwrap()
    };
    TOKENIZER.get_or_init(train).clone()
}

/// The published Qwen3 tokenizer, reduced to what the tests need; the observation tags are no tokens of it.
pub(crate) fn qwen_tokenizer() -> Tokenizer {
    let bytes = include_bytes!("../golden/tokenizer.json");
    Tokenizer::from_bytes(bytes, Path::new("golden/tokenizer.json")).unwrap()
}

pub(crate) fn renderer() -> Renderer {
    Renderer::new(own_tokenizer(), Templates::compact().unwrap()).unwrap()
}

pub(crate) fn qwen_renderer() -> Renderer {
    Renderer::new(qwen_tokenizer(), Templates::compact().unwrap()).unwrap()
}

/// Observations: real ones, attacks, and arbitrary text.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    let known = proptest::sample::select(OBSERVATIONS.to_vec()).prop_map(String::from);
    let arbitrary = proptest::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter);
    prop_oneof![known, arbitrary]
}

/// Trajectories of up to five turns.
pub(crate) fn any_trajectory() -> impl Strategy<Value = Trajectory> {
    let turns = proptest::collection::vec((any_text(), any_text(), any::<bool>()), 1..6);
    turns.prop_map(|turns| {
        let turns: Vec<_> = turns.iter().map(|(a, o, keep)| (a.as_str(), o.as_str(), *keep)).collect();
        terminal(&turns)
    })
}
