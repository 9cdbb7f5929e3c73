//! What becomes of documents that are too long, and that every figure of a report is that of its rows.

use proptest::prelude::*;
use worldloom_render::{Error, Long, RenderConfig, Stage};

use crate::rows::{Pools, check_report, config, long_one};
use crate::support::{episode, terminal};

#[test]
fn what_long_documents_lose_is_counted_by_how_much() {
    let pools = Pools::new(Stage::Cpt, [long_one(40), episode(0), episode(1)]);
    let with = |long: Long, name: &str| {
        let config = RenderConfig { row_tokens: Some(700), long: Some(long), ..config(Stage::Cpt) };
        pools.render(&config, name).unwrap()
    };
    let dropped = with(Long::Drop, "drop");
    let lost = dropped.dropped["too_long"].tokens;
    assert_eq!(dropped.cuts, [(lost.next_power_of_two(), 1)].into());
    assert_eq!(dropped.lengths.values().sum::<u64>(), 3, "before it is cut");
    let cut = with(Long::CutTurns, "cut");
    assert_eq!(cut.cuts, [(cut.counts["tokens_cut"].next_power_of_two(), 1)].into());
    assert!(with(Long::Window, "window").cuts.is_empty(), "windows lose nothing");

    let pools = Pools::new(Stage::Rl, [long_one(40), episode(1)]);
    let rl = |max| RenderConfig { max_prompt_tokens: Some(max), max_lost_share: 1.0, ..config(Stage::Rl) };
    let (whole, short) = (pools.render(&rl(100_000), "whole").unwrap(), pools.render(&rl(500), "short").unwrap());
    assert!(whole.cuts.is_empty());
    assert_eq!(whole.lengths.values().sum::<u64>(), whole.counts["prompts"], "prompts have their lengths too");
    assert_eq!(short.lengths, whole.lengths);
    assert_eq!(short.cuts.values().sum::<u64>(), short.dropped["too_long"].documents);
}

#[test]
fn windows_without_a_target_are_counted() {
    let observation = "fig plum ".repeat(60);
    let turns: Vec<_> = (0..10).map(|at| ("cat f", observation.as_str(), at == 9)).collect();
    let pools = Pools::new(Stage::Cpt, [terminal(&turns)]);
    let config = RenderConfig { row_tokens: Some(700), long: Some(Long::Window), ..config(Stage::Cpt) };
    let report = pools.render(&config, "out").unwrap();
    check_report(&report, &pools.rows("out"), 700);
    let windows = report.counts["windows_without_target"];
    assert!(report.counts["rows"] == 1 && windows > 1, "{windows}");
    assert_eq!(report.cuts.values().sum::<u64>(), 1);
}

#[test]
fn a_run_that_loses_most_of_its_documents_is_refused_with_figures() {
    let pools = Pools::new(Stage::Cpt, (0..3).map(|_| long_one(40)).chain([episode(0)]));
    let short = RenderConfig { row_tokens: Some(700), ..config(Stage::Cpt) };
    let error = pools.render(&short, "out").unwrap_err();
    let text = error.to_string();
    for words in ["3 of 4 documents are left out", "too_long 3", "`max_lost_share` 0.5"] {
        assert!(text.contains(words), "no `{words}` in: {text}");
    }
    assert!(error.hint().unwrap().contains("cut_turns"));
    pools.render(&RenderConfig { max_lost_share: 0.75, ..short.clone() }, "out").unwrap();
    let wrong = RenderConfig { max_lost_share: 1.5, ..short };
    assert!(matches!(wrong.check(), Err(Error::Config { field: "max_lost_share", .. })));

    let mut screens = episode(2);
    screens.turns.iter_mut().skip(1).for_each(|turn| turn.observation_kind = worldloom_schema::ObservationKind::Image);
    screens.turns.iter_mut().for_each(|turn| turn.keep = Some(true));
    let images = screens.turns.len() - 1;
    let error = Pools::new(Stage::Sft, [screens]).render(&config(Stage::Sft), "out").unwrap_err().to_string();
    assert!(error.contains(&format!("image {images}")), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn weights_and_tokens_are_the_reports_for_any_pool_and_settings(
        seeds in prop::collection::vec(0usize..200, 1..8), words in prop::sample::select(vec![0usize, 4, 40, 120]),
        stage in prop::sample::select(vec![Stage::Cpt, Stage::Sft]),
        long in prop::sample::select(vec![Long::Drop, Long::CutTurns, Long::Window]),
        pack in any::<bool>(), shares in any::<bool>(), weight in prop::sample::select(vec![0.0f32, 0.5]),
        row_tokens in prop::sample::select(vec![260usize, 420, 900]),
    ) {
        let is_sft = stage == Stage::Sft;
        let settings = RenderConfig {
            row_tokens: Some(row_tokens),
            long: Some(if is_sft && long == Long::Window { Long::CutTurns } else { long }),
            pack: Some(pack),
            share_history: is_sft && shares,
            action_weight: if is_sft { 0.0 } else { weight },
            history_weight: if is_sft { weight } else { 0.0 },
            max_empty_share: 1.0,
            max_lost_share: 1.0,
            ..config(stage)
        };
        let long_ones = (words > 0).then(|| long_one(words)).into_iter();
        let pools = Pools::new(stage, seeds.into_iter().map(episode).chain(long_ones));
        match pools.render(&settings, "out") {
            Ok(report) => {
                check_report(&report, &pools.rows("out"), row_tokens);
                let documents = report.counts["documents"];
                let lost: u64 = report.dropped.values().map(|dropped| dropped.documents).sum();
                let kept: u64 = report.domains.values().map(|of| of.kept).sum();
                prop_assert_eq!(documents, kept + lost);
                prop_assert_eq!(report.domains.values().map(|of| of.tokens).sum::<u64>(), report.counts["tokens"]);
            }
            Err(error) => prop_assert!(matches!(error, Error::NothingLeft { .. }), "{}", error),
        }
    }
}
