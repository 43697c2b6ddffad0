// Views a trace with a browser, as a person would: `page.mjs PLAN`, where PLAN is JSON (see tests/tests/view.rs). Ends
// with an error at the first failure.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { dirname, join } from "node:path";
import { begun, done, open, picture, run, settled } from "./browser.mjs";

/**
 * @type {{
 *   address: string, growing: string, from: number, until: number,
 *   rows: {function: string, calls: number, total_ns: number, self_ns: number}[],
 *   wanted: string, wantedCalls: number, hostile: string,
 *   ofThread: {function: string, calls: number}[], csv: string, archive: string, nopal: string,
 *   longest: number[],
 *   hist: {groups: {bars: {count: number}[]}[]},
 * }}
 */
const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));

const state = page => page.evaluate(() => {
	const { from, until, range, pattern, panel, scroll } = window.nopal[0].view;
	return { from, until, range, pattern, panel, scroll };
});

const steps = {
	async "opens, zooms and moves by wheel, mouse and keys"() {
		const page = await open(plan.address);
		const whole = await state(page);
		assert.equal(whole.from, 0);
		await picture(page, "whole");
		await page.mouse.move(700, 200);
		await page.mouse.wheel(0, -600);
		const zoomed = await state(page);
		assert.ok(zoomed.until - zoomed.from < (whole.until - whole.from) / 2);
		await page.mouse.down();
		await page.mouse.move(500, 200, { steps: 4 });
		await page.mouse.up();
		const moved = await state(page);
		assert.ok(moved.from > zoomed.from);
		await page.keyboard.press("a");
		assert.ok((await state(page)).from < moved.from);
		await page.keyboard.press("w");
		assert.ok((await state(page)).until - (await state(page)).from < moved.until - moved.from);
		await settled(page);
		await page.keyboard.press("0");
		assert.deepEqual(await state(page), whole);
		await page.keyboard.press("?");
		assert.ok(await page.isVisible("#help"));
		await page.keyboard.press("Escape");
		assert.ok(!await page.isVisible("#help"));
		await done(page);
	},

	async "shows a call, its callers, and the next call of its function"() {
		const page = await open(plan.address);
		await page.mouse.click(640, 145);
		await page.waitForSelector("#panel-call table");
		const rows = await page.locator("#panel-call table").nth(1).locator("tr").count();
		const depth = await page.evaluate(() => window.nopal[0].view.point.depth);
		assert.equal(rows, depth);
		await page.fill("#pattern", plan.wanted);
		await page.press("#pattern", "Enter");
		// Until then the panel shows the call that was clicked.
		await page.waitForFunction(wanted => document.querySelector("#panel-call caption")?.textContent === wanted,
			plan.wanted);
		const first = await page.evaluate(() => window.nopal[0].chart.call.begin);
		await page.locator(".chart").focus();
		await page.keyboard.press("n");
		await page.waitForFunction(first => window.nopal[0].chart.call.begin > first, first);
		await page.keyboard.press("p");
		await page.waitForFunction(first => window.nopal[0].chart.call.begin === first, first);
		assert.equal(await page.textContent("#panel-call caption"), plan.wanted);

		// Next, again and again, is each call once; the begin of each finds it again.
		const visited = await page.evaluate(async name => {
			const [{ view }] = window.nopal;
			const wanted = view.trace.functions.findIndex(([other]) => other === name);
			const found = [];
			for (let at = 0; found.length < 300;) {
				const { call } = await view.api.step(0, at, [wanted], "next");
				const again = (await view.api.stack(0, call.begin, call.depth)).call;
				found.push([call.begin, again?.function === wanted && again.begin === call.begin && again.end === call.end]);
				at = call.begin + 1;
			}
			return found;
		}, plan.wanted);
		assert.ok(visited.every(([, isSame]) => isSame));
		assert.ok(visited.every(([begin], at) => at === 0 || begin > visited[at - 1][0]));

		// A caller is shown, and the link leads to it.
		const caller = page.locator("#panel-call table").nth(1).locator("button").first();
		const name = await caller.textContent();
		const { begin, depth: under } = await page.evaluate(() => window.nopal[0].chart.call);
		await caller.click();
		await page.waitForFunction(under => window.nopal[0].chart.call?.depth === under - 1, under);
		assert.equal(await page.textContent("#panel-call caption"), name);
		const called = await page.evaluate(() => window.nopal[0].chart.call);
		assert.ok(called.begin <= begin && begin < called.end);
		await page.waitForFunction(({ thread, begin, depth }) => location.hash.includes(encodeURIComponent(`${thread},${begin},${depth}`)), called);
		const other = await open(page.url());
		await other.waitForSelector("#panel-call caption");
		assert.equal(await other.textContent("#panel-call caption"), name);
		assert.deepEqual(await other.evaluate(() => window.nopal[0].chart.call), called);
		await done(other);
		await done(page);
	},

	async "sets a bookmark where one looks, and removes only that"() {
		const page = await open(plan.address);
		await page.mouse.click(640, 145);
		await page.waitForSelector("#panel-call table");
		await page.keyboard.press("m");
		const bookmarks = () => page.evaluate(() => window.nopal[0].view.bookmarks);
		const [first] = await bookmarks();
		assert.equal(first, await page.evaluate(() => window.nopal[0].view.point.at));
		// The call that was clicked is out of sight.
		const shown = await page.evaluate(() => {
			const { view } = window.nopal[0];
			view.show(0, view.trace.duration / 10);
			return [view.from, view.until];
		});
		await page.keyboard.press("m");
		const [second] = await bookmarks();
		assert.ok(shown[0] < second && second < shown[1]);
		assert.deepEqual(await bookmarks(), [second, first]);
		await page.keyboard.press("m");
		assert.deepEqual(await bookmarks(), [first]);
		await done(page);
	},

	async "finds as many calls as the report has"() {
		const page = await open(plan.address);
		await page.fill("#pattern", plan.wanted);
		const calls = `${plan.wantedCalls.toLocaleString("en")} calls of 1 function`;
		await page.waitForFunction(calls => document.getElementById("found").textContent === calls, calls);
		await picture(page, "search");
		await done(page);
	},

	async "sums up a selected time as the report does, and a link restores it"() {
		const page = await open(plan.address);
		await page.evaluate(([from, until]) => {
			window.nopal[0].view.range = [from, until];
			window.nopal[0].view.panel = "functions";
			window.nopal[0].view.show(from, until);
		}, [plan.from, plan.until]);
		await page.waitForSelector("#panel-functions tbody tr");
		const rows = await page.evaluate(from => fetch(from).then(answer => answer.json()),
			`api/0/functions?from=${plan.from}&until=${plan.until}`);
		assert.deepEqual(rows, plan.rows);
		const count = await page.locator("#panel-functions tbody tr").count();
		assert.equal(count, Math.min(500, plan.rows.length));
		const first = await page.locator("#panel-functions tbody tr").first().locator("td").nth(9).textContent();
		assert.equal(first, [...plan.rows].sort((one, other) => other.total_ns - one.total_ns)[0].function);
		await picture(page, "functions");
		await page.click("#tab-flame");
		await page.waitForSelector(".flame button");
		const flame = await page.locator(".flame").evaluate(flame => [flame.getBoundingClientRect().width,
			[...flame.children].map(box => [box.offsetTop, box.getBoundingClientRect().left, box.getBoundingClientRect().width,
				Number(box.title.match(/([0-9.]+) %$/)[1]), box.innerText])]);
		for (const [, , width, part] of flame[1]) {
			assert.ok(Math.abs(width / flame[0] * 100 - part) <= 0.06, `${width} of ${flame[0]}: ${part} %`);
		}
		const boxes = flame[1].sort(([top, left], [other, more]) => top - other || left - more);
		boxes.forEach(([top, left], at) => {
			const [before, begin, width] = boxes[at - 1] ?? [-1, 0, 0];
			assert.ok(before !== top || begin + width <= left + 0.1, `${begin} + ${width} > ${left}`);
		});
		assert.ok(boxes.some(([, , width, , name]) => width < 7 && name === ""));
		assert.ok(boxes.some(([, , , , name]) => name !== ""));
		await picture(page, "flame");
		await page.fill("#pattern", plan.wanted);
		await page.waitForFunction(() => location.hash.includes("q="));
		await settled(page);
		const shown = await state(page);
		const link = page.url();
		const other = await open(link);
		assert.deepEqual(await state(other), shown);
		await done(other);
		await done(page);
	},

	async "shows one thread's functions, the call tree, and a histogram as the commands do"() {
		const page = await open(plan.address);
		await page.evaluate(([from, until]) => {
			window.nopal[0].view.range = [from, until];
			window.nopal[0].view.changed();
		}, [plan.from, plan.until]);
		await page.locator(".labels button").first().click({ modifiers: ["Shift"] });
		await page.click("#tab-functions");
		await page.waitForSelector("#panel-functions tbody tr");
		const cells = await page.locator("#panel-functions tbody tr").evaluateAll(rows =>
			rows.map(row => [row.cells[9].textContent, row.cells[2].textContent]));
		const wanted = plan.ofThread.map(row => [row.function, row.calls.toLocaleString("en")]);
		assert.deepEqual(cells.sort(), wanted.sort());
		await page.locator(".labels button").first().click({ modifiers: ["Shift"] });

		await page.click("#tab-tree");
		const short = [plan.from, plan.from + 50_000];
		await page.evaluate(short => {
			window.nopal[0].view.range = short;
			window.nopal[0].view.changed();
		}, short);
		const asked = name => page.evaluate(from => fetch(from).then(answer => answer.json()),
			`api/0/${name}?from=${short[0]}&until=${short[1]}`);
		const [{ nodes, left_out: leftOut }, rows] = [await asked("graph"), await asked("functions")];
		assert.equal(leftOut, 0);
		const outermost = nodes.filter(([, parent], at) => at > 0 && parent === 0).length;
		await page.waitForFunction(outermost => document.querySelectorAll("#panel-tree tr[aria-level='1']").length === outermost,
			outermost);
		for (let closed; (closed = page.locator("#panel-tree tr[aria-expanded=false]")), await closed.count() > 0;) {
			await closed.first().locator("button").first().click();
			if (await page.locator("#panel-tree tbody tr").count() > 60) {
				break;
			}
		}
		await picture(page, "tree");
		const calls = new Map();
		nodes.slice(1).forEach(([site, , number]) => calls.set(site, (calls.get(site) ?? 0) + number));
		const names = await page.evaluate(() => window.nopal[0].view.trace.functions.map(([name]) => name));
		assert.deepEqual([...calls].map(([site, number]) => [names[site], number]).sort(),
			rows.map(row => [row.function, row.calls]).sort());
		const outer = await page.locator("#panel-tree tr[aria-level='1']").evaluateAll(rows =>
			rows.map(row => [row.cells[4].querySelectorAll("button")[1].textContent, row.cells[3].textContent]));
		assert.deepEqual(outer.sort(), nodes.filter(([, parent], at) => at > 0 && parent === 0)
			.map(([site, , number]) => [names[site], number.toLocaleString("en")]).sort());

		await page.evaluate(([from, until]) => {
			window.nopal[0].view.range = [from, until];
			window.nopal[0].view.panel = "histogram";
			window.nopal[0].view.changed();
		}, [plan.from, plan.until]);
		await page.fill("#panel-histogram input", plan.wanted);
		await page.press("#panel-histogram input", "Enter");
		await page.waitForSelector("#panel-histogram tbody tr");
		await picture(page, "histogram");
		const bars = await page.locator("#panel-histogram table").first().locator("tbody tr").evaluateAll(rows =>
			rows.map(row => row.cells[2].textContent));
		assert.deepEqual(bars, plan.hist.groups[0].bars.map(bar => bar.count.toLocaleString("en")));

		// The longest calls of the call that was clicked, and of the function that is searched, of all times.
		await page.evaluate(() => {
			window.nopal[0].view.range = null;
			window.nopal[0].view.changed();
		});
		await page.mouse.click(640, 145);
		await page.waitForSelector("#panel-call table");
		const clicked = await page.textContent("#panel-call caption");
		await page.click("#tab-longest");
		await page.waitForFunction(clicked => document.querySelector("#panel-longest caption")?.textContent.endsWith(
			` calls of ${clicked}, of the whole trace`), clicked);
		await page.keyboard.press("Escape");
		await page.fill("#pattern", plan.wanted);
		await page.press("#pattern", "Enter");
		await page.click("#tab-longest");
		await page.waitForSelector("#panel-longest tbody tr");
		await picture(page, "longest");
		const longest = await page.evaluate(name => {
			const [{ view, chart }] = window.nopal;
			return fetch(`api/0/longest?functions=${[...chart.found].join(",")}`).then(answer => answer.json())
				.then(calls => calls.filter(call => view.trace.functions[call.function][0] === name));
		}, plan.wanted);
		assert.deepEqual(longest.map(call => call.duration), plan.longest);
		// One of the thread that is out of sight.
		const low = await page.evaluate(() => window.nopal[0].view.lines.at(-1).thread);
		const place = longest.findIndex(({ thread }) => thread === low);
		const row = page.locator("#panel-longest tbody tr").nth(place);
		const shown = await row.evaluate(row => [row.cells[0].textContent, row.cells[4].textContent]);
		await row.locator("button").click();
		await page.waitForFunction(begin => window.nopal[0].chart.call?.begin === begin, longest[place].begin);
		await page.waitForSelector("#panel-call table caption");
		assert.equal(await page.locator("#panel-call caption").first().textContent(), plan.wanted);
		assert.equal(await page.locator("#panel-call table").first().locator("tr").first().locator("td").textContent(), shown[0]);
		assert.equal(await page.locator("#panel-call table").nth(1).locator("button").first().textContent(), shown[1]);
		await settled(page);
		const [call, sight] = await page.evaluate(() => {
			const [{ view, chart, canvas }] = window.nopal;
			const top = view.lineOf(chart.call.thread).top + chart.call.depth * 18 - view.scroll;
			return [chart.call, { from: view.from, until: view.until, top, height: canvas.clientHeight - 22 }];
		});
		assert.ok(sight.from <= call.begin && call.end <= sight.until);
		assert.ok(call.end - call.begin > (sight.until - sight.from) / 10);
		assert.ok(sight.top >= 0 && sight.top + 18 <= sight.height, JSON.stringify(sight));
		await picture(page, "went");
		await page.keyboard.press("Escape");
		await page.evaluate(() => {
			window.nopal[0].view.panel = "histogram";
			window.nopal[0].view.changed();
		});
		await page.fill("#panel-histogram input", "<img src=x>");
		await page.press("#panel-histogram input", "Enter");
		await page.waitForFunction(() => document.querySelector("#panel-histogram p")?.textContent.includes("<img src=x>"));
		await page.waitForFunction(() => location.hash.includes("img"));
		const other = await open(page.url());
		assert.equal(await other.inputValue("#panel-histogram input"), "<img src=x>");
		for (const one of [page, other]) {
			// The server refuses a selection that names no function.
			one.wrongs = one.wrongs.filter(wrong => !wrong.includes("422"));
			await done(one);
		}
	},

	async "saves what is selected"() {
		const page = await open(plan.address);
		await page.evaluate(([from, until]) => {
			window.nopal[0].view.range = [from, until];
			window.nopal[0].view.panel = "export";
			window.nopal[0].view.changed();
		}, [plan.from, plan.until]);
		const saved = async what => {
			const button = page.locator("#panel-export").getByText(what, { exact: true });
			const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
			return readFileSync(await download.path());
		};
		// Two threads write the lines, in any order.
		const lines = text => text.toString().split("\n").sort();
		assert.deepEqual(lines(await saved("csv")), lines(readFileSync(plan.csv)));
		assert.ok((await saved("perfetto")).length > 1000);
		writeFileSync(plan.archive, await saved("trace"));
		const unpacked = dirname(plan.archive);
		execFileSync("tar", ["-xf", plan.archive, "-C", unpacked]);
		const report = execFileSync(plan.nopal, ["report", "--json", join(unpacked, "nopal.data")]);
		assert.deepEqual(JSON.parse(report.toString()), plan.rows);
		const [head, ...functions] = (await saved("functions.csv")).toString().trim().split("\n").map(line => line.split(","));
		const members = new Set(plan.rows.flatMap(Object.keys));
		assert.deepEqual([...members].filter(name => !head.includes(name)), []);
		// The calls that the begin or the end of the time cuts make sums that may be more.
		assert.ok(plan.rows.some(row => row.total_is_least));
		const text = value => typeof value === "string" ? `"${value}"` : String(value ?? "");
		assert.deepEqual(functions, plan.rows.map(row => head.map(name => text(row[name]))));
		const png = await saved("chart.png");
		assert.equal(png.subarray(1, 4).toString(), "PNG");
		const svg = (await saved("chart.svg")).toString();
		const names = [...svg.matchAll(/<rect /g)].length;
		assert.ok(names > 100, `${names}`);
		await page.setContent(svg);
		assert.equal(await page.locator("svg svg").count(), 1);
		await page.context().close();
	},

	async "is readable on a phone, in the light, and by keyboard"() {
		const page = await open(plan.address, { width: 360, height: 640 });
		const wide = await page.evaluate(() => document.documentElement.scrollWidth);
		assert.ok(wide <= 360, `${wide}`);
		await page.click("#theme");
		assert.ok(await page.evaluate(() => document.documentElement.classList.contains("light")));
		await picture(page, "phone");
		const tops = await page.locator("header button:visible, header input").evaluateAll(all => all.map(one =>
			one.getBoundingClientRect().top));
		assert.ok(Math.max(...tops) - Math.min(...tops) < 10, `${tops}`);
		// The name of each function is in sight beside its first numbers.
		await page.click("#tab-functions");
		await page.waitForSelector("#panel-functions tbody tr");
		const [left, right] = await page.locator("#panel-functions tbody td.function").first().evaluate(cell => {
			const { left, right } = cell.getBoundingClientRect();
			return [left, right];
		});
		assert.ok(left > 150 && right <= 360, `${left} ${right}`);
		await picture(page, "phone-functions");
		await page.click("#tab-call");
		await page.keyboard.press("ArrowLeft");
		assert.ok(await page.isVisible("#panel-export table"));
		await done(page);
	},

	async "two browsers see what each of them wants"() {
		const [one, other] = await Promise.all([open(plan.address), open(plan.address)]);
		await one.keyboard.press("w");
		assert.notDeepEqual(await state(one), await state(other));
		await done(one);
		await done(other);
	},

	async "a hostile name is only a name"() {
		const page = await open(plan.hostile);
		await page.click("#tab-functions");
		await page.waitForSelector("#panel-functions tbody tr");
		await page.click("#tab-flame");
		await page.waitForSelector(".flame button");
		await page.mouse.move(640, 145);
		await page.mouse.click(640, 145);
		await page.waitForSelector("#panel-call table");
		assert.ok((await page.textContent("#panel-call")).includes("<img"));
		assert.equal(await page.locator("img, script:not([src], #traces)").count(), 0);
		assert.equal(await page.locator("#traces").count(), 1);
		await done(page);
	},

	async "answers nobody who does not know the token, or comes from elsewhere"() {
		const { port, origin, pathname } = new URL(plan.address);
		const status = (path, headers = {}) => new Promise((resolve, reject) => {
			http.get({ port, path, headers, host: "127.0.0.1" }, answer => {
				answer.resume();
				resolve(answer.statusCode);
			}).on("error", reject);
		});
		assert.equal(await status(pathname), 200);
		assert.equal(await status("/"), 403);
		assert.equal(await status(`/${"0".repeat(32)}/api/0/trace`), 403);
		assert.equal(await status(pathname, { Host: "example.org" }), 403);
		assert.equal(await status(pathname, { Origin: "http://example.org" }), 403);
		assert.equal(await status(pathname, { "Sec-Fetch-Site": "cross-site" }), 403);
		assert.equal(await status(`${pathname}../../etc/passwd`), 404);
		assert.equal(await status(`${pathname}api/0/cells?from=0&until=1&columns=99999999&rows=0:0:9`), 422);
		assert.equal(await status(`${pathname}api/0/stack?thread=99&at=0&depth=0`), 422);
		assert.ok(origin.startsWith("http://127.0.0.1:"));
	},

	async "a trace that is being recorded grows"() {
		const page = await open(plan.growing, undefined, begun);
		const before = await page.evaluate(() => window.nopal[0].view.trace.calls);
		await page.waitForFunction(before => window.nopal[0].view.trace.calls > before + 20, before);
		await done(page);
	},
};

await run(steps);
