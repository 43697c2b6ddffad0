// Asks the server. An answer that is not wanted any more is given up.

/** @import {Trace, Cells, Rows, Stack, FunctionRow, Graph, Hits, Markers} from "./types.js" */

const HEADER = 12;
export const CELL = 8;

/**
 * @param {string} name
 * @param {Record<string, string | number>} parameters
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function ask(name, parameters, signal) {
	const query = Object.entries(parameters).map(([key, value]) => `${key}=${value}`).join("&");
	const response = await fetch(`api/${name}?${query}`, signal ? { signal } : {});
	if (!response.ok) {
		throw new Error(await response.text());
	}
	return response;
}

/** @returns {Promise<Trace>} */
export async function trace() {
	return (await ask("trace", {})).json();
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
export async function cells(from, until, columns, rows, exact, signal) {
	const wanted = rows.map(({ thread, first, depths }) => `${thread}:${first}:${depths}`).join(",");
	const parameters = { from, until, columns, rows: wanted, exact: exact ? 1 : 0 };
	const data = new DataView(await (await ask("cells", parameters, signal)).arrayBuffer());
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
 * Where a cell is in the data of cells.
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
 * @param {number} thread
 * @param {number} at
 * @param {number} depth
 * @param {AbortSignal} [signal]
 * @returns {Promise<Stack>}
 */
export async function stack(thread, at, depth, signal) {
	return (await ask("stack", { thread, at, depth }, signal)).json();
}

/**
 * @param {number} thread
 * @param {number} at
 * @param {number[]} functions
 * @param {"next" | "previous"} to
 * @returns {Promise<Stack>}
 */
export async function step(thread, at, functions, to) {
	return (await ask("step", { thread, at, functions: functions.join(","), to })).json();
}

/**
 * @param {number[]} functions
 * @param {number} from
 * @param {number} until
 * @param {number} columns
 * @param {AbortSignal} [signal]
 * @returns {Promise<Hits>}
 */
export async function hits(functions, from, until, columns, signal) {
	return (await ask("hits", { functions: functions.join(","), from, until, columns }, signal)).json();
}

/**
 * @param {{from?: number, until?: number, threads?: string}} range
 * @returns {Promise<FunctionRow[]>}
 */
export async function functions(range) {
	return (await ask("functions", range)).json();
}

/**
 * @param {{from?: number, until?: number, threads?: string}} range
 * @returns {Promise<Graph>}
 */
export async function graph(range) {
	return (await ask("graph", range)).json();
}

/**
 * @param {number} thread
 * @param {number} from
 * @param {number} until
 * @returns {Promise<Markers>}
 */
export async function markers(thread, from, until) {
	return (await ask("markers", { thread, from, until })).json();
}
