//! Every kind of picture: what is in it, and that it can be read.

#[path = "../../analysis/tests/made/mod.rs"]
mod made;

use std::sync::{Arc, LazyLock};

use nopal_analysis::drive::Drive;
use nopal_analysis::filter::{Filter, Moment, Wanted};
use nopal_analysis::graph::Per;
use nopal_analysis::hist::{By, distributions};
use nopal_analysis::names::Names;
use nopal_analysis::values::ValueSelection;
use nopal_plot::flame::{Look, Weight};
use nopal_plot::table::Counts;
use nopal_plot::timeline::{self, Shown};
use nopal_plot::{AxisScale, PNG_WRITER, Picture, bars, cdf, flame, latency};
use nopal_trace::Trace;
use nopal_trace::synthetic::{self, Shape};
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
        let shown = Shown {
            filter: Filter::new(&self.trace, &wanted)?,
            rows,
        };
        timeline::draw(&self.trace, &self.names, &shown, &drive())
    }

    /// A picture of each other kind, of the values that `text` means.
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
        }
        for rows in [3, 200] {
            let counts = Counts::new(trace, names, what, filter, rows, drive).unwrap();
            pictures.push(counts.draw());
        }
        pictures
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
    Arc::new(fonts)
});

fn tree(picture: &Picture) -> usvg::Tree {
    let options = usvg::Options {
        fontdb: FONTS.clone(),
        ..usvg::Options::default()
    };
    usvg::Tree::from_data(&picture.svg, &options).unwrap()
}

/// All texts, and where they are.
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

/// No text leaves the picture, or meets another.
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

/// The level lines of a timeline: from, to, and how high.
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
                &drive(),
            )
            .unwrap();
            let text = String::from_utf8(picture.svg.clone()).unwrap();
            assert!(text.contains("function_") && text.contains("id=\"search\""));
            tree(&picture);
        }
    }
}

#[test]
fn pictures_become_png() {
    let sample = Sample::made();
    let picture = sample.timeline(&[], Wanted::default(), 60).unwrap();
    let png = PNG_WRITER.expect("the tests are built with PNG");
    let image = png(&picture.svg).unwrap();
    assert!(image.starts_with(b"\x89PNG\r\n\x1a\n"));
    let size = tree(&picture).size();
    let width = u32::from_be_bytes(image[16..20].try_into().unwrap());
    assert_eq!(width, (size.width() * 2.0) as u32);
    assert!(image.len() > 10_000, "{} bytes", image.len());
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
