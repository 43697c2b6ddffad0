// Requests to the server. A request whose answer is no longer needed is aborted.

/**
 * @import {Trace, Cells, Comparison, Rows, Stack, FunctionRow, Graph, Hits, Histogram, KernelEvents, LongCall, Markers, Selection,
 * Source, Sums, TrackDescription, TrackSpan, Values, Wakes} from "./types.js"
 */

const HEADER = 12;
export const CELL = 8;

/** @param {Record<string, string | number>} parameters */
function query(parameters) {
	return Object.entries(parameters).map(([key, value]) => `${key}=${value}`).join("&");
}

/**
 * The offset of a cell in the data of cells.
 * @param {Cells} cells
 * @param {number} row
 * @param {number} column
 */
export function offset(cells, row, column) {
	return HEADER + (row * cells.columns + column) * CELL;
}

/**
 * Markers of a thread in a column.
 * @param {Cells} cells
 * @param {number} thread the place of the thread among those asked for
 * @param {number} column
 */
export function markersAt(cells, thread, column) {
	const all = cells.rows.reduce((sum, { depths }) => sum + depths, 0);
	const begin = HEADER + all * cells.columns * CELL;
	return cells.data.getUint32(begin + (thread * cells.columns + column) * 4, true);
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
async function get(path, signal) {
	const response = await fetch(`api/${path}`, signal ? { signal } : {});
	if (!response.ok) {
		throw new Error(await response.text());
	}
	return response;
}

/** @returns {Trace[]} the traces that are shown, as the page came with them */
export function traces() {
	return JSON.parse(/** @type {HTMLElement} */ (document.getElementById("traces")).textContent ?? "");
}

/**
 * @param {Selection[]} selections of each trace
 * @returns {Promise<Comparison>}
 */
export async function diff(selections) {
	return (await get(`diff?${selections.map(selection => query({ ...selection })).join(";")}`)).json();
}

/** Asks about one trace. */
export class Api {
	/** @param {number} number of the trace, among those that are shown */
	constructor(number) {
		this.number = number;
	}

	/**
	 * @param {string} name
	 * @param {Record<string, string | number>} parameters
	 * @param {AbortSignal} [signal]
	 * @returns {Promise<Response>}
	 */
	ask(name, parameters, signal) {
		return get(`${this.number}/${name}?${query(parameters)}`, signal);
	}

	/** @returns {Promise<Trace>} */
	async trace() {
		return (await this.ask("trace", {})).json();
	}

	/**
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 * @param {Rows[]} rows
	 * @param {boolean} exact
	 * @param {AbortSignal} [signal]
	 * @returns {Promise<Cells>}
	 */
	async cells(from, until, columns, rows, exact, signal) {
		const wanted = rows.map(({ thread, first, depths }) => `${thread}:${first}:${depths}`).join(",");
		const parameters = { from, until, columns, rows: wanted, exact: exact ? 1 : 0 };
		const data = new DataView(await (await this.ask("cells", parameters, signal)).arrayBuffer());
		/** @type {number[]} */
		const starts = [];
		let row = 0;
		for (const { depths } of rows) {
			starts.push(row);
			row += depths;
		}
		return { from, until, columns, rows, starts, isExact: data.getUint32(8, true) === 1, data };
	}

	/**
	 * @param {number} thread
	 * @param {number} at
	 * @param {number} depth
	 * @param {AbortSignal} [signal]
	 * @returns {Promise<Stack>}
	 */
	async stack(thread, at, depth, signal) {
		return (await this.ask("stack", { thread, at, depth }, signal)).json();
	}

	/**
	 * @param {number} thread
	 * @param {number} at
	 * @param {number[]} functions
	 * @param {"next" | "previous"} to
	 * @returns {Promise<Stack>}
	 */
	async step(thread, at, functions, to) {
		return (await this.ask("step", { thread, at, functions: functions.join(","), to })).json();
	}

	/**
	 * @param {number[]} functions
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 * @param {AbortSignal} [signal]
	 * @returns {Promise<Hits>}
	 */
	async hits(functions, from, until, columns, signal) {
		return (await this.ask("hits", { functions: functions.join(","), from, until, columns }, signal)).json();
	}

	/**
	 * @param {Selection} selection
	 * @returns {Promise<FunctionRow[]>}
	 */
	async functions(selection) {
		return (await this.ask("functions", { ...selection })).json();
	}

	/**
	 * @param {Selection} selection
	 * @returns {Promise<Graph>}
	 */
	async graph(selection) {
		return (await this.ask("graph", { ...selection })).json();
	}

	/**
	 * @param {Selection & {function?: number, of?: string}} what
	 * @returns {Promise<Histogram>}
	 */
	async hist(what) {
		return (await this.ask("hist", { ...what })).json();
	}

	/**
	 * @param {number[]} functions
	 * @param {Selection} selection
	 * @returns {Promise<LongCall[]>}
	 */
	async longest(functions, selection) {
		return (await this.ask("longest", { functions: functions.join(","), ...selection })).json();
	}

	/**
	 * @param {number} thread
	 * @param {number} at
	 * @param {number} depth
	 * @returns {Promise<Source>}
	 */
	async source(thread, at, depth) {
		return (await this.ask("source", { thread, at, depth })).json();
	}

	/**
	 * The address of the trace in another format.
	 * @param {string} format
	 * @param {Selection} selection
	 */
	exportAddress(format, selection) {
		return `api/${this.number}/export?${query({ as: format, ...selection })}`;
	}

	/**
	 * @param {number} thread
	 * @param {number} from
	 * @param {number} until
	 * @returns {Promise<Markers>}
	 */
	async markers(thread, from, until) {
		return (await this.ask("markers", { thread, from, until })).json();
	}

	/**
	 * @param {string} track
	 * @returns {Promise<TrackDescription>}
	 */
	async track(track) {
		return (await this.ask("track", { of: encodeURIComponent(track) })).json();
	}

	/**
	 * @param {string} track
	 * @param {number} lanes
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 * @param {AbortSignal} signal
	 * @returns {Promise<Cells>}
	 */
	async lanes(track, lanes, from, until, columns, signal) {
		const answer = await this.ask("lanes", { of: encodeURIComponent(track), from, until, columns }, signal);
		const data = new DataView(await answer.arrayBuffer());
		const depths = Math.min(lanes, data.getUint32(4, true));
		return { from, until, columns, rows: [{ thread: -1, first: 0, depths }], starts: [0], isExact: true, data };
	}

	/**
	 * @param {string} track
	 * @param {number} lane
	 * @param {number} at
	 * @returns {Promise<TrackSpan | null>}
	 */
	async span(track, lane, at) {
		return (await this.ask("span", { of: encodeURIComponent(track), lane, at })).json();
	}

	/**
	 * @param {string} track
	 * @param {{from?: number, until?: number}} range
	 * @returns {Promise<Sums>}
	 */
	async spans(track, range) {
		return (await this.ask("spans", { of: encodeURIComponent(track), ...range })).json();
	}

	/**
	 * @param {string} field
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 * @param {AbortSignal} signal
	 * @returns {Promise<Values>}
	 */
	async curve(field, from, until, columns, signal) {
		return (await this.ask("curve", { of: encodeURIComponent(field), from, until, columns }, signal)).json();
	}

	/**
	 * @param {number[]} threads
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 * @param {AbortSignal} signal
	 */
	async states(threads, from, until, columns, signal) {
		const answer = await this.ask("states", { threads: threads.join(","), from, until, columns }, signal);
		return new Uint8Array(await answer.arrayBuffer());
	}

	/**
	 * @param {number} from
	 * @param {number} until
	 * @param {AbortSignal} signal
	 * @returns {Promise<Wakes>}
	 */
	async wakes(from, until, signal) {
		return (await this.ask("wakes", { from, until }, signal)).json();
	}

	/**
	 * @param {number} from
	 * @param {number} until
	 * @returns {Promise<KernelEvents>}
	 */
	async kernelEvents(from, until) {
		return (await this.ask("events", { from, until })).json();
	}
}
