//! ListOffsets, OffsetForLeaderEpoch, DeleteRecords.

use wire::ApiKey;
use wire::delete_records_request::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::offset_for_leader_epoch_request::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use super::{COMPACT, EMPTY, FILLED, MISSING};
use crate::session::{Case, Session, T0};

pub const CASES: &[Case] = &[
    Case { name: "timestamps", api: ApiKey::ListOffsets, versions: 1..=11, run: list_offsets },
    Case { name: "bad", api: ApiKey::ListOffsets, versions: 1..=11, run: list_offsets_bad },
    Case { name: "all", api: ApiKey::OffsetForLeaderEpoch, versions: 0..=4, run: offset_for_leader_epoch },
    Case { name: "all", api: ApiKey::DeleteRecords, versions: 0..=2, run: delete_records },
];

fn list(topic: &str, partitions: Vec<ListOffsetsPartition>) -> ListOffsetsRequest {
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions }];
    ListOffsetsRequest { replica_id: -1, topics, ..Default::default() }
}

fn at(partition_index: i32, timestamp: i64) -> ListOffsetsPartition {
    ListOffsetsPartition { partition_index, timestamp, ..Default::default() }
}

fn list_offsets(session: &mut Session, version: i16) {
    for timestamp in
        [-1, -2, -3, -4, -5, -6, -7, 0, T0, T0 + 2, T0 + 4, T0 + 5, T0 + 1_001, T0 + 3_004, T0 + 3_005]
    {
        let shown =
            if timestamp > T0 / 2 { format!("T0 + {}", timestamp - T0) } else { timestamp.to_string() };
        session.ask(&format!("filled at {shown}"), version, &list(FILLED, vec![at(0, timestamp)]));
        session.ask(&format!("empty at {shown}"), version, &list(EMPTY, vec![at(0, timestamp)]));
    }
    if version >= 2 {
        let committed = ListOffsetsRequest { isolation_level: 1, ..list(FILLED, vec![at(0, -1)]) };
        session.ask("read committed", version, &committed);
    }
    session.ask(
        "debugging consumer",
        version,
        &ListOffsetsRequest { replica_id: -2, ..list(FILLED, vec![at(0, -1)]) },
    );
}

fn list_offsets_bad(session: &mut Session, version: i16) {
    session.ask("missing topic", version, &list(MISSING, vec![at(0, -1)]));
    session.ask("missing partition", version, &list(FILLED, vec![at(9, -1)]));
    session.ask_and("partition twice", version, &list(FILLED, vec![at(0, -1), at(0, -2)]), |response| {
        for topic in &mut response.topics {
            topic.partitions.sort_by_key(|partition| partition.offset);
        }
    });
    session.ask("no topics", version, &ListOffsetsRequest { replica_id: -1, ..Default::default() });
    if version >= 4 {
        for epoch in [0, 5] {
            let partition = ListOffsetsPartition { current_leader_epoch: epoch, ..at(0, -1) };
            session.ask(&format!("leader epoch {epoch}"), version, &list(FILLED, vec![partition]));
        }
    }
}

fn offset_for_leader_epoch(session: &mut Session, version: i16) {
    let request = |topic: &str, partition, leader_epoch, current_leader_epoch| OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.into(),
            partitions: vec![OffsetForLeaderPartition { partition, leader_epoch, current_leader_epoch }],
        }],
    };
    for epoch in [-1, 0, 1, 7] {
        session.ask(&format!("epoch {epoch}"), version, &request(FILLED, 0, epoch, -1));
    }
    session.ask("empty log", version, &request(EMPTY, 0, 0, -1));
    session.ask("missing topic", version, &request(MISSING, 0, 0, -1));
    session.ask("missing partition", version, &request(FILLED, 9, 0, -1));
    if version >= 2 {
        for current in [0, 4] {
            session.ask(&format!("current epoch {current}"), version, &request(FILLED, 0, 0, current));
        }
    }
}

fn delete_records(session: &mut Session, version: i16) {
    let name = session.name("t");
    session.filled_topic(&name);
    let mut ask = |what: &str, topic: &str, partition_index, offset| {
        let partitions = vec![DeleteRecordsPartition { partition_index, offset }];
        let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions }];
        session.ask(what, version, &DeleteRecordsRequest { topics, timeout_ms: 30_000 });
    };
    ask("inside a batch", &name, 0, 7);
    ask("lower than before", &name, 0, 3);
    ask("beyond the end", &name, 0, 21);
    ask("-2", &name, 0, -2);
    ask("missing topic", MISSING, 0, 1);
    ask("missing partition", &name, 9, 1);
    ask("compacted topic", COMPACT, 0, 0);
    ask("internal topic", "__consumer_offsets", 0, 0);
    ask("everything", &name, 0, -1);
    for timestamp in [-1, -2, -3] {
        session.ask(&format!("afterwards at {timestamp}"), 7, &list(&name, vec![at(0, timestamp)]));
    }
}
