//! From frames to answers: the list of APIs, the context of a request, one file per API.
//!
//! [`dispatch`] reads the header, finds the API's row in [`table`], decodes the body and starts the handler.
//! A handler translates: wire types to domain values, domain results to wire types and error codes
//! ([`ErrorCode`]). It holds no rules; API versions end here.

mod acls;
mod admin;
mod broker_loggers;
mod context;
mod dispatch;
mod error_code;
mod forward;
mod groups;
mod leader_hints;
mod response;
pub mod table;
mod transactions;

mod add_offsets_to_txn;
mod add_partitions_to_txn;
mod allocate_producer_ids;
mod alter_configs;
mod alter_partition;
mod alter_partition_reassignments;
mod alter_replica_log_dirs;
mod api_versions;
mod controlled_shutdown;
mod create_acls;
mod create_partitions;
mod create_topics;
mod delete_acls;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_acls;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod describe_transactions;
mod elect_leaders;
mod end_txn;
mod envelope;
mod fetch;
mod find_coordinator;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leader_and_isr;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod list_transactions;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod stop_replica;
mod sync_group;
mod txn_offset_commit;
mod update_features;
mod update_metadata;
mod write_txn_markers;

pub use context::{ConnectionContext, Gate, RequestContext, Services};
pub use dispatch::{DispatchError, Dispatched, dispatch, is_pipelined_frame};
pub use error_code::{ERROR_CODES, ErrorCode};
pub use response::{Answer, Part, ResponseFrame};
