use std::io::{self, Write};

use clap::ValueEnum;

/// Print a reference page in Markdown.
#[derive(clap::Args)]
pub(super) struct Arguments {
    page: Page,
}

#[derive(Clone, Copy, ValueEnum)]
enum Page {
    /// Every setting of brokers and topics.
    Configs,
    /// Everything that /metrics shows.
    Metrics,
    /// The states of transactional ids.
    Transactions,
}

pub(super) fn run(arguments: &Arguments) -> io::Result<()> {
    let page = match arguments.page {
        Page::Configs => crate::config::configs_reference(),
        Page::Metrics => crate::observe::metrics_reference(),
        Page::Transactions => crate::txn::transactions_reference(),
    };
    match io::stdout().write_all(page.as_bytes()) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}
