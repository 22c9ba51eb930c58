//! `GET /machines`: whether the machines of the rack fit it, while it runs.

use super::{Elsewhere, ServerState, blocking};
use crate::machine::{self, Check};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use std::fs::read_to_string;

/// An entry of `GET /machines`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MachineStatus {
    /// Its name, as it has it itself.
    pub host: String,
    /// What was looked at: `switchback doctor` does the same, and looks at what a start needs, too.
    pub checks: Vec<Check>,
}

/// This machine, and those of the parts that answer where this process can ask them; each once.
pub(super) async fn machines(
    State(shared): State<ServerState>,
) -> Result<Json<Vec<MachineStatus>>, Response> {
    let config = shared.config.clone();
    let here = blocking(move || MachineStatus {
        host: read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        checks: machine::checks(&config, false),
    });
    let elsewhere = Elsewhere::of(&*shared.admin);
    let (here, others) = tokio::join!(here, elsewhere.machines());
    Ok(Json(each_once([here?].into_iter().chain(others))))
}

fn each_once(told: impl Iterator<Item = MachineStatus>) -> Vec<MachineStatus> {
    let mut machines: Vec<MachineStatus> = Vec::new();
    for machine in told {
        if machines.iter().all(|known| known.host != machine.host) {
            machines.push(machine);
        }
    }
    // In an order that doesn't change with who answers first.
    machines.get_mut(1..).unwrap_or_default().sort_by(|one, other| one.host.cmp(&other.host));
    machines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_several_parts_is_listed_once() {
        let of = |host: &str| MachineStatus { host: host.into(), checks: Vec::new() };
        let told = ["m", "z", "a", "m", "z"].map(of);
        let hosts: Vec<_> = each_once(told.into_iter()).into_iter().map(|it| it.host).collect();
        assert_eq!(hosts, ["m", "a", "z"]);
        assert!(each_once([].into_iter()).is_empty());
    }
}
