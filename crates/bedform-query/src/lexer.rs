//! Texts into tokens.

use crate::error::ExpressionError;

/// A word of the language.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Word {
    /// A name in its plain form, or in backquotes.
    Name { text: String, quoted: bool },
    /// A number as it is written.
    Number(String),
    /// An operator or bracket.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// A word with its column in characters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlacedWord {
    pub(crate) word: Word,
    pub(crate) column: usize,
}

/// The signs of Python, longest first. The parser refuses some of them by name.
const SIGNS: [&str; 41] = [
    "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "<>", ":=", "&&", "||", "->", "<", ">", "+",
    "-", "*", "/", "&", "|", "^", "~", "(", ")", ",", "%", "=", "!", "[", "]", "{", "}", ".", ":",
    ";", "@", "?", "$", "#", "\\",
];

/// Splits a text into words. The last one is the end.
pub(crate) fn words(text: &str) -> Result<Vec<PlacedWord>, ExpressionError> {
    let characters: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { characters: &characters, at: 0 };
    let mut words = Vec::new();
    loop {
        let word = lexer.next()?;
        let is_end = word.word == Word::End;
        words.push(word);
        if is_end {
            return Ok(words);
        }
    }
}

struct Lexer<'a> {
    characters: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<PlacedWord, ExpressionError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        let column = self.at;
        let word = match self.peek() {
            None => Word::End,
            Some('`') => self.quoted_name()?,
            Some(first) if is_name_start(first) => {
                Word::Name { text: self.take(is_name_part), quoted: false }
            }
            Some(first) if first.is_ascii_digit() || (first == '.' && self.digit_follows(1)) => {
                self.number()?
            }
            Some(first) => self.sign(first)?,
        };
        Ok(PlacedWord { word, column })
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn digit_follows(&self, ahead: usize) -> bool {
        self.characters.get(self.at + ahead).is_some_and(char::is_ascii_digit)
    }

    fn take(&mut self, accepts: fn(char) -> bool) -> String {
        let rest = &self.characters[self.at..];
        let taken: String = rest.iter().take_while(|character| accepts(**character)).collect();
        self.at += taken.chars().count();
        taken
    }

    /// A name in backquotes; two of them stand for one.
    fn quoted_name(&mut self) -> Result<Word, ExpressionError> {
        let opening = self.at;
        let mut text = String::new();
        self.at += 1;
        loop {
            match self.peek() {
                None => {
                    return Err(ExpressionError::at(opening, "the closing backquote is missing"));
                }
                Some('`') if self.characters.get(self.at + 1) == Some(&'`') => {
                    text.push('`');
                    self.at += 2;
                }
                Some('`') => break,
                Some(character) => {
                    text.push(character);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        if text.is_empty() {
            return Err(ExpressionError::at(opening, "the name in backquotes is empty"));
        }
        Ok(Word::Name { text, quoted: true })
    }

    /// A number of Python, in decimal.
    fn number(&mut self) -> Result<Word, ExpressionError> {
        let start = self.at;
        let mut text = self.take(is_digit);
        let is_octal_like = text.len() > 1 && text.starts_with('0');
        let mut is_integer = true;
        if self.peek() == Some('.') {
            is_integer = false;
            self.at += 1;
            text.push('.');
            text += &self.take(is_digit);
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            let signed = matches!(self.characters.get(self.at + 1), Some('+' | '-'));
            if self.digit_follows(1 + usize::from(signed)) {
                is_integer = false;
                let exponent = 1 + usize::from(signed);
                text.extend(&self.characters[self.at..self.at + exponent]);
                self.at += exponent;
                text += &self.take(is_digit);
            }
        }
        if self.peek().is_some_and(is_name_part) {
            let rest = self.take(is_name_part);
            return Err(ExpressionError::at(
                start,
                format!(
                    "`{text}{rest}` is not a decimal number; a name that starts with a digit \
                     stands in backquotes"
                ),
            ));
        }
        let lonely = |part: &str| part.split(['.', 'e', 'E', '+', '-']).any(has_lonely_underscore);
        if lonely(&text) {
            return Err(ExpressionError::at(start, format!("`{text}` is not a number")));
        }
        if is_integer && is_octal_like && text.bytes().any(|digit| !matches!(digit, b'0' | b'_')) {
            return Err(ExpressionError::at(
                start,
                format!("`{text}` has zeros in front: write it without them"),
            ));
        }
        Ok(Word::Number(text))
    }

    fn sign(&mut self, first: char) -> Result<Word, ExpressionError> {
        let rest = &self.characters[self.at..];
        let found = SIGNS.iter().find(|sign| {
            rest.len() >= sign.len() && sign.chars().zip(rest).all(|(one, other)| one == *other)
        });
        if let Some(sign) = found {
            self.at += sign.len();
            return Ok(Word::Sign(sign));
        }
        let message = if matches!(first, '"' | '\'') {
            "texts cannot be compared; a name with blanks stands in backquotes: `my name`".into()
        } else {
            format!("the character {first:?} has no meaning in an expression")
        };
        Err(ExpressionError::at(self.at, message))
    }
}

/// Returns true for a character that may begin a plain name.
pub(crate) fn is_name_start(character: char) -> bool {
    character == '_' || character.is_alphabetic()
}

/// Returns true for a character that may stand in a plain name.
pub(crate) fn is_name_part(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit() || character == '_'
}

/// Python wants a digit on both sides of an underscore.
fn has_lonely_underscore(digits: &str) -> bool {
    digits.starts_with('_') || digits.ends_with('_') || digits.contains("__")
}
