//! The cases of a tracer, and the values of a marker's field, as tracks.

use anyhow::{Context, Result, bail, ensure};
use nopal_analysis::markers::{is_of_all, push_value};
use nopal_analysis::names::{Names, ThreadNames};
use nopal_analysis::sort;
use nopal_analysis::tracers::{self, Case, Roles, Tracer};
use nopal_index::Index;
use nopal_trace::{Event, Field, FieldKind, Marker, Markers, Trace, Value};

use crate::track::{Span, Track};

/// The most rows for cases that overlap.
const MOST_LANES: usize = 32;
/// More are refused: they take 24 and 48 bytes each.
const MOST_CASES: usize = 1 << 22;
const MOST_VALUES: usize = 1 << 23;

/// The cases of a tracer.
pub struct Cases {
    /// A span's detail is the place of its case; its label is the thread in which that ended.
    pub track: Track,
    pub all: Vec<Case>,
    /// Whether their keys are not merely threads.
    pub has_keys: bool,
    /// The field whose values are the keys.
    key_field: Option<Field>,
    /// Cases that have no row, since too many others overlap with them.
    pub without_row: u64,
    /// Lines about the cases that are missing.
    pub notes: Vec<String>,
}

impl Cases {
    pub fn new(trace: &Trace, names: &Names, text: &str) -> Result<Cases> {
        let tracer = tracers::asked(text, names)
            .with_context(|| format!("{text:?} is neither a tracer nor FROM..TO"))?;
        let mut all = Vec::new();
        let mut is_beyond = false;
        let past = tracers::of_trace(trace, names, &tracer, |case| {
            is_beyond |= all.len() >= MOST_CASES;
            if !is_beyond {
                all.push(case);
            }
        })?;
        ensure!(!is_beyond, "{text}: more than {MOST_CASES} cases");
        let spans = all.iter().zip(0..).map(|(case, detail)| Span {
            begin: case.begin,
            end: case.end,
            label: case.end_thread,
            detail,
        });
        let thread_names = ThreadNames::new(trace);
        let threads = tracer.threads(trace);
        let labels = threads
            .iter()
            .map(|thread| format!("{} {}", thread_names.of(thread), thread.thread));
        let (track, without_row) =
            Track::of_overlapping(spans.collect(), MOST_LANES, labels.collect());
        Ok(Cases {
            has_keys: !tracer.is_of_kernel_events(),
            key_field: tracer.key_field(trace.markers()).cloned(),
            track,
            all,
            without_row,
            notes: past.describe(),
        })
    }

    /// The key of a case as text: as the field's conversion shows it, or else in hexadecimal.
    pub fn key(&self, case: &Case) -> String {
        let Some(field) = &self.key_field else {
            return format!("{:#x}", case.key);
        };
        let value = match field.kind {
            FieldKind::Signed(_) => Value::Signed(case.key as i64),
            _ => Value::Unsigned(case.key),
        };
        let mut text = Vec::new();
        push_value(&mut text, field, value);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The tracers that may have cases in a trace, as far as its records tell.
pub fn tracers_of(trace: &Trace, names: &Names) -> Vec<&'static str> {
    let has_processors = trace.processors().next().is_some();
    let named = Tracer::NAMED.into_iter().filter(|(_, tracer)| {
        let roles = Roles::of_trace(std::slice::from_ref(tracer), names, trace.markers());
        roles.check().is_ok() && (has_processors || !tracer.is_of_kernel_events())
    });
    named.map(|(name, _)| name).collect()
}

fn is_number(marker: &Marker, field: &Field) -> bool {
    !field.kind.has_length() && field.kind != FieldKind::Missing && !is_of_all(marker, field)
}

/// `MARKER.FIELD` of each field that is a number of the event.
pub fn curves_of(markers: &Markers) -> Vec<String> {
    let mut curves: Vec<String> = markers
        .iter()
        .flat_map(|(_, marker)| {
            let numbers = marker
                .fields
                .iter()
                .filter(|field| is_number(marker, field));
            numbers.map(|field| format!("{}.{}", marker.name, field.name))
        })
        .collect();
    sort::by(&mut curves, Ord::cmp);
    curves.dedup();
    curves
}

/// The values of a field, in order of time.
#[derive(Debug)]
pub struct Curve {
    pub points: Vec<(u64, f64)>,
    /// Markers whose value could not be read.
    pub unread: u64,
}

impl Curve {
    pub fn new(trace: &Trace, index: &Index, text: &str) -> Result<Curve> {
        let (name, wanted) = text.rsplit_once('.').context("not MARKER.FIELD")?;
        let markers = trace.markers();
        if !curves_of(markers).iter().any(|known| known == text) {
            bail!("no marker has a number {text}");
        }
        let mut curve = Curve {
            points: Vec::new(),
            unread: 0,
        };
        for (info, index) in trace.threads().iter().zip(&index.threads) {
            let blocks = index.blocks_in(&(0..u64::MAX));
            for block in blocks.filter(|block| index.markers_in(*block) > 0) {
                let packets = index.packets_in(info, block);
                for record in packets.flat_map(|packet| packet.records()) {
                    let Event::Marker { event, payload } = record.event else {
                        continue;
                    };
                    let Some(marker) = markers.get(event).filter(|marker| marker.name == name)
                    else {
                        continue;
                    };
                    let mut fields = marker.fields.iter();
                    let at =
                        fields.position(|field| field.name == wanted && is_number(marker, field));
                    let values = marker.values(payload).unwrap_or_default();
                    let value = match at.and_then(|at| values.get(at)) {
                        Some(Value::Signed(value)) => *value as f64,
                        Some(Value::Unsigned(value)) => *value as f64,
                        Some(Value::Double(value)) if value.is_finite() => *value,
                        _ => {
                            curve.unread += 1;
                            continue;
                        }
                    };
                    ensure!(
                        curve.points.len() < MOST_VALUES,
                        "{text}: more than {MOST_VALUES} values"
                    );
                    curve.points.push((record.clock, value));
                }
            }
        }
        sort::by_key(&mut curve.points, |point| point.0);
        Ok(curve)
    }

    /// The values within a time.
    pub fn within(&self, from: u64, until: u64) -> &[(u64, f64)] {
        let first = self.points.partition_point(|point| point.0 < from);
        let last = self.points.partition_point(|point| point.0 < until);
        &self.points[first.min(last)..last]
    }
}

/// The least and the greatest of some values.
pub fn extent(points: &[(u64, f64)]) -> Option<(f64, f64)> {
    let (_, first) = *points.first()?;
    Some(
        points
            .iter()
            .fold((first, first), |(least, most), (_, value)| {
                (least.min(*value), most.max(*value))
            }),
    )
}
