// Takes the pictures of the page that docs/view.md shows: `pictures.mjs DIRECTORY PROGRAM TRACKS BESIDE`, the last three
// addresses of `nopal view`. docs/contributing.md tells of which traces.

import { browser, open, settled } from "./browser.mjs";

const [directory, program, tracks, beside] = process.argv.slice(2);

const save = async (page, name) => {
	await settled(page);
	// The chart is drawn once more after its records have come.
	await page.waitForTimeout(500);
	await page.screenshot({ path: `${directory}/${name}.png` });
	await page.context().close();
};

{
	const page = await open(program);
	await page.mouse.click(640, 254);
	await page.waitForSelector("#panel-call table");
	await page.mouse.move(640, 700);
	await save(page, "view");
}
{
	const page = await open(tracks, { width: 1280, height: 800 });
	await page.evaluate(() => {
		const { view } = window.nopal[0];
		view.tracks = new Set(["cpu", "lockhold", "begun.id..served.id", "served.load"]);
		view.panel = "tracks";
		view.order();
		view.show(view.trace.duration * 0.4, view.trace.duration * 0.4 + 2e6);
	});
	await page.waitForFunction(() => document.body.dataset.tracks === window.nopal[0].tracks.wanted
		&& window.nopal[0].tracks.wanted.includes("served.load"));
	await page.waitForSelector("#panel-tracks tbody tr");
	await save(page, "view-tracks");
}
{
	const page = await open(beside);
	await page.evaluate(() => window.nopal.forEach(({ view }) => {
		const { duration } = view.trace;
		view.range = [Math.round(duration * 0.3), Math.round(duration * 0.5)];
		view.panel = "compare";
		view.changed();
	}));
	await page.selectOption("#align", "selections");
	await page.waitForSelector("#panel-compare tbody tr");
	await save(page, "view-beside");
}
await browser.close();
