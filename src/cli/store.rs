use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;
use snafu::{ResultExt, Snafu, ensure};

use super::place::{self, PlaceArguments, PlaceError};
use crate::coordination::{TextError, export_tree, format_data, format_tree, import_tree, parse_tree};

/// Show, export or import the tree that coordinates a cluster: of an embedded store or of a ZooKeeper ensemble.
///
/// The text form has one node a line, its fields apart by tabs: path, kind, version, data. Null data is \N,
/// data that is no text is hex:….
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Print the tree for a reader.
    Show {
        #[command(flatten)]
        place: PlaceArguments,
        /// Only this node and what is below it.
        #[arg(long, value_name = "PATH", default_value = "/")]
        path: String,
    },
    /// Write the tree as text.
    Export {
        #[command(flatten)]
        place: PlaceArguments,
        /// The file to write; stdout without it.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Write the nodes of a text into a store.
    ///
    /// Nodes of sessions are left out. Versions begin anew.
    Import {
        #[command(flatten)]
        place: PlaceArguments,
        /// The text.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Write into a store that is not empty; nodes that are there get the text's data.
        #[arg(long)]
        merge: bool,
    },
}

#[derive(Debug, Snafu)]
pub(super) enum StoreCommandError {
    #[snafu(transparent)]
    Place { source: PlaceError },
    #[snafu(display("{}: {source}", path.display()))]
    Text { path: PathBuf, source: TextError },
    #[snafu(display("cannot read {}: {source}", path.display()))]
    ReadText { path: PathBuf, source: io::Error },
    #[snafu(display("cannot write {}: {source}", path.display()))]
    WriteText { path: PathBuf, source: io::Error },
    #[snafu(display("cannot write: {source}"))]
    Print { source: io::Error },
    #[snafu(display("the store is not empty: it has {example}. --merge writes into it all the same"))]
    NotEmpty { example: String },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), StoreCommandError> {
    match &arguments.action {
        Action::Show { place, path } => show(place, path),
        Action::Export { place, to } => export(place, to.as_ref()),
        Action::Import { place, from, merge } => import(place, from, *merge),
    }
}

fn show(place: &PlaceArguments, path: &str) -> Result<(), StoreCommandError> {
    let nodes = place::block_on(async {
        let open = place.open().await?;
        Ok(export_tree(&*open.session, path).await?)
    })?;
    let mut text = String::new();
    for node in &nodes {
        let kind = if node.is_ephemeral { ", ephemeral" } else { "" };
        let data = match &node.data {
            None => "-".to_owned(),
            data => format_data(data.as_deref()),
        };
        text.push_str(&format!("{}  (version {}{kind})  {data}\n", node.path, node.version));
    }
    print(&text)
}

fn export(place: &PlaceArguments, to: Option<&PathBuf>) -> Result<(), StoreCommandError> {
    let nodes = place::block_on(async {
        let open = place.open().await?;
        Ok(export_tree(&*open.session, "/").await?)
    })?;
    let text = format_tree(&nodes);
    match to {
        None => print(&text),
        Some(path) => std::fs::write(path, text).context(WriteTextSnafu { path }),
    }
}

fn import(place: &PlaceArguments, from: &PathBuf, merge: bool) -> Result<(), StoreCommandError> {
    let text = std::fs::read_to_string(from).context(ReadTextSnafu { path: from })?;
    let nodes = parse_tree(&text).context(TextSnafu { path: from })?;
    let outcome = place::block_on(async {
        let open = match &place.folder {
            // An import may begin a store.
            Some(folder) => place::begin_folder(folder).await?,
            None => place.open().await?,
        };
        let session = &*open.session;
        let mut there = session.children("/").await?;
        there.retain(|name| name != "zookeeper");
        if let Some(example) = there.first().filter(|_| !merge) {
            return Ok(Err(format!("/{example}")));
        }
        Ok(Ok(import_tree(session, &nodes).await?))
    })?;
    let refused = outcome.as_ref().err().cloned();
    ensure!(refused.is_none(), NotEmptySnafu { example: refused.unwrap_or_default() });
    let done = outcome.unwrap_or_default();
    print(&format!(
        "{} nodes created, {} overwritten, {} of sessions left out\n",
        done.created, done.overwritten, done.left_out
    ))
}

fn print(text: &str) -> Result<(), StoreCommandError> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context(PrintSnafu),
    }
}
