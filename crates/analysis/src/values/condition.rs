//! Conditions on one call or one marker: `duration > 50ms and arg1 & 0xff == 5`, `hits % 100 == 0`, `device == "eth0"`.
//!
//! Two expressions with `==`, `!=`, `<`, `<=`, `>` or `>=` between; or a field and a text, with `==` or `!=`. Several
//! with `and` and `or`, of which `and` binds more tightly. A condition on an unknown value does not hold.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use nopal_trace::{Field, Value};

use super::Needs;
use super::expression::{Expression, Inputs, Parser};

/// Characters of a condition.
const LONGEST: usize = 1024;

/// The number of events so far, including this one.
const HITS: &str = "hits";

#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    /// A disjunction of conjunctions.
    any: Vec<Vec<Term>>,
    names: Vec<String>,
    pub needs: Needs,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Numbers(Expression, Comparison, Expression),
    Text {
        /// A number among the names.
        field: usize,
        equal: bool,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Different,
    AtMost,
    AtLeast,
    Less,
    More,
}

/// The longer ones first.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Different),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

/// The known values of a call or a marker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met<'a> {
    pub hits: u64,
    pub arguments: Option<[u64; 6]>,
    pub result: Option<u64>,
    pub duration_ns: Option<u64>,
    pub self_ns: Option<u64>,
    /// A marker's fields.
    pub fields: &'a [Field],
    pub values: &'a [Value<'a>],
}

impl Condition {
    pub fn parse(text: &str) -> Result<Condition> {
        let text = text.trim();
        ensure!(
            text.len() <= LONGEST,
            "a condition of more than {LONGEST} characters"
        );
        let mut names = Vec::new();
        let mut parser = Parser::with_names(text, &mut names);
        let mut any = vec![vec![term(&mut parser)?]];
        loop {
            if parser.rest.is_empty() {
                break;
            }
            let rest = parser.rest;
            match parser.take_word() {
                "and" => {
                    let term = term(&mut parser)?;
                    any.last_mut().context("there is a first one")?.push(term);
                }
                "or" => any.push(vec![term(&mut parser)?]),
                _ => bail!("expected and, or or the end of the condition, found {rest:?}"),
            }
        }
        let needs = needs(&any);
        Ok(Condition {
            text: text.to_owned(),
            any,
            names,
            needs,
        })
    }

    /// The names of fields that it uses.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| *name != HITS)
    }

    pub fn holds(&self, met: &Met) -> bool {
        let needs = self.needs;
        if needs.arguments && met.arguments.is_none()
            || needs.result && met.result.is_none()
            || needs.end && met.duration_ns.is_none()
        {
            return false;
        }
        let named: Vec<Option<Named>> = self.names.iter().map(|name| met.named(name)).collect();
        let number = |named: &Option<Named>| match named {
            Some(Named::Number(number)) => *number,
            _ => 0,
        };
        let numbers: Vec<i64> = named.iter().map(number).collect();
        let inputs = Inputs {
            arguments: met.arguments.unwrap_or_default(),
            result: met.result.unwrap_or(0),
            duration_ns: met.duration_ns.unwrap_or(0),
            self_ns: met.self_ns.unwrap_or(0),
            named: &numbers,
        };
        let holds = |term: &Term| term.holds(&named, &inputs);
        self.any.iter().any(|all| all.iter().all(holds))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

fn term(parser: &mut Parser) -> Result<Term> {
    let left = parser.expression()?;
    let found = COMPARISONS.iter().find(|(text, _)| parser.take(text));
    let Some((_, comparison)) = found else {
        bail!(
            "expected ==, !=, <, <=, > or >=, found {}",
            match parser.rest {
                "" => "the end of the condition".to_owned(),
                rest => format!("{rest:?}"),
            }
        );
    };
    if !parser.rest.starts_with('"') {
        return Ok(Term::Numbers(left, *comparison, parser.expression()?));
    }
    let text = parser.rest[1..].split_once('"');
    let (text, rest) = text.context("a text has no closing quote")?;
    let (Expression::Named(field), Comparison::Equal | Comparison::Different) = (left, comparison)
    else {
        bail!("{text:?} is a text: compare it with a field, by == or !=");
    };
    parser.rest = rest.trim_start();
    Ok(Term::Text {
        field,
        equal: *comparison == Comparison::Equal,
        text: text.to_owned(),
    })
}

fn needs(any: &[Vec<Term>]) -> Needs {
    let of = |term: &Term| match term {
        Term::Numbers(left, _, right) => Needs::of(left).and(Needs::of(right)),
        Term::Text { .. } => Needs::default(),
    };
    let all = any.iter().flatten();
    all.fold(Needs::default(), |needs, term| needs.and(of(term)))
}

/// The meaning of a name.
enum Named<'a> {
    Number(i64),
    Text(&'a [u8]),
}

impl Met<'_> {
    fn named(&self, name: &str) -> Option<Named<'_>> {
        if name == HITS {
            return i64::try_from(self.hits).ok().map(Named::Number);
        }
        let at = self.fields.iter().position(|field| field.name == name)?;
        Some(match self.values.get(at)? {
            Value::Signed(value) => Named::Number(*value),
            Value::Unsigned(value) => Named::Number(value.cast_signed()),
            Value::Double(value) => Named::Number(*value as i64),
            Value::Bytes(bytes, _) => Named::Text(bytes),
            Value::Unread => return None,
        })
    }
}

impl Term {
    fn holds(&self, named: &[Option<Named>], inputs: &Inputs) -> bool {
        match self {
            Term::Numbers(left, comparison, right) => {
                let known = |side: &Expression| {
                    side.names_are(&|at| matches!(named.get(at), Some(Some(Named::Number(_)))))
                };
                let (a, b) = (left.value(inputs), right.value(inputs));
                known(left)
                    && known(right)
                    && match comparison {
                        Comparison::Equal => a == b,
                        Comparison::Different => a != b,
                        Comparison::AtMost => a <= b,
                        Comparison::AtLeast => a >= b,
                        Comparison::Less => a < b,
                        Comparison::More => a > b,
                    }
            }
            Term::Text { field, equal, text } => match named.get(*field) {
                Some(Some(Named::Text(bytes))) => (*bytes == text.as_bytes()) == *equal,
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_trace::FieldKind;

    fn holds(text: &str, met: &Met) -> bool {
        Condition::parse(text).unwrap().holds(met)
    }

    const CALL: Met = Met {
        hits: 300,
        arguments: Some([5, 0x1234, u64::MAX, 0, 0, 0]),
        result: Some(0xffff_ffff),
        duration_ns: Some(50_000_001),
        self_ns: Some(10),
        fields: &[],
        values: &[],
    };

    #[test]
    fn values_of_a_call_are_compared() {
        for text in [
            "duration > 50ms",
            "duration<=50000001ns",
            "hits >= 3",
            "hits % 100 == 0",
            "arg1 == 5",
            "arg2 >> 8 & 0xf != 3",
            "arg3 < 0",
            "int(result) < 0",
            "self == 10",
            "arg1 == 6 or arg1 == 5",
            "arg1 == 5 and hits == 300 or arg1 == 7",
            "arg1 == 7 or arg1 == 5 and hits == 300",
        ] {
            assert!(holds(text, &CALL), "{text}");
        }
        for text in [
            "duration > 51ms",
            "result < 0",
            "arg1 == 5 and hits == 1",
            "arg1 == 1 or arg1 == 5 and hits == 1",
            "hits != 300",
        ] {
            assert!(!holds(text, &CALL), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_holds_nothing() {
        let met = Met {
            hits: 1,
            ..Met::default()
        };
        for text in [
            "duration >= 0",
            "arg1 == 0",
            "result == 0",
            "len == 0",
            "len != 0",
            "name != \"x\"",
        ] {
            assert!(!holds(text, &met), "{text}");
        }
        assert!(holds("hits == 1", &met));
        assert!(holds("len == 0 or hits == 1", &met));
    }

    #[test]
    fn fields_of_markers_are_compared() {
        let field = |name: &str, kind| Field {
            name: name.into(),
            kind,
            labels: Vec::new(),
        };
        let fields = [
            field("len", FieldKind::Signed(32)),
            field("device_name", FieldKind::Text),
        ];
        let met = Met {
            hits: 2,
            fields: &fields,
            values: &[Value::Signed(-7), Value::Bytes(b"eth 0", 0)],
            ..Met::default()
        };
        assert!(holds("len < 0 and device_name == \"eth 0\"", &met));
        assert!(holds("device_name != \"eth1\"", &met));
        assert!(!holds("device_name == \"eth1\" or len > 0", &met));
        assert!(!holds("device_name > 0", &met), "a text is no number");
        assert!(!holds("len == \"x\"", &met));
        let unread = Met {
            values: &[Value::Unread, Value::Unread],
            ..met
        };
        assert!(!holds(
            "len == 0 or len != 0 or device_name != \"x\"",
            &unread
        ));
        let condition = Condition::parse("len < hits").unwrap();
        assert_eq!(condition.fields().collect::<Vec<_>>(), ["len"]);
    }

    #[test]
    fn what_is_not_understood_is_quoted() {
        let error = |text: &str| Condition::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("duration 5"),
            "expected ==, !=, <, <=, > or >=, found \"5\""
        );
        assert_eq!(
            error("hits"),
            "expected ==, !=, <, <=, > or >=, found the end of the condition"
        );
        assert_eq!(
            error("hits > 1 also arg1 == 2"),
            "expected and, or or the end of the condition, found \"also arg1 == 2\""
        );
        assert!(error("hits > $").starts_with("\"$\" is not a value"));
        assert!(error("duration > 5 m").contains("found \"m\""));
        assert!(error("duration > 5m").starts_with("\"5m\" is not a value"));
        for text in [
            "",
            "and",
            "hits > 1 and",
            "name == \"x",
            "5 == \"x\"",
            "name < \"x\"",
        ] {
            error(text);
        }
        error(&"1 + ".repeat(100_000));
        error(&format!("{}1 > 2", "1+".repeat(600)));
    }
}
