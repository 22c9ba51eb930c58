//! `switchback lab draw`: figures of what the product has written as JSON.

use crate::chart::{self, Prediction};
use anyhow::Context as _;
use clap::Args;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Draw a prediction: the load of the nodes, and the gains by size of the cache.
#[derive(Args, Clone, Debug)]
pub(crate) struct DrawArgs {
    /// What `switchback predict --json FILE` has written (not of twitter:all).
    #[arg(value_name = "FILE")]
    prediction: PathBuf,

    /// The figure's file.
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
}

/// Draws.
pub(crate) fn run(args: &DrawArgs) -> anyhow::Result<ExitCode> {
    let name = args.prediction.display().to_string();
    let file = File::open(&args.prediction).with_context(|| name.clone())?;
    let prediction: Prediction =
        serde_json::from_reader(BufReader::new(file)).with_context(|| {
            format!("{name} is no prediction; switchback predict --json FILE writes one")
        })?;
    let svg = chart::svg(&prediction).with_context(|| name)?;
    std::fs::write(&args.svg, svg)
        .with_context(|| format!("cannot write {}", args.svg.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{
        "outcomes": [
            { "way": "no_cache", "node_load": [0.5, 0.3, 0.1, 0.1] },
            { "way": "write_through", "node_load": [0.3, 0.3, 0.1, 0.1] },
            { "way": "write_back", "node_load": [0.1, 0.1, 0.1, 0.1] }
        ],
        "steps": [
            { "records": 10, "write_through": 1.2, "write_back": 2.5 },
            { "records": 100, "write_through": 1.3, "write_back": null }
        ]
    }"#;

    #[test]
    fn a_prediction_is_drawn_and_nothing_else() {
        let directory = tempfile::tempdir().expect("a directory");
        let [prediction, svg] = ["t.json", "t.svg"].map(|name| directory.path().join(name));
        let args = DrawArgs { prediction: prediction.clone(), svg: svg.clone() };
        std::fs::write(&prediction, JSON).expect("written");
        run(&args).expect("drawn");
        let drawn = std::fs::read_to_string(&svg).expect("a figure");
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
        // Four bars of each kind, their keys, and the background.
        assert!(
            drawn.matches("<rect").count() >= 2 * 4 + 2 && drawn.contains("write-through, ideal"),
            "{drawn}"
        );
        for wrong in ["", "{}", "[1]", r#"{ "outcomes": [], "steps": [] }"#] {
            std::fs::write(&prediction, wrong).expect("written");
            assert!(format!("{:#}", run(&args).expect_err(wrong)).contains("t.json"), "{wrong}");
        }
        let nowhere = DrawArgs { svg: "/nowhere/t.svg".into(), ..args };
        std::fs::write(&prediction, JSON).expect("written");
        assert!(
            format!("{:#}", run(&nowhere).expect_err("no such directory"))
                .contains("/nowhere/t.svg")
        );
    }
}
