//! The schema files: what they can say, and reading them.

use std::collections::BTreeMap;

/// Versions from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    pub first: i16,
    pub last: i16,
}

impl Versions {
    pub fn contains(&self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }

    pub fn hull(&self, other: Versions) -> Versions {
        Versions { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// What both contain, if they meet.
    pub fn meet(&self, other: Versions) -> Option<Versions> {
        let meet = Versions { first: self.first.max(other.first), last: self.last.min(other.last) };
        (meet.first <= meet.last).then_some(meet)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    Key,
    Value,
    Data,
    /// A record of KRaft's metadata, or a control record of its log.
    Metadata,
    Control,
}

#[derive(Debug)]
pub struct Message {
    pub kind: Kind,
    pub name: String,
    /// API key, or the type of a record; -1 = none.
    pub id: i16,
    pub versions: Versions,
    /// The first flexible version.
    pub flexible: Option<i16>,
    /// The message itself first.
    pub structs: Vec<Struct>,
}

impl Message {
    pub fn is_flexible(&self, version: i16) -> bool {
        self.flexible.is_some_and(|first| version >= first)
    }

    pub fn find(&self, name: &str) -> &Struct {
        self.structs.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no struct {name}"))
    }
}

#[derive(Debug)]
pub struct Struct {
    pub name: String,
    /// From the first to the last version in which the message can hold it.
    pub versions: Versions,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub kind: FieldKind,
    pub versions: Versions,
    pub nullable: Option<Versions>,
    pub tag: Option<(u32, Versions)>,
    pub default: Option<String>,
    pub ignorable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    Bool,
    I8,
    I16,
    U16,
    I32,
    U32,
    I64,
    F64,
    Uuid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldKind {
    Scalar(Scalar),
    String,
    Bytes,
    Records,
    Struct(String),
    Scalars(Scalar),
    Strings,
    Structs(String),
}

/// Reads one schema file.
///
/// The first line names the message; fields follow, indented by two spaces, the fields of a nested struct
/// by two more; `struct NAME` begins one that several fields share.
pub fn parse(text: &str) -> Result<Message, String> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty()).peekable();
    let mut message = parse_head(lines.next().ok_or("empty")?)?;
    let mut open: Vec<Struct> = vec![new_struct(&message.name, message.versions)];
    for line in lines {
        let depth = (line.len() - line.trim_start().len()) / 2;
        close(&mut open, &mut message.structs, depth.max(1));
        if let Some(name) = line.strip_prefix("struct ") {
            close(&mut open, &mut message.structs, 0);
            open.push(new_struct(name, message.versions));
            continue;
        }
        if depth > open.len() {
            let parent = open.last().and_then(|s| s.fields.last()).ok_or("a field without a parent")?;
            let (FieldKind::Struct(name) | FieldKind::Structs(name)) = &parent.kind else {
                return Err(format!("{} has no fields", parent.name));
            };
            let nested = new_struct(name, parent.versions);
            open.push(nested);
        }
        let field = parse_field(line, message.versions).map_err(|error| format!("{line}: {error}"))?;
        open.last_mut().ok_or("a field outside a struct")?.fields.push(field);
    }
    close(&mut open, &mut message.structs, 0);
    let top = message.structs.iter().position(|s| s.name == message.name).ok_or("no message")?;
    message.structs.swap(0, top);
    narrow(&mut message)?;
    Ok(message)
}

fn new_struct(name: &str, versions: Versions) -> Struct {
    Struct { name: name.to_owned(), versions, fields: Vec::new() }
}

fn close(open: &mut Vec<Struct>, done: &mut Vec<Struct>, depth: usize) {
    while open.len() > depth {
        done.extend(open.pop());
    }
}

fn parse_head(line: &str) -> Result<Message, String> {
    let mut words = line.split_whitespace();
    let kind = match words.next() {
        Some("request") => Kind::Request,
        Some("response") => Kind::Response,
        Some("key") => Kind::Key,
        Some("value") => Kind::Value,
        Some("data") => Kind::Data,
        Some("metadata") => Kind::Metadata,
        Some("control") => Kind::Control,
        other => return Err(format!("unknown kind {other:?}")),
    };
    let name = words.next().ok_or("no name")?.to_owned();
    let attributes: BTreeMap<_, _> = words.filter_map(|word| word.split_once('=')).collect();
    let number = |text: &str| text.trim_end_matches('+').parse::<i16>().map_err(|e| format!("{text}: {e}"));
    Ok(Message {
        kind,
        name,
        id: attributes.get("id").map_or(Ok(-1), |text| number(text))?,
        versions: parse_versions(attributes.get("versions").ok_or("no versions")?, i16::MAX)?,
        flexible: attributes.get("flexible").map(|text| number(text)).transpose()?,
        structs: Vec::new(),
    })
}

/// `3+`, `0-2` or `4`.
fn parse_versions(text: &str, newest: i16) -> Result<Versions, String> {
    let number = |text: &str| text.parse::<i16>().map_err(|error| format!("{text}: {error}"));
    if let Some(first) = text.strip_suffix('+') {
        return Ok(Versions { first: number(first)?, last: newest });
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok(Versions { first: number(first)?, last: number(last)? })
}

fn parse_field(line: &str, message: Versions) -> Result<Field, String> {
    let mut words = line.split_whitespace();
    let name = words.next().ok_or("no name")?.to_owned();
    let kind = parse_kind(words.next().ok_or("no type")?)?;
    let versions = parse_versions(words.next().ok_or("no versions")?, message.last)?;
    let mut field =
        Field { name, kind, versions, nullable: None, tag: None, default: None, ignorable: false };
    for word in words {
        match word.split_once('=') {
            None if word == "ignorable" => field.ignorable = true,
            Some(("nullable", text)) => field.nullable = Some(parse_versions(text, message.last)?),
            Some(("default", text)) => field.default = Some(text.to_owned()),
            Some(("tag", text)) => {
                let (tag, versions) = text.split_once('@').ok_or("no versions of the tag")?;
                let tag = tag.parse().map_err(|error| format!("{tag}: {error}"))?;
                field.tag = Some((tag, parse_versions(versions, message.last)?));
            }
            _ => return Err(format!("unknown attribute {word}")),
        }
    }
    Ok(field)
}

fn parse_kind(text: &str) -> Result<FieldKind, String> {
    let (array, element) = text.strip_prefix("[]").map_or((false, text), |element| (true, element));
    let scalar = match element {
        "bool" => Scalar::Bool,
        "int8" => Scalar::I8,
        "int16" => Scalar::I16,
        "uint16" => Scalar::U16,
        "int32" => Scalar::I32,
        "uint32" => Scalar::U32,
        "int64" => Scalar::I64,
        "float64" => Scalar::F64,
        "uuid" => Scalar::Uuid,
        "string" => return Ok(if array { FieldKind::Strings } else { FieldKind::String }),
        "bytes" if !array => return Ok(FieldKind::Bytes),
        "records" if !array => return Ok(FieldKind::Records),
        name if name.starts_with(char::is_uppercase) => {
            let name = name.to_owned();
            return Ok(if array { FieldKind::Structs(name) } else { FieldKind::Struct(name) });
        }
        other => return Err(format!("unknown type {other}")),
    };
    Ok(if array { FieldKind::Scalars(scalar) } else { FieldKind::Scalar(scalar) })
}

/// Gives each struct the versions in which some field can hold it, so that no code is made for others.
fn narrow(message: &mut Message) -> Result<(), String> {
    let mut reach = BTreeMap::from([(message.name.clone(), message.versions)]);
    // A struct is met after the one that holds it at most once per level of nesting.
    for _ in 0..message.structs.len() {
        for parent in &message.structs {
            let Some(&within) = reach.get(&parent.name) else { continue };
            for field in &parent.fields {
                let (FieldKind::Struct(name) | FieldKind::Structs(name)) = &field.kind else { continue };
                let Some(held) = field.versions.meet(within) else { continue };
                let known = reach.entry(name.clone()).or_insert(held);
                *known = known.hull(held);
            }
        }
    }
    for target in &mut message.structs {
        let versions = reach.get(&target.name).ok_or_else(|| format!("{} is never used", target.name))?;
        target.versions = *versions;
    }
    Ok(())
}
