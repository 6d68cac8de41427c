//! Java's `.properties` format, as Kafka reads `server.properties`: ISO-8859-1 with `\uxxxx` escapes.

use std::collections::BTreeMap;

use super::error::{ConfigError, OverrideSnafu, OverrideWithoutValueSnafu, UnicodeEscapeSnafu};

/// Settings as they were written: key to untrimmed text.
pub type Properties = BTreeMap<String, String>;

/// Reads a whole file. Of a key that stands twice the last value counts.
///
/// Bytes are ISO-8859-1 as in Java, so that a path with other characters names the same folder for both.
/// Fails only on a damaged `\u` escape.
pub fn parse_properties(bytes: &[u8]) -> Result<Properties, ConfigError> {
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    let mut properties = Properties::new();
    let text = text.replace("\r\n", "\n");
    let mut lines = text.split(['\n', '\r']).enumerate();
    while let Some((number, line)) = lines.next() {
        let mut logical = trim_start(line).to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while ends_in_continuation(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(trim_start(next));
        }
        let (key, value) = split(&logical);
        let malformed = || UnicodeEscapeSnafu { line: number + 1 }.build();
        properties.insert(unescape(key).ok_or_else(malformed)?, unescape(value).ok_or_else(malformed)?);
    }
    Ok(properties)
}

/// Reads `key=value` of a command line; neither part is unescaped.
pub fn parse_override(option: &str) -> Result<(String, String), ConfigError> {
    match option.split_once('=') {
        Some((name, "")) => OverrideWithoutValueSnafu { name }.fail(),
        Some(("", _)) | None => OverrideSnafu { option }.fail(),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
    }
}

const BLANKS: [char; 3] = [' ', '\t', '\x0c'];

fn trim_start(line: &str) -> &str {
    line.trim_start_matches(BLANKS)
}

/// An odd number of backslashes at the end: the last one is not itself escaped.
fn ends_in_continuation(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// The key ends at the first blank, `=` or `:` without a backslash; blanks around one separator are dropped.
fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = line.find(|c| {
        let ends_key = !is_escaped && (BLANKS.contains(&c) || c == '=' || c == ':');
        is_escaped = c == '\\' && !is_escaped;
        ends_key
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = trim_start(rest);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, trim_start(value))
}

fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut units = Vec::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let unit = match character {
            '\\' => match characters.next() {
                Some('t') => u16::from(b'\t'),
                Some('n') => u16::from(b'\n'),
                Some('r') => u16::from(b'\r'),
                Some('f') => 0x0c,
                Some('u') => unicode_escape(&mut characters)?,
                // Only ISO-8859-1 characters come in, so that each is one UTF-16 unit.
                Some(other) => other as u16,
                None => continue,
            },
            other => other as u16,
        };
        units.push(unit);
    }
    Some(String::from_utf16_lossy(&units))
}

fn unicode_escape(characters: &mut std::str::Chars<'_>) -> Option<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit * 16 + characters.next()?.to_digit(16)?;
    }
    u16::try_from(unit).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        assert_eq!(parse_properties(text.as_bytes()), Ok(expected), "{text:?}");
    }

    #[test]
    fn lines_are_split_as_in_java() {
        check("a=b", &[("a", "b")]);
        check("a = b ", &[("a", "b ")]);
        check("a:b", &[("a", "b")]);
        check("a b c", &[("a", "b c")]);
        check("  a\t=\tb=c", &[("a", "b=c")]);
        check("a", &[("a", "")]);
        check("a=", &[("a", "")]);
        check("=b", &[("", "b")]);
        check("a==b", &[("a", "=b")]);
        check("a=1\r\na=2\rb=3", &[("a", "2"), ("b", "3")]);
    }

    #[test]
    fn comments_and_blank_lines_are_skipped() {
        check("# x=1\n  ! y=2\n\n \t\n a=b#c", &[("a", "b#c")]);
        check("#ends with a backslash \\\na=b", &[("a", "b")]);
    }

    #[test]
    fn a_backslash_joins_lines() {
        check("a=b,\\\n   c,\\\n\td", &[("a", "b,c,d")]);
        check("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]);
        check("a=b\\", &[("a", "b")]);
        check("a=b,\\\r\n  c", &[("a", "b,c")]);
    }

    #[test]
    fn escapes_are_resolved() {
        check(r"a\ b\=c\:d=e\tf\ng", &[("a b=c:d", "e\tf\ng")]);
        check(r"a=\u00e4\u20AC\ud83d\ude00\q", &[("a", "ä€😀q")]);
        check(r"dir=C:\\data", &[("dir", r"C:\data")]);
        assert_eq!(parse_properties(b"a=b\nc=\\u12x4"), Err(ConfigError::UnicodeEscape { line: 2 }));
        assert_eq!(parse_properties(b"c=\\u12"), Err(ConfigError::UnicodeEscape { line: 1 }));
    }

    #[test]
    fn bytes_are_latin_1() {
        let read = parse_properties(b"a=\xe4").unwrap();
        assert_eq!(read["a"], "ä");
    }

    #[test]
    fn overrides_keep_later_equal_signs() {
        assert_eq!(parse_override("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_override("a="), Err(ConfigError::OverrideWithoutValue { name: "a".to_owned() }));
        assert!(parse_override("a").is_err());
    }

    /// Writes as `Properties.store` does.
    fn escape(text: &str) -> String {
        let mut escaped = String::new();
        for unit in text.encode_utf16() {
            match char::from_u32(unit.into()) {
                Some(c) if c.is_ascii_alphanumeric() => escaped.push(c),
                Some(c @ ('\\' | ' ' | '=' | ':' | '#' | '!')) => escaped.extend(['\\', c]),
                _ => escaped.push_str(&format!("\\u{unit:04X}")),
            }
        }
        escaped
    }

    /// Short, of the characters that mean something here, and any others.
    fn text() -> impl Strategy<Value = String> {
        let character = prop_oneof![
            prop::sample::select(&b"\\ =:#!\t\n\r\x0cut"[..]).prop_map(char::from),
            any::<char>()
        ];
        prop::collection::vec(character, 0..12).prop_map(|characters| characters.into_iter().collect())
    }

    proptest! {
        #[test]
        fn what_java_would_store_is_read_back(
            properties in prop::collection::btree_map(text(), text(), 0..5)
        ) {
            let text: String =
                properties.iter().map(|(key, value)| format!("{}={}\n", escape(key), escape(value))).collect();
            prop_assert_eq!(parse_properties(text.as_bytes()), Ok(properties));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = parse_properties(&bytes);
        }
    }
}
