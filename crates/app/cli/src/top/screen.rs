//! A live view on the whole screen: drawn again and again from news that another thread sends, until a key ends it.

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{execute, terminal::EnterAlternateScreen};
use ratatui::layout::{Rect, Size};
use ratatui::{Frame, TerminalOptions, Viewport};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

/// The largest picture, in cells, each of which costs memory: a terminal may say of itself that it has any size.
const WIDTH_MAX: u16 = 1000;
const HEIGHT_MAX: u16 = 400;

/// What a live view shows.
pub(crate) trait Screen {
    type News;

    fn take(&mut self, news: Self::News);

    fn draw(&mut self, frame: &mut Frame);

    /// A key was pressed; gives whether it meant something here.
    fn press(&mut self, _key: KeyCode) -> bool {
        false
    }
}

/// What is drawn on a screen of this size, for tests.
#[cfg(test)]
pub(crate) fn drawn(draw: impl FnOnce(&mut Frame), width: u16, height: u16) -> String {
    use ratatui::{Terminal, backend::TestBackend};
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal.draw(draw).expect("drawing in memory");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(move |x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(row).map(|line| line.trim_end().to_string() + "\n").collect()
}

/// Whether there is a terminal to draw on, and a keyboard.
pub(crate) fn is_terminal() -> bool {
    eyas_text::stdout_is_terminal() && std::io::stdin().is_terminal()
}

/// Takes the whole screen until `q`, Escape or Ctrl-C is pressed, and gives it back then.
pub(crate) fn show<S: Screen>(screen: &mut S, news: &mpsc::Receiver<S::News>) -> std::io::Result<()> {
    let viewport = Viewport::Fixed(Rect::ZERO);
    let mut terminal = ratatui::try_init_with_options(TerminalOptions { viewport })?;
    let result = match execute!(terminal.backend_mut(), EnterAlternateScreen) {
        Ok(()) => draw_until_ended(&mut terminal, screen, news),
        Err(error) => Err(error),
    };
    ratatui::restore();
    result
}

fn draw_until_ended<S: Screen>(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut S,
    news: &mpsc::Receiver<S::News>,
) -> std::io::Result<()> {
    let mut drawn = Size::ZERO;
    loop {
        let size = terminal.size()?;
        if size != drawn {
            drawn = size;
            terminal.resize(Rect::new(0, 0, size.width.min(WIDTH_MAX), size.height.min(HEIGHT_MAX)))?;
        }
        terminal.draw(|frame| screen.draw(frame))?;
        // A key, a new size or a tenth of a second; news are taken in each case.
        if event::poll(Duration::from_millis(100))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                code if screen.press(code) => {}
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                _ => {}
            }
        }
        news.try_iter().for_each(|news| screen.take(news));
    }
}
