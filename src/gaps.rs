//! Compares `protocol-tests/gaps.toml` with what the tables say: nothing is silently missing, nothing is listed that
//! is done.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;

use crate::api::table;
use crate::config::{BROKER, Support, TOPIC};

fn read(below: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(below)).unwrap()
}

fn gaps() -> Value {
    let parsed: toml::Value = toml::from_str(&read("protocol-tests/gaps.toml")).unwrap();
    serde_json::to_value(parsed).unwrap()
}

/// The versions that real brokers advertise, by key: both releases together.
fn kafkas_versions() -> BTreeMap<i16, (String, BTreeSet<i16>)> {
    let mut versions: BTreeMap<i16, (String, BTreeSet<i16>)> = BTreeMap::new();
    for file in ["api-versions-3.9.2-zk.txt", "api-versions-4.3.1.txt"] {
        for line in read(&format!("protocol-tests/peers/data/{file}")).lines() {
            let columns: Vec<&str> = line.split('\t').collect();
            let [key, name, first, last] = columns[..] else { continue };
            let Ok(key) = key.parse::<i16>() else { continue };
            let entry = versions.entry(key).or_default();
            entry.0 = name.to_owned();
            entry.1.extend(first.parse::<i16>().unwrap()..=last.parse().unwrap());
        }
    }
    assert!(versions.len() > 60, "the lists of Kafka's versions are not where this test looks");
    versions
}

fn range(text: &str) -> RangeInclusive<i16> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    first.parse().unwrap()..=last.parse().unwrap()
}

#[test]
fn every_version_that_kafka_serves_is_served_or_listed() {
    let mut listed: BTreeMap<i16, BTreeSet<i16>> = BTreeMap::new();
    let gaps = gaps();
    for gap in gaps["api"].as_array().unwrap() {
        assert!(gap["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{gap}");
        let key = i16::try_from(gap["key"].as_i64().unwrap()).unwrap();
        listed.entry(key).or_default().extend(range(gap["versions"].as_str().unwrap()));
    }
    let mut wrong = Vec::new();
    for (key, (name, versions)) in kafkas_versions() {
        let served = |version: &i16| table::find(key).is_some_and(|api| api.accepts(*version));
        let is_listed = |version: &i16| listed.get(&key).is_some_and(|listed| listed.contains(version));
        let missing: Vec<_> = versions.iter().filter(|&v| !served(v) && !is_listed(v)).collect();
        let done: Vec<_> = versions.iter().filter(|&v| served(v) && is_listed(v)).collect();
        if !missing.is_empty() {
            wrong.push(format!("{key} {name}: versions {missing:?} are neither served nor listed"));
        }
        if !done.is_empty() {
            wrong.push(format!("{key} {name}: versions {done:?} are served and still listed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_setting_without_effect_is_listed() {
    let gaps = gaps();
    let listed: BTreeSet<&str> = gaps["setting"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|gap| gap["keys"].as_array().unwrap())
        .map(|key| key.as_str().unwrap())
        .collect();
    let without_effect: BTreeSet<&str> = BROKER
        .iter()
        .chain(TOPIC)
        .filter(|key| matches!(key.support, Support::NotYet(_)))
        .map(|key| key.name)
        .collect();
    let missing: Vec<_> = without_effect.difference(&listed).collect();
    let done: Vec<_> = listed.difference(&without_effect).collect();
    assert!(missing.is_empty() && done.is_empty(), "not listed: {missing:?}\nlisted but done: {done:?}");
}
