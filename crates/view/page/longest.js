// The longest calls of the functions that the search has found, or of the one whose call was clicked.

/** @import {Details} from "./details.js" */

import { byId, count, duration, element, moment } from "./text.js";

/** @param {Details} details */
export async function showLongest(details) {
	const { view } = details;
	const panel = byId("panel-longest");
	const functions = details.sought();
	if (functions.length === 0) {
		panel.replaceChildren(element("p", "Search functions, or click on a call, to see the longest calls here."));
		return;
	}
	panel.replaceChildren(element("p", "Looking for the longest …"));
	const calls = await view.api.longest(functions, details.selection());
	if (functions.join() !== details.sought().join()) {
		return;
	}
	const table = element("table");
	table.append(element("caption", `The longest ${count(calls.length)} calls of ${functions.length === 1
		? details.name(functions[0])
		: `${count(functions.length)} functions`}, of ${details.subject()}`));
	const head = table.createTHead().insertRow();
	for (const name of ["duration", "begin", "thread", "function", "called by"]) {
		const cell = element("th", name, ["duration", "begin"].includes(name) ? "" : "name");
		cell.scope = "col";
		head.append(cell);
	}
	const body = table.createTBody();
	for (const call of calls) {
		const row = body.insertRow();
		const cell = element("td", "", "name");
		const { depth } = call;
		cell.append(depth === null ? details.name(call.function)
			: details.link(call.function, () => details.actions.go(call.thread, call.begin, depth)));
		row.append(element("td", `${call.is_least ? "≥ " : ""}${duration(call.duration)}`), element("td", moment(call.begin, 1)),
			element("td", view.label(view.trace.threads[call.thread]), "name"), cell,
			element("td", call.caller === null ? "" : details.name(call.caller), "name"));
	}
	panel.replaceChildren(calls.length > 0 ? table : element("p", "None of their calls has a known duration here."));
}
