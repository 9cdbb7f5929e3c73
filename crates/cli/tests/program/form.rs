//! Models trained in another form than ChatML and `compact`, end to end: the form reaches everything that asks.

use std::path::Path;

use serde_json::Value;

use crate::support::{made, root, stderr, worldloom};

/// The smoke pipeline up to its export, in Qwen3.5's format and with templates of the user's, in a folder of its own.
struct Road {
    folder: tempfile::TempDir,
}

impl Road {
    fn run() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = fs_err::read_to_string(root().join("pipelines/smoke.toml")).unwrap();
        let text = text.split("[[step]]\nname = \"evaluate\"").next().unwrap();
        let words = folder.path().join("words");
        fs_err::create_dir(&words).unwrap();
        for version in 0..12 {
            let text = format!("A shell, told in way {version}: {{{{ state }}}}\n{{{{ initial_state }}}}");
            fs_err::write(words.join(format!("v{version}.jinja")), text).unwrap();
        }
        let form = format!("templates = \"{}\", chat = \"qwen3_5_think\", versions", words.display());
        let text =
            text.replace("\"../", &format!("\"{}/", root().display())).replace("family = \"compact\", versions", &form);
        let road = Self { folder };
        fs_err::write(road.path("road.toml"), text).unwrap();
        let output = worldloom(&["run", &road.path("road.toml"), "--runs", &road.path("runs")]);
        assert!(output.status.success(), "{}", stderr(&output));
        // Nothing but the models themselves says how they are asked.
        fs_err::remove_dir_all(words).unwrap();
        road
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn made(&self, step: &str) -> String {
        made(&self.folder.path().join("runs"), step)
    }

    /// Runs and expects one `error:` line with these words.
    fn refuses(&self, arguments: &[&str], words: &[&str]) {
        let output = worldloom(arguments);
        let text = stderr(&output);
        assert!(!output.status.success(), "{arguments:?}");
        for word in words {
            assert!(text.contains(word), "{arguments:?}: no `{word}` in: {text}");
        }
    }
}

fn record(folder: &str) -> Value {
    serde_json::from_slice(&fs_err::read(Path::new(folder).join("prompt_form.json")).unwrap()).unwrap()
}

#[test]
fn the_form_of_rows_reaches_the_export_and_everything_that_asks_it() {
    let road = Road::run();
    let expected = record(&road.made("rows-sft"));
    assert_eq!((&expected["chat"], &expected["family"]), (&"qwen3_5_think".into(), &"words".into()));
    for folder in [format!("{}/model", road.made("sft")), format!("{}/model", road.made("rl")), road.made("export")] {
        assert_eq!(record(&folder), expected, "{folder}");
    }
    let cpt = record(&format!("{}/model", road.made("cpt")));
    assert_eq!((&cpt["chat"], &cpt["thinking"]), (&expected["chat"], &Value::Null), "cpt does not think");

    // A form that is said must be one that exists; another one than the record's is told.
    let (model, pools) = (road.made("export"), road.made("curate"));
    let ask = |chat: &[&str]| {
        let out = road.path(&format!("evaluation{}", chat.concat().len()));
        let settings = ["--set", "seed=1", "--set", "max_turns=2", "--set", "max_new_tokens=2", "--set", "resamples=2"];
        let arguments = ["evaluate", "pool", "--pools", &pools, "--sft", &model, "--out", &out];
        worldloom(&[&arguments[..], &settings, chat].concat())
    };
    let output = ask(&[]);
    assert!(output.status.success() && !stderr(&output).contains("WARN"), "{}", stderr(&output));
    let output = ask(&["--set", "chat=chatml"]);
    assert!(output.status.success() && stderr(&output).contains("asked in `chatml`"), "{}", stderr(&output));
    road.refuses(&["simulate", "--model", &model, "--chat", "qwen4"], &["qwen4", "qwen3_5_nothink"]);

    // Prompts and rows of another form, and another tokenizer.
    let tokenizer = road.made("tokenizer");
    let render = |name: &str, settings: &[&str]| {
        let out = road.path(name);
        let arguments = ["render", "--pools", &pools, "--tokenizer", &tokenizer, "--out", &out];
        let set: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let output = worldloom(&[&arguments[..], &set].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        out
    };
    let common = ["family=compact", "seed=3", "max_empty_share=0.05"];
    let prompts = render("prompts", &[&common[..], &["stage=rl", "versions=[0]", "max_prompt_tokens=1024"]].concat());
    let rows = render(
        "rows",
        &[&common[..], &["stage=cpt", "versions=[1]", "row_tokens=1024", "long=drop", "pack=true"]].concat(),
    );
    fs_err::write(
        road.path("rl.toml"),
        fs_err::read_to_string(road.path("road.toml")).unwrap().split("[step.config.scorer]").nth(1).map_or_else(
            String::new,
            |text| {
                let text = text.split("[[step]]").next().unwrap();
                format!("[scorer]{}", text.replace("[step.config.train]", "[train]"))
            },
        ),
    )
    .unwrap();
    let (sft, out) = (road.made("sft"), road.path("out"));
    road.refuses(
        &["train", "rl", "--config", &road.path("rl.toml"), "--model", &sft, "--prompts", &prompts, "--out", &out],
        &["templates `compact`, the model was trained with other texts, `words`", "hint: render the prompts"],
    );
    fs_err::write(
        road.path("cpt.toml"),
        "steps = 1\nrows_per_step = 1\nrows_per_micro_batch = 1\nseed = 1\nmixture = { rows = 1, rows-2 = 1 }\n\
         optimizer = { learning_rate = 1e-3, weight_decay = 0.1, clip_norm = 1.0 }\n\
         schedule = { shape = \"constant\", warmup_steps = 0 }\ncheckpoints = { every = 100, keep = 1 }\n",
    )
    .unwrap();
    let (base, own) = (road.made("base"), road.made("rows-cpt"));
    let train = ["train", "cpt", "--config", &road.path("cpt.toml"), "--model", &base, "--out", &out];
    road.refuses(&[&train[..], &["--rows", &own, "--rows-2", &rows]].concat(), &["a model has one form", "`chatml`"]);
    fs_err::write(
        format!("{base}/tokenizer.json"),
        fs_err::read_to_string(format!("{base}/tokenizer.json")).unwrap() + " ",
    )
    .unwrap();
    road.refuses(&[&train[..], &["--rows", &own, "--rows-2", &own]].concat(), &["rendered with a tokenizer of hash"]);
}
