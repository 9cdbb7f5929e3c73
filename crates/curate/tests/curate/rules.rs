//! Each rule with a synthetic case.

use crate::common::{config, crowd, curate, only_cpt, trajectory, turn, write};
use worldloom_curate::{CurateConfig, Resources, TurnsPerTrajectory};
use worldloom_schema::{KeepClass, ObservationKind, Pool, Trajectory, Turn};

/// Actions with their indices.
type Numbered = Vec<(u32, String)>;

/// The only trajectory left of one, with the rules that removed its turns.
fn only(config: &CurateConfig, turns: Vec<Turn>) -> (Numbered, Vec<(String, u64)>) {
    let output = curate(config, &[trajectory("g", "s", turns)]).unwrap();
    let left = output.all().next().unwrap();
    let turns = left.turns.iter().map(|turn| (turn.index, turn.action.clone())).collect();
    (turns, output.report.removed_turns.into_iter().collect())
}

fn numbered(actions: &[&str]) -> Numbered {
    actions.iter().enumerate().map(|(at, action)| (at as u32, action.to_string())).collect()
}

#[test]
fn empty_actions_and_images_are_removed_and_the_rest_is_numbered_anew() {
    let image = Turn { observation_kind: ObservationKind::Image, ..turn("look", "") };
    let marked = Turn { observation_kind: ObservationKind::Image, ..turn("read", "words too") };
    let turns = vec![turn("a", "1"), turn(" \n", "2"), image, turn("b", ""), marked];
    let (left, removed) = only(&only_cpt(), turns);
    assert_eq!(left, numbered(&["a", "b", "read"]));
    assert_eq!(removed, [("empty_action".into(), 1), ("image_only".into(), 1)]);
}

#[test]
fn what_the_harness_wrote_is_removed_by_its_flag_and_not_by_its_words() {
    let flagged = |action: &str| Turn { flags: vec!["skip:harness_text".into()], ..turn(action, "Answer is CORRECT") };
    let other = Turn { flags: vec!["skips:none".into(), "class:skip:".into()], ..turn("c", "Answer is CORRECT") };
    let turns = vec![turn("a", "1"), flagged("think[x]"), turn("b", "2"), other, flagged("Finish[x]")];
    let (left, removed) = only(&only_cpt(), turns);
    assert_eq!(left, numbered(&["a", "b", "c"]));
    assert_eq!(removed, [("harness_text".into(), 2)]);
}

#[test]
fn a_trajectory_is_cut_before_the_first_observation_that_is_too_long() {
    let fits = "é".repeat(1000);
    let turns = vec![turn("a", &fits), turn("b", "2"), turn("c", &format!("{fits}é")), turn("d", "4")];
    let (left, removed) = only(&only_cpt(), turns);
    assert_eq!(left, numbered(&["a", "b"]));
    assert_eq!(removed, [("long_observation".into(), 2)]);
}

#[test]
fn a_trajectory_is_cut_after_max_turns_not_counting_removed_ones() {
    let turns = vec![turn("a", "1"), turn("", "x"), turn("b", "2"), turn("c", "3"), turn("d", "4")];
    let (left, removed) = only(&CurateConfig { max_turns: 3, ..only_cpt() }, turns);
    assert_eq!(left, numbered(&["a", "b", "c"]));
    assert_eq!(removed, [("beyond_max_turns".into(), 1), ("empty_action".into(), 1)]);
}

#[test]
fn a_trajectory_with_too_few_turns_left_is_dropped_and_listed() {
    let short = trajectory("g", "short", vec![turn("a", "1"), turn("", "2")]);
    let none = trajectory("g", "none", vec![]);
    let good = trajectory("g", "good", vec![turn("a", "1"), turn("b", "2")]);
    let output = curate(&only_cpt(), &[short.clone(), none, good]).unwrap();
    assert_eq!(output.pools[&Pool::Cpt].len(), 1);
    assert_eq!(output.report.dropped_trajectories["few_turns"], 2);
    let reject = output.rejects.iter().find(|reject| reject.detail.contains(&short.trajectory_id)).unwrap();
    assert_eq!((reject.rule.as_str(), reject.source.as_str()), ("few_turns", "synthetic"));
    assert!(reject.detail.ends_with("2 turns, 1 after the turn rules"), "{}", reject.detail);
}

#[test]
fn planted_duplicates_are_removed_and_counted() {
    let mut all = crowd(4, 10);
    let copy = |at: usize, source: &str| Trajectory { source: source.into(), source_row: 900, ..all[at].clone() };
    let planted = vec![copy(3, "zz"), copy(17, "aa"), copy(17, "zz")];
    all.extend(planted);
    let output = curate(&config(), &all).unwrap();
    assert_eq!(output.report.dropped_trajectories, [("exact_duplicate".to_string(), 3)].into());
    let kept =
        |at: usize| output.all().find(|kept| kept.trajectory_id == all[at].trajectory_id).unwrap().source.clone();
    assert_eq!((kept(3), kept(17)), ("synthetic".into(), "aa".into()), "the first by source, path and row is kept");
    let all_kept = curate(&CurateConfig { drop_exact_duplicates: false, ..config() }, &all).unwrap();
    assert_eq!(all_kept.all().count(), 43);
}

#[test]
fn of_equal_turns_one_is_trained_and_the_others_stay_as_context() {
    let turns = |last: &str| vec![turn("pwd", "/home/fig"), turn("ls", "plum pear"), turn("cat plum", last)];
    let all = [
        trajectory("g", "same", turns("one two three")),
        trajectory("g", "same", turns("four five six")),
        trajectory("g", "other", turns("one two three")),
    ];
    let output = curate(&only_cpt(), &all).unwrap();
    assert_eq!(output.count("duplicate_turns"), 2, "two turns share state, history, action and observation");
    let duplicates = |turn: &&Turn| turn.flag("duplicate") == Some("turn");
    assert!(output.all().all(|trajectory| trajectory.turns.len() == 3));
    let marked: Vec<&Turn> = output.all().flat_map(|trajectory| &trajectory.turns).filter(duplicates).collect();
    assert!(marked.iter().all(|turn| turn.keep == Some(false)));
    assert_eq!(marked.len(), 2);
    let kept = CurateConfig { drop_exact_duplicates: false, ..only_cpt() };
    assert_eq!(curate(&kept, &all).unwrap().count("duplicate_turns"), 0);
}

#[test]
fn an_evaluation_turn_that_training_has_is_not_evaluated() {
    let turns = |last: &str| vec![turn("pwd", "/home/fig"), turn("ls", last)];
    let all = [trajectory("train", "same", turns("a b c")), trajectory("held", "same", turns("d e f"))];
    let config = CurateConfig { eval_groups: vec!["held".into()], ..only_cpt() };
    let output = curate(&config, &all).unwrap();
    let keeps = |pool: Pool| output.pools[&pool][0].turns.iter().map(|turn| turn.keep).collect::<Vec<_>>();
    assert_eq!(keeps(Pool::Eval), [Some(false), Some(true)]);
    assert_eq!(keeps(Pool::Cpt), [Some(true), Some(true)]);
}

/// The class and the realised keep rate of `count` turns of one shape.
fn check_class(action: &str, observation: &str, class: KeepClass) {
    let all: Vec<Trajectory> =
        [0, 1].map(|at| trajectory("g", &at.to_string(), vec![turn(action, observation); 2])).into();
    let output = curate(&only_cpt(), &all).unwrap();
    for turn in output.all().flat_map(|trajectory| &trajectory.turns) {
        assert_eq!(turn.keep_class, Some(class), "{action} -> {observation}");
    }
}

#[test]
fn turns_are_classed_as_the_recipe_says_up_to_each_boundary() {
    // Ten words of the action come back or not: overlap is the number shared by ten.
    let ten = "a b c d e f g h i j";
    check_class(ten, "a b c d e f g", KeepClass::Echo);
    check_class(ten, "a b c d e f g x y", KeepClass::Echo);
    // Overlap 0.6: no echo.
    check_class(ten, "a b c d e f", KeepClass::Boilerplate);
    // Overlap 0.7, novelty 0.3: no echo any more.
    check_class(ten, "a b c d e f g x y z", KeepClass::Boilerplate);
    // Overlap 0.5, novelty 0 and 4/9.
    check_class(ten, "a b c d e", KeepClass::Boilerplate);
    check_class(ten, "a b c d e w x y z", KeepClass::Boilerplate);
    // Overlap 0.4, novelty below a half, shorter than the action.
    check_class(ten, "a b c d", KeepClass::Transform);
    check_class(ten, "a b c d w x y", KeepClass::Transform);
    // The same, not shorter: none of the classes.
    check_class("a b c d", "a               ", KeepClass::Other);
    // Novelty exactly 0.6, longer.
    check_class("a b c d e", "a b x y z ", KeepClass::Retrieval);
    check_class("ls", "notes.txt plum.txt", KeepClass::Retrieval);
    // Overlap and novelty a half, more than 1.5 times as long: expansion; at 1.5 times, with few words, action.
    check_class("aa bb", "aa bb cc dd", KeepClass::Expansion);
    check_class("aa b", "aa cccc", KeepClass::Expansion);
    check_class("aa b", "aa ccc", KeepClass::Action);
    // New words, not longer than the action.
    check_class("cat file", "none", KeepClass::Action);
    check_class("cat file", "new news", KeepClass::Action);
    // An observation without words is not new; shorter than the action it is a transform.
    check_class("rm notes", "", KeepClass::Transform);
    // An action without words cannot come back.
    check_class("!!", "word", KeepClass::Retrieval);
}

#[test]
fn keep_rates_converge_to_the_published_ones() {
    let mut all = Vec::new();
    for at in 0..1500 {
        let word = format!("w{at}");
        let turns = vec![
            turn(&format!("echo {word} b c d e f g h i"), &format!("{word} b c d e f g h i")),
            turn(&format!("say {word} b c d e f g h i"), &format!("{word} b c d e")),
            turn(&format!("cut {word} b c d e f g h i"), &format!("{word} b c")),
            turn(&format!("get {word}"), &format!("one two three four {at}")),
        ];
        all.push(trajectory("g", &word, turns));
    }
    let output = curate(&only_cpt(), &all).unwrap();
    for (class, rate) in [("echo", 0.05), ("boilerplate", 0.1), ("transform", 0.5), ("retrieval", 1.0)] {
        let counts = &output.report.pools["cpt"].keep_classes[class];
        assert_eq!(counts.turns, 1500, "{class}");
        // Four standard deviations of a share of 1,500 draws.
        let tolerance = 4.0 * (rate * (1.0 - rate) / 1500f64).sqrt();
        assert!((counts.kept_share - rate).abs() <= tolerance, "{class}: {}", counts.kept_share);
    }
}

#[test]
fn sft_and_rl_have_the_asked_number_of_targets_and_evaluation_has_all() {
    let config = CurateConfig { turns_per_trajectory: TurnsPerTrajectory { sft: 2, rl: 1 }, ..config() };
    let mut all = crowd(12, 10);
    for trajectory in &mut all {
        let more = vec![turn("a", "b c"), turn("d", "e f"), turn("g", "h i")];
        let turns = [trajectory.turns.clone(), more].concat();
        let state = trajectory.system.initial_state.clone().unwrap();
        *trajectory = crate::common::trajectory(&trajectory.task_group.clone(), &state, turns);
    }
    let output = curate(&config, &all).unwrap();
    let mut chosen = [0; 5];
    for trajectory in output.all() {
        let kept: Vec<&Turn> = trajectory.turns.iter().filter(|turn| turn.keep == Some(true)).collect();
        let pool = trajectory.pool.unwrap();
        match pool {
            Pool::Sft => assert_eq!(kept.len(), 2),
            Pool::Rl => assert_eq!(kept.len(), 1),
            Pool::Eval => assert_eq!(kept.len(), 5),
            Pool::Cpt => {}
        }
        assert!(trajectory.turns.iter().all(|turn| turn.keep_class.is_some() && turn.keep.is_some()));
        if pool == Pool::Sft {
            kept.iter().for_each(|turn| chosen[turn.index as usize] += 1);
        }
    }
    assert!(chosen.iter().all(|count| *count > 0), "targets come from every place: {chosen:?}");
}

#[test]
fn a_config_that_cannot_be_meant_is_refused() {
    let check = |config: CurateConfig, expected: &str| {
        let error = curate(&config, &crowd(5, 2)).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut shares = config();
    shares.pools.cpt = 0.4;
    check(shares, "pools.cpt + pools.sft + pools.rl = 0.9");
    check(CurateConfig { eval_share: -0.1, ..config() }, "eval_share = -0.1, expected 0 to 1");
    check(CurateConfig { eval_groups: vec!["group-00".into()], ..config() }, "eval_groups decides");
    check(CurateConfig { min_turns: 5, max_turns: 4, ..config() }, "max_turns = 4, expected min_turns or more");
    check(CurateConfig { min_turns: 9, ..config() }, "no trajectory of 10 is left: 10 few_turns");
}

#[test]
fn inputs_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = tempfile::tempdir().unwrap();
    let run = |inputs: &[std::path::PathBuf]| {
        worldloom_curate::run(&config(), inputs, &[], out.path(), Resources::default(), &|_, _| {})
            .unwrap_err()
            .to_string()
    };
    assert!(run(&[]).contains("no trajectory file given"));
    let empty = write(folder.path(), "empty.parquet", &[]);
    assert!(run(&[empty]).contains("no trajectory in `"));
    let good = write(folder.path(), "good.parquet", &crowd(2, 2));
    let bytes = fs_err::read(&good).unwrap();
    let cut = folder.path().join("cut.parquet");
    fs_err::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    let message = run(&[good, cut]);
    assert!(message.contains("cut.parquet`: not a readable Parquet file"), "{message}");
}
