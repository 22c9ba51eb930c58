//! `switchback completions` and `switchback man`: the command line as shells and `man` want it.

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  For every user of bash, from the next shell on:
      switchback completions bash > /usr/share/bash-completion/completions/switchback
  For yourself:
      switchback completions fish > ~/.config/fish/completions/switchback.fish
      switchback completions zsh > ~/.zfunc/_switchback    # with ~/.zfunc in fpath";

const MAN_EXAMPLES: &str = "\
Example:
  switchback man /usr/local/share/man/man1 && man switchback-ctl";

/// Print a script that lets a shell complete this command line.
#[derive(Args, Clone, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write man pages, one for each subcommand.
#[derive(Args, Clone, Debug)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct ManArgs {
    /// The directory; made if it doesn't exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// `switchback completions`, of this command line.
pub(crate) fn completions(args: &CompletionsArgs, command: Command) -> anyhow::Result<ExitCode> {
    std::io::stdout().write_all(&script(args.shell, command)).context("writing to stdout")?;
    Ok(ExitCode::SUCCESS)
}

/// In memory, since the generator panics where it can't write.
fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// `switchback man`, of this command line.
pub(crate) fn man(args: &ManArgs, command: Command) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .with_context(|| format!("writing man pages to {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// The words of every command that has subcommands, with the names of those.
    fn commands_within(
        command: &Command,
        path: &[String],
        found: &mut Vec<(Vec<String>, Vec<String>)>,
    ) {
        let path = [path, &[command.get_name().to_owned()]].concat();
        let names: Vec<_> =
            command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        command.get_subcommands().for_each(|command| commands_within(command, &path, found));
        if !names.is_empty() {
            found.push((path, names));
        }
    }

    fn commands() -> Vec<(Vec<String>, Vec<String>)> {
        let mut found = Vec::new();
        commands_within(&crate::Cli::command(), &[], &mut found);
        assert!(found.len() > 2, "switchback, ctl, config, bench: {found:?}");
        found
    }

    /// What bash offers after these words.
    fn offered(words: &[String]) -> String {
        let script = String::from_utf8(script(Shell::Bash, crate::Cli::command())).unwrap();
        let ask = format!(
            "{script}\nCOMP_WORDS=({} '') COMP_CWORD={} COMPREPLY=()\n_switchback switchback '' {}\necho \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len(),
            words.last().unwrap()
        );
        let output =
            std::process::Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn bash_offers_every_subcommand() {
        for (path, names) in commands() {
            let offered = offered(&path);
            for name in names {
                assert!(
                    offered.split_whitespace().any(|word| word == name),
                    "{path:?} {name}: {offered}"
                );
            }
        }
    }

    #[test]
    fn zsh_and_fish_know_every_subcommand() {
        let script = |shell| String::from_utf8(script(shell, crate::Cli::command())).unwrap();
        let (zsh, fish) = (script(Shell::Zsh), script(Shell::Fish));
        for name in commands().into_iter().flat_map(|(_, names)| names) {
            assert!(zsh.contains(&format!("({name})\n")), "{name}: {zsh}");
            assert!(fish.contains(&format!("-a \"{name}\"")), "{name}: {fish}");
        }
    }

    #[test]
    fn every_subcommand_has_a_man_page() {
        let directory = tempfile::tempdir().unwrap();
        let args = ManArgs { directory: directory.path().join("man1") };
        man(&args, crate::Cli::command()).unwrap();
        let page = |words: &[String]| {
            std::fs::read_to_string(args.directory.join(words.join("-") + ".1")).unwrap()
        };
        for (path, names) in commands() {
            assert!(page(&path).contains("SUBCOMMANDS"), "{path:?}");
            for name in names {
                let words = [path.clone(), vec![name]].concat();
                assert!(page(&words).contains(".SH SYNOPSIS"), "{words:?}");
            }
        }
    }
}
