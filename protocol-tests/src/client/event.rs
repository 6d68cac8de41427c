/// One line that a client program prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Produced {
        key: String,
        partition: i32,
        offset: i64,
    },
    Read(Read),
    Assigned {
        member: String,
        partitions: Vec<i32>,
    },
    Committed {
        partition: i32,
        offset: i64,
    },
    /// Anything that helps to understand a failure.
    Note(String),
    Restart,
    Done,
}

/// A record that a consumer was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// `assignment`, or the member's name.
    pub by: String,
    pub partition: i32,
    pub offset: i64,
    pub key: String,
    pub value: String,
    /// `name=value,…`, or `-` where the client has none.
    pub headers: String,
}

impl Event {
    #[track_caller]
    pub fn parse(line: &str) -> Event {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["produced", key, partition, offset] => {
                Event::Produced { key: (*key).into(), partition: number(partition), offset: number(offset) }
            }
            ["read", by, partition, offset, key, value, headers] => Event::Read(Read {
                by: (*by).into(),
                partition: number(partition),
                offset: number(offset),
                key: (*key).into(),
                value: (*value).into(),
                headers: (*headers).into(),
            }),
            ["assigned", member, ""] => Event::Assigned { member: (*member).into(), partitions: Vec::new() },
            ["assigned", member, list] => Event::Assigned {
                member: (*member).into(),
                partitions: list.split(',').map(number).collect(),
            },
            ["committed", partition, offset] => {
                Event::Committed { partition: number(partition), offset: number(offset) }
            }
            ["note", rest @ ..] => Event::Note(rest.join(" ")),
            ["restart"] => Event::Restart,
            ["done"] => Event::Done,
            _ => panic!("a client program printed {line:?}"),
        }
    }
}

#[track_caller]
fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}
