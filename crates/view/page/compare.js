// The functions of two traces and their differences, as in `nopal diff`.

/** @import {Details} from "./details.js" */
/** @import {Change, Comparison, Measure} from "./types.js" */

import * as api from "./api.js";
import { MOST_ROWS, byId, count, duration, element, withUntimed } from "./text.js";

const MEAN = "a call";
/** @type {Measure[]} */
const MEASURES = [
	["self", side => side.self_ns, side => side.self_is_least, time],
	[MEAN, side => side.calls > 0 && !side.calls_are_least ? side.self_ns / side.calls : null, side => side.self_is_least, time],
	["calls", side => side.calls, side => side.calls_are_least, count],
	["total", side => side.total_ns, side => side.total_is_least, time],
];
const PARTS = ["A", "B", "B − A"];
/** @param {number} ns with parts where it is a mean */
function time(ns) {
	return ns > 0 && ns < 9.95 ? `${ns.toFixed(1)} ns` : duration(Math.round(ns));
}

/**
 * A row's number of a column, by which rows are sorted.
 * @param {Change} row
 * @param {number} column
 */
function value({ before, after }, column) {
	const [name, of] = MEASURES[Math.floor(column / PARTS.length)];
	const [one, other] = [before, after].map(side => side && of(side));
	// A trace without the function spent no time in it; a mean of no calls is not 0.
	const isKnown = name === MEAN ? one !== null && other !== null : one !== null || other !== null;
	return [one, other, isKnown ? (other ?? 0) - (one ?? 0) : null][column % PARTS.length];
}

/**
 * @param {Change} row
 * @param {number} column
 */
function text(row, column) {
	const sides = [row.before, row.after];
	const [name, of, isLeast, write] = MEASURES[Math.floor(column / PARTS.length)];
	const hasTimes = sides.some(side => side && (side.p50_ns !== null || side.total_ns > 0));
	const number = write === time && !hasTimes ? null : value(row, column);
	if (number === null) {
		return "-";
	}
	const least = sides.map(side => side && of(side) !== null && isLeast(side));
	const part = column % PARTS.length;
	if (part < 2) {
		const shown = `${least[part] ? "≥ " : ""}${write(number)}`;
		return withUntimed(shown, name === "self" && sides[part]?.self_with_untimed_callees);
	}
	const sign = number < 0 ? "−" : number > 0 ? "+" : "";
	return `${least.some(Boolean) ? "≈ " : ""}${sign}${write(Math.abs(number))}`;
}

/**
 * Compares the selected times and threads anew; the old rows stay until then.
 * @param {Details} details
 */
export async function showCompare(details) {
	const panel = byId("panel-compare");
	if (!panel.querySelector("table")) {
		panel.replaceChildren(element("p", "Summing up …"));
	}
	const selections = () => details.timelines.map(({ view }) => details.selection(view));
	let asked, comparison;
	do {
		asked = selections();
		comparison = await api.diff(asked);
	} while (JSON.stringify(asked) !== JSON.stringify(selections()));
	show(details, comparison);
}

/**
 * @param {Details} details
 * @param {Comparison} comparison
 */
function show(details, comparison) {
	const sort = details.compared;
	const { functions, before, after } = comparison;
	const rows = [...functions].sort((one, other) =>
		Math.abs(value(other, sort) ?? 0) - Math.abs(value(one, sort) ?? 0));
	const table = element("table");
	const subjects = details.timelines.map(timeline => details.subject(timeline));
	table.append(element("caption", `${count(rows.length)} functions: ${subjects.join(" and ")}`));
	const head = table.createTHead();
	const [groups, names] = [head.insertRow(), head.insertRow()];
	for (const [name] of MEASURES) {
		const group = element("th", name);
		group.colSpan = PARTS.length;
		group.scope = "colgroup";
		groups.append(group);
		for (const part of PARTS) {
			const column = names.cells.length;
			const cell = element("th");
			cell.scope = "col";
			cell.ariaSort = column === sort ? "descending" : "none";
			const button = element("button", part);
			button.type = "button";
			button.ariaLabel = `${name}, ${part}`;
			button.addEventListener("click", () => {
				details.compared = column;
				show(details, comparison);
			});
			cell.append(button);
			names.append(cell);
		}
	}
	const columns = MEASURES.length * PARTS.length;
	for (const name of ["p", "function", "module"]) {
		groups.append(element("th"));
		names.append(element("th", name, name === "p" ? "" : name === "function" ? "name function" : "name"));
	}
	const body = table.createTBody();
	for (const row of rows.slice(0, MOST_ROWS)) {
		const line = body.insertRow();
		for (let column = 0; column < columns; column++) {
			line.append(element("td", text(row, column)));
		}
		const { p, significant } = row;
		const probability = p === null ? "-" : `${p < 0.001 ? "<0.001" : p.toFixed(3)}${significant ? "*" : ""}`;
		const cell = element("td", "", "name function");
		const button = element("button", row.function);
		button.type = "button";
		button.addEventListener("click", () => {
			details.timelines.forEach(({ view }) => {
				view.subject = row.function;
			});
			details.actions.search(row.function);
		});
		cell.append(button);
		line.append(element("td", probability), cell, element("td", row.module, "name"));
	}
	const notes = [];
	if (rows.length > MOST_ROWS) {
		notes.push(`${count(rows.length - MOST_ROWS)} more`);
	}
	const options = [before, after].map(([{ options }]) => options.join(" ") || "no options");
	if (options[0] !== options[1]) {
		notes.push(`Recorded differently, which changes self times: A with ${options[0]}; B with ${options[1]}.`);
	}
	notes.push("a call: the self time of a call. ≥ may be more, ≈ is the difference of such times. p and * as nopal diff has them: "
		+ "* differs significantly, - was not tested.");
	byId("panel-compare").replaceChildren(table, ...notes.map(note => element("p", note)));
}
