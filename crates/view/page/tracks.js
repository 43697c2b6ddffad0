// Tracks beside the calls: processors, cases of tracers, values of markers; and above them all, the wake-ups between
// threads.

/** @import {Chart} from "./chart.js" */
/** @import {Color} from "./colors.js" */
/** @import {CurvePicture, Line, Picture, StatesPicture, TrackDescription, Wakes} from "./types.js" */
/** @import {View} from "./view.js" */

import * as api from "./api.js";
import { colorOf, parse, styled } from "./colors.js";
import { count, duration, element, moment } from "./text.js";
import { AXIS, CPU, ROW } from "./view.js";

/** Bytes of a column of states: running, runnable, waiting, unknown, functions of the kernel. */
const STATE = 5;
/** @type {string[]} */
const STATES = ["--running", "--ready", "--waiting", "--unknown"];
const STATE_NAMES = ["running", "able to run", "waiting", "not known"];
const BAND = 4;

export class Tracks {
	/**
	 * @param {View} view
	 * @param {Chart} chart
	 */
	constructor(view, chart) {
		this.view = view;
		this.chart = chart;
		/** @type {Map<string, TrackDescription>} */
		this.described = new Map();
		/** @type {Map<string, string>} why there is nothing of a track that was chosen */
		this.refused = new Map();
		/** @type {Map<string, Color[]>} */
		this.colors = new Map();
		/** @type {Map<string, Picture>} */
		this.lanes = new Map();
		/** @type {Map<string, CurvePicture>} */
		this.curves = new Map();
		/** @type {StatesPicture | null} */
		this.states = null;
		/** @type {Wakes | null} */
		this.wakes = null;
		/** @type {{track: string, lane: number, begin: number, end: number} | null} */
		this.span = null;
		this.wanted = "";
		/** @type {AbortController | null} */
		this.asking = null;
		this.wantedWakes = "";
		/** @type {AbortController | null} */
		this.askingWakes = null;
	}

	/** Forgets what was read: the trace, or the colours, have changed. */
	reset() {
		this.described.clear();
		this.wanted = this.wantedWakes = "";
	}

	/**
	 * The description of a track. If the trace has nothing for it, it is no longer chosen, and the reason is kept.
	 * @param {string} track
	 */
	async describe(track) {
		const known = this.described.get(track);
		if (known) {
			return known;
		}
		let description;
		try {
			description = await this.view.api.track(track);
		} catch (error) {
			this.refused.set(track, error instanceof Error ? error.message : String(error));
			this.view.tracks.delete(track);
			this.view.order();
			this.view.changed();
			return null;
		}
		this.refused.delete(track);
		this.described.set(track, description);
		this.colors.set(track, description.labels.map(colorOf));
		this.view.setLanes(track, description.lanes.length);
		return description;
	}

	/**
	 * Asks for the visible parts.
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 */
	async ask(from, until, columns) {
		this.askWakes();
		const { view } = this;
		const threads = view.trace.has_processors
			? view.seen(this.chart.canvas.clientHeight).map(line => line.thread).filter(thread => thread >= 0) : [];
		const wanted = JSON.stringify([from, until, columns, threads, view.trace.duration, [...view.tracks]]);
		if (wanted === this.wanted) {
			return;
		}
		this.wanted = wanted;
		this.asking?.abort();
		const { signal } = this.asking = new AbortController();
		const asked = [...view.tracks].map(async track => {
			if (view.isCurve(track)) {
				this.curves.set(track, { from, until, columns, values: await view.api.curve(track, from, until, columns, signal) });
				return;
			}
			const description = await this.describe(track);
			if (!description) {
				return;
			}
			const cells = await view.api.lanes(track, description.lanes.length, from, until, columns, signal);
			const image = await this.chart.imageOf(cells, this.colors.get(track) ?? [], null);
			if (signal.aborted) {
				image.close();
				return;
			}
			this.lanes.get(track)?.image.close();
			this.lanes.set(track, { cells, image });
		});
		if (view.trace.has_processors) {
			asked.push(this.askStates(threads, from, until, columns, signal));
		}
		const results = await Promise.allSettled(asked);
		if (signal.aborted) {
			return;
		}
		for (const result of results) {
			if (result.status === "rejected") {
				this.chart.onError(result.reason);
			}
		}
		document.body.dataset.tracks = wanted;
		this.chart.draw();
	}

	/** Asks for the wake-ups in the shown time. */
	async askWakes() {
		const { view } = this;
		const wanted = JSON.stringify([view.from, view.until, view.trace.duration]);
		if (!view.trace.has_processors || wanted === this.wantedWakes) {
			return;
		}
		this.wantedWakes = wanted;
		this.askingWakes?.abort();
		const { signal } = this.askingWakes = new AbortController();
		try {
			this.wakes = await view.api.wakes(Math.max(0, view.from), Math.max(1, view.until), signal);
			this.chart.draw();
		} catch (error) {
			if (!signal.aborted) {
				this.chart.onError(error);
			}
		}
	}

	/**
	 * @param {number[]} threads
	 * @param {number} from
	 * @param {number} until
	 * @param {number} columns
	 * @param {AbortSignal} signal
	 */
	async askStates(threads, from, until, columns, signal) {
		const bytes = await this.view.api.states(threads, from, until, columns, signal);
		const pixels = new ImageData(columns, Math.max(1, threads.length * 2));
		const ground = parse(styled("--ground"));
		const colors = STATES.map(name => parse(styled(name)));
		const entered = parse(styled("--bad"));
		for (let at = 0; at < threads.length * columns; at++) {
			const parts = [...bytes.subarray(at * STATE, at * STATE + 4)];
			const all = parts.reduce((sum, part) => sum + part, 0);
			const [thread, column] = [Math.floor(at / columns), at % columns];
			const place = (thread * 2 * columns + column) * 4;
			for (let channel = 0; channel < 3 && all > 0; channel++) {
				const mixed = parts.reduce((sum, part, state) => sum + part * colors[state][channel], 0)
					+ Math.max(0, 255 - all) * ground[channel];
				pixels.data[place + channel] = mixed / Math.max(255, all);
				pixels.data[place + 3] = 255;
			}
			if (bytes[at * STATE + 4] > 0) {
				pixels.data.set([...entered, 255], place + columns * 4);
			}
		}
		const image = await createImageBitmap(pixels);
		if (signal.aborted) {
			image.close();
			return;
		}
		this.states?.image.close();
		this.states = { from, until, columns, threads, bytes, image };
	}

	/** @param {CanvasRenderingContext2D} context */
	draw(context) {
		context.imageSmoothingEnabled = false;
		for (const line of this.view.lines.filter(line => line.track !== "")) {
			if (this.view.isCurve(line.track)) {
				this.drawCurve(context, line);
			} else {
				this.drawLanes(context, line);
			}
		}
		this.drawStates(context);
		this.drawWakes(context);
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {Line} line
	 */
	drawLanes(context, line) {
		const { chart, view } = this;
		const picture = this.lanes.get(line.track);
		const described = this.described.get(line.track);
		if (!picture || !described) {
			return;
		}
		const { cells, image } = picture;
		const [left, top] = [chart.x(cells.from), AXIS + line.top - view.scroll];
		const wide = chart.x(cells.until) - left;
		const rows = Math.min(line.depths, cells.rows[0].depths);
		chart.drawRows(context, { image, first: 0, rows, left, top, wide,
			names: chart.names(cells, 0, rows, top, left, wide, label => described.labels[label] ?? "?") });
		described.lanes.forEach(({ missing }, lane) => missing.forEach(([begin, end]) => {
			const [from, until] = [Math.max(0, chart.x(begin)), Math.min(chart.canvas.clientWidth, chart.x(end))];
			if (until >= 0 && from <= chart.canvas.clientWidth) {
				chart.hatch(context, from, top + lane * ROW, Math.max(1, until - from), ROW - 1);
			}
		}));
		if (this.span?.track === line.track) {
			const { begin, end, lane } = this.span;
			const [from, until] = [Math.max(-2, chart.x(begin)), Math.min(chart.canvas.clientWidth + 2, chart.x(end))];
			context.strokeStyle = styled("--text");
			context.lineWidth = 2;
			context.strokeRect(from, top + lane * ROW, Math.max(2, until - from), ROW - 1);
			context.lineWidth = 1;
		}
	}

	/**
	 * A line from value to value; in a column with several, from the least to the greatest.
	 * @param {CanvasRenderingContext2D} context
	 * @param {Line} line
	 */
	drawCurve(context, line) {
		const { chart, view } = this;
		const picture = this.curves.get(line.track);
		if (!picture?.values.extent) {
			return;
		}
		const { values, from, until, columns } = picture;
		const [least, most] = picture.values.extent;
		const top = AXIS + line.top - view.scroll + 2;
		const high = line.height - 12;
		const y = (/** @type {number} */ value) => most > least ? top + high * (1 - (value - least) / (most - least)) : top + high / 2;
		const [left, step] = [chart.x(from), (chart.x(until) - chart.x(from)) / columns];
		context.fillStyle = styled("--accent");
		let last = values.before;
		values.columns.forEach((column, at) => {
			const x = left + at * step;
			if (last !== null) {
				context.fillRect(x, y(last), step + 0.5, 1.5);
			}
			if (column) {
				const [, low, high, end] = column;
				const [above, below] = [Math.max(high, last ?? high), Math.min(low, last ?? low)];
				context.fillRect(x, y(above), Math.max(1.5, step), Math.max(1.5, y(below) - y(above)));
				last = end;
			}
		});
		context.fillStyle = styled("--faint");
		context.font = "10px system-ui, sans-serif";
		context.textBaseline = "middle";
		context.fillText(most.toLocaleString("en"), 3, top + 5);
		context.fillText(least.toLocaleString("en"), 3, top + high - 3);
	}

	/** @param {CanvasRenderingContext2D} context */
	drawStates(context) {
		const { chart, states, view } = this;
		states?.threads.forEach((thread, at) => {
			const line = view.lineOf(thread);
			if (line) {
				const [left, top] = [chart.x(states.from), AXIS + line.top - view.scroll + line.depths * ROW];
				const wide = chart.x(states.until) - left;
				context.drawImage(states.image, 0, at * 2, states.columns, 1, left, top, wide, BAND);
				context.drawImage(states.image, 0, at * 2 + 1, states.columns, 1, left, top + BAND, wide, 2);
			}
		});
	}

	/** @param {CanvasRenderingContext2D} context */
	drawWakes(context) {
		const { chart, view, wakes } = this;
		if (!wakes) {
			return;
		}
		const bottom = (/** @type {Line | undefined} */ line) => line && AXIS + line.top - view.scroll + line.depths * ROW + BAND / 2;
		const processors = view.lines.find(line => line.track === CPU);
		const lanes = this.described.get(CPU)?.lanes ?? [];
		context.strokeStyle = context.fillStyle = styled("--accent");
		context.globalAlpha = 0.8;
		for (const [at, processor, waker, woken, ran] of wakes.wakes) {
			const lane = lanes.findIndex(({ name }) => name === `CPU ${processor}`);
			const from = waker === null
				? processors && lane >= 0 ? AXIS + processors.top - view.scroll + lane * ROW + ROW / 2 : undefined
				: bottom(view.lineOf(waker));
			const to = bottom(view.lineOf(woken));
			if (from === undefined || to === undefined) {
				continue;
			}
			const [left, right] = [chart.x(at), chart.x(ran ?? at)];
			context.beginPath();
			context.moveTo(left, from);
			context.lineTo(left, to);
			context.lineTo(right, to);
			context.stroke();
			context.beginPath();
			context.moveTo(right, to);
			context.lineTo(right - 5, to - 3);
			context.lineTo(right - 5, to + 3);
			context.fill();
		}
		context.globalAlpha = 1;
		if (wakes.all > wakes.wakes.length) {
			const text = `${count(wakes.all)} wake-ups: fewer have arrows`;
			context.font = "11px system-ui, sans-serif";
			context.textBaseline = "bottom";
			const width = context.measureText(text).width;
			const right = chart.canvas.clientWidth - width - 8;
			context.fillStyle = styled("--raised");
			context.fillRect(right - 4, chart.canvas.clientHeight - 19, width + 8, 17);
			context.fillStyle = styled("--faint");
			context.fillText(text, right, chart.canvas.clientHeight - 4);
		}
	}

	/**
	 * The lane of a track at a place, and the moment.
	 * @param {number} x
	 * @param {number} y
	 */
	placeAt(x, y) {
		const height = y - AXIS + this.view.scroll;
		const line = y < AXIS ? undefined : this.view.lineAt(height);
		if (!line || line.track === "") {
			return null;
		}
		const [lane, at] = [Math.floor((height - line.top) / ROW), Math.floor(this.chart.ns(x))];
		return at < 0 ? null : { track: line.track, lane, at };
	}

	/**
	 * The description of a place that has no calls.
	 * @param {number} x
	 * @param {number} y
	 * @returns {HTMLElement[]}
	 */
	describeAt(x, y) {
		const place = this.placeAt(x, y);
		if (!place) {
			return this.describeState(x, y);
		}
		const { track, lane, at } = place;
		const curve = this.curves.get(track);
		if (this.view.isCurve(track)) {
			const width = curve ? (curve.until - curve.from) / curve.columns : 1;
			const column = curve?.values.columns[Math.floor((at - curve.from) / width)];
			const text = column ? column[0] === 1 ? column[3].toLocaleString("en")
				: `${count(column[0])} values from ${column[1].toLocaleString("en")} to ${column[2].toLocaleString("en")}` : "no value here";
			return [element("b", track), element("div", `${text} · ${moment(at, width)}`)];
		}
		const cells = this.lanes.get(track)?.cells;
		const described = this.described.get(track);
		const width = cells ? (cells.until - cells.from) / cells.columns : 1;
		const column = cells ? Math.floor((at - cells.from) / width) : -1;
		if (!cells || !described || lane >= cells.rows[0].depths || column < 0 || column >= cells.columns) {
			return [];
		}
		const offset = api.offset(cells, lane, column);
		const [covered, begins] = [cells.data.getUint8(offset + 4), cells.data.getUint16(offset + 6, true)];
		if (covered === 0 && begins === 0) {
			return [];
		}
		const name = described.labels[cells.data.getUint32(offset, true)] ?? "?";
		const where = described.lanes[lane].name || track;
		const what = begins > 1 ? `most of ${duration(width)}, in which ${count(begins)} begin` : "";
		return [element("b", name), element("div", `${where} · ${moment(at, width)}`), ...what ? [element("div", what)] : []];
	}

	/**
	 * @param {number} x
	 * @param {number} y
	 * @returns {HTMLElement[]}
	 */
	describeState(x, y) {
		const { states, view } = this;
		const height = y - AXIS + view.scroll;
		const line = y < AXIS ? undefined : view.lineAt(height);
		const thread = states && line ? states.threads.indexOf(line.thread) : -1;
		if (!states || !line || thread < 0 || height - line.top < line.depths * ROW) {
			return [];
		}
		const width = (states.until - states.from) / states.columns;
		const column = Math.floor((this.chart.ns(x) - states.from) / width);
		if (column < 0 || column >= states.columns) {
			return [];
		}
		const at = (thread * states.columns + column) * STATE;
		const parts = STATE_NAMES.map((name, state) => [states.bytes[at + state], name])
			.filter(([part]) => Number(part) > 0).map(([part, name]) => `${name} ${Math.round(Number(part) / 2.55)} %`);
		const entered = states.bytes[at + 4];
		return [element("b", view.label(view.trace.threads[line.thread])), element("div", parts.join(", ") || "nothing is known"),
			...entered > 0 ? [element("div", `enters ${entered === 255 ? "255 or more" : entered} functions of the kernel`)] : []];
	}
}
