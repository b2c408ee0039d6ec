//! A live view on the whole screen: drawn again and again from news that another thread sends, until a key ends it.

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::Duration;

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
    let mut terminal = ratatui::try_init()?;
    let result = draw_until_ended(&mut terminal, screen, news);
    ratatui::restore();
    result
}

fn draw_until_ended<S: Screen>(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut S,
    news: &mpsc::Receiver<S::News>,
) -> std::io::Result<()> {
    loop {
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
