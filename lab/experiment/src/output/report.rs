//! The report: one text, as Markdown and as HTML, and each experiment's findings as a separate
//! piece of Markdown, for documents to include.

use super::COMMIT;
use super::table::{Table, escape};
use crate::experiments::{Finding, file, goals, seeds_named};
use crate::profile::{Chosen, Described, Profile};
use anyhow::Context;
use std::path::Path;

/// The contents of a report.
pub(crate) struct Report<'a> {
    pub(crate) profile: &'a Chosen,
    /// The experiments and the other options of the command line, so that it can be repeated.
    pub(crate) experiments: String,
    pub(crate) options: String,
    pub(crate) seed: u64,
    pub(crate) repetitions: u64,
    pub(crate) findings: &'a [Finding],
}

const INTRODUCTION: &str = "Every figure but those of Exp#14 is modelled: the production pipeline \
and state machines run in virtual time, with service times, delays and capacities as parameters. \
The limit is the best throughput that the scheme could have with the very partition map that ran: \
the capacity of a node over the largest share of requests that the cache leaves to one node. \
limit: with the best content of the cache; limit_learned: with the content that a perfect learner \
had cached by then, whose counters are exact and whose admissions cost nothing; limit_cached: with \
the actual content. Preloaded runs are judged by the first, cold ones by the second.";

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:62em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:1em 0}\
td,th{border:1px solid #ccc;padding:.2em .6em;text-align:right}\
td.words,th.words{text-align:left}caption{text-align:left;font-weight:bold}img{max-width:100%}";

/// An experiment's figures and tables.
fn found(finding: &Finding) -> String {
    let figures = finding
        .figures
        .iter()
        .map(|figure| format!("![{}]({}.svg)\n\n", figure.title, figure.name));
    figures.chain(finding.tables.iter().map(|table| format!("{}\n", table.markdown()))).collect()
}

/// Headings and texts after a finding's tables; the first says why the findings differ from the
/// paper's.
fn remarks<'a>(
    finding: &'a Finding,
    profile: &Profile,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let is_papers = profile.name == Profile::PAPER.name;
    let heading = if is_papers {
        "Why they differ"
    } else {
        "Why they differ, with the costs of the profile paper"
    };
    let differs = Some((heading, finding.differs)).filter(|(_, text)| !text.is_empty());
    differs
        .into_iter()
        .chain(finding.remarks.iter().map(|(heading, text)| (*heading, text.as_str())))
}

impl Report<'_> {
    /// Writes `report.md`, `report.html`, `goals.md` and a file for each experiment.
    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let goals =
            format!("\n{}\n\n{}\n", self.origin(&self.experiments), self.goals().markdown());
        let whole =
            [("report.md", self.markdown()), ("report.html", self.html()), ("goals.md", goals)];
        let whole = whole.map(|(name, text)| (name.to_owned(), text));
        let parts = self.findings.iter().map(|finding| {
            let text = format!("\n{}\n\n{}", self.origin(finding.name), found(finding));
            (format!("{}.md", file(finding.name)), text)
        });
        for (name, text) in whole.into_iter().chain(parts) {
            let path = directory.join(name);
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Where figures come from: commit, and the command that repeats these experiments.
    fn origin(&self, experiments: &str) -> String {
        format!(
            "Commit {COMMIT}: `switchback lab experiment {experiments}{} --out DIR`",
            self.options
        )
    }

    fn seeds(&self) -> String {
        seeds_named(self.seed, self.repetitions)
    }

    fn goals(&self) -> Table {
        goals::table(self.findings)
    }

    /// Tables of the parameters of the given profile, and of those that Exp#9 compares it with.
    fn parameters(&self) -> Vec<Table> {
        let table = |name: &str, described: &[Described]| {
            let head = ["parameter", "value", "source"];
            let mut table =
                Table::new(format!("Parameters of profile {name}"), &head).with_words(&[2]);
            for (name, value, source) in described {
                table.row(vec![name.clone(), value.clone(), source.clone()]);
            }
            table
        };
        let compares = self.findings.iter().any(|finding| finding.name == "9");
        let is_other = |profile: &&Profile| compares && profile.name != self.profile.profile.name;
        let others = Profile::ALL.into_iter().filter(is_other);
        let given = table(&self.profile.given, &self.profile.described);
        [given]
            .into_iter()
            .chain(others.map(|other| table(other.name, &other.describe())))
            .collect()
    }

    fn markdown(&self) -> String {
        let mut text = format!(
            "# FarReach's evaluation, modelled\n\n{INTRODUCTION}\n\n{}, {}\n\n",
            self.origin(&self.experiments),
            self.seeds()
        );
        text += &format!("{}\n", self.goals().markdown());
        self.parameters().iter().for_each(|table| text += &format!("{}\n", table.markdown()));
        for finding in self.findings {
            text += &format!("## {}\n\nThe paper: {}\n\n", finding.heading(), finding.paper);
            text += &found(finding);
            for (heading, remark) in remarks(finding, &self.profile.profile) {
                text += &format!("{heading}: {remark}\n\n");
            }
        }
        text
    }

    fn html(&self) -> String {
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>FarReach's \
             evaluation, modelled</title><style>{STYLE}</style></head><body>\n\
             <h1>FarReach's evaluation, modelled</h1>\n<p>{}</p>\n<p>{}</p>\n{}",
            escape(INTRODUCTION),
            escape(&format!("{}, {}", self.origin(&self.experiments), self.seeds())),
            self.goals().html(),
        );
        self.parameters().iter().for_each(|table| html += &table.html());
        for finding in self.findings {
            html += &format!("<h2>{}</h2>\n", escape(&finding.heading()));
            html += &format!("<p><b>The paper:</b> {}</p>\n", escape(finding.paper));
            for figure in &finding.figures {
                html += &format!(
                    "<p><img src=\"{}.svg\" alt=\"{}\"></p>\n",
                    figure.name,
                    escape(&figure.title)
                );
            }
            finding.tables.iter().for_each(|table| html += &table.html());
            for (heading, remark) in remarks(finding, &self.profile.profile) {
                html += &format!("<p><b>{heading}:</b> {}</p>\n", escape(remark));
            }
        }
        html + "</body></html>\n"
    }
}
