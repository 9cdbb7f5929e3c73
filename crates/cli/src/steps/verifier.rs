//! `verifier build`: checks of predictions, derived from true observations and tried.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use worldloom_judge::verify::{BuildReport, VERIFIER_FILE, build};
use worldloom_schema::{PROMPT_FILE, Prompt, TableReader};

use super::{Counts, Role, Step, StepContext, resolve_as};

/// Nothing is to be set.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifierConfig {}

/// Makes a verifier for each prompt whose truth allows one.
pub(super) struct VerifierBuild;

impl Step for VerifierBuild {
    fn name(&self) -> &'static str {
        "verifier build"
    }

    fn about(&self) -> &'static str {
        "Derive checks from true observations; keep those that pass the truth and fail corrupted ones"
    }

    fn artifact(&self) -> &'static str {
        "verifiers"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[Role::required("prompts", Some("rendered"), "artifact of `render` for stage rl")];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<VerifierConfig>(table, origin)
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        let report: BuildReport = serde_json::from_slice(&fs_err::read(out.join(REPORT))?)?;
        let mut lines = vec![format!("{} of {} prompts have a verifier", report.kept, report.prompts)];
        lines.extend(report.dropped.iter().map(|(reason, count)| format!("without: {reason} {count}")));
        lines.extend(report.by_domain.iter().map(|(domain, count)| format!("{domain}: {count}")));
        Ok(lines)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let prompts = TableReader::<Prompt>::open(&context.input("prompts")?.join(PROMPT_FILE))?;
        let total = prompts.num_rows();
        let mut file = std::io::BufWriter::new(fs_err::File::create(context.out.join(VERIFIER_FILE))?);
        let mut report = BuildReport::default();
        for prompt in prompts {
            let (verifier, of_prompt) = build(&prompt?);
            if let Some(verifier) = verifier {
                serde_json::to_writer(&mut file, &verifier)?;
                file.write_all(b"\n")?;
            }
            report.add(&of_prompt);
            context.progress.update(report.prompts, total);
        }
        file.flush()?;
        fs_err::write(context.out.join(REPORT), serde_json::to_string_pretty(&report)? + "\n")?;
        let dropped: u64 = report.dropped.values().sum();
        let counts = [
            ("prompts", report.prompts),
            ("verifiers", report.kept),
            ("without_verifier", dropped),
            ("checks", report.checks),
            ("checks_kept", report.checks_kept),
        ];
        Ok(counts.into_iter().map(|(name, count)| (name.to_string(), count)).collect())
    }
}

const REPORT: &str = "report.json";
