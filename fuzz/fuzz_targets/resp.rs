//! Any bytes into the RESP parser: it takes commands or refuses the connection, and always gets
//! somewhere.
#![no_main]

use libfuzzer_sys::fuzz_target;
use switchback_gateway::resp::{Parsed, Parser, ParserLimits};

fuzz_target!(|input: &[u8]| {
    let limits = ParserLimits::unauthenticated();
    let mut parser = Parser::default();
    let mut rest = input;
    // Each round takes bytes or ends; a rejected command takes its bytes with its skips.
    for _ in 0..2 * input.len() + 2 {
        match parser.next(rest, &limits) {
            Ok(Parsed::Command { consumed }) => {
                let bytes: usize = parser.args(rest).bytes();
                assert!(consumed <= rest.len() && bytes <= rest.len());
                parser.done();
                rest = &rest[consumed..];
            }
            Ok(Parsed::Skip { consumed }) => rest = &rest[consumed..],
            Ok(Parsed::Rejected) => parser.done(),
            Ok(Parsed::Incomplete { .. }) | Err(_) => return,
        }
    }
    panic!("the parser gets nowhere");
});
