use super::metrics::metrics_table;

/// `docs/reference/metrics.md`.
pub fn metrics_reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         What `/metrics` shows, in Prometheus' text format. Printed by `barnabas docs metrics`; a test fails when \
         this page is stale.\nMembers of a labelled counter or histogram appear with their first event.\n\n\
         | name | kind | labels | what it tells |\n|---|---|---|---|\n",
    );
    for metric in metrics_table() {
        let labels = metric.labels.join(", ");
        page += &format!("| `{}` | {} | {labels} | {} |\n", metric.name, metric.kind.name(), metric.help);
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_fresh() {
        let written = include_str!("../../docs/reference/metrics.md");
        assert!(
            written == super::metrics_reference(),
            "run: cargo run -- docs metrics > docs/reference/metrics.md"
        );
    }
}
