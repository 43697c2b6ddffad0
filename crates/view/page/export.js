// Exports the selection: as a picture, as a table, or as a trace in the format of another viewer.

/** @import {Details} from "./details.js" */
/** @import {Timeline} from "./timeline.js" */

import { css, styled } from "./colors.js";
import { byId, element } from "./text.js";
import { AXIS, ROW } from "./view.js";

/** @type {[string, string][]} */
const FORMATS = [
	["perfetto", "for ui.perfetto.dev"],
	["firefox", "for profiler.firefox.com"],
	["speedscope", "for speedscope.app"],
	["pprof", "for go tool pprof"],
	["csv", "each call as a row of a table"],
	["trace", "an archive with a trace for nopal itself"],
];

/** @param {Details} details */
export function showExport(details) {
	const { timeline, view } = details;
	const table = element("table");
	table.append(element("caption", `Save ${details.subject()}`));
	const body = table.createTBody();
	const add = (/** @type {HTMLElement} */ what, /** @type {string} */ why) => {
		const row = body.insertRow();
		const cell = element("td", "", "name");
		cell.append(what);
		row.append(cell, element("td", why, "name"));
	};
	const button = (/** @type {string} */ text, /** @type {() => Blob | Promise<Blob>} */ make, /** @type {string} */ name) => {
		const made = element("button", text);
		made.type = "button";
		made.addEventListener("click", async () => {
			try {
				save(await make(), name);
			} catch (error) {
				details.actions.fail(error);
			}
		});
		return made;
	};
	const range = details.selection();
	for (const [format, why] of FORMATS) {
		const link = element("a", format);
		link.href = view.api.exportAddress(format, range);
		link.download = "";
		add(link, why);
	}
	add(button("functions.csv", async () => functionsCsv(await view.api.functions(range)), "functions.csv"), "the table of functions");
	add(button("chart.png", () => png(timeline), "chart.png"), "the chart as it is seen");
	add(button("chart.svg", () => svg(timeline), "chart.svg"), "the same, to be scaled and edited");
	const command = element("code", commandLine(details));
	const text = element("p", "The same by hand: ");
	text.append(command);
	byId("panel-export").replaceChildren(table, text);
	if (view.trace.is_growing) {
		byId("panel-export").append(element("p", "The trace is still being recorded: a file has what there is when it is made."));
	}
}

/** @param {Details} details */
function commandLine(details) {
	const { view } = details;
	const words = ["nopal export --as perfetto -o trace.perfetto"];
	if (view.range) {
		words.push(`--from ${view.range[0]}ns --until ${view.range[1]}ns`);
	}
	for (const thread of view.chosen) {
		words.push(`--tid ${view.trace.threads[thread].thread}`);
	}
	words.push(`'${view.trace.directory.replaceAll("'", "'\\''")}'`);
	return words.join(" ");
}

/**
 * @param {Blob} blob
 * @param {string} name
 */
function save(blob, name) {
	const link = element("a");
	link.href = URL.createObjectURL(blob);
	link.download = name;
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * A cell of a table, written so that no program takes it for a formula.
 * @param {string | number | boolean | null | undefined} value
 */
export function cell(value) {
	if (typeof value !== "string") {
		return value === null || value === undefined ? "" : String(value);
	}
	const safe = /^[=+\-@]/.test(value) ? `'${value}` : value;
	return `"${safe.replaceAll("\"", "\"\"")}"`;
}

/**
 * A column for each member of the objects of `nopal report --json`.
 * @param {import("./types.js").FunctionRow[]} rows
 */
function functionsCsv(rows) {
	const always = ["function", "module", "calls", "total_ns", "self_ns", "min_ns", "avg_ns", "p50_ns", "p99_ns", "max_ns", "unfinished",
		"total_is_least", "self_is_least", "calls_are_least"];
	const names = [...new Set([...always, ...rows.flatMap(Object.keys)])];
	const values = rows.map(row => new Map(Object.entries(row)));
	const lines = [names.join(","), ...values.map(row => names.map(name => cell(row.get(name))).join(","))];
	return new Blob([`${lines.join("\n")}\n`], { type: "text/csv" });
}

/**
 * The chart with its names on the left.
 * @param {Timeline} timeline
 * @returns {Promise<Blob>}
 */
function png({ chart, labels }) {
	chart.draw();
	const scale = window.devicePixelRatio || 1;
	const left = labels.clientWidth;
	const made = document.createElement("canvas");
	[made.width, made.height] = [chart.canvas.width + Math.round(left * scale), chart.canvas.height];
	const context = /** @type {CanvasRenderingContext2D} */ (made.getContext("2d"));
	context.fillStyle = styled("--raised");
	context.fillRect(0, 0, made.width, made.height);
	context.drawImage(chart.canvas, Math.round(left * scale), 0);
	context.scale(scale, scale);
	context.beginPath();
	context.rect(0, AXIS, left, labels.clientHeight);
	context.clip();
	context.fillStyle = styled("--text");
	context.font = "13px system-ui, sans-serif";
	context.textBaseline = "middle";
	for (const label of labels.children) {
		const top = Number.parseFloat(/** @type {HTMLElement} */ (label).style.top);
		context.fillText(label.textContent ?? "", 6, top + ROW / 2);
	}
	return new Promise((resolve, reject) => {
		made.toBlob(blob => blob ? resolve(blob) : reject(new Error("the picture is too large")));
	});
}

/**
 * @param {string} text
 */
function escaped(text) {
	return text.replace(/[&<>"']/g, letter => `&#${letter.charCodeAt(0)};`)
		// XML does not allow other characters.
		.replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd");
}

/**
 * @param {Timeline} timeline
 */
function svg({ chart, labels }) {
	const left = labels.clientWidth;
	const [width, height] = [left + chart.canvas.clientWidth, chart.canvas.clientHeight];
	const parts = [`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12">`,
		`<rect width="100%" height="100%" fill="${styled("--ground")}"/>`];
	const text = (/** @type {string} */ what, /** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ color) =>
		parts.push(`<text x="${x.toFixed(1)}" y="${(y + 4).toFixed(1)}" fill="${color}">${escaped(what)}</text>`);
	parts.push(`<svg x="${left}" y="${AXIS}" width="${chart.canvas.clientWidth}" height="${height - AXIS}">`);
	const words = new Uint32Array(chart.picture ? chart.pixelsOf(chart.picture.cells).data.buffer : new ArrayBuffer(0));
	for (const { image, first, rows, left: x, top, wide, names } of chart.shown()) {
		const step = wide / image.width;
		for (let row = 0; row < rows; row++) {
			const start = (first + row) * image.width;
			for (let begin = 0; begin < image.width;) {
				const color = words[start + begin];
				let end = begin + 1;
				while (end < image.width && words[start + end] === color) {
					end++;
				}
				if (color !== 0 && x + end * step > 0 && x + begin * step < width) {
					const fill = css([color & 255, color >> 8 & 255, color >> 16 & 255]);
					parts.push(`<rect x="${(x + begin * step).toFixed(2)}" y="${(top - AXIS + row * ROW).toFixed(1)}" `
						+ `width="${((end - begin) * step).toFixed(2)}" height="${ROW - 1}" fill="${fill}"/>`);
				}
				begin = end;
			}
		}
		for (const name of names) {
			text(name.text, name.x, name.y - AXIS, "#10141a");
		}
	}
	parts.push("</svg>");
	chart.ticks(chart.canvas.clientWidth).forEach(tick => text(tick.text, left + tick.x + 4, AXIS / 2, styled("--faint")));
	for (const label of labels.children) {
		const top = Number.parseFloat(/** @type {HTMLElement} */ (label).style.top);
		if (top >= AXIS) {
			text(label.textContent ?? "", 6, top + ROW / 2, styled("--text"));
		}
	}
	parts.push("</svg>\n");
	return new Blob([parts.join("\n")], { type: "image/svg+xml" });
}
