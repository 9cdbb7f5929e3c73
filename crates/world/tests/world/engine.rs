//! Conversations as prompts, the engine, and episodes played against it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use worldloom_render::{PromptStyle, RL_VERSION, Templates, bench_turn};
use worldloom_schema::Domain;
use worldloom_world::engine::{Ask, Engine, EngineConfig, Finish, Patience};
use worldloom_world::episode::{Episode, Play, Scenario};
use worldloom_world::{Asked, Error, Request, Role, Sampling, TextStream, WorldModel};

use crate::support::{Workplace, eval_episodes};

fn model(workplace: &Workplace) -> Arc<WorldModel> {
    let (decoder, config) = workplace.decoder(3, 2000);
    Arc::new(WorldModel::new(&decoder, config, workplace.renderer()).unwrap())
}

#[test]
fn a_row_of_the_benchmark_asked_as_a_conversation_is_the_prompt_that_training_saw() {
    let workplace = Workplace::new();
    let model = model(&workplace);
    let templates = Templates::compact().unwrap();
    for trajectory in eval_episodes() {
        for turn in 0..trajectory.turns.len() {
            let row = bench_turn(&templates, &trajectory, turn).unwrap().unwrap();
            let mut messages = vec![(Role::System, row.system.as_str())];
            for (prompt, response) in row.prompts.iter().zip(&row.responses) {
                messages.push((Role::User, prompt));
                messages.push((Role::Assistant, response));
            }
            messages.pop();
            let asked = model.chat_prompt(&messages, Asked::Tagged).unwrap().unwrap();
            let style = PromptStyle::Tagged { version: RL_VERSION };
            assert_eq!(asked, model.renderer().render_prompt(&trajectory, turn, style).unwrap().tokens);
        }
    }
}

fn ask(model: &WorldModel, text: &str, count: usize, stop_texts: Vec<String>) -> Ask {
    let prompt = model.chat_prompt(&[(Role::User, text)], Asked::Plain).unwrap().unwrap();
    let sampling = Sampling::plain(30, 1.0, model.renderer().tokenizer().stop_tokens());
    let request = Request { prompt, num_completions: count, seed: 9, sampling };
    Ask { request, num_most_probable: 0, stop_texts }
}

#[test]
fn the_engine_gives_the_completions_of_the_generator_to_many_askers_at_once() {
    let workplace = Workplace::new();
    let model = model(&workplace);
    let asks: Vec<Ask> = (0..12).map(|number| ask(&model, &format!("ls {}", number % 5), 2, vec![])).collect();
    let requests: Vec<Request> = asks.iter().map(|ask| ask.request.clone()).collect();
    let expected = model.generator().generate(&requests, &mut |_, _| ()).unwrap();
    let engine = Engine::start(model.clone(), EngineConfig::default()).unwrap();
    std::thread::scope(|scope| {
        for (ask, expected) in asks.into_iter().zip(&expected) {
            let (engine, model) = (&engine, &model);
            scope.spawn(move || {
                for (made, expected) in engine.complete(ask).unwrap().iter().zip(expected) {
                    let tokens: Vec<u32> = made.tokens.iter().map(|token| token.token).collect();
                    assert_eq!(tokens, expected.tokens);
                    assert_eq!(made.text, model.renderer().completion_text(&tokens).unwrap());
                    assert_eq!(made.finish, Some(if expected.stopped { Finish::Stop } else { Finish::Length }));
                }
            });
        }
    });
}

#[test]
fn a_text_stream_gives_the_whole_text_or_what_stands_before_a_stop_text() {
    let workplace = Workplace::new();
    let tokenizer = workplace.renderer().tokenizer().clone();
    for text in ["ls -l 👍🏽 é", "a\n\nb  c", "文字 and text", ""] {
        let tokens = tokenizer.encode_untrusted(text).unwrap().unwrap();
        let streamed = |stops: &[&str]| {
            let mut stream = TextStream::new(tokenizer.clone(), stops.iter().map(|stop| stop.to_string()).collect());
            let mut out: String = tokens.iter().map(|token| stream.push(*token).unwrap()).collect();
            out += &stream.finish().unwrap();
            (out, stream.is_stopped())
        };
        assert_eq!(streamed(&[]), (text.to_string(), false));
        assert_eq!(streamed(&["never there"]), (text.to_string(), false));
        for (at, stop) in text.char_indices().filter(|(at, _)| *at > 0) {
            let stop = format!("{stop}");
            let before = &text[..text.find(&stop).unwrap_or(at)];
            assert_eq!(streamed(&[&stop, ""]), (before.to_string(), true), "{text:?} before {stop:?}");
        }
    }
}

#[test]
fn an_episode_remembers_its_turns_and_takes_them_back() {
    let workplace = Workplace::new();
    let engine = Engine::start(model(&workplace), EngineConfig::default()).unwrap();
    let scenario = Scenario { max_turns: Some(4), ..Scenario::of(Domain::Terminal) };
    let mut episode = Episode::start(scenario).unwrap();
    episode.recall("touch a", "");
    episode.recall("ls", "a");
    episode.control("the disk is full");
    let trajectory = episode.trajectory();
    assert_eq!(trajectory.system.simulation_instruction.as_deref(), Some("the disk is full"));
    assert!(episode.undo());
    assert_eq!((episode.turns().len(), episode.turns()[0].action.as_str()), (1, "touch a"));
    let play = Play { asked: Asked::Plain, max_new_tokens: 4, temperature: 0.0, attempts: 1 };
    let step = episode.step(&engine, &play, "ls").unwrap();
    let added = usize::from(step.observation.is_ok());
    assert_eq!(episode.turns().len(), 1 + added, "a step without a prediction leaves the history as it was");
    assert!(episode.step(&engine, &play, "  ").is_err());
    (episode.turns().len()..4).for_each(|_| episode.recall("pwd", "/"));
    let error = episode.step(&engine, &play, "ls").unwrap_err().to_string();
    assert!(error.contains("over after 4 turns"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("episode.parquet");
    episode.save(&path).unwrap();
    let read = worldloom_schema::TableReader::<worldloom_schema::Trajectory>::open(&path).unwrap();
    assert_eq!(read.map(|row| row.unwrap().turns.len()).collect::<Vec<_>>(), [4]);
}

#[test]
fn scripts_are_played_to_their_end_whatever_the_model_says_and_the_same_each_time() {
    let workplace = Workplace::new();
    let engine = Engine::start(model(&workplace), EngineConfig::default()).unwrap();
    let play = Play { asked: Asked::Plain, max_new_tokens: 4, temperature: 0.0, attempts: 1 };
    let run = |threads| worldloom_world::horizon::play(&engine, &play, &eval_episodes(), 7, 100, threads, &|_, _| ());
    let horizon = run(4).unwrap();
    assert_eq!((horizon.episodes, horizon.steps, horizon.by_step.len()), (2, 8, 4));
    assert_eq!(run(1).unwrap(), horizon);
    assert!(horizon.agreement.mean <= 1.0 - horizon.faults as f64 / 8.0, "a fault never agrees");
}

#[test]
fn a_completion_that_breaks_off_is_an_error_and_no_answer() {
    let workplace = Workplace::new();
    let (decoder, config) = workplace.decoder(3, 2000);
    let broken = decoder.update_parameters(&mut |_, _, values| values.fill(f32::NAN));
    let model = Arc::new(WorldModel::new(&broken, config, workplace.renderer()).unwrap());
    let engine = Engine::start(model.clone(), EngineConfig::default()).unwrap();
    let error = engine.complete(ask(&model, "ls", 2, vec![])).unwrap_err();
    assert!(matches!(&error, Error::Completion { detail } if detail.contains("finite")), "{error}");
    let mut episode = Episode::start(Scenario::of(Domain::Terminal)).unwrap();
    let play = Play { asked: Asked::Plain, max_new_tokens: 4, temperature: 0.0, attempts: 1 };
    assert!(matches!(episode.step(&engine, &play, "ls"), Err(Error::Completion { .. })));
    assert_eq!(episode.turns().len(), 0);
}

#[test]
fn an_asker_whose_patience_ends_has_an_error_and_leaves_no_work_behind() {
    let workplace = Workplace::new();
    let model = model(&workplace);
    let engine = Engine::start(model.clone(), EngineConfig::default()).unwrap();
    let whole = || ask(&model, "ls", 2, vec![]);
    let gone = AtomicBool::new(true);
    let past = Patience { deadline: Some(Instant::now()), is_gone: None };
    assert!(matches!(engine.complete_until(whole(), past), Err(Error::TimedOut)));
    let given_up = Patience { deadline: None, is_gone: Some(&gone) };
    assert!(matches!(engine.complete_until(whole(), given_up), Err(Error::GivenUp)));
    gone.store(false, Ordering::Relaxed);
    assert_eq!(engine.complete_until(whole(), given_up).unwrap(), engine.complete(whole()).unwrap());
}
