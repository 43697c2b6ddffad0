// The common part of the scripts that view the page: a browser, and pages in it.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync"];

export const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });

/** The timeout of every wait in milliseconds: long, as the machine may be busy. */
const PATIENCE = 120_000;

/** Opens a window, then the page in it after `before`, and collects its errors. */
export async function open(address, viewport = { width: 1280, height: 720 }, ready = settled, before = async () => {}) {
	const context = await browser.newContext({ viewport, colorScheme: "dark" });
	context.setDefaultTimeout(PATIENCE);
	const page = await context.newPage();
	const host = new URL(address).host;
	page.wrongs = [];
	page.on("pageerror", error => page.wrongs.push(error.message));
	page.on("console", message => message.type() === "error" && page.wrongs.push(message.text()));
	page.on("dialog", dialog => page.wrongs.push(`dialog ${dialog.message()}`));
	page.on("request", request => {
		const { host: asked, protocol } = new URL(request.url());
		if (asked !== host && protocol !== "data:") {
			page.wrongs.push(`asked ${request.url()}`);
		}
	});
	await before();
	await page.goto(address);
	await ready(page);
	return page;
}

/** Waits until everything in sight has been read. */
export const settled = page => page.waitForFunction(() => window.nopal?.every(({ root, chart, view }) =>
	root.dataset.state === "exact" && chart.picture?.cells.until >= view.until));

/** Waits until the page is there. A growing trace may never settle: it grows while it is read. */
export const begun = page => page.waitForFunction(() => window.nopal);

export const done = async page => {
	assert.deepEqual(page.wrongs, []);
	await page.context().close();
};

export async function picture(page, name) {
	const { NOPAL_PICTURES: pictures } = process.env;
	if (pictures) {
		await page.screenshot({ path: `${pictures}/${name}.png` });
	}
}

/**
 * Takes the steps of a script, and reports those that failed.
 * @param {Record<string, () => Promise<void>>} steps
 */
export async function run(steps) {
	for (const [name, step] of Object.entries(steps)) {
		try {
			await step();
			console.log(`ok: ${name}`);
		} catch (error) {
			console.log(`failed: ${name}: ${error.stack}`);
			process.exitCode = 1;
		}
	}
	await browser.close();
}
