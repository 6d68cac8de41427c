use std::fmt::Write;

use super::instrument::{Escaped, print_line};
use super::metrics::{Metric, MetricKind, print_head};

macro_rules! sampled {
    ($($name:ident, $kind:ident, $metric:literal, [$($label:literal),*], $help:literal;)*) => {
        /// What is looked up when `/metrics` is asked for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Sampled {
            $(#[doc = $help] $name,)*
        }

        pub(super) const SAMPLED: &[Metric] = &[$(Metric {
            name: $metric,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
            help: $help,
        },)*];
    };
}

sampled! {
    BuildInfo, Gauge, "barnabas_build_info", ["version"], "Always 1; the version is a label.";
    ReadyReasons, Gauge, "barnabas_not_ready_reasons", [], "Reasons why /readyz refuses; 0 = ready.";
    Connections, Gauge, "barnabas_connections", [], "Open connections.";
    MemoryBytes, Gauge, "barnabas_memory_bytes", ["owner"], "Bytes held, by what holds them.";
    MemoryLimitBytes, Gauge, "barnabas_memory_limit_bytes", ["owner"], "Bytes that may be held, by what holds them.";
    Partitions, Gauge, "barnabas_partitions", [], "Partitions with a replica on this broker.";
    LeaderPartitions, Gauge, "barnabas_leader_partitions", [], "Partitions that this broker leads.";
    UnderReplicatedPartitions, Gauge, "barnabas_under_replicated_partitions", [], "Led partitions whose ISR lacks a replica.";
    UnderMinIsrPartitions, Gauge, "barnabas_under_min_isr_partitions", [], "Led partitions whose ISR is smaller than min.insync.replicas, or than all their replicas where these are fewer.";
    OfflinePartitions, Gauge, "barnabas_offline_partitions", [], "Partitions of the cluster without a leader, told by the controller only.";
    ActiveController, Gauge, "barnabas_active_controller", [], "1 on the broker that is the controller.";
    ControllerState, Gauge, "barnabas_controller_state", ["state"], "1 for what the controller of this broker does: standby, taking_over, idle, or an event.";
    ControllerQueue, Gauge, "barnabas_controller_queue", [], "Questions that wait for the controller of this broker.";
    IsrShrinks, Counter, "barnabas_isr_shrinks_total", [], "Led partitions whose ISR became smaller, as their leader asked for it.";
    IsrExpands, Counter, "barnabas_isr_expands_total", [], "Led partitions whose ISR became larger.";
    AtMinIsrPartitions, Gauge, "barnabas_at_min_isr_partitions", [], "Led partitions whose ISR must not become smaller.";
    OfflineReplicas, Gauge, "barnabas_offline_replicas", [], "Replicas of this broker whose logs cannot be used: their log folder has failed, or they have.";
    ReassigningPartitions, Gauge, "barnabas_reassigning_partitions", [], "Partitions of the cluster that move to other replicas, told by the controller only.";
    PreferredReplicaImbalance, Gauge, "barnabas_preferred_replica_imbalance", [], "Partitions of the cluster that another replica than the first leads, told by the controller only.";
    FollowerLagMax, Gauge, "barnabas_follower_lag_max", [], "Most records that a replica on this broker lacks of what is committed.";
    FetcherLagMax, Gauge, "barnabas_fetcher_lag_max", ["leader", "fetcher"], "The same for each connection to a leader.";
    FetcherPartitions, Gauge, "barnabas_fetcher_partitions", ["leader", "fetcher"], "Partitions that a connection to a leader fetches.";
    FailedFetchPartitions, Gauge, "barnabas_failed_fetch_partitions", [], "Partitions that are not fetched until their role changes.";
    ReplicationThrottleRate, Gauge, "barnabas_throttled_replication_bytes_per_second", ["role"], "Rate of throttled replicas, of what this broker sends as leader and fetches as follower.";
    StoreSession, Gauge, "barnabas_store_session", ["state"], "1 for the state of the session with the coordination store: connected, disconnected or expired.";
    StoreConnected, Gauge, "barnabas_store_connected", [], "1 while the session with the coordination store, ZooKeeper or embedded, is connected.";
    LogSizeBytes, Gauge, "barnabas_log_size_bytes", ["topic", "partition"], "Size of a partition's segments on disk.";
    LogStartOffset, Gauge, "barnabas_log_start_offset", ["topic", "partition"], "First offset of a partition.";
    LogEndOffset, Gauge, "barnabas_log_end_offset", ["topic", "partition"], "Next offset of a partition.";
    LogsToLoad, Gauge, "barnabas_logs_to_load", [], "Partitions whose logs are still to be loaded, and are not served before.";
    SegmentsToRecover, Gauge, "barnabas_segments_to_recover", [], "Segments whose batches are still to be checked, of the logs that are being loaded.";
    FailedLogs, Gauge, "barnabas_failed_logs", ["topic", "partition", "reason"], "1 for a replica that is offline because its log cannot be used; absent = none.";
    LogDirOnline, Gauge, "barnabas_log_dir_online", ["dir"], "1 while a log folder works.";
    LogDirFull, Gauge, "barnabas_log_dir_full", ["dir"], "1 while a log folder's volume has no room for records.";
    LogDirTotalBytes, Gauge, "barnabas_log_dir_total_bytes", ["dir"], "Size of the volume of a log folder.";
    LogDirUsableBytes, Gauge, "barnabas_log_dir_usable_bytes", ["dir"], "Room left on the volume of a log folder.";
    LogFlushes, Counter, "barnabas_log_flushes_total", ["dir"], "Times that records of a log were made durable by syncing its files.";
    LogDirMoves, Gauge, "barnabas_log_dir_moves", [], "Replicas that are being moved between log folders.";
    CompactionFailures, Gauge, "barnabas_compaction_failures", ["topic", "partition", "reason"], "Attempts in a row to compact a partition that failed; absent = none.";
    CompactionDirtyRatio, Gauge, "barnabas_compaction_dirty_ratio", [], "Greatest uncompacted part of a compacted log, from 0 to 1.";
    CompactionDelaySeconds, Gauge, "barnabas_compaction_delay_seconds", [], "How long the oldest record has waited beyond max.compaction.lag.ms.";
    Groups, Gauge, "barnabas_groups", ["state"], "Groups that this broker coordinates.";
    GroupRebalances, Counter, "barnabas_group_rebalances_total", [], "Generations that groups have begun, those that became empty left out.";
    Transactions, Gauge, "barnabas_transactions", ["state"], "Transactional ids that this broker coordinates.";
    OpenTransactionEnds, Gauge, "barnabas_open_transaction_ends", [], "Transactions that are decided and not known to all their partitions.";
    HangingTransactions, Gauge, "barnabas_hanging_transactions", [], "Led partitions that a transaction holds back for longer than transaction.max.timeout.ms allows.";
    Producers, Gauge, "barnabas_producers", [], "Producers that partitions know, each counted in every partition it wrote to.";
    FetchSessions, Gauge, "barnabas_fetch_sessions", [], "Incremental fetch sessions.";
    ProcessCpuSeconds, Counter, "process_cpu_seconds_total", [], "Processor time of the process, user and system.";
    ProcessResidentBytes, Gauge, "process_resident_memory_bytes", [], "Resident memory of the process.";
    ProcessOpenFiles, Gauge, "process_open_fds", [], "Open file descriptors of the process.";
    ProcessStart, Gauge, "process_start_time_seconds", [], "When the process started, in seconds since 1970.";
}

/// Collects sample lines, each metric's together as Prometheus wants them.
#[derive(Default)]
pub struct Samples {
    lines: Vec<String>,
}

impl Samples {
    /// `labels` are the values of the metric's labels, in its order.
    pub fn push(&mut self, sampled: Sampled, labels: &[&str], value: impl std::fmt::Display) {
        let metric = &SAMPLED[sampled as usize];
        assert_eq!(labels.len(), metric.labels.len(), "{} has these labels", metric.name);
        let mut pairs = String::new();
        for (name, value) in metric.labels.iter().zip(labels) {
            write!(pairs, "{name}=\"{}\",", Escaped(value)).expect("a string takes any text");
        }
        self.lines.resize_with(SAMPLED.len(), String::new);
        print_line(metric.name, &pairs, value, &mut self.lines[sampled as usize]);
    }

    pub(super) fn print(&self, out: &mut String) {
        for (metric, lines) in SAMPLED.iter().zip(&self.lines) {
            if !lines.is_empty() {
                print_head(metric, out);
                out.push_str(lines);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together() {
        let mut samples = Samples::default();
        for partition in ["0", "1"] {
            samples.push(Sampled::LogSizeBytes, &["a\"b", partition], 10);
            samples.push(Sampled::LogEndOffset, &["a\"b", partition], 20);
        }
        let mut out = String::new();
        samples.print(&mut out);
        assert_eq!(
            out,
            "# HELP barnabas_log_size_bytes Size of a partition's segments on disk.\n\
             # TYPE barnabas_log_size_bytes gauge\n\
             barnabas_log_size_bytes{topic=\"a\\\"b\",partition=\"0\"} 10\n\
             barnabas_log_size_bytes{topic=\"a\\\"b\",partition=\"1\"} 10\n\
             # HELP barnabas_log_end_offset Next offset of a partition.\n\
             # TYPE barnabas_log_end_offset gauge\n\
             barnabas_log_end_offset{topic=\"a\\\"b\",partition=\"0\"} 20\n\
             barnabas_log_end_offset{topic=\"a\\\"b\",partition=\"1\"} 20\n"
        );
    }
}
