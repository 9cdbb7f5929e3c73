//! Secrets are masked, the same one the same way, and nothing else is touched.

use crate::common::{curate, only_cpt, trajectory, turn};
use std::collections::BTreeMap;
use worldloom_curate::{CurateConfig, Masker, SecretCounts, SecretKind, Secrets};

fn secrets() -> Secrets {
    Secrets {
        kinds: SecretKind::ALL.into(),
        private_hosts: vec![".plum-works.com".into()],
        allow: vec!["help@fig.org".into()],
    }
}

/// What is masked in a text, and the counts.
fn masked(text: &str) -> (String, SecretCounts) {
    let mut counts = SecretCounts::new();
    let mut text = text.to_string();
    let masker = Masker::new(&secrets(), 7).unwrap();
    masker.mask(&mut text, &mut counts);
    let once = text.clone();
    masker.mask(&mut text, &mut SecretCounts::new());
    assert_eq!(text, once, "a mask is never masked again");
    (text, counts)
}

fn check(text: &str, expected: &str, kind: &str) {
    let (found, counts) = masked(text);
    let hash = regex::Regex::new("([A-Z]_)[0-9a-f]{8}").unwrap();
    assert_eq!(
        (&*hash.replace_all(&found, "$1#"), counts),
        (expected, BTreeMap::from([(kind.to_string(), 1)])),
        "{text}"
    );
}

fn unchanged(text: &str) {
    assert_eq!(masked(text), (text.to_string(), BTreeMap::new()));
}

/// Values are put together here, so that this file holds none.
fn letters(number: usize) -> String {
    "aB3dE5gH7jK9mN1pQ".chars().cycle().take(number).collect()
}

#[test]
fn each_kind_is_found_where_it_stands() {
    check(&format!("export T=ghp_{}", letters(36)), "export T=TOKEN_#", "token");
    check(&format!("Authorization: Bearer {}\n", letters(30)), "Authorization: Bearer TOKEN_#\n", "token");
    check(&format!("\"sk-ant-api03-{}\"", letters(40)), "\"TOKEN_#\"", "token");
    check(&format!("eyJ{0}.eyJ{0}.{0}", letters(20)), "TOKEN_#", "token");
    check(&format!("id AKIA{} ok", "ABCDEFGH23456789"), "id CLOUD_KEY_# ok", "cloud_key");
    check(&format!("AWS_SECRET_ACCESS_KEY={}\n", letters(40)), "AWS_SECRET_ACCESS_KEY=CLOUD_KEY_#\n", "cloud_key");
    check("password: plum4711!", "password: PASSWORD_#", "password");
    check(r#"{\"api_key\": \"fig-12345678\"}"#, r#"{\"api_key\": \"PASSWORD_#\"}"#, "password");
    check("postgres://ada:s3cr3tplum@db/x", "postgres://ada:PASSWORD_#@db/x", "password");
    check("mail ada.l+x@plum.co.uk, now", "mail EMAIL_#, now", "email");
    check("ssh 10.20.0.7.", "ssh HOST_#.", "private_host");
    check("ping 192.168.1.1:80", "ping HOST_#:80", "private_host");
    check("http://db1.prod.internal:5432/", "http://HOST_#:5432/", "private_host");
    check("git.plum-works.com/x", "HOST_#/x", "private_host");
    let key = format!("{0}BEGIN RSA PRIVATE KEY{0}\n{1}\n{1}\n{0}END RSA PRIVATE KEY{0}", "-----", letters(64));
    check(&format!("cat id\n{key}\n$"), "cat id\nPRIVATE_KEY_#\n$", "private_key");
    let cut = format!("{0}BEGIN PRIVATE KEY{0}\n{1}\n{1}", "-----", letters(64));
    check(&cut, "PRIVATE_KEY_#", "private_key");
}

#[test]
fn what_only_looks_like_a_secret_stays() {
    for text in [
        "user@example.com and a@mail.example.org",
        "git clone git@github.com:fig/plum.git",
        "icon@2x.png node@18.x help@fig.org",
        "8.8.8.8 127.0.0.1 10.0.22621.1 172.32.0.1 1.2.3",
        "package com.shop.internal.Cart; settings.lan_mode self.corp(x)",
        "password: required, secret=/etc/passwd, token = None",
        "git log --format=%ae",
        "sk-learn risk-assessment-and-more task-force",
        "PASSWORD_0123abcd EMAIL_89abcdef",
    ] {
        unchanged(text);
    }
}

#[test]
fn one_value_has_one_mask_in_all_turns_and_a_key_is_the_same_in_json() {
    let mask = |text: &str| {
        let mut text = text.to_string();
        Masker::new(&secrets(), 7).unwrap().mask(&mut text, &mut SecretCounts::new());
        text
    };
    assert_eq!(mask("to ada@plum.io"), mask("to ada@plum.io"));
    assert_ne!(mask("ada@plum.io"), mask("bob@plum.io"));
    let key = |end: &str| format!("{0}BEGIN PRIVATE KEY{0}{end}{1}{end}{0}END PRIVATE KEY{0}", "-----", letters(64));
    assert_eq!(mask(&key("\n")), mask(&key("\\n")));
    let mut other = "ada@plum.io".to_string();
    Masker::new(&secrets(), 8).unwrap().mask(&mut other, &mut SecretCounts::new());
    assert_ne!(other, mask("ada@plum.io"), "another seed, another mask");
}

#[test]
fn pools_hold_no_secret_in_any_field_and_the_report_counts_them() {
    let address = "ada@plum.io";
    let mut one = trajectory("g", &format!("From {address}"), vec![turn(&format!("mail {address}"), "sent")]);
    let mut last = turn("ls", &format!("x {address} y 10.1.2.3"));
    (last.reasoning, last.pre_state, last.trace) =
        (Some(address.into()), Some(format!("to {address}")), Some(address.into()));
    last.index = 1;
    one.turns.push(last);
    one.system.task_description = format!("Write to {address}");
    (one.system.action_space, one.system.simulation_instruction) = (Some(address.into()), Some(address.into()));
    one.system.demonstrations = vec![address.into()];
    let config = CurateConfig { secrets: Some(secrets()), ..only_cpt() };
    let output = curate(&config, std::slice::from_ref(&one)).unwrap();
    assert_eq!(output.report.masked_secrets, BTreeMap::from([("email".into(), 10), ("private_host".into(), 1)]));
    let left = output.all().next().unwrap();
    let text = serde_json::to_string(left).unwrap();
    assert!(!text.contains(address) && !text.contains("10.1.2.3"), "{text}");
    let mask = left.turns[0].action.strip_prefix("mail ").unwrap();
    assert!(left.turns[1].observation.contains(&format!("x {mask} y HOST_")), "{text}");
    assert_eq!(left.trajectory_id, one.trajectory_id, "the id is that of the content as it came");
    let only_hosts = Secrets { kinds: vec![SecretKind::PrivateHost], ..secrets() };
    let output = curate(&CurateConfig { secrets: Some(only_hosts), ..only_cpt() }, &[one]).unwrap();
    assert_eq!(output.report.masked_secrets, BTreeMap::from([("private_host".into(), 1)]));
}
