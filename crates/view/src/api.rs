//! What the page asks for: paths below `api/`. Times are nanoseconds from the trace's beginning. Answers are JSON, except
//! for cells.
//!
//! Threads are numbered as in `trace`. Numbers of functions are those of `trace`, too, and 0 is an unknown one.

mod calls;
mod cells;
mod describe;
mod query;
mod tables;

use anyhow::Result;
use serde::Serialize;

use crate::connection::Response;
use crate::shown::Shown;
use query::Query;

const JSON: &str = "application/json";

pub fn answer(name: &str, query: &str, shown: &Shown) -> Response {
    let query = Query::new(query);
    if name == "trace" {
        shown.refresh();
    }
    let answered = shown.with(|state| match name {
        "trace" => json(&describe::trace(state)),
        "cells" => Ok(Response::new(
            "application/octet-stream",
            cells::cells(state, &query)?,
        )),
        "stack" => json(&calls::stack(state, &query)?),
        "step" => json(&calls::step(state, &query)?),
        "hits" => json(&calls::hits(state, &query)?),
        "markers" => json(&calls::markers(state, &query)?),
        "functions" => tables::functions(state, &query).map(|body| Response::new(JSON, body)),
        "graph" => json(&tables::graph(state, &query)?),
        _ => Ok(Response::refusal("404 Not Found", "no such question")),
    });
    // What is asked wrongly, and what cannot be read, is told to whoever asked.
    answered.unwrap_or_else(|error| {
        Response::refusal("422 Unprocessable Content", &format!("{error:#}"))
    })
}

fn json(value: &impl Serialize) -> Result<Response> {
    Ok(Response::new(JSON, serde_json::to_vec(value)?))
}
