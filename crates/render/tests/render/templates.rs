//! Templates: short, different, owned by one stage, and nothing dynamic is lost.

use std::collections::BTreeSet;

use worldloom_render::{Error, PromptStyle, Stage, Templates};
use worldloom_schema::Domain;

use crate::support::{own_tokenizer, renderer, terminal, trajectory, turn};

#[test]
fn the_twelve_templates_have_at_most_eight_lines_and_differ() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/compact");
    let mut sources = BTreeSet::new();
    for version in 0..12 {
        let source = fs_err::read_to_string(folder.join(format!("v{version}.jinja"))).unwrap();
        assert!(source.lines().count() <= 8, "v{version} has {} lines", source.lines().count());
        assert!(sources.insert(source), "v{version} is a copy of another");
    }
    let templates = Templates::compact().unwrap();
    let system = terminal(&[("ls", "fig", true)]).system;
    for domain in Domain::ALL {
        let prompts: BTreeSet<_> = (0..12).map(|v| templates.system_prompt(v, domain, &system).unwrap()).collect();
        assert_eq!(prompts.len(), 12, "{domain}");
    }
}

#[test]
fn the_full_family_has_twelve_layouts_of_thirty_lines_and_more_for_every_domain() {
    let templates = Templates::bundled("full").unwrap();
    assert_eq!(templates.versions(), (0..12).collect::<Vec<u8>>());
    let mut system = terminal(&[("ls", "fig", true)]).system;
    (system.initial_state, system.action_space) = (None, None);
    for domain in Domain::ALL {
        let mut prompts = BTreeSet::new();
        for version in 0..12 {
            let prompt = templates.system_prompt(version, domain, &system).unwrap();
            let lines = prompt.lines().count();
            let has_reference = [0, 3, 6, 9].contains(&version);
            let bounds = if has_reference { 180..600 } else { 30..180 };
            assert!(bounds.contains(&lines), "v{version} {domain}: {lines} lines");
            let own = Templates::compact().unwrap().system_prompt(version, domain, &system).unwrap();
            assert!(prompt.lines().all(|line| line.trim().len() < 400) && prompt.len() > 4 * own.len());
            assert!(prompts.insert(prompt.split_whitespace().collect::<Vec<_>>().join(" ")), "v{version} {domain}");
        }
    }
}

#[test]
fn what_is_known_of_a_domain_is_long_its_own_and_said_once() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/full/reference");
    let mut said = BTreeSet::new();
    for domain in Domain::ALL {
        let text = fs_err::read_to_string(folder.join(format!("{domain}.json"))).unwrap();
        let chapters: Vec<worldloom_render::Chapter> = serde_json::from_str(&text).unwrap();
        let points: Vec<&String> = chapters.iter().flat_map(|chapter| &chapter.points).collect();
        assert!(points.len() >= 80, "{domain}: {} points", points.len());
        assert!(points.iter().all(|point| point.ends_with(['.', '`']) && point.chars().count() < 300), "{domain}");
        for point in points {
            assert!(said.insert(point.clone()), "{domain} repeats: {point}");
        }
    }
}

#[test]
fn no_prompt_of_one_stage_is_a_prompt_of_another() {
    for family in ["compact", "full"] {
        let templates = Templates::bundled(family).unwrap();
        let mut owners: std::collections::BTreeMap<String, Stage> = Default::default();
        for (domain, version) in Domain::ALL.into_iter().flat_map(|domain| (0..12).map(move |v| (domain, v))) {
            for seed in 0..3 {
                let mut system = crate::support::episode(seed).system;
                system.simulation_instruction = (seed == 1).then(|| "Let the disk be full.".into());
                let prompt = templates.system_prompt(version, domain, &system).unwrap();
                let stage = Stage::of_version(version);
                assert_eq!(*owners.entry(prompt).or_insert(stage), stage, "{family} v{version} {domain}");
            }
        }
    }
}

#[test]
fn what_a_template_leaves_out_is_known() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("v1.jinja"), "{{ role }} {{ tools }} {% if task %}{{ task }}{% endif %}").unwrap();
    fs_err::write(folder.path().join("v0.jinja"), "{{ role }} {{ initial_state }}").unwrap();
    let own = Templates::from_folder(folder.path()).unwrap();
    let mut system = terminal(&[("ls", "fig", true)]).system;
    system.demonstrations = vec!["Example.".into()];
    assert_eq!(own.omitted(1, Domain::Mcp, &system), ["initial_state", "demonstrations"]);
    assert_eq!(own.omitted(0, Domain::Terminal, &system), ["tools", "demonstrations"]);
    for (family, version) in ["compact", "full"].into_iter().flat_map(|family| (0..12).map(move |v| (family, v))) {
        let templates = Templates::bundled(family).unwrap();
        let all = Domain::ALL.iter().flat_map(|&domain| templates.omitted(version, domain, &system));
        assert_eq!(all.count(), 0, "{family} v{version}");
    }
}

#[test]
fn two_versions_that_say_the_same_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("v0.jinja"), "{{ role }}\n{{ state }}").unwrap();
    fs_err::write(folder.path().join("v7.jinja"), "{{ role }}  {{ state }}\n").unwrap();
    let error = Templates::from_folder(folder.path()).unwrap_err();
    assert!(matches!(error, Error::SameTemplate { first: 0, second: 7, .. }), "{error}");
}

#[test]
fn dynamic_parts_are_in_every_template() {
    for (family, tools) in
        [("compact", "bash(command)"), ("full", r#"{"name":"bash","parameters":{"properties":{"command":{}}}}"#)]
    {
        check_dynamic_parts(&Templates::bundled(family).unwrap(), tools);
    }
}

fn check_dynamic_parts(templates: &Templates, tools: &str) {
    let mut system = terminal(&[("ls", "fig", true)]).system;
    system.simulation_instruction = Some("Let the disk be full.".into());
    system.demonstrations = vec!["Example one.".into(), "Example two.".into()];
    system.initial_state = Some("~ holds {{ a }}.txt\nand b.txt".into());
    for domain in Domain::ALL {
        for version in 0..12 {
            let prompt = templates.system_prompt(version, domain, &system).unwrap();
            let parts =
                [tools, "Let the disk be full.", "Example one.\n\nExample two.", "~ holds {{ a }}.txt\nand b.txt"];
            for part in parts {
                assert_eq!(prompt.matches(part).count(), 1, "v{version} {domain}: {part}\n{prompt}");
            }
            let shows_task = domain != Domain::Terminal;
            assert_eq!(prompt.contains(&system.task_description), shows_task, "v{version} {domain}");
            assert!(!prompt.contains("{%") && !prompt.contains("\n\n\n"), "v{version} {domain}\n{prompt}");
        }
    }
    system.simulation_instruction = None;
    system.demonstrations.clear();
    system.initial_state = None;
    system.action_space = None;
    for version in 0..12 {
        let prompt = templates.system_prompt(version, Domain::Terminal, &system).unwrap();
        if templates.family() != "compact" {
            continue;
        }
        for label in ["Tools", "Task", "Start", "Instruction", "Example", "None", "none"] {
            assert!(!prompt.contains(label), "v{version} says `{label}` of nothing\n{prompt}");
        }
    }
}

#[test]
fn terminal_prompts_are_compact_with_our_tokenizer() {
    let (templates, tokenizer) = (Templates::compact().unwrap(), own_tokenizer());
    let mut system = terminal(&[("ls", "fig", true)]).system;
    system.initial_state = None;
    // The tokenizer of these tests has seen v1 only and has a third of the usual vocabulary.
    let prompt = templates.system_prompt(1, Domain::Terminal, &system).unwrap();
    let tokens = tokenizer.encode_untrusted(&prompt).unwrap().unwrap().len();
    assert!(tokens <= 60, "{tokens} tokens\n{prompt}");
    for version in 0..12 {
        let prompt = templates.system_prompt(version, Domain::Terminal, &system).unwrap();
        assert!(prompt.split_whitespace().count() <= 52, "v{version}\n{prompt}");
    }
}

#[test]
fn a_stage_cannot_use_the_template_of_another() {
    let renderer = renderer();
    let trajectory = terminal(&[("ls", "fig", true)]);
    for version in 0..12u8 {
        let owner = Stage::of_version(version);
        for stage in [Stage::Cpt, Stage::Sft, Stage::Rl] {
            assert_eq!(stage.check_version(version).is_ok(), stage == owner);
        }
        assert_eq!(renderer.render_sft(&trajectory, 0, version).is_ok(), owner == Stage::Sft);
        assert_eq!(renderer.render_rl(&trajectory, 0, version).is_ok(), owner == Stage::Rl);
        let plain = renderer.render_prompt(&trajectory, 0, PromptStyle::Plain { version });
        assert_eq!(plain.is_ok(), owner == Stage::Cpt);
        let tagged = renderer.render_prompt(&trajectory, 0, PromptStyle::Tagged { version });
        assert_eq!(tagged.is_ok(), owner != Stage::Cpt);
    }
    let error = renderer.render_sft(&trajectory, 0, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "template v1 belongs to cpt, not to sft: v0 is for rl, v1 for cpt, v2 and higher for sft"
    );
}

#[test]
fn a_folder_of_the_users_is_a_family() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("v1.jinja"), "Mine: {{ role }}").unwrap();
    fs_err::write(folder.path().join("v3.jinja"), "{{ unknown }}").unwrap();
    fs_err::write(folder.path().join("notes.txt"), "not a template").unwrap();
    let templates = Templates::from_folder(folder.path()).unwrap();
    assert_eq!(templates.versions(), [1, 3]);
    let system = terminal(&[("ls", "fig", true)]).system;
    let prompt = templates.system_prompt(1, Domain::Terminal, &system).unwrap();
    assert_eq!(prompt, "Mine: You are a bash terminal.");
    let missing = templates.system_prompt(2, Domain::Terminal, &system).unwrap_err();
    assert!(matches!(missing, Error::NoTemplate { version: 2, .. }) && missing.to_string().contains("v1, v3"));
    assert!(matches!(templates.system_prompt(3, Domain::Terminal, &system), Err(Error::Template { version: 3, .. })));
    fs_err::write(folder.path().join("domains.json"), r#"{"terminal": {}}"#).unwrap();
    assert!(matches!(Templates::from_folder(folder.path()), Err(Error::Domains { .. })));
    fs_err::remove_file(folder.path().join("domains.json")).unwrap();
    fs_err::write(folder.path().join("v2.jinja"), "{% if %}").unwrap();
    assert!(matches!(Templates::from_folder(folder.path()), Err(Error::Template { version: 2, .. })));
}

#[test]
fn actions_of_each_kind_have_their_language() {
    use worldloom_schema::ActionKind::{Code, Command, Keystrokes, Text, ToolCall};
    let renderer = renderer();
    let check = |kind, action: &str, language: &str| {
        let mut turn = turn(0, action, "fig", true);
        turn.action_kind = kind;
        let rendered = renderer.render_cpt(&trajectory(Domain::Swe, vec![turn])).unwrap();
        let text = renderer.tokenizer().decode(&rendered.tokens).unwrap();
        assert!(text.contains(&format!("**Action:**\n```{language}\n{action}\n```<|im_end|>")), "{text}");
    };
    check(Command, "ls", "bash");
    check(ToolCall, r#"{"name": "f", "arguments": {}}"#, "json");
    check(Keystrokes, r#"[{"keystrokes": "ls\n"}]"#, "json");
    check(Keystrokes, "C-c", "text");
    check(Code, "pyautogui.click(1, 2)", "python");
    check(Text, "tap 3", "text");
}
