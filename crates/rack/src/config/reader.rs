//! Takes values out of a TOML document, one known key at a time, and keeps every mistake with its
//! place.

use super::problem::{ConfigError, Lines, Problem, meant};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use switchback_engine::{self as engine, Setting, Takes};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

type Value<'t> = Spanned<DeValue<'t>>;

/// The document's places and mistakes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    name: &'a str,
    base: &'a Path,
    lines: Lines<'a>,
    problems: Vec<Problem>,
    malformed: bool,
    /// How many of the problems are of single values. A value that has one gets no second message
    /// when values are compared.
    of_values: usize,
    places: BTreeMap<String, Range<usize>>,
}

impl<'a> Reader<'a> {
    /// A reader, and the document for [`Section::root`]. Relative paths in it start at `base`.
    pub(super) fn new(text: &'a str, name: &'a str, base: &'a Path) -> (Reader<'a>, DeTable<'a>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader {
            name,
            base,
            lines: Lines::new(text),
            problems: Vec::new(),
            malformed: !errors.is_empty(),
            of_values: 0,
            places: BTreeMap::new(),
        };
        for error in errors {
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            reader.problem(error.span(), format!("this is not TOML: {message}"));
        }
        (reader, root.into_inner())
    }

    /// Where relative paths start.
    pub(super) fn base(&self) -> &'a Path {
        self.base
    }

    /// The file has syntax errors, so what is missing may just not have been understood.
    pub(super) fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// All values are read; what follows is what they say together.
    pub(super) fn values_are_read(&mut self) {
        self.of_values = self.problems.len();
    }

    /// Notes a mistake.
    pub(super) fn problem(&mut self, at: Option<Range<usize>>, message: String) {
        let (line, column) = at.map_or((0, 0), |span| self.lines.position(span.start));
        self.problems.push(Problem { line, column, message });
    }

    /// Notes a mistake in the value of a key, named by its path (`rack.partitions`), or of the
    /// section if the key isn't there.
    pub(super) fn problem_at(&mut self, path: &str, message: String) {
        if let Some(place) = self.places.get(path) {
            let at = self.lines.position(place.start);
            if self.problems[..self.of_values]
                .iter()
                .any(|problem| (problem.line, problem.column) == at)
            {
                return;
            }
        }
        let mut path = path;
        let place = loop {
            if let Some(place) = self.places.get(path) {
                break Some(place.clone());
            }
            match path.rfind('.') {
                Some(dot) => path = &path[..dot],
                None => break None,
            }
        };
        self.problem(place, message);
    }

    /// Notes a mistake that several keys make together, at the first of them that is in the file.
    pub(super) fn problem_among(&mut self, paths: &[&str], message: String) {
        let path = paths.iter().find(|path| self.places.contains_key(**path)).unwrap_or(&paths[0]);
        self.problem_at(path, message);
    }

    /// Line of a key's value, for messages about a second place.
    pub(super) fn line_of(&self, path: &str) -> Option<usize> {
        self.places.get(path).map(|place| self.lines.position(place.start).0)
    }

    pub(super) fn finish(mut self) -> Result<(), ConfigError> {
        self.problems.sort();
        self.problems.dedup();
        match self.problems.is_empty() {
            true => Ok(()),
            false => Err(ConfigError { file: self.name.to_owned(), problems: self.problems }),
        }
    }
}

/// Settings that had another name once, which is still read: path now, key then.
const FORMER_NAMES: [(&str, &str); 1] = [("cache.ageing_period_ms", "reset_period_ms")];

/// One table of the document, present or not.
#[derive(Debug)]
pub(super) struct Section<'t, 'a> {
    /// `rack`, `node[0]`; empty for the document itself.
    path: String,
    table: Option<&'t DeTable<'a>>,
    known: Vec<&'static str>,
}

impl<'t, 'a> Section<'t, 'a> {
    fn new(path: String, table: Option<&'t DeTable<'a>>) -> Section<'t, 'a> {
        Section { path, table, known: Vec::new() }
    }

    /// The document itself.
    pub(super) fn root(document: &'t DeTable<'a>) -> Section<'t, 'a> {
        Section::new(String::new(), Some(document))
    }

    /// As users write it.
    fn title(&self) -> String {
        match self.path.split_once('[') {
            None => format!("[{}]", self.path),
            Some((name, index)) => format!("[[{name}]] {}", index.trim_end_matches(']')),
        }
    }

    /// Full path of a key.
    pub(super) fn path_of(&self, key: &str) -> String {
        match self.path.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.path),
        }
    }

    fn value(&mut self, reader: &mut Reader<'_>, key: &'static str) -> Option<&'t Value<'a>> {
        self.known.push(key);
        let path = self.path_of(key);
        let before = FORMER_NAMES.iter().find(|(now, _)| *now == path).map(|(_, before)| *before);
        let table = self.table?;
        let value = table.get(key).or_else(|| table.get(before?))?;
        // What the parser made up to go on after a syntax error is not the user's mistake.
        if reader.malformed && value.span().is_empty() {
            return None;
        }
        reader.places.insert(path, value.span());
        Some(value)
    }

    /// The table `[name]`.
    pub(super) fn section(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
    ) -> Section<'t, 'a> {
        let table = match self.value(reader, name) {
            None => None,
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => Some(table),
                DeValue::Array(_) => {
                    reader.problem(
                        Some(value.span()),
                        format!("there is one [{name}]; write it in single brackets"),
                    );
                    None
                }
                other => {
                    let found = describe(other);
                    reader.problem(
                        Some(value.span()),
                        format!("{name} is a section, not {found}; write [{name}]"),
                    );
                    None
                }
            },
        };
        Section::new(name.to_owned(), table)
    }

    /// The tables `[[name]]`.
    pub(super) fn list(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
    ) -> Vec<Section<'t, 'a>> {
        let Some(value) = self.value(reader, name) else { return Vec::new() };
        let mistake = format!("{name} is a list; begin each with [[{name}]] in double brackets");
        let DeValue::Array(items) = value.get_ref() else {
            reader.problem(Some(value.span()), mistake);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("{name}[{index}]");
            reader.places.insert(path.clone(), item.span());
            match item.get_ref() {
                DeValue::Table(table) => sections.push(Section::new(path, Some(table))),
                _ => reader.problem(Some(item.span()), mistake.clone()),
            }
        }
        sections
    }

    /// What `take` finds in a key's value, with the value's place. That it finds nothing is a
    /// mistake: the value is something else than `right`.
    fn typed<T>(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        right: &str,
        take: impl FnOnce(&'t DeValue<'a>) -> Option<T>,
    ) -> Option<(T, Range<usize>)> {
        let value = self.value(reader, key)?;
        let taken = take(value.get_ref());
        if taken.is_none() {
            let found = describe(value.get_ref());
            let message = format!("{} {key} is {right}, not {found}", self.title());
            reader.problem(Some(value.span()), message);
        }
        Some((taken?, value.span()))
    }

    /// An integer of `range`.
    pub(super) fn integer(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        let (first, last) = (*range.start(), *range.end());
        let right = format!("an integer from {first} to {last}");
        let found = self.typed(reader, key, &right, DeValue::as_integer);
        let Some((number, span)) = found else { return default };
        let message = match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if (i128::from(first)..=i128::from(last)).contains(&number) => {
                return number as u64;
            }
            Ok(number) => {
                format!("{} {key} = {number} is out of range; it is {right}", self.title())
            }
            Err(_) => format!("{} {key} is too long; it is {right}", self.title()),
        };
        reader.problem(Some(span), message);
        default
    }

    /// As [`Section::integer`], for what fits 32 bits.
    pub(super) fn small(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        range: RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        let number = self.integer(reader, key, range, u64::from(default));
        u32::try_from(number).expect("the range is of 32 bits")
    }

    /// A share: more than 0, at most 1.
    pub(super) fn share(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        default: f64,
    ) -> f64 {
        let right = "a number above 0, at most 1";
        let number = |value: &DeValue<'_>| match value {
            DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
            DeValue::Integer(integer) => integer.as_str().parse::<f64>().ok(),
            _ => None,
        };
        let Some((number, span)) = self.typed(reader, key, right, number) else { return default };
        if number > 0.0 && number <= 1.0 {
            return number;
        }
        let message = format!("{} {key} = {number} is out of range; it is {right}", self.title());
        reader.problem(Some(span), message);
        default
    }

    /// A setting of a storage engine's own.
    pub(super) fn engine_setting(
        &mut self,
        reader: &mut Reader<'_>,
        setting: &Setting,
        default: engine::Value,
    ) -> engine::Value {
        use engine::Value::{Flag, Integer, Text};
        let key = setting.key;
        match (setting.takes, default) {
            (Takes::Integer { least, most, .. }, Integer(default)) => {
                Integer(self.integer(reader, key, least..=most, default))
            }
            (Takes::Flag { .. }, Flag(default)) => Flag(self.flag(reader, key, default)),
            (Takes::Text { .. }, Text(default)) => {
                Text(self.string(reader, key, "a string").map_or(default, |(text, _)| text))
            }
            (takes, default) => unreachable!("{key} takes {takes:?}, not {default:?}"),
        }
    }

    /// `true` or `false`.
    fn flag(&mut self, reader: &mut Reader<'_>, key: &'static str, default: bool) -> bool {
        let found = self.typed(reader, key, "true or false", DeValue::as_bool);
        found.map_or(default, |(flag, _)| flag)
    }

    /// A string, with its place.
    pub(super) fn string(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        right: &str,
    ) -> Option<(String, Range<usize>)> {
        self.typed(reader, key, right, |value| value.as_str().map(str::to_owned))
    }

    /// One of a few words.
    pub(super) fn choice<T: FromStr<Err = String>>(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        default: T,
    ) -> T {
        let Some((text, span)) = self.string(reader, key, "a string") else { return default };
        match text.parse() {
            Ok(choice) => choice,
            Err(error) => {
                reader.problem(Some(span), format!("{} {key}: {error}", self.title()));
                default
            }
        }
    }

    /// An IP address with a port.
    pub(super) fn address(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
    ) -> Option<SocketAddr> {
        let right = "an IP address with a port, as \"127.0.0.1:6380\" or \"[::1]:6380\"";
        let (text, span) = self.string(reader, key, right)?;
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                let message = format!(
                    "{} {key} = \"{}\" is no address; it is {right}",
                    self.title(),
                    text.escape_debug()
                );
                reader.problem(Some(span), message);
                None
            }
        }
    }

    /// A directory or file.
    pub(super) fn path(&mut self, reader: &mut Reader<'_>, key: &'static str) -> Option<PathBuf> {
        let (text, span) = self.string(reader, key, "a path, as \"/var/lib/switchback\"")?;
        if text.is_empty() || text.contains('\0') {
            reader.problem(
                Some(span),
                format!("{} {key} is no path; leave the key out for its default", self.title()),
            );
            return None;
        }
        Some(reader.base.join(text))
    }

    /// What `take` finds in a key's value, such as [`strings`], [`pairs`] or [`pair`].
    pub(super) fn taken<T>(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        right: &str,
        take: impl FnOnce(&'t DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        Some(self.typed(reader, key, right, take)?.0)
    }

    /// Reports every key that is no setting.
    pub(super) fn finish(self, reader: &mut Reader<'_>) {
        let Some(table) = self.table else { return };
        for key in table.keys() {
            let name: &str = key.get_ref();
            let is_former = |(now, before): &(&str, &str)| {
                *before == name && now.rsplit_once('.').is_some_and(|(path, _)| path == self.path)
            };
            if self.known.contains(&name)
                || FORMER_NAMES.iter().any(is_former)
                || (self.path.is_empty() && reader.malformed)
            {
                continue;
            }
            let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            let hint = match meant(name, self.known.iter().copied()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("it has {}", self.known.join(", ")),
            };
            let message = match self.path.is_empty() {
                true => format!("there is no section or key \"{shown}\" at the top; {hint}"),
                false => format!("{} has no key \"{shown}\"; {hint}", self.title()),
            };
            reader.problem(Some(key.span()), message);
        }
    }
}

/// A list of strings, each with its place.
pub(super) fn strings(value: &DeValue<'_>) -> Option<Vec<(String, Range<usize>)>> {
    let string = |item: &Value<'_>| Some((item.get_ref().as_str()?.to_owned(), item.span()));
    value.as_array()?.iter().map(string).collect()
}

/// A list of pairs of integers.
pub(super) fn pairs(value: &DeValue<'_>) -> Option<Vec<(u32, u32)>> {
    value.as_array()?.iter().map(|item| pair(item.get_ref())).collect()
}

/// A pair of integers.
pub(super) fn pair(value: &DeValue<'_>) -> Option<(u32, u32)> {
    let number = |value: &Value<'_>| {
        let number = value.get_ref().as_integer()?;
        u32::from_str_radix(number.as_str(), number.radix()).ok()
    };
    match value.as_array()?.iter().collect::<Vec<_>>()[..] {
        [first, second] => Some((number(first)?, number(second)?)),
        _ => None,
    }
}

/// What a value is; never its text, which may be a secret.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Integer(number) => format!("the integer {:.32}", number.as_str()),
        DeValue::Float(number) => format!("the number {:.32}", number.as_str()),
        DeValue::Boolean(value) => format!("{value}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "this list".to_owned(),
        DeValue::Table(_) => "a section".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_settings_are_read_as_what_they_take() {
        let settings = [
            Setting { key: "cache_mb", takes: Takes::Integer { least: 1, most: 9, default: 2 } },
            Setting { key: "direct", takes: Takes::Flag { default: false } },
            Setting { key: "compression", takes: Takes::Text { default: "none" } },
        ];
        let read = |text: &str| {
            let (mut reader, document) = Reader::new(text, "rack.toml", Path::new(""));
            let mut root = Section::root(&document);
            let values = settings.map(|it| root.engine_setting(&mut reader, &it, it.default()));
            root.finish(&mut reader);
            (values, reader.finish().map_err(|error| error.to_string()))
        };
        let (integer, flag, text) = (engine::Value::Integer, engine::Value::Flag, |text: &str| {
            engine::Value::Text(text.into())
        });
        assert_eq!(read(""), ([integer(2), flag(false), text("none")], Ok(())));
        let chosen = "cache_mb = 9\ndirect = true\ncompression = \"lz4\"\n";
        assert_eq!(read(chosen), ([integer(9), flag(true), text("lz4")], Ok(())));
        let (values, mistakes) = read("cache_mb = 10\ndirect = 1\ncompression = true\n");
        assert_eq!(values, [integer(2), flag(false), text("none")]);
        let mistakes = mistakes.unwrap_err();
        for mistake in ["1 to 9", "direct is true or false, not ", "compression is a string, not "]
        {
            assert!(mistakes.contains(mistake), "{mistakes}");
        }
    }
}
