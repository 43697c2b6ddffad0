// The distribution of a subject of `nopal hist`: durations of a function, values of markers, cases of a tracer.

/** @import {Details} from "./details.js" */
/** @import {Histogram} from "./types.js" */

import { byId, count, duration, element } from "./text.js";

/** @param {Details} details */
export async function showHistogram(details) {
	const { view } = details;
	const panel = byId("panel-histogram");
	const form = element("form");
	const input = element("input");
	input.value = view.subject;
	input.placeholder = "FUNCTION, MARKER.FIELD, lockhold …";
	input.ariaLabel = "What the histogram is of, as nopal hist takes it";
	input.spellcheck = false;
	const show = element("button", "Show");
	form.append(input, " ", show);
	form.addEventListener("submit", event => {
		event.preventDefault();
		view.subject = input.value.trim();
		view.changed();
	});
	panel.replaceChildren(form);
	if (view.subject === "") {
		panel.append(element("p", "Click on a call or a function, or name one: FUNCTION, FUNCTION.result, MARKER.FIELD, FROM..TO, or a tracer."));
		return;
	}
	const same = [...view.trace.functions.keys()].filter(at => view.trace.functions[at][0] === view.subject);
	const what = same.length === 1 ? { function: same[0] } : { of: encodeURIComponent(view.subject) };
	const note = element("p", "Summing up …");
	panel.append(note);
	try {
		await details.latest(view.api.hist({ ...what, ...details.selection() }), histogram =>
			note.replaceWith(...tables(details, histogram)));
	} catch (error) {
		note.textContent = error instanceof Error ? error.message : String(error);
	}
}

/**
 * @param {Details} details
 * @param {Histogram} histogram
 */
function tables(details, { unit, groups, left_out: leftOut }) {
	const [group] = groups;
	const shown = (/** @type {number} */ value) => unit === "ns" ? duration(value) : count(value);
	const facts = element("table");
	facts.append(element("caption", `${details.view.subject}, of ${details.subject()}`));
	const body = facts.createTBody();
	for (const name of /** @type {const} */ (["min", "p50", "p90", "p99", "p99.9", "max", "mean"])) {
		const row = body.insertRow();
		const head = element("th", name, "name");
		head.scope = "row";
		row.append(head, element("td", shown(name === "mean" ? Math.round(group.mean) : group[name])));
	}
	const table = element("table");
	table.append(element("caption", `${count(group.count)} values`));
	const head = table.createTHead().insertRow();
	for (const name of ["from", "to", "count", "of all", "up to it", ""]) {
		const cell = element("th", name);
		cell.scope = "col";
		head.append(cell);
	}
	const most = Math.max(...group.bars.map(bar => bar.count));
	const rows = table.createTBody();
	let below = 0;
	for (const bar of group.bars) {
		below += bar.count;
		const row = rows.insertRow();
		const part = (/** @type {number} */ of) => `${(of / group.count * 100).toFixed(1)} %`;
		row.append(...[shown(bar.from), shown(bar.to), count(bar.count), part(bar.count), part(below)].map(text => element("td", text)));
		const cell = row.insertCell();
		const filled = element("div", "", "bar");
		filled.style.width = `${Math.max(bar.count > 0 ? 1 : 0, bar.count / most * 220)}px`;
		cell.append(filled);
	}
	const columns = element("div", "", "columns");
	columns.append(table, facts);
	return [columns, ...leftOut.map(line => element("p", line))];
}
