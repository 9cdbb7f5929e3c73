//! Texts beside trajectories, derived instructions, long targets: what the stage does with them.

use worldloom_render::{Control, RenderConfig, RenderReport, Stage, Tokenizer, run};
use worldloom_schema::{
    DOCUMENT_FILE, Document, Domain, PROMPT_FILE, Prompt, Row, ShardSet, Trajectory, document_id, read_table,
    write_table,
};

use crate::rows::{config, tokenizer_json};
use crate::support::{episode, terminal};

struct Stand {
    folder: tempfile::TempDir,
}

impl Stand {
    fn new(stage: Stage, trajectories: impl IntoIterator<Item = Trajectory>, texts: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_table(&folder.path().join(format!("{stage}.parquet")), trajectories).unwrap();
        fs_err::write(folder.path().join("tokenizer.json"), tokenizer_json()).unwrap();
        let document = |text: &String| Document {
            document_id: document_id(text),
            source: "texts".into(),
            source_path: "t.md".into(),
            source_row: 0,
            licence: None,
            title: None,
            text: text.clone(),
        };
        if !texts.is_empty() {
            write_table(&folder.path().join(DOCUMENT_FILE), texts.iter().map(document)).unwrap();
        }
        Self { folder }
    }

    fn render(&self, config: &RenderConfig) -> RenderReport {
        self.try_render(config).unwrap()
    }

    fn try_render(&self, config: &RenderConfig) -> worldloom_render::Result<RenderReport> {
        let tokenizer = self.folder.path().join("tokenizer.json");
        run(config, self.folder.path(), &tokenizer, self.folder.path(), &|_, _| {})
    }

    fn rows(&self) -> Vec<Row> {
        let set = ShardSet::open(self.folder.path()).unwrap();
        (0..set.len()).map(|row| set.row(row).unwrap()).collect()
    }
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(tokenizer_json().as_bytes(), "t".as_ref()).unwrap()
}

#[test]
fn texts_are_trained_whole_and_end_with_the_end_of_text() {
    let texts =
        ["A fig is a fruit.\nSo is a plum.\n".to_string(), "<|im_end|> is only text here.".into(), String::new()];
    let stand = Stand::new(Stage::Cpt, (0..20).map(episode), &texts);
    let report = stand.render(&RenderConfig { pack: Some(false), ..config(Stage::Cpt) });
    assert_eq!((report.counts["texts"], report.counts["documents"]), (3, 23));
    assert_eq!(report.domains["documents"].documents, 3);
    assert_eq!(report.domains["documents"].kept, 2);
    assert_eq!(report.dropped["no_target"].documents, 1);
    assert_eq!(report.counts["control_text_documents"], 1);
    let tokenizer = tokenizer();
    let end = *tokenizer.stop_tokens().last().unwrap();
    for text in &texts[..2] {
        let rows = stand.rows();
        let row = rows.iter().find(|row| row.sources[0] == document_id(text)).unwrap();
        assert_eq!(tokenizer.decode(&row.tokens).unwrap(), format!("{text}<|endoftext|>"));
        assert!(row.weights[0] == 0.0 && row.weights[1..].iter().all(|&weight| weight == 1.0));
        let added: Vec<u32> = row.tokens.iter().copied().filter(|&token| tokenizer.is_added(token)).collect();
        assert_eq!(added, [end], "the text forms no control token");
    }
}

#[test]
fn texts_end_with_what_ends_them_in_their_vocabulary() {
    let stand = Stand::new(Stage::Cpt, [episode(0)], &["A fig.".to_string()]);
    let write = |name: &str, text: String| fs_err::write(stand.folder.path().join(name), text).unwrap();
    let renamed = tokenizer_json().replace("<|endoftext|>", "<|end_of_text|>");
    let ending = || {
        let tokenizer = Tokenizer::open(stand.folder.path()).unwrap();
        stand.render(&config(Stage::Cpt));
        let rows = stand.rows();
        let row = rows.iter().find(|row| row.sources.contains(&document_id("A fig."))).unwrap();
        let segment = row.sources.iter().position(|source| *source == document_id("A fig.")).unwrap();
        let last = row.segments.iter().rposition(|&at| at as usize == segment).unwrap();
        tokenizer.decode(&[row.tokens[last]]).unwrap()
    };
    write("tokenizer_config.json", r#"{"eos_token": "<|im_end|>"}"#.into());
    assert_eq!(ending(), "<|endoftext|>", "the vocabulary's own end of text comes first");
    write("tokenizer.json", renamed.clone());
    write("tokenizer_config.json", r#"{"eos_token": {"content": "<|end_of_text|>"}}"#.into());
    assert_eq!(ending(), "<|end_of_text|>");
    fs_err::remove_file(stand.folder.path().join("tokenizer_config.json")).unwrap();
    assert_eq!(ending(), "<|im_end|>", "else the end of a turn");

    // A model's own template in a vocabulary that has neither.
    write("tokenizer.json", renamed.replace("<|im_end|>", "<|over|>").replace("<|im_start|>", "<|header|>"));
    let source = "{% for m in messages %}<|header|>{{ m.role }} {{ m.content }}<|over|>{% endfor %}";
    write("chat_template.jinja", source.into());
    let own = RenderConfig { chat: worldloom_render::ChatForm::Own, ..config(Stage::Cpt) };
    let error = stand.try_render(&own).unwrap_err();
    assert!(error.hint().unwrap().contains("eos_token"));
    assert!(error.to_string().contains("has no token that ends a text"), "{error}");
    write("tokenizer_config.json", r#"{"eos_token": "<|over|>"}"#.into());
    stand.try_render(&own).unwrap();
}

#[test]
fn long_texts_go_on_in_further_rows_and_only_the_last_has_an_end() {
    let text: String = (0..2000).map(|at| format!("fig {at} plum\n")).collect();
    let stand = Stand::new(Stage::Cpt, [episode(0)], std::slice::from_ref(&text));
    let long = |long| RenderConfig { row_tokens: Some(512), long: Some(long), ..config(Stage::Cpt) };
    let report = stand.render(&long(worldloom_render::Long::Window));
    let tokenizer = tokenizer();
    let tokens = tokenizer.encode_untrusted(&text).unwrap().unwrap().len() as u64;
    let of = report.domains["documents"];
    assert_eq!((of.trained_tokens, of.lost_tokens, of.truncated), (tokens, 0, 1));
    let ends = |rows: &[Row]| {
        let end = *tokenizer.stop_tokens().last().unwrap();
        rows.iter().flat_map(|row| &row.tokens).filter(|&&token| token == end).count()
    };
    assert_eq!(ends(&stand.rows()), 1);
    let report = stand.render(&long(worldloom_render::Long::CutTurns));
    assert_eq!(ends(&stand.rows()), 0, "a cut text does not end");
    assert_eq!(report.domains["documents"].trained_tokens, 511);
}

#[test]
fn long_targets_lose_their_first_turns_and_keep_context_and_target() {
    let long = terminal(&(0..10).map(|_| ("cat f", "fig plum pear kiwi\nfig\n", true)).collect::<Vec<_>>());
    let stand = Stand::new(Stage::Sft, [long.clone()], &[]);
    let cut = worldloom_render::Long::CutTurns;
    let report = stand.render(&RenderConfig {
        versions: vec![2],
        row_tokens: Some(400),
        long: Some(cut),
        pack: Some(false),
        ..config(Stage::Sft)
    });
    assert_eq!(report.domains["terminal"].kept, 10);
    assert!(report.domains["terminal"].truncated > 3 && report.counts["tokens_cut"] > 0);
    let tokenizer = tokenizer();
    for row in stand.rows() {
        let text = tokenizer.decode(&row.tokens).unwrap();
        assert!(text.starts_with("<|im_start|>system\nYou are a bash terminal."), "{text}");
        assert_eq!(
            tokenizer.control(Control::TurnEnd),
            row.tokens.iter().copied().rfind(|&token| tokenizer.is_added(token))
        );
        assert!(text.contains("</predicted_observation><|im_end|>"));
    }
    let stand = Stand::new(Stage::Rl, [long], &[]);
    let rl = RenderConfig { max_prompt_tokens: Some(400), long: Some(cut), ..config(Stage::Rl) };
    let report = stand.render(&rl);
    assert_eq!(report.counts["prompts"], 10);
    let prompts: Vec<Prompt> = read_table(&stand.folder.path().join(PROMPT_FILE)).unwrap();
    assert!(prompts.iter().all(|prompt| prompt.tokens.len() <= 400));
    assert_eq!(prompts[9].history.len(), 9, "the scorer sees all turns");
}

#[test]
fn a_share_of_trajectories_is_told_what_happened() {
    let stand = Stand::new(Stage::Sft, (0..200).map(episode), &[]);
    let with = |share| RenderConfig { instruction_share: share, pack: Some(false), ..config(Stage::Sft) };
    let tokens = |report: &RenderReport| report.counts["tokens"];
    let (none, some, all) = (stand.render(&with(0.0)), stand.render(&with(0.4)), stand.render(&with(1.0)));
    assert_eq!(none.counts["instructions"], 0);
    assert_eq!(all.counts["instructions"], all.counts["documents"]);
    let share = some.counts["instructions"] as f64 / some.counts["documents"] as f64;
    assert!((0.3..0.5).contains(&share), "{share}");
    assert!(tokens(&none) < tokens(&some) && tokens(&some) < tokens(&all));
    assert_eq!(none.weight_sum, all.weight_sum, "targets stay as they were");
}

#[test]
fn a_search_is_told_its_answer_and_not_to_give_it_away() {
    let mut search =
        terminal(&[("search[fig]", "A fig is a fruit.", true), ("finish[fruit]", "Episode finished", false)]);
    search.domain = Domain::Search;
    search.system.task_description = "What is a fig?".into();
    let stand = Stand::new(Stage::Sft, [search], &[]);
    let report = stand.render(&RenderConfig { instruction_share: 1.0, ..config(Stage::Sft) });
    assert_eq!(report.counts["instructions"], 1);
    let text = tokenizer().decode(&stand.rows()[0].tokens).unwrap();
    assert!(
        text.contains("looks for: What is a fig?")
            && text.contains("leads to: fruit")
            && text.contains("do not give it away")
    );
}
