//! The begin and the end of a trace.

use nopal_trace::Trace;

/// The counter where the trace begins: at the first record of a thread, if it has any, or else when its clocks were first
/// read.
pub fn begin(trace: &Trace) -> u64 {
    let threads = trace.threads();
    let of_threads = threads.iter().filter_map(|thread| thread.packets().next());
    let of_processors = trace.processors();
    let of_processors = of_processors.filter_map(|processor| processor.packets().next());
    let begin = of_threads.map(|packet| packet.clock_begin()).min();
    begin
        .or_else(|| of_processors.map(|packet| packet.clock_begin()).min())
        .or_else(|| Some(trace.clocks().snapshots().first()?.counter))
        .unwrap_or(0)
}

/// The counter at its last record, likewise, or when calls were still open later.
pub fn end(trace: &Trace) -> u64 {
    let threads = trace.threads();
    let of_threads = threads.iter().filter(|thread| thread.packets().len() > 0);
    let of_processors = trace.processors();
    let of_processors = of_processors.filter_map(|processor| processor.packets().next_back());
    let end = of_threads.map(|thread| thread.clock_end()).max();
    end.or_else(|| of_processors.map(|packet| packet.clock_end()).max())
        .or_else(|| Some(trace.clocks().snapshots().last()?.counter))
        .unwrap_or(0)
}
