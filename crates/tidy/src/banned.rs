//! Words that have no place where they are.

use crate::{File, Finding, Repository};

/// In the state machines: what, and what to do instead. They must run the same in a simulation as
/// in production.
const IMPURE_RUST: &[(&str, &str)] = &[
    ("SystemTime", "time comes in as an argument, `Now`"),
    ("Instant::now", "time comes in as an argument, `Now`"),
    ("thread::", "drivers own threads; state machines are called"),
    ("std::net::", "packets come in and go out as values"),
    ("std::fs::", "storage is asked for as effects"),
    ("std::env::", "settings come in as configuration"),
    ("tokio", "state machines know no runtime"),
    ("rand::rng(", "randomness comes in as a seed"),
    ("thread_rng", "randomness comes in as a seed"),
    ("SysRng", "randomness comes in as a seed"),
    ("OsRng", "randomness comes in as a seed"),
    ("RandomState", "its hashes differ from run to run"),
    (
        "std::collections::HashMap",
        "its order differs from run to run; BTreeMap, or hashbrown with a fixed hasher",
    ),
    (
        "std::collections::HashSet",
        "its order differs from run to run; BTreeSet, or hashbrown with a fixed hasher",
    ),
    ("println!", "what happens goes out as effects or counters"),
    ("eprintln!", "what happens goes out as effects or counters"),
];

/// The same in the pipeline, which also runs in the kernel.
const IMPURE_C: &[(&str, &str)] = &[
    ("malloc(", "tables are given; a packet allocates nothing"),
    ("calloc(", "tables are given; a packet allocates nothing"),
    ("free(", "tables are given; a packet frees nothing"),
    ("printf(", "the pipeline counts; it doesn't print"),
    ("time(", "time comes in with the call"),
    ("clock_gettime(", "time comes in with the call"),
    ("rand(", "randomness comes in with the call"),
    ("static thread_local", "the datapath is a handle, without globals"),
    ("__thread", "the datapath is a handle, without globals"),
    ("#ifdef SIM", "the simulator runs what production runs; use the features mask"),
];

/// The native driver owns the memory of its tables.
const MAY_ALLOCATE: &[&str] = &["datapath/native.c", "datapath/native.h"];

/// Clocks, threads, sockets and randomness where there must be none.
pub(crate) fn impurities(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository
        .with(&["rs"])
        .filter(|file| file.path.starts_with("crates/core/src/") && !file.is_test())
    {
        banned(file, IMPURE_RUST, &mut findings);
    }
    let is_pipeline =
        |file: &&File| file.path.starts_with("datapath/") && file.path.matches('/').count() == 1;
    for file in repository.with(&["h", "c"]).filter(is_pipeline) {
        if !MAY_ALLOCATE.contains(&file.path.as_str()) {
            banned(file, IMPURE_C, &mut findings);
        }
    }
    findings
}

fn banned(file: &File, words: &[(&str, &str)], findings: &mut Vec<Finding>) {
    for (number, line) in file.product_lines() {
        let code = line.split("//").next().unwrap_or_default();
        for (word, instead) in words.iter().filter(|(word, _)| has_word(code, word)) {
            findings.push(file.finding(number, format!("`{word}` has no place here: {instead}")));
        }
    }
}

/// Not as the end of a longer name: `time(` is not in `set_time(`.
fn has_word(code: &str, word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    code.match_indices(word).any(|(at, _)| at == 0 || !is_part(code.as_bytes()[at - 1]))
}

/// Loops over hash tables of the state machines, in no chosen order. `// any order: ...`
/// on the line or above says why it doesn't matter.
pub(crate) fn unordered_iteration(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository
        .with(&["rs"])
        .filter(|file| file.path.starts_with("crates/core/src/") && !file.is_test())
    {
        let declared = |line: &str| -> Option<String> {
            let (before, _) =
                line.split_once(": HashMap<").or_else(|| line.split_once(": HashSet<"))?;
            Some(before.rsplit([' ', '(']).next()?.to_owned())
        };
        let names: Vec<String> =
            file.product_lines().filter_map(|(_, line)| declared(line)).collect();
        let mut before = "";
        for (number, line) in file.product_lines() {
            let excused = line.contains("any order") || before.contains("any order");
            let mut iterates = names.iter().filter(|name| {
                let calls = [
                    "iter()",
                    "iter_mut()",
                    "values()",
                    "values_mut()",
                    "keys()",
                    "drain()",
                    "into_iter()",
                    "retain(",
                ];
                calls.iter().any(|call| line.contains(&format!("{name}.{call}")))
                    || line.trim_end().ends_with(&format!("in &self.{name} {{"))
            });
            if let Some(name) = iterates.next()
                && !excused
            {
                let message = format!(
                    "`{name}` is a hash table: its order is random, so seeds would not repeat; \
                     sort, or say `// any order: why`"
                );
                findings.push(file.finding(number, message));
            }
            before = line;
        }
    }
    findings
}

/// Notes to oneself that can't be found again.
pub(crate) fn open_ends(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let here = |file: &&File| !file.path.starts_with("crates/tidy/");
    for file in repository.with(&["rs", "c", "h", "sh", "py", "toml", "md"]).filter(here) {
        for (index, line) in file.text.lines().enumerate() {
            for mark in ["TODO", "FIXME", "XXX"] {
                let Some((_, rest)) = line.split_once(mark) else { continue };
                let names_issue = rest.trim_start_matches(['(', ' ', ':']).starts_with('#');
                if has_word(line, mark)
                    && !names_issue
                    && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
                {
                    let message =
                        format!("{mark} without an issue can't be found again: write {mark}(#12)");
                    findings.push(file.finding(index + 1, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impure_code_is_found_but_not_in_comments_and_tests() {
        let text = "// SystemTime\nlet now = Instant::now();\nlet strand::x = 1;\n\
                    #[cfg(test)]\nmod tests { Instant::now(); }\n";
        let repository =
            Repository::of(&[("crates/core/src/a.rs", text), ("crates/net/src/b.rs", text)]);
        let findings = impurities(&repository);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/core/src/a.rs", 2));
        let c = Repository::of(&[
            ("datapath/x.h", "u64 t = time(0);\nset_time(call);\n"),
            ("datapath/native.c", "free(x);\n"),
        ]);
        assert_eq!(impurities(&c).len(), 1);
    }

    #[test]
    fn iteration_in_random_order_is_found() {
        let text = "struct A {\n    map: HashMap<u8, u8>,\n}\nself.map.get(1);\n\
                    for x in self.map.values() {\n}\n// any order: summed\nself.map.values()\n";
        let findings = unordered_iteration(&Repository::of(&[("crates/core/src/a.rs", text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn open_ends_need_an_issue() {
        let text = "// TODO: later\n// TODO(#12): later\n// FIXME #3\nlet mastodon = TODOS;\n";
        let findings = open_ends(&Repository::of(&[("a.rs", text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
    }
}
