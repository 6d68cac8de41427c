//! `cases.toml` is complete and true: every case is in it, and every test that it names exists and says which case it
//! shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use protocol_tests::protocol_tests_dir;
use toml::{Table, Value};

/// The cases of the areas that one broker with plaintext listeners can show, by area.
const WANTED: &[(&str, &[&str])] = &[
    (
        "protocol",
        &[
            "C001",
            "C003",
            "C004",
            "C005",
            "C007",
            "C008",
            "C009",
            "C010",
            "C012",
            "C014",
            "C015",
            "C017",
            "C019",
            "redpanda#11358",
            "WarpStream",
        ],
    ),
    ("log", &["C020", "C021", "C024", "KAFKA-14991", "KAFKA-4893", "KAFKA-2337"]),
    ("recovery", &["C026", "C027", "C028", "C030", "KAFKA-7335"]),
    ("compaction", &["C031", "C032", "C033", "C036"]),
    (
        "groups",
        &["C037", "C039", "C040", "C041", "C044", "C045", "C046", "C048", "KAFKA-1841", "franz-go gap 1"],
    ),
    ("admin", &["C080", "C082", "C084", "C085", "KAFKA-7082", "KAFKA-8875", "KAFKA-16807", "KAFKA-1580"]),
    ("controller", &["C065", "C067"]),
    ("transactions", &["C050", "C052", "C054", "C055", "C056", "C057", "redpanda#11947", "KAFKA-5171"]),
    ("scale", &["C092", "C093", "KAFKA-6042", "KAFKA-6005"]),
    ("ops", &["C095", "C096", "KAFKA-4428"]),
    (
        "hostile",
        &[
            "R01", "R02", "R03", "R04", "R05", "R06", "R07", "R08", "R09", "R10", "R11", "R12", "R13", "R14",
            "R15", "R16", "R17", "R18", "R19", "R20",
        ],
    ),
];

fn listed() -> Vec<Table> {
    let text = fs::read_to_string(protocol_tests_dir().join("cases.toml")).expect("read cases.toml");
    let file: Table = text.parse().expect("cases.toml is TOML");
    let cases = file.get("case").and_then(Value::as_array).expect("cases.toml lists cases");
    cases.iter().map(|case| case.as_table().expect("a case is a table").clone()).collect()
}

fn text<'a>(case: &'a Table, key: &str) -> &'a str {
    case.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn tests(case: &Table) -> Vec<&str> {
    let tests = case.get("tests").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    tests.iter().map(|test| test.as_str().unwrap_or_default()).collect()
}

#[test]
fn every_case_is_listed_once_with_its_tests_or_a_reason() {
    let mut broken = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for case in listed() {
        let (id, area) = (text(&case, "id").to_owned(), text(&case, "area").to_owned());
        if tests(&case).is_empty() && text(&case, "not_yet").is_empty() {
            broken.push(format!("{id} has neither tests nor a reason"));
        }
        if seen.insert(id.clone(), area).is_some() {
            broken.push(format!("{id} is listed twice"));
        }
    }
    for (area, ids) in WANTED {
        for id in *ids {
            match seen.get(*id) {
                None => broken.push(format!("{id} is missing")),
                Some(found) if found != area => {
                    broken.push(format!("{id} belongs to {area}, not to {found}"))
                }
                Some(_) => {}
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_named_test_exists_and_names_its_case() {
    let root = protocol_tests_dir().parent().expect("the project's folder");
    let mut broken = BTreeSet::new();
    for case in listed() {
        for test in tests(&case) {
            if let Err(why) = check(root, text(&case, "id"), test) {
                broken.insert(why);
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.into_iter().collect::<Vec<_>>().join("\n"));
}

/// `FILE::TEST`, where the file or the script of that name mentions the case.
fn check(root: &Path, id: &str, test: &str) -> Result<(), String> {
    let (file, name) = test.split_once("::").ok_or_else(|| format!("{id}: {test} is not FILE::TEST"))?;
    let source = fs::read_to_string(root.join(file)).map_err(|error| format!("{id}: {file}: {error}"))?;
    let is_test = |line: &str| line.trim() == name || line.contains(&format!("fn {name}("));
    if !source.lines().any(is_test) {
        return Err(format!("{id}: {file} has no test {name}"));
    }
    let script = root.join(file).with_file_name(format!("testdata/{name}.txt"));
    let script = fs::read_to_string(script).unwrap_or_default();
    if !source.contains(id) && !script.contains(id) {
        return Err(format!("{test} does not say that it shows {id}"));
    }
    Ok(())
}
