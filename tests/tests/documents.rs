//! README, CHANGELOG and docs for their readers: tables are tables, links lead to files, and lines are short.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The most columns of a line, except in tables, where a row is a line.
const COLUMNS: usize = 140;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate lies in the workspace")
        .to_path_buf()
}

/// Each document's path below the root, and its text.
fn documents() -> BTreeMap<PathBuf, String> {
    let root = root();
    let mut found = BTreeMap::new();
    for folder in ["", "docs"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                found.insert(path.strip_prefix(&root).unwrap().to_path_buf(), text);
            }
        }
    }
    assert!(found.len() > 15, "{:?}", found.keys());
    found
}

/// Parses a document as GitHub does.
fn parse(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_GFM;
    Parser::new_ext(text, options).into_offset_iter()
}

/// The number of the line at an offset.
fn line(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// The ranges of fenced blocks and of tables.
fn ranges(text: &str) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let (mut code, mut tables) = (Vec::new(), Vec::new());
    for (event, range) in parse(text) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => code.push(range),
            Event::Start(Tag::Table(_)) => tables.push(range),
            _ => {}
        }
    }
    (code, tables)
}

/// Each line with its offset.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |offset, line| {
        let start = *offset;
        *offset += line.len();
        Some((start, line.trim_end_matches('\n')))
    })
}

/// The number of cells of a row: an escaped bar separates none, also in code.
fn cells(row: &str) -> usize {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    row.replace("\\|", "").matches('|').count() + 1
}

fn assert_nothing(found: &[String]) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_table_is_one_and_has_as_many_cells_in_each_row() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let (code, tables) = ranges(&text);
        let within = |ranges: &[Range<usize>], offset| {
            let range = ranges.iter().find(|range| range.contains(&offset));
            range.cloned()
        };
        for (offset, row) in lines(&text).filter(|(_, line)| line.starts_with('|')) {
            if within(&code, offset).is_some() {
                continue;
            }
            let place = format!("{}:{}", path.display(), line(&text, offset));
            match within(&tables, offset) {
                None => wrong.push(format!("{place}: is no part of a table")),
                Some(table) => {
                    let head = text[table].lines().next().unwrap();
                    if cells(row) != cells(head) {
                        wrong.push(format!("{place}: {} cells, {}", cells(row), cells(head)));
                    }
                }
            }
        }
    }
    assert_nothing(&wrong);
}

#[test]
fn no_line_is_too_long() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (offset, row) in lines(&text).filter(|(_, line)| !line.starts_with('|')) {
            let columns = row.chars().count();
            if columns > COLUMNS {
                let number = line(&text, offset);
                wrong.push(format!("{}:{number}: {columns} columns", path.display()));
            }
        }
    }
    assert_nothing(&wrong);
}

/// The anchors that GitHub gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<String> = None;
    for (event, _) in parse(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let words = heading.take().expect("a heading has begun").to_lowercase();
                let kept = |char: &char| char.is_alphanumeric() || " -_".contains(*char);
                let anchor: String = words.chars().filter(kept).collect();
                let anchor = anchor.replace(' ', "-");
                let before = times.entry(anchor.clone()).or_default();
                found.insert(match before {
                    0 => anchor,
                    _ => format!("{anchor}-{before}"),
                });
                *before += 1;
            }
            _ => {}
        }
    }
    found
}

/// The links of a page to files, each with its line: a path below the root, and an anchor if there is one.
fn links(path: &Path, text: &str) -> Vec<(usize, PathBuf, Option<String>)> {
    let mut found = Vec::new();
    for (event, range) in parse(text) {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) =
            event
        else {
            continue;
        };
        if dest_url.contains("://") {
            continue;
        }
        let (file, anchor) = match dest_url.split_once('#') {
            Some((file, anchor)) => (file, Some(anchor.to_owned())),
            None => (&*dest_url, None),
        };
        let mut target = PathBuf::new();
        let folder = path.parent().unwrap();
        match file {
            "" => target.push(path),
            _ => {
                for part in folder.join(file).components() {
                    match part.as_os_str().to_str() {
                        Some("..") => assert!(target.pop(), "{} leads out", path.display()),
                        Some(part) => target.push(part),
                        None => panic!("{}", path.display()),
                    }
                }
            }
        }
        found.push((line(text, range.start), target, anchor));
    }
    found
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let documents = documents();
    let mut wrong = Vec::new();
    for (path, text) in &documents {
        for (line, target, anchor) in links(path, text) {
            let place = format!("{}:{line}: {}", path.display(), target.display());
            if !root().join(&target).exists() {
                wrong.push(format!("{place} does not exist"));
            } else if let Some(anchor) = anchor {
                let is_there = documents
                    .get(&target)
                    .is_some_and(|text| anchors(text).contains(&anchor));
                if !is_there {
                    wrong.push(format!("{place} has no heading #{anchor}"));
                }
            }
        }
    }
    assert_nothing(&wrong);
}

/// `fuzz/run SECONDS` names a file, too.
#[test]
fn every_file_that_is_named_is_there() {
    let folders = [
        "bench",
        "crates",
        "docs",
        "examples",
        "fuzz",
        "include",
        "packaging",
        "runtime",
        "tests",
    ];
    let is_path = |char: char| char.is_ascii_alphanumeric() || "/._-".contains(char);
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        for (event, range) in parse(&text) {
            let Event::Code(code) = event else { continue };
            let word = code.split(|char| !is_path(char)).next().unwrap_or_default();
            let folder = word.split_once('/').map(|(folder, _)| folder);
            let is_ours = folder.is_some_and(|folder| folders.contains(&folder));
            if is_ours && !root().join(word).exists() {
                let line = line(&text, range.start);
                wrong.push(format!("{}:{line}: {word} does not exist", path.display()));
            }
        }
    }
    assert_nothing(&wrong);
}

#[test]
fn whoever_begins_with_the_readme_finds_every_page() {
    let documents = documents();
    let mut seen = BTreeSet::new();
    let mut left = vec![PathBuf::from("README.md")];
    while let Some(path) = left.pop() {
        if let Some(text) = documents.get(&path)
            && seen.insert(path.clone())
        {
            left.extend(links(&path, text).into_iter().map(|(_, target, _)| target));
        }
    }
    let lost = documents.keys().filter(|path| !seen.contains(*path));
    let lost: Vec<String> = lost.map(|path| path.display().to_string()).collect();
    assert_nothing(&lost);
}
