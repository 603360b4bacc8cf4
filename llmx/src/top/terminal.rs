//! The terminal: taken, drawn on, read, and given back however the command ends.

use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, size};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use tokio::sync::mpsc;

use super::page;
use super::sight::Sight;

/// How long a look for keys may take: what the end of the command may wait for its thread.
const POLL: Duration = Duration::from_millis(100);

/// Largest page: a terminal says how large it is, and each of its cells takes memory.
const COLUMNS_MAX: u16 = 1000;
const ROWS_MAX: u16 = 500;

/// What was pressed.
pub enum Pressed {
    /// A key that ends the command.
    End,
    /// The window has another size.
    Resized,
}

/// A terminal in raw mode, on its alternate screen. Dropping it restores both.
pub struct Screen {
    terminal: DefaultTerminal,
    area: Rect,
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> std::io::Result<Self> {
        let area = area(size()?);
        let terminal = ratatui::try_init_with_options(TerminalOptions { viewport: Viewport::Fixed(area) })?;
        let screen = Self { terminal, area };
        execute!(std::io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }

    /// Draws the page.
    pub fn draw(&mut self, sight: &Sight) -> std::io::Result<()> {
        let area = area(size()?);
        if area != self.area {
            self.terminal.resize(area)?;
            self.area = area;
        }
        self.terminal.draw(|frame| page::draw(frame, sight)).map(|_| ())
    }
}

/// The part of a window that is drawn on.
fn area((columns, rows): (u16, u16)) -> Rect {
    Rect::new(0, 0, columns.min(COLUMNS_MAX), rows.min(ROWS_MAX))
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = ratatui::try_restore();
    }
}

/// Reads keys on a thread of its own until nobody wants them any more.
pub fn read_keys(pressed: mpsc::Sender<Pressed>) {
    tokio::task::spawn_blocking(move || {
        while !pressed.is_closed() {
            let said = match event::poll(POLL)
                .and_then(|is_ready| if is_ready { event::read().map(Some) } else { Ok(None) })
            {
                Ok(Some(event)) => meaning(&event),
                Ok(None) => None,
                // Without a terminal there is nothing to read, and nobody to show a page to.
                Err(_) => Some(Pressed::End),
            };
            if said.is_some_and(|said| pressed.blocking_send(said).is_err()) {
                return;
            }
        }
    });
}

fn meaning(event: &Event) -> Option<Pressed> {
    match event {
        Event::Resize(..) => Some(Pressed::Resized),
        Event::Key(key) if key.kind == KeyEventKind::Press => {
            let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            let is_end = is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
            is_end.then_some(Pressed::End)
        }
        Event::FocusGained | Event::FocusLost | Event::Key(_) | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_no_more_memory_than_a_wall_of_screens_whatever_the_terminal_says() {
        assert_eq!(area((80, 24)), Rect::new(0, 0, 80, 24));
        assert_eq!(area((u16::MAX, u16::MAX)), Rect::new(0, 0, COLUMNS_MAX, ROWS_MAX));
    }
}
