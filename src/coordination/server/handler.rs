use std::sync::Arc;

use tokio::time::Instant;

use super::outbox::{Outbox, Owed, SMALL_ANSWER_BYTES};
use super::protocol::{self, ReadRequest, Request, SetWatches, WriteRequest, code_of};
use crate::coordination::access::{self, Access, AccessList, Identity};
use crate::coordination::codes::*;
use crate::coordination::database::Database;
use crate::coordination::embedded::RemoteStore;
use crate::coordination::jute::{Malformed, Writer};
use crate::coordination::link_watches::{LinkId, TooManyWatches, WatchTarget};
use crate::coordination::store::{Create, Operation, StoreError, StoreEvent, WatchKind};
use crate::coordination::tree::{GuardedOperation, Tree};
use crate::coordination::watches::Link;

/// Carries out the requests of one connection. The answers come through its outbox.
#[derive(Debug)]
pub(super) struct Handler {
    pub store: RemoteStore,
    pub session: i64,
    pub link: LinkId,
    pub outbox: Arc<Outbox>,
    /// Who the client is, by its address and by what it told.
    pub identities: Arc<[Identity]>,
}

/// What the connection does after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Request,
    /// The client has ended its session.
    Closed,
}

/// Why a read has no answer with a body.
enum Unread {
    Code(i32),
    /// The client has more watches than it may have: its connection ends.
    TooManyWatches,
}

/// A small request may name a large node many times.
const MULTI_READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Nodes that belong to ZooKeeper itself.
const LASTING_NODES: [&str; 3] = ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"];

impl Handler {
    pub(super) fn handle(&mut self, xid: i32, request: Result<Request, Malformed>) -> Next {
        match request {
            Err(Malformed) => self.refuse(xid, CODE_MALFORMED),
            Ok(Request::Refused(code)) => self.refuse(xid, code),
            Ok(Request::Unknown(code)) => {
                self.refuse(xid, code);
                self.close_in_turn();
            }
            Ok(Request::Ping) => self.read(xid, |_, _| Ok(())),
            Ok(Request::Auth { scheme, credentials }) => self.authenticate(xid, &scheme, &credentials),
            Ok(Request::Write(write)) => self.write(xid, write),
            Ok(Request::Multi { members, refused }) => self.multi(xid, members, refused),
            Ok(Request::SetWatches(set)) => self.set_watches(xid, set),
            Ok(Request::WhoAmI) => self.tell_identities(xid),
            Ok(Request::Close) => {
                self.close_session(xid);
                return Next::Closed;
            }
            Ok(read) => self.read_request(xid, read),
        }
        Next::Request
    }

    fn owe(&self, xid: i32, charged_bytes: usize) -> Owed {
        self.outbox.charge(charged_bytes);
        Owed { xid, since: Instant::now(), charged_bytes }
    }

    fn refuse(&self, xid: i32, code: i32) {
        self.read(xid, move |_, _| Err(Unread::Code(code)));
    }

    /// Closes the connection after the answers that are under way.
    fn close_in_turn(&self) {
        let outbox = Arc::clone(&self.outbox);
        self.store.read(self.session, |_| (), move |_, _| outbox.close());
    }

    fn authenticate(&mut self, xid: i32, scheme: &str, credentials: &[u8]) {
        let identity = match scheme {
            "digest" => access::identity_of_password(credentials),
            // An address is known already.
            "ip" => None,
            _ => {
                self.refuse(xid, CODE_AUTH_FAILED);
                return self.close_in_turn();
            }
        };
        if let Some(identity) = identity.filter(|identity| !self.identities.contains(identity)) {
            self.identities = self.identities.iter().cloned().chain([identity]).collect();
        }
        self.read(xid, |_, _| Ok(()));
    }

    fn write(&self, xid: i32, write: WriteRequest) {
        let with_stat = matches!(&write, WriteRequest::Create { with_stat: true, .. });
        let operation = match self.guarded(write) {
            Ok(operation) => operation,
            Err(code) => return self.refuse(xid, code),
        };
        let owed = self.owe(xid, SMALL_ANSWER_BYTES + path_of(&operation).len());
        let outbox = Arc::clone(&self.outbox);
        self.store.write(self.session, vec![operation], &self.identities, move |zxid, outcome| {
            let mut body = Writer::default();
            let code = match &outcome {
                Ok(results) => {
                    results.iter().for_each(|result| protocol::put_result(result, with_stat, &mut body));
                    Some(CODE_OK)
                }
                Err((_, error)) => code_of(error),
            };
            give(&outbox, owed, zxid, code, body);
        });
    }

    fn multi(&self, xid: i32, members: Vec<WriteRequest>, refused: Option<(usize, i32)>) {
        // The refused members were not kept.
        let count = members.len() + usize::from(refused.is_some());
        let with_stat: Vec<bool> = members
            .iter()
            .map(|member| matches!(member, WriteRequest::Create { with_stat: true, .. }))
            .collect();
        let guarded: Result<Vec<_>, (usize, i32)> = members
            .into_iter()
            .enumerate()
            .map(|(at, member)| self.guarded(member).map_err(|code| (at, code)))
            .collect();
        let operations = match (refused, guarded) {
            (None, Ok(operations)) => operations,
            (Some((at, code)), _) | (None, Err((at, code))) => {
                return self.read(xid, move |_, body| {
                    protocol::put_refused_multi(count, at, code, body);
                    Ok(())
                });
            }
        };
        let paths: usize = operations.iter().map(|operation| path_of(operation).len()).sum();
        let owed = self.owe(xid, SMALL_ANSWER_BYTES + 128 * count + paths);
        let outbox = Arc::clone(&self.outbox);
        self.store.write(self.session, operations, &self.identities, move |zxid, outcome| {
            let mut body = Writer::default();
            let code = match outcome {
                Ok(results) => {
                    protocol::put_multi(&results, &with_stat, &mut body);
                    Some(CODE_OK)
                }
                Err((at, error)) => code_of(&error).map(|code| {
                    protocol::put_refused_multi(count, at, code, &mut body);
                    CODE_OK
                }),
            };
            give(&outbox, owed, zxid, code, body);
        });
    }

    fn guarded(&self, write: WriteRequest) -> Result<GuardedOperation, i32> {
        Ok(match write {
            WriteRequest::Create { create, list, .. } => {
                GuardedOperation::Create(create, AccessList::resolve(list, &self.identities))
            }
            WriteRequest::SetAcl { path, list, version } => {
                let list = AccessList::resolve(list, &self.identities);
                GuardedOperation::SetAccess { path, list, version: Some(version) }
            }
            WriteRequest::Other(Operation::Delete { path, .. }) if LASTING_NODES.contains(&path.as_str()) => {
                return Err(CODE_BAD_ARGUMENTS);
            }
            WriteRequest::Other(operation) => GuardedOperation::Open(operation),
        })
    }

    fn read_request(&self, xid: i32, request: Request) {
        let (identities, link, session) = (Arc::clone(&self.identities), self.link, self.session);
        self.read(xid, move |database, body| {
            let reader = TreeReader { tree: database.tree(), access: Access::Of(&identities) };
            let watch = match request {
                Request::GetData { path, watch } => {
                    reader.data(&path, body)?;
                    watch.then_some((WatchTarget::Node, path))
                }
                Request::GetChildren { path, watch, with_stat } => {
                    reader.children(&path, with_stat, body)?;
                    watch.then_some((WatchTarget::Children, path))
                }
                Request::Exists { path, watch } => {
                    let found = reader.exists(&path, body);
                    // A node that is missing is watched too.
                    if watch {
                        database.link_watches().add(link, WatchTarget::Node, &path)?;
                    }
                    return found;
                }
                Request::GetAcl { path } => return reader.list(&path, body),
                Request::MultiRead(members) => {
                    for member in &members {
                        reader.member(member, body);
                        if body.len() > MULTI_READ_BYTES_MAX {
                            return Err(Unread::Code(CODE_SYSTEM_ERROR));
                        }
                    }
                    protocol::put_multi_end(body);
                    return Ok(());
                }
                Request::CountDescendants { path } => return reader.count_descendants(&path, body),
                Request::GetEphemerals { prefix } => {
                    let paths = database.tree().owned(session, &prefix);
                    body.texts(paths.iter().map(String::as_str));
                    None
                }
                Request::Sync { path } => {
                    body.text(&path);
                    None
                }
                Request::Watches { path, targets, removes } => {
                    let watches = database.link_watches();
                    let mut is_found = false;
                    for &target in targets {
                        is_found |= match removes {
                            true => watches.remove(link, target, &path),
                            false => watches.contains(link, target, &path),
                        };
                    }
                    return if is_found { Ok(()) } else { Err(Unread::Code(CODE_NO_WATCHER)) };
                }
                _ => return Err(Unread::Code(CODE_UNIMPLEMENTED)),
            };
            match watch {
                Some((target, path)) => Ok(database.link_watches().add(link, target, &path)?),
                None => Ok(()),
            }
        });
    }

    /// Reads, and answers in turn with what was read.
    fn read(&self, xid: i32, read: impl FnOnce(&mut Database, &mut Writer) -> Result<(), Unread>) {
        self.read_and_tell(xid, |database, body| read(database, body).map(|()| Vec::new()));
    }

    /// As `read`, where the answer comes after events.
    fn read_and_tell(
        &self,
        xid: i32,
        read: impl FnOnce(&mut Database, &mut Writer) -> Result<Vec<StoreEvent>, Unread>,
    ) {
        let outbox = Arc::clone(&self.outbox);
        let find = |database: &mut Database| {
            let mut body = Writer::default();
            let found = read(database, &mut body);
            (self.owe(xid, SMALL_ANSWER_BYTES + body.len()), found, body)
        };
        self.store.read(self.session, find, move |zxid, found| {
            let Ok((owed, found, body)) = found else { return outbox.close() };
            let code = match found {
                Ok(events) => {
                    events.into_iter().for_each(|event| outbox.tell(event));
                    Some(CODE_OK)
                }
                Err(Unread::Code(code)) => Some(code),
                Err(Unread::TooManyWatches) => None,
            };
            give(&outbox, owed, zxid, code, body);
        });
    }

    fn set_watches(&self, xid: i32, set: SetWatches) {
        let link = self.link;
        self.read_and_tell(xid, move |database, _| {
            let mut missed = Vec::new();
            let SetWatches { seen_zxid, data, exists, children } = set;
            let mut check = |path: String, target, missed_kind: fn(Option<Changed>) -> Option<WatchKind>| {
                let stat = database.tree().exists(&path).ok().flatten();
                let changed = stat
                    .map(|stat| Changed { data: stat.mzxid > seen_zxid, children: stat.pzxid > seen_zxid });
                match missed_kind(changed) {
                    Some(kind) => missed.push(StoreEvent { path, kind }),
                    None => database.link_watches().add(link, target, &path)?,
                }
                Ok::<(), TooManyWatches>(())
            };
            for path in data {
                check(path, WatchTarget::Node, |node| match node {
                    None => Some(WatchKind::Deleted),
                    Some(changed) => changed.data.then_some(WatchKind::DataChanged),
                })?;
            }
            for path in exists {
                check(path, WatchTarget::Node, |node| node.map(|_| WatchKind::Created))?;
            }
            for path in children {
                check(path, WatchTarget::Children, |node| match node {
                    None => Some(WatchKind::Deleted),
                    Some(changed) => changed.children.then_some(WatchKind::ChildrenChanged),
                })?;
            }
            Ok(missed)
        });
    }

    fn tell_identities(&self, xid: i32) {
        let identities = Arc::clone(&self.identities);
        self.read(xid, move |_, body| {
            body.int(i32::try_from(identities.len()).unwrap_or(i32::MAX));
            for Identity { scheme, id } in identities.iter() {
                body.text(scheme);
                body.text(if scheme == "digest" { id.split(':').next().unwrap_or_default() } else { id });
            }
            Ok(())
        });
    }

    fn close_session(&self, xid: i32) {
        let owed = self.owe(xid, SMALL_ANSWER_BYTES);
        let outbox = Arc::clone(&self.outbox);
        self.store.end_session(self.session, move |ended| {
            if let Ok(zxid) = ended {
                outbox.answer(owed, zxid, CODE_OK, Writer::default());
            }
            outbox.close();
        });
    }
}

/// What of a node has changed since a client last heard of it.
struct Changed {
    data: bool,
    children: bool,
}

/// Gives an answer, or closes the connection where there is no code for what happened.
fn give(outbox: &Outbox, owed: Owed, zxid: i64, code: Option<i32>, body: Writer) {
    match code {
        Some(code) => outbox.answer(owed, zxid, code, body),
        None => outbox.close(),
    }
}

fn path_of(operation: &GuardedOperation) -> &str {
    match operation {
        GuardedOperation::Create(Create { path, .. }, _)
        | GuardedOperation::SetAccess { path, .. }
        | GuardedOperation::Open(
            Operation::Create(Create { path, .. })
            | Operation::Set { path, .. }
            | Operation::Delete { path, .. }
            | Operation::Check { path, .. },
        ) => path,
    }
}

impl From<TooManyWatches> for Unread {
    fn from(TooManyWatches: TooManyWatches) -> Unread {
        Unread::TooManyWatches
    }
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Unread {
        // What is not a legal path cannot exist; ZooKeeper looks no closer when it reads.
        let error = match error {
            StoreError::BadArguments { path } => StoreError::NoNode { path },
            other => other,
        };
        Unread::Code(code_of(&error).unwrap_or(CODE_SYSTEM_ERROR))
    }
}

/// Reads nodes in the name of a client, into the bodies of answers.
struct TreeReader<'a> {
    tree: &'a Tree,
    access: Access<'a>,
}

impl TreeReader<'_> {
    fn data(&self, path: &str, body: &mut Writer) -> Result<(), Unread> {
        self.tree.check_access(path, access::READ, self.access)?;
        let node = self.tree.read(path)?;
        body.buffer(node.data.as_deref());
        body.stat(&node.stat);
        Ok(())
    }

    fn children(&self, path: &str, with_stat: bool, body: &mut Writer) -> Result<(), Unread> {
        self.tree.check_access(path, access::READ, self.access)?;
        let names = self.tree.children(path)?;
        body.texts(names.iter().map(String::as_str));
        if with_stat {
            self.stat(path, body)?;
        }
        Ok(())
    }

    /// As in ZooKeeper 3.8.4, only those see a node's stat who may read it.
    fn exists(&self, path: &str, body: &mut Writer) -> Result<(), Unread> {
        self.tree.check_access(path, access::READ, self.access)?;
        self.stat(path, body)
    }

    fn stat(&self, path: &str, body: &mut Writer) -> Result<(), Unread> {
        match self.tree.exists(path)? {
            Some(stat) => {
                body.stat(&stat);
                Ok(())
            }
            None => Err(Unread::Code(CODE_NO_NODE)),
        }
    }

    fn list(&self, path: &str, body: &mut Writer) -> Result<(), Unread> {
        self.tree.check_access(path, access::READ | access::ADMIN, self.access)?;
        let masks = self.tree.check_access(path, access::ADMIN, self.access).is_err();
        protocol::put_list(&self.tree.access_list(path)?, masks, body);
        self.stat(path, body)
    }

    fn count_descendants(&self, path: &str, body: &mut Writer) -> Result<(), Unread> {
        self.tree.check_access(path, access::READ, self.access)?;
        body.int(i32::try_from(self.tree.descendants(path)?).unwrap_or(i32::MAX));
        Ok(())
    }

    /// A member of a multi that only reads; one that is refused does not touch the others.
    fn member(&self, member: &ReadRequest, body: &mut Writer) {
        let mut found = Writer::default();
        let (op, read) = match member {
            ReadRequest::GetData(path) => (OP_GET_DATA, self.data(path, &mut found)),
            ReadRequest::GetChildren(path) => (OP_GET_CHILDREN, self.children(path, false, &mut found)),
        };
        match read {
            Ok(()) => {
                protocol::put_multi_header(op, CODE_OK, body);
                body.append(&found);
            }
            Err(Unread::Code(code)) => protocol::put_multi_error(code, body),
            Err(Unread::TooManyWatches) => protocol::put_multi_error(CODE_SYSTEM_ERROR, body),
        }
    }
}
