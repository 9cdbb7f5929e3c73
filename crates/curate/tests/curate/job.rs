//! A curation for another process.

use worldloom_curate::{Answer, Decontaminate, Job, Mixture, MixtureKey, NearDuplicates, SecretKind, Secrets};

use crate::common::config;

#[test]
fn a_job_and_its_answers_are_read_as_they_were_written() {
    let config = worldloom_curate::CurateConfig {
        near_duplicates: Some(NearDuplicates { threshold: 0.6, shingle_words: 2, places: 64 }),
        decontaminate: Some(Decontaminate {
            against: vec!["x.parquet".into()],
            own_evaluation: true,
            run_words: 8,
            longest_run: 12,
            largest_share: 0.1,
        }),
        secrets: Some(Secrets { kinds: SecretKind::ALL.into(), private_hosts: vec!["fig".into()], allow: vec![] }),
        mixture: Some(Mixture { by: MixtureKey::Source, alpha: 0.3, weights: [("rare".into(), 2.5)].into() }),
        ..config()
    };
    let (address, out) = ("ballista://plum:50050".into(), "runs/fig".into());
    let job = Job { address, config, trajectories: vec!["a b.parquet".into()], documents: Vec::new(), out };
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    for (answer, text) in [
        (Answer::Progress { done: 1, total: 2 }, r#"{"progress":{"done":1,"total":2}}"#),
        (Answer::Failed { error: "no".into(), hint: None }, r#"{"failed":{"error":"no","hint":null}}"#),
        (Answer::Done, r#""done""#),
    ] {
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        assert_eq!(serde_json::from_str::<Answer>(text).unwrap(), answer);
    }
}
