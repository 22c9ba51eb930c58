//! Schemes on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use switchback_wire::Scheme;

/// Takes the name of a scheme; help texts list all with their summaries.
pub fn scheme_parser() -> impl TypedValueParser<Value = Scheme> {
    let names = Scheme::ALL.map(|scheme| PossibleValue::new(scheme.name()).help(scheme.summary()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Scheme>())
}
