//! Paths to a variable of the source, or to a part of it, in the syntax of C.

use std::fmt;

/// Steps from a variable to its parts.
const MOST_STEPS: usize = 16;

/// `request`, `request->length`, `queue.head->next`, `values[3]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariablePath {
    text: String,
    pub(crate) variable: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A member of a structure, or of the structure pointed to: `.` and `->` mean the same.
    Member(String),
    /// An element of an array or behind a pointer.
    Element(u64),
}

impl VariablePath {
    /// `None` where the text is no such path.
    pub fn parsed(text: &str) -> Option<VariablePath> {
        let (variable, mut rest) = identifier(text)?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let step;
            if let Some(index) = rest.strip_prefix('[') {
                let (digits, behind) = index.split_once(']')?;
                let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
                step = Step::Element(digits.parse().ok().filter(|_| is_number)?);
                rest = behind;
            } else {
                let behind = rest.strip_prefix("->").or_else(|| rest.strip_prefix('.'))?;
                let (member, behind) = identifier(behind)?;
                step = Step::Member(member.to_owned());
                rest = behind;
            }
            steps.push(step);
        }
        (steps.len() <= MOST_STEPS).then(|| VariablePath {
            text: text.to_owned(),
            variable: variable.to_owned(),
            steps,
        })
    }

    /// One word for it, of letters, digits and underscores: `request_length`.
    pub fn word(&self) -> String {
        let mut word = self.variable.clone();
        for step in &self.steps {
            word += "_";
            match step {
                Step::Member(name) => word += name,
                Step::Element(index) => word += &index.to_string(),
            }
        }
        word
    }
}

impl fmt::Display for VariablePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// As it is written behind a variable or another step.
impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Member(name) => write!(out, ".{name}"),
            Step::Element(index) => write!(out, "[{index}]"),
        }
    }
}

/// The name at the beginning of a text, and the rest.
fn identifier(text: &str) -> Option<(&str, &str)> {
    let is_of_name = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
    let end = text.bytes().position(|letter| !is_of_name(letter));
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    let begins = name.bytes().next()?;
    (!begins.is_ascii_digit()).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_name_and_steps() {
        let steps =
            |text| VariablePath::parsed(text).map(|path| (path.variable.clone(), path.steps.len()));
        assert_eq!(steps("count"), Some(("count".into(), 0)));
        assert_eq!(steps("queue.head->next[3][0]"), Some(("queue".into(), 4)));
        for text in [
            "", "3a", "a-b", "a->", "a.", "a[", "a[]", "a[x]", "a[+1]", "a[-1]", "a b", "->a",
            "a.3",
        ] {
            assert_eq!(steps(text), None, "{text}");
        }
        assert_eq!(steps(&format!("a{}", ".a".repeat(MOST_STEPS + 1))), None);
        let path = VariablePath::parsed("queue.head->next[3]").unwrap();
        assert_eq!(
            (path.word(), path.to_string()),
            ("queue_head_next_3".into(), "queue.head->next[3]".into())
        );
    }
}
