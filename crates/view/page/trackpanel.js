// The panel that chooses tracks, and shows their contents within the selected time.

/** @import {Details} from "./details.js" */
/** @import {Sums, TrackSpan} from "./types.js" */
/** @import {Tracks} from "./tracks.js" */

import { byId, count, duration, element, moment } from "./text.js";
import { CPU } from "./view.js";

const MOST_ROWS = 30;
/** More fields than these are folded. */
const FEW = 6;

/**
 * @param {Details} details
 * @param {Tracks} tracks
 */
export async function showTracks(details, tracks) {
	const { view } = details;
	const range = view.range ? { from: Math.round(view.range[0]), until: Math.round(view.range[1]) } : {};
	const asked = [...view.tracks].filter(track => !view.isCurve(track)).map(async track => {
		const description = await tracks.describe(track);
		if (!description) {
			return [];
		}
		const sums = await view.api.spans(track, range);
		return [track === CPU ? processors(details, tracks, sums) : cases(details, tracks, track, sums, description.notes)];
	});
	await details.latest(Promise.all(asked), tables => {
		const columns = element("div", "", "columns");
		columns.append(choice(details), ...tables.flat());
		for (const why of tracks.refused.values()) {
			columns.append(element("p", why));
		}
		byId("panel-tracks").replaceChildren(columns);
	});
}

/** @param {Details} details */
function choice({ view }) {
	const form = element("form");
	form.append(element("b", "Shown above the threads"));
	const { has_processors: hasProcessors, tracers, curves } = view.trace;
	const choices = (/** @type {Iterable<string>} */ tracks) => [...tracks].map(track => {
		const label = element("label");
		const box = element("input");
		box.type = "checkbox";
		box.checked = view.tracks.has(track);
		box.addEventListener("change", () => view.toggleTrack(track));
		const why = track === CPU ? "who ran on each processor" : view.isCurve(track) ? "values" : tracers.includes(track) ? "latencies" : "section";
		label.append(box, ` ${track}`, element("small", ` ${why}`));
		return label;
	});
	const chosen = [...view.tracks];
	form.append(...choices(new Set([...hasProcessors ? [CPU] : [], ...tracers, ...chosen.filter(track => !view.isCurve(track))])));
	const section = element("input");
	section.placeholder = "FROM..TO";
	section.ariaLabel = "A section, from a function or marker to another";
	section.spellcheck = false;
	const add = element("button", "Add section");
	const row = element("div");
	row.append(section, " ", add);
	form.append(row);
	if (curves.length > 0) {
		const values = element("details");
		values.open = curves.length <= FEW || chosen.some(track => view.isCurve(track));
		values.append(element("summary", `Fields of markers and tracepoints: ${count(curves.length)}`), ...choices(curves));
		form.append(values);
	}
	form.addEventListener("submit", event => {
		event.preventDefault();
		if (section.value.trim() !== "") {
			view.toggleTrack(section.value.trim());
		}
	});
	return form;
}

/**
 * @param {Details} details
 * @param {Tracks} tracks
 * @param {Sums} sums
 */
function processors({ view }, tracks, { labels }) {
	const described = tracks.described.get(CPU);
	const table = element("table");
	table.id = "ran";
	table.append(element("caption", `Who ran, in ${view.range ? "the selected time" : "the whole trace"}`));
	const head = table.createTHead().insertRow();
	const lanes = described?.lanes.map(({ name }) => name) ?? [];
	for (const name of ["total", "runs", ...lanes, "thread"]) {
		const cell = element("th", name, name === "thread" ? "name" : "");
		cell.scope = "col";
		head.append(cell);
	}
	const body = table.createTBody();
	for (const [label, runs, ns, byLane] of labels.slice(0, MOST_ROWS)) {
		const row = body.insertRow();
		const texts = [duration(ns), count(runs), ...byLane.map(part => part > 0 ? duration(part) : "-")];
		row.append(...texts.map(text => element("td", text)), element("td", described?.labels[label] ?? "?", "name"));
	}
	return table;
}

/**
 * @param {Details} details
 * @param {Tracks} tracks
 * @param {string} track
 * @param {Sums} sums
 * @param {string[]} notes
 */
function cases(details, tracks, track, sums, notes) {
	const part = element("div");
	const table = element("table");
	const caption = element("caption", `${track}: ${count(sums.count)} cases, the longest first`);
	table.append(caption);
	const head = table.createTHead().insertRow();
	for (const name of ["duration", "begin", "key", "thread"]) {
		const cell = element("th", name, name === "thread" ? "name" : "");
		cell.scope = "col";
		head.append(cell);
	}
	const body = table.createTBody();
	for (const span of sums.longest.slice(0, MOST_ROWS)) {
		const row = body.insertRow();
		const go = element("button", duration(span.duration));
		go.type = "button";
		go.title = "show it in the chart";
		go.addEventListener("click", () => showSpan(details, tracks, track, span));
		row.insertCell().append(go);
		row.append(element("td", moment(span.begin, 1000)), element("td", span.key ?? ""),
			element("td", tracks.described.get(track)?.labels[span.label] ?? "?", "name"));
	}
	part.append(table, ...notes.map(note => element("p", note)));
	return part;
}

/**
 * Goes to a span of a track.
 * @param {Details} details
 * @param {Tracks} tracks
 * @param {string} track
 * @param {TrackSpan} span
 */
function showSpan({ view }, tracks, track, span) {
	const { begin, end, lane } = span;
	tracks.span = { track, lane, begin, end };
	view.follows = false;
	const margin = Math.max(100, (end - begin) * 0.3);
	view.show(begin - margin, end + margin);
}
