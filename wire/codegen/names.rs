//! Names of Kafka's schemas as Rust writes them.

/// `PartitionMaxBytes` as `partition_max_bytes`; keywords get their `r#`.
pub fn snake(name: &str) -> String {
    // Two words that capitals split at the wrong place.
    let name = name.replace("KRaft", "Kraft").replace("2Pc", "_2pc");
    let mut snake = String::new();
    let mut previous = '_';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && previous != '_' {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        previous = letter;
    }
    match snake.as_str() {
        "type" | "match" => format!("r#{snake}"),
        _ => snake,
    }
}

/// `PartitionMaxBytes` as `partitionMaxBytes`: how Kafka's tools print it.
pub fn camel(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
