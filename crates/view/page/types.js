// The types of the server's answers (see crates/view/src/api), and of data that modules share. Only tsc reads this
// file: it is not served.

/** @import {Details} from "./details.js" */
/** @import {Timeline} from "./timeline.js" */
/** @import {View} from "./view.js" */

/**
 * @typedef {object} Thread
 * @property {number} process
 * @property {number} thread
 * @property {string} name
 * @property {number} begin
 * @property {number} end
 * @property {number} calls
 * @property {number} depths
 * @property {[number, number][]} missing
 */

/**
 * Times are nanoseconds from the trace's beginning, except `realtime`, which is that since 1970.
 * @typedef {object} Trace
 * @property {string} directory
 * @property {string} command
 * @property {string} host
 * @property {number} duration
 * @property {number} realtime
 * @property {boolean} is_growing
 * @property {boolean} is_checked whether damage is known
 * @property {number} calls
 * @property {string} losses
 * @property {Thread[]} threads
 * @property {[string, number][]} functions
 * @property {string[]} modules
 * @property {number[]} pauses
 * @property {boolean} has_processors
 * @property {string[]} tracers
 * @property {string[]} curves
 */

/**
 * @typedef {object} Place
 * @property {number} function
 * @property {number} depth
 * @property {number} begin
 */

/**
 * @typedef {object} CallDetails
 * @property {string} address
 * @property {number} end
 * @property {number | null} own
 * @property {"returned" | "unwound" | "open" | "entry"} how
 * @property {string[] | null} arguments
 * @property {string | null} result
 * @property {[number, number, number, number] | null} times
 * @property {[string, number][]} kernel
 * @property {[number, number, number][] | null} children
 */

/** @typedef {Place & CallDetails} Call */

/**
 * @typedef {object} Stack
 * @property {Place[]} callers of the call, the outermost first
 * @property {Call | null} call
 */

/**
 * @typedef {object} FunctionRow
 * @property {string} function
 * @property {string} module
 * @property {number} calls
 * @property {number} total_ns
 * @property {number} self_ns
 * @property {number | null} min_ns
 * @property {number | null} avg_ns
 * @property {number | null} p50_ns
 * @property {number | null} p99_ns
 * @property {number | null} max_ns
 * @property {number} unfinished
 * @property {boolean} [self_is_least]
 * @property {boolean} [total_is_least]
 * @property {boolean} [calls_are_least]
 * @property {boolean} [self_with_untimed_callees]
 */

/**
 * The selected time and threads; an absent one selects all.
 * @typedef {object} Selection
 * @property {number} [from]
 * @property {number} [until]
 * @property {string} [threads]
 */

/**
 * The places of a call's function and of its calls by the caller in the source, if known, and its values by their types.
 * @typedef {object} Source
 * @property {string | null} line
 * @property {string[]} calls
 * @property {string} values
 */

/** @typedef {{from: number, to: number, count: number}} Bar */

/**
 * @typedef {{count: number, min: number, max: number, mean: number, p50: number, p90: number, p99: number, "p99.9": number,
 *   bars: Bar[]}} Distribution
 */

/**
 * @typedef {object} Histogram
 * @property {string} unit
 * @property {Distribution[]} groups
 * @property {string[]} left_out
 */

/**
 * One side of a row of `nopal diff`.
 * @typedef {object} Side
 * @property {number} calls
 * @property {number} total_ns
 * @property {number} self_ns
 * @property {number | null} p50_ns
 * @property {boolean} [self_is_least]
 * @property {boolean} [total_is_least]
 * @property {boolean} [calls_are_least]
 * @property {boolean} [self_with_untimed_callees]
 */

/**
 * @typedef {object} Change
 * @property {string} function
 * @property {string} module
 * @property {Side | null} before
 * @property {Side | null} after
 * @property {number} change_ns
 * @property {number | null} p
 * @property {boolean} significant
 */

/** @typedef {{before: {options: string[]}[], after: {options: string[]}[], tested: number, functions: Change[]}} Comparison */

/**
 * Function, parent, calls, total and own nanoseconds, and those of calls in it that are left out. The first is the whole.
 * @typedef {object} Graph
 * @property {[number, number, number, number, number, number][]} nodes
 * @property {number} left_out
 */

/**
 * @typedef {object} Hits
 * @property {number[]} totals
 * @property {[number, number[]][]} columns
 */

/**
 * One of the longest calls of a function.
 * @typedef {object} LongCall
 * @property {number} thread
 * @property {number} function
 * @property {number} begin
 * @property {number} duration
 * @property {boolean} is_least
 * @property {number | null} depth none of a call whose entry was not recorded
 * @property {number | null} caller
 */

/**
 * @typedef {object} Markers
 * @property {[number, string, boolean][]} markers time, text with the values, whether it is a tracepoint of the kernel
 * @property {boolean} is_cut
 */

/**
 * @typedef {object} TrackDescription
 * @property {{name: string, missing: [number, number][]}[]} lanes
 * @property {string[]} labels
 * @property {string[]} notes
 */

/**
 * @typedef {object} TrackSpan
 * @property {number} lane
 * @property {number} begin
 * @property {number} end
 * @property {number} duration
 * @property {number} label
 * @property {number | null} thread
 * @property {number | null} from
 * @property {string | null} key
 */

/**
 * By label: spans, and nanoseconds of them, also by lane.
 * @typedef {object} Sums
 * @property {number} count
 * @property {TrackSpan[]} longest
 * @property {[number, number, number, number[]][]} labels
 */

/**
 * Of each column: number, least, most and last.
 * @typedef {object} Values
 * @property {number} count
 * @property {[number, number] | null} extent
 * @property {number} unread
 * @property {number | null} before
 * @property {([number, number, number, number] | null)[]} columns
 */

/**
 * Time, processor, waker, woken thread, and when that ran.
 * @typedef {object} Wakes
 * @property {[number, number, number | null, number, number | null][]} wakes
 * @property {number} all
 */

/**
 * Time, processor, tracepoint, text, thread.
 * @typedef {object} KernelEvents
 * @property {[number, number, string, string, number | null][]} events
 * @property {boolean} is_cut
 */

/**
 * The rows of a thread whose cells are asked for.
 * @typedef {object} Rows
 * @property {number} thread
 * @property {number} first
 * @property {number} depths
 */

/**
 * Cells, row by row: function, covered, what the function covers, calls. `starts` has the first row of each thread asked for.
 * @typedef {object} Cells
 * @property {number} from
 * @property {number} until
 * @property {number} columns
 * @property {Rows[]} rows
 * @property {number[]} starts
 * @property {boolean} isExact
 * @property {DataView} data
 */

/**
 * A line of the chart: a track, the name of a process, or a thread with its depths.
 * @typedef {object} Line
 * @property {number} top
 * @property {number} height
 * @property {string} process the label of a process, or nothing
 * @property {number} thread -1 for a process
 * @property {number} depths rows of a thread or a track
 * @property {string} track its name, or nothing
 */

/** @typedef {{thread: number, at: number, depth: number}} Point */

/** @typedef {{cells: Cells, image: ImageBitmap}} Picture */
/** @typedef {{text: string, x: number, y: number}} Name */
/**
 * Rows of an image, and the place where they are drawn.
 * @typedef {object} Shown
 * @property {ImageBitmap} image
 * @property {number} first
 * @property {number} rows
 * @property {number} left
 * @property {number} top
 * @property {number} wide
 * @property {Name[]} names
 */

/**
 * @typedef {object} Drawn
 * @property {number} from
 * @property {number} until
 * @property {number} columns
 */

/**
 * A part of the time that is asked for.
 * @typedef {object} Part
 * @property {number} begin
 * @property {number} end
 * @property {number} columns
 * @property {number} shown the time that the view showed
 * @property {number} width that it had, in pixels of the screen
 */

/** @typedef {Drawn & {values: Values}} CurvePicture */
/** @typedef {Drawn & {threads: number[], bytes: Uint8Array, image: ImageBitmap}} StatesPicture */

/**
 * The calls by which a timeline tells the page of events.
 * @typedef {object} Page
 * @property {(error: unknown) => void} fail
 * @property {(timeline: Timeline, fill: (details: Details) => void) => void} show what is looked at
 * @property {() => void} found what a search has found has changed
 * @property {(timeline: Timeline, name: string) => void} clicked a call of this function
 * @property {(view: View) => void} selected a time
 */

/**
 * A measure that is compared: a number of a side, whether it may be more, and how it is written.
 * @typedef {[string, (side: Side) => number | null, (side: Side) => boolean | undefined, (value: number) => string]} Measure
 */

export {};
