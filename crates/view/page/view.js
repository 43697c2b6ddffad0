// The view: the time, threads, call and selected time that are looked at. All of it is in the page's address.

/** @import {Api} from "./api.js" */
/** @import {Line, Point, Trace, Thread} from "./types.js" */

/** Heights in pixels. */
export const ROW = 18;
export const AXIS = 22;
const CURVE = 3 * ROW;
/** Between threads: for flags of markers and, with kernel events, the states of a thread. */
const GAP = 8;
const GAP_WITH_STATES = 15;

/** The track of processors. */
export const CPU = "cpu";

/** The most depths of a thread that are drawn. */
const MOST_DEPTHS = 200;

/** The shortest time that fills the chart, in nanoseconds. */
const SHORTEST = 50;

export class View extends EventTarget {
	/**
	 * @param {Api} api
	 * @param {Trace} trace
	 */
	constructor(api, trace) {
		super();
		this.api = api;
		this.trace = trace;
		this.from = 0;
		this.until = this.end();
		/** The part of the width that may be empty before the bounds. */
		this.margin = 0;
		/** The time that can be shown. */
		this.bounds = () => [0, this.end()];
		this.scroll = 0;
		/** @type {Point | null} */
		this.point = null;
		/** @type {[number, number] | null} */
		this.range = null;
		this.pattern = "";
		this.panel = "call";
		/** @type {Set<number>} threads of which only the outermost calls are shown */
		this.folded = new Set();
		/** @type {Set<number>} threads that the tables are of; all if there are none */
		this.chosen = new Set();
		/** The subject of the histogram, as `nopal hist` takes it. */
		this.subject = "";
		/** @type {number[]} */
		this.bookmarks = [];
		this.theme = "";
		/** Whether the end is followed, if the trace grows. */
		this.follows = true;
		/** @type {Set<string>} what is shown above the threads */
		this.tracks = this.ownTracks();
		/** @type {Map<string, number>} the rows of tracks, as far as they are known */
		this.lanes = new Map();
		/** @type {Line[]} */
		this.lines = [];
		this.height = 0;
		this.order();
	}

	/** @param {Trace} trace the same, later */
	grow(trace) {
		const width = this.until - this.from;
		const [first, last] = this.bounds();
		const wasWhole = this.from <= first && this.until >= last;
		this.trace = trace;
		if (wasWhole) {
			[this.from, this.until] = this.bounds();
		} else if (this.follows && this.until >= last) {
			const [begin, end] = this.bounds();
			this.until = end;
			this.from = Math.max(begin, end - width);
		}
		this.order();
		this.changed();
	}

	/** Nothing is recorded after it. */
	end() {
		return Math.max(this.trace.duration, SHORTEST);
	}

	/** Orders the threads: the most active process first, and in it the most active thread. */
	order() {
		/** @type {Map<number, {calls: number, threads: number[]}>} */
		const processes = new Map();
		this.trace.threads.forEach((thread, at) => {
			const process = processes.get(thread.process) ?? { calls: 0, threads: [] };
			process.calls += thread.calls;
			process.threads.push(at);
			processes.set(thread.process, process);
		});
		const { threads } = this.trace;
		const sorted = [...processes].sort(([, one], [, other]) => other.calls - one.calls);
		this.lines = [];
		let top = 0;
		for (const track of this.tracks) {
			const depths = this.isCurve(track) ? 0 : this.lanes.get(track) ?? 1;
			const height = (this.isCurve(track) ? CURVE : depths * ROW) + GAP;
			this.lines.push({ top, height, process: "", thread: -1, depths, track });
			top += height;
		}
		for (const [id, process] of sorted) {
			if (processes.size > 1) {
				const name = threads[process.threads[0]].name;
				this.lines.push({ top, height: ROW, process: `${id} ${name}`, thread: -1, depths: 0, track: "" });
				top += ROW;
			}
			process.threads.sort((one, other) => threads[other].calls - threads[one].calls);
			for (const thread of process.threads) {
				const all = Math.max(1, Math.min(MOST_DEPTHS, threads[thread].depths));
				const depths = this.folded.has(thread) ? 1 : all;
				const height = depths * ROW + (this.trace.has_processors ? GAP_WITH_STATES : GAP);
				this.lines.push({ top, height, process: "", thread, depths, track: "" });
				top += height;
			}
		}
		this.height = top;
	}

	/** The tracks that are shown unless others are chosen. */
	ownTracks() {
		return new Set(this.trace.has_processors ? [CPU] : []);
	}

	/** @param {string} track */
	isCurve(track) {
		return this.trace.curves.includes(track);
	}

	/** @param {string} track */
	toggleTrack(track) {
		if (!this.tracks.delete(track)) {
			this.tracks.add(track);
		}
		this.order();
		this.changed();
	}

	/**
	 * @param {string} track
	 * @param {number} lanes
	 */
	setLanes(track, lanes) {
		if (this.lanes.get(track) !== lanes) {
			this.lanes.set(track, lanes);
			this.order();
			this.changed();
		}
	}

	/**
	 * The visible lines.
	 * @param {number} height of the chart
	 */
	seen(height) {
		return this.lines.filter(line =>
			line.top < this.scroll + height - AXIS && line.top + line.height > this.scroll);
	}

	/** @param {number} thread */
	fold(thread) {
		if (!this.folded.delete(thread)) {
			this.folded.add(thread);
		}
		this.order();
		this.changed();
	}

	/** @param {number} thread */
	choose(thread) {
		if (!this.chosen.delete(thread)) {
			this.chosen.add(thread);
		}
		this.changed();
	}

	changed() {
		this.dispatchEvent(new Event("change"));
	}

	/**
	 * @param {number} from
	 * @param {number} until
	 */
	show(from, until) {
		const [first, last] = this.bounds();
		const most = Math.max((last - first) * 1.1, this.until - this.from);
		const width = Math.min(Math.max(until - from, SHORTEST), most);
		const middle = (from + until) / 2;
		// A part of the time always stays visible.
		const begin = Math.max(Math.min(middle - width / 2, last - width * 0.5), first - width * this.margin);
		this.from = Math.round(begin);
		this.until = Math.max(this.from + SHORTEST, Math.round(this.from + width));
		this.changed();
	}

	whole() {
		const [first, last] = this.bounds();
		this.show(first, last);
	}

	/**
	 * @param {number} factor less than 1 shows less
	 * @param {number} at the moment that stays where it is
	 */
	zoom(factor, at) {
		const width = (this.until - this.from) * factor;
		const part = (at - this.from) / (this.until - this.from);
		if (width >= SHORTEST || factor > 1) {
			this.show(at - width * part, at - width * part + width);
		}
	}

	/** @param {number} ns */
	pan(ns) {
		this.show(this.from + ns, this.until + ns);
	}

	/**
	 * @param {number} pixels
	 * @param {number} height of what is seen
	 */
	scrollBy(pixels, height) {
		this.scroll = Math.max(0, Math.min(this.scroll + pixels, this.height - height + AXIS));
		this.changed();
	}

	/** The state behind the # of the address. */
	address() {
		const parts = [`t=${this.from},${this.until}`];
		const add = (/** @type {string} */ name, /** @type {string} */ text) => {
			if (text !== "") {
				parts.push(`${name}=${encodeURIComponent(text)}`);
			}
		};
		add("y", this.scroll > 0 ? String(Math.round(this.scroll)) : "");
		add("c", this.point ? `${this.point.thread},${this.point.at},${this.point.depth}` : "");
		add("r", this.range ? this.range.join(",") : "");
		add("q", this.pattern);
		add("p", this.panel === "call" ? "" : this.panel);
		add("f", [...this.folded].join(","));
		add("n", [...this.chosen].join(","));
		add("h", this.subject);
		const tracks = [...this.tracks].map(encodeURIComponent).join();
		add("k", tracks === [...this.ownTracks()].join() ? "" : tracks || "-");
		add("b", this.bookmarks.join(","));
		add("l", this.theme);
		return parts.join("&");
	}

	/**
	 * Decodes a text; empty if `address` cannot have written it.
	 * @param {string} text
	 */
	static decoded(text) {
		try {
			return decodeURIComponent(text);
		} catch {
			return "";
		}
	}

	/** @param {string} text what `address` gave */
	restore(text) {
		/** @type {Map<string, string>} */
		const parts = new Map();
		for (const part of text.split("&")) {
			const [name, value] = part.split("=", 2);
			parts.set(name, View.decoded(value ?? ""));
		}
		const numbers = (/** @type {string} */ name, least = 0) => {
			const found = (parts.get(name) ?? "").split(",").filter(Boolean).map(Number);
			return found.every(number => Number.isFinite(number) && number >= least) ? found : [];
		};
		const known = (/** @type {number} */ thread) => thread in this.trace.threads;
		const [thread, at, depth] = numbers("c");
		this.point = depth !== undefined && known(thread) ? { thread, at, depth } : null;
		const [begin, end] = numbers("r");
		this.range = end > begin ? [begin, end] : null;
		this.pattern = parts.get("q") ?? "";
		this.panel = parts.get("p") || "call";
		this.folded = new Set(numbers("f").filter(known));
		this.chosen = new Set(numbers("n").filter(known));
		this.subject = parts.get("h") ?? "";
		const tracks = parts.get("k");
		this.tracks = !tracks ? this.ownTracks()
			: new Set(tracks === "-" ? [] : tracks.split(",").map(View.decoded).filter(Boolean));
		this.bookmarks = numbers("b");
		this.theme = parts.get("l") === "light" ? "light" : parts.get("l") === "dark" ? "dark" : "";
		this.scroll = numbers("y")[0] ?? 0;
		this.order();
		const [from, until] = numbers("t", -Infinity);
		if (until > from) {
			this.show(from, until);
		} else {
			this.whole();
		}
	}

	/** @param {number} at a height in the chart, below the axis */
	lineAt(at) {
		return this.lines.find(({ top, height }) => top <= at && at < top + height);
	}

	/** @param {number} thread */
	lineOf(thread) {
		return this.lines.find(line => line.thread === thread);
	}

	/** @param {Thread} thread */
	label(thread) {
		return `${thread.name} ${thread.thread}`;
	}
}
