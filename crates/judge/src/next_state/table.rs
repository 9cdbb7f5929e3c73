//! Tables in text: rows of cells between `|`, under a header.

/// `header of the row | column = value`, one for each cell below the header; none where a text is no table.
pub(crate) fn cells(text: &str) -> Option<Vec<String>> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && !is_rule(line)).collect();
    let has_rule = text.lines().any(is_rule);
    if lines.len() < 2 || !has_rule || !lines.iter().all(|line| line.contains('|')) {
        return None;
    }
    let row = |line: &str| -> Vec<String> {
        let line = line.trim();
        let line = line.strip_prefix('|').unwrap_or(line);
        let line = line.strip_suffix('|').unwrap_or(line);
        line.split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let header = row(lines[0]);
    let mut cells = vec![format!("columns={}", header.join("|"))];
    for line in &lines[1..] {
        let row = row(line);
        let name = row.first().cloned().unwrap_or_default();
        for (at, cell) in row.iter().enumerate() {
            let column = header.get(at).map_or("", String::as_str);
            cells.push(format!("{name}|{column}={cell}"));
        }
    }
    Some(cells)
}

/// A line of dashes between header and rows.
fn is_rule(line: &str) -> bool {
    line.contains('-') && line.chars().all(|c| matches!(c, '-' | '+' | '|' | ':' | '=' | ' '))
}
