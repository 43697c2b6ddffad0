// The panels below the chart, and the panels that are plain tables: a call, functions, markers, threads.

/** @import {Timeline} from "./timeline.js" */
/** @import {Call, FunctionRow, Selection, Stack} from "./types.js" */

import { colorOf, css } from "./colors.js";
import { showCompare } from "./compare.js";
import { showExport } from "./export.js";
import { showFlame, showTree } from "./graph.js";
import { showHistogram } from "./histogram.js";
import { showLongest } from "./longest.js";
import { showTracks } from "./trackpanel.js";
import { MOST_ROWS, byId, count, duration, element, moment, withUntimed } from "./text.js";

/** Milliseconds between comparisons of traces that grow. */
const PAUSE = 1000;

const PANELS = ["call", "compare", "functions", "tree", "flame", "longest", "histogram", "tracks", "markers", "threads", "export"];

/** @typedef {[string, (row: FunctionRow) => number | string, (row: FunctionRow) => string]} Column */

/** @type {Column[]} */
const COLUMNS = [
	["total", row => row.total_ns, row => bound(row.total_ns, row.total_is_least)],
	["self", row => row.self_ns, row => withUntimed(bound(row.self_ns, row.self_is_least), row.self_with_untimed_callees)],
	["calls", row => row.calls, row => `${row.calls_are_least ? "≥ " : ""}${count(row.calls)}`],
	["min", row => row.min_ns ?? 0, row => known(row.min_ns)],
	["avg", row => row.avg_ns ?? 0, row => known(row.avg_ns)],
	["p50", row => row.p50_ns ?? 0, row => known(row.p50_ns)],
	["p99", row => row.p99_ns ?? 0, row => known(row.p99_ns)],
	["max", row => row.max_ns ?? 0, row => known(row.max_ns)],
	["unfinished", row => row.unfinished, row => count(row.unfinished)],
	["function", row => row.function, row => row.function],
	["module", row => row.module, row => row.module],
];

/** @param {number | null} ns of the calls that began and ended; none if there are none */
function known(ns) {
	return ns === null ? "-" : duration(ns);
}

/**
 * @param {number} ns
 * @param {boolean} [isLeast]
 */
function bound(ns, isLeast) {
	return `${isLeast ? "≥ " : ""}${duration(ns)}`;
}

/**
 * @param {HTMLTableElement} table
 * @param {string} name
 * @param {string} value
 */
export function addFact(table, name, value) {
	const row = table.insertRow();
	const head = element("th", name, "name");
	head.scope = "row";
	row.append(head, element("td", value, "name"));
}

export class Details {
	/**
	 * @param {Timeline[]} timelines
	 * @param {{
	 *   search: (pattern: string) => void,
	 *   go: (thread: number, at: number, depth: number | null) => void,
	 *   fail: (error: unknown) => void,
	 * }} actions
	 */
	constructor(timelines, actions) {
		this.timelines = timelines;
		/** The timeline that the panels show. */
		this.timeline = timelines[0];
		this.actions = actions;
		this.panels = PANELS.filter(panel => panel !== "compare" || timelines.length > 1);
		byId("tab-compare").hidden = timelines.length < 2;
		/** The contents of the panels, so that nothing is asked for twice. */
		/** @type {Map<string, string>} */
		this.shown = new Map();
		this.sort = 0;
		/** The column by which the comparison is sorted: at first the change of self time. */
		this.compared = 2;
		/** Whether a comparison is being made: one at a time, since traces that grow are compared again and again. */
		this.isComparing = false;
		/** @type {FunctionRow[]} */
		this.rows = [];
		for (const panel of PANELS) {
			byId(`tab-${panel}`).addEventListener("click", () => {
				this.view.panel = panel;
				this.view.changed();
			});
		}
		byId("panel").querySelector("nav")?.addEventListener("keydown", event => {
			const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
			if (step) {
				event.stopPropagation();
				const { panels, view } = this;
				const at = (panels.indexOf(view.panel) + step + panels.length) % panels.length;
				view.panel = panels[at];
				view.changed();
				byId(`tab-${view.panel}`).focus();
			}
		});
	}

	get view() {
		return this.timeline.view;
	}

	get chart() {
		return this.timeline.chart;
	}

	/** Shows the chosen panel, and fills it if its contents have changed. */
	update() {
		const { view } = this;
		if (!this.panels.includes(view.panel)) {
			view.panel = "call";
		}
		for (const panel of PANELS) {
			const isShown = panel === view.panel;
			byId(`panel-${panel}`).hidden = !isShown;
			const tab = byId(`tab-${panel}`);
			tab.setAttribute("aria-selected", String(isShown));
			tab.tabIndex = isShown ? 0 : -1;
		}
		const isCompared = view.panel === "compare";
		const shown = isCompared ? this.timelines : [this.timeline];
		byId("range").textContent = shown.map(timeline => Details.selected(timeline)).filter(Boolean).join(" · ");
		const of = JSON.stringify(shown.map(({ letter, view }) => [letter, view.range, view.trace.duration, [...view.chosen]]));
		const fill = {
			compare: () => this.compare(),
			functions: () => this.functions(),
			tree: () => this.graph(showTree),
			flame: () => this.graph(showFlame),
			longest: () => showLongest(this),
			histogram: () => showHistogram(this),
			tracks: () => this.chart.tracks && showTracks(this, this.chart.tracks),
			markers: () => this.markers(),
			threads: () => this.threads(),
			export: () => showExport(this),
		}[view.panel];
		const more = { markers: `${view.from},${view.until}`, longest: this.sought().join(), histogram: view.subject, tracks: [...view.tracks, ...this.chart.tracks?.refused.keys() ?? []].join() }[view.panel];
		const key = more === undefined ? of : of + more;
		if (fill && this.shown.get(view.panel) !== key && !(isCompared && this.isComparing)) {
			this.shown.set(view.panel, key);
			Promise.resolve(fill()).catch(error => {
				this.shown.delete(view.panel);
				this.actions.fail(error);
			});
		}
	}

	async compare() {
		this.isComparing = true;
		try {
			await showCompare(this);
		} finally {
			this.isComparing = false;
			setTimeout(() => this.update(), PAUSE);
		}
	}

	/**
	 * The selected time and threads of a timeline, in short.
	 * @param {Timeline} timeline
	 */
	static selected({ letter, view: { range, chosen } }) {
		const threads = chosen.size === 0 ? "" : chosen.size === 1 ? "1 thread" : `${chosen.size} threads`;
		const time = range ? `${moment(range[0], 1000)} to ${moment(range[1], 1000)}: ${duration(range[1] - range[0])}` : "";
		const selected = [time, threads].filter(Boolean).join(" · ");
		return selected && letter ? `${letter} ${selected}` : selected;
	}

	/** @returns {Selection} the selected time and threads */
	selection({ range, chosen } = this.view) {
		return {
			...range ? { from: Math.round(range[0]), until: Math.round(range[1]) } : {},
			...chosen.size > 0 ? { threads: [...chosen].join(",") } : {},
		};
	}

	/** The functions that the search has found, otherwise that of the call that was clicked. */
	sought() {
		const { found, call } = this.chart;
		return found.size > 0 ? [...found] : call ? [call.function] : [];
	}

	/** The selection, in words. */
	subject({ letter, view } = this.timeline) {
		const { range, chosen, trace } = view;
		const time = `${range ? "the selected time" : "the whole trace"}${letter && ` of ${letter}`}`;
		const names = [...chosen].map(thread => view.label(trace.threads[thread]));
		return names.length === 0 ? time : `${time}, of ${names.join(", ")}`;
	}

	/**
	 * Waits for an answer, and shows it in the chosen panel unless another answer has been asked for there
	 * meanwhile.
	 * @template Answer
	 * @param {Promise<Answer>} asked
	 * @param {(answer: Answer) => void} show
	 */
	async latest(asked, show) {
		const { panel } = this.view;
		const key = this.shown.get(panel);
		const answer = await asked;
		if (this.shown.get(panel) === key) {
			show(answer);
		}
	}

	/** @param {(details: Details, graph: import("./types.js").Graph) => void} show */
	graph(show) {
		byId(`panel-${this.view.panel}`).replaceChildren(element("p", "Summing up …"));
		return this.latest(this.view.api.graph(this.selection()), graph => show(this, graph));
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
		const facts = this.facts(thread, call);
		columns.append(facts, this.callers(thread, stack), this.children(call));
		panel.append(columns);
		this.source(facts, thread, call);
	}

	/**
	 * Adds the place of the call in the source, and its values by their types, once they are known.
	 * @param {HTMLTableElement} facts
	 * @param {number} thread
	 * @param {Call} call
	 */
	async source(facts, thread, { begin, depth }) {
		try {
			const { line, calls, values } = await this.view.api.source(thread, begin, depth);
			if (values) {
				addFact(facts, "values", values);
			}
			if (line) {
				addFact(facts, "source", line);
			}
			if (calls.length > 0) {
				addFact(facts, "called at", calls.join(", "));
			}
		} catch (error) {
			this.actions.fail(error);
		}
	}

	/**
	 * Shows the span that a track holds at a moment.
	 * @param {string} track
	 * @param {import("./types.js").TrackSpan} span
	 * @param {import("./types.js").TrackDescription} described
	 */
	span(track, { lane, begin, duration: ns, label, thread, key }, described) {
		const table = element("table");
		table.append(element("caption", described.labels[label] ?? "?"));
		addFact(table, "track", described.lanes[lane].name || track);
		addFact(table, "duration", duration(ns));
		addFact(table, "begin", moment(begin, 1));
		if (key !== null) {
			addFact(table, "key", key);
		}
		const panel = byId("panel-call");
		panel.replaceChildren(table);
		if (thread !== null) {
			const go = element("button", "Show the calls of its thread then");
			go.type = "button";
			go.addEventListener("click", () => this.actions.go(thread, begin, null));
			panel.append(go);
		}
	}

	/**
	 * @param {number} thread
	 * @param {Call} call
	 */
	facts(thread, call) {
		const table = element("table");
		table.append(element("caption", this.name(call.function)));
		const add = (/** @type {string} */ name, /** @type {string} */ value) => addFact(table, name, value);
		const info = this.view.trace.threads[thread];
		const how = { returned: "", unwound: ", by an exception", open: " or more: its end was not recorded", entry: "" }[call.how];
		add("duration", call.how === "entry" ? "only its entry was recorded" : duration(call.end - call.begin) + how);
		if (call.own !== null) {
			add("self", duration(call.own));
		}
		if (call.times) {
			const names = ["on a processor", "able to run", "waiting", "not known"];
			const parts = call.times.map((ns, at) => ns > 0 ? `${names[at]} ${duration(ns)}` : "");
			add("of that", parts.filter(Boolean).join(", ") || "nothing is known");
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
	callers(thread, { callers }) {
		const table = element("table");
		table.append(element("caption", callers.length > 0 ? "Called by" : "No caller was recorded"));
		const body = table.createTBody();
		for (const place of [...callers].reverse()) {
			const row = body.insertRow();
			row.append(element("td", String(place.depth)));
			const cell = element("td", "", "name");
			cell.append(this.link(place.function, () => this.actions.go(thread, place.begin, place.depth)));
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
		for (const [name, calls] of call.kernel) {
			const row = body.insertRow();
			row.append(element("td", "kernel"), element("td", count(calls)), element("td", name, "name"));
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

	functions() {
		byId("panel-functions").replaceChildren(element("p", "Summing up …"));
		return this.latest(this.view.api.functions(this.selection()), rows => {
			this.rows = rows;
			this.table();
		});
	}

	table() {
		const panel = byId("panel-functions");
		const [, by] = COLUMNS[this.sort];
		const rows = [...this.rows].sort((one, other) => {
			const [first, second] = [by(one), by(other)];
			return typeof first === "number" ? Number(second) - first : first.localeCompare(String(second));
		});
		const table = element("table");
		table.append(element("caption", `${count(rows.length)} functions, of ${this.subject()}`));
		const head = table.createTHead().insertRow();
		const kind = (/** @type {number} */ at) => at === 9 ? "name function" : at > 9 ? "name" : "";
		COLUMNS.forEach(([name], at) => {
			const cell = element("th", "", kind(at));
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
				const cell = element("td", at === 9 ? "" : text(row), kind(at));
				if (name === "function") {
					const button = element("button", text(row));
					button.type = "button";
					button.addEventListener("click", () => {
						this.view.subject = row.function;
						this.actions.search(row.function);
					});
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

	async markers() {
		const { view } = this;
		const [from, until] = view.range ?? [Math.max(0, view.from), Math.max(1, view.until)];
		const table = element("table");
		table.append(element("caption", "Markers and kernel events of the time that is selected, or else shown"));
		const threads = [...view.trace.threads.keys()].slice(0, 64);
		const [begin, end] = [Math.round(from), Math.round(until)];
		const asked = Promise.all(threads.map(thread => view.api.markers(thread, begin, end)));
		const kernel = view.trace.has_processors ? view.api.kernelEvents(begin, end) : Promise.resolve({ events: [], is_cut: false });
		await this.latest(Promise.all([asked, kernel]), ([all, kernel]) => this.showMarkers(table, threads, all, kernel));
	}

	/**
	 * @param {HTMLTableElement} table
	 * @param {number[]} threads
	 * @param {import("./types.js").Markers[]} all of each of these threads
	 * @param {import("./types.js").KernelEvents} kernel
	 */
	showMarkers(table, threads, all, kernel) {
		const { view } = this;
		const panel = byId("panel-markers");
		const head = table.createTHead().insertRow();
		for (const name of ["time", "event", "thread", "values"]) {
			const cell = element("th", name, name === "time" ? "" : "name");
			cell.scope = "col";
			head.append(cell);
		}
		const body = table.createTBody();
		/** @type {{time: number, what: string, text: string, thread: number | null}[]} */
		const found = all.flatMap((one, at) =>
			one.markers.map(([time, text, isOfKernel]) => ({ time, what: isOfKernel ? "tracepoint" : "marker", text, thread: threads[at] })));
		found.push(...kernel.events.map(([time, processor, what, text, thread]) =>
			({ time, what: `CPU ${processor} ${what}`, text, thread })));
		const isCut = all.some(one => one.is_cut) || kernel.is_cut;
		found.sort((one, other) => one.time - other.time);
		for (const { time, what, text, thread } of found.slice(0, MOST_ROWS)) {
			const row = body.insertRow();
			const cell = element("td", thread === null ? text : "", "name");
			if (thread !== null) {
				const button = element("button", text);
				button.type = "button";
				button.addEventListener("click", () => this.actions.go(thread, time, null));
				cell.append(button);
			}
			const of = thread === null ? "" : view.label(view.trace.threads[thread]);
			row.append(element("td", moment(time, 1)), element("td", what, "name"), element("td", of, "name"), cell);
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
		for (const name of ["in tables", "process", "thread", "calls", "begin", "end", "without records", "depth", "name"]) {
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
			const choose = element("input");
			choose.type = "checkbox";
			choose.checked = view.chosen.has(at);
			choose.ariaLabel = `${view.label(thread)} in tables`;
			choose.addEventListener("change", () => view.choose(at));
			row.insertCell().append(choose);
			row.append(...texts.map(text => element("td", text)), element("td", thread.name, "name"));
		}
		const note = element("p", "The tables are of the chosen threads; of all, if none is chosen. Shift with a click on a name chooses, too.");
		byId("panel-threads").replaceChildren(table, note);
	}
}
