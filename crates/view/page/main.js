// Connects the trace, the view of it, the chart, the panels, mouse and keys.

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { Details } from "./details.js";
import { byId, count, duration, element, matcher, moment } from "./text.js";
import { Tracks } from "./tracks.js";
import { AXIS, CPU, ROW, View } from "./view.js";

/** Milliseconds between looks at a trace that grows. */
const EACH = 1000;
/** Milliseconds for which the address waits for the next change. */
const CALM = 150;
/** Pixels that a hand moves while it clicks. */
const STILL = 4;

const canvas = /** @type {HTMLCanvasElement} */ (byId("chart"));
const overview = /** @type {HTMLCanvasElement} */ (byId("overview"));
const pattern = /** @type {HTMLInputElement} */ (byId("pattern"));
const labels = byId("labels");
const hover = byId("hover");
const help = /** @type {HTMLDialogElement} */ (byId("help"));

const view = new View(await load());
const chart = new Chart(view, canvas, overview);
const tracks = chart.tracks = new Tracks(view, chart);
const details = new Details(view, { search, look, fail }, chart);

async function load() {
	try {
		return await api.trace();
	} catch (error) {
		fail(error);
		throw error;
	}
}

/** @param {unknown} error */
function fail(error) {
	const losses = byId("losses");
	losses.hidden = false;
	losses.textContent = `nopal does not answer, or cannot: ${error instanceof Error ? error.message : error}`;
}

function describe() {
	const { trace } = view;
	byId("title").textContent = trace.command || trace.directory;
	document.title = `${trace.command || trace.directory} – nopal view`;
	const losses = byId("losses");
	losses.hidden = trace.losses === "";
	losses.textContent = trace.losses;
}

// What is looked at.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let calm;
let written = "";

view.addEventListener("change", () => {
	chart.update();
	details.update();
	showLabels();
	const width = view.until - view.from;
	byId("where").textContent = `${moment(Math.max(0, view.from), width / 1000)} + ${duration(width)}`;
	clearTimeout(calm);
	calm = setTimeout(() => {
		written = view.address();
		history.replaceState(null, "", `#${written}`);
	}, CALM);
	askHits();
});

function showLabels() {
	const shown = view.lines.filter(({ top, height }) =>
		top + height > view.scroll && top < view.scroll + labels.clientHeight);
	labels.replaceChildren(...shown.flatMap(({ top, thread, process, track, depths }) => {
		if (track !== "") {
			return trackLabels(track, top, depths);
		}
		const button = element("button", process, thread < 0 ? "process" : "");
		button.type = "button";
		button.style.top = `${AXIS + top - view.scroll}px`;
		button.setAttribute("role", "listitem");
		if (thread >= 0) {
			const isFolded = view.folded.has(thread);
			const info = view.trace.threads[thread];
			button.textContent = `${isFolded ? "▸" : "▾"} ${view.label(info)}`;
			button.title = `${info.name}, thread ${info.thread} of process ${info.process}: ${count(info.calls)} calls`;
			button.ariaExpanded = String(!isFolded);
			button.classList.toggle("chosen", view.chosen.has(thread));
			button.addEventListener("click", event => event.shiftKey ? view.choose(thread) : view.fold(thread));
		}
		return button;
	}));
}

/**
 * The names of a track, or of its rows.
 * @param {string} track
 * @param {number} top
 * @param {number} depths
 */
function trackLabels(track, top, depths) {
	const lanes = tracks.described.get(track)?.lanes.map(({ name }) => name) ?? [];
	const names = track === CPU ? lanes.slice(0, depths) : [track];
	return names.map((name, lane) => {
		const button = element("button", name, "track");
		button.type = "button";
		button.style.top = `${AXIS + top + lane * ROW - view.scroll}px`;
		button.title = `${track}: show its numbers`;
		button.setAttribute("role", "listitem");
		button.addEventListener("click", () => {
			view.panel = "tracks";
			view.changed();
		});
		return button;
	});
}

// Calls.

let looked = 0;

/**
 * Shows the call at a point.
 * @param {number} thread
 * @param {number} at
 * @param {number} depth
 */
async function look(thread, at, depth) {
	view.point = { thread, at, depth };
	view.panel = "call";
	const number = ++looked;
	try {
		const stack = await api.stack(thread, Math.round(at), depth);
		if (number === looked) {
			showCall(thread, stack);
		}
	} catch (error) {
		fail(error);
	}
	view.changed();
}

/**
 * @param {number} thread
 * @param {import("./types.js").Stack} stack
 */
function showCall(thread, stack) {
	const { call } = stack;
	chart.call = call && { thread, depth: call.depth, begin: call.begin, end: call.end };
	if (call) {
		view.subject = details.name(call.function);
	}
	details.call(thread, stack);
	chart.update();
}

/**
 * Shows what a track holds at a moment.
 * @param {{track: string, lane: number, at: number}} place
 */
async function lookAtSpan({ track, lane, at }) {
	const number = ++looked;
	try {
		const [span, description] = await Promise.all([api.span(track, lane, at), tracks.describe(track)]);
		if (number === looked && span && description) {
			tracks.span = { track, ...span };
			view.point = null;
			chart.call = null;
			details.span(track, span, description);
			view.panel = "call";
			view.changed();
		}
	} catch (error) {
		fail(error);
	}
}

/** @param {"next" | "previous"} to */
async function step(to) {
	const functions = chart.found.size > 0 ? [...chart.found] : null;
	const call = chart.call;
	const thread = view.point?.thread ?? firstHit();
	const at = call && view.point ? call.begin : to === "next" ? view.from : view.until;
	const chosen = functions ?? (await functionOfPoint());
	if (thread === undefined || chosen.length === 0) {
		return;
	}
	try {
		const stack = await api.step(thread, Math.round(Math.max(0, at)), chosen, to);
		if (!stack.call) {
			byId("found").textContent = `no ${to} one in this thread`;
			return;
		}
		const { begin, end, depth } = stack.call;
		view.point = { thread, at: begin, depth };
		view.panel = "call";
		showCall(thread, stack);
		if (begin < view.from || end > view.until) {
			const width = Math.max(view.until - view.from, (end - begin) * 1.2);
			view.show((begin + end - width) / 2, (begin + end + width) / 2);
		}
		const line = view.lineOf(thread);
		if (line && (line.top < view.scroll || line.top > view.scroll + canvas.clientHeight - AXIS)) {
			view.scroll = line.top;
		}
		view.changed();
	} catch (error) {
		fail(error);
	}
}

function firstHit() {
	return [...chart.hits.keys()][0];
}

async function functionOfPoint() {
	if (!view.point) {
		return [];
	}
	const { thread, at, depth } = view.point;
	const { call } = await api.stack(thread, Math.round(at), depth);
	return call ? [call.function] : [];
}

// Search.

/** @param {string} text */
function search(text) {
	pattern.value = text;
	view.pattern = text;
	find();
	view.changed();
}

function find() {
	const wanted = view.pattern.trim();
	const matches = matcher(wanted);
	/** @type {number[]} */
	const found = [];
	if (wanted !== "") {
		const exact = view.trace.functions.findIndex(([name]) => name === wanted);
		view.trace.functions.forEach(([name], at) => {
			if (exact >= 0 ? name === wanted : at > 0 && matches(name)) {
				found.push(at);
			}
		});
	}
	chart.found = new Set(found);
	chart.hits.clear();
	chart.wanted = "";
	asked = "";
	byId("found").textContent = wanted === "" ? "" : found.length === 0 ? "nothing" : "…";
}

let asked = "";
/** @type {AbortController | null} */
let asking = null;

async function askHits() {
	const { from, until } = view;
	const columns = Math.min(2000, Math.max(1, canvas.clientWidth));
	const key = `${from},${until},${columns},${view.trace.duration}`;
	if (chart.found.size === 0 || key === asked) {
		return;
	}
	asked = key;
	asking?.abort();
	const mine = asking = new AbortController();
	try {
		const answer = await api.hits([...chart.found], from, until, columns, mine.signal);
		chart.hits = new Map(answer.columns);
		chart.hitTime = [from, until];
		const calls = answer.totals.reduce((sum, total) => sum + total, 0);
		const functions = chart.found.size;
		byId("found").textContent = `${count(calls)} calls of ${functions === 1 ? "1 function" : `${count(functions)} functions`}`;
		chart.update();
	} catch (error) {
		if (!mine.signal.aborted) {
			fail(error);
		}
	}
}

// Mouse, pen and fingers.

/** @type {Map<number, {x: number, y: number}>} */
const fingers = new Map();
/** @type {"pan" | "range" | "pinch" | null} */
let gesture = null;
let start = { x: 0, y: 0, ns: 0, distance: 1 };
let isMoved = false;

/** @param {PointerEvent | WheelEvent | MouseEvent} event */
function inChart(event) {
	const { left, top } = canvas.getBoundingClientRect();
	return { x: event.clientX - left, y: event.clientY - top };
}

canvas.addEventListener("pointerdown", event => {
	const place = inChart(event);
	canvas.setPointerCapture(event.pointerId);
	canvas.focus({ preventScroll: true });
	fingers.set(event.pointerId, place);
	isMoved = false;
	const [one, other] = fingers.values();
	const distance = other ? Math.hypot(one.x - other.x, one.y - other.y) : 1;
	const x = other ? (one.x + other.x) / 2 : place.x;
	start = { ...place, x, ns: chart.ns(x), distance: Math.max(1, distance) };
	gesture = other ? "pinch" : event.shiftKey || place.y < AXIS ? "range" : "pan";
});

canvas.addEventListener("pointermove", event => {
	const place = inChart(event);
	const before = fingers.get(event.pointerId);
	if (!before || !gesture) {
		showHover(place);
		return;
	}
	hover.hidden = true;
	fingers.set(event.pointerId, place);
	isMoved ||= Math.abs(place.x - start.x) > STILL || Math.abs(place.y - start.y) > STILL;
	if (gesture === "pinch") {
		const [one, other] = fingers.values();
		if (other) {
			const distance = Math.max(1, Math.hypot(one.x - other.x, one.y - other.y));
			view.zoom(start.distance / distance, chart.ns((one.x + other.x) / 2));
			start.distance = distance;
		}
	} else if (isMoved && gesture === "range") {
		const ends = [start.ns, chart.ns(place.x)].sort((one, other) => one - other);
		view.range = [Math.max(0, Math.round(ends[0])), Math.max(1, Math.round(ends[1]))];
		chart.update();
	} else if (isMoved) {
		canvas.style.cursor = "grabbing";
		view.follows = false;
		view.scrollBy(before.y - place.y, canvas.clientHeight);
		view.pan(chart.ns(before.x) - chart.ns(place.x));
	}
});

/** @param {PointerEvent} event */
function lift(event) {
	canvas.style.cursor = "";
	if (fingers.delete(event.pointerId) && gesture && !isMoved && fingers.size === 0 && event.type === "pointerup") {
		const point = chart.pointAt(start.x, start.y);
		const place = tracks.placeAt(start.x, start.y);
		if (point) {
			look(point.thread, point.at, point.depth);
		} else if (place && !view.isCurve(place.track)) {
			lookAtSpan(place);
		}
	}
	if (gesture === "range" && isMoved) {
		if (view.panel === "call" || view.panel === "threads") {
			view.panel = "functions";
		}
		view.changed();
	}
	gesture = null;
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("pointerleave", () => {
	hover.hidden = true;
});
canvas.addEventListener("dblclick", () => zoomToChosen());

canvas.addEventListener("wheel", event => {
	event.preventDefault();
	const size = event.deltaMode === 1 ? 30 : 1;
	const across = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
	if (!event.ctrlKey && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
		view.follows = false;
		view.pan(across * size / canvas.clientWidth * (view.until - view.from));
	} else {
		view.zoom(Math.exp(event.deltaY * size * (event.ctrlKey ? 0.01 : 0.002)), chart.ns(inChart(event).x));
	}
}, { passive: false });

labels.addEventListener("wheel", event => {
	event.preventDefault();
	view.scrollBy(event.deltaY * (event.deltaMode === 1 ? 30 : 1), canvas.clientHeight);
}, { passive: false });

/** @param {{x: number, y: number}} place */
function showHover({ x, y }) {
	const cell = chart.cellAt(x, y);
	const other = cell ? [] : tracks.describeAt(x, y);
	hover.hidden = !cell && other.length === 0;
	if (!cell) {
		hover.replaceChildren(...other);
		placeHover(x, y);
		return;
	}
	const { trace } = view;
	const [name, module] = trace.functions[cell.site] ?? ["(unknown)", 0];
	const isOne = cell.calls === 0 && cell.covered === 1;
	const what = isOne ? "" : cell.calls > 1
		? `most of the time here, where ${count(cell.calls)} calls begin in ${duration(cell.width)} and calls cover ${Math.round(cell.covered * 100)} %`
		: `calls cover ${Math.round(cell.covered * 100)} % of ${duration(cell.width)}`;
	hover.replaceChildren(
		element("b", name),
		element("div", `${trace.modules[module] ?? "?"} · ${moment(cell.at, cell.width)} · depth ${cell.depth}`),
		element("div", what),
	);
	placeHover(x, y);
	describeCall(cell);
}

/**
 * @param {number} x
 * @param {number} y
 */
function placeHover(x, y) {
	hover.style.left = `${Math.min(x + labels.clientWidth + 14, byId("main").clientWidth - hover.offsetWidth - 4)}px`;
	hover.style.top = `${Math.min(y + 16, byId("main").clientHeight - hover.offsetHeight - 4)}px`;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let hovering;

/**
 * Adds what is known of the call, once the mouse rests.
 * @param {{thread: number, at: number, depth: number}} point
 */
function describeCall({ thread, at, depth }) {
	clearTimeout(hovering);
	hovering = setTimeout(async () => {
		try {
			const { call, calls } = await api.stack(thread, at, depth);
			if (call && !hover.hidden) {
				const caller = calls.filter(place => place.depth < call.depth).at(-1);
				const parts = [
					`${duration(call.end - call.begin)}${call.how === "open" ? " or more" : ""}`,
					call.own === null ? "" : `self ${duration(call.own)}`,
					call.arguments ? `(${call.arguments.join(", ")})` : "",
					call.result === null ? "" : `= ${call.result}`,
					caller ? `called by ${view.trace.functions[caller.function]?.[0] ?? "?"}` : "",
				];
				hover.append(element("div", parts.filter(Boolean).join(" · ")));
			}
		} catch {
			// The chart tells what is wrong.
		}
	}, 120);
}

/** @param {PointerEvent} event */
function moveTo(event) {
	const { left, width } = overview.getBoundingClientRect();
	const at = (event.clientX - left) / width * view.trace.duration;
	const half = (view.until - view.from) / 2;
	view.follows = false;
	view.show(at - half, at + half);
}
overview.addEventListener("pointerdown", event => {
	overview.setPointerCapture(event.pointerId);
	moveTo(event);
});
overview.addEventListener("pointermove", event => {
	if (overview.hasPointerCapture(event.pointerId)) {
		moveTo(event);
	}
});
overview.addEventListener("wheel", event => {
	event.preventDefault();
	view.zoom(Math.exp(event.deltaY * 0.002), (view.from + view.until) / 2);
}, { passive: false });

byId("resize").addEventListener("pointermove", event => {
	if (event.buttons & 1) {
		byId("resize").setPointerCapture(event.pointerId);
		byId("panel").style.height = `${Math.max(60, innerHeight - event.clientY)}px`;
		chart.update();
	}
});

// Keys.

function zoomToChosen() {
	const chosen = view.range ?? (chart.call ? [chart.call.begin, chart.call.end] : null);
	if (chosen) {
		const margin = Math.max(10, (chosen[1] - chosen[0]) * 0.05);
		view.show(chosen[0] - margin, chosen[1] + margin);
	}
}

function bookmark() {
	const at = Math.round(view.point?.at ?? (view.from + view.until) / 2);
	const near = (view.until - view.from) / 200;
	const others = view.bookmarks.filter(other => Math.abs(other - at) > near);
	view.bookmarks = others.length < view.bookmarks.length ? others : [...others, at].sort((one, other) => one - other);
	view.changed();
}

/** @param {1 | -1} direction */
function goToBookmark(direction) {
	const middle = (view.from + view.until) / 2;
	const ahead = view.bookmarks.filter(at => (at - middle) * direction > 1);
	const at = direction > 0 ? ahead[0] : ahead.at(-1);
	if (at !== undefined) {
		view.pan(at - middle);
	}
}

function selectNothing() {
	view.range = null;
	view.chosen.clear();
	view.point = null;
	chart.call = null;
	tracks.span = null;
	details.call(0, null);
	if (view.pattern !== "") {
		search("");
	}
	view.changed();
}

function changeTheme() {
	const isLight = document.documentElement.classList.contains("light");
	view.theme = isLight ? "dark" : "light";
	applyTheme();
	view.changed();
}

function applyTheme() {
	const isLight = view.theme === "light"
		|| (view.theme === "" && matchMedia("(prefers-color-scheme: light)").matches);
	document.documentElement.classList.toggle("light", isLight);
	chart.reset();
}

/** @param {number} factor */
const zoom = factor => view.zoom(factor, (view.from + view.until) / 2);
/** @param {number} part */
const pan = part => {
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
	ArrowUp: () => view.scrollBy(-54, canvas.clientHeight),
	ArrowDown: () => view.scrollBy(54, canvas.clientHeight),
	0: () => view.whole(),
	n: () => step("next"),
	p: () => step("previous"),
	m: bookmark,
	"[": () => goToBookmark(-1),
	"]": () => goToBookmark(1),
	t: changeTheme,
	Enter: zoomToChosen,
	Escape: selectNothing,
	"/": () => pattern.focus(),
	"?": () => help.showModal(),
};

document.addEventListener("keydown", event => {
	const { target } = event;
	const isElsewhere = target instanceof HTMLInputElement || help.open
		|| (target instanceof HTMLButtonElement && (event.key === "Enter" || event.key === " "))
		|| (target instanceof Element && target.closest("[role=tabpanel]") && event.key.startsWith("Arrow"));
	const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
	if (!isElsewhere && action && !event.ctrlKey && !event.metaKey && !event.altKey) {
		event.preventDefault();
		action();
	}
});

pattern.addEventListener("input", () => {
	view.pattern = pattern.value;
	find();
	view.changed();
});
pattern.addEventListener("keydown", event => {
	if (event.key === "Escape") {
		search("");
		canvas.focus();
	}
});
byId("search").addEventListener("submit", event => {
	event.preventDefault();
	step("next");
});
byId("next").addEventListener("click", () => step("next"));
byId("previous").addEventListener("click", () => step("previous"));
byId("whole").addEventListener("click", () => view.whole());
byId("theme").addEventListener("click", changeTheme);
byId("ask").addEventListener("click", () => help.showModal());

// The beginning.

function restore() {
	written = location.hash.slice(1);
	view.restore(written);
	pattern.value = view.pattern;
	find();
	applyTheme();
	if (view.point) {
		const { panel } = view;
		look(view.point.thread, view.point.at, view.point.depth).then(() => {
			view.panel = panel;
			view.changed();
		});
	} else {
		details.call(0, null);
	}
}

window.addEventListener("hashchange", () => {
	if (location.hash.slice(1) !== written) {
		restore();
	}
});
new ResizeObserver(() => view.changed()).observe(canvas);
matchMedia("(prefers-color-scheme: light)").addEventListener("change", applyTheme);

chart.onError = fail;
chart.onCells = (/** @type {boolean} */ isExact) => {
	document.body.dataset.state = isExact ? "exact" : "quick";
};
describe();
restore();

async function grow() {
	try {
		const trace = await api.trace();
		if (trace.duration !== view.trace.duration || trace.calls !== view.trace.calls) {
			view.grow(trace);
			describe();
			chart.reset();
		}
		if (!trace.is_growing) {
			return;
		}
	} catch (error) {
		fail(error);
	}
	setTimeout(grow, EACH);
}
if (view.trace.is_growing) {
	setTimeout(grow, EACH);
}

// For tests and measurements.
Object.assign(window, { nopal: { view, chart, tracks } });
