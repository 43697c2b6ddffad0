//! The manual of the control language and its files.

use roff::{Inline, Roff, bold, italic, roman};

use crate::syntax::forms;
use crate::table::{ARGUMENTS, COMMANDS, Description, FILES, Row};

/// The page nopal-ctl(5), for man(1).
pub fn manual() -> String {
    let mut page = Roff::new();
    page.control("TH", ["NOPAL-CTL", "5"]);
    section(&mut page, "NAME");
    page.text([roman("nopal-ctl - control of a nopal session by text")]);

    section(&mut page, "DESCRIPTION");
    page.text([
        roman("A session of "),
        bold("nopal"),
        roman(" is controlled by commands in text, and shows its state and its trace as text. "),
        bold("nopal ctl"),
        roman(" sends commands to it; "),
        bold("nopal mount"),
        roman(" shows each session as files, in a folder that has the name of its process."),
    ]);
    paragraph(&mut page, RULES);

    section(&mut page, "COMMANDS");
    for (form, description) in described() {
        entry(
            &mut page,
            form_of(form),
            description.about,
            description.examples,
        );
    }
    for argument in ARGUMENTS {
        paragraph(&mut page, &format!("{} {}:", argument.name, argument.is));
        for (form, means) in argument.forms {
            page.control("TP", []);
            page.text([bold(*form)]);
            page.text([roman(*means)]);
        }
    }

    section(&mut page, "FILES");
    for row in FILES {
        let name = vec![bold(path(row)), roman(format!(" ({})", access(row)))];
        entry(&mut page, name, row.about, &[row.example]);
    }

    section(&mut page, "EXAMPLES");
    for (about, commands) in EXAMPLES {
        page.text([roman(*about)]);
        page.control("nf", []);
        page.control("RS", []);
        for command in commands.lines() {
            page.text([roman(command)]);
        }
        page.control("RE", []);
        page.control("fi", []);
        page.control("PP", []);
    }
    section(&mut page, "SEE ALSO");
    page.text([bold("nopal"), roman("(1)")]);
    page.to_roff()
}

const RULES: &str = "A command is a line; words are separated by blanks, and a word with blanks in it is written in \
                     double quotes. # begins a comment where a word could begin. A line that is no command, or cannot \
                     be obeyed, changes nothing, and the error says what was expected; of several lines, those before \
                     it have been obeyed.";

const EXAMPLES: &[(&str, &str)] = &[
    (
        "Count the calls of a function while something happens:",
        "nopal ctl PID 'trace parse_line new p' 'trace p on' start\nnopal ctl PID | grep -A 3 'new p'",
    ),
    (
        "Save the state, and bring another process of the same program into it:",
        "nopal ctl PID > save\nnopal ctl OTHER < save",
    ),
    (
        "Watch calls as they come, by the names of the kernel's tracing directory:",
        "nopal mount /tmp/n; cd /tmp/n/PID/tracing\necho 'parse_*' > set_ftrace_filter\necho function > current_tracer\n\
         cat trace_pipe",
    ),
];

/// All commands of the grammar.
fn described() -> impl Iterator<Item = (&'static str, &'static Description)> {
    forms().filter_map(|form| {
        let description = COMMANDS.iter().find(|command| command.form == form);
        Some((form, description?))
    })
}

fn section(page: &mut Roff, name: &str) {
    page.control("SH", [name]);
}

fn paragraph(page: &mut Roff, text: &str) {
    page.control("PP", []);
    page.text([roman(text)]);
}

fn entry(page: &mut Roff, name: Vec<Inline>, about: &str, examples: &[&str]) {
    page.control("TP", []);
    page.text(name);
    page.text([roman(about)]);
    page.control("RS", []);
    for example in examples {
        page.control("PP", []);
        page.text([roman("Example: "), bold(*example)]);
    }
    page.control("RE", []);
}

/// Arguments in italics, literal words in bold.
fn form_of(form: &str) -> Vec<Inline> {
    let is_word = |char: char| !" [|]".contains(char);
    let parts = form.split_inclusive(|char| !is_word(char));
    let parts = parts.flat_map(|part| {
        let end = part.trim_end_matches(|char| !is_word(char)).len();
        let (word, between) = part.split_at(end);
        let is_argument = word.starts_with(|char: char| char.is_ascii_uppercase());
        let word = if is_argument {
            italic(word)
        } else {
            bold(word)
        };
        [word, roman(between)]
    });
    parts.collect()
}

fn path(row: &Row) -> String {
    match row.folder {
        "" => row.name.to_owned(),
        _ => format!("{}/{}", row.folder, row.name),
    }
}

fn access(row: &Row) -> &'static str {
    match row.mode {
        0o400 => "read",
        0o200 => "write",
        _ => "read and write",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::PROCESSOR;
    use std::fmt::Write;

    /// The same tables, for docs/control.md.
    fn markdown() -> String {
        let mut text = String::from("## Commands\n\n");
        for (form, description) in described() {
            let examples = description.examples.join("` `");
            let _ = writeln!(text, "- **`{form}`** {} `{examples}`", description.about);
        }
        for argument in ARGUMENTS {
            let head = "| | means |\n| --- | --- |";
            let _ = writeln!(text, "\n`{}` {}:\n\n{head}", argument.name, argument.is);
            for (form, means) in argument.forms {
                let [form, means] = [form, means].map(|text| text.replace('|', "\\|"));
                let _ = writeln!(text, "| `{form}` | {} |", means.replace('*', "\\*"));
            }
        }
        text.push_str("\n## Files\n\n");
        for row in FILES {
            let _ = writeln!(
                text,
                "- **`{}`** ({}) {} `{}`",
                path(row),
                access(row),
                row.about,
                row.example
            );
        }
        text
    }

    #[test]
    fn every_command_is_described() {
        let forms: Vec<&str> = forms().collect();
        let described: Vec<&str> = described().map(|(form, _)| form).collect();
        assert_eq!(forms, described);
        assert_eq!(forms.len(), COMMANDS.len());
        for example in COMMANDS.iter().flat_map(|command| command.examples) {
            let parsed = crate::command::parse(example);
            assert!(parsed.is_ok_and(|command| command.is_some()), "{example}");
        }
    }

    /// The small words of a form are in its examples: of those, the ones that it needs are in each, in their order.
    #[test]
    fn every_example_is_of_what_it_stands_at() {
        let is_small = |word: &&str| word.starts_with(|char: char| char.is_ascii_lowercase());
        for command in COMMANDS {
            let mut needed = String::new();
            for (number, part) in command.form.split(['[', ']']).enumerate() {
                // Every other part is in brackets.
                if number % 2 == 0 {
                    needed.push_str(part);
                    continue;
                }
                for word in part.split([' ', '|']).filter(is_small) {
                    let mut words = command.examples.iter().flat_map(|text| text.split(' '));
                    assert!(words.any(|other| other == word), "{}: {word}", command.form);
                }
            }
            for example in command.examples {
                let mut words = example.split(' ');
                for word in needed.split(' ').filter(is_small) {
                    let found = words.any(|other| other == word);
                    assert!(found, "{}: {example}", command.form);
                }
            }
        }
        for row in FILES {
            assert!(row.example.contains(row.name), "{}", path(row));
        }
    }

    /// The listed files are the described ones, folder by folder.
    #[test]
    fn every_file_that_is_served_is_described() {
        let page = manual();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in crate::Control::list(&folder).unwrap() {
                let path = format!("{folder}/{}", entry.name);
                let path = path.trim_start_matches('/');
                if entry.folder {
                    folders.push(path.to_owned());
                    continue;
                }
                // The folder of each processor has the same files.
                let described = path.split('/').filter(|part| !part.starts_with(PROCESSOR));
                let described = described.collect::<Vec<_>>().join("/");
                assert!(page.contains(&described.replace('-', "\\-")), "{path}");
            }
        }
        assert!(page.contains(PROCESSOR));
    }

    #[test]
    fn the_page_in_docs_tells_the_same() {
        // Line breaks do not matter.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let page = words(include_str!("../../../docs/control.md"));
        let text = markdown();
        assert!(
            page.ends_with(&words(&text)),
            "docs/control.md should end with what follows; .ci/reflow breaks its lines:\n\n{text}"
        );
    }
}
