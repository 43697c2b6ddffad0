// Connects the traces, their timelines, the panels, and keys.

/** @import {Trace} from "./types.js" */

import { Api, traces } from "./api.js";
import { Details } from "./details.js";
import { Link } from "./link.js";
import { byId, duration, element, moment } from "./text.js";
import { Timeline } from "./timeline.js";
import { View } from "./view.js";

/** Milliseconds between looks at a trace that grows. */
const EACH = 1000;
/** Milliseconds for which the address waits for the next change. */
const CALM = 150;

const pattern = /** @type {HTMLInputElement} */ (byId("pattern"));
const help = /** @type {HTMLDialogElement} */ (byId("help"));
const linked = /** @type {HTMLInputElement} */ (byId("linked"));
const align = /** @type {HTMLSelectElement} */ (byId("align"));

const timelines = load();
/** The timeline that the keys move, and that the panels show. */
let active = timelines[0];
const link = timelines.length > 1 ? new Link(timelines) : null;
const details = new Details(timelines, { search, go: (...point) => active.go(...point), fail });

function load() {
	const page = {
		fail, show, found, selected,
		clicked: (/** @type {Timeline} */ timeline, /** @type {string} */ name) => link && timeline === active && search(name),
	};
	const views = traces().map((trace, number) => new View(new Api(number), trace));
	return views.map((view, at, all) => new Timeline(view, all.length > 1 ? "AB"[at] : "", page));
}

/** @param {unknown} error */
function fail(error) {
	const losses = byId("losses");
	losses.hidden = false;
	losses.textContent = `nopal does not answer, or cannot: ${error instanceof Error ? error.message : error}`;
}

function describe() {
	const names = timelines.map(({ view: { trace } }) => trace.command || trace.directory);
	byId("title").textContent = link ? "nopal" : names[0];
	document.title = `${[...new Set(names)].join(" and ")} – nopal view`;
	timelines.forEach(({ letter, root, title, view: { trace } }) => {
		root.ariaLabel = link ? `${letter}: ${trace.directory}` : null;
		title.hidden = !link;
		title.replaceChildren(element("b", letter), ` ${trace.directory}: ${trace.command}`);
	});
	const lost = timelines.filter(({ view }) => view.trace.losses !== "");
	byId("losses").hidden = lost.length === 0;
	byId("losses").textContent = lost.map(({ letter, view }) => `${letter && `${letter}: `}${view.trace.losses}`).join(" · ");
}

// The state, as the address keeps it.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let calm;
let written = "";

/** The state behind the # of the address: that of each timeline, and their relation. */
function address() {
	const own = timelines.map(({ view }) => view.address());
	const both = link ? [`${timelines.indexOf(active)},${link.shift},${Number(link.isLinked)}`] : [];
	return [...own, ...both].join("/");
}

function changed() {
	details.update();
	const { view } = active;
	const width = view.until - view.from;
	byId("where").textContent = `${moment(view.from, width / 1000)} + ${duration(width)}`;
	clearTimeout(calm);
	calm = setTimeout(() => {
		written = address();
		history.replaceState(null, "", `#${written}`);
	}, CALM);
}

/**
 * Gives the panels and keys to this timeline.
 * @param {Timeline} timeline
 */
function activate(timeline) {
	if (timeline !== active) {
		timeline.view.panel = active.view.panel;
		active = timeline;
		showActive();
		changed();
	}
}

function showActive() {
	details.timeline = active;
	active.fill(details);
	for (const timeline of timelines) {
		timeline.root.classList.toggle("active", timeline === active);
		timeline.root.ariaCurrent = link ? String(timeline === active) : null;
	}
}

/**
 * Fills the panels from a timeline, if they show it.
 * @param {Timeline} timeline
 * @param {(details: Details) => void} fill
 */
function show(timeline, fill) {
	timeline.fill = fill;
	if (timeline === active) {
		fill(details);
	}
}

/** @param {View} view in which a time was selected */
function selected(view) {
	if (view.panel === "call" || view.panel === "threads") {
		view.panel = link ? "compare" : "functions";
	}
}

// Search.

/** @param {string} text */
function search(text) {
	pattern.value = text;
	find();
}

function find() {
	const wanted = pattern.value.trim();
	const isName = timelines.some(({ view }) => view.trace.functions.some(([name]) => name === wanted));
	for (const timeline of timelines) {
		timeline.view.pattern = pattern.value;
		timeline.find(isName);
		timeline.view.changed();
	}
}

function found() {
	byId("found").textContent = timelines.map(({ letter, found }) => found && `${letter && `${letter}: `}${found}`).filter(Boolean).join(" · ");
}

byId("resize").addEventListener("pointermove", event => {
	if (event.buttons & 1) {
		byId("resize").setPointerCapture(event.pointerId);
		byId("panel").style.height = `${Math.max(60, innerHeight - event.clientY)}px`;
		timelines.forEach(({ chart }) => chart.update());
	}
});

// Keys.

function selectNothing() {
	timelines.forEach(timeline => timeline.selectNothing());
	if (pattern.value !== "") {
		search("");
	}
}

function changeTheme() {
	const theme = document.documentElement.classList.contains("light") ? "dark" : "light";
	for (const { view } of timelines) {
		view.theme = theme;
		view.changed();
	}
	applyTheme();
}

function applyTheme() {
	const { theme } = active.view;
	const isLight = theme === "light" || (theme === "" && matchMedia("(prefers-color-scheme: light)").matches);
	document.documentElement.classList.toggle("light", isLight);
	timelines.forEach(({ chart }) => chart.reset());
}

/** @param {number} factor */
const zoom = factor => active.view.zoom(factor, (active.view.from + active.view.until) / 2);
/** @param {number} part */
const pan = part => {
	const { view } = active;
	view.follows = false;
	view.pan((view.until - view.from) * part);
};

/** @type {Record<string, () => void>} */
const KEYS = {
	w: () => zoom(0.7),
	"+": () => zoom(0.7),
	"=": () => zoom(0.7),
	s: () => zoom(1 / 0.7),
	"-": () => zoom(1 / 0.7),
	a: () => pan(-0.2),
	ArrowLeft: () => pan(-0.2),
	d: () => pan(0.2),
	ArrowRight: () => pan(0.2),
	ArrowUp: () => active.view.scrollBy(-54, active.canvas.clientHeight),
	ArrowDown: () => active.view.scrollBy(54, active.canvas.clientHeight),
	0: () => active.view.whole(),
	n: () => active.step("next"),
	p: () => active.step("previous"),
	m: () => active.bookmark(),
	"[": () => active.goToBookmark(-1),
	"]": () => active.goToBookmark(1),
	t: changeTheme,
	l: () => link && linked.click(),
	Enter: () => active.zoomToChosen(),
	Escape: selectNothing,
	"/": () => pattern.focus(),
	"?": () => help.showModal(),
};

document.addEventListener("keydown", event => {
	const { target } = event;
	const isElsewhere = (target instanceof HTMLInputElement && target !== linked) || target instanceof HTMLSelectElement || help.open
		|| (target instanceof HTMLButtonElement && (event.key === "Enter" || event.key === " "))
		|| (target instanceof Element && target.closest("[role=tabpanel]") && event.key.startsWith("Arrow"));
	const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
	if (!isElsewhere && action && !event.ctrlKey && !event.metaKey && !event.altKey) {
		event.preventDefault();
		action();
	}
});

pattern.addEventListener("input", find);
pattern.addEventListener("keydown", event => {
	if (event.key === "Escape") {
		search("");
		active.canvas.focus();
	}
});
byId("search").addEventListener("submit", event => {
	event.preventDefault();
	active.step("next");
});
byId("next").addEventListener("click", () => active.step("next"));
byId("previous").addEventListener("click", () => active.step("previous"));
byId("whole").addEventListener("click", () => active.view.whole());
byId("theme").addEventListener("click", changeTheme);
byId("ask").addEventListener("click", () => help.showModal());

// Two traces.

if (link) {
	linked.addEventListener("change", () => {
		link.isLinked = linked.checked;
		changed();
	});
	align.addEventListener("focus", () => {
		for (const option of align.options) {
			option.disabled = option.value === "" || !link.moments(option.value);
		}
	});
	align.addEventListener("change", () => {
		link.align(align.value);
		align.value = "";
		changed();
		active.canvas.focus();
	});
	byId("link").hidden = false;
	document.body.classList.add("two");
}

// The beginning.

function restore() {
	written = location.hash.slice(1);
	const parts = written.split("/");
	const [at, shift, isLinked] = (parts[timelines.length] ?? "").split(",").map(Number);
	active = timelines[at] ?? timelines[0];
	if (link) {
		link.shift = Number.isSafeInteger(Math.round(shift)) ? Math.round(shift) : 0;
		// Each moves the other to its place.
		link.isLinked = true;
	}
	// The first timeline comes last: a link with only its time moves both.
	[...timelines.entries()].reverse().forEach(([number, { view }]) => view.restore(parts[number] ?? ""));
	if (link) {
		link.isLinked = linked.checked = isLinked !== 0;
		active.view.panel = written === "" ? "compare" : active.view.panel;
	}
	pattern.value = active.view.pattern;
	find();
	showActive();
	applyTheme();
	for (const timeline of timelines) {
		const { panel, point } = timeline.view;
		if (point) {
			timeline.look(point.thread, point.at, point.depth, panel);
		} else {
			show(timeline, details => details.call(0, null));
		}
	}
}

window.addEventListener("hashchange", () => {
	if (location.hash.slice(1) !== written) {
		restore();
	}
});
for (const timeline of timelines) {
	byId("timelines").append(timeline.root);
	timeline.view.addEventListener("change", changed);
	new ResizeObserver(() => timeline.view.changed()).observe(timeline.canvas);
	for (const sign of ["pointerdown", "focusin"]) {
		timeline.root.addEventListener(sign, () => activate(timeline), { capture: true });
	}
}
matchMedia("(prefers-color-scheme: light)").addEventListener("change", applyTheme);

describe();
restore();

/**
 * Whether it grows, or is shown before damage would be known.
 * @param {Trace} trace
 */
const mayChange = trace => trace.is_growing || !trace.is_checked;

/** @param {Timeline} timeline */
async function grow(timeline) {
	const { chart, view } = timeline;
	try {
		const trace = await view.api.trace();
		if (trace.duration !== view.trace.duration || trace.calls !== view.trace.calls || trace.losses !== view.trace.losses) {
			view.grow(trace);
			describe();
			chart.reset();
		}
		if (!mayChange(trace)) {
			return;
		}
	} catch (error) {
		fail(error);
	}
	setTimeout(grow, EACH, timeline);
}
for (const timeline of timelines.filter(({ view }) => mayChange(view.trace))) {
	setTimeout(grow, EACH, timeline);
}

// For tests and measurements.
Object.assign(window, { nopal: timelines, link });
