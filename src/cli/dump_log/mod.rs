//! `barnabas dump-log`: the options and the output of `kafka-dump-log` 3.9, and the records of later groups as 4.3 prints them.

mod batches;
mod decoder;
mod indexes;
mod records;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use snafu::{ResultExt, Snafu, ensure};

use self::decoder::Decoder;
use crate::log::{CorruptSnapshot, InvalidIndexEntry, SegmentReadError, decode_index, decode_snapshot};
use crate::model::Offset;
use crate::records::RecordsError;
use crate::runtime::fs::{DiskFileSystem, FileSystem};

/// Print what lies in log, index and snapshot files, as kafka-dump-log does.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The files: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint.
    #[arg(value_name = "FILE")]
    paths: Vec<PathBuf>,

    /// The files, separated by commas.
    #[arg(long, value_name = "FILE,…", default_value = "", hide_default_value = true)]
    files: String,

    /// Print what the records hold.
    #[arg(long)]
    print_data_log: bool,

    /// Print the records, not only their batches.
    #[arg(long)]
    deep_iteration: bool,

    /// Leave out what is known of each record besides its contents.
    #[arg(long)]
    skip_record_metadata: bool,

    /// Read records as those of __consumer_offsets.
    #[arg(long)]
    offsets_decoder: bool,

    /// Read records as those of __transaction_state.
    #[arg(long)]
    transaction_log_decoder: bool,

    /// Read records as those of __share_group_state.
    #[arg(long)]
    share_group_state_decoder: bool,

    /// Read records as those of __cluster_metadata.
    #[arg(long)]
    cluster_metadata_decoder: bool,

    /// How keys are read: StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder, of any package.
    #[arg(long, value_name = "CLASS", default_value = "StringDecoder")]
    key_decoder_class: String,

    /// How values are read.
    #[arg(long, value_name = "CLASS", default_value = "StringDecoder")]
    value_decoder_class: String,

    /// Compare an index with its log without printing it.
    #[arg(long)]
    verify_index_only: bool,

    /// Only check indexes as a starting broker does.
    #[arg(long)]
    index_sanity_check: bool,

    /// Read no more than so many bytes of a log.
    #[arg(long, value_name = "SIZE", default_value_t = i32::MAX)]
    max_bytes: i32,

    /// Accepted for kafka-dump-log's sake: batches are read whatever their size.
    #[arg(long, value_name = "SIZE", default_value_t = 5_242_880)]
    max_message_size: i32,
}

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(in crate::cli)))]
pub(super) enum DumpLogError {
    #[snafu(display("no files are named"))]
    NoFiles,
    #[snafu(display("cannot read {}: {source}", path.display()))]
    Read { path: PathBuf, source: io::Error },
    #[snafu(display("{}: {source}", path.display()))]
    Segment { path: PathBuf, source: SegmentReadError },
    #[snafu(display("{}: the batch at {position}: {source}", path.display()))]
    Records { path: PathBuf, position: u64, source: RecordsError },
    #[snafu(display("{} does not begin with an offset", path.display()))]
    NoOffset { path: PathBuf },
    #[snafu(display("Corrupt index found, index file ({}) {what}.", path.display()))]
    CorruptIndex { path: PathBuf, what: String },
    #[snafu(display("unknown decoder {name}: plug-in classes cannot be loaded"))]
    UnknownDecoder { name: String },
    #[snafu(display("record at offset {offset} has no key and cannot be read by this decoder"))]
    NoKey { offset: Offset },
    #[snafu(display("cannot write: {source}"), context(false))]
    Print { source: io::Error },
}

pub(super) fn run(arguments: &Arguments) -> Result<(), DumpLogError> {
    let stdout = io::stdout();
    let mut output = BufWriter::new(stdout.lock());
    let mut complaints = Complaints::default();
    let dumped = dump_all(arguments, &DiskFileSystem, &mut output, &mut complaints);
    let dumped = dumped.and_then(|()| Ok(output.flush()?));
    eprint!("{}", complaints.text());
    match dumped {
        // The reader, such as `head`, has seen enough.
        Err(DumpLogError::Print { source }) if source.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// What is wrong with the files, told at the end.
#[derive(Debug, Default)]
struct Complaints {
    unknown: Vec<PathBuf>,
    /// By index file: the offset in the index and the one in the log.
    index_mismatches: Vec<(PathBuf, Vec<(Offset, Offset)>)>,
    time: indexes::TimeComplaints,
    /// By log file: an offset and the one that follows it.
    gaps: Vec<(PathBuf, Vec<(Offset, Offset)>)>,
    snapshots: Vec<CorruptSnapshot>,
}

impl Complaints {
    fn text(&self) -> String {
        let mut text = String::new();
        for path in &self.unknown {
            text += &format!("Ignoring unknown file {}\n", path.display());
        }
        for error in &self.snapshots {
            text += &format!("{error}\n");
        }
        for (path, pairs) in &self.index_mismatches {
            text += &format!("Mismatches in :{}\n", absolute(path));
            // Kafka tells the last one first.
            for (in_index, in_log) in pairs.iter().rev() {
                text += &format!("  Index offset: {in_index}, log offset: {in_log}\n");
            }
        }
        text += &self.time.text();
        for (path, pairs) in &self.gaps {
            text += &format!("Non-consecutive offsets in {}\n", absolute(path));
            for (first, second) in pairs.iter().rev() {
                text += &format!("  {first} is followed by {second}\n");
            }
        }
        text
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

fn dump_all(
    arguments: &Arguments,
    fs: &dyn FileSystem,
    output: &mut dyn Write,
    complaints: &mut Complaints,
) -> Result<(), DumpLogError> {
    let decoder = Decoder::of(arguments)?;
    let listed = arguments.files.split(',').map(str::trim).filter(|name| !name.is_empty()).map(PathBuf::from);
    let paths: Vec<PathBuf> = arguments.paths.iter().cloned().chain(listed).collect();
    ensure!(!paths.is_empty(), NoFilesSnafu);
    for path in &paths {
        writeln!(output, "Dumping {}", path.display())?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("log" | "checkpoint") => batches::dump(arguments, &decoder, fs, path, output, complaints)?,
            Some("index") => indexes::dump_offsets(arguments, fs, path, output, complaints)?,
            Some("timeindex") => indexes::dump_times(arguments, fs, path, output, complaints)?,
            Some("txnindex") => dump_aborted(fs, path, output)?,
            Some("snapshot") => dump_snapshot(fs, path, output, complaints)?,
            _ => complaints.unknown.push(path.clone()),
        }
    }
    Ok(())
}

fn dump_aborted(fs: &dyn FileSystem, path: &Path, output: &mut dyn Write) -> Result<(), DumpLogError> {
    let bytes = fs.read(path).context(ReadSnafu { path })?;
    for entry in decode_index(&bytes) {
        let entry = entry.map_err(|InvalidIndexEntry { position }| {
            let what = format!("has no whole entry at position {position}");
            CorruptIndexSnafu { path, what }.build()
        })?;
        writeln!(
            output,
            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
        )?;
    }
    Ok(())
}

fn dump_snapshot(
    fs: &dyn FileSystem,
    path: &Path,
    output: &mut dyn Write,
    complaints: &mut Complaints,
) -> Result<(), DumpLogError> {
    let bytes = fs.read(path).context(ReadSnafu { path })?;
    let producers = match decode_snapshot(&bytes) {
        Ok(producers) => producers,
        Err(error) => {
            complaints.snapshots.push(error);
            return Ok(());
        }
    };
    for (producer_id, entry) in producers {
        let first_offset = match entry.transaction_first_offset() {
            Offset::NONE => "OptionalLong.empty".to_owned(),
            offset => format!("OptionalLong[{offset}]"),
        };
        write!(
            output,
            "producerId: {producer_id} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {first_offset} \
             lastTimestamp: {} ",
            entry.epoch, entry.coordinator_epoch, entry.last_timestamp
        )?;
        if let Some(batch) = entry.last_batch() {
            write!(
                output,
                "firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                batch.first_sequence(),
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp
            )?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// The offset that a file's name begins with.
fn base_offset(path: &Path) -> Result<Offset, DumpLogError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let digits = name.split('.').next().unwrap_or_default();
    match digits.parse() {
        Ok(offset) => Ok(Offset(offset)),
        Err(_) => NoOffsetSnafu { path }.fail(),
    }
}
