//! Spans: tokens, weights and text say the same.

use proptest::prelude::*;
use worldloom_render::{
    ContextReason, Control, OBSERVATION_MARKER, PromptStyle, Reason, Rendered, Renderer, Templates, Tokenizer,
    TrainReason, plain_observation,
};
use worldloom_schema::{Domain, Trajectory};

use crate::rows::tokenizer_json;
use crate::support::{OBSERVATIONS, any_text, any_trajectory, qwen_renderer, renderer, terminal};

fn check_spans(rendered: &Rendered) {
    let mut end = 0;
    for span in &rendered.spans {
        assert_eq!(span.range.start, end, "spans follow each other");
        assert!(span.range.end > span.range.start, "no span is empty");
        end = span.range.end;
    }
    assert_eq!(end, rendered.tokens.len(), "spans cover all tokens");
    let weights = rendered.weights();
    assert_eq!(weights.len(), rendered.tokens.len());
    assert_eq!(weights[0], 0.0, "nothing predicts the first token");
    let trained = weights.iter().filter(|&&weight| weight > 0.0).count();
    assert_eq!(trained, rendered.trained_tokens().len());
}

/// Each trained answer ends in the stop token, and the line break after it is context.
fn check_stops(renderer: &Renderer, rendered: &Rendered, answers: usize) {
    let stop = renderer.tokenizer().control(Control::TurnEnd).unwrap();
    let mut stops = 0;
    for pair in rendered.spans.windows(2) {
        if pair[0].reason == Reason::Trained(TrainReason::Stop) {
            assert_eq!(&rendered.tokens[pair[0].range.clone()], &[stop]);
            assert_eq!(pair[1].reason, Reason::Context(ContextReason::Separator));
            stops += 1;
        }
    }
    assert_eq!(stops, answers);
}

fn cpt_expectation(trajectory: &Trajectory) -> (String, usize) {
    let kept: Vec<_> = trajectory.turns.iter().filter(|turn| turn.keep == Some(true)).collect();
    let text = kept.iter().map(|turn| format!("{OBSERVATION_MARKER}{}<|im_end|>", turn.observation)).collect();
    (text, kept.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn cpt_trains_marker_observation_and_stop_of_kept_turns(trajectory in any_trajectory()) {
        let renderer = renderer();
        let (expected, kept) = cpt_expectation(&trajectory);
        match renderer.render_cpt(&trajectory) {
            Ok(rendered) => {
                check_spans(&rendered);
                check_stops(&renderer, &rendered, kept);
                prop_assert_eq!(renderer.tokenizer().decode(&rendered.trained_tokens()).unwrap(), expected);
                prop_assert_eq!(rendered.turn_starts.len(), trajectory.turns.len());
            }
            Err(error) => {
                prop_assert_eq!(kept, 0);
                prop_assert!(error.to_string().contains("no_target"), "{}", error);
            }
        }
    }

    #[test]
    fn sft_trains_thinking_tags_observation_and_stop_of_the_target_only(
        trajectory in any_trajectory(), version in 2u8..12, pick in any::<prop::sample::Index>(), qwen in any::<bool>(),
    ) {
        let renderer = if qwen { qwen_renderer() } else { renderer() };
        let target = pick.index(trajectory.turns.len());
        let turn = &trajectory.turns[target];
        let rendered = renderer.render_sft(&trajectory, target, version).unwrap();
        check_spans(&rendered);
        check_stops(&renderer, &rendered, 1);
        let (trace, observation) = (turn.trace.as_deref().unwrap(), &turn.observation);
        let expected = format!(
            "<think>\n{trace}\n</think>\n<predicted_observation>\n{observation}\n</predicted_observation><|im_end|>"
        );
        let decoded = renderer.tokenizer().decode(&rendered.trained_tokens()).unwrap();
        if !qwen {
            prop_assert_eq!(decoded, expected);
        } else if observation.is_ascii() {
            // The published tokenizer normalises other text (NFC) before it encodes.
            prop_assert_eq!(decoded, expected);
        }
    }

    #[test]
    fn a_plain_prompt_is_the_beginning_of_the_cpt_row_and_its_completion_the_observation(
        mut trajectory in any_trajectory(), pick in any::<prop::sample::Index>(),
    ) {
        let renderer = renderer();
        let target = pick.index(trajectory.turns.len());
        trajectory.turns[target].keep = Some(true);
        let row = renderer.render_cpt(&trajectory).unwrap();
        let prompt = renderer.render_prompt(&trajectory, target, PromptStyle::Plain { version: 1 }).unwrap();
        prop_assert_eq!(&row.tokens[..prompt.tokens.len()], &prompt.tokens[..]);
        prop_assert!(prompt.trained_tokens().is_empty());
        let stop = renderer.tokenizer().control(Control::TurnEnd).unwrap();
        let rest = &row.tokens[prompt.tokens.len()..];
        let end = rest.iter().position(|&token| token == stop).unwrap();
        let completion = renderer.completion_text(&rest[..=end]).unwrap();
        prop_assert_eq!(&completion, &trajectory.turns[target].observation);
    }

    #[test]
    fn a_tagged_prompt_is_the_beginning_of_the_sft_row(
        trajectory in any_trajectory(), version in 2u8..12, pick in any::<prop::sample::Index>(), qwen in any::<bool>(),
    ) {
        let renderer = if qwen { qwen_renderer() } else { renderer() };
        let target = pick.index(trajectory.turns.len());
        let row = renderer.render_sft(&trajectory, target, version).unwrap();
        let prompt = renderer.render_prompt(&trajectory, target, PromptStyle::Tagged { version }).unwrap();
        prop_assert_eq!(&row.tokens[..prompt.tokens.len()], &prompt.tokens[..]);
        let first_trained = row.weights().iter().position(|&weight| weight > 0.0);
        prop_assert_eq!(first_trained, Some(prompt.tokens.len()));
    }

    #[test]
    fn observations_survive_the_round_trip(text in any_text()) {
        let tokenizer = renderer().tokenizer().clone();
        let tokens = tokenizer.encode_untrusted(&text).unwrap().unwrap();
        prop_assert_eq!(&tokenizer.decode(&tokens).unwrap(), &text);
        let answer = format!("{OBSERVATION_MARKER}{text}");
        prop_assert_eq!(plain_observation(&answer), text);
    }
}

#[test]
fn every_known_observation_is_a_cpt_target_and_reads_back() {
    let renderer = renderer();
    for observation in OBSERVATIONS {
        let rendered = renderer.render_cpt(&terminal(&[("ls", observation, true)])).unwrap();
        let answer = renderer.completion_text(&rendered.trained_tokens()).unwrap();
        assert_eq!(plain_observation(&answer), observation);
    }
}

#[test]
fn the_agents_reasoning_and_other_traces_are_never_written() {
    let renderer = renderer();
    let trajectory = terminal(&[("ls", "fig", true), ("cat fig", "plum", true)]);
    let cpt = renderer.tokenizer().decode(&renderer.render_cpt(&trajectory).unwrap().tokens).unwrap();
    let sft = renderer.tokenizer().decode(&renderer.render_sft(&trajectory, 1, 4).unwrap().tokens).unwrap();
    let prompt = renderer.render_prompt(&trajectory, 1, PromptStyle::Tagged { version: 0 }).unwrap();
    let prompt = renderer.tokenizer().decode(&prompt.tokens).unwrap();
    for text in [&cpt, &sft, &prompt] {
        assert!(!text.contains("SECRET"), "{text}");
    }
    assert!(!cpt.contains("TRACE") && !prompt.contains("TRACE"));
    assert_eq!(sft.matches("TRACE").count(), 1);
    assert!(sft.contains("turn 1 of TRACE"));
    assert_eq!(sft.matches(OBSERVATION_MARKER.trim()).count(), 1, "the marker stands in history, not inside the tags");
    assert_eq!(prompt.matches("Think first").count(), 1, "only the last user turn asks for tags");
    assert!(prompt.ends_with("<|im_start|>assistant\n"));
}

/// What is trained, by reason: neighbours of one reason together.
fn trained_by_reason(renderer: &Renderer, rendered: &Rendered) -> Vec<(&'static str, String)> {
    let trained = rendered.spans.iter().filter(|span| span.reason.is_trained());
    let mut parts: Vec<(&'static str, Vec<u32>)> = Vec::new();
    for span in trained {
        let tokens = &rendered.tokens[span.range.clone()];
        match parts.last_mut().filter(|(reason, _)| *reason == span.reason.as_str()) {
            Some((_, part)) => part.extend(tokens),
            None => parts.push((span.reason.as_str(), tokens.to_vec())),
        }
    }
    parts.into_iter().map(|(reason, tokens)| (reason, renderer.tokenizer().decode(&tokens).unwrap())).collect()
}

/// Our tokenizer without the tags.
fn without_tags() -> Renderer {
    let mut json: serde_json::Value = serde_json::from_str(&tokenizer_json()).unwrap();
    let tags = Control::TAGS.map(Control::as_str);
    let is_tag = |token: &serde_json::Value| tags.contains(&token["content"].as_str().unwrap());
    json["added_tokens"].as_array_mut().unwrap().retain(|token| !is_tag(token));
    tags.iter().for_each(|tag| drop(json["model"]["vocab"].as_object_mut().unwrap().remove(*tag)));
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes(), "untagged/tokenizer.json".as_ref()).unwrap();
    Renderer::new(tokenizer, Templates::compact().unwrap()).unwrap()
}

#[test]
fn tags_that_are_text_keep_their_reasons_apart() {
    let trajectory = terminal(&[("ls", "fig\nplum", true)]);
    let expected = [
        ("format", "<think>"),
        ("thinking", "\ncwd: ~ | turn 0 of TRACE\n"),
        ("format", "</think>\n<predicted_observation>"),
        ("observation", "\nfig\nplum\n"),
        ("format", "</predicted_observation>"),
        ("stop", "<|im_end|>"),
    ];
    let untagged = without_tags();
    let rendered = untagged.render_sft(&trajectory, 0, 2).unwrap();
    check_spans(&rendered);
    assert_eq!(trained_by_reason(&untagged, &rendered), expected.map(|(reason, text)| (reason, text.to_string())));
    let weights: Vec<f32> = rendered.spans.iter().map(|span| span.reason.weight()).collect();
    assert_eq!(weights.iter().filter(|&&weight| weight == 1.0).count(), 6, "one span a part");
    // Where the tags of thinking are tokens, the others are text all the same. A token has the reason of the part in which
    // it starts: `>` takes the line break after it along.
    let qwen = qwen_renderer();
    let rendered = qwen.render_sft(&trajectory, 0, 2).unwrap();
    let parts = trained_by_reason(&qwen, &rendered);
    let reasons: Vec<&str> = parts.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["format", "thinking", "format", "observation", "format", "stop"]);
    assert_eq!(parts[3].1, "fig\nplum\n");
    // With tags that are tokens, every part is a piece of its own.
    let own = renderer();
    let parts = trained_by_reason(&own, &own.render_sft(&trajectory, 0, 2).unwrap());
    assert_eq!(parts[3], ("observation", "\nfig\nplum\n".to_string()));
}

#[test]
fn the_row_form_is_the_benchmarks() {
    let renderer = renderer();
    let mut trajectory = terminal(&[("ls", "fig", true), ("echo '```'", "", true)]);
    trajectory.turns[0].pre_state = Some("$ ".into());
    let text = renderer.tokenizer().decode(&renderer.render_cpt(&trajectory).unwrap().tokens).unwrap();
    let (_, turns) = text.split_once("<|im_end|>\n").unwrap();
    expect_test::expect![[r#"
        <|im_start|>user
        ### Turn 1

        **Current State:**
        $ 

        **Action:**
        ```bash
        ls
        ```<|im_end|>
        <|im_start|>assistant
        **Environment Observation:**
        fig<|im_end|>
        <|im_start|>user
        ### Turn 2

        **Action:**
        ````bash
        echo '```'
        ````<|im_end|>
        <|im_start|>assistant
        **Environment Observation:**
        <|im_end|>
    "#]]
    .assert_eq(turns);
}

#[test]
fn a_phone_shows_its_state_and_a_desktop_its_task_in_words_of_their_own() {
    let renderer = renderer();
    let turns = |domain: Domain| {
        let mut trajectory = terminal(&[("tap(1)", "a", true), ("tap(2)", "b", true)]);
        trajectory.domain = domain;
        trajectory.turns[0].pre_state = Some("home".into());
        let text = renderer.tokenizer().decode(&renderer.render_cpt(&trajectory).unwrap().tokens).unwrap();
        let turns: Vec<String> = text.split("<|im_start|>user\n").skip(1).map(String::from).collect();
        let is_as_bench = |turn: usize| {
            let templates = Templates::compact().unwrap();
            let row = worldloom_render::bench_turn(&templates, &trajectory, turn).unwrap().unwrap();
            turns[turn].starts_with(&row.current_prompt)
        };
        assert!(is_as_bench(0) && is_as_bench(1), "the benchmark's rows are written alike");
        turns
    };
    let action = "**Action:**\n```bash\ntap(";
    let phone = turns(Domain::Android);
    assert!(
        phone[0].starts_with(&format!("### Turn 1\n\n**Current Phone State:**\nhome\n\n{action}1")),
        "{}",
        phone[0]
    );
    let desktop = turns(Domain::Os);
    let task = "**Task Instruction:**\nSort the fruit.\n\n**Current State:**\nhome\n\n";
    assert!(desktop[0].starts_with(&format!("### Turn 1\n\n{task}{action}1")), "{}", desktop[0]);
    assert!(desktop[1].starts_with(&format!("### Turn 2\n\n{action}2")), "the task stands in the first turn only");
    let web = turns(Domain::Web);
    assert!(web[0].starts_with(&format!("### Turn 1\n\n**Current State:**\nhome\n\n{action}1")), "{}", web[0]);
}

#[test]
fn a_turn_that_does_not_exist_is_an_error() {
    let error = renderer().render_sft(&terminal(&[("ls", "fig", true)]), 3, 2).unwrap_err().to_string();
    assert!(error.contains("has 1 turns, turn 3"), "{error}");
}
