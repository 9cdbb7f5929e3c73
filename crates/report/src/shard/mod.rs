//! Token rows for a person to look at: which tokens are trained and with what weight, and what a set of rows is made of.
//!
//! The caller decodes; nothing here knows a tokenizer. A *cell* is the shortest run of tokens that is whole text.

mod page;
mod summary;

pub use page::page;
pub use summary::{Part, ShardSummary, Why, histogram};

/// Text of one token, or of a few that are text only together.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// The loss weight.
    pub weight: f32,
    /// Whether it is an added token.
    pub is_added: bool,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Why it has that weight; empty where that was not recorded.
    pub reason: String,
}

/// A segment of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Id of the trajectory or document inside.
    pub source: String,
    /// The segment that it branches from.
    pub continues: Option<usize>,
    /// What it says.
    pub cells: Vec<Cell>,
}

impl Segment {
    /// Its trained stretches as text, each with its weight.
    pub fn trained(&self) -> Vec<(f32, String)> {
        let mut stretches: Vec<(f32, String)> = Vec::new();
        let mut goes_on = false;
        for cell in &self.cells {
            match stretches.last_mut().filter(|(weight, _)| goes_on && *weight == cell.weight) {
                _ if cell.weight == 0.0 => {}
                Some((_, text)) => text.push_str(&cell.text),
                None => stretches.push((cell.weight, cell.text.clone())),
            }
            goes_on = cell.weight != 0.0;
        }
        stretches
    }

    /// Its stretches of one reason and weight: how many tokens, and the text.
    pub fn explained(&self) -> Vec<Stretch<'_>> {
        let mut stretches: Vec<Stretch<'_>> = Vec::new();
        for cell in &self.cells {
            match stretches.last_mut().filter(|last| last.reason == cell.reason && last.weight == cell.weight) {
                Some(last) => {
                    last.tokens += cell.tokens.len();
                    last.text.push_str(&cell.text);
                }
                None => {
                    let (reason, tokens, text) = (cell.reason.as_str(), cell.tokens.len(), cell.text.clone());
                    stretches.push(Stretch { reason, weight: cell.weight, tokens, text });
                }
            }
        }
        stretches
    }

    /// Number of tokens, and of trained ones.
    pub fn size(&self) -> (usize, usize) {
        let count = |cells: &mut dyn Iterator<Item = &Cell>| cells.map(|cell| cell.tokens.len()).sum();
        (count(&mut self.cells.iter()), count(&mut self.cells.iter().filter(|cell| cell.weight > 0.0)))
    }
}

/// Tokens in a row that have one reason and one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch<'a> {
    /// Why they have that weight.
    pub reason: &'a str,
    /// The loss weight.
    pub weight: f32,
    /// How many.
    pub tokens: usize,
    /// What they say.
    pub text: String,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardRow {
    /// Its number in the set.
    pub number: usize,
    /// Its segments.
    pub segments: Vec<Segment>,
}

impl ShardRow {
    /// Number of tokens, and of trained ones.
    pub fn size(&self) -> (usize, usize) {
        let sizes = self.segments.iter().map(Segment::size);
        sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Segment, ShardRow, ShardSummary, histogram, page};

    fn cell(text: &str, weight: f32) -> Cell {
        let reason = if weight > 0.0 { "observation" } else { "action" }.into();
        Cell {
            text: text.into(),
            weight,
            is_added: text.starts_with("<|"),
            tokens: vec![1; text.len().div_ceil(3)],
            reason,
        }
    }

    fn row() -> ShardRow {
        let cells = [cell("ls", 0.0), cell("fig", 1.0), cell("<|im_end|>", 1.0), cell("\n", 0.0), cell("<b>", 0.5)];
        ShardRow { number: 7, segments: vec![Segment { source: "a3<f".into(), continues: None, cells: cells.into() }] }
    }

    #[test]
    fn trained_stretches_end_where_the_weight_changes() {
        let stretches = row().segments[0].trained();
        assert_eq!(stretches, [(1.0, "fig<|im_end|>".to_string()), (0.5, "<b>".to_string())]);
        assert_eq!(row().size(), (8, 6));
        let row = row();
        let explained = row.segments[0].explained();
        let said: Vec<(&str, f32, usize, &str)> =
            explained.iter().map(|one| (one.reason, one.weight, one.tokens, one.text.as_str())).collect();
        let expected = [
            ("action", 0.0, 1, "ls"),
            ("observation", 1.0, 5, "fig<|im_end|>"),
            ("action", 0.0, 1, "\n"),
            ("observation", 0.5, 1, "<b>"),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn the_page_shows_weights_and_lets_no_data_into_its_markup() {
        let mut summary = ShardSummary::default();
        summary.add(&[(3, 2), (5, 4)], 5.5, &[("assistant", 8, 6)], &[]);
        let html = page("Rows of <x>", &summary, &["truncated 3".to_string()], &[row()]);
        assert!(html.contains("&lt;b&gt;") && html.contains("a3&lt;f") && !html.contains("<x>"));
        assert!(html.contains("class=\"t\"") && html.contains("title=\"observation, weight 0.5"));
        assert!(html.contains("truncated 3") && html.contains("row 7"));
    }

    #[test]
    fn the_summary_counts_what_it_is_given() {
        let mut summary = ShardSummary::default();
        let whys = [("prompt", 88, 0.0), ("observation", 40, 40.0)];
        summary.add(&[(100, 40), (28, 0)], 40.0, &[("system", 28, 0), ("assistant", 100, 40)], &whys);
        summary.add(&[(64, 64)], 32.0, &[("assistant", 64, 64)], &[("observation", 64, 32.0)]);
        assert_eq!((summary.rows, summary.documents, summary.tokens, summary.trained_tokens), (2, 3, 192, 104));
        assert_eq!(summary.weight_sum, 72.0);
        assert_eq!(summary.document_lengths, [(32, 1), (64, 1), (128, 1)].into());
        let text = summary.table();
        assert!(text.contains("assistant") && text.contains("63.4 %"), "{text}");
        assert_eq!(
            histogram("lengths", &summary.document_lengths)[..2],
            ["lengths".to_string(), format!("up to        32          1 {}", "█".repeat(40))]
        );
        assert_eq!((summary.reasons["observation"].tokens, summary.reasons["observation"].weight_sum), (104, 72.0));
        assert!(text.contains("prompt") && text.contains("0.69"), "{text}");
    }
}
