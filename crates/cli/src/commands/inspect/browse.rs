//! The view on a real terminal: draws, waits for keys, reads what they ask for.

use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use worldloom_report::data::{DataSet, Filter};

use super::draw::draw;
use super::scan::Scan;
use super::view::{Ask, View};

/// How long a key is waited for before the scan is heard again.
const TICK: Duration = Duration::from_millis(40);

/// Shows the data set until the person is done.
pub(super) fn browse(set: &DataSet, filter: Filter) -> Result<()> {
    let mut terminal = ratatui::try_init().context("open the terminal")?;
    let result = show(&mut terminal, set, filter);
    ratatui::restore();
    result
}

fn show(terminal: &mut ratatui::DefaultTerminal, set: &DataSet, filter: Filter) -> Result<()> {
    let mut view = View::new(filter, set.total());
    let mut scan = Scan::start(set, &view.filter);
    let mut is_changed = true;
    loop {
        while let Some(news) = scan.poll() {
            if view.hear(news) {
                open(set, &mut view);
            }
            is_changed = true;
        }
        if std::mem::take(&mut is_changed) {
            terminal.draw(|frame| draw(frame, &mut view)).context("draw on the terminal")?;
        }
        if !event::poll(TICK).context("read the terminal")? {
            continue;
        }
        is_changed = true;
        let Event::Key(key) = event::read().context("read the terminal")? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match view.press(key) {
            Ask::Nothing => {}
            Ask::Scan => scan = Scan::start(set, &view.filter),
            Ask::Open => open(set, &mut view),
            Ask::Quit => return Ok(()),
        }
    }
}

/// Opens the selected trajectory.
fn open(set: &DataSet, view: &mut View) {
    let Some(summary) = view.list.get(view.selected) else { return };
    match set.read(summary.place) {
        Ok(trajectory) => view.show(trajectory),
        Err(error) => view.failure = Some(error.to_string()),
    }
}
