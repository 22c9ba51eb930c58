//! Where the demo is shown: lines on stdout, on a terminal with a board below them, and its keys.

use crate::report::say;
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io::{IsTerminal as _, Stdin, stdin};
use switchback_terminal::Paint;

/// The screen.
pub(super) struct Screen {
    board: Option<(ProgressBar, Keys)>,
    paint: Paint,
}

impl Screen {
    /// Lines only.
    pub(super) fn lines() -> Screen {
        Screen { board: None, paint: Paint::stdout() }
    }

    /// A terminal, with a board that is drawn anew below the lines.
    pub(super) fn board() -> anyhow::Result<Screen> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is valid"));
        Ok(Screen { board: Some((bar, Keys::new()?)), paint: Paint::stdout() })
    }

    /// What emphasis it takes.
    pub(super) fn paint(&self) -> Paint {
        self.paint
    }

    pub(super) fn is_board(&self) -> bool {
        self.board.is_some()
    }

    /// Lines that stay.
    pub(super) fn say(&self, lines: &str) -> anyhow::Result<()> {
        match &self.board {
            Some((bar, _)) => {
                bar.println(lines);
                Ok(())
            }
            None => say(&format!("{lines}\n")),
        }
    }

    /// Draws the board.
    pub(super) fn draw(&self, board: &str) {
        if let Some((bar, _)) = &self.board {
            bar.set_message(board.to_owned());
            bar.tick();
        }
    }

    /// A key that was pressed, if one was.
    pub(super) fn key(&self) -> anyhow::Result<Option<u8>> {
        self.board.as_ref().map_or(Ok(None), |(_, keys)| keys.pressed())
    }

    /// Takes the board away; what comes is lines.
    pub(super) fn end(&mut self) {
        if let Some((bar, _)) = self.board.take() {
            bar.finish_and_clear();
        }
    }
}

/// The keyboard, whose keys come one by one and aren't shown, until this is dropped.
struct Keys {
    stdin: Stdin,
    before: Termios,
}

impl Keys {
    fn new() -> anyhow::Result<Keys> {
        let stdin = stdin();
        debug_assert!(stdin.is_terminal());
        let before = tcgetattr(&stdin).context("the terminal")?;
        let mut mode = before.clone();
        // Ctrl-C stays what it is.
        mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // A read returns at once.
        mode.special_codes[SpecialCodeIndex::VMIN] = 0;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &mode).context("the terminal")?;
        Ok(Keys { stdin, before })
    }

    fn pressed(&self) -> anyhow::Result<Option<u8>> {
        let mut key = [0];
        let count = rustix::io::read(&self.stdin, &mut key).context("the keyboard")?;
        Ok((count == 1).then_some(key[0]))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // Errors: the terminal is gone.
        let _ = tcsetattr(&self.stdin, OptionalActions::Flush, &self.before);
    }
}
