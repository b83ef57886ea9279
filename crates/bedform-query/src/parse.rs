//! Texts into syntax trees, by precedence climbing with Python's levels.
//!
//! Limits come before memory: a text has at most 64 KiB, a tree at most 200 levels, so that no
//! function that descends a tree overflows its stack.

use std::collections::HashMap;
use std::fmt;

use crate::bind;
use crate::error::ExpressionError;
use crate::evaluate::Predicate;
use crate::lexer::{PlacedWord, Word, words};
use crate::operand::Operand;
use crate::syntax::{
    ArithmeticSign, ComparisonSign, Function, Literal, LogicSign, Syntax, SyntaxKind, Written,
    is_reserved, level,
};

/// The longest text, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The deepest tree.
const DEPTH_MAX: usize = 200;

/// An expression over named arrays.
///
/// It is written as in Python: comparisons, also chained; `and`, `or`, `not`, and `&`, `|`, `^`, `~`
/// with Python's precedence; `+ - * /`; the functions `abs`, `sqrt`, `minimum`, `maximum`, `isnan`
/// and `isfinite`; numbers; names. Names that Python does not have stand in backquotes. `Display`
/// writes it back.
///
/// # Examples
///
/// ```
/// use bedform_query::Expression;
///
/// let expression = Expression::parse("0 < t2m - 273.15 < 10 and not `land/sea mask` > 0.5")?;
/// assert_eq!(expression.names(), ["t2m", "land/sea mask"]);
/// # Ok::<(), bedform_query::ExpressionError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    syntax: Syntax,
    names: Vec<String>,
}

impl Expression {
    /// Parses a text in Python's form, of at most 64 KiB and 200 levels.
    ///
    /// # Errors
    ///
    /// For anything else; the message says what to write instead.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ExpressionError::of_whole(format!(
                "the expression has {} bytes; the limit is {TEXT_BYTES_MAX}",
                text.len()
            )));
        }
        let words = words(text)?;
        let mut parser = ExpressionParser { words: &words, at: 0, names: HashMap::new(), depth: 0 };
        if parser.word() == &Word::End {
            return Err(ExpressionError::of_whole("the expression is empty"));
        }
        let syntax = parser.expression(0)?;
        if parser.word() != &Word::End {
            return Err(parser.unexpected());
        }
        let mut names: Vec<(String, usize)> = parser.names.into_iter().collect();
        names.sort_unstable_by_key(|(_, index)| *index);
        Ok(Self { syntax, names: names.into_iter().map(|(name, _)| name).collect() })
    }

    /// Returns the names of arrays, each once, in order of appearance.
    pub fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    /// Returns the expression with other names of arrays: `names[i]` in place of `names()[i]`.
    ///
    /// ```
    /// use bedform_query::Expression;
    ///
    /// let expression = Expression::parse("t > 3 and t < u")?;
    /// let renamed = expression.renamed(["g/t".to_owned(), "u".to_owned()]);
    /// assert_eq!(renamed.to_string(), "`g/t` > 3 and `g/t` < u");
    /// # Ok::<(), bedform_query::ExpressionError>(())
    /// ```
    #[must_use]
    pub fn renamed(&self, names: impl IntoIterator<Item = String>) -> Self {
        let mut renamed = self.clone();
        renamed.names.iter_mut().zip(names).for_each(|(name, other)| *name = other);
        renamed
    }

    /// Gives the names their types: `operands[i]` belongs to `names()[i]`.
    ///
    /// # Errors
    ///
    /// If an operation does not take the types of its operands, a number does not fit, or the
    /// expression as a whole is not a condition.
    pub fn bind(&self, operands: &[Operand]) -> Result<Predicate, ExpressionError> {
        if operands.len() != self.names.len() {
            return Err(ExpressionError::of_whole(format!(
                "the expression has {} names, and {} arrays were given",
                self.names.len(),
                operands.len()
            )));
        }
        bind::predicate(&self.syntax, operands)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Written(&self.syntax, &self.names).fmt(formatter)
    }
}

/// An operator between two operands.
#[derive(Clone, Copy)]
enum Infix {
    Logic(LogicSign),
    Compare(ComparisonSign),
    Arithmetic(ArithmeticSign),
}

struct ExpressionParser<'a> {
    /// The words; the last one is the end.
    words: &'a [PlacedWord],
    at: usize,
    /// The names with their positions.
    names: HashMap<String, usize>,
    /// The expressions that are being parsed, one inside the other.
    depth: usize,
}

impl ExpressionParser<'_> {
    fn word(&self) -> &Word {
        &self.words[self.at].word
    }

    fn column(&self) -> usize {
        self.words[self.at].column
    }

    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.words.len() - 1);
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_there = matches!(self.word(), Word::Sign(found) if *found == sign);
        if is_there {
            self.advance();
        }
        is_there
    }

    /// Parses operators of at least this level.
    fn expression(&mut self, least: u8) -> Result<Syntax, ExpressionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_deep(self.column()));
        }
        let mut left = self.operand(least)?;
        while let Some((infix, level)) = infix(self.word()).filter(|(_, level)| *level >= least) {
            let column = self.column();
            left = match infix {
                Infix::Compare(_) => self.comparisons(left)?,
                Infix::Logic(sign) => self.joined(left, sign, level)?,
                Infix::Arithmetic(sign) => {
                    self.advance();
                    let right = self.expression(level + 1)?;
                    let kind = SyntaxKind::Arithmetic(sign, Box::new(left), Box::new(right));
                    node(kind, column)?
                }
            };
        }
        self.depth -= 1;
        Ok(left)
    }

    fn comparisons(&mut self, first: Syntax) -> Result<Syntax, ExpressionError> {
        let column = self.column();
        let mut rest = Vec::new();
        while let Some((Infix::Compare(comparison), _)) = infix(self.word()) {
            self.advance();
            rest.push((comparison, self.expression(level::COMPARE + 1)?));
        }
        node(SyntaxKind::Compare(Box::new(first), rest), column)
    }

    /// Operands joined by one sign are one node, however many they are.
    fn joined(
        &mut self,
        first: Syntax,
        sign: LogicSign,
        level: u8,
    ) -> Result<Syntax, ExpressionError> {
        let column = self.column();
        let mut operands = vec![first];
        while matches!(infix(self.word()), Some((Infix::Logic(next), _)) if next == sign) {
            self.advance();
            operands.push(self.expression(level + 1)?);
        }
        node(SyntaxKind::Logic(sign, operands), column)
    }

    /// Parses an operand with the signs before it.
    fn operand(&mut self, least: u8) -> Result<Syntax, ExpressionError> {
        let column = self.column();
        match self.word().clone() {
            Word::Sign("(") => {
                self.advance();
                let inner = self.expression(0)?;
                if self.take_sign(")") { Ok(inner) } else { Err(self.unclosed(column)) }
            }
            Word::Sign("-") => {
                self.advance();
                let operand = Box::new(self.expression(level::UNARY)?);
                node(SyntaxKind::Negate(operand), column)
            }
            Word::Sign("+") => {
                self.advance();
                self.expression(level::UNARY)
            }
            Word::Sign("~") => {
                self.advance();
                let operand = Box::new(self.expression(level::UNARY)?);
                node(SyntaxKind::Not { is_word: false, operand }, column)
            }
            Word::Name { text, quoted: false } if text == "not" => {
                if least > level::NOT {
                    return Err(ExpressionError::at(
                        column,
                        "`not` needs brackets here: (not ...)",
                    ));
                }
                self.advance();
                let operand = Box::new(self.expression(level::NOT)?);
                node(SyntaxKind::Not { is_word: true, operand }, column)
            }
            Word::Number(text) => {
                self.advance();
                node(SyntaxKind::Number(number(&text)), column)
            }
            Word::Name { text, quoted } => self.name(text, quoted),
            Word::Sign(_) | Word::End => Err(self.unexpected()),
        }
    }

    fn name(&mut self, text: String, quoted: bool) -> Result<Syntax, ExpressionError> {
        let column = self.column();
        let literal = match text.as_str() {
            "True" => Some(Literal::Bool(true)),
            "False" => Some(Literal::Bool(false)),
            "inf" => Some(Literal::Real(f64::INFINITY)),
            "nan" => Some(Literal::Real(f64::NAN)),
            _ => None,
        };
        if let Some(literal) = literal.filter(|_| !quoted) {
            self.advance();
            return node(SyntaxKind::Number(literal), column);
        }
        if !quoted && is_reserved(&text) {
            return Err(self.unexpected());
        }
        self.advance();
        if !quoted && self.take_sign("(") {
            return self.call(&text, column);
        }
        let next = self.names.len();
        let index = *self.names.entry(text).or_insert(next);
        node(SyntaxKind::Name(index), column)
    }

    fn call(&mut self, name: &str, column: usize) -> Result<Syntax, ExpressionError> {
        let found = Function::ALL.iter().find(|(known, _)| *known == name);
        let Some((_, function)) = found else {
            let known: Vec<&str> = Function::ALL.iter().map(|(name, _)| *name).collect();
            return Err(ExpressionError::at(
                column,
                format!("there is no function `{name}`; there are {}", known.join(", ")),
            ));
        };
        let mut arguments = Vec::new();
        while !self.take_sign(")") {
            if !arguments.is_empty() && !self.take_sign(",") {
                return Err(self.unclosed(column));
            }
            arguments.push(self.expression(0)?);
        }
        if arguments.len() != function.arguments() {
            return Err(ExpressionError::at(
                column,
                format!(
                    "`{name}` takes {} argument{}, not {}",
                    function.arguments(),
                    if function.arguments() == 1 { "" } else { "s" },
                    arguments.len()
                ),
            ));
        }
        node(SyntaxKind::Call(*function, arguments), column)
    }

    /// The error for a bracket that is not closed where the parser stands.
    fn unclosed(&self, opening: usize) -> ExpressionError {
        match self.word() {
            Word::End => ExpressionError::at(opening, "the closing bracket is missing"),
            _ => self.unexpected(),
        }
    }

    /// The error for a word that cannot stand where it is.
    fn unexpected(&self) -> ExpressionError {
        let message = match self.word() {
            Word::End => {
                "the expression ends where a number, a name or a bracket must follow".into()
            }
            Word::Sign(sign) => refusal(sign),
            Word::Number(text) => format!("`{text}` follows a value: an operator is missing"),
            Word::Name { text, quoted: false } if is_reserved(text) => match text.as_str() {
                "in" | "is" | "if" | "else" | "lambda" | "for" => {
                    format!("`{text}` is not supported; write comparisons joined by and, or, not")
                }
                "not" => "`not` cannot follow a value".into(),
                "and" | "or" => format!("`{text}` has nothing to join here"),
                _ => format!(
                    "`{text}` is a word of Python; an array of this name is `{text}` in backquotes"
                ),
            },
            Word::Name { text, .. } => format!("`{text}` follows a value: an operator is missing"),
        };
        ExpressionError::at(self.column(), message)
    }
}

/// Makes a node, if it is not too deep.
fn node(kind: SyntaxKind, column: usize) -> Result<Syntax, ExpressionError> {
    let below = match &kind {
        SyntaxKind::Name(_) | SyntaxKind::Number(_) => 0,
        SyntaxKind::Negate(operand) | SyntaxKind::Not { operand, .. } => operand.depth,
        SyntaxKind::Arithmetic(_, left, right) => left.depth.max(right.depth),
        SyntaxKind::Compare(first, rest) => {
            rest.iter().map(|(_, operand)| operand.depth).max().unwrap_or(0).max(first.depth)
        }
        SyntaxKind::Logic(_, operands) | SyntaxKind::Call(_, operands) => {
            operands.iter().map(|operand| operand.depth).max().unwrap_or(0)
        }
    };
    if below >= DEPTH_MAX {
        return Err(too_deep(column));
    }
    Ok(Syntax { kind, column, depth: below + 1 })
}

fn too_deep(column: usize) -> ExpressionError {
    ExpressionError::at(
        column,
        format!("the expression has more than {DEPTH_MAX} levels of brackets or operators"),
    )
}

/// The operator that a word is, and its level.
fn infix(word: &Word) -> Option<(Infix, u8)> {
    let text = match word {
        Word::Sign(sign) => *sign,
        Word::Name { text, quoted: false } => text,
        _ => return None,
    };
    let arithmetic = |sign, level| (Infix::Arithmetic(sign), level);
    let compare = |comparison| (Infix::Compare(comparison), level::COMPARE);
    Some(match text {
        "or" => (Infix::Logic(LogicSign::Or), level::OR),
        "and" => (Infix::Logic(LogicSign::And), level::AND),
        "|" => (Infix::Logic(LogicSign::BitOr), level::BIT_OR),
        "^" => (Infix::Logic(LogicSign::BitXor), level::BIT_XOR),
        "&" => (Infix::Logic(LogicSign::BitAnd), level::BIT_AND),
        "<" => compare(ComparisonSign::Less),
        "<=" => compare(ComparisonSign::LessEqual),
        ">" => compare(ComparisonSign::Greater),
        ">=" => compare(ComparisonSign::GreaterEqual),
        "==" => compare(ComparisonSign::Equal),
        "!=" => compare(ComparisonSign::NotEqual),
        "+" => arithmetic(ArithmeticSign::Add, level::SUM),
        "-" => arithmetic(ArithmeticSign::Subtract, level::SUM),
        "*" => arithmetic(ArithmeticSign::Multiply, level::PRODUCT),
        "/" => arithmetic(ArithmeticSign::Divide, level::PRODUCT),
        _ => return None,
    })
}

/// The value of a number's text, which the lexer has checked.
fn number(text: &str) -> Literal {
    let digits = text.replace('_', "");
    // Rust's parser of floats accepts all texts that the lexer lets through.
    let nearest = || digits.parse::<f64>().unwrap_or(f64::NAN);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse().map_or_else(|_| Literal::Huge(nearest()), Literal::Integer)
    } else {
        Literal::Real(nearest())
    }
}

/// Says what to write instead of a sign.
fn refusal(sign: &str) -> String {
    let instead = match sign {
        "**" => "multiply instead, or use sqrt",
        "%" | "//" | "@" | "<<" | ">>" => "the operators of arithmetic are + - * /",
        "&&" => "write `and`",
        "||" => "write `or`",
        "!" => "write `not`",
        "<>" => "write `!=`",
        "=" | ":=" => "write `==` to compare",
        "[" | "]" => "choose elements by region= or sel=",
        "." => "an array whose name has a dot stands in backquotes: `a.b`",
        "(" => "only functions are called; a name in backquotes is an array",
        ")" => return "`)` closes no bracket, or a value is missing before it".into(),
        "," => return "`,` separates arguments of functions only".into(),
        "<" | "<=" | ">" | ">=" | "==" | "!=" | "*" | "/" | "&" | "|" | "^" => {
            return format!("a value is missing before `{sign}`");
        }
        _ => "see the guide for the operators and functions",
    };
    format!("`{sign}` is not supported; {instead}")
}
