//! Plain English: words that hide the subject of a sentence, or that are no measure.

use crate::{File, Finding, Repository};

/// In code, comments, names of tests, messages and documents: what, and what to say instead.
const BANNED: &[(&str, &str)] = &[
    ("nobody", "say which part doesn't"),
    ("somebody", "say which part, process or person does"),
    ("anybody", "say which part, process or person could"),
    ("everybody", "say which parts do"),
    ("someone", "say which part, process or person does"),
    ("anyone", "say which part, process or person could"),
    ("everyone", "say which parts do"),
    ("no one", "say which part doesn't"),
    ("whoever", "say which part, process or person does"),
    ("whom", "say which part, process or person is meant"),
    ("whomever", "say which part, process or person is meant"),
    ("so many", "name the number or the parameter"),
    ("so much", "name the number or the parameter"),
    ("so often", "name the number or the parameter"),
    ("so long", "name the time or the parameter"),
];

/// Files whose text may have them, and why.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/rack/tests/config/447d43a/", "a file of that commit"),
    ("crates/tidy/src/words.rs", "this list"),
    ("lab/measure/src/peers.rs", "the user that memcached runs as"),
];

/// Where comments, messages and documents are.
const WITH_WORDS: &[&str] =
    &["c", "h", "json", "lua", "md", "py", "rs", "sh", "toml", "yaml", "yml"];

/// Banned words, and exemptions that have none any more.
pub(crate) fn banned(repository: &Repository) -> Vec<Finding> {
    let of = |prefix: &str| {
        let files = repository.with(WITH_WORDS).filter(move |file| file.path.starts_with(prefix));
        files.flat_map(found).collect::<Vec<_>>()
    };
    let is_exempt =
        |finding: &Finding| EXEMPT.iter().any(|(prefix, _)| finding.path.starts_with(prefix));
    let mut findings = of("");
    findings.retain(|finding| !is_exempt(finding));
    for (prefix, _) in EXEMPT {
        let is_there = repository.files.iter().any(|file| file.path.starts_with(prefix));
        if is_there && of(prefix).is_empty() {
            findings.push(Finding {
                path: (*prefix).into(),
                line: 0,
                message: "has no banned words: end its exemption in crates/tidy/src/words.rs"
                    .into(),
            });
        }
    }
    findings
}

fn found(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line, _) in file.lines().filter(|(.., is_generated)| !is_generated) {
        // The words of a name count by themselves.
        let line = line.to_lowercase().replace('_', " ");
        for (word, instead) in BANNED {
            let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
            let is_whole = |at: usize| {
                let bytes = line.as_bytes();
                !is_letter(at.checked_sub(1).and_then(|before| bytes.get(before)))
                    && !is_letter(bytes.get(at + word.len()))
            };
            if line.match_indices(word).any(|(at, _)| is_whole(at)) {
                findings.push(file.finding(number, format!("\"{word}\": {instead}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_words_are_found_in_comments_names_and_messages() {
        let text =
            "// Whoever asks\nfn it_hurts_nobody_else() {}\n\"so many of them\" // for so long\n";
        let findings = banned(&Repository::of(&[("crates/core/src/a.rs", text)]));
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3, 3]);
        let plain = "// So manyfold; wholesome; somebodyish\n";
        assert!(banned(&Repository::of(&[("docs/a.md", plain)])).is_empty());
    }

    #[test]
    fn what_a_program_put_into_a_page_may_have_them() {
        let page = "<!-- generated: a: b -->\nnobody\n<!-- end -->\nnobody\n";
        let findings = banned(&Repository::of(&[("docs/a.md", page)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn an_exemption_ends_with_its_reason() {
        let of = |text| banned(&Repository::of(&[("lab/measure/src/peers.rs", text)]));
        assert!(of("// nobody\n").is_empty());
        assert_eq!(of("// no part\n").len(), 1);
    }
}
