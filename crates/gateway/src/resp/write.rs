//! Replies. Everything appends to a byte buffer; what differs between RESP2 and RESP3 takes
//! `resp3`.

/// `+text`.
#[inline]
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `-text`; line breaks, which would end the reply, become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn header(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `:number`.
#[inline]
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A bulk string.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Nothing.
#[inline]
pub fn null(out: &mut Vec<u8>, resp3: bool) {
    out.extend_from_slice(if resp3 { b"_\r\n" } else { b"$-1\r\n" });
}

/// No array, where there would be one.
pub fn null_array(out: &mut Vec<u8>, resp3: bool) {
    out.extend_from_slice(if resp3 { b"_\r\n" } else { b"*-1\r\n" });
}

/// The head of an array of `length` elements.
#[inline]
pub fn array(out: &mut Vec<u8>, length: usize) {
    header(out, b'*', length);
}

/// The head of a map of `length` pairs.
pub fn map(out: &mut Vec<u8>, length: usize, resp3: bool) {
    match resp3 {
        true => header(out, b'%', length),
        false => header(out, b'*', 2 * length),
    }
}

/// The head of a set.
pub fn set(out: &mut Vec<u8>, length: usize, resp3: bool) {
    header(out, if resp3 { b'~' } else { b'*' }, length);
}

/// Text for people.
pub fn verbatim(out: &mut Vec<u8>, text: &str, resp3: bool) {
    if !resp3 {
        return bulk(out, text.as_bytes());
    }
    header(out, b'=', text.len() + 4);
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions() {
        for (resp3, wanted) in [
            (false, "+OK\r\n-ERR a b\r\n:-5\r\n$2\r\nhi\r\n$-1\r\n*2\r\n*4\r\n*1\r\n$1\r\nx\r\n"),
            (true, "+OK\r\n-ERR a b\r\n:-5\r\n$2\r\nhi\r\n_\r\n*2\r\n%2\r\n~1\r\n=5\r\ntxt:x\r\n"),
        ] {
            let mut out = Vec::new();
            simple(&mut out, "OK");
            error(&mut out, "ERR a\nb");
            integer(&mut out, -5);
            bulk(&mut out, b"hi");
            null(&mut out, resp3);
            array(&mut out, 2);
            map(&mut out, 2, resp3);
            set(&mut out, 1, resp3);
            verbatim(&mut out, "x", resp3);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }
}
