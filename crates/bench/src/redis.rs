//! `switchback bench redis`: a running gateway beside redis-server.

use clap::Args;
use std::process::ExitCode;

/// What is compared with what.
#[derive(Args, Clone, Debug)]
pub(crate) struct RedisArgs {
    /// Address of the gateway, which must be running.
    #[arg(long, default_value = "127.0.0.1:6380", value_name = "ADDR")]
    pub(crate) gateway: String,
}

pub(crate) fn run(args: &RedisArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet: comparing {} with redis-server", args.gateway)
}
