// Views two traces beside each other: `beside.mjs PLAN`, where PLAN is JSON (see tests/tests/view.rs).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { begun, done, open, picture, run, settled } from "./browser.mjs";

/**
 * @typedef {{calls: number, total_ns: number, self_ns: number}} Side
 * @type {{
 *   address: string, growing: string, ranges: [number, number][],
 *   whole: {functions: {function: string, module: string, before: Side | null, after: Side | null, change_ns: number}[]},
 *   reports: {function: string, calls: number, total_ns: number, self_ns: number}[][],
 *   clicked: string,
 * }}
 */
const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));

const state = page => page.evaluate(() => ({
	shift: window.link.shift,
	isLinked: window.link.isLinked,
	active: window.nopal.findIndex(({ root }) => root.matches(".active")),
	views: window.nopal.map(({ view: { from, until, range, pattern, panel } }) => ({ from, until, range, pattern, panel })),
}));

const times = async page => (await state(page)).views.map(({ from, until }) => [from, until]);

/** The middle of a chart. */
async function middle(page, number) {
	const { x, y, width, height } = await page.locator(".chart").nth(number).boundingBox();
	return { x: x + width / 2, y: y + height / 2 };
}

async function drag(page, number, pixels) {
	const { x, y } = await middle(page, number);
	await page.mouse.move(x, y);
	await page.mouse.down();
	await page.mouse.move(x + pixels, y, { steps: 4 });
	await page.mouse.up();
}

async function wheel(page, number, pixels) {
	const { x, y } = await middle(page, number);
	await page.mouse.move(x, y);
	await page.mouse.wheel(0, pixels);
}

/** Functions with their modules, and the cells of each in the table. */
async function table(page) {
	const rows = await page.locator("#panel-compare tbody tr").evaluateAll(rows =>
		rows.map(row => [...row.cells].map(cell => cell.textContent)));
	return new Map(rows.map(row => [row.slice(13).join("@"), row]));
}

const nameOf = row => `${row.function}@${row.module}`;

/** Waits until the address describes the view. */
const written = page => page.waitForFunction(() => {
	const active = window.nopal.findIndex(({ root }) => root.matches(".active"));
	const both = [active, window.link.shift, Number(window.link.isLinked)].join();
	return location.hash === `#${[...window.nopal.map(({ view }) => view.address()), both].join("/")}`;
});

const steps = {
	async "both show the same scale: zoom and moves in one are those of the other"() {
		const page = await open(plan.address);
		const [one, other] = await times(page);
		assert.deepEqual(one, other);
		await page.waitForSelector("#panel-compare tbody tr");
		await settled(page);
		await picture(page, "beside");
		await wheel(page, 0, -600);
		const zoomed = await times(page);
		assert.deepEqual(zoomed[0], zoomed[1]);
		assert.ok(zoomed[0][1] - zoomed[0][0] < (one[1] - one[0]) / 2);
		await drag(page, 1, -200);
		const moved = await times(page);
		assert.deepEqual(moved[0], moved[1]);
		assert.ok(moved[0][0] > zoomed[0][0]);
		await page.keyboard.press("0");
		assert.deepEqual(await times(page), [one, other]);
		await done(page);
	},

	async "one moves alone, and then both at that distance"() {
		const page = await open(plan.address);
		await wheel(page, 0, -600);
		const [before] = await times(page);
		await page.click("#linked");
		await drag(page, 1, -200);
		const [one, other] = await times(page);
		assert.deepEqual(one, before);
		assert.ok(other[0] > one[0]);
		assert.equal(other[1] - other[0], one[1] - one[0]);
		const { shift } = await state(page);
		assert.equal(shift, other[0] - one[0]);
		await wheel(page, 1, -200);
		const zoomed = await times(page);
		assert.ok(zoomed[0][1] - zoomed[0][0] < one[1] - one[0]);
		await page.keyboard.press("l");
		await page.keyboard.press("d");
		const linked = await times(page);
		for (const end of [0, 1]) {
			assert.ok(linked[0][end] > zoomed[0][end]);
			assert.equal(linked[1][end] - linked[0][end], shift);
		}
		await page.focus("#align");
		await page.selectOption("#align", "begins");
		const [first, second] = await times(page);
		assert.deepEqual(first, second);
		await done(page);
	},

	async "the table has the numbers of the report and the comparison"() {
		const page = await open(plan.address);
		await page.waitForSelector("#panel-compare tbody tr");
		const whole = await page.evaluate(() => fetch("api/diff?;").then(answer => answer.json()));
		assert.deepEqual(whole.functions, plan.whole.functions);
		const shown = await table(page);
		assert.deepEqual([...shown.keys()].sort(), plan.whole.functions.map(nameOf).sort());
		assert.equal([...shown.keys()][0], nameOf(plan.whole.functions[0]));
		for (const row of plan.whole.functions) {
			const [name, { before, after }] = [nameOf(row), row];
			const calls = [before, after].map(side => side?.calls ?? null);
			const change = (calls[1] ?? 0) - (calls[0] ?? 0);
			const texts = calls.map(calls => calls === null ? "-" : calls.toLocaleString("en"));
			const sign = change < 0 ? "−" : change > 0 ? "+" : "";
			assert.deepEqual(shown.get(name).slice(6, 9), [...texts, sign + Math.abs(change).toLocaleString("en")], name);
		}

		// Each trace has a selected time of its own.
		await page.evaluate(ranges => window.nopal.forEach(({ view }, at) => {
			view.range = ranges[at];
			view.changed();
		}), plan.ranges);
		const subject = "the selected time of A and the selected time of B";
		await page.waitForFunction(subject => document.querySelector("#panel-compare caption")?.textContent.endsWith(subject), subject);
		const ranged = await page.evaluate(ranges => fetch(`api/diff?${ranges.map(([from, until]) => `from=${from}&until=${until}`).join(";")}`)
			.then(answer => answer.json()), plan.ranges);
		for (const [at, side] of ["before", "after"].entries()) {
			const rows = ranged.functions.filter(row => row[side] && row[side].calls + row[side].unfinished > 0);
			const sums = rows.map(({ function: name, [side]: { calls, total_ns, self_ns } }) => [name, calls, total_ns, self_ns]);
			const wanted = plan.reports[at].map(row => [row.function, row.calls, row.total_ns, row.self_ns]);
			assert.deepEqual(sums.sort(), wanted.sort());
		}
		const selected = await table(page);
		assert.equal(selected.size, ranged.functions.length);
		for (const row of ranged.functions) {
			assert.equal(selected.get(nameOf(row))[6], row.before ? row.before.calls.toLocaleString("en") : "-", nameOf(row));
		}
		await page.focus("#align");
		await page.selectOption("#align", "selections");
		assert.equal((await state(page)).shift, plan.ranges[1][0] - plan.ranges[0][0]);
		await page.locator("#panel-compare button[aria-label='calls, B']").click();
		const calls = (await page.locator("#panel-compare tbody tr").evaluateAll(rows => rows.map(row => row.cells[7].textContent)))
			.map(text => Number(text.replaceAll(",", "").replace("-", "0")));
		assert.deepEqual(calls, [...calls].sort((one, other) => other - one));
		await picture(page, "beside-selected");
		await done(page);
	},

	async "a function is marked in both, and a link restores the view"() {
		const page = await open(plan.address);
		await page.waitForSelector("#panel-compare tbody tr");
		await page.getByRole("button", { name: plan.clicked, exact: true }).click();
		await page.waitForFunction(() => window.nopal.every(({ chart }) => chart.hits.size > 0));
		const found = await page.textContent("#found");
		const wanted = plan.whole.functions.find(row => row.function === plan.clicked);
		assert.equal(found, [["A", wanted.before], ["B", wanted.after]]
			.map(([letter, { calls }]) => `${letter}: ${calls.toLocaleString("en")} calls of 1 function`).join(" · "));
		await page.keyboard.press("Escape");
		await page.waitForFunction(() => window.nopal.every(({ chart }) => chart.found.size === 0));

		// A click on a call selects a time in its own trace, too.
		const line = await page.locator(".chart").nth(1).boundingBox();
		await settled(page);
		const middle = await page.evaluate(() => window.nopal[1].chart.x(window.nopal[1].view.trace.duration / 2));
		await page.mouse.click(line.x + middle, line.y + 22 + 9);
		await page.waitForFunction(() => window.nopal.every(({ view }) => view.pattern === "main"));
		assert.equal(await page.textContent("#panel-call caption"), "main");
		await page.evaluate(ranges => {
			window.nopal[1].view.range = ranges[1];
			window.nopal[1].view.changed();
		}, plan.ranges);
		await page.keyboard.press("l");
		await drag(page, 1, -100);
		await page.click("#tab-functions");
		await page.keyboard.press("w");
		await written(page);
		await settled(page);
		const shown = await state(page);
		assert.equal(shown.isLinked, false);
		assert.equal(shown.active, 1);
		assert.notEqual(shown.shift, 0);
		const other = await open(await page.evaluate(() => location.href));
		const restored = await state(other);
		assert.deepEqual({ ...restored, views: restored.views[1] }, { ...shown, views: shown.views[1] });
		assert.deepEqual(await times(other), await times(page));
		await other.waitForSelector("#panel-functions tbody tr");
		await done(other);
		await done(page);
	},

	async "what is not of two traces is refused"() {
		const status = async path => (await fetch(`${plan.address}api/${path}`)).status;
		assert.equal(await status("1/trace"), 200);
		assert.equal(await status("2/trace"), 404);
		assert.equal(await status("trace"), 404);
		assert.equal(await status("diff?"), 422);
		assert.equal(await status("diff?from=x;"), 422);
	},

	async "a second trace that is being recorded grows"() {
		const page = await open(plan.growing, undefined, begun);
		const before = await page.evaluate(() => window.nopal[1].view.trace.calls);
		await page.waitForFunction(before => window.nopal[1].view.trace.calls > before + 20, before);
		// The view of the first one stays, also behind the end of the second.
		const time = await page.evaluate(() => {
			const [{ view }] = window.nopal;
			view.show(view.trace.duration * 0.25, view.trace.duration * 0.5);
			return [view.from, view.until];
		});
		const calls = await page.evaluate(() => window.nopal[1].view.trace.calls);
		await page.waitForFunction(calls => window.nopal[1].view.trace.calls > calls + 20, calls);
		assert.deepEqual(await page.evaluate(() => [window.nopal[0].view.from, window.nopal[0].view.until]), time);
		await done(page);
	},
};

await run(steps);
