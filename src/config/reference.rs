use super::keys::{BROKER, Bounds, Key, Support, TOPIC, Update};

/// `docs/reference/configs.md`.
pub fn configs_reference() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         Printed by `barnabas docs configs`; a test fails when this page is stale. Defaults are Kafka 3.9's. What \
         `barnabas` without a file sets is shown by `barnabas serve --help`.\n\n\
         *Changes*: restart = only in the file; broker = for one broker while it runs; cluster = also for all at \
         once; dynamic = never in the file.\n\n## Broker\n\n",
    );
    page +=
        "| key | type | default | allowed | changes | here | what it does |\n|---|---|---|---|---|---|---|\n";
    for key in BROKER {
        page += &row(key, update(key.update));
    }
    page += "\n## Topic\n\nA topic without an override takes the first broker setting that is set.\n\n";
    page += "| key | type | default | allowed | broker settings | here | what it does |\n|---|---|---|---|---|---|---|\n";
    for key in TOPIC {
        let synonyms: Vec<String> = key.synonyms.iter().map(|name| format!("`{name}`")).collect();
        page += &row(key, &synonyms.join(", "));
    }
    page
}

fn row(key: &Key, fifth: &str) -> String {
    let default = match key.default {
        None => "unset".to_owned(),
        Some("") => "empty".to_owned(),
        Some(text) => format!("`{text}`"),
    };
    format!(
        "| `{}` | {} | {default} | {} | {fifth} | {} | {} |\n",
        key.name,
        key.kind.name().to_lowercase(),
        bounds(key.bounds),
        support(key.support),
        key.documentation
    )
}

fn update(update: Update) -> &'static str {
    match update {
        Update::ReadOnly => "restart",
        Update::PerBroker => "broker",
        Update::ClusterWide => "cluster",
        Update::OnlyDynamic => "dynamic",
    }
}

fn support(support: Support) -> String {
    match support {
        Support::Honoured => "yes".to_owned(),
        Support::NoEffect(reason) => format!("no effect: {reason}"),
        Support::NotYet(missing) => format!("not yet: {missing}"),
    }
}

fn bounds(bounds: Bounds) -> String {
    match bounds {
        Bounds::Any => String::new(),
        Bounds::AtLeast(min) => format!("≥ {min}"),
        Bounds::Between(min, max) => format!("{min} … {max}"),
        Bounds::Fraction(max) => format!("0 … {max}"),
        Bounds::OneOf(names) => names.join(", "),
        Bounds::OneOfIgnoringCase(names) => format!("{}, in any case", names.join(", ")),
        Bounds::NonEmpty => "not empty".to_owned(),
        Bounds::GzipLevel => "1 … 9 or -1".to_owned(),
        Bounds::ProtocolVersion => "a Kafka version".to_owned(),
        Bounds::ThrottledReplicas => "`*` or partition:broker, …".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_fresh() {
        let written = include_str!("../../docs/reference/configs.md");
        assert!(
            written == super::configs_reference(),
            "run: cargo run -- docs configs > docs/reference/configs.md"
        );
    }
}
