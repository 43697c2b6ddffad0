// Opens a profile with speedscope, and prints what its table shows: `speedscope.mjs RELEASE PROFILE`, where RELEASE is
// the folder of the package that has its page. The output is JSON: rows of total, self time and function, as texts.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { browser } from "./browser.mjs";

const [, , release, profile] = process.argv;
const KINDS = { html: "text/html", js: "text/javascript", css: "text/css" };

const server = http.createServer((request, response) => {
	const name = new URL(request.url, "http://localhost").pathname.slice(1) || "index.html";
	const path = name === "profile" ? profile : join(release, name);
	response.writeHead(200, { "Content-Type": KINDS[name.split(".").at(-1)] ?? "application/octet-stream" });
	response.end(readFileSync(path));
});
await new Promise(resolve => server.listen(0, "127.0.0.1", resolve));

const page = await browser.newPage({ viewport: { width: 1280, height: 2000 } });
page.setDefaultTimeout(120_000);
const wrongs = [];
page.on("pageerror", error => wrongs.push(error.message));
const origin = `http://127.0.0.1:${server.address().port}`;
await page.goto(`${origin}/#profileURL=${encodeURIComponent(`${origin}/profile`)}`);
await page.getByText("Sandwich").click();
await page.getByText("Symbol Name").waitFor();
const rows = await page.locator("table tr").evaluateAll(rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim())));
if (process.env.NOPAL_PICTURES) {
	await page.screenshot({ path: `${process.env.NOPAL_PICTURES}/speedscope.png` });
}
assert.deepEqual(wrongs, []);
await browser.close();
server.close();
console.log(JSON.stringify(rows.filter(row => row.length === 3)));
