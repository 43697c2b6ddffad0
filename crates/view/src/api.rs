//! The requests of the page: paths below `api/`, those of one trace below its number. Times are nanoseconds from the
//! trace's beginning. Answers are JSON, except for cells.
//!
//! Threads are numbered as in `trace`. Numbers of functions are those of `trace`, too, and 0 is an unknown one.

mod calls;
mod cells;
mod describe;
mod diff;
mod export;
mod query;
mod tables;
mod tracks;

use anyhow::Result;
use serde::Serialize;

use crate::http::Response;
use crate::shown::Shown;
use query::Query;

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

pub fn answer(path: &str, query: &str, traces: &[Shown]) -> Response {
    let answered = match path {
        "diff" => diff::diff(traces, query).map(|body| Response::new(JSON, body)),
        _ => match of_trace(path, traces) {
            Some((shown, name)) => return answer_of(shown, name, query),
            None => Ok(unknown()),
        },
    };
    answered.unwrap_or_else(refused)
}

/// The descriptions of all traces, as a list in JSON.
pub fn traces(traces: &[Shown]) -> Result<String> {
    let described = traces.iter().map(|shown| {
        shown.refresh();
        let is_checked = shown.is_checked();
        shown.with(|state| Ok(serde_json::to_string(&describe::trace(state, is_checked))?))
    });
    let described: Vec<String> = described.collect::<Result<_>>()?;
    Ok(format!("[{}]", described.join(",")))
}

/// `0/functions`: the first trace, and what is asked of it.
fn of_trace<'a>(path: &'a str, traces: &'a [Shown]) -> Option<(&'a Shown, &'a str)> {
    let (number, name) = path.split_once('/')?;
    Some((traces.get(number.parse::<usize>().ok()?)?, name))
}

fn answer_of(shown: &Shown, name: &str, query: &str) -> Response {
    let query = Query::new(query);
    let is_checked = shown.is_checked();
    match name {
        "trace" => shown.refresh(),
        "export" => shown.wait_until_checked(),
        _ => {}
    }
    let answered = shown.with(|state| match name {
        "trace" => json(&describe::trace(state, is_checked)),
        "cells" => cells::cells(state, &query).map(|body| Response::new(BINARY, body)),
        "stack" => json(&calls::stack(state, &query)?),
        "step" => json(&calls::step(state, &query)?),
        "hits" => json(&calls::hits(state, &query)?),
        "markers" => json(&calls::markers(state, &query)?),
        "functions" => tables::functions(state, &query).map(|body| Response::new(JSON, body)),
        "longest" => json(&calls::longest(state, &query)?),
        "hist" => tables::hist(state, &query).map(|body| Response::new(JSON, body)),
        "source" => json(&calls::source(state, &query)?),
        "graph" => json(&tables::graph(state, &query)?),
        "track" => tracks::track(state, &query).map(|body| Response::new(JSON, body)),
        "span" => tracks::span(state, &query).map(|body| Response::new(JSON, body)),
        "spans" => tracks::spans(state, &query).map(|body| Response::new(JSON, body)),
        "lanes" => tracks::lanes(state, &query).map(|body| Response::new(BINARY, body)),
        "states" => tracks::states(state, &query).map(|body| Response::new(BINARY, body)),
        "curve" => json(&tracks::curve(state, &query)?),
        "wakes" => json(&tracks::wakes(state, &query)?),
        "events" => json(&tracks::kernel_events(state, &query)?),
        "export" => export::export(state, &query),
        _ => Ok(unknown()),
    });
    // A wrong request, and a trace that cannot be read, are answered by an error.
    answered.unwrap_or_else(refused)
}

fn unknown() -> Response {
    Response::refusal("404 Not Found", "no such request")
}

pub fn refused(error: anyhow::Error) -> Response {
    Response::refusal("422 Unprocessable Content", &format!("{error:#}"))
}

fn json(value: &impl Serialize) -> Result<Response> {
    Ok(Response::new(JSON, serde_json::to_vec(value)?))
}
