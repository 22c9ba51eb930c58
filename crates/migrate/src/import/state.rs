//! How far an import is, and where one begins that finds what an earlier one has left.

use serde::{Deserialize, Serialize};
use std::fmt;
use switchback_terminal::{count, grouped};

/// Keys that are named which an import leaves out.
const LEFT_OUT_MAX: usize = 10;

/// What an import does with all keys, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// Copies the source's keys.
    #[default]
    Copying,
    /// Looks through the target's keys for those that the source hasn't.
    Deleting,
    /// It has done so; one that follows goes on with changes.
    Whole,
}

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
    /// It copies what is changed meanwhile, too.
    #[serde(default)]
    pub(super) follows: bool,
    /// What the source's notifications are set to at the end, if they were changed.
    pub(super) notifications: Option<String>,
    #[serde(default)]
    pub(super) stage: Stage,
    /// SCAN goes on here: the source's, or the target's while it deletes.
    pub(super) cursor: u64,
    pub(super) copied: u64,
    /// Keys that hold something else than strings.
    pub(super) other_types: u64,
    /// The first of them, as they are shown.
    #[serde(default)]
    pub(super) left_out: Vec<String>,
    /// Keys of the target that weren't strings at the source.
    #[serde(default)]
    pub(super) deleted: u64,
}

impl Progress {
    /// Whether an earlier import had the same source, target and pattern.
    pub(super) fn is_as(&self, earlier: &Progress) -> bool {
        earlier.what == self.what && !differ(&earlier.to, &self.to)
    }

    /// Where this import, which has done nothing yet, begins after an earlier one of the same, and
    /// what to say about that.
    pub(super) fn after(
        self,
        earlier: Option<Progress>,
        deletes: bool,
    ) -> (Progress, Option<String>) {
        let Some(earlier) = earlier else { return (self, None) };
        match self.why_not_on_from(&earlier, deletes) {
            Some(why) => {
                let said = earlier.begun_anew(why, deletes);
                // The source tells of changes since the earlier run, and must stop once this ends.
                (Progress { notifications: earlier.notifications, ..self }, Some(said))
            }
            None => {
                let said = earlier.gone_on();
                let Progress { to, source_run, .. } = self;
                (Progress { to, source_run, ..earlier }, Some(said))
            }
        }
    }

    /// Why this import begins with the first key though an earlier one was further.
    fn why_not_on_from(&self, earlier: &Progress, deletes: bool) -> Option<&'static str> {
        if self.follows || earlier.follows {
            return Some("what was changed in between wasn't told");
        }
        if differ(&earlier.source_run, &self.source_run) {
            return Some("the source was started anew in between");
        }
        if earlier.stage == Stage::Whole {
            return Some("that one had come to its end");
        }
        let was_deleting = earlier.stage == Stage::Deleting;
        (was_deleting && !deletes).then_some("that one had copied all, and was deleting")
    }

    /// Counts keys that hold something else than strings, and remembers the first ones.
    pub(super) fn leave_out(&mut self, keys: &[&[u8]]) {
        self.other_types += keys.len() as u64;
        let room = LEFT_OUT_MAX.saturating_sub(self.left_out.len());
        let shown = |key: &&[u8]| key.escape_ascii().to_string();
        self.left_out.extend(keys.iter().take(room).map(shown));
    }

    fn begun_anew(&self, why: &str, deletes: bool) -> String {
        let hint = match deletes {
            true => "",
            false => "; add --delete if keys may have been deleted in between",
        };
        let copied = count(self.copied, "key");
        format!(
            "an earlier run was interrupted after {copied}; this one begins with the first key: \
             {why}{hint}"
        )
    }

    fn gone_on(&self) -> String {
        let copied = count(self.copied, "key");
        match self.stage {
            Stage::Copying => format!("going on after {copied}"),
            Stage::Deleting | Stage::Whole => {
                format!("going on after {copied}, and {} deleted", grouped(self.deleted))
            }
        }
    }

    /// A part of the keys is done; the next ones begin at `cursor`, and 0 is the end.
    pub(super) fn advance(&mut self, cursor: u64, deletes: bool) {
        self.cursor = cursor;
        if cursor == 0 {
            self.stage = match self.stage {
                Stage::Copying if deletes => Stage::Deleting,
                _ => Stage::Whole,
            };
        }
    }
}

impl fmt::Display for Progress {
    /// What is copied where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what.strip_suffix(" None").unwrap_or(&self.what))?;
        self.to.iter().try_for_each(|to| write!(f, " to {to}"))
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

    /// The begin of an import that finds another one's file: where, and what is said.
    fn begin(import: Progress, earlier: Progress, deletes: bool) -> (Progress, String) {
        let (done, said) = import.after(Some(earlier), deletes);
        (done, said.unwrap_or_default())
    }

    #[test]
    fn the_same_import_goes_on() {
        let earlier = Progress { cursor: 7, copied: 1500, ..import("a") };
        let (done, said) = begin(import("a"), earlier.clone(), false);
        assert_eq!((done, &said[..]), (earlier.clone(), "going on after 1,500 keys"));
        let (done, _) = begin(import("a"), earlier.clone(), true);
        assert_eq!(done, earlier);

        let earlier = Progress { stage: Stage::Deleting, deleted: 3, ..earlier };
        let (done, said) = begin(import("a"), earlier.clone(), true);
        assert_eq!((done, &said[..]), (earlier, "going on after 1,500 keys, and 3 deleted"));
    }

    #[test]
    fn a_file_of_an_older_version_loads() {
        let text = br#"{"what":"source:6379/0 None","cursor":7,"copied":1,"other_types":2}"#;
        let earlier = serde_json::from_slice(text).unwrap();
        let (done, said) = begin(import("a"), earlier, false);
        assert_eq!(done, Progress { cursor: 7, copied: 1, other_types: 2, ..import("a") });
        assert_eq!(said, "going on after 1 key");
    }

    #[test]
    fn another_import_is_told_apart() {
        let earlier = Progress { cursor: 7, ..import("a") };
        assert!(import("b").is_as(&earlier));
        for other in [
            Progress { what: "source:6379/1 None".into(), ..import("a") },
            Progress { to: Some("gateway:6381".into()), ..import("a") },
        ] {
            assert!(!other.is_as(&earlier));
        }
        assert_eq!(earlier.to_string(), "source:6379/0 to gateway:6380");
    }

    #[test]
    fn one_that_had_come_to_its_end_is_begun_anew() {
        let earlier = Progress { stage: Stage::Whole, copied: 2, ..import("a") };
        for deletes in [false, true] {
            let (done, said) = begin(import("a"), earlier.clone(), deletes);
            assert_eq!(done, import("a"));
            assert!(said.contains("that one had come to its end"), "{said}");
        }
    }

    #[test]
    fn one_that_follows_begins_with_the_first_key() {
        let following = || Progress { follows: true, ..import("a") };
        let earlier = Progress {
            notifications: Some("Kx".into()),
            stage: Stage::Whole,
            copied: 2,
            ..following()
        };
        let (done, said) = begin(following(), earlier.clone(), false);
        assert_eq!(done, Progress { notifications: Some("Kx".into()), ..following() });
        assert_eq!(
            said,
            "an earlier run was interrupted after 2 keys; this one begins with the first key: what \
             was changed in between wasn't told; add --delete if keys may have been deleted in \
             between"
        );
        let (_, said) = begin(following(), earlier.clone(), true);
        assert!(said.ends_with("what was changed in between wasn't told"), "{said}");
        // As well where only one of the two follows.
        let (done, _) = begin(import("a"), earlier, true);
        assert_eq!(done, Progress { notifications: Some("Kx".into()), ..import("a") });
        let (done, _) = begin(following(), Progress { cursor: 7, ..import("a") }, true);
        assert_eq!(done, following());
    }

    #[test]
    fn a_source_that_was_started_anew_is_copied_from_the_first_key() {
        let (done, said) = begin(import("b"), Progress { cursor: 7, ..import("a") }, false);
        assert_eq!(done, import("b"));
        assert!(said.contains("the source was started anew"), "{said}");
    }

    #[test]
    fn a_place_among_the_targets_keys_is_none_among_the_sources() {
        let earlier = Progress { stage: Stage::Deleting, cursor: 7, ..import("a") };
        let (done, said) = begin(import("a"), earlier, false);
        assert_eq!(done, import("a"));
        assert!(said.contains("that one had copied all"), "{said}");
    }

    #[test]
    fn stages_follow_each_other() {
        for (deletes, stages) in
            [(false, vec![Stage::Whole]), (true, vec![Stage::Deleting, Stage::Whole])]
        {
            let mut done = import("a");
            for stage in stages {
                let before = done.stage;
                done.advance(9, deletes);
                assert_eq!((done.stage, done.cursor), (before, 9));
                done.advance(0, deletes);
                assert_eq!((done.stage, done.cursor), (stage, 0));
            }
        }
    }
}
