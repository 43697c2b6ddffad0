// Two timelines at one scale: a move of one moves the other.

/** @import {Timeline} from "./timeline.js" */

/**
 * The moments of a trace that can be put below each other.
 * @type {Record<string, (timeline: Timeline) => number | undefined>}
 */
const MOMENTS = {
	begins: () => 0,
	selections: ({ view }) => view.range?.[0],
	calls: ({ chart }) => chart.call?.begin,
	bookmarks: ({ view }) => view.bookmarks[0],
};

export class Link {
	/** @param {Timeline[]} timelines two */
	constructor(timelines) {
		this.timelines = timelines;
		/** The second trace's time minus the first one's, at each place of the page. */
		this.shift = 0;
		/** Whether both move. Both are zoomed in any case. */
		this.isLinked = true;
		timelines.forEach(({ view }, at) => {
			view.margin = 0.5;
			view.bounds = () => this.bounds(at);
			view.addEventListener("change", () => this.follow(at));
		});
	}

	/** @param {number} at whose time the bounds are: those of both traces, as they are below each other */
	bounds(at) {
		const shift = this.isLinked ? this.shift : 0;
		const [one, other] = this.timelines.map(({ view }) => view.end());
		const own = at === 0 ? 0 : shift;
		return [Math.min(0, -shift) + own, Math.max(one, other - shift) + own];
	}

	/** @param {number} at which one has changed */
	follow(at) {
		const [first, second] = this.timelines.map(({ view }) => view);
		const isMoved = first.until - first.from === second.until - second.from;
		if (!this.isLinked && isMoved) {
			this.shift = second.from - first.from;
		} else {
			this.move(at);
		}
	}

	/** @param {number} at which one stays */
	move(at) {
		const [{ follows, from, until }, other] = [this.timelines[at].view, this.timelines[1 - at].view];
		const shift = at === 0 ? this.shift : -this.shift;
		if (other.from !== from + shift || other.until !== until + shift) {
			[other.from, other.until] = [from + shift, until + shift];
			other.follows &&= follows;
			other.changed();
		}
	}

	/** @param {string} what */
	moments(what) {
		const moments = this.timelines.map(MOMENTS[what] ?? (() => undefined));
		return moments.every(moment => moment !== undefined) ? moments : null;
	}

	/**
	 * Puts moments below each other, in sight.
	 * @param {string} what
	 */
	align(what) {
		const moments = this.moments(what);
		if (moments) {
			const { view } = this.timelines[0];
			const width = view.until - view.from;
			if (moments[0] < view.from || moments[0] > view.until) {
				view.show(moments[0] - width * 0.1, moments[0] + width * 0.9);
			}
			this.shift = Math.round(moments[1] - moments[0]);
			this.move(0);
		}
	}
}
