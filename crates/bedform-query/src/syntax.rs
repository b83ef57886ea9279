//! Syntax trees, and their form in Python.

use std::fmt;

use crate::lexer::{is_name_part, is_name_start};

/// A node of a syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Syntax {
    pub(crate) kind: SyntaxKind,
    /// The column of its sign, name or number, in characters.
    pub(crate) column: usize,
    /// The levels of the tree below, this one included.
    pub(crate) depth: usize,
}

/// The forms of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SyntaxKind {
    /// An array, by its position in the names.
    Name(usize),
    /// A number.
    Number(Literal),
    /// `-x`.
    Negate(Box<Syntax>),
    /// `not x`, or `~x`.
    Not { is_word: bool, operand: Box<Syntax> },
    /// `x + y`.
    Arithmetic(ArithmeticSign, Box<Syntax>, Box<Syntax>),
    /// `x < y <= z`.
    Compare(Box<Syntax>, Vec<(ComparisonSign, Syntax)>),
    /// `x and y and z`.
    Logic(LogicSign, Vec<Syntax>),
    /// `minimum(x, y)`.
    Call(Function, Vec<Syntax>),
}

/// A number of a text: of Python, so without a fixed type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Literal {
    Bool(bool),
    Integer(i128),
    /// An integer beyond `i128`, by its nearest float, which may be infinite.
    Huge(f64),
    Real(f64),
}

/// The signs of arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArithmeticSign {
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// The signs of comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonSign {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

/// The operators that join conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogicSign {
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
}

/// The functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Sqrt,
    Minimum,
    Maximum,
    IsNan,
    IsFinite,
}

impl ArithmeticSign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
        }
    }

    fn level(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => level::SUM,
            Self::Multiply | Self::Divide => level::PRODUCT,
        }
    }
}

impl ComparisonSign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// The comparison with its sides exchanged.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
            Self::Equal | Self::NotEqual => self,
        }
    }
}

impl LogicSign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
        }
    }

    fn level(self) -> u8 {
        match self {
            Self::Or => level::OR,
            Self::And => level::AND,
            Self::BitOr => level::BIT_OR,
            Self::BitXor => level::BIT_XOR,
            Self::BitAnd => level::BIT_AND,
        }
    }
}

impl Function {
    /// The functions by name.
    pub(crate) const ALL: [(&'static str, Self); 6] = [
        ("abs", Self::Abs),
        ("sqrt", Self::Sqrt),
        ("minimum", Self::Minimum),
        ("maximum", Self::Maximum),
        ("isnan", Self::IsNan),
        ("isfinite", Self::IsFinite),
    ];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Sqrt => "sqrt",
            Self::Minimum => "minimum",
            Self::Maximum => "maximum",
            Self::IsNan => "isnan",
            Self::IsFinite => "isfinite",
        }
    }

    /// The number of arguments.
    pub(crate) fn arguments(self) -> usize {
        1 + usize::from(matches!(self, Self::Minimum | Self::Maximum))
    }
}

/// Python's levels of precedence: a higher one binds more tightly.
pub(crate) mod level {
    pub(crate) const OR: u8 = 1;
    pub(crate) const AND: u8 = 2;
    pub(crate) const NOT: u8 = 3;
    pub(crate) const COMPARE: u8 = 4;
    pub(crate) const BIT_OR: u8 = 5;
    pub(crate) const BIT_XOR: u8 = 6;
    pub(crate) const BIT_AND: u8 = 7;
    pub(crate) const SUM: u8 = 9;
    pub(crate) const PRODUCT: u8 = 10;
    pub(crate) const UNARY: u8 = 11;
    pub(crate) const ATOM: u8 = 12;
}

/// Words of Python that are not names of arrays; an array of such a name stands in backquotes.
const RESERVED: [&str; 38] = [
    "True",
    "False",
    "None",
    "inf",
    "nan",
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "lambda",
    "for",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "except",
    "finally",
    "from",
    "global",
    "import",
    "nonlocal",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "__debug__",
];

/// Returns true for names that need backquotes because Python or the language uses them.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// A syntax tree with its names, to be written.
pub(crate) struct Written<'a>(pub(crate) &'a Syntax, pub(crate) &'a [String]);

impl fmt::Display for Written<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(syntax, names) = self;
        let inner = |inner| Written(inner, names);
        match &syntax.kind {
            SyntaxKind::Name(index) => write_name(&names[*index], formatter),
            SyntaxKind::Number(literal) => literal.fmt(formatter),
            SyntaxKind::Negate(operand) => {
                formatter.write_str("-")?;
                inner(operand).within(level::UNARY, formatter)
            }
            SyntaxKind::Not { is_word, operand } => {
                let (text, least) =
                    if *is_word { ("not ", level::NOT) } else { ("~", level::UNARY) };
                formatter.write_str(text)?;
                inner(operand).within(least, formatter)
            }
            SyntaxKind::Arithmetic(sign, left, right) => {
                inner(left).within(sign.level(), formatter)?;
                write!(formatter, " {} ", sign.text())?;
                inner(right).within(sign.level() + 1, formatter)
            }
            SyntaxKind::Compare(first, rest) => {
                inner(first).within(level::COMPARE + 1, formatter)?;
                for (comparison, operand) in rest {
                    write!(formatter, " {} ", comparison.text())?;
                    inner(operand).within(level::COMPARE + 1, formatter)?;
                }
                Ok(())
            }
            SyntaxKind::Logic(sign, operands) => {
                for (index, operand) in operands.iter().enumerate() {
                    if index > 0 {
                        write!(formatter, " {} ", sign.text())?;
                    }
                    inner(operand).within(sign.level() + 1, formatter)?;
                }
                Ok(())
            }
            SyntaxKind::Call(function, arguments) => {
                write!(formatter, "{}(", function.text())?;
                for (index, argument) in arguments.iter().enumerate() {
                    if index > 0 {
                        formatter.write_str(", ")?;
                    }
                    inner(argument).fmt(formatter)?;
                }
                formatter.write_str(")")
            }
        }
    }
}

impl Written<'_> {
    /// Writes the tree, in brackets if its level is below `least`.
    fn within(&self, least: u8, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.level() < least {
            write!(formatter, "({self})")
        } else {
            fmt::Display::fmt(self, formatter)
        }
    }
}

impl Syntax {
    fn level(&self) -> u8 {
        match &self.kind {
            SyntaxKind::Name(_) | SyntaxKind::Number(_) | SyntaxKind::Call(..) => level::ATOM,
            SyntaxKind::Negate(_) | SyntaxKind::Not { is_word: false, .. } => level::UNARY,
            SyntaxKind::Not { is_word: true, .. } => level::NOT,
            SyntaxKind::Arithmetic(sign, ..) => sign.level(),
            SyntaxKind::Compare(..) => level::COMPARE,
            SyntaxKind::Logic(sign, _) => sign.level(),
        }
    }
}

fn write_name(name: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut characters = name.chars();
    let is_plain = characters.next().is_some_and(is_name_start)
        && characters.all(is_name_part)
        && !is_reserved(name);
    if is_plain {
        formatter.write_str(name)
    } else {
        write!(formatter, "`{}`", name.replace('`', "``"))
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(true) => formatter.write_str("True"),
            Self::Bool(false) => formatter.write_str("False"),
            Self::Integer(value) => value.fmt(formatter),
            // All digits of the float, which is an integer; infinity needs one beyond the floats.
            Self::Huge(value) if value.is_infinite() => write!(formatter, "1{:0>309}", 0),
            Self::Huge(value) => write!(formatter, "{value:.0}"),
            Self::Real(value) if value.is_infinite() => formatter.write_str("inf"),
            Self::Real(value) if value.is_nan() => formatter.write_str("nan"),
            Self::Real(value) => write!(formatter, "{value:?}"),
        }
    }
}
