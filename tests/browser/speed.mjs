// Measures the page: `speed.mjs ADDRESS` prints a name and a number a line, for `make bench`.

import { readFileSync } from "node:fs";
import { browser, done, open, settled } from "./browser.mjs";

/** Parts of the trace that are shown while the chart is moved. */
const ZOOMS = [1 / 4, 1e-3, 1e-6];
/** Moves of the mouse at each of them, some milliseconds apart. */
const MOVES = 120;
const STEP = 6;
/** Milliseconds from a new window to the request of the page. */
const CALM = 2000;

/** When every timeline has a picture, in milliseconds since the page was asked for. */
const picture = async page => {
	const shown = await page.waitForFunction(() => window.nopal?.every(({ chart }) => chart.picture) && performance.now());
	page.picture = await shown.jsonValue();
};

/** Moves the chart to and fro by the mouse, and returns the times between frames, and those that drawing took. */
async function pan(page, part) {
	await page.evaluate(part => window.nopal.forEach(({ view }) => {
		const { duration } = view.trace;
		view.show(duration / 2, duration / 2 + Math.max(1000, duration * part));
	}), part);
	await settled(page);
	await page.evaluate(() => {
		window.nopal.forEach(({ chart }) => chart.frames.splice(0));
		const frames = window.frames_ms = [];
		let last = 0;
		const frame = now => {
			if (last > 0) {
				frames.push(now - last);
			}
			last = now;
			window.nextFrame = requestAnimationFrame(frame);
		};
		window.nextFrame = requestAnimationFrame(frame);
	});
	const { x, y, width, height } = await page.locator(".chart").first().boundingBox();
	await page.mouse.move(x + width / 2, y + height / 2);
	await page.mouse.down();
	for (let move = 1; move <= MOVES; move++) {
		const away = MOVES / 2 - Math.abs(MOVES / 2 - move);
		await page.mouse.move(x + width / 2 - away * STEP, y + height / 2);
	}
	await page.mouse.up();
	return page.evaluate(() => {
		cancelAnimationFrame(window.nextFrame);
		const drawn = window.nopal.map(({ chart }) => chart.frames);
		// The timelines are drawn in one frame.
		return { frames: window.frames_ms, drawing: drawn[0].map((_, at) => drawn.reduce((sum, one) => sum + (one[at] ?? 0), 0)) };
	});
}

const p95 = values => values.sort((one, other) => one - other)[Math.floor(values.length * 0.95)];

/** Bytes of anonymous memory of the process that shows the page. */
async function memory() {
	const session = await browser.newBrowserCDPSession();
	const { processInfo } = await session.send("SystemInfo.getProcessInfo");
	const renderers = processInfo.filter(({ type }) => type === "renderer");
	return Math.max(...renderers.map(({ id }) => Number(/RssAnon:\s*(\d+)/.exec(readFileSync(`/proc/${id}/status`, "utf8"))[1]) * 1024));
}

const blank = await browser.newPage();
console.log(`blank_bytes ${await memory()}`);
await blank.close();
// For a second, a new window keeps both processors busy with the browser's own pages.
const page = await open(process.argv[2], undefined, picture, () => new Promise(resolve => setTimeout(resolve, CALM)));
console.log(`picture_ms ${page.picture}`);
await settled(page);
const panned = [];
for (const part of ZOOMS) {
	panned.push(await pan(page, part));
}
console.log(`frame_ms ${p95(panned.flatMap(({ frames }) => frames))}`);
console.log(`drawing_ms ${p95(panned.flatMap(({ drawing }) => drawing))}`);
console.log(`anonymous_bytes ${await memory()}`);
await done(page);
await browser.close();
