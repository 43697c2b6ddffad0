//! Expressions of a call's values: `result`, `arg1 >> 12`, `int(result) + 1`.
//!
//! ```text
//! operators, the loosest first, as in C:   |   ^   &   << >>   + -   * / %   - ~ (before a value)
//! values:   arg1 … arg6   result   duration   self   12   0xfff   50ms   (…)   int(…)
//! ```
//!
//! A number with ns, us, ms or s is a time in nanoseconds, as durations are.
//!
//! Values have 64 bits and wrap; they are signed, but `>>` fills with zeroes, as addresses want it. `int` takes the
//! lower 32 bits with their sign, as the result of a C function of type `int`. A division by 0 gives 0.

use anyhow::{Result, bail, ensure};

/// The values that one call may have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    pub arguments: [u64; 6],
    pub result: u64,
    pub duration_ns: u64,
    pub self_ns: u64,
    /// The values of names, by their numbers.
    pub named: &'a [i64],
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    Number(i64),
    /// Counted from 0.
    Argument(usize),
    Result,
    Duration,
    Own,
    /// The value of a name that is none of these, by its number.
    Named(usize),
    Int(Box<Expression>),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    Minus,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binary {
    Or,
    Xor,
    And,
    Left,
    Right,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// By how tightly they bind.
const LEVELS: [&[(&str, Binary)]; 6] = [
    &[("|", Binary::Or)],
    &[("^", Binary::Xor)],
    &[("&", Binary::And)],
    &[("<<", Binary::Left), (">>", Binary::Right)],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[
        ("*", Binary::Multiply),
        ("/", Binary::Divide),
        ("%", Binary::Remainder),
    ],
];

const DEEPEST: usize = 64;

impl Expression {
    pub fn parse(text: &str) -> Result<Expression> {
        let mut parser = Parser {
            rest: text.trim(),
            depth: 0,
            names: None,
        };
        let expression = parser.binary(0)?;
        ensure!(
            parser.rest.is_empty(),
            "in the expression {text:?}, {:?} is not valid",
            parser.rest
        );
        Ok(expression)
    }

    pub fn value(&self, inputs: &Inputs) -> i64 {
        match self {
            Expression::Number(number) => *number,
            Expression::Argument(index) => inputs.arguments[*index] as i64,
            Expression::Result => inputs.result as i64,
            Expression::Duration => inputs.duration_ns as i64,
            Expression::Own => inputs.self_ns as i64,
            Expression::Named(index) => inputs.named.get(*index).copied().unwrap_or(0),
            Expression::Int(inner) => i64::from(inner.value(inputs) as i32),
            Expression::Unary(Unary::Minus, inner) => inner.value(inputs).wrapping_neg(),
            Expression::Unary(Unary::Not, inner) => !inner.value(inputs),
            Expression::Binary(operator, left, right) => {
                operator.apply(left.value(inputs), right.value(inputs))
            }
        }
    }

    /// Whether `is` holds for the number of each of its names.
    pub fn names_are(&self, is: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Expression::Named(name) => is(*name),
            Expression::Int(inner) | Expression::Unary(_, inner) => inner.names_are(is),
            Expression::Binary(_, left, right) => left.names_are(is) && right.names_are(is),
            _ => true,
        }
    }

    /// Whether `is` holds for any part of it.
    pub fn has(&self, is: fn(&Expression) -> bool) -> bool {
        is(self)
            || match self {
                Expression::Int(inner) | Expression::Unary(_, inner) => inner.has(is),
                Expression::Binary(_, left, right) => left.has(is) || right.has(is),
                _ => false,
            }
    }
}

impl Binary {
    fn apply(self, left: i64, right: i64) -> i64 {
        let shift = |shifted: Option<u64>| shifted.unwrap_or(0) as i64;
        let by = u32::try_from(right).unwrap_or(u32::MAX);
        match self {
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::And => left & right,
            Binary::Left => shift((left as u64).checked_shl(by)),
            Binary::Right => shift((left as u64).checked_shr(by)),
            Binary::Add => left.wrapping_add(right),
            Binary::Subtract => left.wrapping_sub(right),
            Binary::Multiply => left.wrapping_mul(right),
            Binary::Divide if right == 0 => 0,
            Binary::Divide => left.wrapping_div(right),
            Binary::Remainder if right == 0 => 0,
            Binary::Remainder => left.wrapping_rem(right),
        }
    }
}

pub struct Parser<'a> {
    pub rest: &'a str,
    depth: usize,
    /// The names used so far, if names are allowed.
    names: Option<&'a mut Vec<String>>,
}

impl<'a> Parser<'a> {
    /// Parses text with names. They are added to `names` in the order of their numbers.
    pub fn with_names(text: &'a str, names: &'a mut Vec<String>) -> Parser<'a> {
        Parser {
            rest: text.trim(),
            depth: 0,
            names: Some(names),
        }
    }

    /// An expression from the front of the text.
    pub fn expression(&mut self) -> Result<Expression> {
        self.depth = 0;
        self.binary(0)
    }

    fn binary(&mut self, level: usize) -> Result<Expression> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.take(text)) {
            let right = self.binary(level + 1)?;
            left = Expression::Binary(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression> {
        self.depth += 1;
        ensure!(self.depth <= DEEPEST, "the expression is nested too deeply");
        let expression = if self.take("-") {
            Expression::Unary(Unary::Minus, Box::new(self.unary()?))
        } else if self.take("~") {
            Expression::Unary(Unary::Not, Box::new(self.unary()?))
        } else if self.take("(") {
            self.parenthesis()?
        } else {
            self.word()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn parenthesis(&mut self) -> Result<Expression> {
        let inner = self.binary(0)?;
        ensure!(self.take(")"), "a parenthesis is not closed");
        Ok(inner)
    }

    fn word(&mut self) -> Result<Expression> {
        let word = self.take_word();
        Ok(match word {
            "result" => Expression::Result,
            "duration" => Expression::Duration,
            "self" => Expression::Own,
            "int" if self.take("(") => Expression::Int(Box::new(self.parenthesis()?)),
            _ => match (word.strip_prefix("arg"), number(word)) {
                (Some("1" | "2" | "3" | "4" | "5" | "6"), _) => {
                    Expression::Argument(usize::from(word.as_bytes()[3] - b'1'))
                }
                (_, Some(number)) => Expression::Number(number),
                _ => self.name(word)?,
            },
        })
    }

    fn name(&mut self, word: &str) -> Result<Expression> {
        let begins = word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let Some(names) = self.names.as_mut().filter(|_| begins) else {
            bail!(
                "{:?} is not a value: use arg1 to arg6, result, duration, self, numbers or int(…)",
                if word.is_empty() { self.rest } else { word }
            );
        };
        let known = names.iter().position(|name| name == word);
        Ok(Expression::Named(known.unwrap_or_else(|| {
            names.push(word.to_owned());
            names.len() - 1
        })))
    }

    pub fn take_word(&mut self) -> &'a str {
        let is_other = |character: char| !character.is_ascii_alphanumeric() && character != '_';
        let end = self.rest.find(is_other).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    pub fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }
}

const UNITS: [(&str, i64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

pub fn number(word: &str) -> Option<i64> {
    if let Some(digits) = word.strip_prefix("0x") {
        let number = u64::from_str_radix(digits, 16).ok();
        return number.map(|number| number as i64);
    }
    let mut units = UNITS.iter();
    units
        .find_map(|(unit, ns)| {
            let count: i64 = word.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(*ns)
        })
        .or_else(|| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: Inputs = Inputs {
        arguments: [0x7ffd_1234_5678, 2, 3, 4, 5, u64::MAX],
        result: 0xffff_fffe,
        duration_ns: 1500,
        self_ns: 20,
        named: &[],
    };

    fn value(text: &str) -> i64 {
        Expression::parse(text).unwrap().value(&INPUTS)
    }

    #[test]
    fn values_of_calls() {
        assert_eq!(value("arg1 >> 12"), 0x7ffd_1234_5678 >> 12);
        assert_eq!(value("arg6"), -1);
        assert_eq!(value("arg6>>63"), 1);
        assert_eq!(value("result"), 0xffff_fffe);
        assert_eq!(value("int(result)"), -2);
        assert_eq!(value("duration - self"), 1480);
        assert_eq!(value("duration - 1us"), 500);
        assert_eq!(
            [value("7ns"), value("2ms"), value("3s")],
            [7, 2_000_000, 3_000_000_000]
        );
    }

    #[test]
    fn operators_bind_as_in_c() {
        assert_eq!(value("1 + 2 * 3 - 4"), 3);
        assert_eq!(value("(1+2)*3"), 9);
        assert_eq!(value("1 | 6 & 3 ^ 1 << 2 + 1"), 1 | (6 & 3) ^ (1 << 3));
        assert_eq!(value("7 - 2 - 1"), 4);
        assert_eq!(value("-2 * ~0"), 2);
        assert_eq!(value("0x10 % 7 / 0"), 0);
        assert_eq!(value("1 << 64"), 0);
    }

    #[test]
    fn what_is_not_understood_is_told() {
        for text in [
            "",
            "arg7",
            "arg",
            "1 +",
            "(1",
            "1 2",
            "int",
            "res",
            "-",
            "1 $ 2",
            "len",
            "5m",
            "9999999999s",
        ] {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
        assert!(Expression::parse(&"(".repeat(100_000)).is_err());
        assert!(Expression::parse(&"-".repeat(100_000)).is_err());
    }
}
