//! The laws of the recorder, and the bundled sample run again in a real bash.

#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::seq::index::sample;
use rand::{SeedableRng, rngs::StdRng};
use worldloom_record::Error;
use worldloom_record::terminal::{
    Axis, Episode, RecordConfig, RecordSummary, Sandbox, TurnClass, mask_volatile, record, replay, replay_in,
};

/// A folder for labs that the shell's account can reach.
fn lab_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs_err::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    root
}

fn config(root: &Path, episodes: u64, seed: u64, name: &str) -> RecordConfig {
    RecordConfig { lab_root: root.to_owned(), ..RecordConfig::new(episodes, seed, root.join(name)) }
}

fn recorded(config: &RecordConfig) -> (Vec<Episode>, RecordSummary) {
    let summary = record(config, &|_, _| {}).unwrap();
    (read(&config.out), summary)
}

fn read(path: &Path) -> Vec<Episode> {
    let bytes = fs_err::read(path).unwrap();
    let text = if path.extension().unwrap() == "zst" { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
    std::str::from_utf8(&text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn bundled_sample() -> Vec<Episode> {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/terminal-sample.jsonl.zst"))
}

fn commands(episode: &Episode) -> Vec<String> {
    episode.turns().unwrap().iter().map(|turn| turn.command().unwrap()).collect()
}

/// An episode as recorded, with other commands in its turns.
fn with_commands(mut episode: Episode, commands: &[&str]) -> Episode {
    episode.messages.truncate(2 + 2 * commands.len());
    for (pair, command) in episode.messages[2..].chunks_mut(2).zip(commands) {
        pair[0].tool_calls[0].function.arguments = serde_json::json!({ "command": command }).to_string();
    }
    assert_eq!(episode.turns().unwrap().len(), commands.len(), "the episode is long enough");
    episode
}

fn any_episode(root: &Path) -> Episode {
    let (episodes, _) = recorded(&config(root, 8, 3, "any.jsonl"));
    episodes.into_iter().max_by_key(|episode| episode.messages.len()).unwrap()
}

#[test]
fn twenty_episodes_of_the_bundled_sample_print_the_same_again() {
    let episodes = bundled_sample();
    for index in sample(&mut StdRng::seed_from_u64(20), episodes.len(), 20) {
        let episode = &episodes[index];
        let replayed = replay(episode).unwrap();
        assert_eq!(replayed.len(), episode.turns().unwrap().len(), "{}", episode.id);
        for turn in replayed {
            let place = format!("{}: {}", episode.id, turn.command);
            assert_eq!(mask_volatile(&turn.printed), mask_volatile(&turn.recorded), "{place}");
            assert_eq!(turn.exit_code, turn.recorded_exit_code, "{place}");
        }
    }
}

#[test]
fn the_bundled_sample_is_what_its_command_records() {
    let root = lab_root();
    let (again, _) = recorded(&config(root.path(), 16, 1, "again.jsonl"));
    for (again, bundled) in again.iter().zip(bundled_sample()) {
        assert_eq!((&again.id, &again.task_group, &again.task), (&bundled.id, &bundled.task_group, &bundled.task));
        assert_eq!(commands(again), commands(&bundled), "{}", bundled.id);
        let classes =
            |episode: &Episode| episode.turns().unwrap().iter().map(|turn| turn.metadata.class).collect::<Vec<_>>();
        assert_eq!(classes(again), classes(&bundled), "{}", bundled.id);
    }
}

#[test]
fn the_bundled_sample_is_large_small_on_disk_and_mostly_state() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/terminal-sample.jsonl.zst");
    assert!(fs_err::metadata(path).unwrap().len() <= 4 * 1024 * 1024);
    let episodes = bundled_sample();
    assert!(episodes.len() >= 2000);
    let turns: Vec<_> = episodes.iter().flat_map(|episode| episode.turns().unwrap()).collect();
    let share = |class| turns.iter().filter(|turn| turn.metadata.class == class).count() as f64 / turns.len() as f64;
    assert!(share(TurnClass::Empty) <= 0.12, "{}", share(TurnClass::Empty));
    assert!(share(TurnClass::Echo) <= 0.12, "{}", share(TurnClass::Echo));
    assert!(share(TurnClass::State) >= 0.50, "{}", share(TurnClass::State));
    assert!((0.12..=0.25).contains(&share(TurnClass::Error)), "{}", share(TurnClass::Error));
    for episode in &episodes {
        assert!((4..=12).contains(&episode.turns().unwrap().len()), "{}", episode.id);
    }
    assert!(turns.iter().all(|turn| turn.metadata.exit_code.is_some()), "no command was killed");
    assert!(turns.iter().all(|turn| turn.metadata.note.chars().count() <= 250));
    let short = turns.iter().filter(|turn| turn.observation.len() < 400).count();
    assert!(short as f64 >= 0.99 * turns.len() as f64);
}

#[test]
fn the_same_seed_gives_the_same_episodes_whatever_the_number_of_shells() {
    let root = lab_root();
    let one = RecordConfig { jobs: 1, ..config(root.path(), 24, 11, "one.jsonl") };
    let three = RecordConfig { jobs: 3, ..config(root.path(), 24, 11, "three.jsonl.zst") };
    let (left, left_summary) = recorded(&one);
    let (right, right_summary) = recorded(&three);
    assert_eq!(left_summary, right_summary);
    for (left, right) in left.iter().zip(&right) {
        assert_eq!(commands(left), commands(right), "{}", left.id);
        for (left, right) in left.turns().unwrap().iter().zip(right.turns().unwrap()) {
            assert_eq!(mask_volatile(left.observation), mask_volatile(right.observation));
            assert_eq!(left.metadata, right.metadata);
        }
    }
    let (other, _) = recorded(&config(root.path(), 24, 12, "other.jsonl"));
    assert!(left.iter().zip(&other).all(|(left, other)| commands(left) != commands(other)));
}

#[test]
fn two_recordings_at_once_do_not_meet() {
    let root = lab_root();
    let alone = recorded(&config(root.path(), 12, 5, "alone.jsonl")).0;
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| recorded(&config(root.path(), 12, 5, "left.jsonl")).0);
        let right = scope.spawn(|| recorded(&config(root.path(), 12, 5, "right.jsonl")).0);
        (left.join().unwrap(), right.join().unwrap())
    });
    let masked = |episodes: &[Episode]| mask_volatile(&serde_json::to_string(episodes).unwrap());
    assert_eq!(masked(&left), masked(&alone));
    assert_eq!(masked(&right), masked(&alone));
}

#[test]
fn a_recording_leaves_only_its_file_and_counts_what_it_holds() {
    let root = lab_root();
    let config = config(root.path(), 30, 9, "log.jsonl");
    let last = Cell::new((0, 0));
    let summary = record(&config, &|done, total| last.set((done, total))).unwrap();
    assert_eq!(last.get(), (30, 30));
    let names: Vec<PathBuf> = fs_err::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, std::slice::from_ref(&config.out));
    let episodes = read(&config.out);
    assert_eq!(summary.episodes, 30);
    assert_eq!(summary.turns, episodes.iter().map(|episode| episode.turns().unwrap().len() as u64).sum::<u64>());
    assert_eq!(summary.turns, summary.classes.values().sum::<u64>());
    assert_eq!(summary.turns, summary.families.values().sum::<u64>());
    assert_eq!(summary.episodes, summary.groups.values().map(|group| group.episodes).sum::<u64>());
    let ids: Vec<String> = (0..30).map(|number| format!("terminal-9-{number}")).collect();
    assert_eq!(episodes.iter().map(|episode| episode.id.clone()).collect::<Vec<_>>(), ids);
}

#[test]
fn a_command_that_hangs_is_killed_and_the_episode_ends() {
    let root = lab_root();
    let commands = ["echo before", "sleep 1000", "echo after"];
    let episode = with_commands(any_episode(root.path()), &commands);
    let began = Instant::now();
    let replayed = replay_in(&episode, root.path(), Duration::from_secs(1)).unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(replayed.len(), 2, "nothing is run after the kill");
    assert_eq!((replayed[0].printed.as_str(), replayed[0].exit_code), ("before\n", Some(0)));
    assert_eq!((replayed[1].printed.as_str(), replayed[1].exit_code), ("[killed: no prompt after 1 s]\n", None));
}

#[test]
fn endless_output_unfinished_lines_and_a_dead_shell_end_the_episode() {
    let root = lab_root();
    let limit = Duration::from_secs(2);
    for (command, last_line) in [
        ("yes", "[killed: too much output]"),
        ("echo \"fig", "[killed: no prompt after 2 s]"),
        ("cat", "[killed: no prompt after 2 s]"),
        ("kill -9 $$", "[the shell ended]"),
        ("exec true", "[the shell ended]"),
    ] {
        let episode = with_commands(any_episode(root.path()), &[command, "echo after"]);
        let replayed = replay_in(&episode, root.path(), limit).unwrap();
        assert_eq!(replayed.len(), 1, "{command}");
        assert_eq!(replayed[0].exit_code, None, "{command}");
        assert!(replayed[0].printed.trim_end().ends_with(last_line), "{command}: {:?}", replayed[0].printed);
    }
}

#[test]
fn the_shell_keeps_its_state_and_speaks_as_to_a_person() {
    let root = lab_root();
    let episode = with_commands(
        any_episode(root.path()),
        &["x=fig; mkdir a; cd a; false", "echo $? $x ${PWD##*/}", "foo; cat nope; cd nope", "yes | head -n 1"],
    );
    let replayed = replay_in(&episode, root.path(), Duration::from_secs(20)).unwrap();
    let printed: Vec<&str> = replayed.iter().map(|turn| turn.printed.as_str()).collect();
    let errors = "bash: foo: command not found\ncat: nope: No such file or directory\n\
                  bash: cd: nope: No such file or directory\n";
    assert_eq!(printed, ["", "1 fig a\n", errors, "y\n"]);
}

#[test]
fn a_sandbox_keeps_its_state_and_leaves_nothing() {
    let root = lab_root();
    let mut sandbox = Sandbox::start(root.path(), 7, "ada", Duration::from_secs(20)).unwrap();
    assert!(sandbox.home().ends_with("lab-07/ada"));
    let printed = ["echo fig > f", "cat f; false", "exit", "echo after"].map(|command| sandbox.run(command));
    let of = |at: usize| (printed[at].text.as_str(), printed[at].exit_code);
    assert_eq!((of(0), of(1)), (("", Some(0)), ("fig\n", Some(1))));
    assert_eq!((printed[2].exit_code, printed[3].exit_code), (None, None));
    drop(sandbox);
    assert_eq!(fs_err::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn an_episode_with_its_sandbox_is_that_of_the_recording_and_prints_the_same_again() {
    let root = lab_root();
    let (all, _) = recorded(&config(root.path(), 3, 21, "log.jsonl"));
    let (episode, mut sandbox) = Sandbox::with_episode(21, 2).unwrap();
    assert_eq!((&episode.id, &episode.task, commands(&episode)), (&all[2].id, &all[2].task, commands(&all[2])));
    assert!(episode.initial_state.starts_with(&format!("{} is empty", sandbox.home().display())));
    for turn in episode.turns().unwrap() {
        let printed = sandbox.run(&turn.command().unwrap());
        assert_eq!(mask_volatile(&printed.text), mask_volatile(turn.observation));
        assert_eq!(printed.exit_code, turn.metadata.exit_code);
    }
}

/// Whether the path `word` leads above the home, from a folder that lies `depth` below it.
fn leaves(word: &str, depth: usize) -> bool {
    let mut depth = Some(depth);
    for part in word.split('/') {
        depth = match part {
            ".." => depth.and_then(|depth| depth.checked_sub(1)),
            "" | "." => depth,
            _ => depth.map(|depth| depth + 1),
        };
    }
    depth.is_none()
}

#[test]
fn no_command_of_the_sample_names_a_place_outside_its_lab() {
    for episode in bundled_sample() {
        for turn in episode.turns().unwrap() {
            let command = turn.command().unwrap();
            // Quoted text is a pattern or content, /dev/null is no place, and arithmetic divides.
            let bare: String = command.split('\'').step_by(2).collect::<String>().replace("/dev/null", "");
            let divides = bare.contains("$((") || bare.starts_with("expr ");
            let words = || bare.split([' ', '\n', ';', '(', ')', '<', '>', '|', '=']);
            let is_root = |word: &str| word.starts_with('/') && !(divides && word == "/");
            let names_a_root = words().any(|word| is_root(word.trim_start_matches('"')));
            let folder = turn.metadata.note.split(" | ").next().unwrap();
            let depth = folder.matches('/').count();
            let climbs = words().any(|word| leaves(word, depth));
            assert!(!names_a_root && !climbs, "{}: {folder}: {command}", episode.id);
        }
    }
}

#[test]
fn a_lab_is_private_and_its_permissions_are_real() {
    let root = lab_root();
    let episode = with_commands(
        any_episode(root.path()),
        &["echo a > f; chmod 000 f; cat f", "touch ../outside", "ls -A ..", "mkdir d; chmod 000 d; ls d"],
    );
    let replayed = replay_in(&episode, root.path(), Duration::from_secs(20)).unwrap();
    assert_eq!(replayed[0].printed, "cat: f: Permission denied\n");
    let user = episode.initial_state.split(' ').next().unwrap().rsplit('/').next().unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(replayed[1].printed, "touch: cannot touch '../outside': Permission denied\n");
        assert_eq!(replayed[2].printed, format!("{user}\n"));
    }
    assert_eq!(replayed[3].printed, "ls: cannot open directory 'd': Permission denied\n");
    assert_eq!(fs_err::read_dir(root.path()).unwrap().count(), 1, "only the raw log is left");
}

/// Fifteen episodes of an axis, replayed: what was recorded is what the shell says again.
fn of_axis(root: &Path, axis: Axis) -> Vec<Episode> {
    let name = format!("{}.jsonl", axis.name());
    let (episodes, _) = recorded(&RecordConfig { axis: Some(axis), ..config(root, 15, 4, &name) });
    for episode in &episodes {
        assert_eq!(episode.source, format!("worldloom-terminal-{}", axis.name()));
        for turn in replay_in(episode, root, Duration::from_secs(20)).unwrap() {
            assert_eq!(mask_volatile(&turn.printed), mask_volatile(&turn.recorded), "{}: {}", episode.id, turn.command);
        }
    }
    episodes
}

#[test]
fn an_imposed_condition_shows_in_the_truth_as_the_instruction_says() {
    let root = lab_root();
    let episodes = of_axis(root.path(), Axis::Control);
    let signs = [
        ("full_disk", "File too large"),
        ("read_only", "Permission denied"),
        ("no_programs", "command not found"),
        ("no_overwrite", "cannot overwrite existing file"),
        ("strict_names", "unbound variable"),
    ];
    for (name, sign) in signs {
        let of_condition = episodes.iter().filter(|episode| episode.task_group == format!("control+{name}"));
        let of_condition: Vec<&Episode> = of_condition.collect();
        assert_eq!(of_condition.len(), 3);
        let mut shown = 0;
        for episode in of_condition {
            let instruction = episode.simulation_instruction.as_deref().unwrap();
            assert!(instruction.contains(sign), "the reason that bash gives is in the instruction: {instruction}");
            assert!(episode.initial_state.contains(" holds ") && !episode.initial_state.contains(sign));
            for turn in episode.turns().unwrap() {
                let is_shown = turn.observation.contains(sign);
                assert_eq!(turn.metadata.axis, is_shown.then_some(Axis::Control), "{}", turn.observation);
                assert_eq!(turn.metadata.family, name);
                shown += usize::from(is_shown);
            }
        }
        assert!(shown >= 3, "{name} shows in {shown} turns");
    }
}

#[test]
fn error_episodes_fail_in_most_turns_and_in_many_ways() {
    let root = lab_root();
    let episodes = of_axis(root.path(), Axis::Error);
    let turns: Vec<_> = episodes.iter().flat_map(|episode| episode.turns().unwrap()).collect();
    let errors: Vec<_> = turns.iter().filter(|turn| turn.metadata.class == TurnClass::Error).collect();
    assert!(errors.len() as f64 >= 0.5 * turns.len() as f64, "{} of {}", errors.len(), turns.len());
    assert!(turns.iter().all(|turn| turn.metadata.axis.is_some() == (turn.metadata.class == TurnClass::Error)));
    let reasons = ["No such file", "command not found", "Permission denied", "s a directory", "invalid", "missing"];
    let seen = reasons.iter().filter(|reason| errors.iter().any(|turn| turn.observation.contains(**reason)));
    assert!(seen.count() >= 4);
}

#[test]
fn a_fact_is_read_back_after_as_many_turns_as_its_distance_says() {
    let root = lab_root();
    let episodes = of_axis(root.path(), Axis::Long);
    let mut distances = Vec::new();
    for episode in &episodes {
        let turns = episode.turns().unwrap();
        let (last, between) = turns.split_last().unwrap();
        assert!(between.iter().all(|turn| turn.metadata.axis.is_none()), "{}", episode.id);
        assert_eq!(last.metadata.axis, Some(Axis::Long), "{}: {}", episode.id, last.observation);
        assert_eq!(last.metadata.axis_distance, Some(turns.len() as u64 - 2));
        distances.push(turns.len() - 2);
        let (set, fact) = (turns[0].command().unwrap(), last.observation.trim_end());
        assert!(set.contains(fact), "{set} sets {fact}");
        let is_mode = fact.len() == 3;
        let sets = |turn: &worldloom_record::terminal::Turn<'_>| turn.command().unwrap().contains(fact);
        assert!(is_mode || !between[1..].iter().any(sets), "nothing sets it again");
        assert!(last.metadata.note.contains(fact), "the note tells it: {}", last.metadata.note);
    }
    assert_eq!(distances[..5], [1, 2, 4, 8, 16]);
}

#[test]
fn a_wrong_output_path_or_count_is_one_clear_sentence() {
    let root = lab_root();
    let check = |config: RecordConfig, expected: &str| {
        let error = record(&config, &|_, _| {}).unwrap_err();
        let said = error.to_string().replace(&root.path().display().to_string(), "ROOT");
        assert_eq!(said, expected);
    };
    let at = |name: &str| config(root.path(), 1, 1, name);
    check(at("log.txt"), "write raw log `ROOT/log.txt`: the name must end in `.jsonl` or `.jsonl.zst`");
    check(at("no/log.jsonl"), "write raw log `ROOT/no/log.jsonl`: the folder `ROOT/no` does not exist");
    fs_err::create_dir(root.path().join("is.jsonl")).unwrap();
    check(at("is.jsonl"), "write raw log `ROOT/is.jsonl`: it is a folder, expected a file name");
    let none = RecordConfig { episodes: 0, ..at("log.jsonl") };
    check(none, "record terminal: 0 episodes were asked for, expected at least 1");
    let nowhere = RecordConfig { lab_root: root.path().join("nowhere"), ..at("log.jsonl") };
    assert!(matches!(record(&nowhere, &|_, _| {}), Err(Error::Io(_))));
    assert!(!root.path().join("log.jsonl").exists(), "a recording that fails leaves no file");
}
