//! A terminal that shows one frame after the other, and says when it was told to end.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The other screen, without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first line; what is left of a line; what is left of the screen.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K";
const END_OF_SCREEN: &str = "\x1b[J";

/// Ctrl-C and Ctrl-D, as a terminal sends them that makes no signals of them.
const ENDS: [u8; 3] = [b'q', 3, 4];

/// The terminal of stdin and stdout, which is as it was once this is dropped.
#[derive(Debug)]
pub struct Screen {
    before: Termios,
    ended: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal; `None` if stdin or stdout is none.
    ///
    /// # Errors
    /// The terminal can't be set.
    pub fn open() -> io::Result<Option<Screen>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Flush, &modes)?;
        let screen = Screen { before, ended: Arc::default() };
        write(ENTER)?;
        let ended = Arc::clone(&screen.ended);
        // It ends with the process, which it doesn't keep from ending.
        std::thread::Builder::new().name("keys".into()).spawn(move || {
            let is_end = |key: &io::Result<u8>| key.as_ref().map_or(true, |key| ENDS.contains(key));
            io::stdin().lock().bytes().any(|key| is_end(&key));
            ended.store(true, Relaxed);
        })?;
        Ok(Some(screen))
    }

    /// Whether `q` or Ctrl-C was pressed, or the terminal is gone.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Shows this in place of the frame before, as far as it fits.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&self, text: &str) -> io::Result<()> {
        // A terminal that doesn't know its size says 0.
        let known =
            tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (columns, rows) = known.map_or((80, 24), |size| (size.ws_col, size.ws_row));
        write(&frame(text, columns.into(), rows.into()))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What can't be set back is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// As many lines as there are rows, each as long as it may be.
fn frame(text: &str, columns: usize, rows: usize) -> String {
    let line = |line: &str| line.chars().take(columns).collect::<String>() + END_OF_LINE;
    let lines: Vec<_> = text.lines().take(rows).map(line).collect();
    format!("{HOME}{}{END_OF_SCREEN}", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal_and_covers_the_one_before() {
        let shown = frame("one\n\ntwo and more\nthree\n", 5, 3);
        assert_eq!(shown, "\x1b[Hone\x1b[K\r\n\x1b[K\r\ntwo a\x1b[K\x1b[J");
        assert_eq!(frame("", 5, 3), "\x1b[H\x1b[J");
    }
}
