//! Writes the Rust of a message.
//!
//! Each struct gets its type, `Default`, one `read` and one `write`; all the work is in the calls to
//! `Reader` and `Writer`, which are not generic but for the element of an array. A condition on the
//! version stands only where a field does not exist in all versions of its struct.

use std::fmt::Write;

use crate::api_key::api_keys;
use crate::names::{camel, snake};
use crate::schema::{Field, FieldKind, Kind, Message, Scalar, Struct, Versions};

/// Collects lines.
#[derive(Default)]
struct Out(String);

impl Out {
    fn line(&mut self, line: impl AsRef<str>) {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }
}

/// The file that names all messages: modules, re-exports, the list of APIs, and a list for tests.
pub fn door(messages: &[Message]) -> String {
    let mut out = Out(api_keys(messages));
    for message in messages {
        let (name, module) = (&message.name, snake(&message.name));
        let Versions { first, last } = message.versions;
        out.line(format!("/// {name}, versions {first} to {last}."));
        out.line("#[allow(clippy::all)]");
        out.line(format!("pub mod {module} {{ include!(concat!(env!(\"OUT_DIR\"), \"/{module}.rs\")); }}"));
        out.line(format!("pub use {module}::{name};"));
    }
    out.line(
        "/// Reads a record of KRaft's metadata by its type, and shows it with its name; `None` = unknown.",
    );
    show_by_type(&mut out, "show_metadata_record", messages, Kind::Metadata);
    out.line("/// Reads a control record of KRaft's log by its type, and shows it with its name; `None` = unknown.");
    show_by_type(&mut out, "show_control_record", messages, Kind::Control);
    out.line("/// Calls the macro `$with` with a list of all messages, as `kind Name;`, kind being one of `request`, `response`,");
    out.line("/// `key`, `value`, `data`, `metadata` and `control`.");
    out.line("#[macro_export]");
    out.line("macro_rules! for_every_message { ($with:ident) => { $with! {");
    for message in messages {
        let kind = format!("{:?}", message.kind).to_lowercase();
        out.line(format!("    {kind} {};", message.name));
    }
    out.line("} } }");
    out.0
}

fn show_by_type(out: &mut Out, function: &str, messages: &[Message], kind: Kind) {
    out.line(format!("pub fn {function}(record_type: u32, version: i16, r: &mut Reader)"));
    out.line("-> Result<Option<(&'static str, Shown)>, DecodeError> {");
    out.line("Ok(Some(match record_type {");
    for Message { name, id, .. } in messages.iter().filter(|message| message.kind == kind) {
        out.line(format!("{id} => (\"{name}\", {name}::decode(r, version)?.show(version)),"));
    }
    out.line("_ => return Ok(None),");
    out.line("})) }");
}

/// One message's file.
pub fn message(message: &Message) -> String {
    let mut out = Out::default();
    for target in &message.structs {
        let is_top = target.name == message.name;
        declare(&mut out, target);
        implement_default(&mut out, target);
        out.line(if is_top {
            format!("impl crate::Message for {} {{", target.name)
        } else {
            format!("impl Struct for {} {{", target.name)
        });
        constants(&mut out, message, target, is_top);
        read(&mut out, message, target, is_top);
        write(&mut out, message, target, is_top);
        out.line("}");
    }
    implement_kind(&mut out, message);
    if matches!(message.kind, Kind::Key | Kind::Value | Kind::Metadata | Kind::Control) {
        message.structs.iter().for_each(|target| implement_show(&mut out, target));
    }
    format!("{}{}", imports(&out.0), out.0)
}

/// The imports that a body needs.
fn imports(body: &str) -> String {
    let mut imports = String::from("use crate::{DecodeError, EncodeError, Reader, Writer};\n");
    for (path, word) in [
        ("bytes::Bytes", "Bytes"),
        ("crate::Records", "Records"),
        ("crate::Str", "Str"),
        ("crate::Uuid", "Uuid"),
        ("crate::Struct", "Struct"),
        ("crate::reader::nullable", "nullable("),
        ("crate::reader::required", "required("),
        ("crate::writer::ignore", "ignore("),
        ("crate::writer::not_null", "not_null("),
    ] {
        let is_word = |at: usize| !body[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let ends = |at: usize| {
            word.ends_with('(')
                || !body[at + word.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        };
        if body.match_indices(word).any(|(at, _)| is_word(at) && ends(at)) {
            let _ = writeln!(imports, "use {path};");
        }
    }
    imports
}

fn implement_kind(out: &mut Out, message: &Message) {
    let (name, id) = (&message.name, message.id);
    match message.kind {
        Kind::Request => {
            let api = name.trim_end_matches("Request");
            out.line(format!("impl crate::Request for {name} {{"));
            out.line(format!("const KEY: crate::ApiKey = crate::ApiKey::{api};"));
            out.line(format!("type Response = crate::{api}Response;"));
            out.line("}");
        }
        Kind::Key => {
            out.line(format!("impl crate::RecordKey for {name} {{ const RECORD_TYPE: i16 = {id}; }}"))
        }
        Kind::Value => {
            out.line(format!("impl crate::RecordValue for {name} {{ const RECORD_TYPE: i16 = {id}; }}"))
        }
        Kind::Response | Kind::Data | Kind::Metadata | Kind::Control => {}
    }
}

// Types and defaults.

fn scalar_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::I8 => "i8",
        Scalar::I16 => "i16",
        Scalar::U16 => "u16",
        Scalar::I32 => "i32",
        Scalar::U32 => "u32",
        Scalar::I64 => "i64",
        Scalar::F64 => "f64",
        Scalar::Uuid => "Uuid",
    }
}

fn is_optional(field: &Field) -> bool {
    field.nullable.is_some() || field.kind == FieldKind::Records
}

fn field_type(field: &Field) -> String {
    let plain = match &field.kind {
        FieldKind::Scalar(scalar) => scalar_type(*scalar).to_owned(),
        FieldKind::String => "Str".to_owned(),
        FieldKind::Bytes => "Bytes".to_owned(),
        FieldKind::Records => "Records".to_owned(),
        FieldKind::Struct(name) => name.clone(),
        FieldKind::Scalars(scalar) => format!("Vec<{}>", scalar_type(*scalar)),
        FieldKind::Strings => "Vec<Str>".to_owned(),
        FieldKind::Structs(name) => format!("Vec<{name}>"),
    };
    if is_optional(field) { format!("Option<{plain}>") } else { plain }
}

fn show(versions: Versions) -> String {
    match versions {
        Versions { first, last } if first == last => first.to_string(),
        Versions { first, last } => format!("{first}-{last}"),
    }
}

fn declare(out: &mut Out, target: &Struct) {
    out.line(format!("/// Versions {}.", show(target.versions)));
    out.line("#[derive(Clone, Debug, PartialEq)]");
    out.line(format!("pub struct {} {{", target.name));
    for field in &target.fields {
        let mut doc = format!("{}, versions {}", field.name, show(field.versions));
        if let Some(nullable) = field.nullable {
            let _ = write!(doc, ", null in {}", show(nullable));
        }
        if let Some((tag, versions)) = field.tag {
            let _ = write!(doc, ", tag {tag} in {}", show(versions));
        }
        out.line(format!("/// {doc}."));
        out.line(format!("pub {}: {},", snake(&field.name), field_type(field)));
    }
    out.line("}");
}

/// True if the field is null by default: where the schema says so, and for record data.
fn is_null_by_default(field: &Field) -> bool {
    field.default.as_deref() == Some("null") || field.kind == FieldKind::Records
}

fn default_value(field: &Field) -> String {
    if is_null_by_default(field) {
        return "None".to_owned();
    }
    let plain = match (&field.kind, field.default.as_deref()) {
        (FieldKind::Scalar(Scalar::Bool), default) => default.unwrap_or("false").to_owned(),
        (FieldKind::Scalar(Scalar::F64), default) => format!("{}_f64", default.unwrap_or("0")),
        (FieldKind::Scalar(Scalar::Uuid), None) => "Uuid::ZERO".to_owned(),
        (FieldKind::Scalar(_), default) => default.unwrap_or("0").to_owned(),
        (FieldKind::String, None) => "Str::EMPTY".to_owned(),
        (FieldKind::Bytes, None) => "Bytes::new()".to_owned(),
        (FieldKind::Struct(name), None) => format!("{name}::default()"),
        (FieldKind::Scalars(_) | FieldKind::Strings | FieldKind::Structs(_), None) => "Vec::new()".to_owned(),
        (kind, default) => panic!("{}: {kind:?} cannot be {default:?} by default", field.name),
    };
    if is_optional(field) { format!("Some({plain})") } else { plain }
}

fn implement_default(out: &mut Out, target: &Struct) {
    out.line(format!("impl Default for {} {{ fn default() -> Self {{ Self {{", target.name));
    for field in &target.fields {
        out.line(format!("{}: {},", snake(&field.name), default_value(field)));
    }
    out.line("} } }");
}

/// A condition that holds if `self.field` has its default value.
fn is_default(field: &Field) -> String {
    let value = format!("self.{}", snake(&field.name));
    if is_null_by_default(field) {
        return format!("{value}.is_none()");
    }
    match &field.kind {
        FieldKind::Scalar(Scalar::Bool) if field.default.as_deref() == Some("true") => value,
        FieldKind::Scalar(Scalar::Bool) => format!("!{value}"),
        FieldKind::Scalar(_) => format!("{value} == {}", default_value(field)),
        FieldKind::Struct(_) => format!("{value} == {}", default_value(field)),
        _ if is_optional(field) => format!("{value}.as_ref().is_some_and(|value| value.is_empty())"),
        _ => format!("{value}.is_empty()"),
    }
}

/// What Kafka's tools print of a record: the fields that its version has, tagged ones if they say something.
fn implement_show(out: &mut Out, target: &Struct) {
    out.line(format!("impl crate::Show for {} {{", target.name));
    out.line("#[allow(unused_variables, unused_mut)]");
    out.line("fn show(&self, version: i16) -> crate::Shown {");
    out.line("let mut fields = Vec::new();");
    for field in &target.fields {
        let (placed, tagged) = placed_and_tagged(field, target.versions);
        let says_something = format!("!({})", is_default(field));
        let shown = format!(
            "fields.push((\"{}\", crate::Show::show(&self.{}, version)));",
            camel(&field.name),
            snake(&field.name)
        );
        if let Some(placed) = placed {
            let condition = condition(placed, target.versions).unwrap_or_else(|| "true".to_owned());
            out.line(format!("if {condition} {{ {shown} }}"));
        }
        if let Some(tagged) = tagged {
            let condition = condition(tagged, target.versions).unwrap_or_else(|| "true".to_owned());
            out.line(format!("if {condition} && {says_something} {{ {shown} }}"));
        }
    }
    out.line("crate::Shown::Fields(fields)");
    out.line("} }");
}

// Sizes.

fn constants(out: &mut Out, message: &Message, target: &Struct, is_top: bool) {
    if is_top {
        out.line(format!("const NAME: &'static str = \"{}\";", message.name));
        out.line(format!("const MIN_VERSION: i16 = {};", message.versions.first));
        out.line(format!("const MAX_VERSION: i16 = {};", message.versions.last));
    } else {
        let min = (target.versions.first..=target.versions.last)
            .map(|version| size_min(message, target, version))
            .min()
            .unwrap_or(0);
        // An array of elements that take no bytes could claim any count.
        assert!(min > 0, "{}: {} can be empty", message.name, target.name);
        out.line(format!("const SIZE_BYTES_MIN: usize = {min};"));
    }
}

/// The fewest bytes that a struct takes in a version.
fn size_min(message: &Message, target: &Struct, version: i16) -> usize {
    let flexible = message.is_flexible(version);
    let of_field = |field: &Field| match &field.kind {
        _ if !field.versions.contains(version) => 0,
        _ if field.tag.is_some_and(|(_, versions)| versions.contains(version)) => 0,
        FieldKind::Struct(_) if field.nullable.is_some_and(|n| n.contains(version)) => 1,
        FieldKind::Struct(name) => size_min(message, message.find(name), version),
        FieldKind::Scalar(Scalar::Bool | Scalar::I8) => 1,
        FieldKind::Scalar(Scalar::I16 | Scalar::U16) => 2,
        FieldKind::Scalar(Scalar::I32 | Scalar::U32) => 4,
        FieldKind::Scalar(Scalar::I64 | Scalar::F64) => 8,
        FieldKind::Scalar(Scalar::Uuid) => 16,
        _ if flexible => 1,
        FieldKind::String => 2,
        _ => 4,
    };
    target.fields.iter().map(of_field).sum::<usize>() + usize::from(flexible)
}

// Conditions on the version. `within` is what is known already.

/// A condition that holds in `versions`; `None` if it always does.
fn condition(versions: Versions, within: Versions) -> Option<String> {
    match (versions.first > within.first, versions.last < within.last) {
        (false, false) => None,
        (true, false) => Some(format!("version >= {}", versions.first)),
        (false, true) => Some(format!("version <= {}", versions.last)),
        (true, true) if versions.first == versions.last => Some(format!("version == {}", versions.first)),
        (true, true) => Some(format!("({}..={}).contains(&version)", versions.first, versions.last)),
    }
}

/// An expression for whether the version is flexible.
fn flexible(message: &Message, within: Versions) -> String {
    match message.flexible {
        None => "false".to_owned(),
        Some(first) if first > within.last => "false".to_owned(),
        Some(first) if first <= within.first => "true".to_owned(),
        Some(_) => "flexible".to_owned(),
    }
}

/// The versions in which a field stands in its place, and those in which it is tagged.
fn placed_and_tagged(field: &Field, within: Versions) -> (Option<Versions>, Option<Versions>) {
    let Some(present) = field.versions.meet(within) else { return (None, None) };
    let Some((_, tagged)) = field.tag else { return (Some(present), None) };
    let tagged = tagged.meet(present);
    let placed = match tagged {
        Some(tagged) if tagged == present => None,
        Some(tagged) => {
            assert!(tagged.last == present.last, "{}: first tagged, then not", field.name);
            Some(Versions { first: present.first, last: tagged.first - 1 })
        }
        None => Some(present),
    };
    (placed, tagged)
}

fn flexible_binding(out: &mut Out, message: &Message, target: &Struct) {
    if flexible(message, target.versions) == "flexible" {
        out.line(format!("let flexible = version >= {};", message.flexible.unwrap_or(0)));
    }
}

fn tagged_fields(target: &Struct) -> Vec<&Field> {
    let mut tagged: Vec<&Field> =
        target.fields.iter().filter(|f| placed_and_tagged(f, target.versions).1.is_some()).collect();
    tagged.sort_by_key(|field| field.tag.map(|(tag, _)| tag));
    tagged
}

/// The versions of a struct that are flexible.
fn flexible_versions(message: &Message, target: &Struct) -> Option<Versions> {
    Versions { first: message.flexible?, last: message.versions.last }.meet(target.versions)
}

// Reading.

fn read(out: &mut Out, message: &Message, target: &Struct, is_top: bool) {
    let function = if is_top { "decode" } else { "read" };
    let version = if uses_version(message, target, is_top) { "version" } else { "_version" };
    out.line(format!("fn {function}(r: &mut Reader, {version}: i16) -> Result<Self, DecodeError> {{"));
    if is_top {
        check_version(out, "DecodeError");
    }
    flexible_binding(out, message, target);
    let is_bare = target.fields.is_empty();
    out.line(if is_bare { "let m = Self::default();" } else { "let mut m = Self::default();" });
    for field in &target.fields {
        let (Some(placed), _) = placed_and_tagged(field, target.versions) else { continue };
        let value = read_value(message, field, placed, false);
        let assign = format!("m.{} = {value};", snake(&field.name));
        match condition(placed, target.versions) {
            None => out.line(assign),
            Some(condition) => out.line(format!("if {condition} {{ {assign} }}")),
        }
    }
    if let Some(versions) = flexible_versions(message, target) {
        let section = read_tags(message, target);
        match condition(versions, target.versions) {
            None => out.line(section),
            Some(_) => out.line(format!("if flexible {{ {section} }}")),
        }
    }
    out.line("Ok(m)");
    out.line("}");
}

fn check_version(out: &mut Out, error: &str) {
    out.line("if !(Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version) {");
    out.line(format!("return Err({error}::UnsupportedVersion {{ message: Self::NAME, version }});"));
    out.line("}");
}

/// True if code for a struct looks at the version or hands it on.
fn uses_version(message: &Message, target: &Struct, is_top: bool) -> bool {
    is_top
        || flexible(message, target.versions) == "flexible"
        || target.fields.iter().any(|field| {
            matches!(field.kind, FieldKind::Struct(_) | FieldKind::Structs(_))
                || condition(field.versions, target.versions).is_some()
                || field.nullable.is_some_and(|n| condition(n, target.versions).is_some())
                || field.tag.is_some_and(|(_, tagged)| condition(tagged, target.versions).is_some())
        })
}

/// An expression that reads a field's value, in `within` the versions where it stands so.
fn read_value(message: &Message, field: &Field, within: Versions, is_tagged: bool) -> String {
    let flexible = flexible(message, within);
    let name = &field.name;
    if let FieldKind::Scalar(scalar) = &field.kind {
        return format!("r.{}()?", scalar_type(*scalar).to_lowercase());
    }
    if let FieldKind::Struct(struct_name) = &field.kind {
        let read = format!("{struct_name}::read(r, version)?");
        let Some(nullable) = field.nullable else { return read };
        let sign = if is_tagged { "r.tagged_present()?" } else { "r.present()?" };
        let always = condition(nullable, within).map_or(String::new(), |c| format!("!({c}) || "));
        return format!("if {always}{sign} {{ Some({read}) }} else {{ None }}");
    }
    let call = match &field.kind {
        FieldKind::String => format!("r.string({flexible})?"),
        FieldKind::Bytes => format!("r.bytes({flexible})?"),
        FieldKind::Records => format!("r.records({flexible})?"),
        FieldKind::Scalars(scalar) => format!("r.{}s({flexible})?", scalar_type(*scalar).to_lowercase()),
        FieldKind::Strings => format!("r.strings({flexible})?"),
        FieldKind::Structs(_) => format!("r.structs({flexible}, version)?"),
        FieldKind::Scalar(_) | FieldKind::Struct(_) => unreachable!("handled above"),
    };
    let null_in = field.nullable.and_then(|nullable| nullable.meet(within));
    match (is_optional(field), null_in.map(|nullable| condition(nullable, within))) {
        (false, _) => format!("required({call}, \"{name}\")?"),
        (true, None) => format!("nullable({call}, false, \"{name}\")?"),
        (true, Some(None)) => call,
        (true, Some(Some(condition))) => format!("nullable({call}, {condition}, \"{name}\")?"),
    }
}

fn read_tags(message: &Message, target: &Struct) -> String {
    let fields = tagged_fields(target);
    if fields.is_empty() {
        return "r.skip_tags()?;".to_owned();
    }
    let mut section =
        String::from("let mut tags = r.tags()?;\nwhile let Some(tag) = tags.next(r)? { match tag {\n");
    for field in fields {
        let (Some((tag, _)), (_, Some(tagged))) = (field.tag, placed_and_tagged(field, target.versions))
        else {
            continue;
        };
        let value = read_value(message, field, tagged, true);
        let guard = flexible_versions(message, target)
            .and_then(|within| condition(tagged, within))
            .map_or(String::new(), |condition| format!(" if {condition}"));
        let _ =
            writeln!(section, "{tag}{guard} => {{ m.{} = {value}; tags.close(r)?; }}", snake(&field.name));
    }
    section.push_str("_ => tags.skip(r)?,\n} }");
    section
}

// Writing.

fn write(out: &mut Out, message: &Message, target: &Struct, is_top: bool) {
    let function = if is_top { "encode" } else { "write" };
    let version = if uses_version(message, target, is_top) { "version" } else { "_version" };
    out.line(format!("fn {function}(&self, w: &mut Writer, {version}: i16) -> Result<(), EncodeError> {{"));
    if is_top {
        check_version(out, "EncodeError");
    }
    flexible_binding(out, message, target);
    for field in &target.fields {
        refuse_loss(out, field, target);
        let (Some(placed), _) = placed_and_tagged(field, target.versions) else { continue };
        let write = write_value(message, field, placed, false);
        match condition(placed, target.versions) {
            None => out.line(write),
            Some(condition) => out.line(format!("if {condition} {{ {write} }}")),
        }
    }
    if let Some(versions) = flexible_versions(message, target) {
        let section = write_tags(message, target, versions);
        match condition(versions, target.versions) {
            None => out.line(section),
            Some(_) => out.line(format!("if flexible {{ {section} }}")),
        }
    }
    out.line("Ok(())");
    out.line("}");
}

/// A value that a version lacks and that must not be ignored is an error, as in Kafka.
fn refuse_loss(out: &mut Out, field: &Field, target: &Struct) {
    if field.ignorable {
        return;
    }
    if let Some(condition) = condition(field.versions, target.versions) {
        let (name, is_default) = (&field.name, is_default(field));
        out.line(format!("if !({condition}) {{ ignore({is_default}, \"{name}\", version)?; }}"));
    }
}

fn write_value(message: &Message, field: &Field, within: Versions, is_tagged: bool) -> String {
    let flexible = flexible(message, within);
    let value = format!("self.{}", snake(&field.name));
    let optional = is_optional(field);
    let null_check = null_check(field, &value, within);
    // Arguments of the calls that take the value by reference, and those that take a slice or null.
    let (reference, slice) = if optional {
        (format!("{value}.as_ref()"), format!("{value}.as_deref()"))
    } else {
        (format!("&{value}"), format!("Some(&{value})"))
    };
    let prefix = if optional { "nullable_" } else { "" };
    let call = match &field.kind {
        FieldKind::Scalar(Scalar::I16) if field.name.ends_with("ErrorCode") => {
            format!("w.error_code({value});")
        }
        FieldKind::Scalar(scalar) => format!("w.{}({value});", scalar_type(*scalar).to_lowercase()),
        FieldKind::String => format!("w.{prefix}string({reference}, {flexible})?;"),
        FieldKind::Bytes => format!("w.{prefix}bytes({reference}, {flexible})?;"),
        FieldKind::Records => format!("w.records({value}.as_ref(), {flexible})?;"),
        FieldKind::Scalars(scalar) => {
            format!("w.{}s({slice}, {flexible})?;", scalar_type(*scalar).to_lowercase())
        }
        FieldKind::Strings => format!("w.strings({slice}, {flexible})?;"),
        FieldKind::Structs(_) => format!("w.structs({slice}, {flexible}, version)?;"),
        FieldKind::Struct(_) => write_struct(field, &value, within, is_tagged),
    };
    format!("{null_check}{call}")
}

fn null_check(field: &Field, value: &str, within: Versions) -> String {
    if !is_optional(field) {
        return String::new();
    }
    let name = &field.name;
    match field.nullable.and_then(|nullable| nullable.meet(within)).map(|n| condition(n, within)) {
        None => format!("not_null({value}.is_none(), \"{name}\")?; "),
        Some(None) => String::new(),
        Some(Some(condition)) => format!("not_null({value}.is_none() && !({condition}), \"{name}\")?; "),
    }
}

fn write_struct(field: &Field, value: &str, within: Versions, is_tagged: bool) -> String {
    let Some(nullable) = field.nullable else { return format!("{value}.write(w, version)?;") };
    let sign = |present: bool| {
        let write = match (is_tagged, present) {
            (true, _) => format!("w.uvarint({});", u8::from(present)),
            (false, true) => "w.i8(1);".to_owned(),
            (false, false) => "w.i8(-1);".to_owned(),
        };
        condition(nullable, within).map_or(write.clone(), |condition| format!("if {condition} {{ {write} }}"))
    };
    format!(
        "if let Some(value) = &{value} {{ {} value.write(w, version)?; }} else {{ {} }}",
        sign(true),
        sign(false)
    )
}

fn write_tags(message: &Message, target: &Struct, within: Versions) -> String {
    let fields = tagged_fields(target);
    if fields.is_empty() {
        return "w.uvarint(0);".to_owned();
    }
    let (mut flags, mut count, mut writes) = (String::new(), String::new(), String::new());
    for field in fields {
        assert!(field.kind != FieldKind::Records, "record data cannot be in a tagged field");
        let (Some((tag, _)), (_, Some(tagged))) = (field.tag, placed_and_tagged(field, target.versions))
        else {
            continue;
        };
        let set = format!("!({})", is_default(field));
        let set = match condition(tagged, within) {
            None => set,
            Some(condition) => format!("{condition} && {set}"),
        };
        let _ = writeln!(flags, "let tag_{tag} = {set};");
        let plus = if count.is_empty() { "" } else { " + " };
        let _ = write!(count, "{plus}u32::from(tag_{tag})");
        let value = write_value(message, field, tagged, true);
        let _ =
            writeln!(writes, "if tag_{tag} {{ let start = w.open_tag({tag}); {value} w.close_tag(start); }}");
    }
    format!("{flags}w.uvarint({count});\n{writes}")
}
