use super::Principal;

/// What a request wants to do, with the codes of the authorized-operations bit fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Operation {
    Read = 3,
    Write = 4,
    Create = 5,
    Delete = 6,
    Alter = 7,
    Describe = 8,
    ClusterAction = 9,
    DescribeConfigs = 10,
    AlterConfigs = 11,
    IdempotentWrite = 12,
}

/// What it wants to do it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    Topic(&'a str),
    Group(&'a str),
    TransactionalId(&'a str),
    Cluster,
}

/// Decides who may do what. The one place every handler asks.
#[derive(Clone, Debug)]
pub enum Authorizer {
    /// `authorizer.class.name` is empty: everything is allowed, as in Kafka.
    AllowAll,
}

const TOPIC_OPERATIONS: &[Operation] = &[
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];
const GROUP_OPERATIONS: &[Operation] = &[Operation::Read, Operation::Delete, Operation::Describe];
const CLUSTER_OPERATIONS: &[Operation] = &[
    Operation::Create,
    Operation::Alter,
    Operation::Describe,
    Operation::ClusterAction,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::IdempotentWrite,
];
const TRANSACTIONAL_ID_OPERATIONS: &[Operation] = &[Operation::Write, Operation::Describe];

impl Authorizer {
    /// Whether ACLs exist at all: without an authorizer their APIs answer SECURITY_DISABLED.
    pub fn is_enabled(&self) -> bool {
        match self {
            Authorizer::AllowAll => false,
        }
    }

    pub fn allows(&self, _principal: &Principal, _operation: Operation, _resource: Resource<'_>) -> bool {
        match self {
            Authorizer::AllowAll => true,
        }
    }

    /// The bit field of what the principal may do, one bit per operation code.
    pub fn authorized_operations(&self, principal: &Principal, resource: Resource<'_>) -> i32 {
        let possible = match resource {
            Resource::Topic(_) => TOPIC_OPERATIONS,
            Resource::Group(_) => GROUP_OPERATIONS,
            Resource::Cluster => CLUSTER_OPERATIONS,
            Resource::TransactionalId(_) => TRANSACTIONAL_ID_OPERATIONS,
        };
        let allowed = possible.iter().filter(|&&operation| self.allows(principal, operation, resource));
        allowed.fold(0, |bits, &operation| bits | 1 << (operation as i8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_authorizer_everything_possible_is_allowed() {
        // The values a Kafka 3.9.2 broker without an authorizer answers.
        let anonymous = Principal::anonymous();
        let bits = |resource| Authorizer::AllowAll.authorized_operations(&anonymous, resource);
        assert_eq!(bits(Resource::Topic("t")), 3576);
        assert_eq!(bits(Resource::Group("g")), 328);
        assert_eq!(bits(Resource::Cluster), 8096);
    }
}
