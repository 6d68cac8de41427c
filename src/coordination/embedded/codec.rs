//! Transactions and nodes as bytes.
//!
//! Integers are LEB128 varints, zigzag where they may be negative; text and data carry their length, and data
//! one more than it, so that 0 is null. What is read was checked by a CRC before, so a refusal means damage
//! that the CRC does not see or a file from a newer version.

use bytes::Bytes;

use crate::coordination::access::{AccessEntry, AccessList, Identity, NodeAccess};
use crate::coordination::store::{Create, CreateMode, Operation};
use crate::coordination::tree::{GuardedOperation, NodeRecord, Request, SessionTerms, Transaction};
use crate::model::Timestamp;

/// The bytes are not what this version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undecodable;

const CREATE: u8 = 0;
const SET: u8 = 1;
const DELETE: u8 = 2;
const CHECK: u8 = 3;
const CREATE_GUARDED: u8 = 4;
const SET_ACCESS: u8 = 5;

/// The count of operations that stands for the end of a session, for its beginning, and for operations with access
/// lists, whose count follows.
const CLOSE_SESSION: u64 = 0;
const OPEN_SESSION: u64 = u64::MAX;
const GUARDED: u64 = u64::MAX - 1;

/// What a record of a snapshot is, since version 2 of its form; before, all were nodes and did not say it.
const NODE: u8 = 0;
const GUARDED_NODE: u8 = 1;
const SESSION: u8 = 2;

/// A record of a snapshot.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Node(NodeRecord<'a>),
    Session(i64, SessionTerms),
}

pub(super) fn put_transaction(out: &mut Vec<u8>, transaction: &Transaction) {
    put_signed(out, transaction.zxid);
    put_signed(out, transaction.time.0);
    put_signed(out, transaction.session);
    match &transaction.request {
        Request::CloseSession => put_unsigned(out, CLOSE_SESSION),
        Request::Operations(operations) => {
            // One more than there are, so that an empty list differs from the end of a session.
            put_unsigned(out, operations.len() as u64 + 1);
            operations.iter().for_each(|operation| put_operation(out, operation));
        }
        Request::Guarded(operations) => {
            put_unsigned(out, GUARDED);
            put_unsigned(out, operations.len() as u64);
            operations.iter().for_each(|operation| put_guarded_operation(out, operation));
        }
        Request::OpenSession(terms) => {
            put_unsigned(out, OPEN_SESSION);
            put_terms(out, terms);
        }
    }
}

fn put_terms(out: &mut Vec<u8>, terms: &SessionTerms) {
    put_signed(out, terms.timeout_ms.into());
    out.extend_from_slice(&terms.password);
}

fn put_guarded_operation(out: &mut Vec<u8>, operation: &GuardedOperation) {
    match operation {
        GuardedOperation::Open(operation) => put_operation(out, operation),
        GuardedOperation::Create(Create { path, data, mode }, list) => {
            out.push(CREATE_GUARDED);
            put_text(out, path);
            put_data(out, data.as_deref());
            put_mode(out, *mode);
            put_list(out, list.as_ref());
        }
        GuardedOperation::SetAccess { path, list, version } => {
            out.push(SET_ACCESS);
            put_text(out, path);
            put_list(out, list.as_ref());
            put_version(out, *version);
        }
    }
}

/// No entries stand for no list.
fn put_list(out: &mut Vec<u8>, list: Option<&AccessList>) {
    let entries = list.map_or(&[][..], AccessList::entries);
    put_unsigned(out, entries.len() as u64);
    for AccessEntry { permissions, identity } in entries {
        put_signed(out, (*permissions).into());
        put_text(out, &identity.scheme);
        put_text(out, &identity.id);
    }
}

fn put_mode(out: &mut Vec<u8>, mode: CreateMode) {
    out.push(match mode {
        CreateMode::Persistent => 0,
        CreateMode::Ephemeral => 1,
        CreateMode::PersistentSequential => 2,
        CreateMode::EphemeralSequential => 3,
    });
}

fn put_operation(out: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Create(Create { path, data, mode }) => {
            out.push(CREATE);
            put_text(out, path);
            put_data(out, data.as_deref());
            put_mode(out, *mode);
        }
        Operation::Set { path, data, version } => {
            out.push(SET);
            put_text(out, path);
            put_data(out, data.as_deref());
            put_version(out, *version);
        }
        Operation::Delete { path, version } => {
            out.push(DELETE);
            put_text(out, path);
            put_version(out, *version);
        }
        Operation::Check { path, version } => {
            out.push(CHECK);
            put_text(out, path);
            put_version(out, Some(*version));
        }
    }
}

pub(super) fn put_session(out: &mut Vec<u8>, session: i64, terms: &SessionTerms) {
    out.push(SESSION);
    put_signed(out, session);
    put_terms(out, terms);
}

pub(super) fn put_node(out: &mut Vec<u8>, node: &NodeRecord<'_>) {
    out.push(if node.access.is_some() { GUARDED_NODE } else { NODE });
    put_unsigned(out, node.depth as u64);
    put_text(out, node.name);
    put_data(out, node.data);
    for number in [node.czxid, node.mzxid, node.pzxid, node.created.0, node.modified.0, node.owner] {
        put_signed(out, number);
    }
    put_signed(out, node.version.into());
    put_signed(out, node.creations.into());
    if let Some(NodeAccess { list, version }) = &node.access {
        put_list(out, Some(list));
        put_signed(out, (*version).into());
    }
}

fn put_unsigned(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_unsigned(out, ((number << 1) ^ (number >> 63)) as u64);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_unsigned(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_data(out: &mut Vec<u8>, data: Option<&[u8]>) {
    put_unsigned(out, data.map_or(0, |data| data.len() as u64 + 1));
    out.extend_from_slice(data.unwrap_or_default());
}

fn put_version(out: &mut Vec<u8>, version: Option<i32>) {
    put_signed(out, version.unwrap_or(-1).into());
}

/// Reads what the functions above wrote, from the front of a slice.
#[derive(Debug)]
pub(super) struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn transaction(&mut self) -> Result<Transaction, Undecodable> {
        let zxid = self.signed()?;
        let time = Timestamp(self.signed()?);
        let session = self.signed()?;
        let request = match self.unsigned()? {
            CLOSE_SESSION => Request::CloseSession,
            OPEN_SESSION => Request::OpenSession(self.terms()?),
            GUARDED => {
                let count = self.count()?;
                Request::Guarded((0..count).map(|_| self.guarded_operation()).collect::<Result<_, _>>()?)
            }
            // An operation takes at least three bytes, so the count cannot reserve much more than was read.
            count if count > self.0.len() as u64 + 1 => return Err(Undecodable),
            count => Request::Operations((1..count).map(|_| self.operation()).collect::<Result<_, _>>()?),
        };
        Ok(Transaction { zxid, time, session, request })
    }

    fn terms(&mut self) -> Result<SessionTerms, Undecodable> {
        let timeout_ms = self.signed_32()?;
        let password = self.slice(16)?.try_into().map_err(|_| Undecodable)?;
        Ok(SessionTerms { timeout_ms, password })
    }

    fn guarded_operation(&mut self) -> Result<GuardedOperation, Undecodable> {
        match self.0.first() {
            Some(&CREATE_GUARDED) => {
                self.byte()?;
                let path = self.text()?.to_owned();
                let create = Create { path, data: self.owned_data()?, mode: self.mode()? };
                Ok(GuardedOperation::Create(create, self.list()?))
            }
            Some(&SET_ACCESS) => {
                self.byte()?;
                let path = self.text()?.to_owned();
                Ok(GuardedOperation::SetAccess { path, list: self.list()?, version: self.version()? })
            }
            _ => self.operation().map(GuardedOperation::Open),
        }
    }

    fn list(&mut self) -> Result<Option<AccessList>, Undecodable> {
        let count = self.count()?;
        let entry = |_| {
            Ok(AccessEntry {
                permissions: self.signed_32()?,
                identity: Identity { scheme: self.text()?.to_owned(), id: self.text()?.to_owned() },
            })
        };
        Ok(AccessList::of((0..count).map(entry).collect::<Result<_, _>>()?))
    }

    /// Of things that take at least a byte each.
    fn count(&mut self) -> Result<u64, Undecodable> {
        self.unsigned()
            .and_then(|count| if count > self.0.len() as u64 { Err(Undecodable) } else { Ok(count) })
    }

    fn operation(&mut self) -> Result<Operation, Undecodable> {
        let kind = self.byte()?;
        let path = self.text()?.to_owned();
        Ok(match kind {
            CREATE => Operation::Create(Create { path, data: self.owned_data()?, mode: self.mode()? }),
            SET => Operation::Set { path, data: self.owned_data()?, version: self.version()? },
            DELETE => Operation::Delete { path, version: self.version()? },
            CHECK => Operation::Check { path, version: self.version()?.unwrap_or(-1) },
            _ => return Err(Undecodable),
        })
    }

    fn mode(&mut self) -> Result<CreateMode, Undecodable> {
        Ok(match self.byte()? {
            0 => CreateMode::Persistent,
            1 => CreateMode::Ephemeral,
            2 => CreateMode::PersistentSequential,
            3 => CreateMode::EphemeralSequential,
            _ => return Err(Undecodable),
        })
    }

    /// `version`: that of the file's form.
    pub(super) fn record(&mut self, version: u32) -> Result<Record<'a>, Undecodable> {
        if version == 1 {
            return self.node().map(Record::Node);
        }
        match self.byte()? {
            NODE => self.node().map(Record::Node),
            GUARDED_NODE => {
                let node = self.node()?;
                let list = self.list()?.ok_or(Undecodable)?;
                let access = Some(NodeAccess { list, version: self.signed_32()? });
                Ok(Record::Node(NodeRecord { access, ..node }))
            }
            SESSION => Ok(Record::Session(self.signed()?, self.terms()?)),
            _ => Err(Undecodable),
        }
    }

    fn node(&mut self) -> Result<NodeRecord<'a>, Undecodable> {
        Ok(NodeRecord {
            depth: usize::try_from(self.unsigned()?).map_err(|_| Undecodable)?,
            name: self.text()?,
            data: self.data()?,
            czxid: self.signed()?,
            mzxid: self.signed()?,
            pzxid: self.signed()?,
            created: Timestamp(self.signed()?),
            modified: Timestamp(self.signed()?),
            owner: self.signed()?,
            version: self.signed_32()?,
            creations: self.signed_32()?,
            access: None,
        })
    }

    fn byte(&mut self) -> Result<u8, Undecodable> {
        let (&byte, rest) = self.0.split_first().ok_or(Undecodable)?;
        self.0 = rest;
        Ok(byte)
    }

    fn unsigned(&mut self) -> Result<u64, Undecodable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Undecodable)
    }

    fn signed(&mut self) -> Result<i64, Undecodable> {
        let number = self.unsigned()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn signed_32(&mut self) -> Result<i32, Undecodable> {
        i32::try_from(self.signed()?).map_err(|_| Undecodable)
    }

    fn version(&mut self) -> Result<Option<i32>, Undecodable> {
        Ok(Some(self.signed_32()?).filter(|&version| version != -1))
    }

    fn slice(&mut self, size: u64) -> Result<&'a [u8], Undecodable> {
        let size = usize::try_from(size).map_err(|_| Undecodable)?;
        let (slice, rest) = self.0.split_at_checked(size).ok_or(Undecodable)?;
        self.0 = rest;
        Ok(slice)
    }

    fn text(&mut self) -> Result<&'a str, Undecodable> {
        let size = self.unsigned()?;
        std::str::from_utf8(self.slice(size)?).map_err(|_| Undecodable)
    }

    fn data(&mut self) -> Result<Option<&'a [u8]>, Undecodable> {
        match self.unsigned()? {
            0 => Ok(None),
            size => self.slice(size - 1).map(Some),
        }
    }

    fn owned_data(&mut self) -> Result<Option<Bytes>, Undecodable> {
        Ok(self.data()?.map(Bytes::copy_from_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: Request) {
        let transaction = Transaction { zxid: i64::MAX, time: Timestamp(-1), session: i64::MIN, request };
        let mut bytes = Vec::new();
        put_transaction(&mut bytes, &transaction);
        let mut input = Input(&bytes);
        assert_eq!(input.transaction().as_ref(), Ok(&transaction));
        assert!(input.is_empty());
        for cut in 0..bytes.len() {
            assert_eq!(Input(&bytes[..cut]).transaction(), Err(Undecodable), "cut at {cut}");
        }
    }

    #[test]
    fn transactions_are_read_as_written() {
        let path = "/a/ä".to_owned();
        let data = Some(Bytes::from_static(b"\0\xff"));
        check(Request::CloseSession);
        check(Request::Operations(Vec::new()));
        check(Request::Operations(vec![
            Operation::Create(Create {
                path: path.clone(),
                data: None,
                mode: CreateMode::EphemeralSequential,
            }),
            Operation::Create(Create {
                path: path.clone(),
                data: data.clone(),
                mode: CreateMode::Persistent,
            }),
            Operation::Set { path: path.clone(), data: Some(Bytes::new()), version: None },
            Operation::Set { path: path.clone(), data, version: Some(i32::MAX) },
            Operation::Delete { path: path.clone(), version: Some(0) },
            Operation::Check { path: path.clone(), version: i32::MIN },
        ]));
        let identity = Identity { scheme: "digest".to_owned(), id: "a:b".to_owned() };
        let list = AccessList::of(vec![AccessEntry { permissions: 31, identity }]);
        check(Request::OpenSession(SessionTerms { timeout_ms: 6_000, password: [7; 16] }));
        check(Request::Guarded(Vec::new()));
        check(Request::Guarded(vec![
            GuardedOperation::Open(Operation::Check { path: path.clone(), version: 1 }),
            GuardedOperation::Create(
                Create { path: path.clone(), data: None, mode: CreateMode::Persistent },
                list.clone(),
            ),
            GuardedOperation::SetAccess { path, list, version: None },
        ]));
    }

    #[test]
    fn counts_and_lengths_beyond_the_input_are_refused() {
        let mut bytes = vec![0, 0, 0];
        put_unsigned(&mut bytes, u64::MAX - 7);
        assert_eq!(Input(&bytes).transaction(), Err(Undecodable));
        assert_eq!(Input(&[0xff; 16]).node().map(|_| ()), Err(Undecodable));
    }
}
