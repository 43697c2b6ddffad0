//! Metrics in the text format of Prometheus: `# HELP` and `# TYPE` of each, then a line for each of its values.

use std::fmt::{self, Display};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the session ends or its counts are reset.
    Counter,
    Gauge,
}

/// A value, with the labels that tell it from the others of its metric.
pub type Value = (Vec<(&'static str, String)>, f64);

/// A metric with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    /// The description, in one line.
    pub about: &'static str,
    pub values: Vec<Value>,
}

impl Metric {
    /// A metric with one value.
    pub fn plain(name: &'static str, kind: Kind, about: &'static str, value: f64) -> Metric {
        Metric {
            name,
            kind,
            about,
            values: vec![(Vec::new(), value)],
        }
    }
}

impl Display for Metric {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        writeln!(out, "# HELP {} {}", self.name, self.about)?;
        writeln!(out, "# TYPE {} {kind}", self.name)?;
        for (labels, value) in &self.values {
            out.write_str(self.name)?;
            for (number, (label, text)) in labels.iter().enumerate() {
                let begin = if number == 0 { '{' } else { ',' };
                write!(out, "{begin}{label}=\"{}\"", escaped(text))?;
            }
            let end = if labels.is_empty() { "" } else { "}" };
            writeln!(out, "{end} {value}")?;
        }
        Ok(())
    }
}

/// The value of a label, as it stands between quotes.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_text_that_no_name_can_break() {
        let metric = Metric {
            name: "nopal_function_calls_total",
            kind: Kind::Counter,
            about: "Calls.",
            values: vec![
                (
                    vec![("function", "a\"} 7\nb\\".into()), ("module", "m".into())],
                    3.0,
                ),
                (vec![], 0.25),
            ],
        };
        assert_eq!(
            metric.to_string(),
            "# HELP nopal_function_calls_total Calls.\n# TYPE nopal_function_calls_total counter\n\
             nopal_function_calls_total{function=\"a\\\"} 7\\nb\\\\\",module=\"m\"} 3\n\
             nopal_function_calls_total 0.25\n"
        );
    }
}
