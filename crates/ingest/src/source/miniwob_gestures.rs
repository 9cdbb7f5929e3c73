//! What a person did, from the events a browser fired.
//!
//! One click is seven events or more (mousedown, mouseup and click, each on its way down and up the document, and again
//! for a label's input), one letter six. A *gesture* is the smallest thing a person would name: a click, a double click,
//! a drag, a text typed, a key pressed, a scroll. What scrolls during or right after a press of the mouse is its effect.

use serde::Deserialize;

/// An event of the recording.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// 1 on the way down (capture), 3 on the way up (bubble), 2 at the target itself.
    #[serde(default)]
    pub(crate) timing: i64,
    #[serde(default)]
    pub(crate) x: f64,
    #[serde(default)]
    pub(crate) y: f64,
    #[serde(default, rename = "keyCode")]
    pub(crate) key_code: u32,
    #[serde(default, rename = "charCode")]
    pub(crate) char_code: u32,
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deed {
    /// The mouse, pressed and let go.
    Mouse { from: (f64, f64), to: (f64, f64), clicks: u32 },
    /// Letters, one after the other.
    Type(String),
    /// A key that writes nothing, or one held with Control or Meta.
    Press(String),
    /// Scrolling without the mouse pressed.
    Scroll,
    /// An event that belongs to no gesture, by its name.
    Other(String),
}

/// A gesture and the events it is made of, by their numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gesture {
    pub(crate) deed: Deed,
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// Groups the events of a recording; `events` have their numbers, which grow.
pub(crate) fn group<'a>(events: impl IntoIterator<Item = (usize, &'a Event)>) -> Vec<Gesture> {
    let mut grouping = Grouping::default();
    for (number, event) in events {
        grouping.take(number, event);
    }
    grouping.gestures
}

#[derive(Default)]
struct Grouping {
    gestures: Vec<Gesture>,
    /// Names of Control, Alt and Meta while they are held, in the order they went down.
    held: Vec<&'static str>,
    /// The first event since the last gesture that starts none by itself.
    pending: Option<usize>,
}

impl Grouping {
    fn take(&mut self, number: usize, event: &Event) {
        let is_first = event.timing != 3;
        match event.kind.as_str() {
            "mousedown" if is_first => {
                let at = (event.x, event.y);
                self.start(number, Deed::Mouse { from: at, to: at, clicks: 0 });
            }
            "mouseup" | "click" | "dblclick" if is_first => self.mouse(number, event),
            "scroll" if is_first => self.scroll(number),
            "keydown" if is_first => self.key_down(number, event.key_code),
            "keypress" if is_first => self.key_press(number, event.char_code),
            "keyup" if is_first => {
                let released = modifier(event.key_code);
                self.held.retain(|name| Some(*name) != released);
                self.extend(number);
            }
            _ if !is_first => self.extend(number),
            other => self.start(number, Deed::Other(other.into())),
        }
    }

    fn start(&mut self, number: usize, deed: Deed) {
        let first = self.pending.take().unwrap_or(number);
        self.gestures.push(Gesture { deed, first, last: number });
    }

    /// An event that continues the gesture before it, or waits for the one to come.
    fn extend(&mut self, number: usize) {
        match self.gestures.last_mut() {
            Some(gesture) if self.pending.is_none() => gesture.last = number,
            _ => self.pending = self.pending.or(Some(number)),
        }
    }

    fn mouse(&mut self, number: usize, event: &Event) {
        let at = (event.x, event.y);
        match self.gestures.last_mut() {
            Some(Gesture { deed: Deed::Mouse { from, to, clicks }, last, .. }) if self.pending.is_none() => {
                *last = number;
                match event.kind.as_str() {
                    "mouseup" => *to = at,
                    "click" => *clicks = (*clicks).max(1),
                    _ => {
                        *clicks = 2;
                        let place = *from;
                        self.join_double(place);
                    }
                }
            }
            _ => self.start(number, Deed::Mouse { from: at, to: at, clicks: 1 }),
        }
    }

    /// A double click is two presses at a place: the gesture before belongs to it.
    fn join_double(&mut self, place: (f64, f64)) {
        let Some(before) = self.gestures.len().checked_sub(2).map(|at| &self.gestures[at]) else { return };
        if matches!(before.deed, Deed::Mouse { from, clicks: 1, .. } if from == place) {
            let first = before.first;
            self.gestures.remove(self.gestures.len() - 2);
            if let Some(double) = self.gestures.last_mut() {
                double.first = first;
            }
        }
    }

    fn scroll(&mut self, number: usize) {
        match self.gestures.last_mut() {
            Some(Gesture { deed: Deed::Mouse { .. } | Deed::Scroll, last, .. }) => *last = number,
            _ => self.start(number, Deed::Scroll),
        }
    }

    fn key_down(&mut self, number: usize, code: u32) {
        if let Some(name) = modifier(code) {
            if !self.held.contains(&name) && name != "Shift" {
                self.held.push(name);
            }
            self.pending = self.pending.or(Some(number));
            return;
        }
        match key_name(code) {
            Some(name) => self.press(number, name.into()),
            None if !self.held.is_empty() => self.press(number, char::from_u32(code).unwrap_or('?').to_string()),
            None => self.pending = self.pending.or(Some(number)),
        }
    }

    fn press(&mut self, number: usize, name: String) {
        let keys = self.held.iter().map(|name| name.to_string()).chain([name]).collect::<Vec<_>>().join("+");
        self.start(number, Deed::Press(keys));
    }

    fn key_press(&mut self, number: usize, code: u32) {
        let Some(letter) = char::from_u32(code).filter(|letter| !letter.is_control()) else {
            return self.extend(number);
        };
        if !self.held.is_empty() {
            return self.extend(number);
        }
        match self.gestures.last_mut() {
            Some(Gesture { deed: Deed::Type(text), last, .. }) => {
                text.push(letter);
                *last = number;
                self.pending = None;
            }
            _ => self.start(number, Deed::Type(letter.into())),
        }
    }
}

fn modifier(code: u32) -> Option<&'static str> {
    Some(match code {
        16 => "Shift",
        17 => "Control",
        18 => "Alt",
        91..=93 | 224 => "Meta",
        _ => return None,
    })
}

/// The name of a key that writes nothing.
fn key_name(code: u32) -> Option<&'static str> {
    const FUNCTIONS: [&str; 12] = ["F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12"];
    Some(match code {
        8 => "Backspace",
        9 => "Tab",
        13 => "Enter",
        20 => "CapsLock",
        27 => "Escape",
        33 => "PageUp",
        34 => "PageDown",
        35 => "End",
        36 => "Home",
        37 => "ArrowLeft",
        38 => "ArrowUp",
        39 => "ArrowRight",
        40 => "ArrowDown",
        45 => "Insert",
        46 => "Delete",
        112..=123 => FUNCTIONS[(code - 112) as usize],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events written as `kind`, `kind@x,y` or `kind#code`, each fired twice, but for `scroll`.
    fn grouped(script: &str) -> Vec<(Deed, usize, usize)> {
        let mut events = Vec::new();
        for word in script.split_whitespace() {
            let (kind, rest) = word.split_at(word.find(['@', '#']).unwrap_or(word.len()));
            let numbers: Vec<f64> = rest.split(['@', '#', ',']).filter_map(|number| number.parse().ok()).collect();
            let at = |index: usize| numbers.get(index).copied().unwrap_or(0.0);
            let code = if rest.starts_with('#') { at(0) as u32 } else { 0 };
            let event = |timing: i64| Event {
                kind: kind.into(),
                timing,
                x: at(0),
                y: at(1),
                key_code: code,
                char_code: if kind == "keypress" { code } else { 0 },
            };
            let timings: &[i64] = if kind == "scroll" { &[1] } else { &[1, 3] };
            events.extend(timings.iter().map(|timing| event(*timing)));
        }
        group(events.iter().enumerate())
            .into_iter()
            .map(|gesture| (gesture.deed, gesture.first, gesture.last))
            .collect()
    }

    fn mouse(from: (f64, f64), to: (f64, f64), clicks: u32) -> Deed {
        Deed::Mouse { from, to, clicks }
    }

    #[test]
    fn a_click_is_one_gesture_though_a_label_passes_it_on() {
        let found = grouped("mousedown@1,2 mouseup@1,2 click@1,2 click@1,2 mousedown@5,5 mouseup@9,9");
        assert_eq!(found, [(mouse((1., 2.), (1., 2.), 1), 0, 7), (mouse((5., 5.), (9., 9.), 0), 8, 11)]);
    }

    #[test]
    fn two_presses_at_a_place_are_a_double_click() {
        let press = "mousedown@1,2 mouseup@1,2 click@1,2";
        let found = grouped(&format!("mousedown@7,7 mouseup@7,7 click@7,7 {press} {press} dblclick@1,2"));
        assert_eq!(found, [(mouse((7., 7.), (7., 7.), 1), 0, 5), (mouse((1., 2.), (1., 2.), 2), 6, 19)]);
    }

    #[test]
    fn what_scrolls_with_the_mouse_is_its_effect() {
        let found = grouped("scroll scroll mousedown@1,2 scroll mouseup@1,2 scroll keydown#34 scroll");
        let keys = (Deed::Press("PageDown".into()), 8, 9);
        let expected = [(Deed::Scroll, 0, 1), (mouse((1., 2.), (1., 2.), 0), 2, 7), keys, (Deed::Scroll, 10, 10)];
        assert_eq!(found, expected);
    }

    #[test]
    fn letters_are_typed_and_other_keys_are_pressed() {
        let shifted = "keydown#16 keydown#16 keydown#79 keypress#79 keyup#16 keyup#79";
        let found = grouped(&format!("{shifted} keydown#75 keypress#107 keyup#75 keydown#8 keyup#8 keydown#8 keyup#8"));
        let back = || Deed::Press("Backspace".into());
        assert_eq!(found, [(Deed::Type("Ok".into()), 0, 17), (back(), 18, 21), (back(), 22, 25)]);
        let chord =
            grouped("keydown#17 keydown#65 keyup#65 keyup#17 keydown#13 keypress#13 keyup#13 keydown#32 keypress#32");
        let expected = [
            (Deed::Press("Control+A".into()), 0, 7),
            (Deed::Press("Enter".into()), 8, 13),
            (Deed::Type(" ".into()), 14, 17),
        ];
        assert_eq!(chord, expected);
    }

    #[test]
    fn no_event_is_lost_between_gestures() {
        let found = grouped("drop keyup#65 keydown#65 keypress#97 click@3,4 mouseup@3,4");
        let ranges: Vec<(usize, usize)> = found.iter().map(|(_, first, last)| (*first, *last)).collect();
        assert_eq!(ranges, [(0, 3), (4, 7), (8, 11)]);
        assert_eq!(found[0].0, Deed::Other("drop".into()));
    }
}
