//! Parser of `~/.netrc`, which assigns user names and passwords to machines, compatible with ftp,
//! curl and git.
//!
//! Words are separated by white space. A word in double quotes may contain spaces, and a backslash
//! in it escapes the next character (`
//! `, `\r` and `\t` are a line feed, a carriage return and a tab). A `#` at the position of a
//! keyword starts a comment. Macros and unknown words are skipped.

use manyways_unit::human::without_bom;

use super::location::valid_host;
use super::login::Login;

/// A parsed file.
#[derive(Clone, Default)]
pub struct Netrc {
    entries: Vec<Entry>,
}

#[derive(Clone, Default)]
struct Entry {
    /// `None` for `default`, which matches every machine.
    machine: Option<String>,
    login: Option<String>,
    password: Option<String>,
}

/// Why a file cannot be parsed. The error contains no text of the file, which holds secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetrcError {
    /// More than [`Netrc::MAX_BYTES`].
    #[error("it is larger than {} MB", Netrc::MAX_BYTES / 1_000_000)]
    TooLarge,
    /// The file is not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// A quote without its closing quote, in this line.
    #[error("the quote in line {0} is not closed")]
    Quote(usize),
    /// A keyword at the end of the file, without a value.
    #[error("the word `{0}` at the end of the file has no value")]
    NoValue(&'static str),
}

impl Netrc {
    /// Larger files are rejected.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Parses a file.
    ///
    /// # Errors
    /// [`NetrcError`] names the fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, NetrcError> {
        if bytes.len() > Netrc::MAX_BYTES {
            return Err(NetrcError::TooLarge);
        }
        let text = str::from_utf8(without_bom(bytes)).map_err(|_| NetrcError::NotText)?;
        let mut words = Tokens { text, offset: 0 };
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(word) = words.next()? {
            let mut value = |keyword| words.next()?.ok_or(NetrcError::NoValue(keyword));
            match word.as_str() {
                "machine" => {
                    let machine = Some(value("machine")?);
                    entries.push(Entry { machine, ..Entry::default() });
                }
                "default" => entries.push(Entry::default()),
                "login" => {
                    let login = value("login")?;
                    if let Some(entry) = entries.last_mut() {
                        entry.login = Some(login);
                    }
                }
                "password" => {
                    let password = value("password")?;
                    if let Some(entry) = entries.last_mut() {
                        entry.password = Some(password);
                    }
                }
                "account" => drop(value("account")?),
                "macdef" => words.skip_macro(),
                comment if comment.starts_with('#') => words.skip_line(),
                _ => {}
            }
        }
        Ok(Self { entries })
    }

    /// Returns the login for `host`, the host of a [`Location`](super::Location), with the name
    /// `user` if the name is known. The first matching entry counts.
    pub fn login(&self, host: &str, user: Option<&str>) -> Option<Login> {
        self.entries.iter().find_map(|entry| {
            let machine = entry.machine.as_deref();
            let is_host = |machine: &str| {
                machine.eq_ignore_ascii_case(host) || valid_host(machine).as_deref() == Some(host)
            };
            if machine.is_some_and(|machine| !is_host(machine)) {
                return None;
            }
            let named = match (entry.login.as_deref(), user) {
                (Some(login), Some(user)) if login != user => return None,
                (login, user) => login.or(user)?,
            };
            let password = entry.password.clone()?;
            Some(Login { user: named.to_owned(), password })
        })
    }
}

impl std::fmt::Debug for Netrc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netrc").field("entries", &self.entries.len()).finish()
    }
}

struct Tokens<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Tokens<'a> {
    fn remaining(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<String>, NetrcError> {
        let rest = self.remaining().trim_start();
        self.offset = self.text.len() - rest.len();
        if rest.is_empty() {
            return Ok(None);
        }
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            self.offset += end;
            return Ok(Some(rest[..end].to_owned()));
        };
        let mut word = String::new();
        let mut letters = quoted.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.offset += at + 2;
                    return Ok(Some(word));
                }
                '\\' => match letters.next() {
                    Some((_, 'n')) => word.push('\n'),
                    Some((_, 'r')) => word.push('\r'),
                    Some((_, 't')) => word.push('\t'),
                    Some((_, other)) => word.push(other),
                    None => break,
                },
                _ => word.push(letter),
            }
        }
        Err(NetrcError::Quote(self.text[..self.offset].matches('\n').count() + 1))
    }

    fn skip_line(&mut self) {
        let rest = self.remaining();
        self.offset += rest.find('\n').unwrap_or(rest.len());
    }

    /// Skips a macro, which ends at an empty line.
    fn skip_macro(&mut self) {
        // The line with the name of the macro.
        self.skip_line();
        let rest = self.remaining();
        let mut end = 0;
        for line in rest.split_inclusive('\n').skip(1) {
            if line.trim().is_empty() {
                break;
            }
            end += line.len();
        }
        self.offset += (end + 1).min(rest.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(file: &str, host: &str, user: Option<&str>) -> Option<(String, String)> {
        let login = Netrc::parse(file.as_bytes()).unwrap().login(host, user);
        login.map(|login| (login.user, login.password))
    }

    fn some(user: &str, password: &str) -> Option<(String, String)> {
        Some((user.to_owned(), password.to_owned()))
    }

    #[test]
    fn the_first_entry_that_fits_counts() {
        let file = "machine a.example login me password one\n\
                    machine b.example\n\tlogin me\n\taccount x\n\tpassword two\n\
                    machine a.example login you password three\n\
                    default login anonymous password four";
        assert_eq!(found(file, "A.Example", None), some("me", "one"));
        assert_eq!(found(file, "a.example", Some("you")), some("you", "three"));
        assert_eq!(found(file, "b.example", None), some("me", "two"));
        assert_eq!(found(file, "c.example", None), some("anonymous", "four"));
        assert_eq!(found(file, "c.example", Some("me")), None);
        assert_eq!(found("machine a password p", "a", Some("me")), some("me", "p"));
        assert_eq!(found("machine a password p", "a", None), None);
        assert_eq!(found("machine a login me machine b login me password p", "a", None), None);
    }

    #[test]
    fn words_may_be_quoted() {
        let file = r#"machine "a" login "m e" password "p\"\\\nq" "#;
        assert_eq!(found(file, "a", None), some("m e", "p\"\\\nq"));
        assert_eq!(found("machine a login \"\" password #\"x", "a", None), some("", "#\"x"));
        let open = Netrc::parse(b"machine a\nlogin me\npassword \"secret").unwrap_err();
        assert_eq!(open.to_string(), "the quote in line 3 is not closed");
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let file = "\u{feff}machine a login me password one";
        assert_eq!(found(file, "a", None), some("me", "one"));
    }

    #[test]
    fn a_machine_may_have_other_letters() {
        let file = "machine Bücher.example login me password one";
        assert_eq!(found(file, "xn--bcher-kva.example", None), some("me", "one"));
    }

    #[test]
    fn macros_and_comments_are_passed_over() {
        let file = "# machine a login no password no\n\
                    machine a # macdef x\n login me\n\
                    macdef init\nmachine a login no password no\ncd /\n\n\
                    password one\r\nmacdef last\r\nget machine b\r\n\r\nmachine b login me password two";
        assert_eq!(found(file, "a", None), some("me", "one"));
        assert_eq!(found(file, "b", None), some("me", "two"));
        assert_eq!(found("machine a login m password p macdef x\nmachine b", "b", None), None);
        assert_eq!(found("macdef", "a", None), None);
    }

    #[test]
    fn what_is_wrong_is_named_without_its_secrets() {
        let wrong = |bytes: &[u8]| Netrc::parse(bytes).unwrap_err().to_string();
        assert_eq!(
            wrong(b"machine a password"),
            "the word `password` at the end of the file has no value"
        );
        assert_eq!(wrong(b"machine \xff"), "it is not UTF-8");
        assert_eq!(wrong(&vec![b' '; Netrc::MAX_BYTES + 1]), "it is larger than 1 MB");
        let shown = format!("{:?}", Netrc::parse(b"machine a login me password secret"));
        assert!(!shown.contains("secret"), "{shown}");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Netrc::parse(&bytes);
        }

        #[test]
        fn no_words_panic(
            words in proptest::collection::vec(
                "machine|default|login|password|macdef|a|\"|\\\\|#|\n|\n\n| |ä|\r\n", 0..40)
        ) {
            if let Ok(read) = Netrc::parse(words.concat().as_bytes()) {
                let _ = read.login("a", Some("a"));
            }
        }

        #[test]
        fn every_password_can_be_written_in_quotes(password in "\\PC{0,20}") {
            let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
            let file = format!("machine a login me password \"{quoted}\"");
            prop_assert_eq!(found(&file, "a", None), some("me", &password));
        }
    }
}
