use snafu::Snafu;

/// Why bytes are not the message they claim to be. The connection they came from is beyond repair: after
/// the first wrong byte nobody knows where the next field begins.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(module)]
pub enum DecodeError {
    /// A field needs more bytes than are left.
    #[snafu(display("a field needs {needed} bytes, {remaining} are left"))]
    UnexpectedEnd { needed: usize, remaining: usize },
    /// An array claims more elements than the bytes that are left can hold.
    #[snafu(display("an array claims {count} elements, {remaining} bytes are left"))]
    CountTooLarge { count: usize, remaining: usize },
    /// The elements of a message would take far more memory than its frame.
    #[snafu(display("the elements of the message take more memory than its size allows"))]
    TooMuchMemory,
    /// A length or count below zero that is not the sign for null.
    #[snafu(display("a length is {length}"))]
    NegativeLength { length: i32 },
    /// A variable-length number with more bytes or bits than its type has.
    #[snafu(display("a variable-length number is too long"))]
    VarintTooLong,
    /// Null where this version allows none.
    #[snafu(display("{field} is null"))]
    UnexpectedNull { field: &'static str },
    /// A string that is not UTF-8.
    #[snafu(display("a string is not UTF-8"))]
    InvalidUtf8,
    /// Tags of a tagged section not in ascending order, or one twice.
    #[snafu(display("tag {tag} follows tag {after}"))]
    TagOrder { tag: u32, after: u32 },
    /// A known tagged field that is shorter or longer than it says.
    #[snafu(display("the field of tag {tag} does not take the bytes that it says"))]
    TagSize { tag: u32 },
    /// A version in which the message does not exist.
    #[snafu(display("{message} has no version {version}"))]
    UnsupportedVersion { message: &'static str, version: i16 },
    /// An internal-topic record of another type than expected.
    #[snafu(display("a record of type {found} where {message} is type {expected}"))]
    WrongRecordType { message: &'static str, expected: i16, found: i16 },
}

/// Why a message cannot be written in a version: a fault of the code that filled it.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(module)]
pub enum EncodeError {
    /// A field is set that the version lacks and that must not be lost.
    #[snafu(display("version {version} cannot carry {field}"))]
    FieldNotInVersion { field: &'static str, version: i16 },
    /// Null where this version allows none.
    #[snafu(display("{field} is null"))]
    NullNotAllowed { field: &'static str },
    /// A string, byte field or array longer than its length field can say.
    #[snafu(display("a length of {length} does not fit its field"))]
    TooLong { length: usize },
    /// A version in which the message does not exist.
    #[snafu(display("{message} has no version {version}"))]
    UnsupportedVersion { message: &'static str, version: i16 },
}
