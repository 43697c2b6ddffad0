// The calls of a time by the path that led to them: as a tree of rows, and as a flame graph.

/** @import {Details} from "./details.js" */
/** @import {Graph} from "./types.js" */

import { colorOf, css } from "./colors.js";
import { byId, count, duration, element } from "./text.js";

/** A row opens by itself if one of its calls takes this part of its time. */
const HOT = 0.5;
/** The narrowest box of a flame graph, as a part of the width. */
const NARROWEST = 0.0008;

/**
 * @param {Graph} graph
 * @returns {number} the time of all outermost calls
 */
function whole({ nodes }) {
	return nodes.reduce((sum, [, parent, , total], at) => at > 0 && parent === 0 ? sum + total : sum, 0);
}

/** @param {Graph} graph */
function note({ left_out: leftOut }) {
	return leftOut > 0 ? [element("p", `${count(leftOut)} paths that took less are left out.`)] : [];
}

/**
 * @param {Details} details
 * @param {Graph} graph
 */
export function showTree(details, graph) {
	const { nodes } = graph;
	/** @type {number[][]} */
	const children = nodes.map(() => []);
	nodes.forEach(([, parent], at) => at > 0 && children[parent].push(at));
	children.forEach(some => some.sort((one, other) => nodes[other][3] - nodes[one][3]));
	const all = Math.max(1, whole(graph));
	const table = element("table");
	table.setAttribute("role", "treegrid");
	table.append(element("caption", `Calls by the path that led to them, of ${details.subject()}`));
	const head = table.createTHead().insertRow();
	for (const name of ["total", "of all", "self", "calls", "function"]) {
		const cell = element("th", name, name === "function" ? "name" : "");
		cell.scope = "col";
		head.append(cell);
	}
	const body = table.createTBody();

	/**
	 * Puts rows behind another one.
	 * @param {number} parent
	 * @param {number} level
	 * @param {HTMLTableRowElement | null} behind
	 */
	const open = (parent, level, behind) => {
		/** @type {(() => void)[]} */
		const hot = [];
		let last = behind;
		for (const at of children[parent]) {
			const [site, , calls, total, own] = nodes[at];
			const row = body.insertRow(last ? last.sectionRowIndex + 1 : -1);
			last = row;
			row.ariaLevel = String(level);
			const texts = [duration(total), `${(total / all * 100).toFixed(1)} %`, duration(own), count(calls)];
			row.append(...texts.map(text => element("td", text)));
			const cell = element("td", "", "name");
			cell.style.paddingLeft = `${(level - 1) * 14}px`;
			const fold = element("button", children[at].length > 0 ? "▸" : "", "fold");
			fold.type = "button";
			fold.disabled = children[at].length === 0;
			fold.ariaLabel = `calls of ${details.name(site)}`;
			const toggle = () => {
				const isOpen = row.ariaExpanded === "true";
				row.ariaExpanded = String(!isOpen);
				fold.textContent = isOpen ? "▸" : "▾";
				if (isOpen) {
					close(row, level);
				} else {
					open(at, level + 1, row);
				}
			};
			fold.addEventListener("click", toggle);
			if (children[at].length > 0) {
				row.ariaExpanded = "false";
				if (nodes[children[at][0]][3] >= total * HOT && total >= all * 0.05) {
					hot.push(toggle);
				}
			}
			cell.append(fold, details.link(site, () => details.actions.search(details.name(site))));
			row.append(cell);
		}
		hot.reverse().forEach(toggle => toggle());
	};

	/**
	 * @param {HTMLTableRowElement} row
	 * @param {number} level
	 */
	const close = (row, level) => {
		for (let next = row.nextElementSibling; next && Number(next.ariaLevel) > level; next = row.nextElementSibling) {
			next.remove();
		}
	};

	open(0, 1, null);
	byId("panel-tree").replaceChildren(table, ...note(graph));
}

/**
 * @param {Details} details
 * @param {Graph} graph
 */
export function showFlame(details, graph) {
	const flame = element("div", "", "flame");
	const all = whole(graph);
	/** For each node, its begin and the part taken by its children, in parts of the width, and its depth. */
	/** @type {{left: number, taken: number, depth: number}[]} */
	const places = [{ left: 0, taken: 0, depth: -1 }];
	let deepest = 0;
	graph.nodes.forEach(([site, parent, calls, total], at) => {
		if (at === 0) {
			return;
		}
		const under = places[parent];
		const place = { left: under.left + under.taken, taken: 0, depth: under.depth + 1 };
		places.push(place);
		const width = total / Math.max(1, all);
		under.taken += width;
		deepest = Math.max(deepest, place.depth);
		if (width < NARROWEST) {
			return;
		}
		const name = details.name(site);
		const button = element("button");
		button.type = "button";
		button.append(element("span", name));
		button.ariaLabel = name;
		button.style.left = `${place.left * 100}%`;
		button.style.width = `${width * 100}%`;
		button.style.top = `${place.depth * 18}px`;
		button.style.background = css(colorOf(name));
		button.title = `${name}: ${duration(total)}, ${count(calls)} calls, ${(width * 100).toFixed(1)} %`;
		button.addEventListener("click", () => details.actions.search(name));
		flame.append(button);
	});
	flame.style.height = `${(deepest + 1) * 18}px`;
	byId("panel-flame").replaceChildren(flame, ...note(graph));
}
