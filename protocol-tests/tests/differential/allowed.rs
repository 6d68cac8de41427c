//! Where Barnabas may answer otherwise than Kafka, and why.

/// A difference in fields whose path ends in `field`, in answers of `api` (any version) to a question that begins with
/// `question` (`case: what`).
pub struct Allowed {
    pub api: &'static str,
    pub question: &'static str,
    pub field: &'static str,
    pub reason: &'static str,
}

pub const ALLOWED: &[Allowed] = &[Allowed {
    api: "CreateTopics",
    question: "assignments: no brokers",
    field: "",
    reason: "3.9.2 makes a topic that can never have a leader and times out; 4.3.1 refuses it, and so do we",
}];

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
