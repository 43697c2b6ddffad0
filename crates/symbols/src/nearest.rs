const LONGEST: usize = 128;
const MOST: usize = 3;
/// From this length on, a name that holds the wanted one is close too.
const SHORTEST_PART: usize = 3;

/// The names closest to a mistyped one, the nearest first, for an error message. A name with the wanted one as a class
/// or a namespace is as near as one that differs by a character. Of those equally near, names with a word that begins with
/// the wanted one come before those that have it within a word.
pub fn nearest<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> Vec<&'a str> {
    let wanted: Vec<char> = plain(wanted).chars().take(LONGEST).collect();
    let far = wanted.len() / 3 + 1;
    let mut close: Vec<(usize, bool, &str)> = Vec::new();
    for name in names {
        let lower: Vec<char> = plain(name).chars().take(LONGEST).collect();
        let words = || lower.split(|char| !is_of_word(*char));
        let has_word = words().any(|word| word == wanted);
        let is_within = !words().any(|word| word.starts_with(&wanted));
        let limit = close.get(MOST - 1).map_or(far, |worst| worst.0);
        let part =
            wanted.len() >= SHORTEST_PART && lower.windows(wanted.len()).any(|part| part == wanted);
        let distance = match has_word && lower.len() > wanted.len() {
            true => Some(1),
            false => distance(&lower, &wanted, limit),
        };
        let Some(distance) = distance.or(part.then_some(far)) else {
            continue;
        };
        if !close.iter().any(|other| other.2 == name) {
            let found = (distance, is_within, name);
            let at = close.partition_point(|other| *other <= found);
            close.insert(at, found);
            close.truncate(MOST);
        }
    }
    close.into_iter().map(|(_, _, name)| name).collect()
}

/// The end of a message that something is not there, with the names that [`nearest`] found, if any.
pub fn or_nearest(nearest: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = nearest.iter().map(AsRef::as_ref).collect();
    match names[..] {
        [] => String::new(),
        [name] => format!("; the nearest is {name}"),
        _ => format!("; the nearest are {}", names.join(", ")),
    }
}

fn is_of_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The compared form: without case and wildcards.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|char| !matches!(char, '*' | '?'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// The number of characters to insert, delete, replace or swap with their neighbour, if at most `limit`.
fn distance(a: &[char], b: &[char], limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit {
        return None;
    }
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut row = vec![0; b.len() + 1];
    for (i, &from) in a.iter().enumerate() {
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(from != to))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                best = best.min(before_last[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        if row.iter().all(|&cost| cost > limit) {
            return None;
        }
        (before_last, last, row) = (last, row, before_last);
    }
    Some(last[b.len()]).filter(|&distance| distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::{nearest, or_nearest};

    #[test]
    fn one_name_is_the_nearest_and_several_are() {
        assert_eq!(or_nearest(&[""; 0]), "");
        assert_eq!(or_nearest(&["f"]), "; the nearest is f");
        assert_eq!(or_nearest(&["f", "g"]), "; the nearest are f, g");
    }

    #[test]
    fn the_closest_names_come_first() {
        let names = [
            "parse_list",
            "parse_file",
            "sparse_lien",
            "main",
            "parse_line",
            "parse_lines",
        ];
        assert_eq!(
            nearest(names, "parse_lien"),
            ["parse_line", "sparse_lien", "parse_lines"]
        );
        assert_eq!(nearest(names, "Main"), ["main"]);
        assert_eq!(nearest(names, "mian*"), ["main"]);
        assert_eq!(nearest(names, "entirely_different"), [""; 0]);
        assert_eq!(
            nearest(["ns::Parser::push_back(int)", "pull"], "push_back"),
            ["ns::Parser::push_back(int)"]
        );
        assert_eq!(
            nearest(["sto", "stores", "app::detail::Store<int>::put"], "Store"),
            ["app::detail::Store<int>::put", "stores", "sto"]
        );
        assert_eq!(
            nearest(
                ["__restore", "app::detail::Store<int>::put", "restores"],
                "Stor"
            ),
            ["app::detail::Store<int>::put", "__restore", "restores"]
        );
    }

    #[test]
    fn equal_names_are_named_once() {
        assert_eq!(nearest(["f1", "f1", "f1", "f1", "f2"], "f1"), ["f1", "f2"]);
        assert_eq!(nearest([], "f"), [""; 0]);
        assert_eq!(nearest(["f"], ""), ["f"]);
    }
}
