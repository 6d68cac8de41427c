use std::fmt;

use super::error::{ConfigError, InvalidValueSnafu};
use super::keys::{Bounds, Key, Kind};
use super::version::ProtocolVersion;

/// A parsed value of a setting, within the bounds of its key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Boolean(bool),
    Short(i16),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(String),
    List(Vec<String>),
    Class(String),
    Password(Secret),
}

/// A text that never shows itself in logs or answers.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

const HIDDEN: &str = "[hidden]";

impl Value {
    /// The value as Kafka prints it; `None` for a secret.
    pub fn to_text(&self) -> Option<String> {
        Some(match self {
            Value::Boolean(value) => value.to_string(),
            Value::Short(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Long(value) => value.to_string(),
            Value::Double(value) => java_double(*value),
            Value::Text(value) | Value::Class(value) => value.clone(),
            Value::List(values) => values.join(","),
            Value::Password(_) => return None,
        })
    }

    /// A whole number of any width.
    pub fn as_long(&self) -> Option<i64> {
        match self {
            Value::Short(value) => Some((*value).into()),
            Value::Int(value) => Some((*value).into()),
            Value::Long(value) => Some(*value),
            _ => None,
        }
    }
}

impl Key {
    /// Reads a value as Kafka does: trimmed, of the key's kind, within its bounds.
    ///
    /// Fails with [`ConfigError::InvalidValue`] in Kafka's words.
    pub fn parse(&self, text: &str) -> Result<Value, ConfigError> {
        let trimmed = text.trim_matches(|c| c <= ' ');
        let value = match self.kind {
            Kind::Boolean => self.parse_boolean(trimmed)?,
            Kind::Short => Value::Short(self.parse_number(trimmed)?),
            Kind::Int => Value::Int(self.parse_number(trimmed)?),
            Kind::Long => Value::Long(self.parse_number(trimmed)?),
            Kind::Double => {
                Value::Double(parse_java_double(trimmed).ok_or_else(|| self.not_a_number(trimmed))?)
            }
            Kind::Text => Value::Text(trimmed.to_owned()),
            Kind::List => Value::List(parse_list(trimmed)),
            Kind::Class => Value::Class(trimmed.to_owned()),
            Kind::Password => Value::Password(Secret(text.to_owned())),
        };
        self.check_bounds(&value)?;
        Ok(value)
    }

    fn parse_boolean(&self, text: &str) -> Result<Value, ConfigError> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => self.refuse(text, "Expected value to be either true or false"),
        }
    }

    fn parse_number<N: std::str::FromStr>(&self, text: &str) -> Result<N, ConfigError> {
        text.parse().map_err(|_| self.not_a_number(text))
    }

    fn not_a_number(&self, text: &str) -> ConfigError {
        let reason = format!("Not a number of type {}", self.kind.name());
        InvalidValueSnafu { name: self.name, value: text, reason }.build()
    }

    fn refuse<T>(&self, value: impl Into<String>, reason: impl Into<String>) -> Result<T, ConfigError> {
        InvalidValueSnafu { name: self.name, value, reason }.fail()
    }

    fn check_bounds(&self, value: &Value) -> Result<(), ConfigError> {
        match self.bounds {
            Bounds::Any => Ok(()),
            Bounds::AtLeast(min) => self.check_range(value, min as f64, f64::INFINITY),
            Bounds::Between(min, max) => self.check_range(value, min as f64, max as f64),
            Bounds::Fraction(max) => self.check_range(value, 0.0, max),
            Bounds::OneOf(allowed) => self.check_each(value, allowed, "", |text, name| text == name),
            Bounds::OneOfIgnoringCase(allowed) => {
                self.check_each(value, allowed, " (case insensitive)", |text, name| {
                    text.eq_ignore_ascii_case(name)
                })
            }
            Bounds::NonEmpty => self.check_not_empty(value),
            Bounds::GzipLevel => match value.as_long() {
                Some(-1 | 1..=9) => Ok(()),
                _ => self.refuse(value.shown(), "Value must be between 1 and 9 or equal to -1"),
            },
            Bounds::ProtocolVersion => match value {
                Value::Text(text) if ProtocolVersion::parse(text).is_none() => {
                    self.refuse(text, format!("Version {text} is not a valid version"))
                }
                _ => Ok(()),
            },
            Bounds::ThrottledReplicas => match value {
                Value::List(replicas) if !are_throttled_replicas(replicas) => self.refuse(
                    format!("[{}]", replicas.join(", ")),
                    format!(
                        "{} must be the literal '*' or a list of replicas in the following format: \
                         [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                        self.name
                    ),
                ),
                _ => Ok(()),
            },
        }
    }

    /// NaN passes, as it does in Kafka's comparison.
    fn check_range(&self, value: &Value, min: f64, max: f64) -> Result<(), ConfigError> {
        let number = match value {
            Value::Double(number) => *number,
            other => other.as_long().map_or(f64::NAN, |number| number as f64),
        };
        if number < min {
            return self.refuse(value.shown(), format!("Value must be at least {min}"));
        }
        if number > max {
            return self.refuse(value.shown(), format!("Value must be no more than {max}"));
        }
        Ok(())
    }

    fn check_each(
        &self,
        value: &Value,
        allowed: &[&str],
        note: &str,
        is_same: impl Fn(&str, &str) -> bool,
    ) -> Result<(), ConfigError> {
        let texts = match value {
            Value::List(texts) => texts.as_slice(),
            Value::Text(text) => std::slice::from_ref(text),
            _ => &[],
        };
        match texts.iter().find(|text| !allowed.iter().any(|name| is_same(text, name))) {
            Some(text) => self.refuse(text, format!("String must be one of{note}: {}", allowed.join(", "))),
            None => Ok(()),
        }
    }

    fn check_not_empty(&self, value: &Value) -> Result<(), ConfigError> {
        match value {
            Value::Text(text) if text.is_empty() => self.refuse("", "String must be non-empty"),
            _ => Ok(()),
        }
    }
}

impl Value {
    fn shown(&self) -> String {
        self.to_text().unwrap_or_else(|| HIDDEN.to_owned())
    }
}

/// An empty text is an empty list; blanks around commas do not count.
fn parse_list(text: &str) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim_matches(char::is_whitespace).to_owned()).collect()
}

fn are_throttled_replicas(replicas: &[String]) -> bool {
    let is_pair = |text: &String| {
        text.split_once(':').is_some_and(|(partition, broker)| is_number(partition) && is_number(broker))
    };
    match replicas {
        [one] if one.is_empty() || one == "*" => true,
        pairs => pairs.iter().all(is_pair),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Java's `Double.parseDouble`, without hexadecimal forms.
fn parse_java_double(text: &str) -> Option<f64> {
    match text.trim_start_matches(['+', '-']) {
        "NaN" => return Some(f64::NAN),
        "Infinity" if text.starts_with('-') => return Some(f64::NEG_INFINITY),
        "Infinity" => return Some(f64::INFINITY),
        _ => {}
    }
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    if is_plain { digits.parse().ok() } else { None }
}

/// Java's `Double.toString`: plain from 10^-3 to 10^7, otherwise with an exponent, always with a point.
fn java_double(value: f64) -> String {
    let size = value.abs();
    if value.is_infinite() {
        return if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() };
    }
    if value == 0.0 || value.is_nan() || (1e-3..1e7).contains(&size) {
        return format!("{value:?}");
    }
    let scientific = format!("{value:E}");
    match scientific.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{broker_key, topic_key};
    use super::*;

    fn parse(name: &str, text: &str) -> Result<Value, String> {
        let (_, key) = topic_key(name).or_else(|| broker_key(name)).unwrap();
        key.parse(text).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn accepts(name: &str, text: &str, shown: &str) {
        assert_eq!(parse(name, text).unwrap().to_text().as_deref(), Some(shown));
    }

    #[track_caller]
    fn refuses(name: &str, text: &str, shown: &str, reason: &str) {
        let expected = format!("Invalid value {shown} for configuration {name}: {reason}");
        assert_eq!(parse(name, text), Err(expected));
    }

    #[test]
    fn values_are_read_as_kafka_reads_them() {
        accepts("retention.ms", " 5 ", "5");
        accepts("retention.ms", "+5", "5");
        accepts("retention.bytes", "-5", "-5");
        accepts("preallocate", " TRUE ", "true");
        accepts("cleanup.policy", "", "");
        accepts("cleanup.policy", "delete, compact", "delete,compact");
        accepts("compression.type", " gzip ", "gzip");
        accepts("min.cleanable.dirty.ratio", "0.5f", "0.5");
        accepts("min.cleanable.dirty.ratio", "1e-1", "0.1");
        accepts("min.cleanable.dirty.ratio", "1e-5", "1.0E-5");
        accepts("min.cleanable.dirty.ratio", "NaN", "NaN");
        accepts("leader.replication.throttled.replicas", "*", "*");
        accepts("leader.replication.throttled.replicas", "0:1, 1:2", "0:1,1:2");
        accepts("leader.replication.throttled.replicas", "", "");
        accepts("message.format.version", "2.8-IV1", "2.8-IV1");
    }

    #[test]
    fn bad_values_are_refused_in_kafkas_words() {
        refuses("retention.ms", "x", "x", "Not a number of type LONG");
        refuses("retention.ms", "", "", "Not a number of type LONG");
        refuses("retention.ms", "0x10", "0x10", "Not a number of type LONG");
        refuses("retention.ms", "-2", "-2", "Value must be at least -1");
        refuses("segment.bytes", "13", "13", "Value must be at least 14");
        refuses("segment.bytes", "99999999999", "99999999999", "Not a number of type INT");
        refuses("preallocate", "yes", "yes", "Expected value to be either true or false");
        refuses("min.cleanable.dirty.ratio", "1.5", "1.5", "Value must be no more than 1");
        refuses("min.cleanable.dirty.ratio", "abc", "abc", "Not a number of type DOUBLE");
        refuses("compression.gzip.level", "0", "0", "Value must be between 1 and 9 or equal to -1");
        refuses("compression.lz4.level", "0", "0", "Value must be at least 1");
        refuses("compression.lz4.level", "18", "18", "Value must be no more than 17");
        refuses("compression.zstd.level", "23", "23", "Value must be no more than 22");
        refuses("compression.zstd.level", "-131073", "-131073", "Value must be at least -131072");
        refuses("message.format.version", "9.9", "9.9", "Version 9.9 is not a valid version");
        refuses("cleanup.policy", "delete,foo", "foo", "String must be one of: compact, delete");
        refuses(
            "compression.type",
            "GZIP",
            "GZIP",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        );
        refuses(
            "leader.replication.throttled.replicas",
            "none",
            "[none]",
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the \
             following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        );
        refuses("offsets.topic.replication.factor", "99999", "99999", "Not a number of type SHORT");
    }

    #[test]
    fn doubles_print_as_in_java() {
        let cases: &[(f64, &str)] = &[
            (0.5, "0.5"),
            (1.0, "1.0"),
            (0.0, "0.0"),
            (1e7, "1.0E7"),
            (1.5e-4, "1.5E-4"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::INFINITY, "Infinity"),
        ];
        for (value, text) in cases {
            assert_eq!(java_double(*value), *text);
        }
    }

    #[test]
    fn secrets_do_not_show_themselves() {
        let value = parse("password.encoder.secret", "hunter2").unwrap();
        assert_eq!(value.to_text(), None);
        assert_eq!(format!("{value:?}"), "Password([hidden])");
    }
}
