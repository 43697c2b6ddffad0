// Views tracks beside the calls: `tracks.mjs PLAN`, where PLAN is JSON (see tests/tests/view.rs).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { done, open, picture, run } from "./browser.mjs";

/**
 * @typedef {{groups: {count: number, min: number, max: number}[]}} Histogram
 * @type {{
 *   address: string, threads: number[], switches: Record<string, number>, wakes: number,
 *   hists: Record<string, Histogram>, main: {cpu_ns: number, blocked_ns: number},
 *   typed: {function: string, values: string, source: string},
 * }}
 */
const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));

/** Waits until the chosen tracks have been read for the present view. */
const read = page => page.waitForFunction(() => {
	const { tracks, view } = window.nopal[0];
	return document.body.dataset.tracks === tracks.wanted
		&& tracks.wanted.includes(JSON.stringify([...view.tracks])) && !document.querySelector("#losses:not([hidden])")?.textContent.includes("cannot");
});

/** Shows these tracks only. */
const choose = (page, tracks) => page.evaluate(tracks => {
	const { view } = window.nopal[0];
	view.tracks = new Set(tracks);
	view.panel = "tracks";
	view.order();
	view.changed();
}, tracks);

const number = text => Number(text.replaceAll(",", ""));

const steps = {
	async "shows who ran on each processor, as often as the kernel switched to it"() {
		const page = await open(plan.address);
		await read(page);
		await page.click("#tab-tracks");
		await page.waitForSelector("#ran tbody tr");
		const { labels, lanes } = await page.evaluate(() => window.nopal[0].tracks.described.get("cpu"));
		assert.ok(lanes.length > 0);
		const sums = await page.evaluate(() => fetch("api/0/spans?of=cpu").then(answer => answer.json()));
		const runs = {};
		for (const [label, count, ns, parts] of sums.labels) {
			const thread = labels[label].split(" ").at(-1);
			runs[thread] = (runs[thread] ?? 0) + count;
			assert.ok(Math.abs(ns - parts.reduce((sum, part) => sum + part, 0)) <= parts.length);
		}
		for (const thread of plan.threads) {
			assert.equal(runs[thread], plan.switches[thread], `${thread}`);
		}
		await picture(page, "processors");
		const names = await page.locator(".labels .track").allTextContents();
		assert.deepEqual(names.slice(0, lanes.length), lanes.map(({ name }) => name));
		await done(page);
	},

	async "shows wake-ups as arrows, and where a call waited"() {
		const page = await open(plan.address);
		await read(page);
		const all = await page.evaluate(() => fetch("api/0/wakes")
			.then(answer => answer.json()).then(({ all }) => all));
		assert.equal(all, plan.wakes);
		const main = await page.evaluate(() => {
			const { view } = window.nopal[0];
			const wanted = view.trace.functions.findIndex(([name]) => name === "main");
			const thread = view.trace.threads.findIndex(({ process, thread }) => process === thread);
			return fetch(`api/0/step?thread=${thread}&at=0&functions=${wanted}&to=next`).then(answer => answer.json());
		});
		// Where the kernel's events lack a begin of running, the report knows more: a thread that makes a record runs.
		const [cpu, , waiting, unknown] = main.call.times;
		const isBetween = (least, value, most) => least - 4 <= value && value <= most + 4;
		assert.ok(isBetween(cpu, plan.main.cpu_ns, cpu + unknown), `${main.call.times} ${plan.main.cpu_ns}`);
		assert.ok(isBetween(waiting, plan.main.blocked_ns, waiting + unknown), `${main.call.times} ${plan.main.blocked_ns}`);
		// Wake-ups that are few enough; on a busy machine a time may have none.
		const time = await page.evaluate(async () => {
			const [{ view }] = window.nopal;
			for (let at = view.trace.duration / 2; at < view.trace.duration; at += 2e6) {
				const time = [Math.round(at), Math.round(at) + 2e6];
				const { wakes } = await view.api.wakes(...time);
				if (wakes.length > 0) {
					return time;
				}
			}
			throw new Error("no wake-ups");
		});
		await page.evaluate(time => window.nopal[0].view.show(...time), time);
		await page.waitForFunction(() => window.nopal[0].tracks.wakes?.wakes.length > 0);
		await picture(page, "wakes");
		await done(page);
	},

	async "shows a tracer's cases, and goes to the worst"() {
		const page = await open(plan.address);
		for (const tracer of ["wakeup", "lockhold", "begun.id..served.id"]) {
			await choose(page, [tracer]);
			await read(page);
			const { count, max } = plan.hists[tracer].groups[0];
			const caption = page.locator("#panel-tracks caption");
			await page.waitForFunction(tracer => document.querySelector("#panel-tracks caption")?.textContent.startsWith(tracer), tracer);
			assert.equal(number((await caption.textContent()).split(" ")[1]), count, tracer);
			const answer = await page.evaluate(of => fetch(`api/0/spans?of=${of}`).then(answer => answer.json()), encodeURIComponent(tracer));
			assert.equal(answer.longest[0].duration, max, tracer);
			const key = await page.locator("#panel-tracks td:nth-child(3)").first().textContent();
			assert.match(key, { wakeup: /^$/, lockhold: /^0x[0-9a-f]+$/ }[tracer] ?? /^[0-9]+$/, tracer);
			await page.locator("#panel-tracks td button").first().click();
			const shown = await page.evaluate(() => [window.nopal[0].tracks.span, window.nopal[0].view.from, window.nopal[0].view.until]);
			assert.ok(shown[0].begin >= shown[1] && shown[0].end <= shown[2], JSON.stringify(shown));
			await read(page);
			await page.keyboard.press("Escape");
		}
		await picture(page, "cases");
		await choose(page, ["<img src=x>..main"]);
		await page.waitForFunction(() => document.querySelector("#panel-tracks p")?.textContent.includes("<img src=x>"));
		page.wrongs = page.wrongs.filter(wrong => !wrong.includes("422"));
		await done(page);
	},

	async "shows a marker's values as a curve, and a link has the tracks"() {
		const page = await open(plan.address);
		await choose(page, ["served.load", "cpu"]);
		await read(page);
		const values = await page.evaluate(() => window.nopal[0].tracks.curves.get("served.load").values);
		const { count, min, max } = plan.hists["served.load"].groups[0];
		assert.equal(values.count, count);
		assert.deepEqual(values.extent, [min, max]);
		const inColumns = values.columns.reduce((sum, column) => sum + (column?.[0] ?? 0), 0);
		assert.equal(inColumns, count);
		await picture(page, "curve");
		await page.waitForFunction(() => location.hash.includes("k="));
		const other = await open(page.url());
		assert.deepEqual(await other.evaluate(() => [...window.nopal[0].view.tracks]), ["served.load", "cpu"]);
		await done(other);
		await page.click("#tab-markers");
		await page.waitForFunction(() => document.querySelector("#panel-markers")?.textContent.includes("sched_switch"));
		assert.ok((await page.textContent("#panel-markers")).includes("served id="));
		assert.deepEqual(await page.locator("#panel-markers thead th").allTextContents(), ["time", "event", "thread", "values"]);
		// A click on a marker goes there.
		await page.evaluate(() => {
			const { view } = window.nopal[0];
			view.range = [0, view.trace.duration];
			view.show(0, 1000);
		});
		const marker = page.locator("#panel-markers tbody tr").filter({ has: page.getByText("marker", { exact: true }) }).last();
		const time = Math.round(Number((await marker.locator("td").first().textContent()).replace(" s", "")) * 1e9);
		await marker.locator("button").click();
		await page.waitForFunction(time => {
			const { view } = window.nopal[0];
			return view.point?.at === time && view.from <= time && time <= view.until;
		}, time);
		await done(page);
	},

	async "the mouse over a call shows its values by their types, and its places in the source"() {
		const page = await open(plan.address);
		const { thread, begin, end, depth } = await page.evaluate(async name => {
			const [{ view, canvas }] = window.nopal;
			const wanted = view.trace.functions.findIndex(([other]) => other === name);
			for (const thread of view.trace.threads.keys()) {
				const { call } = await view.api.step(thread, 0, [wanted], "next");
				if (call) {
					view.show(call.begin - 1000, call.end + 1000);
					view.scrollBy(view.lineOf(thread).top - view.scroll, canvas.clientHeight);
					return { thread, ...call };
				}
			}
			throw new Error("no such call");
		}, plan.typed.function);
		await page.waitForFunction(() => window.nopal[0].root.dataset.state === "exact");
		await read(page);
		const place = await page.evaluate(([thread, at, depth]) => {
			const [{ chart, view, canvas }] = window.nopal;
			const { left, top } = canvas.getBoundingClientRect();
			return [left + chart.x(at), top + 22 + view.lineOf(thread).top - view.scroll + depth * 18 + 9];
		}, [thread, (begin + end) / 2, depth]);
		await page.mouse.move(place[0] - 3, place[1]);
		await page.mouse.move(...place);
		await page.waitForFunction(source => document.querySelector(".hover").textContent.includes(source), plan.typed.source);
		const shown = await page.textContent(".hover");
		assert.match(shown, new RegExp(plan.typed.values), shown);
		assert.match(shown, new RegExp(`called at [^ ]*${plan.typed.source}`), shown);
		await picture(page, "hover");
		await done(page);
	},
};

await run(steps);
