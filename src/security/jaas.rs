//! JAAS configuration files, as Java's `ConfigFile` reads them: sections of login modules with their options.

use std::iter::Peekable;
use std::str::Chars;

use snafu::{OptionExt, Snafu, ensure};

/// A login module of a section, with its options in the order of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginModule {
    /// The name of its Java class.
    pub class: String,
    options: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("line {line}: {expected} is expected"))]
pub struct JaasError {
    line: usize,
    expected: &'static str,
}

impl LoginModule {
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The login modules of a section; `None` = the file has no such section.
pub fn login_modules(text: &str, section: &str) -> Result<Option<Vec<LoginModule>>, JaasError> {
    let mut parser = Parser { letters: text.chars().peekable(), line: 1 };
    let mut found = None;
    while let Some(name) = parser.token()? {
        let name = name.text().context(JaasSnafu { line: parser.line, expected: "the name of a section" })?;
        let modules = parser.section()?;
        if name == section {
            found = Some(modules);
        }
    }
    Ok(found)
}

/// Values may be secrets, so that only the names of options show themselves.
impl std::fmt::Debug for LoginModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.options.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("LoginModule").field("class", &self.class).field("options", &names).finish()
    }
}

#[derive(PartialEq, Eq)]
enum Token {
    /// With or without quotes.
    Text(String),
    Mark(char),
}

impl Token {
    fn text(self) -> Option<String> {
        match self {
            Token::Text(text) => Some(text),
            Token::Mark(_) => None,
        }
    }
}

const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];
const MARKS: [char; 4] = ['{', '}', ';', '='];

struct Parser<'a> {
    letters: Peekable<Chars<'a>>,
    line: usize,
}

impl Parser<'_> {
    /// `{ module… };`
    fn section(&mut self) -> Result<Vec<LoginModule>, JaasError> {
        self.mark('{', "{ after the name of a section")?;
        let mut modules = Vec::new();
        loop {
            match self.token()? {
                Some(Token::Mark('}')) => break,
                Some(Token::Text(class)) => modules.push(self.module(class)?),
                _ => return self.expected("a login module or }"),
            }
        }
        self.mark(';', "; after the } of a section")?;
        Ok(modules)
    }

    /// `class flag name=value…;`
    fn module(&mut self, class: String) -> Result<LoginModule, JaasError> {
        let flag = self.token()?.and_then(Token::text).unwrap_or_default().to_lowercase();
        ensure!(
            FLAGS.contains(&flag.as_str()),
            JaasSnafu { line: self.line, expected: "required, requisite, sufficient or optional" }
        );
        let mut options = Vec::new();
        loop {
            match self.token()? {
                Some(Token::Mark(';')) => return Ok(LoginModule { class, options }),
                Some(Token::Text(name)) => {
                    self.mark('=', "= after the name of an option")?;
                    let value = self.token()?.and_then(Token::text);
                    options.push((
                        name,
                        value.context(JaasSnafu { line: self.line, expected: "the value of an option" })?,
                    ));
                }
                _ => return self.expected("an option, or ; after the last one"),
            }
        }
    }

    fn mark(&mut self, mark: char, expected: &'static str) -> Result<(), JaasError> {
        match self.token()? == Some(Token::Mark(mark)) {
            true => Ok(()),
            false => self.expected(expected),
        }
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, JaasError> {
        JaasSnafu { line: self.line, expected }.fail()
    }

    /// `None` = the end of the file.
    fn token(&mut self) -> Result<Option<Token>, JaasError> {
        loop {
            let Some(letter) = self.next() else { return Ok(None) };
            match letter {
                '/' if self.letters.next_if_eq(&'/').is_some() => self.skip_line(),
                '/' if self.letters.next_if_eq(&'*').is_some() => self.skip_comment()?,
                '"' => return self.quoted().map(Some),
                mark if MARKS.contains(&mark) => return Ok(Some(Token::Mark(mark))),
                blank if blank.is_whitespace() => {}
                first => return Ok(Some(self.word(first))),
            }
        }
    }

    fn word(&mut self, first: char) -> Token {
        let mut word = String::from(first);
        while let Some(letter) = self
            .letters
            .next_if(|letter| !letter.is_whitespace() && *letter != '"' && !MARKS.contains(letter))
        {
            word.push(letter);
        }
        Token::Text(word)
    }

    fn quoted(&mut self) -> Result<Token, JaasError> {
        let mut text = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(Token::Text(text)),
                Some('\\') => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(escaped) => text.push(escaped),
                    None => return self.expected("a closing quote"),
                },
                Some('\n') | None => return self.expected("a closing quote"),
                Some(letter) => text.push(letter),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.letters.next_if(|letter| *letter != '\n').is_some() {}
    }

    fn skip_comment(&mut self) -> Result<(), JaasError> {
        loop {
            match self.next() {
                Some('*') if self.letters.next_if_eq(&'/').is_some() => return Ok(()),
                Some(_) => {}
                None => return self.expected("the end of a comment"),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.letters.next()?;
        self.line += usize::from(letter == '\n');
        Some(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"// A broker's file, as Kafka's documentation has it.
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin"
    password="admin-secret"
    user_admin="admin-secret";
};

/* Towards ZooKeeper;
   several lines. */
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED
    username=kafka   // unquoted
    password="a \"quoted\" = \\ {secret};";
};
"#;

    #[test]
    fn a_section_is_found_among_others() {
        let modules = login_modules(FILE, "Client").unwrap().unwrap();
        let [module] = &modules[..] else { panic!("{modules:?}") };
        assert_eq!(module.class, "org.apache.zookeeper.server.auth.DigestLoginModule");
        assert_eq!(module.option("username"), Some("kafka"));
        assert_eq!(module.option("password"), Some("a \"quoted\" = \\ {secret};"));
        assert_eq!(module.option("useTicketCache"), None);
        assert_eq!(login_modules(FILE, "Server"), Ok(None));
        assert_eq!(login_modules("", "Client"), Ok(None));
        assert!(!format!("{modules:?}").contains("secret"));
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(login_modules(text, "Client").unwrap_err().to_string(), expected);
    }

    #[test]
    fn what_java_refuses_is_refused_with_its_line() {
        check("Client", "line 1: { after the name of a section is expected");
        check("\n{ }", "line 2: the name of a section is expected");
        check("Client {", "line 1: a login module or } is expected");
        check("Client { }", "line 1: ; after the } of a section is expected");
        check("Client {\n A; };", "line 2: required, requisite, sufficient or optional is expected");
        check("Client { A required };", "line 1: an option, or ; after the last one is expected");
        check("Client { A required a };", "line 1: = after the name of an option is expected");
        check("Client { A required a=; };", "line 1: the value of an option is expected");
        check("Client { A required a=\"x\n\"; };", "line 2: a closing quote is expected");
        check("/* Client", "line 1: the end of a comment is expected");
    }
}
