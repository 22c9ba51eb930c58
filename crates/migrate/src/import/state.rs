//! How far an import is, and where one begins that finds what an earlier one has left.

use serde::{Deserialize, Serialize};
use switchback_terminal::count;

/// How far an import is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// What is copied: a file of another import is none of this one.
    pub(super) what: String,
    /// Where to. Older versions didn't write it.
    pub(super) to: Option<String>,
    /// The source's `run_id`: SCAN of a Redis goes through the keys in another order after it was
    /// started anew. `None` if it has none, as gateways, or of older versions.
    pub(super) source_run: Option<String>,
    /// The source's SCAN goes on here.
    pub(super) cursor: u64,
    pub(super) copied: u64,
    /// Keys that hold something else than strings.
    pub(super) other_types: u64,
}

impl Progress {
    /// Where this import, which has done nothing yet, begins beside an earlier one, and what to say
    /// about that.
    pub(super) fn after(self, earlier: Option<Progress>) -> (Progress, Option<String>) {
        let is_same =
            |earlier: &Progress| earlier.what == self.what && !differ(&earlier.to, &self.to);
        let Some(earlier) = earlier.filter(is_same) else { return (self, None) };
        let copied = count(earlier.copied, "key");
        if differ(&earlier.source_run, &self.source_run) {
            let said = format!(
                "an earlier run has copied {copied}; this one begins with the first key, since the \
                 source was started anew meanwhile"
            );
            return (self, Some(said));
        }
        let Progress { to, source_run, .. } = self;
        (Progress { to, source_run, ..earlier }, Some(format!("going on after {copied}")))
    }
}

/// Whether two things are known to differ.
fn differ(one: &Option<String>, other: &Option<String>) -> bool {
    one.is_some() && other.is_some() && one != other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(source_run: &str) -> Progress {
        Progress {
            what: "source:6379/0 None".into(),
            to: Some("gateway:6380".into()),
            source_run: Some(source_run.into()),
            ..Progress::default()
        }
    }

    #[test]
    fn the_same_import_goes_on() {
        let earlier = Progress { cursor: 7, copied: 1500, ..import("a") };
        let (done, said) = import("a").after(Some(earlier.clone()));
        assert_eq!(done, earlier);
        assert_eq!(said.as_deref(), Some("going on after 1,500 keys"));
    }

    #[test]
    fn a_file_of_an_older_version_loads() {
        let text = br#"{"what":"source:6379/0 None","cursor":7,"copied":1,"other_types":2}"#;
        let earlier: Progress = serde_json::from_slice(text).unwrap();
        let (done, said) = import("a").after(Some(earlier));
        assert_eq!(done, Progress { cursor: 7, copied: 1, other_types: 2, ..import("a") });
        assert_eq!(said.as_deref(), Some("going on after 1 key"));
    }

    #[test]
    fn another_import_begins_with_the_first_key() {
        let earlier = Progress { cursor: 7, ..import("a") };
        for other in [
            Progress { what: "source:6379/1 None".into(), ..import("a") },
            Progress { to: Some("gateway:6381".into()), ..import("a") },
        ] {
            assert_eq!(other.clone().after(Some(earlier.clone())), (other, None));
        }
    }

    #[test]
    fn a_source_that_was_started_anew_is_copied_from_the_first_key() {
        let (done, said) = import("b").after(Some(Progress { cursor: 7, ..import("a") }));
        assert_eq!(done, import("b"));
        assert!(said.is_some_and(|said| said.contains("the source was started anew")));
    }
}
