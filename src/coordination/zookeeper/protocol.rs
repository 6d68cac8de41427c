//! ZooKeeper's client protocol: requests to bytes, bytes to answers.
//!
//! Paths on this side of it carry the chroot.

use bytes::Bytes;

use super::acl::AclPolicy;
use crate::coordination::codes::*;
use crate::coordination::jute::{Malformed, Reader, Writer};
use crate::coordination::store::{
    Create, CreateMode, NodeData, Operation, OperationResult, Stat, StoreError,
};

/// What a session asks for.
#[derive(Debug)]
pub(super) enum Request {
    One(Operation),
    Multi(Vec<Operation>),
    Read { path: String, watch: bool },
    Exists { path: String, watch: bool },
    Children { path: String, watch: bool },
    Close,
}

/// How an answer is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    Created,
    Stat,
    /// A stat, where there is such a node.
    Exists,
    Nothing,
    Data,
    Children,
    Multi,
}

#[derive(Debug)]
pub(super) enum Answer {
    Created(String, Stat),
    Stat(Stat),
    /// There is no such node.
    Absent,
    Nothing,
    Data(NodeData),
    Children(Vec<String>),
    Multi(Vec<MultiAnswer>),
}

/// One member of a multi; a refused multi has a code in one of them.
#[derive(Debug)]
pub(super) enum MultiAnswer {
    Done(OperationResult),
    Refused(i32),
}

/// The type of a request and what follows it.
#[derive(Debug)]
pub(super) struct Encoded {
    pub op: i32,
    pub body: Bytes,
    pub kind: AnswerKind,
}

impl Request {
    /// `chroot` stands before every path.
    pub fn encode(&self, chroot: &str, acl: AclPolicy) -> Encoded {
        let mut body = Writer::default();
        let (op, kind) = match self {
            Request::One(operation) => put_operation(operation, chroot, acl, &mut body),
            Request::Multi(operations) => {
                for operation in operations {
                    let mut member = Writer::default();
                    let (op, _) = put_operation(operation, chroot, acl, &mut member);
                    put_multi_header(op, false, &mut body);
                    body.append(&member);
                }
                put_multi_header(OP_ERROR, true, &mut body);
                (OP_MULTI, AnswerKind::Multi)
            }
            Request::Read { path, watch } => {
                put_read(path, *watch, chroot, &mut body);
                (OP_GET_DATA, AnswerKind::Data)
            }
            Request::Exists { path, watch } => {
                put_read(path, *watch, chroot, &mut body);
                (OP_EXISTS, AnswerKind::Exists)
            }
            Request::Children { path, watch } => {
                put_read(path, *watch, chroot, &mut body);
                (OP_GET_CHILDREN, AnswerKind::Children)
            }
            Request::Close => (OP_CLOSE, AnswerKind::Nothing),
        };
        Encoded { op, body: body.finish(), kind }
    }
}

fn put_operation(
    operation: &Operation,
    chroot: &str,
    acl: AclPolicy,
    body: &mut Writer,
) -> (i32, AnswerKind) {
    match operation {
        Operation::Create(Create { path, data, mode }) => {
            body.text(&below(chroot, path));
            body.buffer(data.as_deref());
            acl.write(path, body);
            body.int(match mode {
                CreateMode::Persistent => 0,
                CreateMode::Ephemeral => 1,
                CreateMode::PersistentSequential => 2,
                CreateMode::EphemeralSequential => 3,
            });
            (OP_CREATE2, AnswerKind::Created)
        }
        Operation::Set { path, data, version } => {
            body.text(&below(chroot, path));
            body.buffer(data.as_deref());
            body.int(version.unwrap_or(-1));
            (OP_SET_DATA, AnswerKind::Stat)
        }
        Operation::Delete { path, version } => {
            body.text(&below(chroot, path));
            body.int(version.unwrap_or(-1));
            (OP_DELETE, AnswerKind::Nothing)
        }
        Operation::Check { path, version } => {
            body.text(&below(chroot, path));
            body.int(*version);
            (OP_CHECK, AnswerKind::Nothing)
        }
    }
}

fn put_multi_header(op: i32, is_last: bool, body: &mut Writer) {
    body.int(op);
    body.boolean(is_last);
    body.int(-1);
}

fn put_read(path: &str, watch: bool, chroot: &str, body: &mut Writer) {
    body.text(&below(chroot, path));
    body.boolean(watch);
}

/// The path as the ensemble knows it.
pub(super) fn below(chroot: &str, path: &str) -> String {
    match (chroot, path) {
        ("", path) => path.to_owned(),
        (chroot, "/") => chroot.to_owned(),
        (chroot, path) => format!("{chroot}{path}"),
    }
}

/// The path as the session's user knows it; `None` = outside of the chroot.
pub(super) fn above<'a>(chroot: &str, path: &'a str) -> Option<&'a str> {
    match path.strip_prefix(chroot)? {
        "" => Some("/"),
        rest if rest.starts_with('/') => Some(rest),
        _ => None,
    }
}

/// A whole frame, with its length.
pub(super) fn frame(xid: i32, op: i32, body: &[u8]) -> Bytes {
    let mut writer = Writer::default();
    writer.int(i32::try_from(body.len() + 8).unwrap_or(i32::MAX));
    writer.int(xid);
    writer.int(op);
    writer.raw(body);
    writer.finish()
}

pub(super) fn ping() -> Bytes {
    frame(XID_PING, OP_PING, &[])
}

pub(super) fn auth(scheme: &str, id: &[u8]) -> Bytes {
    let mut body = Writer::default();
    body.int(0);
    body.text(scheme);
    body.buffer(Some(id));
    frame(XID_AUTH, OP_AUTH, &body.finish())
}

/// A token of a SASL exchange; empty = the client begins, and has nothing to say yet.
pub(super) fn sasl(token: &[u8]) -> Bytes {
    let mut body = Writer::default();
    body.buffer(Some(token));
    frame(XID_SASL, OP_SASL, &body.finish())
}

/// Sets watches of an earlier connection again. Those that would have fired since `seen_zxid` fire.
pub(super) fn set_watches(seen_zxid: i64, data: &[&str], exists: &[&str], children: &[&str]) -> Bytes {
    let mut body = Writer::default();
    body.long(seen_zxid);
    for paths in [data, exists, children] {
        body.texts(paths.iter().copied());
    }
    frame(XID_SET_WATCHES, OP_SET_WATCHES, &body.finish())
}

/// Begins a connection.
pub(super) fn connect(seen_zxid: i64, timeout_ms: i32, session: i64, password: &[u8]) -> Bytes {
    let mut body = Writer::default();
    body.int(0);
    body.long(seen_zxid);
    body.int(timeout_ms);
    body.long(session);
    body.buffer(Some(password));
    body.boolean(false);
    let body = body.finish();
    let mut framed = Writer::default();
    framed.int(i32::try_from(body.len()).unwrap_or(i32::MAX));
    framed.raw(&body);
    framed.finish()
}

/// What a server says when a session begins or goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connected {
    /// What was negotiated; 0 or less = the session that was asked for has expired.
    pub timeout_ms: i32,
    pub session: i64,
    pub password: Bytes,
}

impl Connected {
    pub fn decode(frame: Bytes) -> Result<Connected, Malformed> {
        let mut reader = Reader::new(frame);
        reader.int()?;
        let timeout_ms = reader.int()?;
        let session = reader.long()?;
        Ok(Connected { timeout_ms, session, password: reader.buffer()?.unwrap_or_default() })
    }
}

/// The beginning of every frame from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyHeader {
    pub xid: i32,
    /// The last transaction the server has seen; 0 or less = not told.
    pub zxid: i64,
    pub code: i32,
}

impl ReplyHeader {
    pub fn decode(reader: &mut Reader) -> Result<ReplyHeader, Malformed> {
        Ok(ReplyHeader { xid: reader.int()?, zxid: reader.long()?, code: reader.int()? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
    /// About the session, or unknown: no watch.
    Other,
}

pub(super) fn decode_event(reader: &mut Reader) -> Result<(EventKind, String), Malformed> {
    let kind = match reader.int()? {
        1 => EventKind::Created,
        2 => EventKind::Deleted,
        3 => EventKind::DataChanged,
        4 => EventKind::ChildrenChanged,
        _ => EventKind::Other,
    };
    reader.int()?;
    Ok((kind, reader.text()?))
}

pub(super) fn decode_answer(
    kind: AnswerKind,
    chroot: &str,
    reader: &mut Reader,
) -> Result<Answer, Malformed> {
    Ok(match kind {
        AnswerKind::Created => {
            let path = created_path(chroot, reader)?;
            Answer::Created(path, reader.stat()?)
        }
        AnswerKind::Stat | AnswerKind::Exists => Answer::Stat(reader.stat()?),
        AnswerKind::Nothing => Answer::Nothing,
        AnswerKind::Data => {
            let data = reader.buffer()?;
            Answer::Data(NodeData { data, stat: reader.stat()? })
        }
        AnswerKind::Children => Answer::Children(reader.texts()?),
        AnswerKind::Multi => Answer::Multi(decode_multi(chroot, reader)?),
    })
}

fn decode_multi(chroot: &str, reader: &mut Reader) -> Result<Vec<MultiAnswer>, Malformed> {
    let mut answers = Vec::new();
    loop {
        let op = reader.int()?;
        let is_last = reader.boolean()?;
        reader.int()?;
        if is_last {
            return Ok(answers);
        }
        answers.push(match op {
            OP_CREATE2 => {
                let path = created_path(chroot, reader)?;
                MultiAnswer::Done(OperationResult::Created { path, stat: reader.stat()? })
            }
            OP_SET_DATA => MultiAnswer::Done(OperationResult::Set(reader.stat()?)),
            OP_DELETE => MultiAnswer::Done(OperationResult::Deleted),
            OP_CHECK => MultiAnswer::Done(OperationResult::Checked),
            OP_ERROR => MultiAnswer::Refused(reader.int()?),
            _ => return Err(Malformed),
        });
    }
}

fn created_path(chroot: &str, reader: &mut Reader) -> Result<String, Malformed> {
    let path = reader.text()?;
    Ok(above(chroot, &path).ok_or(Malformed)?.to_owned())
}

/// All results, or the member that was refused, by its position, with its code.
pub(super) fn outcome_of_multi(answers: Vec<MultiAnswer>) -> Result<Vec<OperationResult>, (usize, i32)> {
    let mut results = Vec::with_capacity(answers.len());
    let mut refused = None;
    for (at, answer) in answers.into_iter().enumerate() {
        match answer {
            MultiAnswer::Done(result) => results.push(result),
            // Members before the one that was refused say "ok", those after it "not reached".
            MultiAnswer::Refused(CODE_OK | CODE_NOT_REACHED) => {
                refused = refused.or(Some((at, CODE_NOT_REACHED)));
            }
            MultiAnswer::Refused(code) => return Err((at, code)),
        }
    }
    match refused {
        Some(refused) => Err(refused),
        None => Ok(results),
    }
}

/// What a server's code says about a node.
pub(super) fn refusal(code: i32, path: &str) -> StoreError {
    let path = path.to_owned();
    match code {
        CODE_NO_NODE => StoreError::NoNode { path },
        CODE_BAD_ARGUMENTS => StoreError::BadArguments { path },
        CODE_NOT_AUTHORIZED | CODE_AUTH_FAILED => StoreError::NotAuthorized { path },
        CODE_INVALID_ACL => StoreError::InvalidAcl { path },
        CODE_BAD_VERSION => StoreError::BadVersion { path },
        CODE_NO_CHILDREN_FOR_EPHEMERALS => StoreError::NoChildrenForEphemerals { path },
        CODE_NODE_EXISTS => StoreError::NodeExists { path },
        CODE_NOT_EMPTY => StoreError::NotEmpty { path },
        CODE_SESSION_EXPIRED => StoreError::SessionExpired,
        code => StoreError::OutcomeUnknown { reason: format!("ZooKeeper answers with code {code}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_gain_and_lose_the_chroot() {
        for (chroot, path, whole) in
            [("", "/a", "/a"), ("", "/", "/"), ("/k", "/", "/k"), ("/k/l", "/a/b", "/k/l/a/b")]
        {
            assert_eq!(below(chroot, path), whole);
            assert_eq!(above(chroot, whole), Some(path));
        }
        assert_eq!(above("/k", "/kl"), None);
    }

    #[test]
    fn a_read_is_encoded_as_zookeeper_reads_it() {
        let encoded = Request::Read { path: "/a".into(), watch: true }.encode("/k", AclPolicy::Open);
        assert_eq!((encoded.op, &encoded.body[..]), (4, &b"\0\0\0\x04/k/a\x01"[..]));
        let framed = frame(7, encoded.op, &encoded.body);
        assert_eq!(framed[..12], [0, 0, 0, 17, 0, 0, 0, 7, 0, 0, 0, 4]);
    }

    #[test]
    fn a_refused_multi_names_its_member() {
        let refused = |codes: &[i32]| {
            outcome_of_multi(codes.iter().map(|&code| MultiAnswer::Refused(code)).collect()).unwrap_err()
        };
        assert_eq!(refused(&[0, -103, -2]), (1, -103));
        assert_eq!(refused(&[-101, -2]), (0, -101));
        let done = vec![MultiAnswer::Done(OperationResult::Checked)];
        assert_eq!(outcome_of_multi(done), Ok(vec![OperationResult::Checked]));
    }
}
