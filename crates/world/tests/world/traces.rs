//! Traces and instructions by a teacher: the best thinking is kept, everything is counted, nothing is asked twice.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use worldloom_judge::endpoint::scripted::{Answer, Seen, Server};
use worldloom_schema::{Domain, Pool, Trajectory, read_table, write_table};
use worldloom_world::instruct::{InstructConfig, InstructInputs, InstructReport, instruct};
use worldloom_world::traces::{TraceConfig, TraceInputs, TraceReport, trace};
use worldloom_world::{Error, JudgePlace, Result};

use crate::support::{Workplace, device, eval_episodes};

/// The evaluation episodes as an SFT pool without traces; the last turn is not kept.
fn pool() -> Vec<Trajectory> {
    let mut episodes = eval_episodes();
    for episode in &mut episodes {
        episode.pool = Some(Pool::Sft);
        episode.turns.iter_mut().for_each(|turn| turn.trace = None);
        episode.turns[3].keep = Some(false);
    }
    episodes
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(pool: Vec<Trajectory>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("out")).unwrap();
        write_table(&folder.path().join("sft.parquet"), pool).unwrap();
        Self { folder }
    }

    fn out(&self) -> std::path::PathBuf {
        self.folder.path().join("out")
    }

    fn trace(&self, config: &Value) -> Result<TraceReport> {
        let config: TraceConfig = serde_json::from_value(config.clone()).unwrap();
        let (device, out) = (device(), self.out());
        let place = JudgePlace { folder: &out, key: &|_| None, device: &device };
        let (pool, stop) = (self.folder.path().join("sft.parquet"), AtomicBool::new(false));
        let inputs = TraceInputs { pool: &pool, files: "", place: &place, stop: &stop, progress: &|_, _| () };
        trace(&config, &inputs, &out)
    }

    /// Writes another pool in place of the one there is.
    fn put(&self, pool: Vec<Trajectory>) {
        write_table(&self.folder.path().join("sft.parquet"), pool).unwrap();
    }

    fn instruct(&self, config: &Value) -> Result<InstructReport> {
        let config: InstructConfig = serde_json::from_value(config.clone()).unwrap();
        let (device, out) = (device(), self.out());
        let place = JudgePlace { folder: &out, key: &|_| None, device: &device };
        let stop = AtomicBool::new(false);
        let pools = self.folder.path();
        instruct(&config, &InstructInputs { pools, place: &place, stop: &stop, progress: &|_, _| () }, &out)
    }

    fn written(&self) -> Vec<Trajectory> {
        read_table(&self.out().join("sft.parquet")).unwrap()
    }
}

fn teacher(server: &Server) -> Value {
    let endpoint = json!({"url": server.url(), "model": "t", "attempts": 1, "first_pause_s": 0.001, "concurrency": 1});
    json!({"kind": "http", "endpoint": endpoint})
}

fn tracing(server: &Server) -> Value {
    json!({"teacher": teacher(server), "min_score": 4.0, "family": "compact"})
}

/// An answer with its thinking apart.
fn thought(reasoning: &str, prediction: &str) -> Answer {
    let content = format!("<predicted_observation>\n{prediction}\n</predicted_observation>");
    let message = json!({"role": "assistant", "content": content, "reasoning_content": reasoning});
    Answer::json(&json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}))
}

fn question(seen: &Seen) -> String {
    seen.body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_string()
}

/// What really comes of the action that is asked about.
fn truth(seen: &Seen) -> String {
    let episode = &eval_episodes()[usize::from(!seen.body.to_string().contains("echo hi"))];
    let question = question(seen);
    let asked = |turn: &&worldloom_schema::Turn| question.contains(&format!("### Turn {}\n", turn.index + 1));
    episode.turns.iter().find(asked).unwrap().observation.clone()
}

/// A teacher whose first answer has no tags, whose second is wrong, and whose third is right.
fn improving() -> Server {
    let asked: Mutex<HashMap<String, usize>> = Mutex::new(HashMap::new());
    Server::start(move |seen| {
        let question = seen.body["messages"].to_string();
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(question).or_default();
        *times += 1;
        match *times {
            1 => Answer::chat("It will print something."),
            2 => thought("A guess.", "no such thing anywhere"),
            _ => thought("The shell does as it is told.", &truth(seen)),
        }
    })
    .unwrap()
}

#[test]
fn the_thinking_of_the_best_prediction_becomes_the_trace_and_a_second_run_asks_nobody() {
    let (place, server) = (Place::new(pool()), improving());
    let report = place.trace(&tracing(&server)).unwrap();
    assert_eq!((report.queries, report.traced, report.untraced, report.unavailable), (6, 6, 0, 0));
    assert_eq!(
        report.candidates,
        [("below_min_score", 6), ("kept", 6), ("missing_tag", 6)].map(|(k, v)| (k.into(), v)).into()
    );
    assert_eq!(report.mean_score, Some(5.0));
    assert_eq!((report.domains["terminal"].queries, report.domains["terminal"].traced), (6, 6));
    for (before, after) in pool().into_iter().zip(place.written()) {
        for (before, after) in before.turns.into_iter().zip(after.turns) {
            let expected = (before.keep == Some(true)).then(|| "The shell does as it is told.".to_string());
            assert_eq!(after, worldloom_schema::Turn { trace: expected, ..before }, "nothing else is touched");
        }
    }
    let (asked, bytes) = (server.seen().len(), fs_err::read(place.out().join("sft.parquet")).unwrap());
    assert_eq!(asked, 18);
    // A run that was killed in the middle of a line goes on, and pays for nothing twice.
    let lines = fs_err::read_to_string(place.out().join("traces.jsonl")).unwrap();
    fs_err::write(place.out().join("traces.jsonl"), &lines[..lines.len() * 2 / 3]).unwrap();
    assert_eq!(place.trace(&tracing(&server)).unwrap(), report);
    assert_eq!(place.trace(&tracing(&server)).unwrap(), report);
    assert_eq!((server.seen().len(), fs_err::read(place.out().join("sft.parquet")).unwrap()), (asked, bytes));
}

#[test]
fn the_teacher_sees_the_prompt_of_sft_and_never_the_truth() {
    let (place, server) = (Place::new(pool()), improving());
    place.trace(&tracing(&server)).unwrap();
    let templates = worldloom_render::Templates::compact().unwrap();
    for seen in server.seen() {
        let messages = seen.body["messages"].as_array().unwrap().clone();
        assert_eq!(messages[0]["role"], "system");
        let is_of_sft = |system: &str| {
            eval_episodes()
                .iter()
                .any(|episode| templates.system_prompt(2, episode.domain, &episode.system).unwrap() == system)
        };
        assert!(is_of_sft(messages[0]["content"].as_str().unwrap()), "a template of SFT");
        assert!(question(&seen).contains("<predicted_observation>"), "the words that ask for tags");
        assert!(messages.len() % 2 == 0, "system, then actions and observations, an action last");
        let history = &messages[1..messages.len() - 1];
        assert!(history.iter().skip(1).step_by(2).all(|message| {
            message["role"] == "assistant"
                && message["content"].as_str().unwrap().starts_with("**Environment Observation:**")
        }));
        if question(&seen).contains("cat nothing") {
            assert!(!seen.body.to_string().contains("No such file"));
        }
    }
}

#[test]
fn traces_that_are_there_stay_and_turns_that_cannot_be_trained_are_no_queries() {
    let mut pool = pool();
    pool[0].turns[0].trace = Some("A note of the recorder.".into());
    pool[0].turns[1].observation = "</predicted_observation>".into();
    let (place, server) = (Place::new(pool), improving());
    let report = place.trace(&tracing(&server)).unwrap();
    assert_eq!((report.had_before, report.not_trainable, report.queries), (1, 1, 4));
    let written = place.written();
    assert_eq!(written[0].turns[0].trace.as_deref(), Some("A note of the recorder."));
    assert_eq!(written[0].turns[1].trace, None);
}

#[test]
fn a_trace_that_is_there_and_had_the_answer_becomes_a_query() {
    let mut pool = pool();
    pool.truncate(1);
    let truth = "total 8\n-rw-r--r-- 1 u u 12 fig.txt\n-rw-r--r-- 1 u u 40 plum.txt\n";
    pool[0].turns[0].trace = Some("The real output shows the answer.".into());
    pool[0].turns[1].trace = Some("It says <think> here.".into());
    pool[0].turns[2].observation = truth.into();
    pool[0].turns[2].trace = Some(format!("It prints\n{truth}"));
    let teacher = || Server::start(|_| thought("The shell does as it is told.", "no such thing")).unwrap();
    let (place, server) = (Place::new(pool.clone()), teacher());
    let mut config = tracing(&server);
    let report = place.trace(&config).unwrap();
    assert_eq!((report.had_before, report.queries, report.untraced), (1, 2, 2));
    let rejected = [("quotes_the_source", 1), ("trace_has_tag", 1)];
    assert_eq!(report.notes_rejected, rejected.map(|(fault, count)| (fault.into(), count)).into());
    assert_eq!(report.counts()["notes_rejected"], 2);
    assert!(report.table().contains(&"traces that were there: quotes_the_source 1".to_string()));
    let traces: Vec<Option<String>> = place.written()[0].turns.iter().map(|turn| turn.trace.clone()).collect();
    assert_eq!(traces[..2], [None, None], "what is none is not written, whether the teacher knows better or not");
    assert_eq!(traces[2], pool[0].turns[2].trace, "a copy stays unless the config says otherwise");

    config["max_copied_share_of_notes"] = json!(0.5);
    let report = Place::new(pool.clone()).trace(&config).unwrap();
    assert_eq!((report.had_before, report.notes_rejected["copies_the_answer"], report.queries), (0, 1, 3));
    // What was printed before is no copy.
    pool[0].turns[0].observation = truth.into();
    let report = Place::new(pool).trace(&config).unwrap();
    assert_eq!((report.had_before, report.notes_rejected.get("copies_the_answer")), (1, None));
}

#[test]
fn a_query_is_asked_again_where_its_conversation_or_its_truth_is_another() {
    let (place, server) = (Place::new(pool()), improving());
    let config = tracing(&server);
    place.trace(&config).unwrap();
    let asked = |place: &Place| {
        let before = server.seen().len();
        let report = place.trace(&config).unwrap();
        assert_eq!(report.queries, 6);
        server.seen().len() - before
    };
    assert_eq!(asked(&place), 0);
    let mut other = pool();
    other[1].system.initial_state = Some("~ holds nothing at all".into());
    place.put(other.clone());
    assert_eq!(asked(&place), 9, "the three queries of that trajectory, three answers each");
    // Another truth of the last query: the teacher's answers are in the cache, and judged against the new truth.
    other[1].turns[2].observation = "another truth".into();
    place.put(other);
    let report = place.trace(&config).unwrap();
    assert_eq!((report.traced, report.untraced), (5, 1));
    place.put(pool());
    assert_eq!(asked(&place), 0, "lines of before are there still");
}

#[test]
fn a_server_that_takes_no_question_ends_the_run_and_one_that_refuses_a_question_is_counted() {
    for status in [401, 403, 404] {
        let server = Server::start(move |_| Answer::text(status, "no such key or model")).unwrap();
        let error = Place::new(pool()).trace(&tracing(&server)).unwrap_err().to_string();
        for words in ["no such key or model", &status.to_string(), "teacher.jsonl"] {
            assert!(error.contains(words), "no `{words}` in: {error}");
        }
        let error = Place::new(pool()).instruct(&instructing(&server, 1.0)).unwrap_err();
        assert!(matches!(error, Error::Asking { .. }), "{error}");
    }
    let server = Server::start(|seen| match question(seen).contains("### Turn 2\n") {
        true => Answer::text(400, "the prompt is too long"),
        false => thought("The shell does as it is told.", &truth(seen)),
    })
    .unwrap();
    let place = Place::new(pool());
    let report = place.trace(&tracing(&server)).unwrap();
    assert_eq!((report.traced, report.untraced, report.unavailable), (4, 2, 0));
    assert_eq!(report.candidates["rejected_by_server"], 6);
    let asked = server.seen().len();
    assert_eq!(place.trace(&tracing(&server)).unwrap(), report);
    assert_eq!(server.seen().len(), asked, "it is not asked again");
    let server = Server::start(|_| Answer::text(413, "too long")).unwrap();
    let report = Place::new(pool()).instruct(&instructing(&server, 1.0)).unwrap();
    assert_eq!((report.left_as_they_were, report.rejected["rejected_by_server"], report.unavailable), (2, 2, 0));
}

#[test]
fn an_answer_that_cannot_be_kept_ends_the_run() {
    let (place, server) = (Place::new(pool()), improving());
    // A file where the cache puts its folders.
    fs_err::create_dir(place.out().join("teacher-cache")).unwrap();
    for name in 0..=255 {
        fs_err::write(place.out().join("teacher-cache").join(format!("{name:02x}")), "").unwrap();
    }
    let error = place.trace(&tracing(&server)).unwrap_err().to_string();
    assert!(error.contains("keep the endpoint's answer"), "{error}");
    assert!(!place.out().join("sft.parquet").exists());
}

#[test]
fn thinking_that_had_the_answer_is_rejected_by_name() {
    for (reasoning, fate) in [
        ("The real output shows what to print.", "quotes_the_source"),
        ("I will print:\ncat: nothing: No such file or directory", "copies_the_answer"),
    ] {
        let server = Server::start(move |seen| thought(reasoning, &truth(seen))).unwrap();
        let mut pool = pool();
        pool.remove(0);
        pool[0].turns.iter_mut().for_each(|turn| turn.keep = Some(turn.index == 1));
        let report = Place::new(pool).trace(&tracing(&server)).unwrap();
        assert_eq!((report.queries, report.traced, report.untraced), (1, 0, 1));
        assert_eq!(report.candidates, [(fate.to_string(), 3)].into());
    }
}

#[test]
fn a_teacher_that_cannot_be_reached_is_counted_refused_and_asked_again() {
    let place = Place::new(pool());
    let is_up = std::sync::Arc::new(AtomicBool::new(false));
    let up = std::sync::Arc::clone(&is_up);
    let server = Server::start(move |seen| match up.load(std::sync::atomic::Ordering::Relaxed) {
        false => Answer::text(503, "busy"),
        true => thought("The shell does as it is told.", &truth(seen)),
    })
    .unwrap();
    let error = place.trace(&tracing(&server)).unwrap_err();
    assert!(matches!(error, Error::Unanswered { unavailable: 6, queries: 6, .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("the last reason: ") && error.contains("status 503: busy"), "{error}");
    assert!(error.contains("requests are in `") && error.contains("teacher.jsonl`"), "{error}");
    assert!(!place.out().join("sft.parquet").exists());
    is_up.store(true, std::sync::atomic::Ordering::Relaxed);
    let report = place.trace(&tracing(&server)).unwrap();
    assert_eq!((report.traced, report.candidates["kept"], report.candidates["not_the_best"]), (6, 6, 12));
}

#[test]
fn a_judge_that_is_a_model_decides_among_equals_by_comparing() {
    let teacher_server = Server::start(|seen| {
        let plain = seen.number % 3 != 1;
        thought(if plain { "Plain." } else { "Clever." }, if plain { "one way" } else { "the other way" })
    })
    .unwrap();
    let judge = Server::start(|seen| {
        let question = question(seen);
        let Some(first) = question.find("the other way").zip(question.find("# Second prediction")) else {
            let scores =
                ["format", "factuality", "consistency", "realism", "quality"].map(|name| format!("\"{name}\": 4"));
            return Answer::chat(&format!(
                "<final_evaluation>{{\"scores\": {{{}}}}}</final_evaluation>",
                scores.join(", ")
            ));
        };
        Answer::chat(if first.0 < first.1 { "<winner>first</winner>" } else { "<winner>second</winner>" })
    })
    .unwrap();
    let mut config = tracing(&teacher_server);
    let endpoint = json!({"url": judge.url(), "model": "j", "attempts": 1});
    config["judge"] = json!({"kind": "http", "endpoint": endpoint});
    let mut pool = pool();
    pool.truncate(1);
    pool[0].turns.iter_mut().for_each(|turn| turn.keep = Some(turn.index == 0));
    let place = Place::new(pool);
    let report = place.trace(&config).unwrap();
    assert_eq!((report.traced, report.mean_score), (1, Some(4.0)));
    assert_eq!(place.written()[0].turns[0].trace.as_deref(), Some("Clever."));
}

#[test]
fn a_checkpoint_can_be_the_teacher_and_settings_that_cannot_work_are_refused() {
    let workplace = Workplace::new();
    let model = workplace.model("teacher", 3, 2048);
    let local = json!({"kind": "local", "model": model, "max_new_tokens": 5, "temperature": 1.0});
    let config = json!({"teacher": local, "min_score": 4.0, "family": "compact"});
    let report = Place::new(pool()).trace(&config).unwrap();
    assert_eq!((report.queries, report.untraced), (6, 6), "it knows nothing");
    assert_eq!(report.candidates.values().sum::<u64>(), 18);
    for (field, value) in [("candidates", json!(0)), ("min_score", json!(0.5)), ("max_copied_share", json!(1.5))] {
        let mut wrong = config.clone();
        wrong[field] = value;
        let error = Place::new(pool()).trace(&wrong).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

fn instructing(server: &Server, share: f64) -> Value {
    json!({"teacher": teacher(server), "pools": ["sft"], "share": share, "seed": 7})
}

#[test]
fn instructions_say_what_the_teacher_wrote_for_turns_that_were_shown() {
    let server = Server::start(|seen| {
        let shown: Value = serde_json::from_str(&question(seen)).unwrap();
        let turns = shown["turns"].as_array().unwrap();
        let said = turns.iter().map(|turn| json!({"turn": turn["turn"], "instruction": "Answer as a shell\n would."}));
        let more =
            [json!({"turn": 9, "instruction": "Nothing."}), json!({"turn": turns[0]["turn"], "instruction": "Twice."})];
        Answer::chat(&json!({"instructions": said.chain(more).collect::<Vec<_>>()}).to_string())
    })
    .unwrap();
    let mut pool = pool();
    pool[1].system.simulation_instruction = Some("Its own.".into());
    let mut search = eval_episodes().remove(0);
    (search.domain, search.trajectory_id) = (Domain::Search, "search".into());
    pool.push(search);
    let place = Place::new(pool);
    let report = place.instruct(&instructing(&server, 1.0)).unwrap();
    assert_eq!((report.trajectories, report.had_one, report.search, report.instructed), (3, 1, 1, 1));
    assert_eq!(report.rejected, [("other_turn".into(), 1), ("second_of_a_turn".into(), 1)].into());
    let written = place.written();
    let instruction = |at: usize| written[at].system.simulation_instruction.clone().unwrap_or_default();
    let line = |turn: usize| format!("Turn {turn}: Answer as a shell would.");
    assert_eq!(instruction(0), [line(1), line(2), line(3)].join("\n"));
    assert_eq!((instruction(1).as_str(), instruction(2).as_str()), ("Its own.", ""));
    let report = Place::new(eval_episodes()).instruct(&instructing(&server, 0.0)).unwrap();
    assert_eq!((report.drawn, report.not_drawn), (0, 2));
}

#[test]
fn an_instruction_that_gives_the_answer_away_is_rejected() {
    let server = Server::start(|seen| {
        let shown: Value = serde_json::from_str(&question(seen)).unwrap();
        let said = shown["turns"].as_array().unwrap().iter().map(|turn| {
            json!({"turn": turn["turn"], "instruction": format!("Print {}", turn["observation"].as_str().unwrap())})
        });
        Answer::chat(&json!({"instructions": said.collect::<Vec<_>>()}).to_string())
    })
    .unwrap();
    let mut pool = pool();
    pool.remove(0);
    let place = Place::new(pool);
    let report = place.instruct(&instructing(&server, 1.0)).unwrap();
    assert_eq!((report.instructed, report.left_as_they_were), (0, 1));
    assert_eq!(report.rejected, [("copies_the_answer".into(), 3)].into());
    assert_eq!(place.written()[0].system.simulation_instruction, None);
    let counts = report.counts();
    assert_eq!(counts["rejected_copies_the_answer"], 3);
    assert!(Path::new(&place.out()).join("instruct-report.json").exists());
}
