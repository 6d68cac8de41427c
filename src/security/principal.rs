use std::fmt;

/// An authenticated identity, `User:name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    kind: String,
    name: String,
}

impl Principal {
    pub fn new(kind: &str, name: &str) -> Principal {
        Principal { kind: kind.to_owned(), name: name.to_owned() }
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who connects to a listener without authentication.
    pub fn anonymous() -> Principal {
        Principal { kind: "User".to_owned(), name: "ANONYMOUS".to_owned() }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}
