//! How far it is, on the terminal and in a file.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// A line on the terminal; silent where there is none.
pub(crate) fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
    let bar = ProgressBar::new_spinner();
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// What an earlier run had written to `file`; `None` if there is none.
pub(crate) fn load<State: DeserializeOwned>(file: &Path) -> anyhow::Result<Option<State>> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{}", file.display())),
    };
    let state = serde_json::from_slice(&text).with_context(|| {
        format!(
            "{} isn't what an interrupted run has left; remove it to begin anew",
            file.display()
        )
    })?;
    Ok(Some(state))
}

/// Writes the state, in place of the one before, so that a crash leaves one of them.
pub(crate) fn store(file: &Path, state: &impl Serialize) -> anyhow::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let write = || {
        let mut aside = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
        aside.write_all(&serde_json::to_vec(state)?)?;
        aside.as_file().sync_data()?;
        aside.persist(file).map_err(|error| error.error)?;
        std::io::Result::Ok(())
    };
    write().with_context(|| format!("{} can't be written", file.display()))
}
