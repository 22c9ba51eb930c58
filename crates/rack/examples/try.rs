fn main() -> anyhow::Result<()> {
    let args: switchback_bench::cli::BenchArgs = {
        use clap::{Args, FromArgMatches};
        let command = switchback_bench::cli::BenchArgs::augment_args(clap::Command::new("bench"));
        switchback_bench::cli::BenchArgs::from_arg_matches(&command.get_matches())?
    };
    let code = switchback_bench::cli::run(args, &mut switchback_rack::bench::EmbeddedFactory)?;
    println!("{code:?}");
    Ok(())
}
