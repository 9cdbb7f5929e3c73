//! Tables, examples, what is given and what is refused.

use std::collections::BTreeMap;

use worldloom_report::{ReportInput, run, table};
use worldloom_schema::{Difference, Evaluation, Interval, PredictorKind, System};

use crate::support::{config, evaluation, folder_with, interval, measures, page, page_of, predictor};

#[test]
fn the_terminal_table_is_as_reviewed_and_at_most_100_columns_wide() {
    let text = table(&evaluation());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    assert_eq!(text, include_str!("../terminal_table.txt"), "read the new table, then put it into terminal_table.txt");
}

#[test]
fn the_terminal_table_survives_full_marks_nan_and_nothing() {
    let mut full = evaluation();
    let hundred = Interval { mean: 1.0, low: 1.0, high: 1.0, n: 3, clusters: 2 };
    for predictor in &mut full.predictors {
        predictor.all.exact = hundred;
        predictor.all.normalised = hundred;
        predictor.all.rubric = Interval { mean: f64::NAN, ..hundred };
        predictor.all.line_f1 = Interval::default();
    }
    let text = table(&full);
    assert!(text.contains("100 (100–100)") && text.contains('–') && !text.contains("NaN"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    let nothing = Evaluation {
        seed: 0,
        turns: 0,
        episodes: 0,
        class_shares: BTreeMap::new(),
        predictors: vec![],
        differences: vec![],
        examples: vec![],
    };
    assert!(table(&nothing).starts_with("0 turns of 0 episodes"));
}

#[test]
fn hostile_text_stays_text_everywhere() {
    let mut hostile = evaluation();
    let attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    hostile.predictors[0].name = attack.into();
    hostile.predictors[0].asked = attack.into();
    hostile.predictors[0].all.faults.insert(attack.into(), 0.5);
    hostile.predictors[0].by_family.insert(attack.into(), measures(0.2));
    hostile.differences[0].from = attack.into();
    hostile.examples[0].history.push((attack.into(), attack.into()));
    let folder = tempfile::tempdir().unwrap();
    hostile.write(folder.path()).unwrap();
    let (_stage, metrics) = folder_with("metrics.jsonl", "{\"step\":1,\"reward_parts\":{\"<script>\":1}}\n");
    let report = serde_json::json!({"counts": {attack: 3}}).to_string();
    let (_step, report) = folder_with("report.json", &report);
    let input = ReportInput {
        evaluation: Some(folder.path()),
        stages: vec![(attack.into(), metrics.parent().unwrap().into())],
        reports: vec![(attack.into(), report)],
    };
    let html = page(&input, attack);
    assert!(!html.contains("<script") && !html.contains("<img"), "markup from data reached the page");
    assert!(html.contains("&lt;script&gt;"));
}

#[test]
fn the_page_needs_no_network() {
    let folder = tempfile::tempdir().unwrap();
    evaluation().write(folder.path()).unwrap();
    let (_stage, metrics) = folder_with("metrics.jsonl", "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.0}\n");
    let stages = vec![("cpt".to_string(), metrics.parent().unwrap().to_path_buf())];
    let html = page(&ReportInput { evaluation: Some(folder.path()), stages, reports: vec![] }, "run");
    let addresses = html.matches("://").count();
    assert_eq!(addresses, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    for fetching in ["<link", "<iframe", " src=", "url(", "@import"] {
        assert!(!html.contains(fetching), "{fetching}");
    }
    assert!(html.contains("<ins>") && html.contains("<del>") && html.contains("cpt: loss"));
}

#[test]
fn empty_inputs_make_a_page_that_says_so() {
    let html = page(&ReportInput::default(), "empty");
    assert!(html.contains("No evaluation was given") && html.contains("</html>"));
    let (_stage, metrics) = folder_with("metrics.jsonl", "");
    let (_step, report) = folder_with("report.json", "{}");
    let stages = vec![("cpt".to_string(), metrics.parent().unwrap().to_path_buf())];
    let html = page(&ReportInput { evaluation: None, stages, reports: vec![("ingest".into(), report)] }, "empty");
    assert!(html.contains("0 steps") && html.contains("reported no counts"));
}

#[test]
fn broken_and_missing_files_are_named() {
    let (_stage, metrics) = folder_with("metrics.jsonl", "{\"step\":1}\nnot json\n");
    let (_step, report) = folder_with("report.json", "{\"counts\": ");
    let out = tempfile::tempdir().unwrap();
    let fails = |input: ReportInput<'_>| run(&config("x"), &input, out.path()).unwrap_err().to_string();
    let stages = vec![("cpt".to_string(), metrics.parent().unwrap().to_path_buf())];
    let message = fails(ReportInput { stages, ..ReportInput::default() });
    assert!(message.contains("metrics.jsonl") && message.contains("line 2"), "{message}");
    let message = fails(ReportInput { reports: vec![("ingest".into(), report)], ..ReportInput::default() });
    assert!(message.contains("report.json"), "{message}");
    let absent = out.path().join("absent");
    let message = fails(ReportInput { evaluation: Some(&absent), ..ReportInput::default() });
    assert!(message.contains("absent"), "{message}");
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    evaluation().write(folder.path()).unwrap();
    let input = || ReportInput { evaluation: Some(folder.path()), ..ReportInput::default() };
    assert_eq!(page(&input(), "run"), page(&input(), "run"));
}

#[test]
fn examples_can_be_filtered_and_figures_taken_along_without_a_script() {
    let folder = tempfile::tempdir().unwrap();
    let mut evaluation = evaluation();
    let mut second = evaluation.examples[0].clone();
    second.class = "</style><b>".into();
    evaluation.examples.push(second);
    evaluation.write(folder.path()).unwrap();
    let (_stage, metrics) = folder_with("metrics.jsonl", "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.0}\n");
    let stages = vec![("cpt".to_string(), metrics.parent().unwrap().to_path_buf())];
    let html = page(&ReportInput { evaluation: Some(folder.path()), stages, reports: vec![] }, "run");
    for part in [
        "id=\"f-class-1\"",
        "main:has(#f-class-1:checked) .example:not(.class-1)",
        "main:has(#f-by-0:checked):has(#f-score-6:checked) .example:not(:has(.by-0.score-6))",
        "class=\"shot by by-0 score-6\"",
        "class=\"shot by by-1 score-4\"",
        "<article class=\"example domain-0 class-1 family-0\">",
        "download=\"cpt--loss.svg\" href=\"data:image/svg+xml;base64,PHN2Zy",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("</style><b>") && !html.contains("<script"));
    assert_eq!(html.matches("<fieldset>").count(), 3, "one family gives nothing to choose from");
}

#[test]
fn ablations_dimensions_domains_and_calibration_are_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let mut evaluation = evaluation();
    evaluation.predictors.insert(2, predictor("rl-only", PredictorKind::Ablation, 0.2));
    evaluation.predictors[3].calibration.clear();
    evaluation.write(folder.path()).unwrap();
    let html = page(&ReportInput { evaluation: Some(folder.path()), ..ReportInput::default() }, "run");
    for part in [
        "<tbody class=\"ablations\"><tr><td>rl-only</td>",
        "<th>factuality</th></tr>",
        "<th>unit F1</th></tr>",
        "By domain",
        "By kind of observation",
        "Calibration",
        "<td>terminal</td>",
        "<summary>terminal: by dimension, and without a judge</summary>",
        "<summary>text: by dimension, and without a judge</summary>",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let terminal = html.split("<summary>terminal: by dimension").nth(1).unwrap().split("</details>").next().unwrap();
    assert_eq!(terminal.matches(">40.0<small>").count(), 4, "the factuality of each predictor");
    let section = html.split("<h3>Calibration</h3>").nth(1).unwrap();
    let figure = section.split("</figure>").next().unwrap();
    assert_eq!(figure.matches("stroke-width=\"2\"").count(), 4, "three predictors and the line of perfect calibration");
}

#[test]
fn differences_are_by_dimension_and_fold_by_domain_and_class() {
    let mut evaluation = evaluation();
    for (turns, measure, mean) in
        [("all", "realism", 7.5), ("domain:terminal", "quality", -3.5), ("error", "exact", 0.5)]
    {
        let interval = interval(mean, 0.25);
        let (from, to) = ("base".into(), "sft".into());
        evaluation.differences.push(Difference { from, to, measure: measure.into(), turns: turns.into(), interval });
    }
    let html = page_of(&evaluation);
    let section = html.split("<h3>Paired differences</h3>").nth(1).unwrap();
    let (all, folded) = section.split_once("<details><summary>by domain</summary>").unwrap();
    let (domains, classes) = folded.split_once("<details><summary>by turn class</summary>").unwrap();
    assert!(all.contains("<th>realism</th></tr>") && all.contains("class=\"up\">+7.5<small>+7.2 to +7.8"), "{all}");
    assert!(all.contains("<th>pair</th><th>normalised</th>"), "one set of turns needs no column: {all}");
    assert!(domains.contains("<td>terminal</td><td class=\"down\">−3.5<small>"), "{domains}");
    assert!(classes.contains("<td>error</td><td class=\"up\">+50.0<small>"), "{classes}");
}

#[test]
fn rule_axes_have_their_checks_and_the_distances_of_facts() {
    let mut evaluation = evaluation();
    for predictor in &mut evaluation.predictors {
        let checks = |mean: f64| {
            let mut measures = measures(0.2);
            measures.more.insert("checks".into(), interval(mean, 0.05));
            measures
        };
        let keys = [("control", 0.3), ("long", 0.6), ("long, distance  4", 0.7)];
        predictor.by_axis = keys.map(|(axis, mean)| (axis.to_string(), checks(mean))).into();
    }
    let html = page_of(&evaluation);
    let section = html.split("<h3>By rule axis</h3>").nth(1).unwrap().split("<h3>").next().unwrap();
    let rule =
        section.split("<details open><summary>rule</summary>").nth(1).unwrap().split("</details>").next().unwrap();
    for (axis, mean) in [("control", "30.0"), ("long", "60.0"), ("long, distance  4", "70.0")] {
        let row = rule.split("<tr>").find(|row| row.contains(&format!("<td>{axis}</td>"))).unwrap();
        assert_eq!(row.matches(&format!(">{mean}<small>")).count(), 3, "{axis}: {row}");
    }
    assert!(section.contains("control: by dimension") && !section.contains("distance  4: by dimension"));
    assert_eq!(html.matches("<summary>rule</summary>").count(), 1, "elsewhere there are other turns too");
    assert!(table(&evaluation).contains("axis control") && !table(&evaluation).contains("distance"));
}

#[test]
fn evaluations_of_earlier_versions_still_read() {
    let folder = tempfile::tempdir().unwrap();
    evaluation().write(folder.path()).unwrap();
    let path = folder.path().join("evaluation.json");
    let mut value: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(&path).unwrap()).unwrap();
    for predictor in value["predictors"].as_array_mut().unwrap() {
        let fields = predictor.as_object_mut().unwrap();
        fields.retain(|name, _| !matches!(name.as_str(), "lengths" | "cut_share" | "by_axis"));
    }
    value["examples"][0].as_object_mut().unwrap().remove("system").unwrap();
    fs_err::write(&path, value.to_string()).unwrap();
    let read = Evaluation::read(folder.path()).unwrap();
    assert!(read.predictors[0].lengths.is_empty() && read.examples[0].system == System::default());
    assert!(!page_of(&read).contains("<h2>Lengths</h2>"));
}

#[test]
fn an_example_shows_its_prompt_and_its_scores_by_threshold() {
    let mut evaluation = evaluation();
    let shot = evaluation.examples[0].predictions.get_mut("repeat last").unwrap();
    shot.rubric = Some(80.0);
    let html = page_of(&evaluation);
    assert!(html.contains(
        "<summary class=\"muted\">prompt</summary><small>task</small><pre>Find the &lt;fig&gt;</pre></details>"
    ));
    assert!(html.contains("class=\"shot by by-1 score-2 score-3\""), "75 or more, and so 50 or more");
    for score in ["match", "rubric 90 or more", "75 or more", "50 or more", "below 50", "below 25", "fault"] {
        assert!(html.contains(&format!(">{score}</label>")), "{score}");
    }
    assert!(html.contains("details::details-content { content-visibility: visible"), "print shows what is folded");
}
