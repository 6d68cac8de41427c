//! `barnabas adopt`: an embedded store for the folders of a Kafka broker that has none.

mod plan;
#[cfg(test)]
mod plan_tests;
mod records;

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use snafu::{ResultExt, Snafu, ensure};

use self::plan::{Findings, Plan, PlanError};
use super::place::{self, PlaceError};
use crate::coordination::{Ensemble, TextError, TextNode, export_tree, import_tree, parse_tree};
use crate::log::{LogDirectories, LogError, Survey, SurveyError};
use crate::model::ProducerId;
use crate::records::batches;
use crate::runtime::fs::DiskFileSystem;

/// Give the folders of a stopped Kafka broker an embedded store, so that Barnabas serves them without ZooKeeper.
///
/// Broker id, cluster id, topics, ids and partitions come from the folders; configurations and the rest from the
/// tree that they belonged to, where it is given. The plan is printed; where a person sits at the terminal, it is
/// asked for. Written is one thing alone: the store's own files in the first folder, which Kafka passes over.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The broker's log.dirs, all of them, in their order.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// The tree as `barnabas store export` writes it.
    #[arg(long, value_name = "FILE", conflicts_with = "zookeeper")]
    znodes: Option<PathBuf>,

    /// The ensemble that the broker belonged to, as zookeeper.connect names it. It is only read.
    #[arg(long, value_name = "HOST:PORT,…/CHROOT")]
    zookeeper: Option<String>,

    /// Print the plan and change nothing.
    #[arg(long)]
    dry_run: bool,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Snafu)]
pub(super) enum AdoptError {
    #[snafu(transparent)]
    Place { source: PlaceError },
    #[snafu(transparent)]
    Survey { source: SurveyError },
    #[snafu(transparent)]
    Folders { source: LogError },
    #[snafu(transparent)]
    Plan { source: PlanError },
    #[snafu(display("{}: {source}", path.display()))]
    Text { path: PathBuf, source: TextError },
    #[snafu(display("cannot read {}: {source}", path.display()))]
    ReadFile { path: PathBuf, source: io::Error },
    #[snafu(display("{} has an embedded store already", path.display()))]
    HasStore { path: PathBuf },
    #[snafu(display("{} does not exist", path.display()))]
    NoFolder { path: PathBuf },
    #[snafu(display("nothing was changed"))]
    Declined,
    #[snafu(display("cannot write: {source}"))]
    Print { source: io::Error },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), AdoptError> {
    for path in &arguments.folders {
        ensure!(path.is_dir(), NoFolderSnafu { path });
        ensure!(!place::has_store(path)?, HasStoreSnafu { path });
    }
    // Whoever uses the folders now must not lose them.
    let locks = LogDirectories::open(Arc::new(DiskFileSystem), &arguments.folders, 16)?;
    let plan = Plan::of(&findings(arguments)?)?;
    print(&describe(&plan, &arguments.folders))?;
    if arguments.dry_run {
        return Ok(());
    }
    ensure!(arguments.yes || is_agreed()?, DeclinedSnafu);
    if let Some(folder) = arguments.folders.first() {
        write(&plan, folder)?;
        print(&format!("written: the store in {}\n", folder.display()))?;
    }
    drop(locks);
    Ok(())
}

fn findings(arguments: &Arguments) -> Result<Findings, AdoptError> {
    let surveys = arguments.folders.iter().map(|path| Survey::take(&DiskFileSystem, path));
    let surveys = surveys.collect::<Result<Vec<Survey>, _>>()?;
    let znodes = match (&arguments.znodes, &arguments.zookeeper) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).context(ReadFileSnafu { path })?;
            parse_tree(&text).context(TextSnafu { path })?
        }
        (None, Some(connect)) => read_zookeeper(connect)?,
        (None, None) => Vec::new(),
    };
    let producer_id_max = transactional_producer_id_max(&surveys)?;
    Ok(Findings { surveys, znodes, producer_id_max })
}

fn read_zookeeper(connect: &str) -> Result<Vec<TextNode>, PlaceError> {
    place::block_on(async {
        let open = place::open_zookeeper(connect).await?;
        Ok(export_tree(&*open.session, "/").await?)
    })
}

/// Transactional ids keep their producer id after every trace of it has gone from the logs.
fn transactional_producer_id_max(surveys: &[Survey]) -> Result<Option<ProducerId>, AdoptError> {
    let partitions = surveys.iter().flat_map(|survey| &survey.partitions);
    let mut max = None;
    for partition in
        partitions.filter(|partition| partition.topic_partition.topic.as_str() == "__transaction_state")
    {
        let path = &partition.path;
        for entry in std::fs::read_dir(path).context(ReadFileSnafu { path })? {
            let path = entry.context(ReadFileSnafu { path })?.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let bytes = Bytes::from(std::fs::read(&path).context(ReadFileSnafu { path })?);
            // What a crash left at the end is no record.
            let whole = batches(&bytes).map_while(Result::ok);
            max = max.max(whole.filter_map(|batch| records::producer_id_max(&batch)).max());
        }
    }
    Ok(max)
}

fn describe(plan: &Plan, folders: &[PathBuf]) -> String {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let partitions: usize = plan.topics.values().sum();
    let mut text = format!(
        "broker {} of cluster {}\nfolders: {}\n{} topics with {partitions} partitions:\n",
        plan.broker_id,
        plan.cluster_id,
        folders.join(", "),
        plan.topics.len(),
    );
    for (name, partitions) in &plan.topics {
        let _ = writeln!(text, "  {name}: {partitions}");
    }
    for note in &plan.notes {
        let _ = writeln!(text, "note: {note}");
    }
    let _ = writeln!(text, "the store will have {} nodes", plan.nodes.len());
    text
}

/// Nobody is asked where nobody can answer.
fn is_agreed() -> Result<bool, AdoptError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Ok(true);
    }
    print("Write it? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context(PrintSnafu)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn write(plan: &Plan, folder: &Path) -> Result<(), PlaceError> {
    let written = place::block_on(async {
        let store = place::open_or_create(folder)?;
        let session = store.open_session().await?;
        import_tree(&*session, &plan.nodes).await?;
        Ok::<(), PlaceError>(session.close().await?)
    });
    if written.is_err() {
        remove_store(folder);
    }
    written
}

/// Half a store would be served as if it were whole.
fn remove_store(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with("barnabas-store.") {
            // The error that is told is the first one.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn print(text: &str) -> Result<(), AdoptError> {
    let mut stdout = io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context(PrintSnafu)
}
