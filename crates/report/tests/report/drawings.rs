//! Curves, bars, flows and figures as files.

use std::path::Path;

use worldloom_report::{HTML_FILE, REPORT_FILE, ReportInput, run};
use worldloom_schema::PredictorKind;

use crate::support::{config, evaluation, folder_with, page, page_of};

#[test]
fn supervised_and_rl_stages_have_their_figures() {
    let rl = "{\"step\":1,\"loss\":0.1,\"reward_mean\":8.5,\"fault_share\":0.2,\"reward_parts\":{\"format\":3.0,\"charm\":1}}\n\
              {\"step\":2,\"loss\":null,\"reward_mean\":9.5,\"fault_share\":0.1,\"reward_parts\":{\"format\":3.5}}\n";
    let (_rl, rl) = folder_with("metrics.jsonl", rl);
    let cpt = "{\"step\":1,\"loss\":5.0}\n{\"step\":2,\"loss\":4.0,\"validation\":{\"loss\":4.5}}\n";
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
