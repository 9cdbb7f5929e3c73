//! Text to HTML: escaping of data, and how numbers are written on the page and in the terminal table.

use worldloom_schema::Interval;

/// What stands where there is no number.
pub(crate) const NONE: &str = "–";

/// Text from data as HTML text: markup is escaped, control and direction characters are made visible, so that nothing
/// a model or an environment printed can change the page.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => push_visible(&mut out, other),
        }
    }
    out
}

/// The text itself, or its beginning with an ellipsis, on one line and without control characters; not escaped.
pub(crate) fn cut(text: &str, letters: usize) -> String {
    let mut out = String::new();
    let shown = if text.chars().count() > letters { letters - 1 } else { letters };
    for character in text.chars().take(shown) {
        match character {
            '\n' | '\t' => out.push(' '),
            other => push_visible(&mut out, other),
        }
    }
    out + if shown < letters { "…" } else { "" }
}

fn push_visible(out: &mut String, character: char) {
    match character {
        '\n' | '\t' => out.push(character),
        '\u{0}'..='\u{1f}' => out.push(control_picture(character)),
        '\u{7f}' => out.push('\u{2421}'),
        '\u{80}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            out.push_str(&format!("\\u{{{:x}}}", character as u32));
        }
        _ => out.push(character),
    }
}

fn control_picture(character: char) -> char {
    char::from_u32(0x2400 + character as u32).expect("the control pictures start at U+2400 and cover 0 to 0x1f")
}

/// A value on the 0–100 scale: one decimal, none at 100.
pub(crate) fn hundred(value: f64) -> String {
    match value {
        value if !value.is_finite() => NONE.into(),
        value if value.abs() >= 99.95 => format!("{value:.0}"),
        value if value.abs() < 0.05 => "0.0".into(),
        value => format!("{value:.1}"),
    }
}

/// A difference on the 0–100 scale, with its sign.
pub(crate) fn signed(value: f64) -> String {
    match hundred(value) {
        text if text == NONE || text == "0.0" || value < 0.0 => text.replace('-', "−"),
        text => format!("+{text}"),
    }
}

/// Whether an interval says anything.
pub(crate) fn is_known(interval: &Interval) -> bool {
    interval.n > 0 && interval.mean.is_finite()
}

/// A count with thousands separated.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_becomes_harmless() {
        let text = "<script>alert('x')</script>&\"\u{1b}[31m\u{202e}\r\n\u{0}";
        let html = escape(text);
        assert_eq!(html, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;␛[31m\\u{202e}␍\n␀");
    }

    #[test]
    fn numbers_are_short_and_never_nan() {
        let cases = [(0.0, "0.0"), (-0.01, "0.0"), (12.345, "12.3"), (99.97, "100"), (f64::NAN, "–"), (-3.21, "-3.2")];
        for (value, text) in cases {
            assert_eq!(hundred(value), text);
        }
        assert_eq!(signed(3.21), "+3.2");
        assert_eq!(signed(-3.21), "−3.2");
        assert_eq!(signed(0.0), "0.0");
        assert_eq!(signed(f64::INFINITY), "–");
        assert_eq!(
            [grouped(0), grouped(999), grouped(1_000), grouped(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
    }
}
