//! The paths of nodes: what is legal, and how they divide.

use snafu::ensure;

use super::store::{BadArgumentsSnafu, StoreError};

pub(super) const ROOT: &str = "/";

/// Refuses what ZooKeeper refuses: relative and empty paths, empty, `.` and `..` components, a trailing slash,
/// control characters, surrogates and what lies outside the basic plane.
pub(super) fn validate(path: &str) -> Result<(), StoreError> {
    ensure!(path == ROOT || is_legal(path), BadArgumentsSnafu { path });
    Ok(())
}

/// As [`validate`], for a path to which the store appends a number: its last component may be empty.
pub(super) fn validate_sequential(path: &str) -> Result<(), StoreError> {
    ensure!(path == ROOT || is_legal(&format!("{path}0")), BadArgumentsSnafu { path });
    Ok(())
}

fn is_legal(path: &str) -> bool {
    let Some(relative) = path.strip_prefix('/') else { return false };
    relative.split('/').all(|name| !matches!(name, "" | "." | "..") && name.chars().all(is_legal_character))
}

fn is_legal_character(character: char) -> bool {
    !matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The parent's path and the node's name; `None` for the root.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    let (parent, name) = path.rsplit_once('/')?;
    match (parent, name) {
        ("", "") => None,
        ("", name) => Some((ROOT, name)),
        parts => Some(parts),
    }
}

/// The names on the way from the root to the node.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_paths_are_accepted() {
        for path in ["/", "/a", "/a/b.c", "/config/users/<default>", "/a/..b", "/ä", "/a b"] {
            assert_eq!(validate(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn illegal_paths_are_refused() {
        for path in
            ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\0", "/\u{1}", "/\u{9f}", "/\u{1f600}"]
        {
            let refused = StoreError::BadArguments { path: path.to_owned() };
            assert_eq!(validate(path), Err(refused), "{path}");
        }
    }

    #[test]
    fn a_sequential_name_may_be_the_number_alone() {
        assert_eq!(validate_sequential("/a/"), Ok(()));
        assert_eq!(validate_sequential("/"), Ok(()));
        assert!(validate_sequential("/a//").is_err());
    }

    #[test]
    fn paths_divide_into_parent_and_name() {
        assert_eq!(split("/"), None);
        assert_eq!(split("/a"), Some(("/", "a")));
        assert_eq!(split("/a/b"), Some(("/a", "b")));
    }
}
