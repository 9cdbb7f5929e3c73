//! The page and the terminal table on small hand-made results.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use worldloom_report::{HTML_FILE, REPORT_FILE, ReportConfig, ReportInput, run, table};
use worldloom_schema::{
    CalibrationBin, Difference, Evaluation, Example, Interval, Measures, Prediction, Predictor, PredictorKind, System,
};

fn interval(mean: f64, spread: f64) -> Interval {
    Interval { mean, low: mean - spread, high: mean + spread, n: 1200, clusters: 150 }
}

fn measures(share: f64) -> Measures {
    Measures {
        exact: interval(share, 0.015),
        normalised: interval(share + 0.01, 0.015),
        line_f1: interval(share + 0.1, 0.02),
        rubric: interval(100.0 * share + 20.0, 1.25),
        faults: BTreeMap::from([("missing_tag".into(), 0.01), ("cut_by_length".into(), 0.005)]),
        more: BTreeMap::from([("factuality".into(), interval(40.0, 1.0)), ("unit_f1".into(), interval(share, 0.01))]),
    }
}

fn predictor(name: &str, kind: PredictorKind, share: f64) -> Predictor {
    let by_class = ["empty", "error", "state"].map(|class| (class.to_string(), measures(share)));
    let by_family = ["list", "read"].map(|family| (family.to_string(), measures(share)));
    Predictor {
        name: name.into(),
        kind,
        asked: "v0, thinking and tags".into(),
        all: measures(share),
        by_class: by_class.into(),
        by_family: by_family.into(),
        by_domain: BTreeMap::from([("terminal".into(), measures(share))]),
        by_kind: BTreeMap::from([("text".into(), measures(share))]),
        by_axis: BTreeMap::new(),
        calibration: vec![
            CalibrationBin { confidence: 0.4, matches: 0.1, n: 600 },
            CalibrationBin { confidence: 0.9, matches: 0.7, n: 600 },
        ],
        lengths: BTreeMap::from([(16, 300), (64, 900)]),
        cut_share: Some(0.025),
    }
}

fn evaluation() -> Evaluation {
    let difference = |from: &str, to: &str, measure: &str, mean: f64| Difference {
        from: from.into(),
        to: to.into(),
        measure: measure.into(),
        turns: "all".into(),
        interval: interval(mean, 0.02),
    };
    let prediction = |text: &str, fault: Option<&str>| Prediction {
        text: text.into(),
        thinking: Some("cwd: ~".into()),
        normalised: false,
        rubric: Some(40.0),
        fault: fault.map(String::from),
    };
    Evaluation {
        seed: 7,
        turns: 1200,
        episodes: 150,
        class_shares: [("empty", 0.12), ("error", 0.25), ("state", 0.63)].map(|(k, v)| (k.to_string(), v)).into(),
        predictors: vec![
            predictor("base", PredictorKind::Stage, 0.0),
            predictor("a-stage-with-a-very-long-name", PredictorKind::Stage, 0.45),
            predictor("repeat last", PredictorKind::Baseline, 0.11),
        ],
        differences: vec![
            difference("base", "sft", "normalised", 0.21),
            difference("base", "sft", "line_f1", -0.05),
            difference("repeat last", "sft", "normalised", 0.3),
        ],
        examples: vec![Example {
            id: "abc#2".into(),
            domain: "terminal".into(),
            class: "state".into(),
            family: "read".into(),
            system: System { task_description: "Find the <fig>".into(), ..System::default() },
            history: vec![("ls".into(), "notes.txt".into())],
            action: "cat <notes.txt".into(),
            truth: "<b>fig</b>\nplum".into(),
            predictions: [
                ("base".to_string(), prediction("</pre><script>alert(1)</script>", Some("missing_tag"))),
                ("repeat last".to_string(), prediction("<b>fig</b>\npear", None)),
            ]
            .into(),
        }],
    }
}

fn config(title: &str) -> ReportConfig {
    ReportConfig { title: title.into() }
}

fn page(input: &ReportInput<'_>, title: &str) -> String {
    let out = tempfile::tempdir().unwrap();
    run(&config(title), input, out.path()).unwrap();
    fs_err::read_to_string(out.path().join(HTML_FILE)).unwrap()
}

fn folder_with(file: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    fs_err::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn the_terminal_table_is_as_reviewed_and_at_most_100_columns_wide() {
    let text = table(&evaluation());
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
    }
    assert_eq!(text, include_str!("terminal_table.txt"), "read the new table, then put it into terminal_table.txt");
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
fn supervised_and_rl_stages_have_their_figures() {
    let rl = "{\"step\":1,\"loss\":0.1,\"reward_mean\":8.5,\"fault_share\":0.2,\"reward_parts\":{\"format\":3.0,\"charm\":1}}\n\
              {\"step\":2,\"loss\":null,\"reward_mean\":9.5,\"fault_share\":0.1,\"reward_parts\":{\"format\":3.5}}\n";
    let (_rl, rl) = folder_with("metrics.jsonl", rl);
    let cpt = "{\"step\":1,\"loss\":5.0}\n{\"step\":2,\"loss\":4.0,\"validation_loss\":4.5}\n";
    let (_cpt, cpt) = folder_with("metrics.jsonl", cpt);
    let folder = |path: &Path| path.parent().unwrap().to_path_buf();
    let stages = vec![("cpt".to_string(), folder(&cpt)), ("rl".to_string(), folder(&rl))];
    let out = tempfile::tempdir().unwrap();
    let input = ReportInput { stages, ..ReportInput::default() };
    let report = run(&config("curves"), &input, out.path()).unwrap();
    let html = fs_err::read_to_string(out.path().join(HTML_FILE)).unwrap();
    for title in [
        "cpt: loss",
        "validation",
        "rl: mean reward",
        "rl: faults",
        "rl: rubric by dimension",
        "rl: other reward parts",
    ] {
        assert!(html.contains(title), "{title}");
    }
    assert_eq!(html.matches("key line-0\">format").count(), 1, "a named part is in its own figure only");
    assert_eq!(report.counts["figures"], html.matches("<svg ").count() as u64);
    assert_eq!(report.stages["rl"]["reward_mean"], 9.5);
    let written = fs_err::read_to_string(out.path().join(REPORT_FILE)).unwrap();
    assert_eq!(serde_json::from_str::<worldloom_report::Report>(&written).unwrap(), report);
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

/// A page with this evaluation.
fn page_of(evaluation: &Evaluation) -> String {
    let folder = tempfile::tempdir().unwrap();
    evaluation.write(folder.path()).unwrap();
    page(&ReportInput { evaluation: Some(folder.path()), ..ReportInput::default() }, "run")
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
fn bars_stand_for_stages_by_domain_and_class_and_rules_where_there_is_no_stage() {
    let figure = |html: &str, title: &str| {
        let figures = html.split("<figure>").filter(|figure| figure.contains(&format!("<figcaption>{title}")));
        figures.map(|figure| figure.split("<figcaption>").map(String::from).collect::<Vec<_>>()).next()
    };
    let mut evaluation = evaluation();
    let by_domain = figure(&page_of(&evaluation), "rubric by domain").unwrap();
    assert_eq!(by_domain[0].matches("<rect ").count(), 2, "base and the other stage");
    assert!(by_domain[1].contains("base") && !by_domain[1].contains("repeat last"));
    let by_class = figure(&page_of(&evaluation), "normalised by turn class").unwrap();
    assert_eq!(by_class[0].matches("<rect ").count(), 2 * 3);
    evaluation.predictors.retain(|predictor| predictor.kind == PredictorKind::Baseline);
    let rules = figure(&page_of(&evaluation), "rubric by domain").unwrap();
    assert!(rules[0].matches("<rect ").count() == 1 && rules[1].contains("repeat last"));
}

#[test]
fn lengths_of_answers_and_documents_are_drawn_with_what_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut evaluation = evaluation();
    evaluation.predictors[2].lengths.clear();
    evaluation.write(folder.path()).unwrap();
    let report = r#"{"weight_sum": 9.0, "counts": {"documents": 1120, "truncated": 3, "rows": 40}, "lengths": {"256": 167, "1024": 953}}"#;
    let (_step, report) = folder_with("report.json", report);
    let reports = vec![("rows-sft".to_string(), report)];
    let html = page(&ReportInput { evaluation: Some(folder.path()), stages: vec![], reports }, "run");
    let section = html.split("<h2>Lengths</h2>").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!(section.matches("<rect ").count(), 2 * 3 + 3, "three groups of two predictors, three of documents");
    assert!(section.contains("base, 2.5 % cut") && !section.contains("repeat last"));
    assert!(section.contains("1,120 documents, 3 cut") && section.contains(">\n1,024\n<"), "{section}");
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
fn the_lineage_is_a_flow_of_figures_from_rows_to_pools_to_tokens() {
    let ingest = r#"{"counts": {"rows": 1200, "trajectories": 1100}, "rejects_by_rule": {"no_turns": 100}}"#;
    let curate = r#"{"counts": {"trajectories_read": 1100, "trajectories": 900, "turns_read": 8000, "turns": 6500},
        "flow": [{"rule": "exact_duplicate", "takes": "trajectories", "taken": 150, "left": 950},
                 {"rule": "licence", "takes": "trajectories", "taken": 0, "left": 950},
                 {"rule": "few_turns", "takes": "trajectories", "taken": 50, "left": 900},
                 {"rule": "retry_cycle", "takes": "turns", "taken": 321, "left": 6500}],
        "pools": {"cpt": {"trajectories": 600, "turns": 4400}, "eval": {"trajectories": 300, "turns": 2100}}}"#;
    let render = r#"{"weight_sum": 1.0, "counts": {"documents": 640, "truncated": 2, "rows": 77, "tokens": 5000,
        "tokens_rendered": 5600, "tokens_shared": 400, "trained_tokens": 3000},
        "dropped": {"too_long": {"documents": 15, "tokens": 200}}}"#;
    let made =
        [("trajectories", ingest), ("pools", curate), ("rows-cpt", render), ("rl", r#"{"counts": {"steps": 3}}"#)];
    let made = made.map(|(name, report)| (name, folder_with("report.json", report)));
    let reports = made.iter().map(|(name, (_, path))| (name.to_string(), path.clone())).collect();
    let html = page(&ReportInput { reports, ..ReportInput::default() }, "run");
    let of = |step: &str| {
        let start = html.split(&format!("<h3>{step}</h3>")).nth(1).unwrap();
        start.split("<h3>").next().unwrap().to_string()
    };
    let check = |step: &str, rows: &[(&str, &str)]| {
        let section = of(step);
        for (label, number) in rows {
            let row = section.split("<text x=").find(|text| text.contains(&format!(">{label}</text>")));
            assert!(
                row.is_some() && section.contains(&format!(">{number}</text>")),
                "{step}: {label} {number}: {section}"
            );
        }
        assert_eq!(section.matches("<rect ").count(), rows.len(), "{step}");
    };
    check(
        "trajectories",
        &[("rows read", "1,200"), ("no turns", "−100"), ("rows taken", "1,100"), ("trajectories", "1,100")],
    );
    check(
        "pools",
        &[
            ("trajectories read", "1,100"),
            ("exact duplicate", "−150"),
            ("few turns", "−50"),
            ("trajectories left", "900"),
            ("pool cpt", "600"),
            ("pool eval", "300"),
            ("turns read", "8,000"),
            ("with their trajectories", "−1,179"),
            ("retry cycle", "−321"),
            ("turns left", "6,500"),
            ("pool cpt", "4,400"),
            ("pool eval", "2,100"),
        ],
    );
    check(
        "rows-cpt",
        &[
            ("documents", "640"),
            ("too long", "−15"),
            ("documents left", "625"),
            ("of them cut", "2"),
            ("rows made", "77"),
            ("tokens", "5,600"),
            ("in a shared history", "−400"),
            ("too long", "−200"),
            ("tokens left", "5,000"),
            ("of them trained", "3,000"),
        ],
    );
    assert!(!of("rl").contains("<svg") && of("rl").contains("<td>3</td>"));
}

#[test]
fn a_figure_taken_along_says_what_it_shows() {
    use base64::Engine;
    let (_stage, metrics) = folder_with("metrics.jsonl", "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.0}\n");
    let stages = vec![("cpt".to_string(), metrics.parent().unwrap().to_path_buf())];
    let html = page(&ReportInput { stages, ..ReportInput::default() }, "run");
    let file = html.split("data:image/svg+xml;base64,").nth(1).unwrap().split('"').next().unwrap();
    let file = base64::engine::general_purpose::STANDARD.decode(file).unwrap();
    let file = String::from_utf8(file).unwrap();
    assert!(file.contains("<title>cpt: loss</title>") && file.contains(">training 1.000</text>"), "{file}");
    assert_eq!(file.matches("<polyline").count() > 0, html.contains("<polyline"));
}

#[test]
fn what_rl_writes_of_a_step_is_drawn_and_what_was_not_asked_for_is_not() {
    let line = |step: u64, kl: f64| {
        serde_json::json!({"step": step, "stopped_share": 0.9, "entropy": 0.5, "kl": kl, "clip_low": 0.01, "clip_high": 0.02,
            "truth_nll": 0.0, "unavailable": step, "unavailable_reasons": {"timeout": step},
            "by_label": {"terminal": {"reward_mean": 9.0}, "web": {"reward_mean": 4.0}}, "routers": {"busiest": 1.5}})
        .to_string()
    };
    let titles = |kl: f64| {
        let (_stage, metrics) = folder_with("metrics.jsonl", &format!("{}\n{}\n", line(1, 0.0), line(2, kl)));
        let stages = vec![("rl".to_string(), metrics.parent().unwrap().to_path_buf())];
        let html = page(&ReportInput { stages, ..ReportInput::default() }, "run");
        let captions = html.split("<figcaption>").skip(1).map(|caption| caption.split("</figcaption>").next().unwrap());
        captions.map(String::from).collect::<Vec<_>>()
    };
    let drawn = titles(0.1);
    for (title, keys) in [
        ("completions that end by themselves", vec!["ended 0.900"]),
        ("mean reward by domain", vec!["terminal 9.000", "web 4.000"]),
        ("entropy by token", vec!["entropy 0.500"]),
        ("divergence from the reference", vec!["divergence 0.100"]),
        ("tokens clipped", vec!["below the range 0.010", "above the range 0.020"]),
        ("completions without a score", vec!["all 2.000", "timeout 2.000"]),
        ("choices of the busiest expert", vec!["busiest 1.500"]),
    ] {
        let caption =
            drawn.iter().find(|caption| caption.contains(title)).unwrap_or_else(|| panic!("{title}: {drawn:?}"));
        assert!(keys.iter().all(|key| caption.contains(key)), "{caption}");
    }
    assert!(!drawn.iter().any(|caption| caption.contains("negative log-likelihood")), "no truth was trained");
    assert!(!titles(0.0).iter().any(|caption| caption.contains("divergence")), "no reference was asked for");
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
