//! The rules, applied to this repository.

use std::path::Path;
use switchback_tidy::{RULES, Repository};

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let repository = Repository::read(&root).expect("git lists this repository's files");
    assert!(repository.file("Cargo.toml").is_some(), "this is the repository");
    let mut count = 0;
    for (name, rule) in RULES {
        for finding in rule(&repository) {
            println!("{name}: {finding}");
            count += 1;
        }
    }
    assert_eq!(count, 0, "the findings above say where, what and why");
}
