//! The server's half of ZooKeeper's client protocol: bytes to requests, answers to bytes. Pure.

use bytes::Bytes;

use crate::coordination::access::{AccessEntry, AccessList, Identity};
use crate::coordination::codes::*;
use crate::coordination::jute::{Malformed, Reader, Writer};
use crate::coordination::link_watches::WatchTarget;
use crate::coordination::store::{
    Create, CreateMode, Operation, OperationResult, StoreError, StoreEvent, WatchKind,
};

/// The first frame of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectRequest {
    pub seen_zxid: i64,
    pub timeout_ms: i32,
    /// 0 = a new one.
    pub session: i64,
    pub password: Bytes,
    /// Clients before 3.4 do not know of read-only servers, and are not told.
    pub knows_read_only: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Ping,
    Auth {
        scheme: String,
        credentials: Bytes,
    },
    Write(WriteRequest),
    /// With the member that is refused before anything is tried, and its code.
    Multi {
        members: Vec<WriteRequest>,
        refused: Option<(usize, i32)>,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    GetAcl {
        path: String,
    },
    MultiRead(Vec<ReadRequest>),
    CountDescendants {
        path: String,
    },
    GetEphemerals {
        prefix: String,
    },
    Sync {
        path: String,
    },
    SetWatches(SetWatches),
    /// `removes`: not only looked for.
    Watches {
        path: String,
        targets: &'static [WatchTarget],
        removes: bool,
    },
    WhoAmI,
    Close,
    /// Answered with this code.
    Refused(i32),
    /// The server does not know it: answered with this code, then the connection is closed.
    Unknown(i32),
}

/// A request that changes one node, or checks it among others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteRequest {
    Create { create: Create, list: Vec<AccessEntry>, with_stat: bool },
    Other(Operation),
    SetAcl { path: String, list: Vec<AccessEntry>, version: i32 },
}

/// A member of a multi that only reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadRequest {
    GetData(String),
    GetChildren(String),
}

/// The watches of an earlier connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SetWatches {
    /// The last transaction that the client has heard of.
    pub seen_zxid: i64,
    pub data: Vec<String>,
    pub exists: Vec<String>,
    pub children: Vec<String>,
}

impl ConnectRequest {
    pub(super) fn decode(frame: Bytes) -> Result<ConnectRequest, Malformed> {
        let mut reader = Reader::new(frame);
        reader.int()?;
        Ok(ConnectRequest {
            seen_zxid: reader.long()?,
            timeout_ms: reader.int()?,
            session: reader.long()?,
            password: reader.buffer()?.unwrap_or_default(),
            knows_read_only: !reader.is_empty(),
        })
    }
}

/// Tells a client how its session stands; `timeout_ms` 0 = it is over.
pub(super) fn connected(request: &ConnectRequest, timeout_ms: i32, session: i64, password: &[u8]) -> Bytes {
    let mut body = Writer::default();
    body.int(0);
    body.int(timeout_ms);
    body.long(session);
    body.buffer(Some(password));
    if request.knows_read_only {
        body.boolean(false);
    }
    framed(body)
}

/// The header of a request, and the request itself where it can be read.
pub(super) fn decode(frame: Bytes) -> Result<(i32, Result<Request, Malformed>), Malformed> {
    let mut reader = Reader::new(frame);
    let xid = reader.int()?;
    let op = reader.int()?;
    Ok((xid, decode_request(op, &mut reader)))
}

fn decode_request(op: i32, reader: &mut Reader) -> Result<Request, Malformed> {
    Ok(match op {
        OP_PING => Request::Ping,
        OP_AUTH => {
            reader.int()?;
            Request::Auth { scheme: reader.text()?, credentials: reader.buffer()?.unwrap_or_default() }
        }
        OP_CREATE | OP_CREATE2 | OP_DELETE | OP_SET_DATA => match decode_write(op, reader)? {
            Ok(write) => Request::Write(write),
            Err(code) => Request::Refused(code),
        },
        OP_SET_ACL => {
            let path = reader.text()?;
            let list = decode_list(reader)?;
            Request::Write(WriteRequest::SetAcl { path, list, version: reader.int()? })
        }
        OP_MULTI => decode_multi(reader)?,
        OP_EXISTS => Request::Exists { path: reader.text()?, watch: reader.boolean()? },
        OP_GET_DATA => Request::GetData { path: reader.text()?, watch: reader.boolean()? },
        OP_GET_CHILDREN | OP_GET_CHILDREN2 => {
            let with_stat = op == OP_GET_CHILDREN2;
            Request::GetChildren { path: reader.text()?, watch: reader.boolean()?, with_stat }
        }
        OP_GET_ACL => Request::GetAcl { path: reader.text()? },
        OP_MULTI_READ => decode_multi_read(reader)?,
        OP_COUNT_DESCENDANTS => Request::CountDescendants { path: reader.text()? },
        OP_GET_EPHEMERALS => Request::GetEphemerals { prefix: reader.text()? },
        OP_SYNC => Request::Sync { path: reader.text()? },
        OP_SET_WATCHES | OP_SET_WATCHES2 => decode_set_watches(op, reader)?,
        OP_CHECK_WATCHES | OP_REMOVE_WATCHES => {
            let path = reader.text()?;
            let targets: &[WatchTarget] = match reader.int()? {
                1 => &[WatchTarget::Children],
                2 => &[WatchTarget::Node],
                3 => &[WatchTarget::Children, WatchTarget::Node],
                _ => return Err(Malformed),
            };
            Request::Watches { path, targets, removes: op == OP_REMOVE_WATCHES }
        }
        OP_WHO_AM_I => Request::WhoAmI,
        OP_CLOSE => Request::Close,
        OP_CREATE_CONTAINER | OP_CREATE_TTL | OP_DELETE_CONTAINER | OP_RECONFIG | OP_ADD_WATCH | OP_SASL => {
            Request::Refused(CODE_UNIMPLEMENTED)
        }
        _ => Request::Unknown(CODE_UNIMPLEMENTED),
    })
}

/// A request that may also be a member of a multi, or the code with which it is refused.
fn decode_write(op: i32, reader: &mut Reader) -> Result<Result<WriteRequest, i32>, Malformed> {
    Ok(match op {
        OP_CREATE | OP_CREATE2 | OP_CREATE_CONTAINER | OP_CREATE_TTL => {
            let path = reader.text()?;
            let data = reader.buffer()?;
            let list = decode_list(reader)?;
            let mode = decode_mode(reader.int()?);
            if op == OP_CREATE_TTL {
                reader.long()?;
            }
            let with_stat = op == OP_CREATE2;
            let write = |mode| WriteRequest::Create { create: Create { path, data, mode }, list, with_stat };
            mode.map(write)
        }
        OP_DELETE => {
            let path = reader.text()?;
            Ok(WriteRequest::Other(Operation::Delete { path, version: Some(reader.int()?) }))
        }
        OP_SET_DATA => {
            let path = reader.text()?;
            let data = reader.buffer()?;
            Ok(WriteRequest::Other(Operation::Set { path, data, version: Some(reader.int()?) }))
        }
        OP_CHECK => {
            let path = reader.text()?;
            Ok(WriteRequest::Other(Operation::Check { path, version: reader.int()? }))
        }
        _ => return Err(Malformed),
    })
}

fn decode_mode(flags: i32) -> Result<CreateMode, i32> {
    match flags {
        0 => Ok(CreateMode::Persistent),
        1 => Ok(CreateMode::Ephemeral),
        2 => Ok(CreateMode::PersistentSequential),
        3 => Ok(CreateMode::EphemeralSequential),
        // A container, and nodes with a time to live.
        4..=6 => Err(CODE_UNIMPLEMENTED),
        _ => Err(CODE_BAD_ARGUMENTS),
    }
}

/// A null list reads as an empty one, and both are refused.
fn decode_list(reader: &mut Reader) -> Result<Vec<AccessEntry>, Malformed> {
    // Permissions and two lengths.
    let count = reader.count(12)?;
    let entry = |_| {
        let permissions = reader.int()?;
        Ok(AccessEntry { permissions, identity: Identity { scheme: reader.text()?, id: reader.text()? } })
    };
    (0..count).map(entry).collect()
}

fn decode_multi(reader: &mut Reader) -> Result<Request, Malformed> {
    let (mut members, mut refused) = (Vec::new(), None);
    let mut count = 0;
    while let Some(op) = decode_multi_header(reader)? {
        match decode_write(op, reader)? {
            Ok(write) => members.push(write),
            Err(code) => refused = refused.or(Some((count, code))),
        }
        count += 1;
    }
    Ok(Request::Multi { members, refused })
}

fn decode_multi_read(reader: &mut Reader) -> Result<Request, Malformed> {
    let mut members = Vec::new();
    while let Some(op) = decode_multi_header(reader)? {
        let path = reader.text()?;
        // One-shot watches are not set by a multi.
        reader.boolean()?;
        members.push(match op {
            OP_GET_DATA => ReadRequest::GetData(path),
            OP_GET_CHILDREN => ReadRequest::GetChildren(path),
            _ => return Err(Malformed),
        });
    }
    Ok(Request::MultiRead(members))
}

/// What the next member is; `None` = there is none.
fn decode_multi_header(reader: &mut Reader) -> Result<Option<i32>, Malformed> {
    let op = reader.int()?;
    let is_last = reader.boolean()?;
    reader.int()?;
    Ok((!is_last).then_some(op))
}

fn decode_set_watches(op: i32, reader: &mut Reader) -> Result<Request, Malformed> {
    let set = SetWatches {
        seen_zxid: reader.long()?,
        data: reader.texts()?,
        exists: reader.texts()?,
        children: reader.texts()?,
    };
    if op == OP_SET_WATCHES2 && !(reader.texts()?.is_empty() && reader.texts()?.is_empty()) {
        // Persistent ones, which nobody can have set here.
        return Ok(Request::Refused(CODE_UNIMPLEMENTED));
    }
    Ok(Request::SetWatches(set))
}

/// A whole frame: the header and, where there is no error, the body.
pub(super) fn answer(xid: i32, zxid: i64, code: i32, body: Writer) -> Bytes {
    let mut writer = Writer::default();
    writer.int(xid);
    writer.long(zxid);
    writer.int(code);
    if code == CODE_OK {
        writer.append(&body);
    }
    framed(writer)
}

fn framed(body: Writer) -> Bytes {
    let mut frame = Writer::default();
    frame.int(i32::try_from(body.len()).unwrap_or(i32::MAX));
    frame.append(&body);
    frame.finish()
}

/// "Connected", the state that every event of a watch carries.
const STATE_CONNECTED: i32 = 3;

pub(super) fn event(event: &StoreEvent) -> Bytes {
    let mut body = Writer::default();
    body.int(match event.kind {
        WatchKind::Created => 1,
        WatchKind::Deleted => 2,
        WatchKind::DataChanged => 3,
        WatchKind::ChildrenChanged => 4,
        // No event of a node.
        WatchKind::SessionExpired => -1,
    });
    body.int(STATE_CONNECTED);
    body.text(&event.path);
    answer(XID_EVENT, -1, CODE_OK, body)
}

/// How a single write is answered. `with_stat` is what a creation asked for.
pub(super) fn put_result(result: &OperationResult, with_stat: bool, body: &mut Writer) {
    match result {
        OperationResult::Created { path, stat } => {
            body.text(path);
            if with_stat {
                body.stat(stat);
            }
        }
        OperationResult::Set(stat) => body.stat(stat),
        OperationResult::Deleted | OperationResult::Checked => {}
    }
}

/// `with_stat` has an entry for each member.
pub(super) fn put_multi(results: &[OperationResult], with_stat: &[bool], body: &mut Writer) {
    for (result, with_stat) in results.iter().zip(with_stat) {
        let op = match result {
            OperationResult::Created { .. } if *with_stat => OP_CREATE2,
            OperationResult::Created { .. } => OP_CREATE,
            OperationResult::Set(_) => OP_SET_DATA,
            OperationResult::Deleted => OP_DELETE,
            OperationResult::Checked => OP_CHECK,
        };
        put_multi_header(op, CODE_OK, body);
        put_result(result, *with_stat, body);
    }
    put_multi_end(body);
}

/// A multi of which one member was refused.
pub(super) fn put_refused_multi(count: usize, refused: usize, code: i32, body: &mut Writer) {
    for at in 0..count {
        let code = match at.cmp(&refused) {
            std::cmp::Ordering::Less => CODE_OK,
            std::cmp::Ordering::Equal => code,
            std::cmp::Ordering::Greater => CODE_NOT_REACHED,
        };
        put_multi_error(code, body);
    }
    put_multi_end(body);
}

pub(super) fn put_multi_error(code: i32, body: &mut Writer) {
    put_multi_header(OP_ERROR, code, body);
    body.int(code);
}

pub(super) fn put_multi_header(op: i32, code: i32, body: &mut Writer) {
    body.int(op);
    body.boolean(false);
    body.int(code);
}

pub(super) fn put_multi_end(body: &mut Writer) {
    body.int(OP_ERROR);
    body.boolean(true);
    body.int(-1);
}

/// `masks`: who may not change the list does not see the hashes of passwords.
pub(super) fn put_list(list: &AccessList, masks: bool, body: &mut Writer) {
    body.int(i32::try_from(list.entries().len()).unwrap_or(i32::MAX));
    for AccessEntry { permissions, identity: Identity { scheme, id } } in list.entries() {
        body.int(*permissions);
        body.text(scheme);
        match (masks && scheme == "digest", id.split_once(':')) {
            (true, Some((user, _))) => body.text(&format!("{user}:x")),
            _ => body.text(id),
        }
    }
}

/// What a client is told of a refusal; `None` = nothing, the connection ends: the store itself is going.
pub(super) fn code_of(error: &StoreError) -> Option<i32> {
    Some(match error {
        StoreError::NoNode { .. } => CODE_NO_NODE,
        StoreError::NodeExists { .. } => CODE_NODE_EXISTS,
        StoreError::BadVersion { .. } => CODE_BAD_VERSION,
        StoreError::NotEmpty { .. } => CODE_NOT_EMPTY,
        StoreError::NoChildrenForEphemerals { .. } => CODE_NO_CHILDREN_FOR_EPHEMERALS,
        StoreError::BadArguments { .. } => CODE_BAD_ARGUMENTS,
        StoreError::NotAuthorized { .. } => CODE_NOT_AUTHORIZED,
        StoreError::InvalidAcl { .. } => CODE_INVALID_ACL,
        StoreError::NoSpace | StoreError::TooLarge { .. } => CODE_SYSTEM_ERROR,
        // A session that is over learns it when it connects again, as from a ZooKeeper.
        StoreError::SessionExpired | StoreError::Failed { .. } | StoreError::OutcomeUnknown { .. } => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_are_not_told_of_read_only_servers() {
        let mut body = Writer::default();
        body.int(0);
        body.long(7);
        body.int(6_000);
        body.long(0);
        body.buffer(Some(&[0; 16]));
        let old = ConnectRequest::decode(body.finish()).unwrap();
        assert!(!old.knows_read_only);
        let (told, new) =
            (connected(&old, 6_000, 1, &[0; 16]), ConnectRequest { knows_read_only: true, ..old });
        assert_eq!((told.len(), connected(&new, 6_000, 1, &[0; 16]).len()), (40, 41));
    }

    #[test]
    fn whatever_a_frame_holds_it_is_read_or_refused() {
        for op in -20..120 {
            for length in 0..40usize {
                for fill in [0u8, 1, 0x7f, 0xff] {
                    let mut frame = vec![0, 0, 0, 1];
                    frame.extend_from_slice(&i32::to_be_bytes(op));
                    frame.extend(std::iter::repeat_n(fill, length));
                    assert_eq!(decode(frame.into()).map(|(xid, _)| xid), Ok(1));
                }
            }
        }
        assert_eq!(decode(Bytes::from_static(b"\0\0\0")), Err(Malformed));
    }

    #[test]
    fn lists_that_lie_about_their_length_reserve_nothing() {
        let mut frame = Writer::default();
        frame.int(1);
        frame.int(OP_SET_ACL);
        frame.text("/a");
        frame.int(i32::MAX);
        let (_, request) = decode(frame.finish()).unwrap();
        assert_eq!(request, Err(Malformed));
    }
}
