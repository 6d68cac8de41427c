//! Where Barnabas may answer otherwise than Kafka, and why.

/// A difference in fields whose path ends in `field`, in answers of `api` (any version) to a question that begins with
/// `question` (`case: what`).
pub struct Allowed {
    pub api: &'static str,
    pub question: &'static str,
    pub field: &'static str,
    pub reason: &'static str,
}

pub const ALLOWED: &[Allowed] = &[
    Allowed {
        api: "CreateTopics",
        question: "assignments: no brokers",
        field: "",
        reason: "3.9.2 makes a topic that can never have a leader and times out; 4.3.1 refuses it, and so do we",
    },
    Allowed {
        api: "Fetch",
        question: "limits: two batches",
        field: "records",
        reason: "Kafka fills the limit with a part of the next batch, which every reader throws away; we send whole batches",
    },
    Allowed {
        api: "Fetch",
        question: "codecs: without zstd",
        field: "records",
        reason: "Kafka fills the limit with a part of the next batch, which every reader throws away; we send whole batches",
    },
    Allowed {
        api: "Fetch",
        question: "bad: unknown isolation level",
        field: "",
        reason: "Kafka fails with UNKNOWN_SERVER_ERROR; we read uncommitted, as for 0",
    },
    Allowed {
        api: "Produce",
        question: "bad batches: unknown codec",
        field: "error_code",
        reason: "Kafka fails with UNKNOWN_SERVER_ERROR; INVALID_RECORD says what is wrong",
    },
    Allowed {
        api: "Produce",
        question: "bad batches: garbage in",
        field: "error_code",
        reason: "Kafka fails with UNKNOWN_SERVER_ERROR; INVALID_RECORD says what is wrong",
    },
    Allowed {
        api: "Produce",
        question: "bad batches: gap between compressed offsets",
        field: "error_code",
        reason: "Kafka fails with UNKNOWN_SERVER_ERROR; INVALID_RECORD says what is wrong",
    },
    Allowed {
        api: "Produce",
        question: "bad batches: gap between offsets",
        field: "",
        reason: "Kafka stores a batch whose records leave the offsets that it claims; readers would see them twice",
    },
    Allowed {
        api: "Produce",
        question: "",
        field: "error_message",
        reason: "we say what is wrong with a batch where Kafka says nothing",
    },
    Allowed {
        api: "IncrementalAlterConfigs",
        question: "all: unknown operation",
        field: "",
        reason: "Kafka fails with UNKNOWN_SERVER_ERROR and says nothing",
    },
    Allowed {
        api: "IncrementalAlterConfigs",
        question: "all: after root logger FATAL",
        field: "value",
        reason: "no event here is above ERROR, so a logger at FATAL is at ERROR",
    },
    Allowed {
        api: "ElectLeaders",
        question: "all: unknown type",
        field: "",
        reason: "Kafka fails with UNKNOWN_SERVER_ERROR and says nothing",
    },
    Allowed {
        api: "ListOffsets",
        question: "bad: partition twice",
        field: "",
        reason: "newer than 3.9.2, whose older versions refuse the second one; 4.3.1 leaves it out",
    },
    Allowed {
        api: "Metadata",
        question: "auto-creation: first",
        field: "error_code",
        reason: "newer than 3.9.2, which says LEADER_NOT_AVAILABLE; KRaft says UNKNOWN_TOPIC_OR_PARTITION first",
    },
    Allowed {
        api: "DescribeGroups",
        question: "all: operations",
        field: "authorized_operations",
        reason: "newer than 3.9.2, which has no operations on configurations of groups",
    },
];

impl Allowed {
    /// Whether the answer under `label` (`API vN case: what`) may differ in `path`.
    pub fn covers(&self, label: &str, path: &str) -> bool {
        let mut words = label.splitn(3, ' ');
        let (api, _version, question) = (words.next(), words.next(), words.next());
        api == Some(self.api)
            && question.is_some_and(|text| text.starts_with(self.question))
            && path.ends_with(self.field)
    }
}
