// The shapes of what the server answers; see crates/view/src/api.

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
 * @property {number} calls
 * @property {string} losses
 * @property {Thread[]} threads
 * @property {[string, number][]} functions
 * @property {string[]} modules
 * @property {number[]} pauses
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
 * @property {[number, number, number][] | null} children
 */

/** @typedef {Place & CallDetails} Call */

/**
 * @typedef {object} Stack
 * @property {Place[]} calls
 * @property {Call | null} call
 */

/**
 * @typedef {object} FunctionRow
 * @property {string} function
 * @property {string} module
 * @property {number} calls
 * @property {number} total_ns
 * @property {number} self_ns
 * @property {number} min_ns
 * @property {number} avg_ns
 * @property {number} p50_ns
 * @property {number} p99_ns
 * @property {number} max_ns
 * @property {number} unfinished
 * @property {boolean} [self_is_least]
 * @property {boolean} [total_is_least]
 */

/**
 * Function, parent, calls, total and own nanoseconds.
 * @typedef {object} Graph
 * @property {[number, number, number, number, number][]} nodes
 * @property {number} left_out
 */

/**
 * @typedef {object} Hits
 * @property {number[]} totals
 * @property {[number, number[]][]} columns
 */

/**
 * @typedef {object} Markers
 * @property {[number, string][]} markers
 * @property {boolean} is_cut
 */

/**
 * What is asked of the cells of threads.
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

export {};
