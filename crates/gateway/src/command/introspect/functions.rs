//! FUNCTION, as far as there is something to say of no functions: test suites and tools begin with
//! dropping all.

use super::{Verb, no_subcommand, ok, wrong_syntax};
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse};
use crate::failure::ErrorKind;
use crate::resp::{Args, write};
use crate::running::Running;
use crate::shared::Shared;

pub(crate) fn function(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let sub = args.get(1).to_ascii_lowercase();
    match &sub[..] {
        b"flush" if args.len() > 3 => {
            wrong_syntax(running, id, Verb::Function, args.get(1));
        }
        b"flush" => {
            let mode = args.from(2).next().unwrap_or(b"sync");
            if mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async") {
                ok(running, id, Verb::Function);
            } else {
                let text = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option";
                refuse(running, id, ErrorKind::Command, text);
            }
        }
        b"list" => match objection(args) {
            Some(text) => refuse(running, id, ErrorKind::Command, &text),
            None => answer_here(running, id, Some(Verb::Function), |out, _| write::array(out, 0)),
        },
        _ => no_subcommand(running, shared, id, args),
    }
}

/// What is wrong with the options of FUNCTION LIST.
fn objection(args: Args<'_>) -> Option<String> {
    let (mut code, mut name) = (false, false);
    let mut options = args.from(2);
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"withcode") && !code {
            code = true;
        } else if option.eq_ignore_ascii_case(b"libraryname") && !name {
            if options.next().is_none() {
                return Some("ERR library name argument was not given".into());
            }
            name = true;
        } else {
            let shown = String::from_utf8_lossy(&option[..option.len().min(128)]);
            return Some(format!("ERR Unknown argument {shown}"));
        }
    }
    None
}
