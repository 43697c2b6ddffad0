// Draws threads, and the strip of the whole trace.
//
// A row of cells is a row of pixels of an image, which is then stretched to the height of the row. While new cells are
// asked for, the image of the old ones is moved and stretched, so that the chart follows the pointer at once.

/** @import {Cells, Name, Part, Picture, Shown} from "./types.js" */
/** @import {View} from "./view.js" */
/** @import {Color} from "./colors.js" */

import * as api from "./api.js";
import { colorOf, parse, styled } from "./colors.js";
import { moment } from "./text.js";
import { AXIS, ROW } from "./view.js";

/** The part of the shown time that is asked for on each side of it. */
const MARGIN = 0.25;
const MOST_COLUMNS = 3000;
/** A name needs this many pixels. */
const NAME = 24;
/** Milliseconds of rest before everything is read from the records. */
const REST = 120;

export class Chart {
	/**
	 * @param {View} view
	 * @param {HTMLCanvasElement} canvas
	 * @param {HTMLCanvasElement} overview
	 */
	constructor(view, canvas, overview) {
		this.view = view;
		this.canvas = canvas;
		this.overview = overview;
		this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
		/** @type {Color[]} */
		this.colors = [];
		/** @type {Picture | null} */
		this.picture = null;
		/** @type {Cells | null} the last ones that have arrived: those of the picture, or soon */
		this.latest = null;
		/** @type {Picture | null} */
		this.whole = null;
		/** @type {AbortController | null} */
		this.asking = null;
		this.wanted = "";
		/** @type {Part | null} the part that was asked for last */
		this.part = null;
		/** @type {ReturnType<typeof setTimeout> | undefined} */
		this.rest = undefined;
		this.isDue = false;
		/** @type {Set<number>} functions that a search has found */
		this.found = new Set();
		/** @type {Map<number, number[]>} their calls in the columns of `hitTime`, by thread */
		this.hits = new Map();
		this.hitTime = [0, 1];
		/** Called when cells have arrived, or cannot be read. */
		this.onCells = (/** @type {boolean} */ _isExact) => {};
		this.onError = (/** @type {unknown} */ _error) => {};
		/** Milliseconds that the last frames took. */
		/** @type {number[]} */
		this.frames = [];
	}

	/** @type {import("./tracks.js").Tracks | null} */
	tracks = null;

	/** Forgets what was drawn: colours, or the trace, have changed. */
	reset() {
		this.colors = this.view.trace.functions.map(([name]) => colorOf(name));
		this.wanted = "";
		this.tracks?.reset();
		if (this.picture) {
			this.show(this.picture.cells);
		}
		// The first frame may take longer than the answer.
		this.ask();
		this.update();
		this.askWhole();
	}

	/** Draws with the next frame, and asks for what is missing. */
	update() {
		if (!this.isDue) {
			this.isDue = true;
			requestAnimationFrame(() => {
				this.isDue = false;
				const begin = performance.now();
				this.draw();
				this.drawOverview();
				this.frames.push(performance.now() - begin);
				this.frames.splice(0, this.frames.length - 200);
				this.ask();
			});
		}
	}

	/** @param {HTMLCanvasElement} canvas */
	static fit(canvas) {
		const scale = window.devicePixelRatio || 1;
		const [width, height] = [canvas.clientWidth, canvas.clientHeight];
		const [wide, high] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
		if (canvas.width !== wide || canvas.height !== high) {
			[canvas.width, canvas.height] = [wide, high];
		}
		const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
		context.setTransform(scale, 0, 0, scale, 0, 0);
		return { context, width, height };
	}

	/** @param {number} ns */
	x(ns) {
		const { from, until } = this.view;
		return (ns - from) / (until - from) * this.canvas.clientWidth;
	}

	/** @param {number} x */
	ns(x) {
		const { from, until } = this.view;
		return from + x / this.canvas.clientWidth * (until - from);
	}

	/** The visible rows. */
	rows() {
		const bottom = this.view.scroll + this.canvas.clientHeight - AXIS;
		return this.view.seen(this.canvas.clientHeight).filter(({ thread }) => thread >= 0).map(({ top, thread, depths }) => {
			const first = Math.max(0, Math.floor((this.view.scroll - top) / ROW));
			const last = Math.min(depths, Math.ceil((bottom - top) / ROW));
			return { thread, first, depths: Math.max(0, last - first) };
		});
	}

	/**
	 * The part of the time to ask for: the shown one, and a margin on each side. While the view moves at the same scale and
	 * half of a margin is left, it is the same part.
	 * @returns {Part}
	 */
	partToAsk() {
		const { from, until } = this.view;
		const [shown, margin] = [until - from, Math.round((until - from) * MARGIN)];
		const width = this.canvas.clientWidth * (window.devicePixelRatio || 1);
		const last = this.part;
		if (last?.shown === shown && last.width === width && until + margin / 2 <= last.end
			&& (last.begin === 0 || from - margin / 2 >= last.begin)) {
			return last;
		}
		const [begin, end] = [Math.max(0, from - margin), until + margin];
		const columns = Math.max(1, Math.min(MOST_COLUMNS, Math.round(width * (end - begin) / shown)));
		return { begin, end, columns, shown, width };
	}

	/** Asks for the visible cells, unless they are there. */
	ask() {
		const { trace } = this.view;
		const part = this.part = this.partToAsk();
		const { begin, end, columns } = part;
		if (part.width === 0 || end <= begin) {
			return;
		}
		const rows = this.rows();
		this.tracks?.ask(begin, end, columns);
		const wanted = JSON.stringify([begin, end, columns, rows, trace.duration]);
		if (wanted === this.wanted || rows.length === 0) {
			return;
		}
		this.wanted = wanted;
		clearTimeout(this.rest);
		this.asking?.abort();
		const asking = this.asking = new AbortController();
		const get = async (/** @type {boolean} */ exact) => {
			try {
				const cells = await this.view.api.cells(begin, end, columns, rows, exact, asking.signal);
				this.latest = cells;
				await this.show(cells);
				if (asking.signal.aborted) {
					return;
				}
				this.onCells(cells.isExact || exact);
				if (!cells.isExact && !exact) {
					this.rest = setTimeout(() => get(true), REST);
				}
			} catch (error) {
				if (!asking.signal.aborted) {
					this.wanted = "";
					this.onError(error);
				}
			}
		};
		get(false);
	}

	/** Asks for the outermost calls of all threads over the whole time. */
	async askWhole() {
		const { trace } = this.view;
		const rows = trace.threads.map((_, thread) => ({ thread, first: 0, depths: 1 })).slice(0, 500);
		const columns = Math.min(1000, Math.max(1, this.overview.clientWidth));
		if (rows.length === 0) {
			return;
		}
		try {
			const cells = await this.view.api.cells(0, Math.max(1, trace.duration), columns, rows, false);
			const image = await this.imageOf(cells);
			this.whole?.image.close();
			this.whole = { cells, image };
			this.drawOverview();
		} catch (error) {
			this.onError(error);
		}
	}

	/**
	 * Draws cells, unless others have been asked for by the time that their image is there.
	 * @param {Cells} cells
	 */
	async show(cells) {
		const image = await this.imageOf(cells);
		if (cells !== this.latest) {
			image.close();
			return;
		}
		this.picture?.image.close();
		this.picture = { cells, image };
		this.draw();
	}

	/**
	 * An image with a pixel for each cell. It is a bitmap, since a canvas waits for the browser's process for graphics, and
	 * keeps its memory until it is collected; a bitmap is closed when another one takes its place.
	 * @param {Cells} cells
	 * @param {Color[]} [colors]
	 * @param {Set<number> | null} [found]
	 */
	imageOf(cells, colors, found) {
		return createImageBitmap(this.pixelsOf(cells, colors, found));
	}

	/**
	 * A pixel for each cell.
	 * @param {Cells} cells
	 * @param {Color[]} colors
	 * @param {Set<number> | null} found what is not dim, if there is any
	 */
	pixelsOf(cells, colors = this.colors, found = this.found) {
		const { columns, data } = cells;
		const high = cells.rows.reduce((sum, { depths }) => sum + depths, 0);
		const pixels = new ImageData(columns, Math.max(1, high));
		const words = new Uint32Array(pixels.data.buffer);
		const ground = parse(styled("--ground"));
		const dims = found !== null && found.size > 0;
		for (let row = 0; row < high; row++) {
			let before = 0;
			for (let column = 0; column < columns; column++) {
				const at = api.offset(cells, row, column);
				const covered = data.getUint8(at + 4);
				const calls = data.getUint16(at + 6, true);
				if (covered === 0 && calls === 0) {
					before = 0;
					continue;
				}
				const site = data.getUint32(at, true);
				const pure = covered > 0 ? data.getUint8(at + 5) / covered : 1;
				// Even the smallest part is faintly visible.
				const strength = Math.max(covered / 255, 0.12);
				// A line separates a call from the one before it.
				const edge = calls > 0 && calls < 3 && before > 0 ? 0.72 : 1;
				const dim = dims && !found.has(site) ? 0.3 : 1;
				const color = colors[site] ?? [128, 128, 128];
				const grey = (color[0] + color[1] + color[2]) / 3;
				let word = 0xff000000;
				for (let channel = 0; channel < 3; channel++) {
					const own = (grey + (color[channel] - grey) * (0.35 + 0.65 * pure)) * edge;
					const value = ground[channel] + (own - ground[channel]) * strength * dim;
					word |= Math.round(value) << channel * 8;
				}
				words[row * columns + column] = word;
				before = covered;
			}
		}
		return pixels;
	}

	draw() {
		const { context, width, height } = Chart.fit(this.canvas);
		context.fillStyle = styled("--ground");
		context.fillRect(0, 0, width, height);
		context.save();
		context.beginPath();
		context.rect(0, AXIS, width, height - AXIS);
		context.clip();
		this.drawLines(context, width, height);
		this.drawOutside(context, width, height);
		this.drawThreads(context);
		this.tracks?.draw(context);
		this.drawMissing(context);
		this.drawPoint(context);
		context.restore();
		this.drawAxis(context, width);
		this.drawRange(context, height);
	}

	/**
	 * The drawings of threads: rows of an image, and names over them.
	 * @returns {Shown[]}
	 */
	shown() {
		if (!this.picture) {
			return [];
		}
		const { cells, image } = this.picture;
		const left = this.x(cells.from);
		const wide = this.x(cells.until) - left;
		return cells.rows.flatMap(({ thread, first, depths }, at) => {
			const line = this.view.lineOf(thread);
			const rows = line ? Math.min(depths, line.depths - first) : 0;
			if (!line || rows <= 0) {
				return [];
			}
			const top = AXIS + line.top - this.view.scroll + first * ROW;
			const names = this.names(cells, cells.starts[at], rows, top, left, wide);
			return [{ image, first: cells.starts[at], rows, left, top, wide, names }];
		});
	}

	/** @param {CanvasRenderingContext2D} context */
	drawThreads(context) {
		context.imageSmoothingEnabled = false;
		this.shown().forEach(shown => this.drawRows(context, shown));
		this.picture?.cells.rows.forEach((_, at) => this.drawMarkers(context, at));
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {Shown} shown
	 */
	drawRows(context, { image, first, rows, left, top, wide, names }) {
		context.drawImage(image, 0, first, image.width, rows, left, top, wide, rows * ROW);
		context.fillStyle = styled("--ground");
		for (let row = 0; row < rows; row++) {
			context.fillRect(left, top + (row + 1) * ROW - 1, wide, 1);
		}
		context.fillStyle = "#10141a";
		names.forEach(({ text, x, y }) => context.fillText(text, x, y));
	}

	/**
	 * Names over columns that one call covers wholly.
	 * @param {Cells} cells
	 * @param {number} start their first row
	 * @param {number} shown rows
	 * @param {number} top
	 * @param {number} left
	 * @param {number} wide
	 * @param {(site: number) => string} nameOf
	 */
	names(cells, start, shown, top, left, wide, nameOf = site => this.view.trace.functions[site]?.[0] ?? "(unknown)") {
		const { context } = this;
		const { data, columns } = cells;
		const step = wide / columns;
		context.font = "12px system-ui, sans-serif";
		context.textBaseline = "middle";
		const end = this.canvas.clientWidth;
		/** @type {Name[]} */
		const names = [];
		for (let row = 0; row < shown; row++) {
			let begin = -1;
			let site = 0;
			for (let column = 0; column <= columns; column++) {
				const offset = column < columns ? api.offset(cells, start + row, column) : -1;
				const isWhole = offset >= 0 && data.getUint8(offset + 4) === 255 && data.getUint16(offset + 6, true) === 0;
				const other = isWhole ? data.getUint32(offset, true) : 0;
				if (begin >= 0 && (!isWhole || other !== site)) {
					const from = Math.max(0, left + begin * step);
					const room = Math.min(end, left + column * step) - from - 6;
					if (room >= NAME) {
						const text = Chart.cut(context, nameOf(site), room);
						names.push({ text, x: from + 3, y: top + row * ROW + ROW / 2 });
					}
					begin = -1;
				}
				if (isWhole && begin < 0) {
					[begin, site] = [column, other];
				}
			}
		}
		return names;
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {string} name
	 * @param {number} room
	 */
	static cut(context, name, room) {
		if (context.measureText(name).width <= room) {
			return name;
		}
		const letters = Math.floor(name.length * room / context.measureText(name).width) - 1;
		return letters > 1 ? `${name.slice(0, letters)}…` : "";
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {number} at the place of a thread in the picture
	 */
	drawMarkers(context, at) {
		const cells = this.picture?.cells;
		const line = cells && this.view.lineOf(cells.rows[at].thread);
		if (!cells || !line) {
			return;
		}
		const left = this.x(cells.from);
		const step = (this.x(cells.until) - left) / cells.columns;
		const top = AXIS + line.top - this.view.scroll;
		context.fillStyle = styled("--accent");
		for (let column = 0; column < cells.columns; column++) {
			if (api.markersAt(cells, at, column) > 0) {
				const x = left + column * step;
				context.fillRect(x, top - 6, 1, 8);
				context.fillRect(x, top - 6, 4, 3);
			}
		}
		const { thread } = cells.rows[at];
		const hits = this.hits.get(thread);
		if (hits) {
			context.fillStyle = styled("--bad");
			const [from, until] = this.hitTime;
			const [begin, width] = [this.x(from), (this.x(until) - this.x(from)) / hits.length];
			hits.forEach((calls, column) => {
				if (calls > 0) {
					context.fillRect(begin + column * width, top - 4, Math.max(1, width), 3);
				}
			});
		}
	}

	/**
	 * Times without records are hatched.
	 * @param {CanvasRenderingContext2D} context
	 */
	drawMissing(context) {
		for (const { thread, top, depths } of this.view.lines) {
			for (const [begin, end] of thread < 0 ? [] : this.view.trace.threads[thread].missing) {
				const [left, right] = [Math.max(0, this.x(begin)), Math.min(this.canvas.clientWidth, this.x(end))];
				if (right >= 0 && left <= this.canvas.clientWidth) {
					this.hatch(context, left, AXIS + top - this.view.scroll, Math.max(2, right - left), depths * ROW);
				}
			}
		}
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {number} left
	 * @param {number} top
	 * @param {number} width
	 * @param {number} height
	 */
	hatch(context, left, top, width, height) {
		context.save();
		context.beginPath();
		context.rect(left, top, width, height);
		context.clip();
		context.strokeStyle = styled("--bad");
		context.globalAlpha = 0.7;
		context.beginPath();
		for (let x = left - height; x < left + width; x += 6) {
			context.moveTo(x, top + height);
			context.lineTo(x + height, top);
		}
		context.stroke();
		context.restore();
	}

	/**
	 * Marks the call that is looked at.
	 * @param {CanvasRenderingContext2D} context
	 */
	drawPoint(context) {
		const call = this.call;
		const line = call && this.view.lineOf(call.thread);
		if (!call || !line || call.depth >= line.depths) {
			return;
		}
		const left = Math.max(-2, this.x(call.begin));
		const right = Math.min(this.canvas.clientWidth + 2, this.x(Math.max(call.end, call.begin)));
		context.strokeStyle = styled("--text");
		context.lineWidth = 2;
		const top = AXIS + line.top - this.view.scroll + call.depth * ROW;
		context.strokeRect(left, top, Math.max(2, right - left), ROW - 1);
		context.lineWidth = 1;
	}

	/** @type {{thread: number, function: number, depth: number, begin: number, end: number} | null} */
	call = null;

	/**
	 * The time between two lines of the axis.
	 * @param {number} width
	 */
	step(width) {
		const least = (this.view.until - this.view.from) * 110 / Math.max(1, width);
		const size = 10 ** Math.floor(Math.log10(least));
		return [1, 2, 5, 10].map(part => part * size).find(part => part >= least) ?? least;
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {number} width
	 * @param {number} height
	 */
	drawLines(context, width, height) {
		context.fillStyle = styled("--line");
		this.ticks(width).forEach(({ x }) => context.fillRect(x, AXIS, 1, height));
	}

	/**
	 * Draws the time before the trace and after it.
	 * @param {CanvasRenderingContext2D} context
	 * @param {number} width
	 * @param {number} height
	 */
	drawOutside(context, width, height) {
		const [begin, end] = [this.x(0), this.x(this.view.end())];
		context.fillStyle = styled("--raised");
		context.fillRect(0, AXIS, Math.max(0, begin), height);
		context.fillRect(end, AXIS, Math.max(0, width - end), height);
	}

	/**
	 * The lines of the axis.
	 * @param {number} width
	 */
	ticks(width) {
		const { from, until } = this.view;
		const step = this.step(width);
		const ticks = [];
		for (let at = Math.max(0, Math.ceil(from / step)) * step; at < until; at += step) {
			ticks.push({ x: this.x(at), text: moment(at, step) });
		}
		return ticks;
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {number} width
	 */
	drawAxis(context, width) {
		context.fillStyle = styled("--raised");
		context.fillRect(0, 0, width, AXIS);
		context.font = "11px system-ui, sans-serif";
		context.textBaseline = "middle";
		for (const { x, text } of this.ticks(width)) {
			context.fillStyle = styled("--line");
			context.fillRect(x, 0, 1, AXIS);
			context.fillStyle = styled("--faint");
			context.fillText(text, x + 4, AXIS / 2);
		}
		context.fillStyle = styled("--accent");
		for (const at of this.view.bookmarks) {
			const x = this.x(at);
			context.fillRect(x, 0, 2, AXIS);
			context.fillRect(x, 0, 8, 6);
		}
	}

	/**
	 * @param {CanvasRenderingContext2D} context
	 * @param {number} height
	 */
	drawRange(context, height) {
		if (this.view.range) {
			const [left, right] = this.view.range.map(ns => this.x(ns));
			context.fillStyle = styled("--accent");
			context.globalAlpha = 0.18;
			context.fillRect(left, 0, right - left, height);
			context.globalAlpha = 1;
			context.fillRect(left, 0, 1, height);
			context.fillRect(right, 0, 1, height);
		}
	}

	drawOverview() {
		const { context, width, height } = Chart.fit(this.overview);
		const { trace, from, until, range } = this.view;
		context.fillStyle = styled("--ground");
		context.fillRect(0, 0, width, height);
		if (this.whole) {
			const { image, cells } = this.whole;
			context.imageSmoothingEnabled = false;
			context.drawImage(image, 0, 0, cells.columns, cells.rows.length, 0, 0, width, height - 4);
		}
		const all = Math.max(1, trace.duration);
		const x = (/** @type {number} */ ns) => ns / all * width;
		for (const { missing } of trace.threads) {
			for (const [begin, end] of missing) {
				context.fillStyle = styled("--bad");
				context.fillRect(x(begin), height - 4, Math.max(1, x(end) - x(begin)), 4);
			}
		}
		context.fillStyle = styled("--faint");
		for (const pause of trace.pauses) {
			context.fillRect(x(pause), 0, 1, height);
		}
		if (range) {
			context.fillStyle = styled("--accent");
			context.globalAlpha = 0.25;
			context.fillRect(x(range[0]), 0, Math.max(1, x(range[1]) - x(range[0])), height);
			context.globalAlpha = 1;
		}
		// All but the selected time is darker.
		context.fillStyle = styled("--ground");
		context.globalAlpha = 0.55;
		context.fillRect(0, 0, x(from), height);
		context.fillRect(x(until), 0, width - x(until), height);
		context.globalAlpha = 1;
		context.strokeStyle = styled("--accent");
		context.strokeRect(x(from) + 0.5, 0.5, Math.max(2, x(until) - x(from) - 1), height - 1);
	}

	/**
	 * The point at a place of the chart; null if no thread is there.
	 * @param {number} x
	 * @param {number} y
	 */
	pointAt(x, y) {
		const height = y - AXIS + this.view.scroll;
		const line = y < AXIS ? undefined : this.view.lineAt(height);
		if (!line || line.thread < 0) {
			return null;
		}
		const [depth, at] = [Math.floor((height - line.top) / ROW), Math.floor(this.ns(x))];
		return depth < line.depths && at >= 0 ? { thread: line.thread, at, depth } : null;
	}

	/**
	 * The cell at a place: function, the covered part of its time, calls that begin, and its width in time.
	 * @param {number} x
	 * @param {number} y
	 */
	cellAt(x, y) {
		const point = this.pointAt(x, y);
		if (!point || !this.picture) {
			return null;
		}
		const { cells } = this.picture;
		const at = cells.rows.findIndex(row => row.thread === point.thread);
		const row = at < 0 ? -1 : point.depth - cells.rows[at].first;
		const width = (cells.until - cells.from) / cells.columns;
		const column = Math.floor((point.at - cells.from) / width);
		if (row < 0 || row >= cells.rows[at].depths || column < 0 || column >= cells.columns) {
			return null;
		}
		const offset = api.offset(cells, cells.starts[at] + row, column);
		const covered = cells.data.getUint8(offset + 4);
		const calls = cells.data.getUint16(offset + 6, true);
		const site = cells.data.getUint32(offset, true);
		return covered === 0 && calls === 0 ? null : { ...point, site, covered: covered / 255, calls, width };
	}
}
