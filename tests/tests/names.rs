//! The words of docs/glossary.md: the forbidden names do not occur.

use std::path::{Path, PathBuf};

const SKIPPED: [&str; 3] = ["target", ".git", "glossary.md"];
const READ: [&str; 7] = ["rs", "c", "h", "S", "cc", "md", "toml"];

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_none_or(|name| SKIPPED.contains(&name)) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files_below(&path, files);
        } else if path
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| READ.contains(&extension))
        {
            files.push(path);
        }
    }
}

/// The words in backticks in the glossary's last section.
fn given_up(glossary: &str) -> Vec<&str> {
    let (_, section) = glossary.split_once("## Names not to use").unwrap();
    section.split('`').skip(1).step_by(2).collect()
}

#[test]
fn names_that_are_given_up_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let glossary = std::fs::read_to_string(root.join("docs/glossary.md")).unwrap();
    let words = given_up(&glossary);
    assert!(words.len() >= 10, "{words:?}");
    let mut files = Vec::new();
    files_below(&root, &mut files);
    assert!(files.len() > 500, "{}", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut found = text.split(|it: char| !it.is_alphanumeric() && it != '_');
        let found = found.find(|found| words.contains(found));
        assert_eq!(found, None, "{}", file.display());
    }
}
