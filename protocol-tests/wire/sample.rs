//! Frames made from the schemas alone, without the generated code.

use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use fastrand::Rng;

use schema::{Field, FieldKind, Message, Scalar, Struct};

#[allow(dead_code)]
#[path = "../../wire/codegen/schema.rs"]
mod schema;

/// The schema of every message.
pub fn schemas() -> Vec<Message> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/schemas");
    let mut paths: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "schema"));
    paths.sort();
    paths.iter().map(|path| schema::parse(&std::fs::read_to_string(path).unwrap()).unwrap()).collect()
}

/// A frame with values by chance, written the one way an encoder would: tagged fields only where their value
/// is not the default.
pub fn frame(message: &Message, version: i16, rng: &mut Rng) -> Bytes {
    let mut sample = Sample { message, version, flexible: message.is_flexible(version), rng };
    let mut out = BytesMut::new();
    sample.write_struct(&message.structs[0], &mut out);
    out.freeze()
}

#[test]
fn frames_made_from_the_schemas_come_back() {
    let entries = crate::catalog::by_name();
    let mut rng = Rng::with_seed(2);
    for schema in schemas() {
        let again = entries[schema.name.as_str()].again;
        for version in schema.versions.first..=schema.versions.last {
            for _ in 0..20 {
                let frame = frame(&schema, version, &mut rng);
                assert_eq!(again(&frame, version).as_ref(), Ok(&frame), "{} v{version}", schema.name);
            }
        }
    }
}

struct Sample<'a> {
    message: &'a Message,
    version: i16,
    flexible: bool,
    rng: &'a mut Rng,
}

impl Sample<'_> {
    fn write_struct(&mut self, target: &Struct, out: &mut BytesMut) {
        for field in &target.fields {
            if field.versions.contains(self.version) && self.tag_of(field).is_none() {
                self.write_field(field, out);
            }
        }
        if self.flexible {
            self.write_tags(target, out);
        }
    }

    fn tag_of(&self, field: &Field) -> Option<u32> {
        field.tag.filter(|(_, versions)| versions.contains(self.version)).map(|(tag, _)| tag)
    }

    fn write_tags(&mut self, target: &Struct, out: &mut BytesMut) {
        let mut fields: Vec<(u32, &Field)> =
            target.fields.iter().filter_map(|field| Some((self.tag_of(field)?, field))).collect();
        fields.sort_by_key(|(tag, _)| *tag);
        fields.retain(|_| self.rng.bool());
        uvarint(out, fields.len() as u32);
        for (tag, field) in fields {
            let mut value = BytesMut::new();
            self.write_value(field, &mut value, true);
            uvarint(out, tag);
            uvarint(out, value.len() as u32);
            out.put(value);
        }
    }

    fn write_field(&mut self, field: &Field, out: &mut BytesMut) {
        let nullable = field.nullable.is_some_and(|versions| versions.contains(self.version));
        let is_null = nullable && self.rng.u8(..4) == 0;
        match field.kind {
            FieldKind::Struct(_) if is_null => return out.put_i8(-1),
            FieldKind::Struct(_) if nullable => out.put_i8(1),
            FieldKind::String if is_null && !self.flexible => return out.put_i16(-1),
            _ if is_null && self.flexible => return uvarint(out, 0),
            _ if is_null => return out.put_i32(-1),
            _ => {}
        }
        self.write_value(field, out, false);
    }

    /// A value that is not null, and for a tagged field not the default.
    fn write_value(&mut self, field: &Field, out: &mut BytesMut, tagged: bool) {
        let min = usize::from(tagged);
        match &field.kind {
            FieldKind::Scalar(Scalar::Bool) if tagged => {
                out.put_u8(u8::from(field.default.as_deref() != Some("true")));
            }
            FieldKind::Scalar(scalar) => self.write_scalar(*scalar, out),
            FieldKind::Struct(name) => {
                if tagged && field.nullable.is_some() {
                    out.put_u8(1);
                }
                self.write_struct(self.message.find(name), out);
            }
            FieldKind::String => self.write_string(out, min),
            FieldKind::Bytes | FieldKind::Records => {
                let length = self.length(min);
                self.write_count(length, out);
                (0..length).for_each(|_| out.put_u8(self.rng.u8(..)));
            }
            FieldKind::Scalars(_) | FieldKind::Strings | FieldKind::Structs(_) => {
                let count = self.rng.usize(min..4);
                self.write_count(count, out);
                (0..count).for_each(|_| self.write_element(&field.kind, out));
            }
        }
    }

    fn write_element(&mut self, kind: &FieldKind, out: &mut BytesMut) {
        match kind {
            FieldKind::Scalars(scalar) => self.write_scalar(*scalar, out),
            FieldKind::Strings => self.write_string(out, 0),
            FieldKind::Structs(name) => self.write_struct(self.message.find(name), out),
            other => panic!("{other:?} is no array"),
        }
    }

    fn write_scalar(&mut self, scalar: Scalar, out: &mut BytesMut) {
        match scalar {
            Scalar::Bool => out.put_u8(u8::from(self.rng.bool())),
            // Beyond what a default is: those are small, or the largest.
            Scalar::I8 => out.put_i8(self.rng.i8(20..100)),
            Scalar::I16 => out.put_i16(self.rng.i16(1000..i16::MAX)),
            Scalar::U16 => out.put_u16(self.rng.u16(1000..u16::MAX)),
            Scalar::I32 => out.put_i32(self.rng.i32(100_000..i32::MAX)),
            Scalar::U32 => out.put_u32(self.rng.u32(100_000..u32::MAX)),
            Scalar::I64 => out.put_i64(self.rng.i64(i64::MIN..0)),
            Scalar::F64 => out.put_f64(self.rng.f64() + 1.0),
            Scalar::Uuid => out.put_u128(self.rng.u128(1..)),
        }
    }

    fn write_string(&mut self, out: &mut BytesMut, min: usize) {
        let length = self.length(min);
        let text: String = (0..length).map(|_| self.rng.alphabetic()).collect();
        if self.flexible {
            uvarint(out, text.len() as u32 + 1);
        } else {
            out.put_i16(text.len() as i16);
        }
        out.put(text.as_bytes());
    }

    fn write_count(&mut self, count: usize, out: &mut BytesMut) {
        if self.flexible {
            uvarint(out, count as u32 + 1);
        } else {
            out.put_i32(count as i32);
        }
    }

    /// Mostly short; sometimes its varint has two bytes.
    fn length(&mut self, min: usize) -> usize {
        if self.rng.u8(..16) == 0 { self.rng.usize(120..300) } else { self.rng.usize(min..12) }
    }
}

fn uvarint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}
