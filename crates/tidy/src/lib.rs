//! What reviewers would have to say again and again, said by a test: `cargo test -p
//! switchback-tidy`.
//!
//! Each rule is a function from the repository to findings; a finding says where, what and why. The
//! rules are about text: they can be wrong in a corner, and then the corner gets an exception with
//! its reason, in the rule's own list.

mod banned;
mod citations;
mod commands;
mod reachable;
mod repository;
mod shape;
mod skips;
mod whole;
mod words;

pub use repository::{File, Finding, Repository};

/// A rule, and the name it goes by.
pub type Rule = (&'static str, fn(&Repository) -> Vec<Finding>);

/// All of them.
pub const RULES: &[Rule] = &[
    ("overlong lines", shape::overlong_lines),
    ("one command a line", commands::one_a_line),
    ("open ends", banned::open_ends),
    ("plain English", words::banned),
    ("pure code stays pure", banned::impurities),
    ("unordered iteration", banned::unordered_iteration),
    ("dead Rust files", reachable::dead_rust_files),
    ("dead headers", reachable::dead_headers),
    ("unlinked documents", reachable::unlinked_documents),
    ("rules are there", citations::rules),
    ("sections are there", citations::sections),
    ("named paths are there", citations::paths),
    ("links lead somewhere", citations::links),
    ("rules are proved", citations::proofs),
    ("dependencies have a reason", whole::dependencies),
    ("crates share lints", whole::lints),
    ("examples are compiled", whole::examples),
    ("nothing generated", whole::generated),
    ("licenses", whole::licenses),
    ("listed skips", skips::listed),
    ("ignored tests", skips::ignored),
];
