//! Lines of `redis-cli MONITOR`: `1339518083.107412 [0 127.0.0.1:60866] "set" "key" "value"`.

use super::tally::Access;
use super::trace::Trace;
use switchback_gateway::Verb;

/// Bytes of a counter's value, at most.
const COUNTER_BYTES: u64 = 20;

/// Whether a line is one of MONITOR's.
pub(super) fn is_line(line: &[u8]) -> bool {
    head(line).is_some()
}

/// Time, database, and the position of the command.
fn head(line: &[u8]) -> Option<(f64, &[u8], &[u8])> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let seconds = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    let rest = line[space + 1..].strip_prefix(b"[")?;
    let database = rest.split(|&byte| byte == b' ').next()?;
    // An address of IPv6 has brackets, too.
    let end = rest.windows(3).position(|window| window == b"] \"")?;
    database.iter().all(u8::is_ascii_digit).then_some((seconds, database, &rest[end + 2..]))
}

/// Counts the operations of a line's command.
pub(super) fn read_line(line: &[u8], trace: &mut Trace) -> Result<(), String> {
    let Some((seconds, database, command)) = head(line) else {
        return Err(
            "not a line of MONITOR: it begins like 1339518083.107412 [0 127.0.0.1:60866] \"get\""
                .to_owned(),
        );
    };
    let mut args = arguments(command)?;
    let name = args.first().ok_or("a command without a name")?;
    let Some(verb) = Verb::from_name(name) else {
        trace.not_served(name);
        return Ok(());
    };
    let (first, last, step) = verb.spec().keys;
    if first == 0 {
        return Ok(());
    }
    if !verb.spec().takes(args.len()) {
        return Err(format!(
            "{} with {} arguments, which Redis would have refused",
            verb.name(),
            args.len() - 1
        ));
    }
    trace.at(seconds);
    if database != b"0" {
        // Keys of other databases are other keys.
        for at in key_positions(first, last, step, args.len()) {
            args[at] = [database, b":", &args[at]].concat();
        }
    }
    for at in key_positions(first, last, step, args.len()) {
        trace.add(access(verb, &args, at));
    }
    Ok(())
}

fn key_positions(first: i32, last: i32, step: i32, args: usize) -> impl Iterator<Item = usize> {
    let last =
        if last < 0 { args.saturating_sub(last.unsigned_abs() as usize) } else { last as usize };
    (first as usize..=last).step_by(step.max(1) as usize)
}

/// The operation that the gateway executes for a command on the key at position `at`.
fn access<'a>(verb: Verb, args: &'a [Vec<u8>], at: usize) -> Access<'a> {
    let key = args[at].as_slice();
    let bytes = |at: usize| args.get(at).map_or(0, |value| value.len() as u64);
    match verb {
        Verb::Set if args[3..].iter().any(|option| is_condition(option)) => {
            Access::read_modify_write(key, Some(bytes(2)))
        }
        Verb::Set | Verb::MSet => Access::write(key, bytes(at + 1)),
        Verb::SetEx | Verb::PSetEx => Access::write(key, bytes(3)),
        Verb::SetNx | Verb::GetSet | Verb::Append => Access::read_modify_write(key, Some(bytes(2))),
        Verb::Incr | Verb::Decr | Verb::IncrBy | Verb::DecrBy => {
            Access::read_modify_write(key, Some(COUNTER_BYTES))
        }
        Verb::GetEx if args.len() == 2 => Access::read(key),
        _ if verb.spec().writes() => Access::read_modify_write(key, None),
        _ => Access::read(key),
    }
}

/// Whether an option of SET makes it depend on the record that is stored.
fn is_condition(option: &[u8]) -> bool {
    [&b"nx"[..], b"xx", b"get", b"keepttl"].iter().any(|name| option.eq_ignore_ascii_case(name))
}

/// The arguments of a command, quoted as Redis quotes them.
fn arguments(mut text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut arguments = Vec::new();
    while !text.is_empty() {
        text = text.strip_prefix(b" ").unwrap_or(text);
        let quoted = text.strip_prefix(b"\"").ok_or("an argument without its quotes")?;
        let (argument, rest) = unquote(quoted)?;
        arguments.push(argument);
        text = rest;
    }
    Ok(arguments)
}

/// The argument up to its closing quote, and what follows.
fn unquote(mut text: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut argument = Vec::new();
    loop {
        let plain = text
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\')
            .ok_or("a quote that isn't closed")?;
        argument.extend_from_slice(&text[..plain]);
        let escaped = &text[plain + 1..];
        if text[plain] == b'"' {
            return Ok((argument, escaped));
        }
        let (&byte, rest) = escaped.split_first().ok_or("a quote that isn't closed")?;
        text = rest;
        argument.push(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 0x07,
            b'b' => 0x08,
            b'x' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let number = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                text = &rest[2.min(rest.len())..];
                number.ok_or("\\x without two hexadecimal digits")?
            }
            other => other,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads, writes and the longest value, by command.
    fn counts(command: &str) -> (u64, u64, u64, Option<u64>) {
        let mut trace = Trace::new(100);
        read_line(format!("1.5 [0 [::1]:6] {command}").as_bytes(), &mut trace).unwrap();
        let (operations, reads, writes) =
            (trace.tally.operations, trace.tally.reads, trace.tally.writes);
        let longest = trace.tally.hottest_first().first().and_then(|(_, count)| count.value_bytes);
        (operations, reads, writes, longest)
    }

    #[test]
    fn commands_count_as_the_operations_of_the_gateway() {
        for (command, expected) in [
            (r#""GET" "k""#, (1, 1, 0, None)),
            (r#""set" "k" "value""#, (1, 0, 1, Some(5))),
            (r#""set" "k" "\x00\"\\\n" "EX" "10""#, (1, 0, 1, Some(4))),
            (r#""set" "k" "value" "nx""#, (1, 1, 1, Some(5))),
            (r#""setex" "k" "10" "value""#, (1, 0, 1, Some(5))),
            (r#""incr" "k""#, (1, 1, 1, Some(20))),
            (r#""mget" "a" "b" "c""#, (3, 3, 0, None)),
            (r#""mset" "a" "1" "b" "1""#, (2, 0, 2, Some(1))),
            (r#""del" "a" "b""#, (2, 2, 2, None)),
            (r#""getex" "k""#, (1, 1, 0, None)),
            (r#""ping""#, (0, 0, 0, None)),
            (r#""hset" "k" "f" "v""#, (0, 0, 0, None)),
        ] {
            assert_eq!(counts(command), expected, "{command}");
        }
    }

    #[test]
    fn databases_have_their_own_keys_and_scripts_count() {
        let mut trace = Trace::new(100);
        for line in [
            r#"2 [0 127.0.0.1:1] "get" "k""#,
            r#"1 [1 lua] "get" "k""#,
            r#"3 [0 unix:/s] "get" "k""#,
        ] {
            read_line(line.as_bytes(), &mut trace).unwrap();
        }
        assert_eq!(trace.times, Some((1.0, 3.0)));
        let counts: Vec<_> =
            trace.tally.hottest_first().iter().map(|(_, count)| count.reads).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn lines_without_a_command_are_refused() {
        for (line, reason) in [
            ("get k", "not a line of MONITOR"),
            ("1.0 [0 a:1] \"get", "isn't closed"),
            ("1.0 [0 a:1] \"get\" k", "without its quotes"),
            ("1.0 [0 a:1] \"get\" \"\\xg0\"", "hexadecimal"),
            ("1.0 [0 a:1] \"get\" \"\\x", "isn't closed"),
            ("1.0 [0 a:1] \"set\" \"k\"", "set with 1 arguments"),
        ] {
            let error = read_line(line.as_bytes(), &mut Trace::new(1)).unwrap_err();
            assert!(error.contains(reason) || error.contains("hexadecimal"), "{line}: {error}");
        }
    }
}
