//! A model that answers turns.

use worldloom_model::Precision;
use worldloom_model::generate::Limits;
use worldloom_render::{ChatForm, FormSettings, PromptForm, Renderer, Stage, Templates};
use worldloom_world::{Answer, Asked, Decoding, Error, Fault, Question, WorldModel};

use crate::support::{Workplace, device, eval_episodes, tiny_config};

const DECODING: Decoding = Decoding { max_new_tokens: 6, temperature: 1.0, seed: 5 };

fn world(workplace: &Workplace, positions: usize) -> WorldModel {
    let (decoder, config) = workplace.decoder(3, positions);
    WorldModel::new(&decoder, config, workplace.renderer()).unwrap()
}

fn answer(world: &WorldModel, questions: &[Question<'_>], asked: Asked) -> Vec<Answer> {
    world.answer(questions, asked, &DECODING, &mut |_, _| ()).unwrap()
}

#[test]
fn an_answer_depends_on_its_place_and_not_on_the_batch() {
    let workplace = Workplace::new();
    let episodes = eval_episodes();
    let questions: Vec<Question<'_>> =
        episodes.iter().flat_map(|trajectory| (0..4).map(move |turn| Question { trajectory, turn })).collect();
    for asked in [Asked::Plain, Asked::Tagged] {
        let all = answer(&world(&workplace, 2048), &questions, asked);
        let narrow = Limits { max_active_sequences: 1, ..Limits::default() };
        assert_eq!(answer(&world(&workplace, 2048).with_limits(narrow), &questions, asked), all);
        assert_eq!(answer(&world(&workplace, 2048), &questions[..3], asked), all[..3]);
    }
}

#[test]
fn a_prompt_without_room_is_a_fault_and_keeps_the_others_in_place() {
    let workplace = Workplace::new();
    let episodes = eval_episodes();
    let question = |turn| Question { trajectory: &episodes[1], turn };
    let length = |turn| {
        let renderer = workplace.renderer();
        let rendered = renderer.render_prompt(&episodes[1], turn, Asked::Plain.style(&renderer)).unwrap();
        rendered.tokens.len()
    };
    // Room for the first two turns, and for one token after the second.
    assert!(length(1) < length(2));
    let world = world(&workplace, length(1) + 1);
    let answers = answer(&world, &[question(2), question(0), question(3), question(1)], Asked::Plain);
    let too_long = |answer: &Answer| answer.prediction == Err(Fault::PromptTooLong);
    assert_eq!(answers.iter().map(too_long).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(answers[0].completion, "");
    assert_eq!(Fault::PromptTooLong.as_str(), "prompt_too_long");
}

#[test]
fn progress_counts_every_question_once() {
    let workplace = Workplace::new();
    let episodes = eval_episodes();
    let questions: Vec<Question<'_>> = (0..4).map(|turn| Question { trajectory: &episodes[0], turn }).collect();
    let mut seen = Vec::new();
    let world = world(&workplace, 2048);
    world.answer(&questions, Asked::Plain, &DECODING, &mut |done, total| seen.push((done, total))).unwrap();
    assert_eq!(seen.last(), Some(&(4, 4)));
    assert!(seen.is_sorted() && seen.iter().all(|(_, total)| *total == 4));
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let workplace = Workplace::new();
    let config = tiny_config(8, 64);
    let decoder = worldloom_model::Decoder::init(&config, 1, &device());
    let error = WorldModel::new(&decoder, config, workplace.renderer()).err().unwrap();
    assert!(matches!(error, Error::Vocabulary { vocab_size: 8, .. }), "{error}");
    let missing = WorldModel::load(&workplace.path("absent"), &FormSettings::default(), Precision::F32, &device());
    let missing = missing.err().unwrap();
    assert!(missing.to_string().contains("absent"), "{missing}");
}

#[test]
fn a_loaded_model_is_asked_in_the_form_of_its_record_unless_told_otherwise() {
    let workplace = Workplace::new();
    let folder = workplace.model("model", 3, 100_000);
    let full = Templates::bundled("full").unwrap();
    let trained = Renderer::with_chat(workplace.renderer().tokenizer().clone(), full, ChatForm::Qwen3_5Think).unwrap();
    let episodes = eval_episodes();
    let question = Question { trajectory: &episodes[1], turn: 2 };
    let asked_of = |settings: &FormSettings, asked| {
        let model = WorldModel::load(&folder, settings, Precision::F32, &device()).unwrap();
        model.request_of(&question, asked, &DECODING).unwrap().unwrap().prompt
    };
    let tokens = |renderer: &Renderer, asked: Asked| {
        renderer.render_prompt(question.trajectory, question.turn, asked.style(renderer)).unwrap().tokens
    };
    let nothing_said = FormSettings::default();
    for asked in [Asked::Plain, Asked::Tagged] {
        // Without a record: the chat template of our tokenizers is ChatML.
        assert_eq!(asked_of(&nothing_said, asked), tokens(&workplace.renderer(), asked));
    }
    PromptForm::of(&trained, Stage::Sft).write(&folder).unwrap();
    for asked in [Asked::Plain, Asked::Tagged] {
        assert_ne!(tokens(&trained, asked), tokens(&workplace.renderer(), asked));
        assert_eq!(asked_of(&nothing_said, asked), tokens(&trained, asked));
        let said = FormSettings { chat: Some(ChatForm::Chatml), family: Some("compact".into()), templates: None };
        assert_eq!(asked_of(&said, asked), tokens(&workplace.renderer(), asked));
    }
}

#[test]
fn confidence_is_that_of_the_predicted_observation_alone() {
    let workplace = Workplace::new();
    let renderer = workplace.renderer();
    let stop = renderer.stop_tokens()[0];
    // What stands before the observation, the observation, and what closes it: each with its own log-prob.
    let confidence = |before: &str, observation: &str, after: &str, log_probs: [f32; 2], asked, stopped| {
        let [of_observation, of_closing] = log_probs;
        let (mut tokens, mut found): (Vec<u32>, Vec<f32>) = Default::default();
        for (text, log_prob) in [(before, -9.0), (observation, of_observation), (after, of_closing)] {
            let encoded = renderer.tokenizer().encode_trusted(text).unwrap();
            found.extend(vec![log_prob; encoded.len()]);
            tokens.extend(encoded);
        }
        tokens.push(stop);
        found.push(if after.is_empty() { of_closing } else { -9.0 });
        let answer = Answer::of_tokens(&renderer, (&tokens, &found), stopped, asked).unwrap();
        assert!(!stopped || answer.prediction.as_deref() == Ok(observation), "{answer:?}");
        answer.confidence
    };
    let near = |found: Option<f64>, log_prob: f64| {
        let found = found.unwrap();
        assert!((found - log_prob.exp()).abs() < 1e-9, "{found} and not {}", log_prob.exp());
    };
    let thought = "<think>\ncwd: ~\n</think>\n<predicted_observation>";
    let opened = format!("{thought}\n");
    let closed = "\n</predicted_observation>";
    for observation in ["a.txt\nb.txt", "héllo 👍🏽", "x"] {
        near(confidence(&opened, observation, closed, [-0.5, -9.0], Asked::Tagged, true), -0.5);
        near(confidence("", observation, "", [-0.5, -9.0], Asked::Plain, true), -0.5);
    }
    near(confidence(thought, "", &format!("\n{closed}"), [-9.0, -0.25], Asked::Tagged, true), -0.25);
    near(confidence("", "", "", [-9.0, -0.25], Asked::Plain, true), -0.25);
    assert_eq!(
        confidence(&opened, "a.txt", closed, [-0.5, -0.5], Asked::Tagged, false),
        None,
        "no prediction, no confidence"
    );
}
