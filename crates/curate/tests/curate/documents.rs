//! Documents: the rules of trajectories that a text can break, and nothing lost.

use crate::common::{only_cpt, trajectory, turn, write};
use std::collections::BTreeMap;
use worldloom_curate::{
    CurateConfig, Decontaminate, DocumentReport, Documents, Error, Languages, Licences, NearDuplicates, Resources,
    Rules, SecretKind, Secrets, run,
};
use worldloom_schema::{DOCUMENT_FILE, Document, REJECT_FILE, Reject, document_id, read_table, write_table};

fn document(source: &str, text: &str) -> Document {
    Document {
        document_id: document_id(text),
        source: source.into(),
        source_path: "x.md".into(),
        source_row: 0,
        licence: Some("MIT".into()),
        title: None,
        text: text.into(),
    }
}

fn config() -> CurateConfig {
    CurateConfig { documents: Some(Documents { min_chars: 20, max_chars: 5000 }), ..only_cpt() }
}

/// Curates documents beside two trajectories.
fn curate(
    config: &CurateConfig,
    documents: &[Document],
) -> Result<(DocumentReport, Vec<Document>, Vec<Reject>), Error> {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let turns = |text: &str| vec![turn("a", "b"), turn("c", text)];
    let held = turns("the otter swam under the wooden bridge and was not seen again");
    let trained = turns("bread is made of flour, water and salt");
    let input = write(folder.path(), "in.parquet", &[trajectory("g", "s", trained), trajectory("held", "t", held)]);
    let path = folder.path().join("documents.parquet");
    write_table(&path, documents.iter().cloned()).unwrap();
    let report = run(config, &[input], &[path], out.path(), Resources::default(), &|_, _| {})?;
    let left: Vec<Document> = read_table(&out.path().join(DOCUMENT_FILE)).unwrap();
    let rejects: Vec<Reject> = read_table(&out.path().join(REJECT_FILE)).unwrap();
    let report = report.documents.unwrap();
    let dropped: u64 = report.dropped.values().sum();
    assert_eq!((report.documents_read, report.documents), (documents.len() as u64, left.len() as u64));
    assert_eq!(report.documents_read, report.documents + dropped, "documents are conserved");
    assert_eq!(rejects.iter().filter(|reject| reject.detail.starts_with("document ")).count() as u64, dropped);
    assert!(left.is_sorted_by(|one, other| one.document_id <= other.document_id));
    Ok((report, left, rejects))
}

fn prose(number: usize) -> String {
    (0..200).map(|at| format!("w{}", (number * 7919 + at * 104_729) % 1_000_003)).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_rule_takes_its_documents() {
    let long = prose(1);
    let all = [
        document("b", &long),
        document("a", &long),
        document("a", &format!("{long} and a line more")),
        document("a", "too short"),
        document("a", &[prose(2), prose(3), prose(4), prose(5)].join(" ")),
        Document { licence: Some("GPL-3.0".into()), ..document("a", "under a licence that is not allowed here") },
        document(
            "a",
            "Der Hafen war still, als das letzte Boot einlief und die Männer die Körbe den Berg hinauftrugen.",
        ),
        document("a", "Yesterday the otter swam under the wooden bridge and was not seen again, they said."),
        document(
            "a",
            "The harbour was quiet when the last boat came in and ada@plum.io carried the baskets up the hill.",
        ),
    ];
    let rules = Rules {
        licences: Some(Licences { allow: vec!["MIT".into()], keep_unknown: true }),
        languages: Some(Languages { allow: vec!["eng".into()], min_confidence: 0.5, min_letters: 40 }),
        ..Rules::default()
    };
    let config = CurateConfig {
        rules,
        eval_groups: vec!["held".into()],
        near_duplicates: Some(NearDuplicates { threshold: 0.8, shingle_words: 3, places: 128 }),
        decontaminate: Some(Decontaminate {
            against: vec![],
            own_evaluation: true,
            run_words: 8,
            longest_run: 8,
            largest_share: 1.0,
        }),
        secrets: Some(Secrets { kinds: SecretKind::ALL.into(), private_hosts: vec![], allow: vec![] }),
        ..config()
    };
    let (report, left, _) = curate(&config, &all).unwrap();
    let rules =
        ["exact_duplicate", "language", "licence", "long_document", "near_duplicate", "pool_overlap", "short_document"];
    assert_eq!(report.dropped, rules.map(|rule| (rule.to_string(), 1)).into());
    let texts: Vec<&str> = left.iter().map(|document| document.text.as_str()).collect();
    assert!(texts.iter().any(|text| text.ends_with("and a line more")), "the longest of a cluster is kept");
    assert!(texts.iter().any(|text| text.contains("EMAIL_")) && !texts.iter().any(|text| text.contains("ada@")));
    assert_eq!(report.masked_secrets, BTreeMap::from([("email".to_string(), 1)]));
}

#[test]
fn documents_that_say_what_evaluation_says_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set.txt");
    fs_err::write(&set, "the grey heron stood in the shallow water beside the old mill at noon").unwrap();
    let decontaminate =
        Decontaminate { against: vec![set], own_evaluation: false, run_words: 8, longest_run: 8, largest_share: 1.0 };
    let config = CurateConfig { decontaminate: Some(decontaminate), ..config() };
    let all = [
        document("a", "He wrote: the grey heron stood in the shallow water beside a boat."),
        document("a", "He wrote: the grey heron stood in a shallow water beside a boat."),
    ];
    let (report, left, _) = curate(&config, &all).unwrap();
    assert_eq!(report.dropped, BTreeMap::from([("evaluation_overlap".to_string(), 1)]));
    assert_eq!(left[0].text, all[1].text);
}

#[test]
fn of_equal_documents_the_first_by_source_is_kept_unless_all_are() {
    let text = "the same text, twenty characters long and more";
    let all = [document("b", text), document("a", text)];
    let (_, left, rejects) = curate(&config(), &all).unwrap();
    assert_eq!((left.len(), left[0].source.as_str()), (1, "a"));
    assert_eq!((rejects[0].rule.as_str(), rejects[0].source.as_str()), ("exact_duplicate", "b"));
    let (_, left, _) = curate(&CurateConfig { drop_exact_duplicates: false, ..config() }, &all).unwrap();
    assert_eq!(left.len(), 2);
}

#[test]
fn documents_without_rules_for_them_are_refused() {
    let error = curate(&only_cpt(), &[document("a", "a text of some length, or not")]).err().unwrap();
    assert!(error.to_string().contains("the config has no part `documents`"), "{error}");
    assert!(error.hint().unwrap().contains("min_chars"));
    let wrong = CurateConfig { documents: Some(Documents { min_chars: 9, max_chars: 8 }), ..only_cpt() };
    let error = curate(&wrong, &[]).err().unwrap().to_string();
    assert!(error.contains("documents.max_chars = 8, expected min_chars or more"), "{error}");
}
