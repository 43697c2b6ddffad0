// A trace as a timeline: its strip, the names of its threads, its chart, and the effects of mouse and fingers.

/** @import {Details} from "./details.js" */
/** @import {Page, Stack} from "./types.js" */
/** @import {View} from "./view.js" */

import { Chart } from "./chart.js";
import { count, duration, element, matcher, moment } from "./text.js";
import { Tracks } from "./tracks.js";
import { AXIS, CPU, ROW } from "./view.js";

/** The most pixels that the pointer moves in a click. */
const STILL = 4;
/** The least part of the shown time that a call takes where it is plainly seen. */
const PLAIN = 0.01;

export class Timeline {
	/**
	 * @param {View} view
	 * @param {string} letter of the trace, if there are several
	 * @param {Page} page
	 */
	constructor(view, letter, page) {
		this.view = view;
		this.letter = letter;
		this.page = page;
		const template = /** @type {HTMLTemplateElement} */ (document.getElementById("timeline"));
		const copy = /** @type {DocumentFragment} */ (template.content.cloneNode(true));
		this.root = /** @type {HTMLElement} */ (copy.firstElementChild);
		const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (this.root.querySelector(name));
		this.title = part(".trace");
		this.area = part(".main");
		this.labels = part(".labels");
		this.hover = part(".hover");
		this.canvas = /** @type {HTMLCanvasElement} */ (part(".chart"));
		this.overview = /** @type {HTMLCanvasElement} */ (part(".overview"));
		this.chart = new Chart(view, this.canvas, this.overview);
		this.tracks = this.chart.tracks = new Tracks(view, this.chart);
		this.chart.onError = page.fail;
		this.chart.onCells = (/** @type {boolean} */ isExact) => {
			this.root.dataset.state = isExact ? "exact" : "quick";
		};
		/** Shows the last contents again. */
		this.fill = (/** @type {Details} */ details) => details.call(0, null);
		/** The result of the search, in words. */
		this.found = "";
		/** The number of the last look, and the key of the hits that are asked for. */
		this.looked = 0;
		this.asked = "";
		/** @type {AbortController | null} */
		this.asking = null;
		/** @type {ReturnType<typeof setTimeout> | undefined} */
		this.hovering = undefined;
		view.addEventListener("change", () => {
			this.chart.update();
			this.showLabels();
			this.askHits();
		});
		this.listen();
	}

	showLabels() {
		const shown = this.view.lines.filter(({ top, height }) =>
			top + height > this.view.scroll && top < this.view.scroll + this.labels.clientHeight);
		this.labels.replaceChildren(...shown.flatMap(({ top, thread, process, track, depths }) => {
			if (track !== "") {
				return this.trackLabels(track, top, depths);
			}
			const button = element("button", process, thread < 0 ? "process" : "");
			button.type = "button";
			button.style.top = `${AXIS + top - this.view.scroll}px`;
			button.setAttribute("role", "listitem");
			if (thread >= 0) {
				const isFolded = this.view.folded.has(thread);
				const info = this.view.trace.threads[thread];
				button.textContent = `${isFolded ? "▸" : "▾"} ${this.view.label(info)}`;
				button.title = `${info.name}, thread ${info.thread} of process ${info.process}: ${count(info.calls)} calls`;
				button.ariaExpanded = String(!isFolded);
				button.classList.toggle("chosen", this.view.chosen.has(thread));
				button.addEventListener("click", event => event.shiftKey ? this.view.choose(thread) : this.view.fold(thread));
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
	trackLabels(track, top, depths) {
		const lanes = this.tracks.described.get(track)?.lanes.map(({ name }) => name) ?? [];
		const names = track === CPU ? lanes.slice(0, depths) : [track];
		return names.map((name, lane) => {
			const button = element("button", name, "track");
			button.type = "button";
			button.style.top = `${AXIS + top + lane * ROW - this.view.scroll}px`;
			button.title = `${track}: show its numbers`;
			button.setAttribute("role", "listitem");
			button.addEventListener("click", () => {
				this.view.panel = "tracks";
				this.view.changed();
			});
			return button;
		});
	}

	/**
	 * Shows the call at a point, and the name of its function.
	 * @param {number} thread
	 * @param {number} at
	 * @param {number} depth
	 * @param {string} panel
	 */
	async look(thread, at, depth, panel = "call") {
		this.view.point = { thread, at, depth };
		this.view.panel = panel;
		const number = ++this.looked;
		let name = "";
		try {
			const stack = await this.view.api.stack(thread, Math.round(at), depth);
			if (number === this.looked) {
				this.showCall(thread, stack);
				name = stack.call ? this.nameOf(stack.call.function) : "";
			}
		} catch (error) {
			this.page.fail(error);
		}
		this.view.changed();
		return name;
	}

	/**
	 * Shows a call, or a moment of a thread, and goes there.
	 * @param {number} thread
	 * @param {number} at
	 * @param {number | null} depth of the call; none for a moment
	 */
	async go(thread, at, depth) {
		await this.look(thread, at, depth ?? 0);
		const { call } = this.chart;
		if (call && depth !== null) {
			this.reveal(call, true);
		} else {
			this.reveal({ thread, depth: 0, begin: at, end: at }, false);
		}
	}

	/**
	 * Moves the time and the threads, if need be, so that a call is in sight.
	 * @param {{thread: number, depth: number, begin: number, end: number}} call
	 * @param {boolean} zooms whether a call that is short for the shown time is shown larger
	 */
	reveal({ thread, depth, begin, end }, zooms) {
		const { view } = this;
		const shown = view.until - view.from;
		const isWhole = view.from <= begin && end <= view.until;
		const seen = Math.min(end, view.until) - Math.max(begin, view.from);
		if (!(isWhole && !zooms) && seen < shown * PLAIN) {
			const width = zooms ? (end - begin) * 1.6 : Math.max(shown, (end - begin) * 1.2);
			view.follows = false;
			view.show((begin + end - width) / 2, (begin + end + width) / 2);
		}
		const line = view.lineOf(thread);
		if (line) {
			const top = line.top + Math.min(depth, line.depths - 1) * ROW;
			const height = this.canvas.clientHeight - AXIS;
			if (top < view.scroll || top + ROW > view.scroll + height) {
				view.scrollBy(top - height / 3 - view.scroll, this.canvas.clientHeight);
			}
		}
	}

	/** @param {number} site */
	nameOf(site) {
		return this.view.trace.functions[site]?.[0] ?? "(unknown)";
	}

	/**
	 * @param {number} thread
	 * @param {Stack} stack
	 */
	showCall(thread, stack) {
		const { call } = stack;
		this.chart.call = call && { thread, function: call.function, depth: call.depth, begin: call.begin, end: call.end };
		if (call) {
			this.view.subject = this.nameOf(call.function);
		}
		this.page.show(this, details => details.call(thread, stack));
		this.chart.update();
	}

	/**
	 * Shows the span of a track at a moment.
	 * @param {{track: string, lane: number, at: number}} place
	 */
	async lookAtSpan({ track, lane, at }) {
		const number = ++this.looked;
		try {
			const [span, description] = await Promise.all([this.view.api.span(track, lane, at), this.tracks.describe(track)]);
			if (number === this.looked && span && description) {
				this.tracks.span = { track, ...span };
				this.view.point = null;
				this.chart.call = null;
				this.page.show(this, details => details.span(track, span, description));
				this.view.panel = "call";
				this.view.changed();
			}
		} catch (error) {
			this.page.fail(error);
		}
	}

	/** @param {"next" | "previous"} to */
	async step(to) {
		const functions = this.chart.found.size > 0 ? [...this.chart.found] : null;
		const call = this.chart.call;
		const thread = this.view.point?.thread ?? this.firstHit();
		const isNext = to === "next";
		const at = call && this.view.point ? call.begin + Number(isNext) : isNext ? this.view.from : this.view.until;
		const chosen = functions ?? (await this.functionOfPoint());
		if (thread === undefined || chosen.length === 0) {
			return;
		}
		try {
			const stack = await this.view.api.step(thread, Math.round(Math.max(0, at)), chosen, to);
			if (!stack.call) {
				this.tell(`no ${to} one in this thread`);
				return;
			}
			const { begin, end, depth } = stack.call;
			this.view.point = { thread, at: begin, depth };
			this.view.panel = "call";
			this.showCall(thread, stack);
			this.reveal({ thread, depth, begin, end }, false);
			this.view.changed();
		} catch (error) {
			this.page.fail(error);
		}
	}

	firstHit() {
		return [...this.chart.hits.keys()][0];
	}

	async functionOfPoint() {
		if (!this.view.point) {
			return [];
		}
		const { thread, at, depth } = this.view.point;
		const { call } = await this.view.api.stack(thread, Math.round(at), depth);
		return call ? [call.function] : [];
	}

	/** @param {boolean} isName whether a function of the page has this name: then only that one is meant */
	find(isName) {
		const wanted = this.view.pattern.trim();
		const matches = matcher(wanted);
		/** @type {number[]} */
		const found = [];
		if (wanted !== "") {
			this.view.trace.functions.forEach(([name], at) => {
				if (isName ? name === wanted : at > 0 && matches(name)) {
					found.push(at);
				}
			});
		}
		this.chart.found = new Set(found);
		this.chart.hits.clear();
		this.chart.wanted = "";
		this.asked = "";
		this.tell(wanted === "" ? "" : found.length === 0 ? "nothing" : "…");
	}

	/** @param {string} found what the search has found */
	tell(found) {
		this.found = found;
		this.page.found();
	}

	async askHits() {
		const [from, until] = [Math.max(0, this.view.from), Math.max(1, this.view.until)];
		const columns = Math.min(2000, Math.max(1, this.canvas.clientWidth));
		const key = `${from},${until},${columns},${this.view.trace.duration}`;
		if (this.chart.found.size === 0 || key === this.asked) {
			return;
		}
		this.asked = key;
		this.asking?.abort();
		const mine = this.asking = new AbortController();
		try {
			const answer = await this.view.api.hits([...this.chart.found], from, until, columns, mine.signal);
			this.chart.hits = new Map(answer.columns);
			this.chart.hitTime = [from, until];
			const calls = answer.totals.reduce((sum, total) => sum + total, 0);
			const functions = this.chart.found.size;
			this.tell(`${count(calls)} calls of ${functions === 1 ? "1 function" : `${count(functions)} functions`}`);
			this.chart.update();
		} catch (error) {
			if (!mine.signal.aborted) {
				this.page.fail(error);
			}
		}
	}

	/** @param {PointerEvent | WheelEvent | MouseEvent} event */
	inChart(event) {
		const { left, top } = this.canvas.getBoundingClientRect();
		return { x: event.clientX - left, y: event.clientY - top };
	}

	/** Mouse, pen and fingers. */
	listen() {
		/** @type {Map<number, {x: number, y: number}>} */
		const fingers = new Map();
		/** @type {"pan" | "range" | "pinch" | null} */
		let gesture = null;
		let start = { x: 0, y: 0, ns: 0, distance: 1 };
		let isMoved = false;

		this.canvas.addEventListener("pointerdown", event => {
			const place = this.inChart(event);
			this.canvas.setPointerCapture(event.pointerId);
			this.canvas.focus({ preventScroll: true });
			fingers.set(event.pointerId, place);
			isMoved = false;
			const [one, other] = fingers.values();
			const distance = other ? Math.hypot(one.x - other.x, one.y - other.y) : 1;
			const x = other ? (one.x + other.x) / 2 : place.x;
			start = { ...place, x, ns: this.chart.ns(x), distance: Math.max(1, distance) };
			gesture = other ? "pinch" : event.shiftKey || place.y < AXIS ? "range" : "pan";
		});

		this.canvas.addEventListener("pointermove", event => {
			const place = this.inChart(event);
			const before = fingers.get(event.pointerId);
			if (!before || !gesture) {
				this.showHover(place);
				return;
			}
			this.hover.hidden = true;
			fingers.set(event.pointerId, place);
			isMoved ||= Math.abs(place.x - start.x) > STILL || Math.abs(place.y - start.y) > STILL;
			if (gesture === "pinch") {
				const [one, other] = fingers.values();
				if (other) {
					const distance = Math.max(1, Math.hypot(one.x - other.x, one.y - other.y));
					this.view.zoom(start.distance / distance, this.chart.ns((one.x + other.x) / 2));
					start.distance = distance;
				}
			} else if (isMoved && gesture === "range") {
				const ends = [start.ns, this.chart.ns(place.x)].sort((one, other) => one - other);
				if (ends[1] > 0) {
					this.view.range = [Math.max(0, Math.round(ends[0])), Math.max(1, Math.round(ends[1]))];
					this.chart.update();
				}
			} else if (isMoved) {
				this.canvas.style.cursor = "grabbing";
				this.view.follows = false;
				this.view.scrollBy(before.y - place.y, this.canvas.clientHeight);
				this.view.pan(this.chart.ns(before.x) - this.chart.ns(place.x));
			}
		});

		const lift = (/** @type {PointerEvent} */ event) => {
			this.canvas.style.cursor = "";
			if (fingers.delete(event.pointerId) && gesture && !isMoved && fingers.size === 0 && event.type === "pointerup") {
				const point = this.chart.pointAt(start.x, start.y);
				const place = this.tracks.placeAt(start.x, start.y);
				if (point) {
					this.look(point.thread, point.at, point.depth).then(name => name && this.page.clicked(this, name));
				} else if (place && !this.view.isCurve(place.track)) {
					this.lookAtSpan(place);
				}
			}
			if (gesture === "range" && isMoved) {
				this.page.selected(this.view);
				this.view.changed();
			}
			gesture = null;
		};
		this.canvas.addEventListener("pointerup", lift);
		this.canvas.addEventListener("pointercancel", lift);
		this.canvas.addEventListener("pointerleave", () => {
			this.hover.hidden = true;
		});
		this.canvas.addEventListener("dblclick", () => this.zoomToChosen());

		this.canvas.addEventListener("wheel", event => {
			event.preventDefault();
			const size = event.deltaMode === 1 ? 30 : 1;
			const across = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
			if (!event.ctrlKey && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
				this.view.follows = false;
				this.view.pan(across * size / this.canvas.clientWidth * (this.view.until - this.view.from));
			} else {
				this.view.zoom(Math.exp(event.deltaY * size * (event.ctrlKey ? 0.01 : 0.002)), this.chart.ns(this.inChart(event).x));
			}
		}, { passive: false });

		this.labels.addEventListener("wheel", event => {
			event.preventDefault();
			this.view.scrollBy(event.deltaY * (event.deltaMode === 1 ? 30 : 1), this.canvas.clientHeight);
		}, { passive: false });

		this.overview.addEventListener("pointerdown", event => {
			this.overview.setPointerCapture(event.pointerId);
			this.moveTo(event);
		});
		this.overview.addEventListener("pointermove", event => {
			if (this.overview.hasPointerCapture(event.pointerId)) {
				this.moveTo(event);
			}
		});
		this.overview.addEventListener("wheel", event => {
			event.preventDefault();
			this.view.zoom(Math.exp(event.deltaY * 0.002), (this.view.from + this.view.until) / 2);
		}, { passive: false });
	}

	/** @param {{x: number, y: number}} place */
	showHover({ x, y }) {
		const cell = this.chart.cellAt(x, y);
		const other = cell ? [] : this.tracks.describeAt(x, y);
		this.hover.hidden = !cell && other.length === 0;
		if (!cell) {
			this.hover.replaceChildren(...other);
			this.placeHover(x, y);
			return;
		}
		const { trace } = this.view;
		const [name, module] = trace.functions[cell.site] ?? ["(unknown)", 0];
		const isOne = cell.calls === 0 && cell.covered === 1;
		const what = isOne ? "" : cell.calls > 1
			? `most of the time here, where ${count(cell.calls)} calls begin in ${duration(cell.width)} and calls cover ${Math.round(cell.covered * 100)} %`
			: `calls cover ${Math.round(cell.covered * 100)} % of ${duration(cell.width)}`;
		this.hover.replaceChildren(
			element("b", name),
			element("div", `${trace.modules[module] ?? "?"} · ${moment(cell.at, cell.width)} · depth ${cell.depth}`),
			element("div", what),
		);
		this.placeHover(x, y);
		this.describeCall(cell, x, y);
	}

	/**
	 * @param {number} x
	 * @param {number} y
	 */
	placeHover(x, y) {
		this.hover.style.left = `${Math.min(x + this.labels.clientWidth + 14, this.area.clientWidth - this.hover.offsetWidth - 4)}px`;
		this.hover.style.top = `${Math.min(y + 16, this.area.clientHeight - this.hover.offsetHeight - 4)}px`;
	}

	/**
	 * Adds the facts about the call, once the mouse rests.
	 * @param {{thread: number, at: number, depth: number}} point
	 * @param {number} x
	 * @param {number} y
	 */
	describeCall({ thread, at, depth }, x, y) {
		clearTimeout(this.hovering);
		this.hovering = setTimeout(async () => {
			try {
				const { call, callers } = await this.view.api.stack(thread, at, depth);
				if (call && !this.hover.hidden) {
					const caller = callers.at(-1);
					const parts = [
						`${duration(call.end - call.begin)}${call.how === "open" ? " or more" : ""}`,
						call.own === null ? "" : `self ${duration(call.own)}`,
						caller ? `called by ${this.view.trace.functions[caller.function]?.[0] ?? "?"}` : "",
					];
					const facts = element("div", parts.filter(Boolean).join(" · "));
					this.hover.append(facts);
					this.placeHover(x, y);
					const { line, calls, values } = await this.view.api.source(thread, at, depth);
					if (facts.isConnected) {
						const places = [line ? `at ${line}` : "", calls.length > 0 ? `called at ${calls.join(", ")}` : ""];
						const more = [values, places.filter(Boolean).join(" · ")].filter(Boolean);
						this.hover.append(...more.map(text => element("div", text)));
						this.placeHover(x, y);
					}
				}
			} catch {
				// The chart shows the error.
			}
		}, 120);
	}

	/** @param {PointerEvent} event */
	moveTo(event) {
		const { left, width } = this.overview.getBoundingClientRect();
		const at = (event.clientX - left) / width * this.view.trace.duration;
		const half = (this.view.until - this.view.from) / 2;
		this.view.follows = false;
		this.view.show(at - half, at + half);
	}

	zoomToChosen() {
		const chosen = this.view.range ?? (this.chart.call ? [this.chart.call.begin, this.chart.call.end] : null);
		if (chosen) {
			const margin = Math.max(10, (chosen[1] - chosen[0]) * 0.05);
			this.view.show(chosen[0] - margin, chosen[1] + margin);
		}
	}

	/** Sets a bookmark where the call or the moment is that is looked at, if it is in sight, or else in the middle; or removes it. */
	bookmark() {
		const { view } = this;
		const [point, middle] = [view.point?.at ?? -1, (view.from + view.until) / 2];
		const at = Math.max(0, Math.round(view.from <= point && point <= view.until ? point : middle));
		const far = (/** @type {number} */ bookmark) => Math.abs(bookmark - at);
		const [nearest] = [...view.bookmarks].sort((one, other) => far(one) - far(other));
		view.bookmarks = nearest !== undefined && far(nearest) <= (view.until - view.from) / 200
			? view.bookmarks.filter(bookmark => bookmark !== nearest)
			: [...view.bookmarks, at].sort((one, other) => one - other);
		view.changed();
	}

	/** @param {1 | -1} direction */
	goToBookmark(direction) {
		const middle = (this.view.from + this.view.until) / 2;
		const ahead = this.view.bookmarks.filter(at => (at - middle) * direction > 1);
		const at = direction > 0 ? ahead[0] : ahead.at(-1);
		if (at !== undefined) {
			this.view.pan(at - middle);
		}
	}

	selectNothing() {
		this.view.range = null;
		this.view.chosen.clear();
		this.view.point = null;
		this.chart.call = null;
		this.tracks.span = null;
		this.page.show(this, details => details.call(0, null));
		this.view.changed();
	}
}
