//! Every kind of picture: its contents, and its legibility.

#[path = "../../analysis/tests/made/mod.rs"]
mod made;

use std::sync::{Arc, LazyLock};

use nopal_analysis::drive::Drive;
use nopal_analysis::filter::{Filter, Moment, Wanted};
use nopal_analysis::graph::Per;
use nopal_analysis::hist::{By, distributions};
use nopal_analysis::names::Names;
use nopal_analysis::values::ValueSelection;
use nopal_plot::flame::{Look, Old, Weight};
use nopal_plot::scatter::{self, Within};
use nopal_plot::table::Counts;
use nopal_plot::timeline::{self, Shown};
use nopal_plot::{AxisScale, Picture, bars, cdf, flame, latency};
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Shape};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg;
use tempfile::TempDir;

struct Sample {
    trace: Trace,
    names: Names,
    _directory: TempDir,
}

impl Sample {
    fn new(write: impl FnOnce(&std::path::Path)) -> Sample {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace");
        write(&path);
        let trace = Trace::open(&path).unwrap();
        let names = Names::new(&trace);
        Sample {
            trace,
            names,
            _directory: directory,
        }
    }

    fn made() -> Sample {
        Sample::new(|path| drop(made::trace(path)))
    }

    fn synthetic(threads: u32) -> Sample {
        let shape = Shape {
            threads,
            calls_per_thread: 3_000,
            functions: 200,
            arguments: true,
            sleeps: 300,
            ..Shape::default()
        };
        Sample::new(|path| {
            synthetic::write(path, &shape).unwrap();
        })
    }

    fn timeline(&self, only: &[&str], wanted: Wanted, rows: usize) -> anyhow::Result<Picture> {
        let only = only.iter().map(|pattern| pattern.to_string()).collect();
        let wanted = Wanted { only, ..wanted };
        let shown = Shown::new(Filter::new(&self.trace, &wanted)?, rows);
        timeline::draw(&self.trace, &self.names, &shown, &drive())
    }

    fn by_thread(&self) -> Picture {
        let shown = Shown::new(Filter::default(), 60);
        timeline::draw_threads(&self.trace, &self.names, &shown, &drive()).unwrap()
    }

    /// A picture of each other kind, of the values that `text` names.
    fn of_values(&self, text: &str, scale: AxisScale) -> Vec<Picture> {
        let (trace, names, drive) = (&self.trace, &self.names, &drive());
        let what = &ValueSelection::new(Some(text), names, trace.markers()).unwrap();
        let filter = &Filter::default();
        let mut pictures = vec![
            latency::draw(trace, names, what, filter, scale, drive).unwrap(),
            bars::draw(trace, names, what, filter, scale, drive).unwrap(),
        ];
        let by = match what.tracer() {
            Some(_) => By::Processor,
            None => By::Function,
        };
        for by in [By::Nothing, By::Thread, by] {
            pictures.push(cdf::draw(trace, names, what, filter, by, scale, drive).unwrap());
            pictures.push(self.scatter(text, by, Within::default(), scale).unwrap());
        }
        for rows in [3, 200] {
            let counts = Counts::new(trace, names, what, filter, rows, drive).unwrap();
            pictures.push(counts.draw());
        }
        pictures
    }
}

impl Sample {
    fn scatter(
        &self,
        text: &str,
        by: By,
        within: Within,
        scale: AxisScale,
    ) -> anyhow::Result<Picture> {
        let (trace, names) = (&self.trace, &self.names);
        let what = &ValueSelection::new(Some(text), names, trace.markers())?;
        let filter = &Filter::default();
        scatter::draw(trace, names, what, filter, by, within, scale, &drive())
    }
}

fn drive() -> Drive<'static> {
    Drive {
        workers: 2,
        ..Drive::default()
    }
}

static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_system_fonts();
    fonts.set_monospace_family("DejaVu Sans Mono");
    Arc::new(fonts)
});

fn tree(picture: &Picture) -> usvg::Tree {
    let options = usvg::Options {
        fontdb: FONTS.clone(),
        ..usvg::Options::default()
    };
    usvg::Tree::from_data(&picture.svg, &options).unwrap()
}

/// All texts, and their places.
fn texts(group: &usvg::Group, found: &mut Vec<(String, usvg::Rect)>) {
    for node in group.children() {
        match node {
            usvg::Node::Group(group) => texts(group, found),
            usvg::Node::Text(text) => {
                let words = text.chunks().iter().map(|chunk| chunk.text());
                found.push((words.collect(), node.abs_bounding_box()));
            }
            _ => {}
        }
    }
}

fn words(tree: &usvg::Tree) -> Vec<(String, usvg::Rect)> {
    let mut found = Vec::new();
    texts(tree.root(), &mut found);
    found
}

/// No text leaves the picture, or overlaps another.
fn assert_readable(picture: &Picture, what: &str) {
    let tree = tree(picture);
    let size = tree.size();
    let found = words(&tree);
    assert!(found.len() > 3, "{what}: {found:?}");
    for (at, (text, place)) in found.iter().enumerate() {
        let inside = place.left() >= 0.0
            && place.top() >= 0.0
            && place.right() <= size.width()
            && place.bottom() <= size.height();
        assert!(inside, "{what}: {text:?} at {place:?} of {size:?}");
        for (other, others) in &found[at + 1..] {
            assert!(
                place.intersect(others).is_none(),
                "{what}: {text:?} at {place:?} and {other:?} at {others:?}"
            );
        }
    }
}

#[test]
fn labels_do_not_overlap_nor_leave_the_picture() {
    let (made, few, many) = (Sample::made(), Sample::synthetic(3), Sample::synthetic(20));
    for sample in [&made, &few, &many] {
        let timeline = sample.timeline(&[], Wanted::default(), 60).unwrap();
        assert_readable(&timeline, "timeline");
        assert_readable(&sample.by_thread(), "timeline by thread");
    }
    for (sample, text, scale) in [
        (&made, "read", AxisScale::Auto),
        (&made, "*", AxisScale::Linear),
        (&few, "function_3", AxisScale::Log),
        (&few, "function_7.arg1", AxisScale::Auto),
        (&many, "*.result >> 60", AxisScale::Linear),
        (&few, "wakeup", AxisScale::Auto),
        (&few, "function_3..function_7", AxisScale::Log),
    ] {
        for (at, picture) in sample.of_values(text, scale).iter().enumerate() {
            assert_readable(picture, &format!("{at} of {text}, {scale:?}"));
        }
    }
}

#[test]
fn a_timeline_by_thread_names_threads_and_their_longest_calls() {
    let sample = Sample::made();
    let picture = sample.by_thread();
    let words = words(&tree(&picture));
    let has = |part: &str| words.iter().any(|(text, _)| text.contains(part));
    for thread in sample.trace.threads() {
        if thread.packets().len() > 0 {
            assert!(has(&format!("thread {}", thread.thread)), "{words:?}");
        }
    }
    assert!(has("main"), "{words:?}");
}

#[test]
fn pictures_of_tracers_count_cases() {
    let sample = Sample::synthetic(2);
    for picture in sample.of_values("offcpu", AxisScale::Auto) {
        let words = words(&tree(&picture));
        let words: Vec<&str> = words.iter().map(|(text, _)| text.as_str()).collect();
        assert!(words.iter().any(|text| text.contains("cases")), "{words:?}");
        assert!(
            words.iter().any(|text| text.contains("offcpu")),
            "{words:?}"
        );
    }
}

#[test]
fn pictures_of_tracers_tell_what_these_missed() {
    let sample = Sample::synthetic(2);
    let (trace, names, filter) = (&sample.trace, &sample.names, &Filter::default());
    let text = "function_3..function_7";
    let what = ValueSelection::new(Some(text), names, trace.markers()).unwrap();
    let (_, notes) = distributions(trace, names, &what, filter, By::Nothing, &drive()).unwrap();
    assert!(!notes.is_empty());
    for picture in sample.of_values(text, AxisScale::Auto) {
        let words = words(&tree(&picture));
        let words: Vec<&str> = words.iter().map(|(text, _)| text.as_str()).collect();
        for line in &notes {
            assert!(words.join(" ").contains(line), "{line}: {words:?}");
        }
    }
}

#[test]
fn a_timeline_has_rows_in_order_of_the_first_call() {
    let sample = Sample::made();
    let picture = sample
        .timeline(
            &["main", "dive", "read", "made::parse"],
            Wanted::default(),
            60,
        )
        .unwrap();
    let mut rows: Vec<(String, f32)> = words(&tree(&picture))
        .into_iter()
        .filter(|(text, _)| {
            ["main", "dive", "read"].contains(&text.as_str()) || text.starts_with("made::")
        })
        .map(|(text, place)| (text, place.top()))
        .collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    let names: Vec<&str> = rows.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    // A call of read had begun before the recording, and was alive all the time before its end.
    assert_eq!([names[0], names[1], names[3]], ["main", "read", "dive"]);
    assert!(names[2].starts_with("made::parse"));
}

/// The level lines of a timeline: from, to, and height.
fn level_lines(picture: &Picture) -> Vec<(f64, f64)> {
    let text = String::from_utf8(picture.svg.clone()).unwrap();
    let paths = text.split(" d=\"").skip(1);
    let paths = paths.flat_map(|path| path.split('"').next().unwrap().split('M').skip(1));
    paths
        .map(|line| {
            let (from, rest) = line.split_once(' ').unwrap();
            let (_, to) = rest.split_once('H').unwrap();
            (from.parse().unwrap(), to.parse().unwrap())
        })
        .collect()
}

/// The dots of a scatter plot: colour, from the left, from the top.
fn dots(picture: &Picture) -> Vec<(String, f64, f64)> {
    let text = String::from_utf8(picture.svg.clone()).unwrap();
    let value = |path: &str, name: &str| {
        let (_, value) = path.split_once(&format!(" {name}=\"")).unwrap();
        value.split('"').next().unwrap().to_string()
    };
    let mut found: Vec<(String, f64, f64)> = Vec::new();
    for path in text.split("<path").skip(1) {
        for dot in value(path, "d").split('M').skip(1) {
            let (x, rest) = dot.split_once(' ').unwrap();
            let (y, _) = rest.split_once('h').unwrap();
            let color = value(path, "fill");
            found.push((color, x.parse().unwrap(), y.parse().unwrap()));
        }
    }
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    found
}

#[test]
fn a_scatter_plot_has_a_dot_for_each_value_where_and_when_it_was() {
    let sample = Sample::synthetic(2);
    let (trace, names) = (&sample.trace, &sample.names);
    let text = "function_3";
    let drawn = |by, within| dots(&sample.scatter(text, by, within, AxisScale::Linear).unwrap());
    let all = drawn(By::Nothing, Within::default());
    let what = ValueSelection::new(Some(text), names, trace.markers()).unwrap();
    let distribution = |by| {
        let found = distributions(trace, names, &what, &Filter::default(), by, &drive());
        found.unwrap().0
    };
    let [group] = &distribution(By::Nothing)[..] else {
        panic!("one group");
    };
    // Values that fall on the same place share a dot.
    let number = group.distribution.count() as usize;
    assert!(all.len() > number / 2 && all.len() <= number, "{number}");
    // The longest is alone on top; it alone is left if the others are not within the bounds.
    let most = group.distribution.most();
    let top = all.iter().map(|dot| dot.2).fold(f64::MAX, f64::min);
    assert_eq!(all.iter().filter(|dot| dot.2 == top).count(), 1);
    let within = Within {
        least: Some(most),
        most: None,
    };
    assert_eq!(drawn(By::Nothing, within).len(), 1);
    let both = drawn(By::Thread, Within::default());
    let mut colors: Vec<&str> = both.iter().map(|dot| dot.0.as_str()).collect();
    colors.sort_unstable();
    colors.dedup();
    assert_eq!(colors.len(), distribution(By::Thread).len());
    let none = Within {
        least: Some(i64::MAX),
        most: None,
    };
    let error = sample.scatter(text, By::Nothing, none, AxisScale::Auto);
    let error = error.err().unwrap().to_string();
    assert!(error.contains("no value is within the bounds"), "{error}");
}

#[test]
fn bars_are_as_long_as_calls() {
    let sample = Sample::made();
    // The first of the thread's calls take 1 and 10 us.
    let filter = Wanted {
        threads: vec![100],
        until: Some(Moment::Time(13_000)),
        ..Wanted::default()
    };
    let picture = sample.timeline(&["read"], filter, 60).unwrap();
    let widths: Vec<f64> = level_lines(&picture)
        .iter()
        .map(|(from, to)| to - from)
        .collect();
    let [first, second, ..] = widths[..] else {
        panic!("{widths:?}");
    };
    assert!((9.0..11.0).contains(&(second / first)), "{widths:?}");
}

#[test]
fn bars_of_many_threads_can_be_told_apart() {
    let sample = Sample::synthetic(8);
    let picture = sample.timeline(&[], Wanted::default(), 10).unwrap();
    let text = String::from_utf8(picture.svg).unwrap();
    let curves = text
        .split("<path")
        .filter(|path| path.contains("stroke-linejoin"));
    let widths = curves.map(|curve| {
        let (_, width) = curve.split_once("stroke-width=\"").unwrap();
        width.split('"').next().unwrap().parse::<f64>().unwrap()
    });
    let widths: Vec<f64> = widths.collect();
    assert!(widths.len() >= 8, "{widths:?}");
    assert!(widths.iter().all(|width| *width >= 3.0), "{widths:?}");
}

#[test]
fn what_is_left_out_of_a_timeline_is_told() {
    let sample = Sample::synthetic(2);
    let filter = Wanted {
        least_ns: 100,
        ..Wanted::default()
    };
    let picture = sample.timeline(&[], filter, 5).unwrap();
    let words: Vec<String> = words(&tree(&picture))
        .into_iter()
        .map(|(text, _)| text)
        .collect();
    let caption = words.join(" ");
    assert!(caption.contains("5 of "), "{caption}");
    assert!(caption.contains("calls of 100 ns or longer"), "{caption}");
}

#[test]
fn an_empty_picture_says_which_filter_emptied_it() {
    let sample = Sample::made();
    let error = |only: &[&str], filter: Wanted| {
        let drawn = sample.timeline(only, filter, 60);
        drawn.err().map(|error| format!("{error:#}")).unwrap()
    };
    let filter = |threads: &[u32], least_ns| Wanted {
        threads: threads.to_vec(),
        least_ns,
        ..Wanted::default()
    };
    assert_eq!(
        error(&["nothing*"], filter(&[], 0)),
        "no function of this trace matches -F and -N"
    );
    let mistyped = error(&["raed@*"], filter(&[], 0));
    assert!(mistyped.ends_with("; the nearest is read"), "{mistyped}");
    let shorter = error(&["read"], filter(&[], 1 << 40));
    assert!(shorter.contains("shorter than 18.3 min"), "{shorter}");
    let other = error(&["read"], filter(&[9], 0));
    assert!(other.starts_with("no thread of this trace"), "{other}");
}

#[test]
fn flame_graphs_name_functions_and_can_be_searched() {
    let sample = Sample::synthetic(1);
    for weight in [Weight::Wall, Weight::Own, Weight::Calls] {
        for icicle in [false, true] {
            let look = Look { icicle, weight };
            let picture = flame::draw(
                &sample.trace,
                &sample.names,
                &Per::default(),
                look,
                None,
                &drive(),
            )
            .unwrap();
            let text = String::from_utf8(picture.svg.clone()).unwrap();
            assert!(text.contains("function_") && text.contains("id=\"search\""));
            tree(&picture);
        }
    }
}

/// Pixels as another program draws the picture, whose text may be placed a little differently.
#[test]
fn pictures_become_png() {
    let sample = Sample::synthetic(3);
    let (trace, names, look) = (&sample.trace, &sample.names, Look::default());
    let curves = sample.of_values("*", AxisScale::Log).swap_remove(0);
    let pictures = [
        curves,
        sample.timeline(&[], Wanted::default(), 10).unwrap(),
        flame::draw(trace, names, &Per::default(), look, None, &drive()).unwrap(),
    ];
    for (number, picture) in pictures.iter().enumerate() {
        let image = Pixmap::decode_png(&picture.png().unwrap()).unwrap();
        let tree = tree(picture);
        let [width, height] =
            [tree.size().width(), tree.size().height()].map(|length| (length * 2.0).ceil() as u32);
        assert_eq!([image.width(), image.height()], [width, height]);
        let mut expected = blank(width, height);
        let scale = Transform::from_scale(2.0, 2.0);
        resvg::render(&tree, scale, &mut expected.as_mut());
        let other = different(&image, &expected);
        let ink = different(&expected, &blank(width, height));
        assert!(
            other < ink / 30.0,
            "picture {number}: {other} of {ink} differ"
        );
    }
}

fn blank(width: u32, height: u32) -> Pixmap {
    let mut blank = Pixmap::new(width, height).unwrap();
    blank.fill(Color::WHITE);
    blank
}

/// The mean difference of squares of 8 by 8 pixels.
fn different(one: &Pixmap, other: &Pixmap) -> f64 {
    const SIDE: u32 = 8;
    let sums = |image: &Pixmap| {
        let columns = image.width().div_ceil(SIDE);
        let mut sums = vec![0.0; (columns * image.height().div_ceil(SIDE)) as usize];
        for (at, pixel) in (0..).zip(image.pixels()) {
            let (x, y) = (at % image.width(), at / image.width());
            let [red, green, blue] = [pixel.red(), pixel.green(), pixel.blue()].map(f64::from);
            sums[(y / SIDE * columns + x / SIDE) as usize] += red + green + blue;
        }
        sums
    };
    let (one, other) = (sums(one), sums(other));
    let differences = one
        .iter()
        .zip(&other)
        .map(|(one, other)| (one - other).abs());
    differences.sum::<f64>() / one.len() as f64
}

/// All texts that a trace has are made hostile, and one name is longer than any picture.
#[test]
fn no_text_of_a_trace_is_more_than_text() {
    for long in [10, 1 << 16] {
        let hostile = |write: &dyn Fn(&std::path::Path)| {
            Sample::new(|path| {
                write(path);
                made::make_hostile(path, long);
            })
        };
        let samples = [
            hostile(&|path| drop(made::trace(path))),
            hostile(&|path| {
                let shape = Shape {
                    threads: 2,
                    calls_per_thread: 300,
                    functions: 5,
                    ..Shape::default()
                };
                synthetic::write(path, &shape).unwrap();
            }),
        ];
        for sample in samples {
            let mut pictures = sample.of_values("*", AxisScale::Log);
            pictures.push(sample.timeline(&[], Wanted::default(), 30).unwrap());
            for weight in [Weight::Wall, Weight::Own, Weight::Calls] {
                let look = Look {
                    weight,
                    icicle: false,
                };
                pictures.push(
                    flame::draw(
                        &sample.trace,
                        &sample.names,
                        &Per::default(),
                        look,
                        None,
                        &drive(),
                    )
                    .unwrap(),
                );
            }
            for picture in pictures {
                tree(&picture);
                let text = String::from_utf8(picture.svg).unwrap();
                assert!(!text.contains("<script>&"), "{text}");
                let harmful = |character: char| {
                    character.is_control() && !"\n\t\r".contains(character)
                        || "\u{202e}\u{2066}\u{2028}\u{ffff}".contains(character)
                };
                let at = text.find(harmful);
                assert_eq!(at.map(|at| text[..at].lines().last()), None);
            }
        }
    }
}

/// A box is red where its function takes more time itself than in the other trace, and blue where it takes less.
#[test]
fn flame_graphs_show_what_changed() {
    // The second has all calls of the first, and those of another thread.
    let (one, two) = (Sample::synthetic(1), Sample::synthetic(2));
    let (look, per) = (Look::default(), Per::default());
    let drawn = |old: &Sample, new: &Sample| {
        let old = Old::new("old.data", &old.trace, &old.names, &per, look, &drive()).unwrap();
        let picture = flame::draw(&new.trace, &new.names, &per, look, Some(&old), &drive());
        let picture = picture.unwrap();
        tree(&picture);
        String::from_utf8(picture.svg).unwrap()
    };
    let colours = |text: &str| {
        let (mut red, mut blue) = (0, 0);
        for colour in text.split("fill=\"rgb(").skip(1) {
            let end = colour.find(')').unwrap();
            let parts = colour[..end].split(',').map(|part| part.parse().unwrap());
            let [r, _, b]: [u8; 3] = parts.collect::<Vec<u8>>().try_into().unwrap();
            red += u32::from(r > b);
            blue += u32::from(b > r);
        }
        (red, blue)
    };
    let same = drawn(&one, &one);
    assert_eq!(colours(&same), (0, 0));
    assert!(same.contains("stacks that are no more had 0 ns"), "{same}");
    let (red, blue) = colours(&drawn(&one, &two));
    assert!(red > 0 && blue == 0, "{red} {blue}");
    let less = drawn(&two, &one);
    let (red, blue) = colours(&less);
    assert!(red == 0 && blue > 0, "{red} {blue}");
    assert!(!less.contains("stacks that are no more had 0 ns"), "{less}");
}
