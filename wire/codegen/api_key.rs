//! The list of APIs.

use std::fmt::Write;

use crate::schema::{Kind, Message};

/// The enum `ApiKey` and what is known of each API without its messages.
pub fn api_keys(messages: &[Message]) -> String {
    let mut requests: Vec<&Message> = messages.iter().filter(|m| m.kind == Kind::Request).collect();
    requests.sort_by_key(|message| message.id);
    let mut out = String::new();
    let (mut variants, mut all, mut from, mut names) =
        (String::new(), String::new(), String::new(), String::new());
    let (mut ranges, mut flexible) = (String::new(), String::new());
    for message in requests {
        let name = message.name.trim_end_matches("Request");
        let (id, versions) = (message.id, message.versions);
        let first_flexible = message.flexible.unwrap_or(i16::MAX);
        let _ = writeln!(variants, "    {name} = {id},");
        let _ = writeln!(all, "        Self::{name},");
        let _ = writeln!(from, "            {id} => Some(Self::{name}),");
        let _ = writeln!(names, "            Self::{name} => \"{name}\",");
        let _ = writeln!(ranges, "            Self::{name} => ({}, {}),", versions.first, versions.last);
        let _ = writeln!(flexible, "            Self::{name} => {first_flexible},");
    }
    let _ = write!(
        out,
        "/// The APIs, by Kafka's names, with their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i16)]
pub enum ApiKey {{
{variants}}}

impl ApiKey {{
    /// Every API, by ascending key.
    pub const ALL: &[Self] = &[
{all}    ];

    /// The API of a key, if there is one.
    pub fn from_i16(key: i16) -> Option<Self> {{
        match key {{
{from}            _ => None,
        }}
    }}

    /// Kafka's name of the API.
    pub fn name(self) -> &'static str {{
        match self {{
{names}        }}
    }}

    /// The versions of its messages that this crate knows, oldest and newest.
    pub fn versions(self) -> std::ops::RangeInclusive<i16> {{
        let (first, last) = match self {{
{ranges}        }};
        first..=last
    }}

    /// The first version with compact lengths and tagged fields, `i16::MAX` if there is none.
    pub fn first_flexible_version(self) -> i16 {{
        match self {{
{flexible}        }}
    }}

    /// Version of the request header: 2 in flexible versions, else 1; ControlledShutdown v0 has 0.
    pub fn request_header_version(self, version: i16) -> i16 {{
        match self {{
            Self::ControlledShutdown if version == 0 => 0,
            _ if version >= self.first_flexible_version() => 2,
            _ => 1,
        }}
    }}

    /// Version of the response header: 1 in flexible versions, else 0; always 0 for ApiVersions, so that
    /// a client that does not know the server's versions can read the answer.
    pub fn response_header_version(self, version: i16) -> i16 {{
        match self {{
            Self::ApiVersions => 0,
            _ if version >= self.first_flexible_version() => 1,
            _ => 0,
        }}
    }}
}}

impl std::fmt::Display for ApiKey {{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{
        f.write_str(self.name())
    }}
}}
"
    );
    out
}
