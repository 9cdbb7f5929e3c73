//! What code can say of a prediction beside the truth, without a judge.
//!
//! What an observation is made of are the *units* of [next-state matching](crate::units()): lines of text, nodes of a tree
//! under those above them, leaves of a JSON document by their path, changed lines of a diff by their file. Where the
//! screen before is known, units that were on it already and stay are left out: copying a page is no achievement.

use worldloom_schema::ObservationKind;

use crate::next_state::{self, Form};
use crate::text::{LineF1, normalised_match};
use crate::verify::ErrorClass;

/// The figures of one prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Over the units that changed, or all of them; none where nothing changed, in truth and prediction.
    pub units: Option<LineF1>,
    /// Where the truth is the screen before: whether the prediction is too. None elsewhere.
    pub no_change: Option<bool>,
    /// Whether both show the same class of error, or both none.
    pub error_class: bool,
    /// Where the truth is an error: whether the prediction is one of its class. None elsewhere.
    pub error_recall: Option<bool>,
    /// Whether the prediction is of the kind that it should be: JSON that parses, a tree with nodes, a diff with changes.
    pub is_valid: bool,
    /// The shorter length over the longer, in characters; 1 for two empty texts.
    pub length_ratio: f64,
}

impl Observed {
    /// Of a completion without a prediction: a miss in every figure that the turn has.
    pub fn fault(kind: ObservationKind, before: Option<&str>, truth: &str) -> Self {
        let stays = screen(kind, before).is_some_and(|screen| normalised_match(screen, truth));
        Observed {
            units: Some(LineF1 { precision: 0.0, recall: 0.0, f1: 0.0 }),
            no_change: stays.then_some(false),
            error_class: false,
            error_recall: (ErrorClass::of(truth) != ErrorClass::None).then_some(false),
            is_valid: false,
            length_ratio: 0.0,
        }
    }

    /// Name and value of each figure that there is.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let share = |is_met: bool| if is_met { 1.0 } else { 0.0 };
        let mut named = vec![
            ("error_class", share(self.error_class)),
            ("valid", share(self.is_valid)),
            ("length_ratio", self.length_ratio),
        ];
        if let Some(LineF1 { precision, recall, f1 }) = self.units {
            named.extend([("unit_precision", precision), ("unit_recall", recall), ("unit_f1", f1)]);
        }
        named.extend(self.no_change.map(|no_change| ("no_change", share(no_change))));
        named.extend(self.error_recall.map(|error_recall| ("error_recall", share(error_recall))));
        named
    }
}

/// Compares a prediction with the truth; `before` is the observation that stood before, where there was one.
pub fn observe(kind: ObservationKind, before: Option<&str>, truth: &str, prediction: &str) -> Observed {
    let screen = screen(kind, before);
    let stays = screen.is_some_and(|screen| normalised_match(screen, truth));
    let lengths = (truth.chars().count(), prediction.chars().count());
    let errors = (ErrorClass::of(truth), ErrorClass::of(prediction));
    Observed {
        units: changed_units(kind, screen, truth, prediction),
        no_change: screen.filter(|_| stays).map(|screen| normalised_match(screen, prediction)),
        error_class: errors.0 == errors.1,
        error_recall: (errors.0 != ErrorClass::None).then_some(errors.0 == errors.1),
        is_valid: is_valid(kind, truth, prediction),
        length_ratio: match lengths {
            (0, 0) => 1.0,
            (a, b) => a.min(b) as f64 / a.max(b) as f64,
        },
    }
}

/// The screen before, of those kinds that are screens.
fn screen(kind: ObservationKind, before: Option<&str>) -> Option<&str> {
    before.filter(|_| kind == ObservationKind::Tree)
}

fn changed_units(kind: ObservationKind, screen: Option<&str>, truth: &str, prediction: &str) -> Option<LineF1> {
    let form = form(kind);
    let (truth, prediction) = (next_state::units(form, truth), next_state::units(form, prediction));
    let Some(screen) = screen else { return Some(next_state::agreement(&truth, &prediction)) };
    let before = next_state::units(form, screen);
    let (truth, prediction) = (next_state::change(&before, &truth), next_state::change(&before, &prediction));
    (!(truth.is_empty() && prediction.is_empty())).then(|| next_state::agreement(&truth, &prediction))
}

fn form(kind: ObservationKind) -> Form {
    match kind {
        ObservationKind::Json => Form::Json,
        ObservationKind::Tree => Form::Tree,
        ObservationKind::Diff => Form::Diff,
        ObservationKind::Text | ObservationKind::Image => Form::Text,
    }
}

fn is_valid(kind: ObservationKind, truth: &str, prediction: &str) -> bool {
    let parses = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let has_changes = |text: &str| !next_state::units(Form::Diff, text).is_empty();
    // A truth that does not keep to its kind holds nobody to it.
    match kind {
        ObservationKind::Json => parses(prediction) || !parses(truth),
        ObservationKind::Diff => has_changes(prediction) || !has_changes(truth),
        ObservationKind::Tree if next_state::is_tree(truth) => next_state::is_tree(prediction),
        ObservationKind::Tree => !prediction.trim().is_empty() || truth.trim().is_empty(),
        ObservationKind::Text | ObservationKind::Image => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f1(kind: ObservationKind, before: Option<&str>, truth: &str, prediction: &str) -> Option<f64> {
        observe(kind, before, truth, prediction).units.map(|units| units.f1)
    }

    #[test]
    fn units_are_those_of_the_kind() {
        use ObservationKind::{Diff, Json, Text, Tree};
        assert_eq!(f1(Text, None, "a\nb", "b\nc"), Some(0.5));
        assert_eq!(f1(Json, None, r#"{"a": 1, "b": [2, 3]}"#, r#"{"b": [2, 4], "a": 1}"#), Some(2.0 / 3.0));
        assert_eq!(f1(Json, None, "no json", "no json"), Some(1.0));
        assert_eq!(f1(Tree, None, "root\n  [1] ok", "root\n    [1] ok"), Some(1.0));
        let diff = "--- x\n+++ y\n@@ -1 +1 @@\n-a\n+b";
        assert_eq!(f1(Diff, None, diff, &diff.replace("@@ -1 +1 @@", "@@ -9 +9 @@").replace("+b", "+c")), Some(0.5));
        assert_eq!(f1(Diff, None, diff, &diff.replace("+++ y", "+++ z")), Some(0.0), "another file is another change");
        let at = |second: &str| format!(r#"{{"made": "2026-11-29T10:00:{second}.123Z", "by": "ada"}}"#);
        assert_eq!(f1(Json, None, &at("01"), &at("02")), Some(1.0), "what nobody can foresee is masked in leaves too");
    }

    #[test]
    fn of_a_screen_only_what_changed_counts() {
        let (before, truth) = ("[1] ok\n[2] field", "[1] ok\n[2] field full\n[3] menu");
        let of = |prediction| f1(ObservationKind::Tree, Some(before), truth, prediction);
        assert_eq!(of(truth), Some(1.0));
        assert_eq!(of(before), Some(0.0), "a copy of the old screen is worth nothing");
        // Of three changes (one gone, two come) the prediction has one right and none wrong.
        assert_eq!(of("[1] ok\n[2] field\n[3] menu"), Some(0.5));
        let same = observe(ObservationKind::Tree, Some(before), before, before);
        assert_eq!((same.units, same.no_change), (None, Some(true)));
        let moved = observe(ObservationKind::Tree, Some(before), before, truth);
        assert_eq!((moved.units.map(|units| units.f1), moved.no_change), (Some(0.0), Some(false)));
        assert_eq!(observe(ObservationKind::Text, Some("a"), "a", "a").no_change, None, "text has no screen");
    }

    #[test]
    fn errors_are_told_apart_by_class() {
        let same = |truth, prediction| observe(ObservationKind::Text, None, truth, prediction).error_class;
        assert!(same("cat: x: No such file or directory", "bash: y: command not found"));
        assert!(!same("cat: x: No such file or directory", "cat: x: Permission denied"));
        assert!(!same("cat: x: Is a directory", "a.txt"));
        assert!(same("a.txt", ""));
        assert!(same("size 1404, 4030 bytes", "size 7"), "a number that holds 404 is no error");
        assert!(!same("HTTP 404", "size 1404"));
    }

    #[test]
    fn errors_are_recalled_over_turns_that_are_errors() {
        let recall = |truth, prediction| observe(ObservationKind::Text, None, truth, prediction).error_recall;
        assert_eq!(recall("cat: x: No such file or directory", "bash: y: command not found"), Some(true));
        assert_eq!(recall("cat: x: No such file or directory", "fig"), Some(false));
        assert_eq!(recall("fig", "fig"), None, "two texts without an error say nothing of errors");
        assert_eq!(recall("fig", "cat: x: Permission denied"), None);
    }

    #[test]
    fn a_fault_is_a_miss_in_every_figure_that_the_turn_has() {
        let names = |observed: Observed| observed.named().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let screen = "Root 'a'\n  [1] button 'ok'\n  [2] field 'Permission denied'";
        for (kind, before, truth) in [
            (ObservationKind::Tree, Some(screen), screen),
            (ObservationKind::Tree, Some("Root 'b'"), screen),
            (ObservationKind::Text, Some("a"), "a"),
        ] {
            let fault = Observed::fault(kind, before, truth);
            assert!(fault.named().iter().all(|(_, value)| *value == 0.0), "{fault:?}");
            let mut others = names(observe(kind, before, truth, "x"));
            others.sort_unstable();
            let mut found = names(fault);
            found.sort_unstable();
            assert_eq!(found, others, "{kind:?}");
        }
    }

    #[test]
    fn validity_and_length_are_those_of_the_prediction() {
        let json = |truth, prediction| observe(ObservationKind::Json, None, truth, prediction);
        assert!(json("{}", "[1]").is_valid && !json("{}", "{").is_valid && json("oops", "{").is_valid);
        assert_eq!(json("ab", "abcd").length_ratio, 0.5);
        assert_eq!(json("", "").length_ratio, 1.0);
        let tree = |truth, prediction| observe(ObservationKind::Tree, None, truth, prediction).is_valid;
        let screen = "Root 'a'\n  [1] button 'ok'\n  [2] field 'x'";
        assert!(tree(screen, screen) && !tree(screen, "some words") && !tree(screen, "a b\n  c d\ne f\ng"));
        assert!(tree("[1] ok", "anything") && !tree("[1] ok", " "), "a truth that is no tree asks for none");
    }
}
