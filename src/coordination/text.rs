//! A tree as text: one node a line, its fields apart by tabs, under a line that names them.
//!
//! Pure. Null data is `\N`; data that is text stands as it is, with `\`, tab, newline and carriage return escaped;
//! other data is `hex:…`. Columns that a reader does not know are passed over.

use bytes::Bytes;
use snafu::{OptionExt, Snafu, ensure};

use super::path;

/// One node of a tree in its text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextNode {
    pub path: String,
    pub is_ephemeral: bool,
    pub version: i32,
    /// `None` = null.
    pub data: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum TextError {
    #[snafu(display("the first line names no columns `path` and `data`"))]
    NoHeader,
    #[snafu(display("line {line}: {what}"))]
    MalformedLine { line: usize, what: &'static str },
}

const HEADER: &str = "path\tkind\tversion\tdata";
const NULL: &str = "\\N";
const HEX: &str = "hex:";

/// The text of a tree.
pub fn format_tree(nodes: &[TextNode]) -> String {
    let mut text = format!("{HEADER}\n");
    for node in nodes {
        let kind = if node.is_ephemeral { "ephemeral" } else { "persistent" };
        let data = format_data(node.data.as_deref());
        text.push_str(&format!("{}\t{kind}\t{}\t{data}\n", node.path, node.version));
    }
    text
}

/// The nodes of a text, in its order. A missing kind is persistent, a missing version 0.
pub fn parse_tree(text: &str) -> Result<Vec<TextNode>, TextError> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let (path_at, data_at) = (column("path").context(NoHeaderSnafu)?, column("data").context(NoHeaderSnafu)?);
    let (kind_at, version_at) = (column("kind"), column("version"));
    let mut nodes = Vec::new();
    for (row, line) in lines.zip(2usize..).filter(|(row, _)| !row.is_empty()) {
        let malformed = |what| MalformedLineSnafu { line, what };
        let fields: Vec<&str> = row.split('\t').collect();
        let field = |at: Option<usize>| at.and_then(|at| fields.get(at).copied());
        let node_path = field(Some(path_at)).unwrap_or_default();
        ensure!(path::validate(node_path).is_ok(), malformed("not a legal path"));
        let data = field(Some(data_at)).with_context(|| malformed("the data is missing"))?;
        let version = field(version_at).unwrap_or("0");
        nodes.push(TextNode {
            path: node_path.to_owned(),
            is_ephemeral: field(kind_at) == Some("ephemeral"),
            version: version.parse().ok().with_context(|| malformed("the version is no number"))?,
            data: parse_data(data).with_context(|| malformed("the data are malformed"))?,
        });
    }
    Ok(nodes)
}

/// One node's data, as [`format_tree`] shows it.
pub fn format_data(data: Option<&[u8]>) -> String {
    let Some(data) = data else { return NULL.to_owned() };
    let text = std::str::from_utf8(data).ok();
    let is_plain = |text: &&str| {
        !text.starts_with(HEX) && !text.chars().any(|c| c.is_control() && !"\t\n\r".contains(c))
    };
    match text.filter(is_plain) {
        Some(text) => {
            text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
        }
        None => data.iter().fold(HEX.to_owned(), |text, byte| text + &format!("{byte:02x}")),
    }
}

/// `None` = malformed, `Some(None)` = null.
fn parse_data(text: &str) -> Option<Option<Bytes>> {
    if text == NULL {
        return Some(None);
    }
    if let Some(digits) = text.strip_prefix(HEX) {
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        return rest.is_empty().then_some(bytes?).map(|bytes| Some(bytes.into()));
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            other => other,
        });
    }
    Some(Some(plain.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_data_comes_back() {
        let nodes: Vec<TextNode> = [
            None,
            Some(&b""[..]),
            Some(b"{\"a\":\"b\\\"\"}"),
            Some(b"\\N"),
            Some(b"hex:zz"),
            Some(b"a\tb\nc\rd"),
            Some(&[0xff, 0x00]),
            Some("\u{e9}".as_bytes()),
        ]
        .into_iter()
        .enumerate()
        .map(|(at, data)| TextNode {
            path: format!("/n{at}"),
            is_ephemeral: at % 2 == 0,
            version: at as i32,
            data: data.map(Bytes::copy_from_slice),
        })
        .collect();
        assert_eq!(parse_tree(&format_tree(&nodes)), Ok(nodes));
    }

    #[test]
    fn the_dump_of_kafkas_tree_is_read() {
        let text = include_str!("../../protocol-tests/peers/data/log-dirs-3.9.2.zk.txt");
        let nodes = parse_tree(text).unwrap();
        let node = |path: &str| nodes.iter().find(|node| node.path == path).unwrap();
        assert_eq!(
            node("/cluster/id").data.as_deref(),
            Some(&br#"{"version":"1","id":"VQCklX-2RYaiQCeEkPRGfw"}"#[..])
        );
        assert_eq!(node("/brokers").data, None);
        assert!(node("/brokers/ids/1").is_ephemeral && node("/brokers/ids/1").version == 1);
    }

    #[test]
    fn damage_is_named_by_its_line() {
        let error = |text: &str| parse_tree(text).unwrap_err().to_string();
        assert_eq!(error(""), "the first line names no columns `path` and `data`");
        assert_eq!(error("path\tdata\n/a\t\\N\nb\t\\N"), "line 3: not a legal path");
        assert_eq!(error("path\tdata\n/a"), "line 2: the data is missing");
        assert_eq!(error("path\tdata\n/a\thex:1"), "line 2: the data are malformed");
        assert_eq!(error("path\tversion\tdata\n/a\tx\t1"), "line 2: the version is no number");
    }
}
