//! Generates the messages from `schemas/` into `OUT_DIR`: one file each, and `messages.rs`, which names
//! them all.

use std::path::{Path, PathBuf};
use std::{env, fs};

#[path = "codegen/api_key.rs"]
mod api_key;
#[path = "codegen/emit.rs"]
mod emit;
#[path = "codegen/names.rs"]
mod names;
#[path = "codegen/schema.rs"]
mod schema;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=codegen");
    println!("cargo::rerun-if-changed=schemas");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let messages = read_schemas(Path::new("schemas"));
    for message in &messages {
        let file = out.join(format!("{}.rs", names::snake(&message.name)));
        fs::write(file, emit::message(message)).expect("OUT_DIR is writable");
    }
    fs::write(out.join("messages.rs"), emit::door(&messages)).expect("OUT_DIR is writable");
}

fn read_schemas(dir: &Path) -> Vec<schema::Message> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .expect("the schemas are there")
        .map(|entry| entry.expect("the schemas can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "schema"))
        .collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("a schema can be read");
        schema::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    paths.iter().map(read).collect()
}
