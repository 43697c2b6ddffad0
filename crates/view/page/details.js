// The panels below the chart: a call, functions, a flame graph, markers, threads.

/** @import {View} from "./view.js" */
/** @import {Call, FunctionRow, Stack} from "./types.js" */

import * as api from "./api.js";
import { colorOf, css } from "./colors.js";
import { byId, count, duration, element, moment } from "./text.js";

export const PANELS = ["call", "functions", "flame", "markers", "threads"];

/** Rows of a table of functions; more are counted. */
const MOST_ROWS = 500;

/** @typedef {[string, (row: FunctionRow) => number | string, (row: FunctionRow) => string]} Column */

/** @type {Column[]} */
const COLUMNS = [
	["total", row => row.total_ns, row => bound(row.total_ns, row.total_is_least)],
	["self", row => row.self_ns, row => bound(row.self_ns, row.self_is_least)],
	["calls", row => row.calls, row => count(row.calls)],
	["min", row => row.min_ns, row => duration(row.min_ns)],
	["avg", row => row.avg_ns, row => duration(row.avg_ns)],
	["p50", row => row.p50_ns, row => duration(row.p50_ns)],
	["p99", row => row.p99_ns, row => duration(row.p99_ns)],
	["max", row => row.max_ns, row => duration(row.max_ns)],
	["unfinished", row => row.unfinished, row => count(row.unfinished)],
	["function", row => row.function, row => row.function],
	["module", row => row.module, row => row.module],
];

/**
 * @param {number} ns
 * @param {boolean} [isLeast]
 */
function bound(ns, isLeast) {
	return `${isLeast ? "≥ " : ""}${duration(ns)}`;
}

export class Details {
	/**
	 * @param {View} view
	 * @param {{
	 *   search: (pattern: string) => void,
	 *   look: (thread: number, at: number, depth: number) => void,
	 *   fail: (error: unknown) => void,
	 * }} actions
	 */
	constructor(view, actions) {
		this.view = view;
		this.actions = actions;
		/** What the panels show, so that nothing is asked for twice. */
		/** @type {Map<string, string>} */
		this.shown = new Map();
		this.sort = 0;
		/** @type {FunctionRow[]} */
		this.rows = [];
		for (const panel of PANELS) {
			byId(`tab-${panel}`).addEventListener("click", () => {
				view.panel = panel;
				view.changed();
			});
		}
		byId("panel").querySelector("nav")?.addEventListener("keydown", event => {
			const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
			if (step) {
				event.stopPropagation();
				const at = (PANELS.indexOf(view.panel) + step + PANELS.length) % PANELS.length;
				view.panel = PANELS[at];
				view.changed();
				byId(`tab-${view.panel}`).focus();
			}
		});
	}

	/** Shows the panel that is chosen, and fills it if what it shows has changed. */
	update() {
		const { view } = this;
		if (!PANELS.includes(view.panel)) {
			view.panel = "call";
		}
		for (const panel of PANELS) {
			const isShown = panel === view.panel;
			byId(`panel-${panel}`).hidden = !isShown;
			const tab = byId(`tab-${panel}`);
			tab.setAttribute("aria-selected", String(isShown));
			tab.tabIndex = isShown ? 0 : -1;
		}
		const range = view.range ?? [0, view.trace.duration];
		byId("range").textContent = view.range
			? `${moment(range[0], 1000)} to ${moment(range[1], 1000)}: ${duration(range[1] - range[0])}` : "";
		const of = JSON.stringify([view.range, view.trace.duration]);
		const fill = {
			functions: () => this.functions(),
			flame: () => this.flame(),
			markers: () => this.markers(),
			threads: () => this.threads(),
		}[view.panel];
		const key = view.panel === "markers" ? `${of}${view.from},${view.until}` : of;
		if (fill && this.shown.get(view.panel) !== key) {
			this.shown.set(view.panel, key);
			Promise.resolve(fill()).catch(error => {
				this.shown.delete(view.panel);
				this.actions.fail(error);
			});
		}
	}

	/** @returns {{from?: number, until?: number}} */
	range() {
		const { range } = this.view;
		return range ? { from: Math.round(range[0]), until: Math.round(range[1]) } : {};
	}

	/** @param {number} site */
	name(site) {
		return this.view.trace.functions[site]?.[0] ?? "(unknown)";
	}

	/** @param {number} site */
	module(site) {
		return this.view.trace.modules[this.view.trace.functions[site]?.[1] ?? 0] ?? "?";
	}

	/**
	 * @param {number} thread
	 * @param {Stack | null} stack none if nothing is chosen
	 */
	call(thread, stack) {
		const panel = byId("panel-call");
		panel.replaceChildren();
		const call = stack?.call;
		if (!stack || !call) {
			const why = stack ? "No call is here." : "Click on a call to see it here. ? shows all keys.";
			panel.append(element("p", why));
			return;
		}
		const columns = element("div", "", "columns");
		columns.append(this.facts(thread, call), this.chain(thread, stack), this.children(call));
		panel.append(columns);
	}

	/**
	 * @param {number} thread
	 * @param {Call} call
	 */
	facts(thread, call) {
		const table = element("table");
		table.append(element("caption", this.name(call.function)));
		const body = table.createTBody();
		const add = (/** @type {string} */ name, /** @type {string} */ value) => {
			const row = body.insertRow();
			const head = element("th", name, "name");
			head.scope = "row";
			row.append(head, element("td", value, "name"));
		};
		const info = this.view.trace.threads[thread];
		const how = { returned: "", unwound: ", by an exception", open: " or more: its end was not recorded", entry: "" }[call.how];
		add("duration", call.how === "entry" ? "only its entry was recorded" : duration(call.end - call.begin) + how);
		if (call.own !== null) {
			add("self", duration(call.own));
		}
		add("begin", moment(call.begin, 1));
		add("thread", `${info.name} ${info.thread} of process ${info.process}`);
		add("module", `${this.module(call.function)} + ${call.address}`);
		add("depth", String(call.depth));
		call.arguments?.forEach((value, at) => add(`arg${at + 1}`, value));
		if (call.result !== null) {
			add("result", call.result);
		}
		return table;
	}

	/**
	 * @param {number} thread
	 * @param {Stack} stack
	 */
	chain(thread, { calls, call }) {
		const table = element("table");
		table.append(element("caption", "Called by"));
		const body = table.createTBody();
		for (const place of calls.filter(place => call && place.depth <= call.depth).reverse()) {
			const row = body.insertRow();
			row.append(element("td", String(place.depth)));
			const cell = element("td", "", "name");
			cell.append(this.link(place.function, () => this.actions.look(thread, place.begin, place.depth)));
			row.append(cell);
		}
		return table;
	}

	/** @param {Call} call */
	children(call) {
		const table = element("table");
		const { children } = call;
		table.append(element("caption", children === null ? "It is too long for a list of its calls: see Functions" : "Calls"));
		const body = table.createTBody();
		for (const [site, calls, ns] of children ?? []) {
			const row = body.insertRow();
			const cell = element("td", "", "name");
			cell.append(this.link(site, () => this.actions.search(this.name(site))));
			row.append(element("td", duration(ns)), element("td", count(calls)), cell);
		}
		return table;
	}

	/**
	 * @param {number} site
	 * @param {() => void} action
	 */
	link(site, action) {
		const button = element("button");
		button.type = "button";
		const swatch = element("span", "", "swatch");
		swatch.style.background = css(colorOf(this.name(site)));
		button.append(swatch, this.name(site));
		button.addEventListener("click", action);
		return button;
	}

	async functions() {
		const panel = byId("panel-functions");
		panel.replaceChildren(element("p", "Summing up …"));
		this.rows = await api.functions(this.range());
		this.table();
	}

	table() {
		const panel = byId("panel-functions");
		const [, by] = COLUMNS[this.sort];
		const rows = [...this.rows].sort((one, other) => {
			const [first, second] = [by(one), by(other)];
			return typeof first === "number" ? Number(second) - first : first.localeCompare(String(second));
		});
		const table = element("table");
		const of = this.view.range ? "the selected time" : "the whole trace";
		table.append(element("caption", `${count(rows.length)} functions, of ${of}`));
		const head = table.createTHead().insertRow();
		COLUMNS.forEach(([name], at) => {
			const cell = element("th", "", at > 8 ? "name" : "");
			cell.scope = "col";
			cell.ariaSort = at !== this.sort ? "none" : at > 8 ? "ascending" : "descending";
			const button = element("button", name);
			button.type = "button";
			button.addEventListener("click", () => {
				this.sort = at;
				this.table();
			});
			cell.append(button);
			head.append(cell);
		});
		const body = table.createTBody();
		for (const row of rows.slice(0, MOST_ROWS)) {
			const line = body.insertRow();
			COLUMNS.forEach(([name, , text], at) => {
				const cell = element("td", at === 9 ? "" : text(row), at > 8 ? "name" : "");
				if (name === "function") {
					const button = element("button", text(row));
					button.type = "button";
					button.addEventListener("click", () => this.actions.search(row.function));
					cell.append(button);
				}
				line.append(cell);
			});
		}
		panel.replaceChildren(table);
		if (rows.length > MOST_ROWS) {
			panel.append(element("p", `${count(rows.length - MOST_ROWS)} more`));
		}
	}

	async flame() {
		const panel = byId("panel-flame");
		panel.replaceChildren(element("p", "Summing up …"));
		const { nodes, left_out: leftOut } = await api.graph(this.range());
		const flame = element("div", "", "flame");
		const all = nodes.reduce((sum, [, parent, , total], at) => at > 0 && parent === 0 ? sum + total : sum, 0);
		/** Where each node begins and what is taken of it, in parts of the width, and its depth. */
		/** @type {{left: number, taken: number, depth: number}[]} */
		const places = [{ left: 0, taken: 0, depth: -1 }];
		let deepest = 0;
		nodes.forEach(([site, parent, calls, total], at) => {
			if (at === 0) {
				return;
			}
			const under = places[parent];
			const place = { left: under.left + under.taken, taken: 0, depth: under.depth + 1 };
			places.push(place);
			const width = total / Math.max(1, all);
			under.taken += width;
			deepest = Math.max(deepest, place.depth);
			if (width < 0.0008) {
				return;
			}
			const name = this.name(site);
			const button = element("button", name);
			button.type = "button";
			button.style.left = `${place.left * 100}%`;
			button.style.width = `${width * 100}%`;
			button.style.top = `${place.depth * 18}px`;
			button.style.background = css(colorOf(name));
			button.title = `${name}: ${duration(total)}, ${count(calls)} calls, ${(width * 100).toFixed(1)} %`;
			button.addEventListener("click", () => this.actions.search(name));
			flame.append(button);
		});
		flame.style.height = `${(deepest + 1) * 18}px`;
		panel.replaceChildren(flame);
		if (leftOut > 0) {
			panel.append(element("p", `${count(leftOut)} paths that took less are left out.`));
		}
	}

	async markers() {
		const panel = byId("panel-markers");
		const { view } = this;
		const [from, until] = view.range ?? [view.from, view.until];
		const table = element("table");
		table.append(element("caption", "Markers of the time that is selected, or else shown"));
		const body = table.createTBody();
		let isCut = false;
		const threads = [...view.trace.threads.keys()].slice(0, 64);
		const all = await Promise.all(threads.map(thread => api.markers(thread, Math.round(from), Math.round(until))));
		const found = all.flatMap((one, at) => one.markers.map(([time, text]) => ({ time, text, thread: threads[at] })));
		isCut = all.some(one => one.is_cut);
		found.sort((one, other) => one.time - other.time);
		for (const { time, text, thread } of found.slice(0, MOST_ROWS)) {
			const row = body.insertRow();
			const cell = element("td", "", "name");
			const button = element("button", text);
			button.type = "button";
			button.addEventListener("click", () => this.actions.look(thread, time, 0));
			cell.append(button);
			row.append(element("td", moment(time, 1)), element("td", view.label(view.trace.threads[thread]), "name"), cell);
		}
		panel.replaceChildren(table);
		if (found.length === 0) {
			panel.append(element("p", "None are here."));
		} else if (isCut || found.length > MOST_ROWS) {
			panel.append(element("p", "There are more: zoom in, or select a shorter time."));
		}
	}

	threads() {
		const { view } = this;
		const table = element("table");
		table.append(element("caption", `${view.trace.command} on ${view.trace.host}: ${count(view.trace.calls)} calls`));
		const head = table.createTHead().insertRow();
		for (const name of ["process", "thread", "calls", "begin", "end", "without records", "depth", "name"]) {
			const cell = element("th", name, name === "name" ? "name" : "");
			cell.scope = "col";
			head.append(cell);
		}
		const body = table.createTBody();
		for (const { thread: at } of view.lines.filter(line => line.thread >= 0)) {
			const thread = view.trace.threads[at];
			const missing = thread.missing.reduce((sum, [begin, end]) => sum + end - begin, 0);
			const row = body.insertRow();
			const texts = [
				String(thread.process), String(thread.thread), count(thread.calls), moment(thread.begin, 1000),
				moment(thread.end, 1000), duration(missing), String(thread.depths),
			];
			row.append(...texts.map(text => element("td", text)), element("td", thread.name, "name"));
		}
		byId("panel-threads").replaceChildren(table);
	}
}
