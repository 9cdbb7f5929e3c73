//! What the view shows and what a key does to it; no terminal in here.

use std::collections::BTreeSet;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use worldloom_report::data::Filter;
use worldloom_schema::{Domain, Pool, Trajectory};

use super::scan::{News, Summary};

/// What the caller is to do after a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Nothing,
    /// Read the data set again with the changed filter.
    Scan,
    /// Open the selected trajectory.
    Open,
    Quit,
}

/// Which side the keys move in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    List,
    Turns,
}

/// The trajectory on the right.
pub(super) struct Opened {
    pub(super) trajectory: Trajectory,
    /// 0 is what was known before the first turn, then the turns.
    pub(super) page: usize,
    /// First line shown.
    pub(super) scroll: usize,
}

/// All of it.
pub(super) struct View {
    pub(super) filter: Filter,
    pub(super) list: Vec<Summary>,
    pub(super) selected: usize,
    pub(super) opened: Option<Opened>,
    pub(super) focus: Focus,
    /// The text filter while it is typed.
    pub(super) typed: Option<String>,
    pub(super) shows_help: bool,
    pub(super) shows_thoughts: bool,
    /// Trajectories in the files.
    pub(super) total: u64,
    pub(super) is_done: bool,
    pub(super) failure: Option<String>,
    /// Lines that fit; the drawing tells.
    pub(super) height: usize,
    sources: BTreeSet<(Domain, String)>,
    pools: BTreeSet<Pool>,
}

impl View {
    pub(super) fn new(filter: Filter, total: u64) -> Self {
        Self {
            filter,
            list: Vec::new(),
            selected: 0,
            opened: None,
            focus: Focus::List,
            typed: None,
            shows_help: false,
            shows_thoughts: false,
            total,
            is_done: false,
            failure: None,
            height: 20,
            sources: BTreeSet::new(),
            pools: BTreeSet::new(),
        }
    }

    /// Takes what a scan found. Says whether the first trajectory came, which is then opened.
    pub(super) fn hear(&mut self, news: News) -> bool {
        match news {
            News::Found(found) => {
                let is_first = self.list.is_empty() && !found.is_empty();
                for summary in &found {
                    self.sources.insert((summary.domain, summary.source.clone()));
                    self.pools.extend(summary.pool);
                }
                self.list.extend(found);
                return is_first;
            }
            News::Done => self.is_done = true,
            News::Failed(error) => self.failure = Some(error),
        }
        false
    }

    /// Shows a trajectory on the right.
    pub(super) fn show(&mut self, trajectory: Trajectory) {
        self.opened = Some(Opened { trajectory, page: 0, scroll: 0 });
    }

    /// Does what a key asks for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Ask {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Ask::Quit;
        }
        if self.typed.is_some() {
            return self.type_key(key.code);
        }
        if std::mem::take(&mut self.shows_help) {
            return Ask::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Ask::Quit,
            KeyCode::Char('?') => self.shows_help = true,
            KeyCode::Char('/') => self.typed = Some(self.filter.text.clone()),
            KeyCode::Char('d') => return self.next_domain(),
            KeyCode::Char('o') => return self.next_source(),
            KeyCode::Char('p') => return self.next_pool(),
            KeyCode::Char('c') => return self.set_filter(Filter::default()),
            KeyCode::Char('t') => {
                self.shows_thoughts = !self.shows_thoughts;
                self.scroll_to(0);
            }
            KeyCode::Tab => self.focus = if self.focus == Focus::List { Focus::Turns } else { Focus::List },
            code => {
                return match self.focus {
                    Focus::List => self.press_in_list(code),
                    Focus::Turns => self.press_in_turns(code),
                };
            }
        }
        Ask::Nothing
    }

    fn type_key(&mut self, code: KeyCode) -> Ask {
        let Some(typed) = &mut self.typed else { return Ask::Nothing };
        match code {
            KeyCode::Enter => {
                let text = self.typed.take().unwrap_or_default();
                return self.set_filter(Filter { text, ..self.filter.clone() });
            }
            KeyCode::Esc => self.typed = None,
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char(letter) => typed.push(letter),
            _ => {}
        }
        Ask::Nothing
    }

    fn press_in_list(&mut self, code: KeyCode) -> Ask {
        let last = self.list.len().saturating_sub(1);
        let target = match code {
            KeyCode::Up | KeyCode::Char('k') => self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected.saturating_sub(self.height),
            KeyCode::PageDown => (self.selected + self.height).min(last),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => {
                self.focus = Focus::Turns;
                return Ask::Nothing;
            }
            _ => return Ask::Nothing,
        };
        if target == self.selected {
            return Ask::Nothing;
        }
        self.selected = target;
        Ask::Open
    }

    fn press_in_turns(&mut self, code: KeyCode) -> Ask {
        let Some(opened) = &mut self.opened else {
            self.focus = Focus::List;
            return Ask::Nothing;
        };
        let last = opened.trajectory.turns.len();
        let page = match code {
            KeyCode::Esc | KeyCode::Left | KeyCode::Char('h') => {
                self.focus = Focus::List;
                return Ask::Nothing;
            }
            KeyCode::Down | KeyCode::Char('j') => (opened.page + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => opened.page.saturating_sub(1),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            KeyCode::PageDown | KeyCode::Char(' ') => {
                opened.scroll += self.height;
                return Ask::Nothing;
            }
            KeyCode::PageUp => {
                opened.scroll = opened.scroll.saturating_sub(self.height);
                return Ask::Nothing;
            }
            _ => return Ask::Nothing,
        };
        opened.page = page;
        opened.scroll = 0;
        Ask::Nothing
    }

    fn scroll_to(&mut self, line: usize) {
        if let Some(opened) = &mut self.opened {
            opened.scroll = line;
        }
    }

    fn set_filter(&mut self, filter: Filter) -> Ask {
        if self.filter == filter {
            return Ask::Nothing;
        }
        self.filter = filter;
        self.list.clear();
        self.selected = 0;
        self.opened = None;
        self.focus = Focus::List;
        self.is_done = false;
        self.failure = None;
        Ask::Scan
    }

    /// A source of another domain would show nothing: the sources go back to all.
    fn next_domain(&mut self) -> Ask {
        let known = self.sources.iter().map(|(domain, _)| *domain).collect();
        let domains = next(&known, &self.filter.domains);
        self.set_filter(Filter { domains, sources: Vec::new(), ..self.filter.clone() })
    }

    fn next_source(&mut self) -> Ask {
        let chosen = &self.filter.domains;
        let known = self.sources.iter().filter(|(domain, _)| chosen.is_empty() || chosen.contains(domain));
        let sources = next(&known.map(|(_, source)| source.clone()).collect(), &self.filter.sources);
        self.set_filter(Filter { sources, ..self.filter.clone() })
    }

    fn next_pool(&mut self) -> Ask {
        let pools = next(&self.pools, &self.filter.pools);
        self.set_filter(Filter { pools, ..self.filter.clone() })
    }
}

/// The choice after the present one: none, then each that is known, then none again.
fn next<T: Clone + Ord>(known: &BTreeSet<T>, chosen: &[T]) -> Vec<T> {
    let next = match chosen.last() {
        None => known.first(),
        Some(last) => known.iter().find(|value| *value > last),
    };
    next.cloned().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use worldloom_report::data::Place;

    use super::super::draw::tests::trajectory;
    use super::*;

    fn view(count: usize) -> View {
        let mut view = View::new(Filter::default(), count as u64);
        let found = (0..count).map(|row| {
            let mut trajectory = trajectory();
            if row % 2 == 1 {
                (trajectory.domain, trajectory.source) = (Domain::Os, "desks".into());
            }
            Summary::new(Place { file: 0, row }, &trajectory)
        });
        assert_eq!(view.hear(News::Found(found.collect())), count > 0);
        view
    }

    fn press(view: &mut View, keys: &str) -> Ask {
        let mut ask = Ask::Nothing;
        for key in keys.chars() {
            let code = match key {
                '⏎' => KeyCode::Enter,
                '⎋' => KeyCode::Esc,
                '⌫' => KeyCode::Backspace,
                '↓' => KeyCode::Down,
                '⇟' => KeyCode::PageDown,
                letter => KeyCode::Char(letter),
            };
            ask = view.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        ask
    }

    #[test]
    fn moving_in_the_list_opens_and_stops_at_its_ends() {
        let mut view = view(3);
        assert_eq!((press(&mut view, "k"), view.selected), (Ask::Nothing, 0));
        assert_eq!((press(&mut view, "j"), view.selected), (Ask::Open, 1));
        assert_eq!((press(&mut view, "⇟"), view.selected), (Ask::Open, 2));
        assert_eq!((press(&mut view, "↓"), view.selected), (Ask::Nothing, 2));
        assert_eq!((press(&mut view, "g"), view.selected), (Ask::Open, 0));
        assert_eq!(press(&mut view, "q"), Ask::Quit);
    }

    #[test]
    fn an_empty_list_takes_every_key() {
        let mut view = view(0);
        assert_eq!(press(&mut view, "jkgG↓⇟⏎jkg⎋tdop?c⌫"), Ask::Nothing);
    }

    #[test]
    fn turns_are_walked_from_what_was_known_before_to_the_last() {
        let mut view = view(1);
        view.show(trajectory());
        press(&mut view, "⏎jj");
        assert_eq!(view.opened.as_ref().map(|opened| opened.page), Some(2));
        press(&mut view, "j⇟");
        assert_eq!(view.opened.as_ref().map(|opened| (opened.page, opened.scroll)), Some((2, 20)));
        press(&mut view, "k");
        assert_eq!(view.opened.as_ref().map(|opened| (opened.page, opened.scroll)), Some((1, 0)));
        press(&mut view, "⎋");
        assert_eq!(view.focus, Focus::List);
    }

    #[test]
    fn filters_go_round_and_start_a_new_scan() {
        let mut view = view(2);
        assert_eq!((press(&mut view, "d"), view.filter.domains.clone()), (Ask::Scan, vec![Domain::Web]));
        assert!(view.list.is_empty() && view.opened.is_none());
        assert_eq!((press(&mut view, "d"), view.filter.domains.clone()), (Ask::Scan, vec![Domain::Os]));
        assert_eq!((press(&mut view, "d"), view.filter.domains.clone()), (Ask::Scan, Vec::new()));
        assert_eq!((press(&mut view, "do"), view.filter.sources.clone()), (Ask::Scan, vec!["shops".into()]));
        assert_eq!((press(&mut view, "o"), view.filter.sources.clone()), (Ask::Scan, Vec::new()), "one in the domain");
        press(&mut view, "dd");
        assert_eq!((press(&mut view, "/aqb⌫⏎"), view.filter.text.clone()), (Ask::Scan, "aq".into()));
        assert_eq!((press(&mut view, "/x⎋"), view.filter.text.clone()), (Ask::Nothing, "aq".into()));
        assert_eq!((press(&mut view, "c"), view.filter.clone()), (Ask::Scan, Filter::default()));
        assert_eq!(press(&mut view, "p"), Ask::Nothing, "no trajectory has a pool");
    }
}
