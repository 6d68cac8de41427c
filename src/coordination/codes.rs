//! The numbers of ZooKeeper's client protocol.

/// Ids of frames that no call waits for.
pub(super) const XID_EVENT: i32 = -1;
pub(super) const XID_PING: i32 = -2;
pub(super) const XID_AUTH: i32 = -4;
pub(super) const XID_SET_WATCHES: i32 = -8;

/// Chosen by the client, as those of calls are: no call is under way while it authenticates.
pub(super) const XID_SASL: i32 = 0;

pub(super) const OP_CREATE: i32 = 1;
pub(super) const OP_DELETE: i32 = 2;
pub(super) const OP_EXISTS: i32 = 3;
pub(super) const OP_GET_DATA: i32 = 4;
pub(super) const OP_SET_DATA: i32 = 5;
pub(super) const OP_GET_ACL: i32 = 6;
pub(super) const OP_SET_ACL: i32 = 7;
pub(super) const OP_GET_CHILDREN: i32 = 8;
pub(super) const OP_SYNC: i32 = 9;
pub(super) const OP_PING: i32 = 11;
pub(super) const OP_GET_CHILDREN2: i32 = 12;
pub(super) const OP_CHECK: i32 = 13;
pub(super) const OP_MULTI: i32 = 14;
pub(super) const OP_CREATE2: i32 = 15;
pub(super) const OP_RECONFIG: i32 = 16;
pub(super) const OP_CHECK_WATCHES: i32 = 17;
pub(super) const OP_REMOVE_WATCHES: i32 = 18;
pub(super) const OP_CREATE_CONTAINER: i32 = 19;
pub(super) const OP_DELETE_CONTAINER: i32 = 20;
pub(super) const OP_CREATE_TTL: i32 = 21;
pub(super) const OP_MULTI_READ: i32 = 22;
pub(super) const OP_AUTH: i32 = 100;
pub(super) const OP_SET_WATCHES: i32 = 101;
pub(super) const OP_SASL: i32 = 102;
pub(super) const OP_GET_EPHEMERALS: i32 = 103;
pub(super) const OP_COUNT_DESCENDANTS: i32 = 104;
pub(super) const OP_SET_WATCHES2: i32 = 105;
pub(super) const OP_ADD_WATCH: i32 = 106;
pub(super) const OP_WHO_AM_I: i32 = 107;
pub(super) const OP_CLOSE: i32 = -11;
pub(super) const OP_ERROR: i32 = -1;

pub(super) const CODE_OK: i32 = 0;
pub(super) const CODE_SYSTEM_ERROR: i32 = -1;
pub(super) const CODE_NOT_REACHED: i32 = -2;
pub(super) const CODE_MALFORMED: i32 = -5;
pub(super) const CODE_UNIMPLEMENTED: i32 = -6;
pub(super) const CODE_BAD_ARGUMENTS: i32 = -8;
pub(super) const CODE_NO_NODE: i32 = -101;
pub(super) const CODE_NOT_AUTHORIZED: i32 = -102;
pub(super) const CODE_BAD_VERSION: i32 = -103;
pub(super) const CODE_NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
pub(super) const CODE_NODE_EXISTS: i32 = -110;
pub(super) const CODE_NOT_EMPTY: i32 = -111;
pub(super) const CODE_SESSION_EXPIRED: i32 = -112;
pub(super) const CODE_INVALID_ACL: i32 = -114;
pub(super) const CODE_AUTH_FAILED: i32 = -115;
pub(super) const CODE_SESSION_MOVED: i32 = -118;
pub(super) const CODE_NO_WATCHER: i32 = -121;
/// Where servers keep out who has not authenticated by SASL.
pub(super) const CODE_SASL_REQUIRED: i32 = -124;
