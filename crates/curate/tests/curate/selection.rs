//! The recipe's filters and the config's own, each with planted cases.

use crate::common::{Output, curate, only_cpt, trajectory, turn};
use std::collections::BTreeMap;
use worldloom_curate::{
    CurateConfig, EnvironmentFailures, Field, Languages, Licences, Limits, NoChange, OwnPattern, Removes, Rules,
    UndeclaredTools,
};
use worldloom_schema::{ActionKind, Domain, ObservationKind, Trajectory, Turn};

fn of(domain: Domain, one: Trajectory) -> Trajectory {
    Trajectory { domain, ..one }
}

/// A trajectory of two plain turns between which others stand.
fn around(domain: Domain, state: &str, inner: Vec<Turn>) -> Trajectory {
    let turns = [vec![turn("first", "one fig")], inner, vec![turn("last", "two plums")]].concat();
    of(domain, trajectory("g", state, turns))
}

fn with_rules(rules: Rules) -> CurateConfig {
    CurateConfig { rules, ..only_cpt() }
}

fn actions(output: &Output) -> Vec<String> {
    output.all().flat_map(|one| &one.turns).map(|turn| turn.action.clone()).collect()
}

#[test]
fn a_trajectory_that_calls_an_undeclared_tool_is_dropped_where_tools_are_declared() {
    let call = |name: &str| Turn {
        action_kind: ActionKind::ToolCall,
        ..turn(&format!("{{\"name\": \"{name}\", \"arguments\": {{}}}}"), "fine")
    };
    let tools = |text: &str, one: Trajectory| {
        let mut one = one;
        one.system.action_space = Some(text.into());
        one
    };
    let declared = r#"[{"type": "function", "function": {"name": "plum", "parameters": {}}}]"#;
    let all = [
        tools(declared, of(Domain::Mcp, trajectory("g", "declared", vec![call("plum"), call("plum")]))),
        tools(declared, of(Domain::Mcp, trajectory("g", "undeclared", vec![call("plum"), call("fig")]))),
        tools(declared, of(Domain::Terminal, trajectory("g", "terminal", vec![call("plum"), call("fig")]))),
        tools("call what you like", of(Domain::Swe, trajectory("g", "prose", vec![call("fig"), call("fig")]))),
        of(Domain::Swe, trajectory("g", "none", vec![call("fig"), call("pear")])),
    ];
    let output = curate(&only_cpt(), &all).unwrap();
    assert_eq!(output.states(), ["declared", "none", "prose", "terminal"]);
    assert_eq!(output.dropped("undeclared_tool"), 1);
    let off = with_rules(Rules { undeclared_tools: UndeclaredTools { domains: vec![] }, ..Rules::default() });
    assert_eq!(curate(&off, &all).unwrap().all().count(), 5);
}

#[test]
fn a_screen_trajectory_whose_environment_failed_is_dropped() {
    let tree = |text: &str| Turn { observation_kind: ObservationKind::Tree, ..turn("tap", text) };
    let all = [
        around(Domain::Web, "captcha", vec![turn("go", "Please solve the CAPTCHA below")]),
        around(Domain::Web, "status", vec![turn("go", "<h1>502 Bad Gateway</h1>")]),
        around(Domain::Os, "chrome", vec![turn("go", "net::ERR_NAME_NOT_RESOLVED")]),
        around(Domain::Android, "lost", vec![tree(" \n")]),
        around(Domain::Android, "whole", vec![tree("button 'Go'")]),
        around(Domain::Terminal, "curl", vec![turn("curl x", "502 Bad Gateway")]),
        around(Domain::Web, "page", vec![turn("go", "room 404, 502 people found")]),
    ];
    let output = curate(&only_cpt(), &all).unwrap();
    assert_eq!(output.states(), ["curl", "page", "whole"]);
    assert_eq!(output.dropped("environment_failure"), 4);
    let failures = EnvironmentFailures { domains: vec![Domain::Terminal], patterns: vec!["Gateway".into()] };
    let own = with_rules(Rules { environment_failures: failures, ..Rules::default() });
    assert_eq!(curate(&own, &all).unwrap().dropped("environment_failure"), 1);
}

#[test]
fn retries_of_actions_that_could_not_be_read_are_skipped_and_the_state_goes_on() {
    let shown = |state: &str, one: Turn| Turn { pre_state: Some(state.into()), ..one };
    let refusal = "Error: invalid action. Please answer with one call.";
    let inner = vec![
        shown("the screen", turn("clik(3", refusal)),
        turn("clik 3", "Your last output was not properly formatted."),
        turn("click(3)", "a new page"),
        turn("click(4)", "another page"),
    ];
    let output = curate(&only_cpt(), &[around(Domain::Web, "s", inner)]).unwrap();
    assert_eq!(actions(&output), ["first", "click(3)", "click(4)", "last"]);
    assert_eq!(output.report.removed_turns, BTreeMap::from([("retry_cycle".to_string(), 2)]));
    let states: Vec<Option<String>> =
        output.all().flat_map(|one| &one.turns).map(|turn| turn.pre_state.clone()).collect();
    assert_eq!(states, [None, Some("the screen".into()), None, None]);
}

#[test]
fn a_state_of_its_own_is_not_replaced_and_errors_of_programs_are_no_refusals() {
    let shown = |state: &str, one: Turn| Turn { pre_state: Some(state.into()), ..one };
    let inner = vec![
        shown("old", turn("clik", "Failed to parse the action.")),
        shown("new", turn("click", "a page")),
        Turn { is_error: Some(true), ..turn("cat fig", "cat: fig: No such file or directory") },
        turn("python plum.py", "ValueError: invalid literal"),
    ];
    let output = curate(&only_cpt(), &[around(Domain::Web, "s", inner)]).unwrap();
    assert_eq!(actions(&output), ["first", "click", "cat fig", "python plum.py", "last"]);
    let turns: Vec<&Turn> = output.all().flat_map(|one| &one.turns).collect();
    assert_eq!(turns[1].pre_state.as_deref(), Some("new"));
}

#[test]
fn turns_that_change_nothing_on_a_screen_are_removed() {
    let before = "[1] button 'Go'\n[2] link 'Home'";
    let same = "[8] button 'Go'\n  [9] link 'Home'";
    let other = "[1] button 'Stop'\n[2] link 'Home'";
    let shown = |state: &str, one: Turn| Turn { pre_state: Some(state.into()), ..one };
    let inner = vec![turn("open", before), turn("wait", same), turn("tap", other), shown(same, turn("back", before))];
    let output = curate(&only_cpt(), &[around(Domain::Android, "s", inner.clone())]).unwrap();
    assert_eq!(actions(&output), ["first", "open", "tap", "last"]);
    assert_eq!(output.report.removed_turns["no_change"], 2);
    let elsewhere = curate(&only_cpt(), &[around(Domain::Terminal, "s", inner.clone())]).unwrap();
    assert_eq!(elsewhere.report.removed_turns.get("no_change"), None);
    // Two of four lines differ between `same` and `other`.
    let loose = NoChange { domains: vec![Domain::Android], max_changed_share: 0.5 };
    let output =
        curate(&with_rules(Rules { no_change: loose, ..Rules::default() }), &[around(Domain::Android, "s", inner)]);
    assert_eq!(output.unwrap().report.removed_turns["no_change"], 3);
}

#[test]
fn the_first_turn_is_compared_with_the_initial_state() {
    let turns = vec![turn("wait", "button 'Go'"), turn("tap", "a page"), turn("tap", "a form")];
    let output = curate(&only_cpt(), &[of(Domain::Web, trajectory("g", "button 'Go'", turns))]).unwrap();
    assert_eq!(actions(&output), ["tap", "tap"]);
}

#[test]
fn a_trajectory_of_images_is_dropped_under_that_name() {
    let image = || Turn { observation_kind: ObservationKind::Image, ..turn("tap", "") };
    let all = [
        trajectory("g", "images", vec![image(), image(), turn("a", "b")]),
        trajectory("g", "short", vec![image(), turn("", "b")]),
        trajectory("g", "good", vec![image(), turn("a", "b"), turn("c", "d")]),
    ];
    let output = curate(&only_cpt(), &all).unwrap();
    assert_eq!(output.states(), ["good"]);
    assert_eq!((output.dropped("image_only"), output.dropped("few_turns")), (1, 1));
}

#[test]
fn limits_of_a_domain_replace_those_of_all() {
    let long = "x".repeat(1500);
    let two = |state: &str, domain| of(domain, trajectory("g", state, vec![turn("a", "b"), turn("c", &long)]));
    let three =
        |state: &str, domain| of(domain, trajectory("g", state, vec![turn("a", "b"), turn("c", "d"), turn("e", "f")]));
    let all = [two("web", Domain::Web), two("os", Domain::Os), three("mcp", Domain::Mcp), three("swe", Domain::Swe)];
    let limits = BTreeMap::from([
        (Domain::Web, Limits { max_observation_chars: Some(2000), ..Limits::default() }),
        (Domain::Mcp, Limits { min_turns: Some(4), ..Limits::default() }),
        (Domain::Swe, Limits { max_turns: Some(2), ..Limits::default() }),
    ]);
    let output = curate(&CurateConfig { limits, ..only_cpt() }, &all).unwrap();
    assert_eq!(output.states(), ["swe", "web"]);
    assert_eq!(output.dropped("few_turns"), 2);
    assert_eq!(output.report.removed_turns, BTreeMap::from([("beyond_max_turns".to_string(), 1)]));
}

#[test]
fn long_actions_cut_and_long_trajectories_are_dropped() {
    let long = "é".repeat(40);
    let turns = |extra: &str| vec![turn("a", "1"), turn("b", "2"), turn(&long, "3"), turn("d", extra)];
    let config = CurateConfig { max_action_chars: Some(39), max_trajectory_chars: Some(60), ..only_cpt() };
    let all = [trajectory("g", "cut", turns("4")), trajectory("g", "long", turns(&"w".repeat(20)))];
    let output = curate(&config, &all).unwrap();
    assert_eq!(output.states(), ["cut"]);
    assert_eq!(actions(&output), ["a", "b"]);
    assert_eq!(output.report.removed_turns, BTreeMap::from([("long_action".to_string(), 2)]));
    assert_eq!(output.dropped("long_trajectory"), 1, "its 66 characters count before the cut");
}

#[test]
fn licences_are_an_allow_list_in_any_case() {
    let licensed = |state: &str, licence: Option<&str>| Trajectory {
        licence: licence.map(String::from),
        ..trajectory("g", state, vec![turn("a", "b"), turn("c", "d")])
    };
    let all = [
        licensed("mit", Some("mit")),
        licensed("apache", Some("Apache-2.0")),
        licensed("gpl", Some("GPL-3.0")),
        licensed("none", None),
    ];
    let keep = |keep_unknown: bool| {
        let licences = Licences { allow: vec!["MIT".into(), "apache-2.0".into()], keep_unknown };
        curate(&with_rules(Rules { licences: Some(licences), ..Rules::default() }), &all).unwrap()
    };
    assert_eq!(keep(false).states(), ["apache", "mit"]);
    assert_eq!(keep(true).states(), ["apache", "mit", "none"]);
    assert_eq!(keep(false).dropped("licence"), 2);
}

#[test]
fn other_languages_are_dropped_and_what_cannot_be_told_stays() {
    let said = |state: &str, text: &str| trajectory("g", state, vec![turn("read", text), turn("next", "ok")]);
    let all = [
        said(
            "english",
            "The harbour was quiet when the last boat came in and the men carried the baskets up the hill.",
        ),
        said(
            "german",
            "Der Hafen war still, als das letzte Boot einlief und die Männer die Körbe den Berg hinauftrugen.",
        ),
        said("listing", "drwxr-xr-x 2 a a 4096 plum_1.txt fig_2.txt /tmp/x /tmp/y"),
    ];
    let languages = Languages { allow: vec!["eng".into()], min_confidence: 0.5, min_letters: 40 };
    let output = curate(&with_rules(Rules { languages: Some(languages), ..Rules::default() }), &all).unwrap();
    assert_eq!(output.states(), ["english", "listing"]);
    assert_eq!(output.dropped("language"), 1);
}

#[test]
fn patterns_of_the_config_are_rules_under_their_own_names() {
    let own = |name: &str, pattern: &str, field, removes, domains: &[Domain]| OwnPattern {
        name: name.into(),
        pattern: pattern.into(),
        field,
        removes,
        domains: domains.into(),
    };
    let rules = Rules {
        patterns: vec![
            own("editor", r"^vim\b", Field::Action, Removes::Turn, &Domain::ALL),
            own("secret_door", "Fnord", Field::Observation, Removes::Trajectory, &[Domain::Web]),
        ],
        ..Rules::default()
    };
    let all = [
        around(Domain::Terminal, "vim", vec![turn("vim fig", "~"), turn("cat vim", "Fnord")]),
        around(Domain::Web, "door", vec![turn("go", "a Fnord")]),
    ];
    let output = curate(&with_rules(rules.clone()), &all).unwrap();
    assert_eq!(output.states(), ["vim"]);
    assert_eq!(actions(&output), ["first", "cat vim", "last"]);
    assert_eq!((output.report.removed_turns["editor"], output.dropped("secret_door")), (1, 1));
    let order: Vec<&str> = output.report.flow.iter().map(|step| step.rule.as_str()).collect();
    let at = |rule: &str| order.iter().position(|known| *known == rule).unwrap();
    assert_eq!((at("secret_door"), at("editor")), (at("environment_failure") + 1, at("no_change") + 1));
    let mut broken = rules;
    broken.patterns[0].pattern = "(".into();
    let error = curate(&with_rules(broken.clone()), &all).err().unwrap().to_string();
    assert!(error.contains("rules.patterns.editor = (, expected a regular expression"), "{error}");
    broken.patterns[0] = own("few_turns", "x", Field::Action, Removes::Turn, &[]);
    let error = curate(&with_rules(broken), &all).err().unwrap().to_string();
    assert!(error.contains("rules.patterns.name = few_turns, expected a name that no other rule has"), "{error}");
}

#[test]
fn the_flow_adds_up_and_the_report_knows_each_domain_and_source() {
    let all = [
        around(Domain::Web, "a", vec![turn("go", "captcha")]),
        around(Domain::Web, "b", vec![turn("", "x"), Turn { is_error: Some(true), ..turn("go", "page 1") }]),
        Trajectory { source: "other".into(), ..around(Domain::Mcp, "c", vec![]) },
        Trajectory { source: "other".into(), ..around(Domain::Mcp, "c", vec![]) },
    ];
    let report = curate(&only_cpt(), &all).unwrap().report;
    let taken = |takes: &str| -> Vec<(&str, u64, u64)> {
        let steps = report.flow.iter().filter(|step| step.takes == takes && step.taken > 0);
        steps.map(|step| (step.rule.as_str(), step.taken, step.left)).collect()
    };
    assert_eq!(taken("trajectories"), [("exact_duplicate", 1, 3), ("environment_failure", 1, 2)]);
    assert_eq!(taken("turns"), [("empty_action", 1, 5)]);
    let web = &report.domains["web"];
    assert_eq!((web.trajectories_read, web.trajectories, web.turns_read, web.turns), (2, 1, 7, 3));
    assert_eq!((web.turns_per_trajectory.max, web.action_chars.median, web.observation_chars.sum), (3, 4, 22));
    assert_eq!(web.error_share, 1.0 / 3.0);
    assert_eq!(report.sources["other"].dropped_trajectories, BTreeMap::from([("exact_duplicate".to_string(), 1)]));
    let table = report.flow_table();
    assert!(table.contains("exact_duplicate") && !table.contains("licence"), "{table}");
}
