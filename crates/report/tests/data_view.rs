//! Trajectory files as a person sees them: which there are, filters, figures, the page.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::ops::ControlFlow;
use std::path::Path;

use worldloom_report::data::{DataSet, Filter, PageOptions, Place, Stats, page};
use worldloom_schema::{
    ActionKind, Domain, ObservationKind, Outcome, Pool, Reject, System, Trajectory, Turn, trajectory_id, write_table,
};

fn turn(action: &str, observation: &str) -> Turn {
    Turn {
        index: 0,
        action: action.into(),
        action_kind: ActionKind::Command,
        observation: observation.into(),
        observation_kind: ObservationKind::Text,
        reasoning: None,
        pre_state: None,
        trace: None,
        is_error: None,
        truncated: false,
        flags: Vec::new(),
        keep_class: None,
        keep: None,
    }
}

fn trajectory(source: &str, domain: Domain, task: &str, turns: Vec<Turn>) -> Trajectory {
    let system = System { task_description: task.into(), ..System::default() };
    Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: source.into(),
        source_path: "a.json".into(),
        source_row: 0,
        format: "chat".into(),
        domain,
        task_group: task.into(),
        licence: None,
        system,
        turns,
        outcome: Outcome::default(),
        pool: None,
    }
}

/// Two sources of two domains in two files.
fn write_set(folder: &Path) -> DataSet {
    let shop = trajectory("shops", Domain::Web, "Buy a FIG", vec![turn("click", "<b>Figs</b>"), turn("buy", "")]);
    let shell = |number: usize| {
        let turns = vec![turn("ls", "a\nb"), turn("ls", "a\nb"), turn("cat é", "ÉTÉ \u{1b}[31m")];
        let mut trajectory = trajectory("shells", Domain::Terminal, &format!("List {number}"), turns);
        trajectory.pool = Some(if number == 0 { Pool::Eval } else { Pool::Cpt });
        trajectory.turns[2].is_error = Some(number == 0);
        trajectory
    };
    write_table(&folder.join("b.parquet"), (0..3000).map(shell)).unwrap();
    write_table(&folder.join("a.parquet"), [shop.clone(), shop]).unwrap();
    let reject = Reject {
        source: "x".into(),
        file: "x".into(),
        row: 0,
        byte_offset: 0,
        rule: "cut".into(),
        detail: String::new(),
    };
    write_table(&folder.join("rejects.parquet"), [reject]).unwrap();
    DataSet::open(folder).unwrap()
}

fn found(set: &DataSet, filter: &Filter) -> Vec<Place> {
    let mut places = Vec::new();
    set.visit(filter, |place, _| {
        places.push(place);
        ControlFlow::Continue(())
    })
    .unwrap();
    places
}

#[test]
fn a_folder_is_its_trajectory_files_and_every_row_can_be_read_alone() {
    let folder = tempfile::tempdir().unwrap();
    let set = write_set(folder.path());
    assert_eq!((set.files().len(), set.total()), (2, 3002));
    for (file, row, task) in [(0, 1, "Buy a FIG"), (1, 0, "List 0"), (1, 1024, "List 1024"), (1, 2999, "List 2999")] {
        assert_eq!(set.read(Place { file, row }).unwrap().system.task_description, task);
    }
    let error = set.read(Place { file: 1, row: 3000 }).unwrap_err().to_string();
    assert!(error.contains("b.parquet") && error.contains("no row 3000"), "{error}");
}

#[test]
fn a_folder_without_trajectories_looks_into_those_below_it_and_else_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let error = DataSet::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("no trajectory file in"), "{error}");
    let below = folder.path().join("runs/ingest");
    fs_err::create_dir_all(&below).unwrap();
    write_set(&below);
    assert_eq!(DataSet::open(folder.path()).unwrap().total(), 3002);
    let error = DataSet::open(&below.join("rejects.parquet")).unwrap_err().to_string();
    assert!(error.contains("rejects.parquet") && error.contains("trajectory"), "{error}");
}

#[test]
fn filters_let_through_what_holds() {
    let folder = tempfile::tempdir().unwrap();
    let set = write_set(folder.path());
    let count = |filter: Filter| found(&set, &filter).len();
    assert_eq!(count(Filter::default()), 3002);
    assert_eq!(count(Filter { domains: vec![Domain::Web], ..Filter::default() }), 2);
    assert_eq!(count(Filter { domains: vec![Domain::Web, Domain::Terminal], ..Filter::default() }), 3002);
    assert_eq!(count(Filter { sources: vec!["shells".into()], ..Filter::default() }), 3000);
    assert_eq!(count(Filter { pools: vec![Pool::Eval], ..Filter::default() }), 1);
    let text = |text: &str| count(Filter { text: text.into(), ..Filter::default() });
    assert_eq!([text("a fig"), text("<B>FIGS"), text("été"), text("list 2999"), text("nowhere")], [2, 2, 3000, 1, 0]);
    let mut visits = 0;
    let read = set.visit(&Filter::default(), |_, _| {
        visits += 1;
        if visits == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((read.unwrap(), visits), (3, 3));
}

#[test]
fn figures_are_counted_by_domain_and_source() {
    let folder = tempfile::tempdir().unwrap();
    let set = write_set(folder.path());
    let mut stats = Stats::default();
    set.visit(&Filter::default(), |_, trajectory| {
        stats.add(&trajectory);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((stats.all.trajectories, stats.all.turns, stats.all.repeated_trajectories), (3002, 9004, 1));
    let shells = &stats.domains["terminal"].sources["shells"];
    assert_eq!((shells.turns, shells.task_groups, shells.errors, shells.turns_with_known_error), (9000, 3000, 1, 3000));
    // "a\nb" stands there first once, "ÉTÉ \u{1b}[31m" once; the second `ls` of each shows what the first did.
    assert_eq!((shells.repeated_observations, shells.unchanged), (8998, 3000));
    let chars = &shells.observation_chars;
    assert_eq!((chars.quantile(0.5), chars.quantile(0.9), chars.longest(), chars.total()), (3, 9, 9, 45_000));
    assert_eq!((shells.pools["eval"], shells.pools["cpt"]), (1, 2999));
    let shops = &stats.domains["web"].all;
    assert_eq!((shops.empty_observations, shops.turns_per_trajectory.longest()), (2, 2));
    let json = serde_json::to_value(&stats).unwrap();
    assert_eq!(json["domains"]["web"]["sources"]["shops"]["observation_chars"]["max"], 11);
    let table = stats.table();
    expect_test::expect_file!["data_stats.txt"].assert_eq(&table);
}

#[test]
fn the_page_has_no_scripts_and_text_cannot_change_it() {
    let folder = tempfile::tempdir().unwrap();
    let set = write_set(folder.path());
    let options = |limit: u64| PageOptions { title: "A <title>".into(), limit };
    let html = page(&set, &Filter::default(), &options(10)).unwrap();
    assert_eq!(html.matches("<article").count(), 10);
    assert!(html.contains("10 of 3,002 trajectories") && html.contains("A &lt;title&gt;"));
    assert!(!html.contains("<script") && !html.contains("<b>Figs") && !html.contains('\u{1b}'));
    let web = Filter { domains: vec![Domain::Web], ..Filter::default() };
    let html = page(&set, &web, &options(10)).unwrap();
    assert!(html.contains("&lt;b&gt;Figs&lt;/b&gt;") && html.contains("2 of 2 trajectories (4 turns)."), "{html}");
    let nothing = Filter { text: "nowhere".into(), ..Filter::default() };
    assert!(page(&set, &nothing, &options(10)).unwrap().contains("0 of 0 trajectories"));
}

#[test]
fn a_limit_spreads_what_is_shown_evenly() {
    let folder = tempfile::tempdir().unwrap();
    let set = write_set(folder.path());
    for limit in [0, 1, 7, 3001, 3002, 10_000] {
        let html = page(&set, &Filter::default(), &PageOptions { title: String::new(), limit }).unwrap();
        assert_eq!(html.matches("<article").count() as u64, limit.min(3002), "{limit}");
    }
}
