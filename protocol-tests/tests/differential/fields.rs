//! An answer as a list of fields: paths and values, with what differs from run to run taken out.

/// One field: `topics[0].partitions[1].error_code` and what it holds.
pub type Field = (String, String);

/// The fields of a message, read off its `{:#?}` text, so that no message needs code of its own here.
pub fn of(pretty: &str) -> Vec<Field> {
    let mut open: Vec<Level> = Vec::new();
    let mut fields = Vec::new();
    for line in pretty.lines() {
        let text = line.trim();
        let text = text.strip_suffix(',').unwrap_or(text);
        if matches!(text, "}" | "]" | ")") {
            open.pop();
            continue;
        }
        let (name, value) = split(text);
        let label = match (name, open.last_mut()) {
            (Some(name), _) => format!(".{name}"),
            (None, Some(level)) if level.is_array => {
                level.next += 1;
                format!("[{}]", level.next - 1)
            }
            (None, _) => String::new(),
        };
        if value.ends_with(['{', '[', '(']) && !value.starts_with(['"', 'b']) {
            open.push(Level { label, is_array: value == "[", next: 0 });
        } else {
            let path: String =
                open.iter().map(|level| level.label.as_str()).chain([label.as_str()]).collect();
            fields.push((path.trim_start_matches('.').to_owned(), value.to_owned()));
        }
    }
    fields.retain_mut(|(path, value)| normalise(path, value));
    fields
}

struct Level {
    label: String,
    is_array: bool,
    next: usize,
}

/// `name: value`, where the name is a field's; a string that holds a colon is a value.
fn split(text: &str) -> (Option<&str>, &str) {
    match text.split_once(": ") {
        Some((name, value))
            if name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') =>
        {
            (Some(name), value)
        }
        _ => (None, text),
    }
}

/// Takes out what no two servers or runs have in common. False when the field tells nothing.
fn normalise(path: &str, value: &mut String) -> bool {
    let name = path.rsplit('.').next().unwrap_or(path);
    let number: Option<i64> = value.parse().ok();
    let is_now = number.is_some_and(|number| number > 1_700_000_000_000);
    match name {
        "throttle_time_ms" => return false,
        "port" if number.is_some_and(|port| port > 0) => *value = "<port>".into(),
        "session_id" if number != Some(0) => *value = "<session>".into(),
        "producer_id" if number.is_some_and(|id| id >= 0) => *value = "<producer>".into(),
        "total_bytes" | "usable_bytes" if number.is_some_and(|bytes| bytes > 0) => *value = "<bytes>".into(),
        "topic_id" if *value != "AAAAAAAAAAAAAAAAAAAAAA" => *value = "<id>".into(),
        "cluster_id" if value.starts_with('"') => *value = "<cluster>".into(),
        "log_dir" => *value = "<dir>".into(),
        // The words are each server's own; that there are any is not.
        "error_message" | "batch_index_error_message" if *value != "None" => *value = "<message>".into(),
        "log_append_time_ms" | "timestamp" if is_now => *value = "<now>".into(),
        _ => hide_uuids(value),
    }
    true
}

/// Member ids end in a random id.
fn hide_uuids(value: &mut String) {
    const SHAPE: [usize; 5] = [8, 4, 4, 4, 12];
    let is_uuid = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        parts.len() == 5
            && parts
                .iter()
                .zip(SHAPE)
                .all(|(part, length)| part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let mut at = 0;
    while let Some(candidate) = value.get(at..).and_then(|rest| rest.get(..36)) {
        if is_uuid(candidate) {
            value.replace_range(at..at + 36, "<uuid>");
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "only printed")]
    struct Outer {
        names: Vec<&'static str>,
        inner: Option<Inner>,
        none: Option<i32>,
    }

    #[derive(Debug)]
    #[expect(dead_code, reason = "only printed")]
    struct Inner {
        port: i32,
        empty: Vec<i32>,
    }

    #[test]
    fn a_message_becomes_paths_and_values() {
        let names = vec!["a: {", "m-01234567-89ab-cdef-0123-456789abcdef"];
        let outer = Outer { names, inner: Some(Inner { port: 5, empty: vec![] }), none: None };
        let found = of(&format!("{outer:#?}"));
        let expected = [
            ("names[0]", "\"a: {\""),
            ("names[1]", "\"m-<uuid>\""),
            ("inner.port", "<port>"),
            ("inner.empty", "[]"),
            ("none", "None"),
        ];
        let expected: Vec<Field> =
            expected.iter().map(|(path, value)| ((*path).into(), (*value).into())).collect();
        assert_eq!(found, expected);
    }
}
